"""Numerical methods without any federation: kernels, losses, densities, nearness, feature spaces."""
