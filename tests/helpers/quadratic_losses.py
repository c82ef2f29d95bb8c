"""Parties whose losses are quadratics, and what their local training comes to, in numpy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience import Party
from consilience.core.learners import as_learner

RATE, STEPS = 0.1, 4
SIZES = {"a": 3, "b": 6, "c": 4}
"""Rows of each party."""


def line(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """``w x`` in double precision, from w = 0."""
    from torch import nn

    layer = nn.Linear(input_shape[0], n_outputs, bias=False).double()
    nn.init.zeros_(layer.weight)
    return layer


@dataclass(frozen=True)
class Quadratic:
    """A line's mean squared error on n rows: f(w) = ½ (w − b)ᵀ A (w − b) and a constant, A = 2 XᵀX / n."""

    X: np.ndarray
    y: np.ndarray

    @property
    def A(self) -> np.ndarray:
        return 2 / len(self.X) * self.X.T @ self.X

    @property
    def b(self) -> np.ndarray:
        return np.linalg.lstsq(self.X, self.y, rcond=None)[0]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        return self.A @ (w - self.b)

    def descend(self, w, correction=0.0, strength=0.0, steps: int = STEPS) -> np.ndarray:
        """K steps w ← w − η (∇f(w) + correction + strength (w − start))."""
        start = w
        for _ in range(steps):
            w = w - RATE * (self.gradient(w) + correction + strength * (w - start))
        return w


def quadratics(columns: int = 2) -> dict[str, Quadratic]:
    """Three that differ in curvature and in where their minima are."""
    rng = np.random.default_rng(0)
    scale = {"a": [1.0, 0.4], "b": [0.5, 1.2], "c": [0.8, 0.8]}
    return {
        name: Quadratic(rng.normal(size=(n, columns)) * scale[name], rng.normal(size=n))
        for name, n in SIZES.items()
    }


def quadratic_parties(**recipe: Any) -> list[Party]:
    """The parties that hold them, with full batches and plain steps unless a recipe says otherwise."""
    usual = {"optimizer": "sgd", "learning_rate": RATE, "batch_size": 100, "epochs": STEPS}
    learner = as_learner(line, kind="regression", recipe={**usual, **recipe})
    return [Party(n, learner, f.X, f.y, calibration=0) for n, f in quadratics().items()]


def share(weights: str) -> dict[str, float]:
    """How much each party counts, of 1."""
    rows = SIZES if weights == "rows" else dict.fromkeys(SIZES, 1)
    return {name: n / sum(rows.values()) for name, n in rows.items()}


def mean(values: dict[str, np.ndarray], weights: str, over: Iterable[str]) -> np.ndarray:
    """The weighted mean over some of the parties."""
    part = {name: share(weights)[name] for name in over}
    return sum(p * values[name] for name, p in part.items()) / sum(part.values())


def minimum(weights: str) -> np.ndarray:
    """Where the (weighted) mean of the losses is smallest: Σ p A (w − b) = 0."""
    losses, p = quadratics(), share(weights)
    A = sum(p[n] * f.A for n, f in losses.items())
    return np.linalg.solve(A, sum(p[n] * f.A @ f.b for n, f in losses.items()))
