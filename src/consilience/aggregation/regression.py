"""Rules for regression values: m parties, n public rows, o targets."""

from __future__ import annotations

import numpy as np

from consilience.aggregation.base import Aggregator, Array, Stack, weighted_mean_of
from consilience.knowledge import RowCount


def mean() -> Aggregator:
    """Mean of the parties' values; Park et al. 2023, Algorithm 1."""

    def rule(stack: Stack) -> tuple[Array, Array]:
        weights = np.full(stack.outputs.shape[:2], 1 / len(stack.parties))
        return stack.outputs.mean(axis=0), weights

    return Aggregator("mean", rule, outputs="values")


def weighted_mean() -> Aggregator:
    """Mean of the parties' values weighted by their private row counts."""

    def rule(stack: Stack) -> tuple[Array, Array]:
        assert stack.rows is not None
        weights = np.repeat(
            (stack.rows / stack.rows.sum())[:, None], stack.outputs.shape[1], axis=1
        )
        return weighted_mean_of(stack.outputs, weights), weights

    return Aggregator("weighted-mean", rule, outputs="values", needs=(RowCount,))


def median() -> Aggregator:
    """Median of the parties' values, target by target; unmoved by fewer than half of them."""

    def rule(stack: Stack) -> tuple[Array, None]:
        return np.median(stack.outputs, axis=0), None

    return Aggregator("value-median", rule, outputs="values")
