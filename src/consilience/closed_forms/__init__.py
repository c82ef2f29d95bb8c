"""Kernel federations computed exactly, without messages (Park et al. 2023; Afonin and Karimireddy 2022).

They run simulations at scale. ``consilience_papers.theory`` states the same papers' theorems plainly, imports
nothing from here, and is what tests hold this against.
"""
