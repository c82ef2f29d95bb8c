"""Outcomes of several labels and of survival times."""
