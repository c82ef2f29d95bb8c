"""Numerical methods without any federation: kernels, losses, densities, feature spaces, random streams."""
