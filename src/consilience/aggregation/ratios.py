"""Weights from a space that all parties share, not from each party's own logits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from consilience.aggregation.base import Aggregator, Array, Stack
from consilience.errors import InvalidInput
from consilience.knowledge import CoarseRatios, DensityRatios

RIDGE = 0.3
"""How much density ratios are smoothed. Chosen on digits, MNIST and TREC, by the accuracy of the teacher that
they make on their public rows."""

_DOUBT = 1e-3
"""What all parties together count for beyond their ratios, for each class, as a share of what the ratios
of a row come to on the mean: on rows that nobody knows the teacher is the plain mean."""


def density_ratio(ridge: float = RIDGE) -> Aggregator:
    """Every party counts, on each row and for each class, as its private rows of that class lie near the row.

    **For simulations**: rows of small classes can be rebuilt from what it asks for, and who is in a class can
    be told (``benchmarks/rebuilding.py``). Between sites parties refuse it, and :func:`coarse_density_ratio`
    is what may be used.

    Pooled, the parties' data would follow ``p(y | x) ∝ sum_c s_c(x, y)``, where ``s_c(x, y)`` is how many
    rows of class y party c has for each public row at x. Every party estimates its own s_c, in a space made
    of the public rows alone (:mod:`consilience.spaces`), relative to the density of the public rows
    (:class:`consilience.density.PublicRatio`), which makes estimates of different parties comparable,
    whatever their models. Its model is a second witness of the same classes, and the teacher is

        t(x, y) ∝ sum_c s_c(x, y) p_c(x, y).

    Where all parties' rows are alike that is their mean, times what their rows say together. A party that
    answers alone is believed as it is: there is nobody to weigh it against. The weights that the teacher
    reports are the shares of its mass that came from each party.

    Args:
        ridge: how much the ratios are smoothed, above 0. The default was chosen on digits, MNIST and TREC,
            by the teacher's accuracy on their public rows; up to ten times it little changes, and below a
            third of it ratios follow single rows.

    Source:
        This library's own. Weighing by density ratios is importance weighting (Sugiyama, Suzuki & Kanamori
        2012, "Density ratio estimation in machine learning").
    """
    if not 0 < ridge < np.inf:
        raise InvalidInput(
            f"ridge is {ridge}", where="density-ratio", mend="It must be greater than 0."
        )

    return Aggregator(
        "density-ratio",
        partial(_by_ratio, kind=DensityRatios),
        needs=(DensityRatios,),
        options={DensityRatios: {"ridge": ridge}},
    )


def coarse_density_ratio() -> Aggregator:
    """Every party counts, on each row and for each class, as coarse counts of its private rows say.

    The rule of :func:`density_ratio`, of ratios that may leave a party, and of which the coordinator chooses
    nothing (:func:`consilience.density.coarse_ratios`): at most 100 counts a class, in fives, in 20
    directions, of no class with fewer than 20 rows, unless the party has chosen otherwise
    (:class:`consilience.density.Coarseness`). At a site it gives them only where its limits allow it
    (``limits.density_ratios``). Where nobody says anything the teacher is the plain mean.

    Source:
        This library's own, as :func:`density_ratio`.
    """
    return Aggregator(
        "coarse-density-ratio", partial(_by_ratio, kind=CoarseRatios), needs=(CoarseRatios,)
    )


def _by_ratio(stack: Stack, *, kind: type[Any]) -> tuple[Array, Array]:
    """The teacher, and the share of its mass that came from each party."""
    m, n, _ = stack.outputs.shape
    if m == 1:
        return stack.outputs[0], np.ones((1, n))
    near = np.maximum(stack.further[kind], 0)
    doubt = _DOUBT * near.sum() / (m * n)
    votes = (near + (doubt or 1.0)) * stack.outputs
    total = votes.sum(axis=(0, 2))
    return votes.sum(axis=0) / total[:, None], votes.sum(axis=2) / total
