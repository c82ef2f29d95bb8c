"""Models to check with: cheap ones, and some that misbehave."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import Abilities, Learner, Phase
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind


class Linear(Learner):
    """Softmax regression, or linear regression, by a few gradient steps on random halves of the rows.

    It draws its initial weights at random and continues training from its current weights, so that seeds,
    rounds and saved states matter.
    """

    suffix = ".npy"

    def __init__(self, kind: Kind = "classification", *, incremental: bool = True) -> None:
        self.abilities = Abilities(kind, "native", logits=True, incremental=incremental)
        self.weights: Array | None = None

    def fit(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        weights: Array | None = None,
        validation: tuple[Array, Array] | None = None,
        phase: Phase = "private",
    ) -> None:
        X = _with_one(X)
        if self.weights is None or not self.abilities.incremental:
            self.weights = rng.normal(scale=0.1, size=(X.shape[1], self.n_outputs))
        counts = np.ones(len(X)) if weights is None else weights / weights.mean()
        for _ in range(10):
            half = rng.permutation(len(X))[: (len(X) + 1) // 2]
            error = (self._outputs(X[half]) - targets[half]) * counts[half, None]
            self.weights = self.weights - 0.3 * X[half].T @ error / len(half)

    def predict(self, X: Array) -> Array:
        return self._outputs(_with_one(X))

    def logits(self, X: Array) -> Array:
        return np.asarray(_with_one(X) @ self._fitted_weights())

    def _outputs(self, X: Array) -> Array:
        scores = X @ self._fitted_weights()
        if self.abilities.kind == "regression":
            return np.asarray(scores)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _fitted_weights(self) -> Array:
        if self.weights is None:
            raise InvalidInput("the model has not been trained yet", where="Linear")
        return self.weights

    @property
    def fitted(self) -> bool:
        return self.weights is not None

    def save(self, path: Path) -> None:
        with open(path, "wb") as file:
            np.save(file, self._fitted_weights(), allow_pickle=False)

    def load(self, path: Path) -> None:
        try:
            self.weights = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise RunFailed("the model file is damaged", where=str(path)) from error


def _with_one(X: Array) -> Array:
    """Append a column of ones."""
    return np.concatenate([X, np.ones((len(X), 1))], axis=1)


class Raising(Linear):
    """A model that raises when it predicts."""

    def predict(self, X: Array) -> Array:
        raise RuntimeError("this model always fails")


class Undefined(Linear):
    """A model that predicts NaN."""

    def predict(self, X: Array) -> Array:
        return np.full((len(X), self.n_outputs), np.nan)


class Misshapen(Linear):
    """A model that predicts a row too few."""

    def predict(self, X: Array) -> Array:
        return super().predict(X)[1:]


class Slow(Linear):
    """A model that takes ``seconds`` for its first prediction."""

    seconds = 1.5

    def predict(self, X: Array) -> Array:
        time.sleep(self.seconds)
        self.seconds = 0.0
        return super().predict(X)
