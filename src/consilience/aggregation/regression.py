"""Rules for regression values: m parties, n public rows, o targets."""

from __future__ import annotations

import numpy as np

from consilience.aggregation.base import Aggregator, Stack, mean_by_rows, plain_mean
from consilience.messages.scores import RowCount
from consilience.validation.arrays import Array

__all__ = ["mean", "weighted_mean", "median"]
"""Rules that a configuration can name; :mod:`consilience.aggregation` hands them on."""


def mean() -> Aggregator:
    """Mean of the parties' values; Park et al. 2023, Algorithm 1."""
    return Aggregator("mean", plain_mean, outputs="values", linear=True)


def weighted_mean() -> Aggregator:
    """Mean of the parties' values weighted by their private row counts."""
    return Aggregator(
        "weighted-mean", mean_by_rows, outputs="values", needs=(RowCount,), linear=True
    )


def median() -> Aggregator:
    """Median of the parties' values, target by target; unmoved by fewer than half of them."""

    def rule(stack: Stack) -> tuple[Array, None]:
        return np.median(stack.outputs, axis=0), None

    return Aggregator("value-median", rule, outputs="values")
