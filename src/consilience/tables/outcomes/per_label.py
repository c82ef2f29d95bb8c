"""A classifier for each of several labels: one model of two classes a label, whatever the model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.base import Learner, Phase
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.learners.targets import SMALLEST_OF_BINS, expand, harden
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array
from consilience.models.files.store import dump, read

_KNOWN = 1e-6
"""A label is known if its share of the row is larger; each label has 1/L if all are known."""


class PerLabel(Learner):
    """Train one model per label, each on the rows with a known value of its label (binary relevance).

    A label without known rows gets no model, and its prediction is "not known". If all known rows have the
    label, or none has it, its prediction is their share, after half a row was added to either side.

    Args:
        base: the model of a label, untrained.

    Source:
        "Binary relevance": Tsoumakas and Katakis 2007, "Multi-label classification: an overview".
    """

    suffix = ".skops"

    def __init__(self, base: SklearnLearner) -> None:
        self.base, self.abilities, self.name = base, base.abilities, base.name
        self._parts: list[SklearnLearner | float | None] = []

    def bind(self, n_outputs: int, schema: Schema | None = None) -> None:
        super().bind(n_outputs, schema)
        self.base.bind(2, schema)
        self.base.labels = {"0": 0, "1": 1, "False": 0, "True": 1}

    def check(self, example: Array) -> None:
        self.base.check(example)

    def check_saving(self) -> None:
        self.base.check_saving()

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
        sides, known = known_pairs(targets)
        parts: list[SklearnLearner | float | None] = []
        for label, rows in enumerate(known.T):
            pairs = sides[rows, label]
            part: SklearnLearner | float | None = None
            if len(pairs) and self._one_sided(pairs):
                share = np.ones(len(pairs)) if weights is None else weights[rows]
                part = float((share @ pairs[:, 0] + 0.5) / (share.sum() + 1))
            elif len(pairs):
                part = copy.deepcopy(self.base)
                part.ordered = True  # small shares of rare labels count
                some = None if weights is None else weights[rows]
                # Reversed: to the model 1 is "has it", as in scikit-learn, so that its class weights fit.
                part.fit(np.asarray(X)[rows], pairs[:, ::-1], rng=rng, weights=some, phase=phase)
            parts.append(part)
        self.n_outputs, self._parts = targets.shape[1], parts

    def _one_sided(self, pairs: Array) -> bool:
        """Tell whether the model would see a single class."""
        if self.abilities.soft_targets == "native":
            return not pairs.any(axis=0).all()
        seen = harden(pairs)
        if self.abilities.soft_targets == "weighted":
            seen = expand(pairs, None, smallest=SMALLEST_OF_BINS)[1]
        return len(np.unique(seen)) < 2

    def predict(self, X: Array) -> Array:
        if not self._parts:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        found = np.zeros((len(X), self.n_outputs))
        for label, part in enumerate(self._parts):
            if part is None:
                found[:, -1] += 1
            elif isinstance(part, float):
                found[:, 2 * label : 2 * label + 2] = part, 1 - part
            else:
                found[:, 2 * label : 2 * label + 2] = part.predict(X)[:, ::-1]
        return found / len(self._parts)

    @property
    def fitted(self) -> bool:
        return bool(self._parts)

    def save(self, path: Path) -> None:
        if not self._parts:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        parts = [one.state() if isinstance(one, SklearnLearner) else one for one in self._parts]
        state = {"labels": parts, "n_outputs": self.n_outputs}
        dump(state, Path(path), given=self.base.model, where=self.name)

    def load(self, path: Path) -> None:
        state: Any = read(Path(path), given=self.base.model)
        try:
            given, outputs = list(state["labels"]), int(state["n_outputs"])
            if outputs != 2 * len(given) + 1 or self.n_outputs not in (0, outputs):
                raise ValueError(f"{len(given)} labels, {outputs} outputs")
            parts: list[SklearnLearner | float | None] = []
            for one in given:
                part: SklearnLearner | float | None = one
                if isinstance(one, dict):
                    part = copy.deepcopy(self.base)
                    part.take(one, path)
                elif one is not None and not 0 <= float(one) <= 1:
                    raise ValueError(f"a share of {one!r}")
                parts.append(part)
        except (KeyError, TypeError, ValueError) as error:
            raise RunFailed(
                "the model file is not one of several labels", where=str(path)
            ) from error
        self._parts, self.n_outputs = parts, outputs


def pairs_of(outputs: Array) -> Array:
    """Give the shares of "has it" and "has it not" of every label, shape ``(n, L, 2)``."""
    shares = np.asarray(outputs, dtype=np.float64)[:, :-1]
    return shares.reshape(len(shares), -1, 2)


def known_pairs(targets: Array) -> tuple[Array, Array]:
    """Return the probabilities of every label's two sides, and a mask of each row's known labels.

    Args:
        targets: distributions, shape ``(n, 2 L + 1)``.

    Returns:
        Shapes ``(n, L, 2)``, with pairs of sum 1 for known labels, and ``(n, L)``.
    """
    sides = pairs_of(targets)
    total = sides.sum(axis=2)
    known = total > _KNOWN
    return sides / np.where(known, total, 1)[:, :, None], known
