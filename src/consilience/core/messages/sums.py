"""Sums over parties, computed in a fixed order: the only view of replies that a linear protocol needs.

A protocol that reads only sums can run under secure aggregation: each party adds masks to its numbers, the
masks cancel in the sum, and the network returns only the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

Weights = Literal["rows", "uniform"]
"""The weight of a party: the number of its rows, or 1."""


@prints_no_rows
@dataclass(frozen=True)
class Sum:
    """A weighted sum over parties.

    Attributes:
        values: ``sum_c weights[c] * values_c``, float64, of the shape that each party sent.
        weights: the weight of each party, shape ``(m,)``.
        parties: the m names.
    """

    values: Array
    weights: Array
    parties: tuple[str, ...]


def weighted_sum(values: Iterable[Array], weights: Iterable[float]) -> Array:
    """Add up arrays of one shape in float64, one after another.

    Args:
        values: the arrays, in the order of the parties' names.
        weights: the weight of each.

    Raises:
        ValueError: there are none.

    >>> weighted_sum([np.array([1.0, 2.0]), np.array([3.0, 4.0])], [1.0, 0.5]).tolist()
    [2.5, 4.0]
    """
    total: Array | None = None
    for weight, one in zip(weights, values, strict=True):
        if total is None:
            total = np.zeros(np.shape(one))
        total += one if weight == 1 else np.float64(weight) * one
    if total is None:
        raise ValueError("there is nothing to add up")
    return total


def party_weights(replies: Sequence[Any], weights: Weights, *, over: float | None = None) -> Array:
    """Compute the weights of the parties in a sum.

    A party without a row count gets the mean weight of the other parties.

    Args:
        replies: one reply of each party; for ``"rows"`` each has the attribute ``rows``.
        weights: ``"rows"`` or ``"uniform"``.
        over: divisor of the row counts, or of the ones; by default their sum, for a mean.

    Returns:
        Shape ``(m,)``, float64.
    """
    counts = [one.rows if weights == "rows" else 1 for one in replies]
    share = np.array(counts, dtype=np.float64)
    absent = np.array([weights == "rows" and getattr(one, "absent", False) for one in replies])
    if absent.any() and not absent.all():
        share[absent] = share[~absent].mean()
    return share / (share.sum() if over is None else over)
