"""Sums of the parties' answers that hide each single answer from the coordinator."""
