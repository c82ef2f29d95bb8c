"""Kernel federations computed exactly, without messages (Park et al. 2023; Afonin and Karimireddy 2022)."""
