"""Parties to check with: a model that costs nothing, some that misbehave, and data that a line explains."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from consilience.errors import InvalidInput, RunFailed
from consilience.learners import Abilities, Kind, Learner, Phase
from consilience.messages.replies import Public
from consilience.party.party import Party
from consilience.validation.arrays import Array

Cohort = Callable[[], tuple[list[Party], Public]]
"""Makes fresh parties and their public data, the same every time."""

NAMES = ("ash", "birch", "cedar", "damson")


def expect(holds: object, otherwise: str) -> None:
    """Raise ``AssertionError(otherwise)`` unless ``holds``, also under ``python -O``."""
    if not holds:
        raise AssertionError(otherwise)


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays are the same bit for bit."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and one.tobytes() == other.tobytes()


class Linear(Learner):
    """Softmax regression, or linear regression, by a few gradient steps on random halves of the rows.

    It draws its first weights and goes on from where it is, so that seeds, rounds and saved states matter.
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
    return np.concatenate([X, np.ones((len(X), 1))], axis=1)


class Raising(Linear):
    """Cannot predict."""

    def predict(self, X: Array) -> Array:
        raise RuntimeError("this model always fails")


class Undefined(Linear):
    """Predicts NaN."""

    def predict(self, X: Array) -> Array:
        return np.full((len(X), self.n_outputs), np.nan)


class Misshapen(Linear):
    """Predicts a row too few."""

    def predict(self, X: Array) -> Array:
        return super().predict(X)[1:]


class Slow(Linear):
    """Takes ``seconds`` for its first prediction."""

    seconds = 3.0

    def predict(self, X: Array) -> Array:
        time.sleep(self.seconds)
        self.seconds = 0.0
        return super().predict(X)


def classifiers() -> tuple[list[Party], Public]:
    """Four parties that between them know three classes of points in the plane; half refit each time."""
    parties = []
    for i, name in enumerate(NAMES):
        X, codes = _points(60, seed=i)
        mine = codes != i % 3  # each lacks one class
        model = Linear(incremental=i % 2 == 0)
        test = _points(30, seed=10 + i)
        parties.append(Party(name, model, X[mine], codes[mine], test=test))
    return parties, Public(_points(20, seed=20)[0])


def agents() -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with models that can be sent to one another, and no public data."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    models = [DecisionTreeClassifier(max_depth=3), GaussianNB()] * 2
    given, _ = classifiers()
    parties = [
        Party(party.name, model, party.X, party.y, test=party.test)
        for party, model in zip(given, models, strict=True)
    ]
    return parties, Public.none()


def regressors() -> tuple[list[Party], Public]:
    """Four parties with noisy values of one plane; half refit each time."""
    parties = []
    for i, name in enumerate(NAMES):
        X, noise = _points(40, seed=i)
        model = Linear("regression", incremental=i % 2 == 0)
        y = X @ [1.0, -2.0] + 0.1 * noise
        parties.append(Party(name, model, X, y, test=(X, X @ [1.0, -2.0])))
    return parties, Public(_points(20, seed=20)[0])


def _points(count: int, *, seed: int) -> tuple[Array, Array]:
    """Points around the corners of a triangle, and which corner."""
    rng = np.random.default_rng(seed)
    codes = np.arange(count) % 3
    corners = np.array([[0.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    return corners[codes] + 0.5 * rng.normal(size=(count, 2)), codes
