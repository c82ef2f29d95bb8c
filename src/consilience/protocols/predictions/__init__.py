"""Protocols in which only predictions leave a party."""
