"""Transforms of a message on its way out of a party: compression, and noise for privacy."""
