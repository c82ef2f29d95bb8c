"""Attacks on what leaves a party, made on one's own runs: who is in the rows, and of which classes.

Numerics are functions on arrays: :mod:`~consilience.privacy.attacks.membership` tells members from others by
shadow parties, and :mod:`~consilience.privacy.attacks.class_shares` how many rows a party has of each class.
:func:`~consilience.lab.diagnostics.attack_run.attack_run` makes them on a run folder.
"""
