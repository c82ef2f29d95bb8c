"""Mechanisms: transforms of one kind of reply that bound its privacy loss.

The noise uses the operating system's random bytes (:class:`.randomness.SystemNoise`) and not the run's seed,
because the coordinator has the seed.

Source:
    Balle & Wang 2018 (Gaussian noise).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import encode
from consilience.core.numerics.randomness import SystemNoise
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import Adjacency, PrivacyLoss, gaussian_mu


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise that makes a vector (ε, δ)-differentially private.

    Its standard deviation is ``Δ / μ`` for a vector that moves by at most Δ in Euclidean norm between
    neighbouring data, with the largest μ that keeps to ε and δ (:func:`.losses.gaussian_mu`).

    Attributes:
        epsilon: ε > 0.
        delta: δ in (0, 1).
        adjacency: the neighbouring data for which Δ is given.

    Raises:
        InvalidInput: ε or δ is out of these bounds.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace"

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, above=0, where=type(self).__name__)
        check_number("delta", self.delta, above=0, below=1, where=type(self).__name__)

    @property
    def loss(self) -> PrivacyLoss:
        """Privacy loss of one vector with this noise."""
        return PrivacyLoss(gaussian_mu(self.epsilon, self.delta), (), self.adjacency)

    def scale(self, sensitivity: float) -> float:
        """Compute the standard deviation for a vector of this sensitivity Δ.

        Raises:
            InvalidInput: the sensitivity is negative, infinite or no number.
        """
        check_number("sensitivity", sensitivity, at_least=0, where=type(self).__name__)
        return sensitivity / self.loss.mu

    def add(self, values: Array, sensitivity: float) -> Array:
        """Add noise of the operating system's random bytes to a vector.

        Args:
            values: numbers of any shape.
            sensitivity: Δ, the largest Euclidean distance by which one private row moves them.
        """
        scale = self.scale(sensitivity)
        return np.asarray(values + SystemNoise().normal(scale=scale, size=values.shape))


class Mechanism(ABC):
    """Transform of one kind of reply that bounds its privacy loss: clip the reply, then add noise.

    A party applies the mechanism to every reply of the type, for every request of the coordinator. A repeated
    question (same fields, round and agreement) gets the same release as before, even if the model has learnt
    since. Any other question makes a new release with new noise, and the budget is charged for it::

        class NoisyPredictions(Mechanism):
            reply_type = Predictions

            def __init__(self, noise: GaussianNoise) -> None:
                self.loss = noise.loss
                ...

            def release(self, reply: Predictions) -> Predictions: ...

    The settings are attributes of the object and must be picklable, because other settings make another
    question.

    Attributes:
        reply_type: class of the replies.
        loss: privacy loss of one release; it must not depend on private rows.
    """

    reply_type: ClassVar[type[Any]]
    loss: PrivacyLoss

    @abstractmethod
    def release(self, reply: Any) -> Any:
        """Return a clipped and noisy version of a reply, valid and with the same type, shapes and dtypes.

        Args:
            reply: the exact reply.
        """

    def parts(
        self, task: Any, agreement: Agreement | None, reply: Any = None
    ) -> Sequence[tuple[Release, Any]]:
        """List the releases that answer a task, each with its exact reply; one release by default.

        Args:
            task: the task.
            agreement: agreement of the federation; ``None`` before the party has joined.
            reply: the exact reply; ``None`` before the task has run.

        Returns:
            Pairs of a release and its exact reply.
        """
        return [(self.planned(task, agreement), reply)]

    def joined(self, released: Sequence[Any]) -> Any:
        """Combine released replies, in the order of the parts, into one reply; some may be old releases."""
        return released[0]

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Return the record of the release that answers a task, independently of private rows.

        Args:
            task: the task, with all its fields, including the round.
            agreement: agreement of the federation; ``None`` before the party has joined.

        Raises:
            InvalidInput: a setting cannot be pickled and therefore has no digest.
        """
        kind = type(self)
        asked = encode([task] if agreement is None else [task, agreement])
        name = f"{kind.__module__}.{kind.__qualname__}"
        settings = _digests({"loss": self.loss, **vars(self)}, name)
        question = (name, settings, hashlib.sha256(asked).hexdigest())
        return Release.of(self.reply_type.__name__, question, self.loss)


def _digests(settings: Mapping[str, Any], where: str) -> str:
    """Return the names of settings with digests of their full content, which printing may abbreviate."""
    import joblib

    found = []
    for name, value in sorted(settings.items()):
        try:
            found.append((name, joblib.hash(value, hash_name="sha1")))
        except Exception as error:  # pickling runs the setting's own code
            raise InvalidInput(
                f"the setting {name!r} is a {type(value).__name__}, which has no digest",
                where=where,
                mend="Settings of a mechanism tell questions apart, also after a restart: take numbers, "
                "texts, arrays, dataclasses, or functions and classes that a module defines.",
            ) from error
    return repr(found)
