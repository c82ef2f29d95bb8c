"""Rules for regression values: m parties, n public rows, o targets."""

from __future__ import annotations

import numpy as np

from consilience.core.aggregation.base import (
    Aggregator,
    Combined,
    Stack,
    mean_by_rows,
    plain_mean,
    weighted_mean_of,
)
from consilience.core.aggregation.density_ratio import DOUBT, RIDGE
from consilience.core.messages.scores import InputRatios, RowCount
from consilience.core.validation.numbers import check_number

__all__ = ["mean", "weighted_mean", "median", "value_density_ratio"]
"""Rules that a configuration can name, registered by :mod:`consilience.core.aggregation`."""


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

    def rule(stack: Stack) -> Combined:
        return Combined(np.median(stack.outputs, axis=0), None)

    return Aggregator("value-median", rule, outputs="values")


def value_density_ratio(power: float = 1.0, ridge: float = RIDGE) -> Aggregator:
    """Weight each party, per public row, by its density ratio of private to public rows.

    **For simulations**, as :func:`~consilience.core.aggregation.density_ratio.density_ratio`: private rows
    can be reconstructed from the exact ratios that this rule requires. The teacher is
    ``sum_c S_c(x) f_c(x) / sum_c S_c(x)``. ``S_c(x)`` is the number of party c's rows per public row at x
    (:class:`consilience.core.numerics.density.PublicRatio`), and f_c its model. If every model is exact on
    its party's rows, this is the mean of y given x in the pooled data. If no party has a row near x, the
    teacher is the plain mean.

    Args:
        power: exponent of the ratios, above 0; near 0 the teacher is the plain mean, and for large values the
            answer of the party with the largest ratio.
        ridge: smoothing of the ratios, above 0.

    Returns:
        An aggregator; its teacher has shape ``(n_public, n_outputs)``.

    Source:
        Mansour, Mohri & Rostamizadeh 2008, "Domain adaptation with multiple sources".
    """
    check_number("power", power, above=0, where="value-density-ratio")
    check_number("ridge", ridge, above=0, where="value-density-ratio")
    return Aggregator(
        "value-density-ratio",
        lambda stack: by_input_ratio(stack, power),
        outputs="values",
        needs=(InputRatios,),
        options={InputRatios: {"ridge": ridge}},
        summed=("input-ratios", {"power": power}),
    )


def by_input_ratio(stack: Stack, power: float) -> Combined:
    """Weigh by a power of the density ratios of inputs: the teacher, and each party's share."""
    near = np.maximum(stack.further[InputRatios], 0) ** power
    m, n = near.shape
    near += DOUBT * near.sum() / (m * n) or 1.0
    weights = near / near.sum(axis=0)
    return Combined(weighted_mean_of(stack.outputs, weights), weights)
