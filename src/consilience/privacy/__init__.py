"""Differential privacy, secure aggregation, malicious parties and attacks."""
