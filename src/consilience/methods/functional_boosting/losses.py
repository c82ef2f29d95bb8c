"""Convex losses of functions: value, gradient in the function's value, and smoothness.

A loss compares rows of values f with rows of targets y, both of shape ``(n, n_outputs)``; targets are one-hot
rows, class probabilities or numbers. Functional gradient methods evaluate ``∂ℓ(f, y)/∂f`` at training rows.

>>> loss = loss_of("cross-entropy")
>>> loss.gradient(np.zeros((1, 2)), np.array([[1.0, 0.0]])).tolist()
[[-0.5, 0.5]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.numbers import check_choice
from consilience.core.validation.printing import prints_no_rows

DIVERGED = 1e3
"""A descent diverges if its objective exceeds this multiple of the objective at f = 0."""

_SEGMENTS = 400
_REACH = (0.1, 1.0, 10.0)
"""How far from 0 the ends of the segments lie, in standard deviations of a normal distribution."""
_ROUNDING = 1e-8


@prints_no_rows
@dataclass(frozen=True)
class ConvexLoss:
    """A loss ``ℓ(f, y)``, convex in f.

    Attributes:
        name: name of the loss.
        kind: ``"classification"`` or ``"regression"``.
        value: function of ``(f, y)``, each ``(n, n_outputs)``, that returns ``ℓ`` per row, shape ``(n,)``.
        gradient: function of ``(f, y)`` that returns ``∂ℓ/∂f`` or a subgradient, shape ``(n, n_outputs)``.
        smoothness: Lipschitz constant of the gradient in f; infinite if there is none.
        probabilities: for classification, function of f that returns class probabilities, shape
            ``(n, n_outputs)``.
    """

    name: str
    kind: Kind
    value: Callable[[Array, Array], Array]
    gradient: Callable[[Array, Array], Array]
    smoothness: float = math.inf
    probabilities: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        where = f"loss {self.name!r}"
        check_choice("kind", self.kind, get_args(Kind), where=where)
        if not (callable(self.value) and callable(self.gradient)):
            raise InvalidInput("value and gradient have to be functions of (f, y)", where=where)
        if not self.smoothness > 0:
            raise InvalidInput(f"smoothness is {self.smoothness}", where=where, mend="Above 0.")
        if self.kind == "classification" and self.probabilities is None:
            raise InvalidInput(
                "a loss for classification has to say what probabilities its values are",
                where=where,
                mend="Give probabilities=, such as consilience.methods.functional_boosting.losses.softmax.",
            )

    def mean(self, f: Array, y: Array) -> float:
        """Compute the empirical risk ``(1/n) Σ_j ℓ(f_j, y_j)``; infinite or NaN where f is too large.

        Args:
            f: values, shape ``(n, n_outputs)``.
            y: targets, shape ``(n, n_outputs)``.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.mean(self.value(f, y)))


def softmax(f: Array) -> Array:
    """Compute ``exp f_c / Σ_d exp f_d`` of every row of f, without overflow.

    Args:
        f: shape ``(n, n_outputs)``.

    Returns:
        Shape ``(n, n_outputs)``; rows sum to 1.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    shares = np.exp(f - f.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def on_simplex(f: Array) -> Array:
    """Scale the positive parts of each row of f, ``(n, n_outputs)``, to sum 1; uniform if a row has none.

    >>> on_simplex(np.array([[3.0, -1.0, 1.0], [-1.0, -2.0, 0.0]])).round(3).tolist()
    [[0.75, 0.0, 0.25], [0.333, 0.333, 0.333]]
    """
    parts = np.maximum(f, 0)
    sums = parts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(sums > 0, parts / np.where(sums > 0, sums, 1), 1 / f.shape[1]))


def _sigmoid(f: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -f)))


def _cross_entropy(f: Array, y: Array) -> Array:
    top = f.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(f - top).sum(axis=1, keepdims=True))
    return np.asarray((y * (total - f)).sum(axis=1))


def _cross_entropy_gradient(f: Array, y: Array) -> Array:
    return np.asarray(softmax(f) * y.sum(axis=1, keepdims=True) - y)


def _squared(f: Array, y: Array) -> Array:
    return np.asarray(0.5 * np.square(f - y).sum(axis=1))


def _squared_gradient(f: Array, y: Array) -> Array:
    return np.asarray(f - y)


def _logistic(f: Array, y: Array) -> Array:
    return np.asarray((np.logaddexp(0, f) - y * f).sum(axis=1))


def _logistic_gradient(f: Array, y: Array) -> Array:
    return np.asarray(_sigmoid(f) - y)


def _shares_of_odds(f: Array) -> Array:
    return on_simplex(_sigmoid(f))


LOSSES: Mapping[str, ConvexLoss] = {
    # diag(p) − p pᵀ has no eigenvalue above 1/2.
    "cross-entropy": ConvexLoss(
        "cross-entropy", "classification", _cross_entropy, _cross_entropy_gradient, 0.5, softmax
    ),
    # One yes or no for every class: Σ_c log(1 + exp f_c) − y_c f_c.
    "logistic": ConvexLoss(
        "logistic", "classification", _logistic, _logistic_gradient, 0.25, _shares_of_odds
    ),
    "squared": ConvexLoss("squared", "regression", _squared, _squared_gradient, 1.0, on_simplex),
}
"""The losses by name; ``"squared"``, ``½‖f − y‖²``, also supports one-hot rows."""


def loss_of(given: str | ConvexLoss) -> ConvexLoss:
    """Return the loss of a name, or a loss as it is.

    Args:
        given: a key of :data:`LOSSES`, or a loss.

    Raises:
        InvalidInput: there is none of that name, or it is no loss.
    """
    if isinstance(given, ConvexLoss):
        return given
    if not isinstance(given, str):
        raise InvalidInput(
            f"loss is {given!r}", mend=f"Give a ConvexLoss, or one of {', '.join(sorted(LOSSES))}."
        )
    if given not in LOSSES:
        raise InvalidInput(f"unknown loss {given!r}", mend=nearest(given, LOSSES))
    return LOSSES[given]


def check_convex(loss: ConvexLoss, n_outputs: int) -> None:
    """Raise ``InvalidInput`` unless a loss is convex in f along random segments, with that gradient.

    Along each of some hundred segments [a, b], at three scales, it holds

        ℓ((1 − s) a + s b) ≤ (1 − s) ℓ(a) + s ℓ(b)      and      ℓ(b) ≥ ℓ(a) + ⟨∂ℓ(a), b − a⟩

    for a random s. The losses of :data:`LOSSES` are known to be convex, and not looked at. What holds along
    these segments may fail along others: a loss that passes has not been proved to be convex.

    Args:
        loss: the loss; targets are one-hot rows for classification, else drawn from a normal distribution.
        n_outputs: number of columns.

    Raises:
        InvalidInput: it is not convex, its gradient is no subgradient of it, or shapes are not as they have
            to be.
    """
    if LOSSES.get(loss.name) == loss:
        return
    where = f"loss {loss.name!r}"
    rng = np.random.default_rng(0)
    scale = np.repeat(_REACH, _SEGMENTS)[:, None]
    a, b = (scale * rng.normal(size=(len(scale), n_outputs)) for _ in range(2))
    y = rng.normal(size=a.shape)
    if loss.kind == "classification":
        y = np.eye(n_outputs)[rng.integers(n_outputs, size=len(a))]
    s = rng.random((len(a), 1))
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused below
            at_a, at_b, between = (
                np.asarray(loss.value(f, y)) for f in (a, b, (1 - s) * a + s * b)
            )
            slope = np.asarray(loss.gradient(a, y))
    except Exception as error:  # it is the user's code
        raise InvalidInput(
            f"it cannot be computed for f and y of shape {a.shape}: {type(error).__name__}: {error}",
            where=where,
            mend="value(f, y) gives one number a row, gradient(f, y) an array of the shape of f.",
        ) from error
    if at_a.shape != (len(a),) or slope.shape != a.shape:
        raise InvalidInput(
            f"for f of shape {a.shape} its value has shape {at_a.shape}, its gradient {slope.shape}",
            where=where,
            mend="One number a row, and a gradient of the shape of f.",
        )
    if not all(np.isfinite(part).all() for part in (at_a, at_b, between, slope)):
        raise InvalidInput("it is not finite everywhere", where=where)
    share = s[:, 0]
    room = _ROUNDING * (1 + np.abs(at_a) + np.abs(at_b))
    above = between - ((1 - share) * at_a + share * at_b)
    if (above > room).any():
        worst = int(above.argmax())
        raise InvalidInput(
            f"it is not convex in its first argument: between {_row_text(a[worst])} and "
            f"{_row_text(b[worst])}, with y = {_row_text(y[worst])}, it rises {above[worst]:.3g} "
            "above the straight line",
            where=where,
            mend=f"Take a convex one: {', '.join(sorted(LOSSES))}.",
        )
    below = at_a + (slope * (b - a)).sum(axis=1) - at_b
    if (below > _ROUNDING * (1 + np.abs(at_a) + np.abs(at_b) + np.abs(slope).sum(axis=1))).any():
        worst = int(below.argmax())
        raise InvalidInput(
            f"its gradient is not that of its value: at {_row_text(a[worst])}, with "
            f"y = {_row_text(y[worst])}",
            where=where,
            mend="gradient(f, y) is the derivative of value(f, y) by f, row by row.",
        )


def _row_text(values: Array) -> str:
    return (
        f"({', '.join(f'{value:.3g}' for value in values[:4])}{', …' if len(values) > 4 else ''})"
    )
