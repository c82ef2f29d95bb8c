"""Rules that weigh parties on each row by the ratio of the densities of their private rows to the public
ones."""

from __future__ import annotations

from typing import Literal

import numpy as np

from consilience.core.aggregation.base import Aggregator, Combined
from consilience.core.messages.scores import CoarseRatios, DensityRatios
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number

__all__ = [
    "density_ratio",
    "coarse_density_ratio",
]
"""Rules that a configuration can name; :mod:`consilience.core.aggregation` hands them on."""


RIDGE = 0.3
"""How much density ratios are smoothed. Chosen on digits, MNIST and TREC, by the accuracy of the teacher that
they make on their public rows."""

Estimator = Literal["kernel", "logistic"]
ESTIMATORS = ("kernel", "logistic")
"""How density ratios can be estimated."""

DOUBT = 1e-3
"""What all parties together count for beyond their ratios, for each class, as a share of what the ratios
of a row come to on the mean: on rows that nobody knows the teacher is the plain mean."""


def density_ratio(ridge: float = RIDGE, estimator: Estimator = "kernel") -> Aggregator:
    """Every party counts, on each row and for each class, as its private rows of that class lie near the row.

    **For simulations**: rows of small classes can be rebuilt from what it asks for, and who is in a class can
    be told (``docs/results/rebuilding.md``). Between sites parties refuse it, and
    :func:`coarse_density_ratio` is what may be used.

    Pooled, the parties' data would follow ``p(y | x) ∝ sum_c s_c(x, y)``, where ``s_c(x, y)`` is how many
    rows of class y party c has for each public row at x. Every party estimates its own s_c, in a space made
    of the public rows alone (:mod:`consilience.core.numerics.feature_space`), relative to the density of the
    public rows (:class:`consilience.core.numerics.density.PublicRatio`), which makes estimates of different
    parties comparable, whatever their models. Its model is a second witness of the same classes, and the
    teacher is

        t(x, y) ∝ sum_c s_c(x, y) p_c(x, y).

    Where all parties' rows are alike that is their mean, times what their rows say together. A party that
    answers alone is believed as it is: there is nobody to weigh it against. The weights that the teacher
    reports are the shares of its mass that came from each party.

    Args:
        ridge: how much the ratios are smoothed, above 0. The default was chosen on digits, MNIST and TREC,
            by the teacher's accuracy on their public rows; up to ten times it little changes, and below a
            third of it ratios follow single rows. It is of the kernel's alone.
        estimator: ``"kernel"``; or ``"logistic"``, the odds of a logistic regression between the party's
            classes and "public" (:func:`consilience.methods.comparison_rules.membership.log_odds`).

    Source:
        This library's own. Weighing by density ratios is importance weighting (Sugiyama, Suzuki & Kanamori
        2012, "Density ratio estimation in machine learning"; with estimates of p(c | x) in place of
        densities Cortes, Mohri, Suresh & Zhang 2021).
    """
    check_number("ridge", ridge, above=0, where="density-ratio")
    check_choice("estimator", estimator, ESTIMATORS, where="density-ratio")
    return Aggregator(
        "density-ratio",
        lambda stack: by_ratio(stack.outputs, stack.further[DensityRatios]),
        needs=(DensityRatios,),
        options={DensityRatios: {"ridge": ridge, "estimator": estimator}},
        one_class=estimator == "logistic",
        summed=("ratios", {}),
    )


def coarse_density_ratio() -> Aggregator:
    """Every party counts, on each row and for each class, as coarse counts of its private rows say.

    The rule of :func:`density_ratio`, of ratios that may leave a party, and of which the coordinator chooses
    nothing (:func:`consilience.core.numerics.coarse_ratios.coarse_ratios`): at most 100 counts a class, in
    fives, in 20 directions, of no class with fewer than 20 rows, unless the party has chosen otherwise
    (:class:`consilience.core.numerics.coarse_ratios.Coarseness`). At a site it gives them only where its
    limits allow it (``limits.density_ratios``). Where nobody says anything the teacher is the plain mean.

    Source:
        This library's own, as :func:`density_ratio`.
    """
    return Aggregator(
        "coarse-density-ratio",
        lambda stack: by_ratio(stack.outputs, stack.further[CoarseRatios]),
        needs=(CoarseRatios,),
        summed=("ratios", {}),
    )


def by_ratio(outputs: Array, ratios: Array) -> Combined:
    """Weigh by density ratios of rows and classes: the teacher, and the share of its mass from each party.

    Args:
        outputs: probabilities, shape ``(m, n, K)``; of one party they are the teacher.
        ratios: of the same shape; below 0 is 0.
    """
    m, n, _ = outputs.shape
    if m == 1:
        return Combined(outputs[0], np.ones((1, n)))
    near = np.maximum(ratios, 0)
    doubt = DOUBT * near.sum() / (m * n)
    votes = (near + (doubt or 1.0)) * outputs
    total = votes.sum(axis=(0, 2))
    return Combined(votes.sum(axis=0) / total[:, None], votes.sum(axis=2) / total)
