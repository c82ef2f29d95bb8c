"""Diagnostics before training: coverage of the public rows, and differences between parties."""
