"""Weak-learning oracles: fits of a regressor to a functional gradient, and the strength of a fit.

An oracle Q answers a query φ, given by its values at rows, with h. It has the strength γ in (0, 1] in a norm
if ‖h − φ‖ ≤ (1 − γ) ‖φ‖. Shen, Hassani, Kale & Karbasi 2022 use three norms: L² (equation 5) for parties with
the same distribution of inputs, and L∞ (10) for other parties. The third is a Lipschitz norm (14, 15), for
other parties with squared loss.

The oracles guarantee no γ. It is measured after the fit, at the training rows (:func:`gamma_l2`,
:func:`gamma_l_infinity`, :func:`gamma_lipschitz`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.learners.base import Learner, Phase
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.functional_boosting.lipschitz import lipschitz_constant


class Oracle(Protocol):
    """Fits a weak learner to a query."""

    def __call__(
        self, learner: Learner, X: Array, targets: Array, rng: np.random.Generator
    ) -> None:
        """Train ``learner`` in place towards φ(X) = ``targets``, shape ``(n, c)``."""

    def check(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` unless the learner can be fitted so; called before any training too."""

    def gamma(self, X: Array, outputs: Array, targets: Array) -> float:
        """Compute γ of a fitted weak learner h in the oracle's norm.

        Args:
            X: rows, shape ``(n, ...)``.
            outputs: h(X), shape ``(n, c)``.
            targets: φ(X), shape ``(n, c)``.
        """


@dataclass(frozen=True)
class LeastSquares:
    """Q²: ``min_h Σ_x ‖φ(x) − h(x)‖²`` (equation 6), by the learner's own fit, for any regressor."""

    def check(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` unless the learner regresses."""
        _check_regresses(learner)

    def __call__(
        self, learner: Learner, X: Array, targets: Array, rng: np.random.Generator
    ) -> None:
        self.check(learner)
        learner.fit(X, targets, rng=rng, phase="first")

    def gamma(self, X: Array, outputs: Array, targets: Array) -> float:
        """:func:`gamma_l2` of ``outputs`` for ``targets``; the rows ``X`` do not matter."""
        return gamma_l2(outputs, targets)


@dataclass(frozen=True)
class LeastMaximum:
    """Q∞: ``min_h max_x ‖φ(x) − h(x)‖²`` (equation 20), by least squares with weights that change.

    The maximum over rows equals a maximum over weights with sum 1, so the problem is a game between the
    learner and the weights. In each step, the learner is fitted by weighted least squares. The weights follow
    the errors e by multiplicative updates (Freund & Schapire 1999),
    ``w_i ← w_i exp(rate ‖e_i‖² / max_j ‖e_j‖²)``. The fit with the least maximum is kept. The oracle supports
    any regressor with row weights, such as trees and networks. An incremental learner continues from fit to
    fit, with its recipe's ``epochs``.

    The classical update ``w_i ← w_i ‖e_i‖`` (Lawson 1961) permanently loses a row after one exact fit, which
    is common for trees. Gradient descent on a smooth maximum of minibatches, which works for networks only,
    was no more accurate in the same number of epochs (``docs/results/oracles.md``).

    Args:
        fits: number of fits, 1 or more.
        rate: rate of the updates, above 0; values much larger than 1 oscillate.

    Raises:
        InvalidInput: a number is out of range.
    """

    fits: int = 20
    rate: float = 1.0

    def __post_init__(self) -> None:
        check_number("fits", self.fits, at_least=1, whole=True, where="l_infinity")
        check_number("rate", self.rate, above=0, where="l_infinity")

    def check(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` unless the learner regresses and takes row weights."""
        _check_regresses(learner)
        if not learner.abilities.sample_weight:
            raise InvalidInput(
                "the oracle 'l_infinity' weights rows, and this learner takes no weights",
                where=_model_name(learner),
                mend="Take a weak learner with sample_weight, or the oracle 'l2'.",
            )

    def __call__(
        self, learner: Learner, X: Array, targets: Array, rng: np.random.Generator
    ) -> None:
        self.check(learner)
        best, least = learner, np.inf
        current = copy.deepcopy(learner)
        weights: Array | None = None
        for fit in range(self.fits):
            phase: Phase = "private" if fit and learner.abilities.incremental else "first"
            current.fit(X, targets, rng=rng, weights=weights, phase=phase)
            errors = np.linalg.norm(current.predict(X) - targets, axis=1)
            if errors.max() < least:
                best, least = copy.deepcopy(current), errors.max()
            if least == 0:
                break
            share = np.exp(self.rate * (errors / errors.max()) ** 2)
            weights = share if weights is None else weights * share
            weights = weights / weights.mean()
        vars(learner).update(vars(best))

    def gamma(self, X: Array, outputs: Array, targets: Array) -> float:
        """:func:`gamma_l_infinity` of ``outputs`` for ``targets``; the rows ``X`` do not matter."""
        return gamma_l_infinity(outputs, targets)


@prints_no_rows
@dataclass(frozen=True)
class SobolevTraining:
    """Q^lip: ``min_h max_x ‖φ(x) − h(x)‖² + ∫ ‖∇φ(x) − ∇h(x)‖² dx`` (equation 21), for networks.

    The maximum is computed as in :class:`LeastMaximum`, with row weights that change once per epoch. The
    integral is approximated by one of two means:

    - With a given ∇φ: the mean over points between two rows of a batch, drawn again in every step. For
      several outputs, the gradients are compared in random output directions (Czarnecki et al. 2017).
    - With φ given at rows only: the mean over secants to one of the nearest rows,
      ``‖(h − φ)(x_i) − (h − φ)(x_j)‖² / ‖x_i − x_j‖²``. Equation 15 bounds the largest secant.

    Training takes the recipe's ``first_epochs`` and keeps the epoch with the least sum. For a small network,
    it costs three to six times as much as least squares.

    Args:
        gradient: function that returns ∇φ, shape ``(m, c, d)``, at rows of shape ``(m, ...)`` with d inputs
            in all. For a Lipschitz extension φ, use :meth:`LipschitzExtension.gradient
            <consilience.methods.functional_boosting.lipschitz.LipschitzExtension.gradient>`. ``None`` uses
            secants.
        strength: factor of the integral; the paper uses 1, for all units of the inputs.
        neighbours: number of nearest rows for the secants of a row.
        rate: rate of the weight updates; much larger values soon put all weight on one or two rows.

    Raises:
        InvalidInput: a number is out of range.

    Source:
        Shen et al. 2022, appendix B; Czarnecki et al. 2017, "Sobolev training for neural networks".
    """

    gradient: Callable[[Array], Array] | None = None
    strength: float = 1.0
    neighbours: int = 1
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_number("strength", self.strength, at_least=0, where="sobolev")
        check_number("neighbours", self.neighbours, at_least=1, whole=True, where="sobolev")
        check_number("rate", self.rate, above=0, where="sobolev")

    def check(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` unless the learner is a torch module that regresses."""
        _check_regresses(learner)
        if not (hasattr(learner, "recipe") and hasattr(learner, "module")):
            raise InvalidInput(
                "the oracle 'sobolev' trains torch modules only",
                where=_model_name(learner),
                mend="Take a torch module as the weak learner, or the oracle 'l2' or 'l_infinity'.",
            )
        if learner.recipe.augment is not None:
            raise InvalidInput(
                "the oracle 'sobolev' does not augment images",
                where=_model_name(learner),
                mend="Leave augment out of the recipe, or take the oracle 'l2' or 'l_infinity'.",
            )
        if learner.recipe.precision != "float32":
            raise InvalidInput(
                "the oracle 'sobolev' takes differences of outputs, which bfloat16 is too coarse for",
                where=_model_name(learner),
                mend="Leave precision out of the recipe, or take the oracle 'l2' or 'l_infinity'.",
            )

    def __call__(
        self, learner: Learner, X: Array, targets: Array, rng: np.random.Generator
    ) -> None:
        self.check(learner)
        from consilience.methods.functional_boosting.sobolev import train

        train(
            learner,
            X,
            targets,
            rng=rng,
            gradient=self.gradient,
            strength=self.strength,
            neighbours=self.neighbours,
            rate=self.rate,
        )

    def gamma(self, X: Array, outputs: Array, targets: Array) -> float:
        """:func:`gamma_lipschitz` of ``outputs`` for ``targets`` at rows ``X``."""
        return gamma_lipschitz(X, outputs, targets)


ORACLES: dict[str, Oracle] = {
    "l2": LeastSquares(),
    "l_infinity": LeastMaximum(),
    "sobolev": SobolevTraining(),
}
"""Oracles by their names in configuration files."""


def oracle_of(name: str) -> Oracle:
    """Return the oracle of a name.

    Raises:
        InvalidInput: there is none, with the nearest name.

    >>> oracle_of("l_infinity")
    LeastMaximum(fits=20, rate=1.0)
    """
    if name not in ORACLES:
        raise InvalidInput(
            f"there is no oracle {name!r}", where="oracle", mend=nearest(str(name), ORACLES)
        )
    return ORACLES[name]


def gamma_l2(outputs: Array, targets: Array, weights: Array | None = None) -> float:
    """Compute the largest γ with ``‖h − φ‖_α ≤ (1 − γ) ‖φ‖_α``, ``‖f‖²_α = E_{x∼α} ‖f(x)‖²`` (equation 5).

    Args:
        outputs: h at rows, shape ``(n, c)``.
        targets: φ at the same rows, shape ``(n, c)``.
        weights: α, shape ``(n,)``; by default all rows have equal weight.

    Returns:
        γ: 1 for an exact fit, 0 for a fit no better than h = 0, negative for a worse fit. For φ = 0 it is 1
        if h = 0, else −∞.

    Raises:
        InvalidInput: shapes do not match, or weights are out of range.

    >>> gamma_l2(np.array([[3.0], [0.0]]), np.array([[3.0], [4.0]]))  # 1 − 4/5
    0.19999999999999996
    """
    h, phi = _pair(outputs, targets)
    share = np.ones(len(h)) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (len(h),) or not (np.isfinite(share) & (share >= 0)).all():
        raise InvalidInput(
            f"weights must be {len(h)} finite numbers, none below 0", where="gamma_l2"
        )
    missed, size = (np.sqrt(share @ (f**2).sum(axis=1)) for f in (h - phi, phi))
    return _gamma(missed, size)


def gamma_l_infinity(outputs: Array, targets: Array) -> float:
    """Compute the largest γ with ``‖h − φ‖_{α,∞} ≤ (1 − γ) ‖φ‖_{α,∞}``, maxima over rows (equation 10).

    Args:
        outputs: h at rows, shape ``(n, c)``.
        targets: φ there, shape ``(n, c)``.

    Raises:
        InvalidInput: shapes that do not go together.
    """
    h, phi = _pair(outputs, targets)
    missed, size = (np.linalg.norm(f, axis=1).max() for f in (h - phi, phi))
    return _gamma(missed, size)


def gamma_lipschitz(X: Array, outputs: Array, targets: Array) -> float:
    """Compute the largest γ for which equations 14 and 15 both hold at rows:

        ‖h − φ‖_{α,∞} ≤ (1 − γ) ‖φ‖_{α,∞}    and    ‖h − φ‖_lip ≤ (1 − γ) ‖φ‖_lip.

    The Lipschitz constants are maxima over pairs of rows (:func:`lipschitz_constant`), which are lower bounds
    of the constants over all inputs. The paper also requires ``‖h‖_lip ≤ ‖φ‖_lip``. This condition does not
    involve γ; compare the constants to check it.

    Args:
        X: the rows, shape ``(n, ...)``.
        outputs: h at the rows, shape ``(n, c)``.
        targets: φ at the rows, shape ``(n, c)``.

    Returns:
        γ, as in :func:`gamma_l2`.

    Raises:
        InvalidInput: shapes do not match, or equal rows have different φ.
    """
    h, phi = _pair(outputs, targets)
    missed, size = (lipschitz_constant(X, f) for f in (h - phi, phi))
    if not np.isfinite(size):
        raise InvalidInput("equal rows have different targets", where="gamma_lipschitz")
    return min(gamma_l_infinity(h, phi), _gamma(missed, size))


def _gamma(missed: float, size: float) -> float:
    if size == 0:
        return 1.0 if missed == 0 else -np.inf
    return float(1 - missed / size)


def _pair(outputs: Array, targets: Array) -> tuple[Array, Array]:
    h, phi = np.asarray(outputs, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if h.shape != phi.shape or h.ndim != 2 or not h.size:
        raise InvalidInput(
            f"outputs have shape {h.shape}, targets {phi.shape}; expected (n, c) both",
            where="gamma",
        )
    return h, phi


def _check_regresses(learner: Learner) -> None:
    if learner.abilities.kind != "regression":
        raise InvalidInput(
            "a functional gradient is fitted by regression, and this learner classifies",
            where=_model_name(learner),
            mend="Take a regressor as the weak learner.",
        )


def _model_name(learner: Learner) -> str:
    return str(getattr(learner, "name", type(learner).__name__))
