"""Rules for class probabilities.

Each rule is a pure function of a :class:`~consilience.core.aggregation.base.Stack` with m parties, n public
rows and K classes; ``p_c(x)`` is party c's probability vector on row x. The functions named like rules
are factories: ``uwa()`` gives an :class:`~consilience.core.aggregation.base.Aggregator`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import numpy as np
from scipy.special import entr, softmax

from consilience.core.aggregation.base import (
    Aggregator,
    Combined,
    Stack,
    mean_by_rows,
    onto_simplex,
    plain_mean,
    weighted_mean_of,
)
from consilience.core.aggregation.density_ratio import RIDGE
from consilience.core.errors import InvalidInput
from consilience.core.messages.scores import DensityRatios, LogDensities, RowCount
from consilience.core.validation.numbers import check_number

__all__ = [
    "avg",
    "mean_logits",
    "uwa",
    "suwa",
    "entropy_weighted",
    "sharpened_mean",
    "power_sharpened_mean",
    "majority_vote",
    "coordinate_median",
    "trimmed_mean",
    "count_weighted",
]
"""Rules that a configuration can name, registered by :mod:`consilience.core.aggregation`."""

TEMPERATURES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Candidate temperatures of sUWA; 0 gives the mean, 1 gives UWA."""

_UNHEARD = 1e-3
"""Lower bound on probabilities in a likelihood, so that a few mislabelled neighbours do not dominate it."""


def avg() -> Aggregator:
    """Mean of probabilities (AVG), ``(1/m) sum_c p_c(x)``.

    Li & Wang 2019 (FedMD); Kovalchuk et al. 2026, section 4.2.
    """
    return Aggregator("avg", plain_mean, linear=True)


def mean_logits() -> Aggregator:
    """Softmax of the mean of logits, ``softmax((1/m) sum_c z_c(x))``.

    Lin et al. 2020 (FedDF).
    """

    def rule(stack: Stack) -> Combined:
        mean, weights, *_ = plain_mean(stack)
        return Combined(softmax(mean, axis=1), weights)

    return Aggregator("mean-logits", rule, outputs="logits", linear=True)


def uwa() -> Aggregator:
    """Uncertainty-weighted averaging: weights are the softmax over parties of their log-densities.

    ``w_c(x) = exp(l_c(x)) / sum_j exp(l_j(x))``; Kovalchuk et al. 2026, section 4.4, eq. 6. As a sum under
    masks the log-densities are cut at ±14 (:mod:`consilience.privacy.secure_aggregation.rules_as_sums`).
    """
    return _density_weighted("uwa", 1.0)


def suwa(temperature: float | Literal["auto"] = 0.1) -> Aggregator:
    """Smoothed UWA: weights are the softmax over parties of ``temperature * l_c(x)``.

    Kovalchuk et al. 2026, section 4.4. The value used there is lost in our copy of the text;
    0.1 is the default of this library.

    ``"auto"`` takes, in every round, the one of :data:`TEMPERATURES` whose teacher t has the highest
    likelihood ``sum_c sum_x sum_y s_c(x, y) log t(x, y)`` on the parties' calibration rows. Calibration
    rows stay at the parties, which send density ratios once. ``s_c(x, y)`` is the number of party c's rows
    of class y per public row at x (:class:`consilience.core.numerics.density.PublicRatio`). Private rows
    can be reconstructed from these ratios, so use ``"auto"`` only in simulations, like
    :func:`~consilience.core.aggregation.density_ratio.density_ratio`.

    Args:
        temperature: T > 0; 1 gives UWA, T → 0 the mean, T → ∞ the most confident party alone; under masks T
            is at most 1, and T l is cut at ±14. Or ``"auto"``, for which parties need calibration rows.
    """
    if temperature == "auto":
        return _tempered_by_calibration()
    if isinstance(temperature, str):
        raise InvalidInput(
            f"temperature is {temperature!r}",
            where="suwa",
            mend="Give a number above 0, or 'auto'.",
        )
    check_number("temperature", temperature, above=0, where="suwa")
    return _density_weighted("suwa", temperature)


def entropy_weighted(temperature: float = 1.0) -> Aggregator:
    """Weight parties by confidence: the softmax over parties of ``-H(p_c(x)) / T``.

    Args:
        temperature: T > 0, in nats of entropy H; T → ∞ gives the mean.
    """
    check_number("temperature", temperature, above=0, where="entropy")

    def rule(stack: Stack) -> Combined:
        entropy = entr(stack.outputs).sum(axis=2)
        weights = softmax(-entropy / temperature, axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    # Below, the weights of the parties that are least sure vanish beside the steps of a sum.
    summed = ("entropy", {"temperature": temperature}) if temperature >= 0.2 else None
    return Aggregator("entropy", rule, summed=summed)


def sharpened_mean(temperature: float = 0.1) -> Aggregator:
    """Entropy-reduction aggregation (ERA): ``softmax(mean_c p_c(x) / T)``.

    Itahara et al. 2021 (DS-FL), eq. 15, where T = 0.1.

    Args:
        temperature: T > 0; T → 0 gives the likeliest class alone.
    """
    check_number("temperature", temperature, above=0, where="era")

    def rule(stack: Stack) -> Combined:
        mean, weights, *_ = plain_mean(stack)
        return Combined(softmax(mean / temperature, axis=1), weights)

    return Aggregator("era", rule, linear=True, one_class=True)


def power_sharpened_mean(exponent: float = 2.0) -> Aggregator:
    """Enhanced ERA (SCARLET): the mean of probabilities to a power, ``p_k^β / sum_j p_j^β``.

    Unlike a softmax of probabilities it leaves the mean as it is at β = 1, and classes without any
    probability without any. Azuma et al. 2025 (SCARLET), where β follows the heterogeneity; 2 is the
    default of the authors' published code.

    Args:
        exponent: β > 0; 1 gives the mean, above 1 sharpens, below 1 flattens.
    """
    check_number("exponent", exponent, above=0, where="enhanced-era")

    def rule(stack: Stack) -> Combined:
        mean, weights, *_ = plain_mean(stack)
        # Relative to the largest, so that no power can vanish for all classes.
        powers = (mean / mean.max(axis=1, keepdims=True)) ** exponent
        return Combined(powers / powers.sum(axis=1, keepdims=True), weights)

    return Aggregator("enhanced-era", rule, linear=True)


def majority_vote() -> Aggregator:
    """Compute the share of parties with this likeliest class; a party's ties are split evenly."""

    def rule(stack: Stack) -> Combined:
        top = stack.outputs == stack.outputs.max(axis=2, keepdims=True)
        votes = top / top.sum(axis=2, keepdims=True)
        return plain_mean(Stack(stack.parties, votes))

    return Aggregator("vote", rule, one_class=True, summed=("votes", {}))


def coordinate_median() -> Aggregator:
    """Compute the median over parties of each class's probability, rescaled to sum to 1.

    Yin et al. 2018, there for gradients. If every median of a row is 0, because parties are sure of different
    classes, the row keeps the mean.
    """

    def rule(stack: Stack) -> Combined:
        return Combined(
            onto_simplex(np.median(stack.outputs, axis=0), stack.outputs.mean(axis=0)), None
        )

    return Aggregator("median", rule)


def trimmed_mean(share: float = 0.2) -> Aggregator:
    """Compute the mean over parties of each class's probability without its extremes, rescaled to sum to 1.

    Yin et al. 2018. If all trimmed means of a row are 0, the row keeps the untrimmed mean.

    Args:
        share: share of the m parties to cut at each end, in [0, 0.5): ``floor(share * m)`` parties.
    """
    check_number("share", share, at_least=0, below=0.5, where="trimmed-mean")

    def rule(stack: Stack) -> Combined:
        cut = math.floor(share * len(stack.parties) + 1e-9)  # 0.29 of 100 is 29
        kept = np.sort(stack.outputs, axis=0)[cut : len(stack.parties) - cut]
        return Combined(onto_simplex(kept.mean(axis=0), stack.outputs.mean(axis=0)), None)

    return Aggregator("trimmed-mean", rule)


def count_weighted() -> Aggregator:
    """Mean of probabilities weighted by the parties' private row counts, as FedAvg weighs models."""
    return Aggregator("count-weighted", mean_by_rows, needs=(RowCount,), linear=True)


def _tempered_by_calibration() -> Aggregator:
    def rule(stack: Stack) -> Combined:
        near = np.maximum(stack.further[DensityRatios], 0).sum(axis=0)

        return max(
            (_by_density(stack, temperature) for temperature in TEMPERATURES),
            key=lambda made: float((near * np.log(np.maximum(made[0], _UNHEARD))).sum()),
        )

    return Aggregator(
        "suwa-auto",
        rule,
        needs=(LogDensities, DensityRatios),
        options={DensityRatios: {"ridge": RIDGE, "calibration": True}},
        one_class=True,
    )


def _density_weighted(name: str, temperature: float) -> Aggregator:
    rule = partial(_by_density, temperature=temperature)
    # Beyond, a sum would tell the answers of the party alone that is surest of a row.
    summed = ("densities", {"temperature": temperature}) if temperature <= 1 else None
    return Aggregator(
        name,
        rule,
        needs=(LogDensities,),
        one_class=True,
        summed=summed,
    )


def _by_density(stack: Stack, temperature: float) -> Combined:
    weights = softmax(temperature * stack.further[LogDensities], axis=0)
    return Combined(weighted_mean_of(stack.outputs, weights), weights)
