"""Checks of arrays, labels, options and configuration tables, and of their memory use."""
