"""Training many networks of one architecture as a single batched computation."""
