"""Protocols in which whole models leave a party."""
