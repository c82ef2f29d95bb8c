"""Loaders of the data sets that the papers and the examples use."""
