"""Arithmetic of differential privacy: the losses of releases, their composition, and the resulting (ε, δ).

A Gaussian release of a vector that one unit moves by at most Δ, with noise of standard deviation σ, is μ-GDP
with μ = Δ/σ. As long as all releases are Gaussian, the squares of their μ add up and

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)

is exact. If other releases are among them, Rényi divergences of fixed orders add up instead, and

    ε = min over α of  ε(α) + ln((α − 1)/α) − (ln δ + ln α)/(α − 1),

which overestimates the ε of Gaussian releases by about 8 %.

Source:
    Balle & Wang 2018 (the analytic Gaussian mechanism); Dong, Roth & Su 2022 (μ-GDP and its composition);
    Mironov 2017 (Rényi divergences); Canonne, Kamath & Steinke 2020 (their ε); Agarwal, Kairouz & Liu 2021
    (Skellam noise); Mironov, Talwar & Zhang 2019 (Gaussian noise on a random part of the rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Literal, get_args

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number

Adjacency = Literal["add-remove", "replace"]
"""Neighbouring data: ``"add-remove"`` adds or removes one unit, ``"replace"`` exchanges one for another."""

ORDERS = (1.25, 1.5, 1.75, *range(2, 65), *range(72, 257, 8), *range(288, 1025, 32))
"""Orders α of the Rényi divergences."""


@dataclass(frozen=True)
class PrivacyLoss:
    """Privacy loss of one or several releases, for one unit of private data.

    Attributes:
        mu: μ of the Gaussian releases.
        renyi: Rényi divergences of the other releases at :data:`ORDERS`; empty if there are none.
        adjacency: neighbouring data of the bound.
        unit: unit of privacy: ``"row"``, or the name of the column whose values identify units.

    Raises:
        InvalidInput: a number is negative, infinite or NaN; or ``renyi`` has the wrong length.
    """

    mu: float = 0.0
    renyi: tuple[float, ...] = ()
    adjacency: Adjacency = "add-remove"
    unit: str = "row"

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_choice("adjacency", self.adjacency, get_args(Adjacency), where=where)
        object.__setattr__(self, "renyi", tuple(self.renyi))
        if len(self.renyi) not in (0, len(ORDERS)):
            raise InvalidInput(f"renyi has {len(self.renyi)} numbers", where=where)
        for value in (self.mu, *self.renyi):
            check_number("loss", value, at_least=0, where=where)

    def __bool__(self) -> bool:
        return bool(self.mu > 0 or any(self.renyi))

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        """Compose this loss and another one.

        Raises:
            InvalidInput: the other loss is unknown for the neighbouring data of this one.
        """
        if not other:
            return self
        if not self:
            return other
        other = other.under(self.adjacency, self.unit)
        renyi = self.renyi or other.renyi
        if self.renyi and other.renyi:
            renyi = tuple(map(sum, zip(self.renyi, other.renyi, strict=True)))
        return replace(self, mu=math.hypot(self.mu, other.mu), renyi=renyi)

    def plus(self, losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
        """Compose this loss with several losses, converted to its neighbouring data.

        Raises:
            InvalidInput: a loss is unknown for this neighbouring data.
        """
        total = self
        for loss in losses:
            total = loss.under(self.adjacency, self.unit) + total
        return total

    def larger(self, other: PrivacyLoss) -> PrivacyLoss:
        """Bound both this loss and another one of the same neighbours."""
        renyi = self.renyi or other.renyi
        if self.renyi and other.renyi:
            renyi = tuple(map(max, zip(self.renyi, other.renyi, strict=True)))
        return replace(self, mu=max(self.mu, other.mu), renyi=renyi)

    def under(self, adjacency: Adjacency, unit: str) -> PrivacyLoss:
        """Bound the loss for other neighbours: a replacement counts as one removal and one addition.

        Args:
            adjacency: neighbouring data of the new bound.
            unit: unit of privacy of the new bound.

        Raises:
            InvalidInput: the known loss implies no such bound, for example "add-remove" from "replace".
        """
        if not self or (adjacency, unit) == (self.adjacency, self.unit):
            return replace(self, adjacency=adjacency, unit=unit)
        if adjacency == "add-remove" or self.renyi or unit != self.unit:
            raise InvalidInput(
                f"a cost under {self.adjacency} of one {self.unit} is none under {adjacency} of one {unit}",
                where=type(self).__name__,
            )
        return replace(self, mu=2 * self.mu, adjacency=adjacency)

    def epsilon(self, delta: float) -> float:
        """Compute ε for a δ: exactly for Gaussian releases, else an upper bound.

        Raises:
            InvalidInput: δ is not in (0, 1).
        """
        check_number("delta", delta, above=0, below=1, where=type(self).__name__)
        if not self.renyi:
            return gaussian_epsilon(self.mu, delta)
        orders, divergences = np.array(ORDERS), self._divergences
        found = (
            divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        )
        return max(0.0, float(found.min()))

    def delta(self, epsilon: float) -> float:
        """Compute δ for an ε ≥ 0: exactly for Gaussian releases, else an upper bound."""
        if not self.renyi:
            return gaussian_delta(self.mu, epsilon) if self.mu else 0.0
        orders = np.array(ORDERS)
        found = (orders - 1) * (self._divergences - epsilon + np.log1p(-1 / orders))
        return float(np.exp(min(0.0, (found - np.log(orders)).min())))

    @property
    def _divergences(self) -> Array:
        """Rényi divergences of all releases at :data:`ORDERS`, the Gaussian ones among them."""
        return np.array(self.renyi) + np.array(ORDERS) * self.mu**2 / 2


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Compute δ(ε) of a μ-GDP release, exactly.

    Args:
        mu: μ > 0.
        epsilon: ε ≥ 0.

    >>> round(gaussian_delta(1.0, 0.0), 4)  # Φ(1/2) − Φ(−1/2)
    0.3829
    """
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(np.exp(first) * -np.expm1(min(second - first, 0.0)))


@lru_cache
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute ε of a μ-GDP release for a δ, to 12 digits and never below it.

    Args:
        mu: μ ≥ 0.
        delta: δ in (0, 1).
    """
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return _first(lambda epsilon: gaussian_delta(mu, epsilon) <= delta)


@lru_cache
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Compute the largest μ, rounded down to 12 digits, that satisfies (ε, δ).

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).

    Raises:
        InvalidInput: ε or δ is out of range.

    >>> round(gaussian_mu(1.0, 1e-5), 3), round(gaussian_mu(3.0, 1e-5), 3)
    (0.268, 0.719)
    """
    check_number("epsilon", epsilon, above=0, where="Gaussian noise")
    check_number("delta", delta, above=0, below=1, where="Gaussian noise")
    return 1 / _first(lambda inverse: gaussian_delta(1 / inverse, epsilon) <= delta)


def skellam_loss(
    variance: float, l2: float, l1: float, adjacency: Adjacency = "add-remove"
) -> PrivacyLoss:
    """Compute the privacy loss of integers with Skellam noise, the difference of two Poisson variables.

    Args:
        variance: variance V of the noise on each number.
        l2: largest change of the integers by one unit, in Euclidean norm.
        l1: largest change of the integers by one unit, in L1 norm.
        adjacency: neighbouring data of these changes.

    Source:
        Agarwal, Kairouz & Liu 2021, Theorem 3.5.
    """
    for name, value in (("variance", variance), ("l2", l2), ("l1", l1)):
        check_number(name, value, above=0, where="Skellam noise")
    orders = np.ceil(
        ORDERS
    )  # it is proven for whole ones, and a divergence never falls with its order
    further = np.minimum(
        ((2 * orders - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
    )
    found = orders * l2**2 / (2 * variance) + further
    return PrivacyLoss(0.0, tuple(map(float, found)), adjacency)


@lru_cache
def skellam_variance(epsilon: float, delta: float, *, l2: float, l1: float) -> float:
    """Compute the smallest variance of Skellam noise, to 12 digits, that satisfies (ε, δ).

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).
        l2: as for :func:`skellam_loss`.
        l1: as for :func:`skellam_loss`.
    """
    check_number("epsilon", epsilon, above=0, where="Skellam noise")
    return _first(lambda variance: skellam_loss(variance, l2, l1).epsilon(delta) <= epsilon)


def subsampled_gaussian_loss(noise: float, rate: float, steps: int) -> PrivacyLoss:
    """Compute the privacy loss of noisy sums over random subsets of the units, one per DP-SGD step.

    Every unit is in the subset of a step independently, with the same probability (a Poisson sample), and the
    subset stays secret. The loss holds for adding or removing one unit.

    Args:
        noise: standard deviation of the noise, divided by the largest change of a sum by one unit.
        rate: probability that a unit is in the subset of a step, in (0, 1].
        steps: number of sums.

    Source:
        Mironov, Talwar & Zhang 2019, section 3.3, for whole orders. A divergence never falls as its order
        grows, so that a fractional order uses the value of the next whole order.
    """
    check_number("noise", noise, above=0, where="subsampled noise")
    check_number("rate", rate, above=0, at_most=1, where="subsampled noise")
    check_number("steps", steps, at_least=1, whole=True, where="subsampled noise")
    if rate == 1:
        return PrivacyLoss(math.sqrt(steps) / noise)
    k, orders = np.arange(ORDERS[-1] + 1), np.ceil(ORDERS)
    terms = _log_binomials() + k * math.log(rate) + k * (k - 1) / (2 * noise**2)
    terms += (orders[:, None] - k) * math.log1p(-rate)
    found = steps * np.maximum(logsumexp(terms, axis=1), 0.0) / (orders - 1)
    return PrivacyLoss(0.0, tuple(map(float, found)))


@dataclass(frozen=True)
class NoisyTraining:
    """Settings of network training by noisy sums of clipped gradients (DP-SGD), for a single release.

    A party declares its approximate number of rows, because the exact number is private too.

    Attributes:
        rows: approximate number of rows (or units); declared, not counted.
        batch: average number of rows (or units) per step.
        epochs: passes over ``rows`` rows.
        clip: largest Euclidean norm of a unit's gradient.

    Raises:
        InvalidInput: a number is out of range.

    Source:
        Abadi et al. 2016, Algorithm 1, with Poisson batches.
    """

    rows: int
    batch: int = 64
    epochs: int = 20
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rows", "batch", "epochs"):
            check_number(name, getattr(self, name), at_least=1, whole=True, where="noisy training")
        check_number("clip", self.clip, above=0, where="noisy training")

    @property
    def rate(self) -> float:
        """Probability of a unit to be in a step."""
        return min(1.0, self.batch / self.rows)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return max(1, math.ceil(self.epochs * self.rows / self.batch))

    def noise(self, epsilon: float, delta: float) -> float:
        """Compute the standard deviation of the noise, over ``clip``, that keeps to (ε, δ).

        Args:
            epsilon: ε > 0.
            delta: δ in (0, 1).
        """
        return noise_multiplier(epsilon, delta, rate=self.rate, steps=self.steps)

    def loss(self, epsilon: float, delta: float) -> PrivacyLoss:
        """Compute the privacy loss of all steps with that noise.

        Args:
            epsilon: ε > 0.
            delta: δ in (0, 1).
        """
        return subsampled_gaussian_loss(self.noise(epsilon, delta), self.rate, self.steps)


@cache
def _log_binomials() -> Array:
    """Logarithms of binomial coefficients, of each order (rounded up) over 0, 1, …; −∞ beyond it."""
    k, orders = np.arange(ORDERS[-1] + 1), np.ceil(ORDERS)[:, None]
    return np.asarray(gammaln(orders + 1) - gammaln(k + 1) - gammaln(orders - k + 1))


@cache
def noise_multiplier(epsilon: float, delta: float, *, rate: float, steps: int) -> float:
    """Compute the least noise of :func:`subsampled_gaussian_loss`, to 12 digits, that keeps to (ε, δ).

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).
        rate: as there.
        steps: as there.

    >>> round(noise_multiplier(3.0, 1e-5, rate=64 / 600, steps=188), 1)  # 20 epochs of 600 rows
    2.4
    """
    check_number("epsilon", epsilon, above=0, where="subsampled noise")
    return _first(
        lambda noise: subsampled_gaussian_loss(noise, rate, steps).epsilon(delta) <= epsilon
    )


def _first(holds: Callable[[float], bool]) -> float:
    """Find by bisection the smallest positive number from which on a condition holds, rounded up."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
