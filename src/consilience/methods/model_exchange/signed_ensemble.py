"""A sum of many trained models with signs, as one model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.base import Learner
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.functional_boosting.weighted_ensemble import (
    BATCH,
    Packed,
    WeightedEnsemble,
    read_arrays,
    write_arrays,
)
from consilience.models.files.transfer import TRUSTED


@runtime_checkable
class SentModel(Packed, Protocol):
    """A packed model with its party and round, such as a
    :class:`~consilience.core.messages.replies.SharedModel`."""

    @property
    def party(self) -> str:
        """Name of the party that trained it."""

    @property
    def round(self) -> int:
        """The round in which it was trained."""


class Answered(Protocol):
    """The replies of a round, such as :class:`~consilience.core.messages.replies.Replies`."""

    @property
    def answers(self) -> Mapping[str, tuple[Any, ...]]:
        """Map each party to its replies."""


@prints_no_rows
@dataclass(frozen=True)
class _Saved:
    """A term read from a file."""

    party: str
    round: int
    about: str
    data: Array


class SignedEnsemble:
    """The model of EKD: the signed sum ``f(x) = Σ_t (−1)^t Σ_i g^i_t(x)``.

    Models stay packed, and are built at their first prediction.

    Args:
        terms: models of each round.
        trusted: packages with accepted models.

    Raises:
        InvalidInput: there are no models.

    Source:
        Afonin & Karimireddy 2022, section 5.2, Proposition VII.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from consilience import Federation, Party
        >>> from consilience.methods.model_exchange.protocols import alternating_distillation
        >>> X = np.linspace(0, 1, 20)[:, None]; y = 3 * X[:, 0]
        >>> agents = [Party("a", Ridge(0.1), X[:9], y[:9]), Party("b", Ridge(0.1), X[9:], y[9:])]
        >>> history = Federation(agents).run(alternating_distillation(rounds=30))
        >>> ensemble = SignedEnsemble.of(round.replies for round in history.rounds)
        >>> len(ensemble), ensemble.truncated(4).rounds
        (62, 4)
    """

    def __init__(
        self, terms: Sequence[Sequence[SentModel]], *, trusted: Sequence[str] = TRUSTED
    ) -> None:
        self._terms = tuple(tuple(models) for models in terms)
        signs = [(-1.0) ** t for t, models in enumerate(self._terms) for _ in models]
        self._sum = WeightedEnsemble(
            [model for models in self._terms for model in models], signs, trusted=trusted
        )

    @classmethod
    def of(
        cls, replies: Iterable[Answered | None], *, trusted: Sequence[str] = TRUSTED
    ) -> SignedEnsemble:
        """Build the ensemble from the models in the agents' replies.

        Args:
            replies: replies of rounds 0, 1, 2, …; ``None`` for a round without replies.
            trusted: packages with accepted models.
        """
        given = [() if r is None else r.answers.values() for r in replies]
        terms = [
            [one for answers in round for one in answers if isinstance(one, SentModel)]
            for round in given
        ]
        return cls(terms, trusted=trusted)

    @property
    def rounds(self) -> int:
        """T: rounds after the first training."""
        return len(self._terms) - 1

    def __len__(self) -> int:
        """Number of models."""
        return len(self._sum)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the columns of :meth:`predict`; empty for regression."""
        first = next(model for models in self._terms for model in models)
        return tuple(json.loads(first.about).get("classes", ()))

    def truncated(self, rounds: int) -> SignedEnsemble:
        """Return the sum up to a round.

        Args:
            rounds: the last round.
        """
        if not isinstance(rounds, int) or not 0 <= rounds <= self.rounds:
            raise InvalidInput(
                f"rounds is {rounds}", where="ensemble", mend=f"Give 0 to {self.rounds}."
            )
        shorter = SignedEnsemble(self._terms[: rounds + 1], trusted=self._sum.trusted)
        shorter._sum = self._sum.taken(range(len(shorter)))
        return shorter

    def predict(self, X: Any, *, batch: int = BATCH) -> Array:
        """The sum at ``X``, shape ``(n, n_outputs)``; for classes, the largest column is the answer.

        Args:
            X: inputs, shape ``(n, ...)``.
            batch: rows at a time.

        Raises:
            KnowledgeRefused: a model is not trusted, or damaged.
        """
        return self._sum.predict(X, batch=batch)

    def predictions(self, X: Any, *, batch: int = BATCH) -> Iterable[Array]:
        """Yield the sum after every round, as :meth:`predict` gives it: round 0 first.

        Args:
            X: rows, shape ``(n, ...)``.
            batch: rows predicted at a time.
        """
        sums, total = self._sum.partial_sums(X, batch=batch), None
        for models in self._terms:
            for _ in models:
                total = next(sums)
            if total is not None:
                yield total.copy()

    def distilled(self, model: Any, X: Any, *, rng: np.random.Generator) -> Learner:
        """Train one model on the ensemble's predictions for ``X``, as :meth:`WeightedEnsemble.distilled`.

        ``Model(student, ensemble.classes)`` answers with names of classes.

        Args:
            model: anything that :func:`consilience.core.learners.as_learner` takes.
            X: public rows, shape ``(n, ...)``.
            rng: the only source of randomness.
        """
        return self._sum.distilled(model, X, rng=rng)

    def save(self, path: Path) -> None:
        """Write it to one file, of bytes and plain text only.

        Raises:
            RunFailed: it cannot be written.
        """
        arrays = {
            f"{t}.{i}": m.data for t, models in enumerate(self._terms) for i, m in enumerate(models)
        }
        about = [[[m.party, m.round, m.about] for m in models] for models in self._terms]
        write_arrays(Path(path), arrays, about)

    @classmethod
    def load(cls, path: Path, *, trusted: Sequence[str] = TRUSTED) -> SignedEnsemble:
        """Read what :meth:`save` wrote.

        Raises:
            RunFailed: there is no such file, or it is damaged or something else.
        """
        about, arrays = read_arrays(Path(path))
        try:
            terms = [
                [
                    _Saved(str(party), int(t), str(text), arrays[f"{n}.{i}"])
                    for i, (party, t, text) in enumerate(models)
                ]
                for n, models in enumerate(about)
            ]
        except (KeyError, ValueError, TypeError) as error:
            raise RunFailed(
                f"the file does not hold an ensemble ({error})", where=str(path)
            ) from error
        return cls(terms, trusted=trusted)
