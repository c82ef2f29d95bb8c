"""Attacks on what leaves a party, made on one's own runs: who is in the rows, and of which classes.

Numerics are functions on arrays: :mod:`~consilience.checks.attacks.membership` tells members from others by
shadow parties, and :mod:`~consilience.checks.attacks.class_shares` how many rows a party has of each class.
:func:`~consilience.checks.attacks.finished_run.attack_run` makes them on a run folder.
"""

from consilience.checks.attacks.class_shares import (
    divergence,
    shares_from_predictions,
    shares_from_sums,
)
from consilience.checks.attacks.membership import (
    area_under_curve,
    confidence_likelihood,
    highest_area,
    public_row_likelihood,
    relative_likelihood,
    true_positives,
)

__all__ = [
    "area_under_curve",
    "confidence_likelihood",
    "divergence",
    "highest_area",
    "public_row_likelihood",
    "relative_likelihood",
    "shares_from_predictions",
    "shares_from_sums",
    "true_positives",
]
