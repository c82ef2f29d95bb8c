"""Differentially private sums of a class, in place of predictions."""
