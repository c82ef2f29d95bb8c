"""Rules that tolerate malicious parties, and simulated attacks."""
