"""Weights of the terms of a boosted sum: the weights after a descent, and the negligible weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number


def descent_weights(step_sizes: Sequence[float], ridge: float) -> Array:
    """Compute the weak learners' weights after a functional descent, ``w_k = −η_k Π_{l>k} (1 − η_l μ)``.

    Args:
        step_sizes: η_1 … η_K.
        ridge: μ.

    Returns:
        The weights, shape ``(K,)``.

    >>> descent_weights([0.25, 0.25], 1.0).tolist()
    [-0.1875, -0.25]
    """
    rates = np.asarray(step_sizes, dtype=np.float64)
    after = np.cumprod((1 - rates * ridge)[::-1])[::-1]
    return np.asarray(-rates * np.append(after[1:], 1.0))


def negligible(weights: Array, tolerance: float) -> Array:
    """Mark the terms to drop: the smallest weights, up to a share ``tolerance`` of the total weight.

    Dropping them changes a sum of functions bounded by B by at most ``tolerance · B · Σ_j |w_j|``. With
    ``tolerance`` 0, only weights of exactly 0 are dropped.

    Args:
        weights: shape ``(n,)``.
        tolerance: a share in [0, 1).

    Returns:
        Booleans, shape ``(n,)``.

    >>> negligible(np.array([0.5, -0.01, 0.0, 0.49]), 0.02).tolist()
    [False, True, True, False]
    """
    check_number("the share of weight that may be left out", tolerance, at_least=0, below=1)
    sizes = np.abs(weights)
    order = np.argsort(sizes, kind="stable")
    out = np.zeros(len(sizes), dtype=bool)
    out[order] = np.cumsum(sizes[order]) <= tolerance * sizes.sum()
    return out
