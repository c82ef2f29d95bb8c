"""A sum of many trained models with signs, as one model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from consilience.errors import InvalidInput, RunFailed
from consilience.knowledge import Replies, SharedModel
from consilience.learners import Learner, as_learner
from consilience.learners.store import write_whole
from consilience.learners.transfer import TRUSTED, unpack

Array = NDArray[Any]


class SignedEnsemble:
    """``f(x) = Σ_t (−1)^t Σ_i g^i_t(x)``: the model that EKD learns.

    Models stay in the form they were sent in, and are built when they are first asked.

    Args:
        terms: per round, the models trained in it.
        trusted: packages whose models are accepted.

    Raises:
        InvalidInput: there are no models.

    Source:
        Afonin & Karimireddy 2022, section 5.2, Proposition VII.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from consilience import Federation, Party
        >>> from consilience.protocols import alternating_distillation
        >>> X = np.linspace(0, 1, 20)[:, None]; y = 3 * X[:, 0]
        >>> agents = [Party("a", Ridge(0.1), X[:9], y[:9]), Party("b", Ridge(0.1), X[9:], y[9:])]
        >>> history = Federation(agents).run(alternating_distillation(rounds=30))
        >>> ensemble = SignedEnsemble.of(round.replies for round in history.rounds)
        >>> len(ensemble), ensemble.truncated(4).rounds
        (62, 4)
    """

    def __init__(
        self, terms: Sequence[Sequence[SharedModel]], *, trusted: Sequence[str] = TRUSTED
    ) -> None:
        self._terms = tuple(tuple(models) for models in terms)
        if not any(self._terms):
            raise InvalidInput("there are no models", where="ensemble")
        self._trusted = tuple(trusted)
        self._built: dict[tuple[int, int], Learner] = {}

    @classmethod
    def of(
        cls, replies: Iterable[Replies | None], *, trusted: Sequence[str] = TRUSTED
    ) -> SignedEnsemble:
        """The ensemble of what agents replied in rounds 0, 1, 2, …"""
        terms = [() if r is None else tuple(r.of(SharedModel)) for r in replies]
        return cls(terms, trusted=trusted)

    @property
    def rounds(self) -> int:
        """T: rounds after the first training."""
        return len(self._terms) - 1

    def __len__(self) -> int:
        """How many models there are."""
        return sum(map(len, self._terms))

    def truncated(self, rounds: int) -> SignedEnsemble:
        """The sum up to round ``rounds``."""
        if not 0 <= rounds <= self.rounds:
            raise InvalidInput(
                f"rounds is {rounds}", where="ensemble", mend=f"Give 0 to {self.rounds}."
            )
        shorter = SignedEnsemble(self._terms[: rounds + 1], trusted=self._trusted)
        shorter._built = {place: m for place, m in self._built.items() if place[0] <= rounds}
        return shorter

    def predict(self, X: Any, *, batch: int = 4096) -> Array:
        """The sum at ``X``, shape ``(n, n_outputs)``; for classes, the largest column is the answer.

        Args:
            X: inputs, shape ``(n, ...)``.
            batch: rows at a time.

        Raises:
            KnowledgeRefused: a model is not trusted, or damaged.
        """
        return np.asarray(list(self.predictions(X, batch=batch))[-1])

    def predictions(self, X: Any, *, batch: int = 4096) -> Iterable[Array]:
        """The sum after every round, as :meth:`predict` gives it: round 0 first."""
        X = np.asarray(X)
        total: Array | None = None
        for t, models in enumerate(self._terms):
            for i in range(len(models)):
                learner = self._learner(t, i)
                parts = [learner.predict(X[at : at + batch]) for at in range(0, len(X), batch)]
                signed = (-1.0) ** t * np.concatenate(parts)
                total = signed if total is None else total + signed
            if total is not None:
                yield total.copy()

    def distilled(self, model: Any, X: Any, *, rng: np.random.Generator) -> Learner:
        """One model trained on what the ensemble says of ``X``.

        Args:
            model: anything that :func:`consilience.learners.as_learner` takes. A regressor learns the sums; a
                classifier their positive parts, brought to sum 1.
            X: inputs without labels, shape ``(n, ...)``, such as agents' own or public rows.
            rng: the only source of randomness.
        """
        X = np.asarray(X)
        learner = as_learner(model)
        targets = self.predict(X)
        if learner.abilities.kind == "classification":
            targets = np.maximum(targets, 0)
            sums = targets.sum(axis=1, keepdims=True)
            targets = np.where(
                sums > 0, targets / np.where(sums > 0, sums, 1), 1 / targets.shape[1]
            )
        learner.bind(targets.shape[1])
        learner.fit(X, targets, rng=rng, phase="first")
        return learner

    def save(self, path: Path) -> None:
        """Write it to one file, of bytes and plain text only.

        Raises:
            RunFailed: it cannot be written.
        """
        arrays: dict[str, Array] = {}
        about = []
        for t, models in enumerate(self._terms):
            about.append([[m.party, m.round, m.about] for m in models])
            arrays |= {f"{t}.{i}": m.data for i, m in enumerate(models)}
        metadata = {"consilience": json.dumps(about)}

        write_whole(Path(path), lambda part: save_file(arrays, str(part), metadata))

    @classmethod
    def load(cls, path: Path, *, trusted: Sequence[str] = TRUSTED) -> SignedEnsemble:
        """Read what :meth:`save` wrote.

        Raises:
            RunFailed: there is no such file, or it is damaged or something else.
        """
        try:
            with safe_open(str(path), framework="np") as file:
                about = json.loads((file.metadata() or {})["consilience"])
                terms = [
                    [
                        SharedModel(
                            party=party, round=t, about=text, data=file.get_tensor(f"{n}.{i}")
                        )
                        for i, (party, t, text) in enumerate(models)
                    ]
                    for n, models in enumerate(about)
                ]
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise RunFailed(
                f"the file does not hold an ensemble ({error})", where=str(path)
            ) from error
        return cls(terms, trusted=trusted)

    def _learner(self, t: int, i: int) -> Learner:
        if (t, i) not in self._built:
            model = self._terms[t][i]
            self._built[t, i] = unpack(model.about, model.data, trusted=self._trusted)
        return self._built[t, i]
