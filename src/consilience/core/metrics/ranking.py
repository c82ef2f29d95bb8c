"""Metrics of an order of rows: the area under the ROC curve, and average precision."""

from __future__ import annotations

import numpy as np

from consilience.core.validation.arrays import Array


def area_under_curve(scores: Array, positive: Array, weights: Array) -> float:
    """Compute the weighted area under the ROC curve; ties count half.

    Args:
        scores: shape ``(n,)``.
        positive: true for rows of the positive class, shape ``(n,)``.
        weights: of the rows, shape ``(n,)``; some above 0 on either side.

    >>> area_under_curve(np.array([0.1, 0.4, 0.4]), np.array([False, True, False]), np.ones(3))
    0.75
    """
    _, place = np.unique(scores, return_inverse=True)
    hits, misses = (np.bincount(place, weights * side) for side in (positive, ~positive))
    return float(hits @ (misses.cumsum() - misses / 2) / (hits.sum() * misses.sum()))


def average_precision(scores: Array, positive: Array, weights: Array) -> float:
    """Compute the weighted mean of precision over recall, rows of equal scores together.

    Args:
        scores: shape ``(n,)``.
        positive: true for rows of the positive class, shape ``(n,)``.
        weights: of the rows, shape ``(n,)``; of some positive ones above 0.

    >>> average_precision(np.array([0.1, 0.4, 0.4]), np.array([False, True, False]), np.ones(3))
    0.5
    """
    _, place = np.unique(-scores, return_inverse=True)
    hits, held = (np.bincount(place, weights * side) for side in (positive, np.ones(len(scores))))
    found = held.cumsum()
    return float(hits @ (hits.cumsum() / np.where(found > 0, found, 1)) / hits.sum())
