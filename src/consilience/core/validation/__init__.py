"""Checks of arrays, labels, options and configuration tables, and of the memory that they need."""
