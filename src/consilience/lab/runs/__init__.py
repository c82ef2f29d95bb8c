"""Run folders and their ledgers, of experiments and of deployed federations."""
