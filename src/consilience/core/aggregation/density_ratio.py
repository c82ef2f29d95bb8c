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
"""Rules that a configuration can name, registered by :mod:`consilience.core.aggregation`."""


RIDGE = 0.3
"""Smoothing of density ratios, chosen by the teacher's accuracy on public rows of digits, MNIST and TREC."""

Estimator = Literal["kernel", "logistic"]
ESTIMATORS = ("kernel", "logistic")
"""Estimators of density ratios."""

DOUBT = 1e-3
"""Weight of all parties together in addition to their ratios, for each class, as a share of the mean total of
ratios per row. The teacher is therefore the plain mean on rows far from all private rows."""


def density_ratio(ridge: float = RIDGE, estimator: Estimator = "kernel") -> Aggregator:
    """Weight each party, per public row and class, by its density ratio of private to public rows.

    **For simulations**: rows of small classes can be reconstructed from the exact ratios that this rule
    requires, and membership in a class can be inferred (``docs/results/rebuilding.md``). Sites refuse these
    ratios; use :func:`coarse_density_ratio` between sites.

    If the parties' data were pooled, labels would follow ``p(y | x) ∝ sum_c s_c(x, y)``; ``s_c(x, y)`` is
    the number of party c's rows of class y per public row at x. Every party estimates its s_c in a feature
    space computed from the public rows alone (:mod:`consilience.core.numerics.feature_space`), relative to
    the density of the public rows (:class:`consilience.core.numerics.density.PublicRatio`). Estimates of
    different parties are therefore comparable, whatever their models. The party's model provides a second
    estimate of the same classes, and the teacher is

        t(x, y) ∝ sum_c s_c(x, y) p_c(x, y).

    If all parties have the same distribution of rows, the teacher is the mean of their models times the
    pooled ratios. A single party's answer is returned unchanged. The reported weights are each party's
    share of the teacher's mass.

    Args:
        ridge: smoothing of the ratios, above 0, for the kernel estimator only. The default was chosen on
            digits, MNIST and TREC, by the teacher's accuracy on their public rows. Up to ten times the
            default changes little; below a third of it, ratios follow single rows.
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
    """Weight each party, per public row and class, by coarse density ratios of its private rows.

    The rule of :func:`density_ratio` is applied to ratios with less private information, and the
    coordinator cannot set their precision (:func:`consilience.core.numerics.coarse_ratios.coarse_ratios`).
    By default they are made of at most 100 counts per class, in steps of five, in 20 directions, and
    classes with fewer than 20 rows are omitted. A party may set other values
    (:class:`consilience.core.numerics.coarse_ratios.Coarseness`). A site releases these ratios only if its
    limits allow it (``limits.density_ratios``). If all ratios are 0, the teacher is the plain mean.

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
