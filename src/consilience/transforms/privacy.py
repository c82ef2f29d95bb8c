"""Privacy of what leaves a party: noise on arrays, and an accountant of the privacy loss.

Every reply passes a party's :class:`Privacy` on its way out (:mod:`consilience.tasks.outgoing`). It holds

- mechanisms (:class:`Mechanism`), at most one for each kind of reply, that clip and add noise;
- the accountant (:class:`Accountant`), which adds up the privacy losses of all releases, refuses what would
  go beyond the party's budget, and keeps every release: the same question is answered with the same noise.

Noise comes from the operating system, not from the run's seed, which the coordinator knows. Losses are added
up by basic composition: ε and δ of all releases, over the party's whole life.

Source:
    Dwork & Roth 2014, "The Algorithmic Foundations of Differential Privacy", Theorem 3.16 (composition),
    Proposition 2.1 (what is computed from a release costs nothing more) and Theorem 3.22 (Gaussian noise).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from consilience.errors import KnowledgeRefused
from consilience.messages.base import PartyMessage
from consilience.messages.wire import decode, encode
from consilience.validation.arrays import Array


class BudgetExceeded(KnowledgeRefused):
    """A reply would cost more privacy than a party has left, or an unknown amount."""


@dataclass(frozen=True)
class PrivacyLoss:
    """Parameters of (ε, δ)-differential privacy, for one private row replaced by another.

    Attributes:
        epsilon: ε ≥ 0.
        delta: δ in [0, 1).
    """

    epsilon: float = 0.0
    delta: float = 0.0

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        return PrivacyLoss(self.epsilon + other.epsilon, self.delta + other.delta)


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise that makes a vector (ε, δ)-differentially private.

    Its standard deviation is ``sqrt(2 ln(1.25 / δ)) Δ / ε`` for a vector that moves by at most Δ in Euclidean
    norm when one private row is replaced by another; it holds for ε below 1.

    Attributes:
        epsilon: ε in (0, 1).
        delta: δ in (0, 1).

    Source:
        Dwork & Roth 2014, Theorem 3.22.
    """

    epsilon: float
    delta: float

    @property
    def loss(self) -> PrivacyLoss:
        """Privacy loss of one vector with this noise."""
        return PrivacyLoss(self.epsilon, self.delta)

    def scale(self, sensitivity: float) -> float:
        """Compute the standard deviation for a vector of this sensitivity Δ."""
        return float(np.sqrt(2 * np.log(1.25 / self.delta)) * sensitivity / self.epsilon)

    def add(self, values: Array, sensitivity: float) -> Array:
        """Add noise from the operating system to a vector.

        Args:
            values: numbers of any shape.
            sensitivity: Δ, the largest Euclidean distance by which one private row moves them.
        """
        scale = self.scale(sensitivity)
        return np.asarray(values + system_generator().normal(scale=scale, size=values.shape))


def system_generator() -> np.random.Generator:
    """Make a generator whose seed comes from the operating system, and is known to nobody."""
    return np.random.default_rng()


class Mechanism(ABC):
    """A transform of one kind of reply that bounds what it tells of a private row: clip, then add noise.

    A party applies it to every reply of the type, whatever a coordinator asks for::

        class NoisyPredictions(Mechanism):
            reply_type = Predictions

            def __init__(self, noise: GaussianNoise) -> None:
                self.loss = noise.loss
                ...

            def release(self, reply: Predictions) -> Predictions: ...

    Attributes:
        reply_type: the kind of reply.
        loss: privacy loss of one release.
    """

    reply_type: ClassVar[type[Any]]
    loss: PrivacyLoss

    @abstractmethod
    def release(self, reply: Any) -> Any:
        """Make the reply that leaves; it has the same type, shapes and dtypes, and is valid.

        Args:
            reply: the exact reply.
        """


@dataclass(frozen=True)
class Release:
    """One thing that a party has released, for good.

    Attributes:
        kind: what it is, such as ``"certainties"``.
        question: digest of all that it depends on; the same question is answered with the same release.
        epsilon: ε of its privacy loss.
        delta: δ of it.
    """

    kind: str
    question: str
    epsilon: float
    delta: float


class Accountant:
    """Releases of a party, and the privacy loss that they add up to, in all its life.

    Neither joining nor restoring undoes a release: noise that was drawn anew could be averaged away.

    Attributes:
        budget: the most that all releases together may cost; ``None`` for no limit.
        charges: how often something was released, anew or again, since this object was made.
    """

    def __init__(self) -> None:
        self.budget: PrivacyLoss | None = None
        self.charges = 0
        self._released: dict[Release, Array] = {}

    def __bool__(self) -> bool:
        return bool(self._released)

    @property
    def spent(self) -> PrivacyLoss:
        """Privacy loss of all releases."""
        losses = (PrivacyLoss(one.epsilon, one.delta) for one in self._released)
        return sum(losses, PrivacyLoss())

    def count(self, kind: str) -> int:
        """Count the releases of a kind."""
        return sum(one.kind == kind for one in self._released)

    def release(
        self, kind: str, question: Sequence[str], loss: PrivacyLoss, draw: Callable[[], Array]
    ) -> Array:
        """Release something: the first time as it is drawn, and from then on the same again, at no cost.

        Args:
            kind: what it is, such as ``"certainties"``.
            question: all that it depends on: settings, digests of rows.
            loss: what it costs the first time.
            draw: computes it, noise included.

        Raises:
            BudgetExceeded: it would cost more than is left; nothing is drawn then.
        """
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:32]
        release = Release(kind, digest, loss.epsilon, loss.delta)
        if release not in self._released:
            self._check_budget(loss)
            self._released[release] = draw()
        self.charges += 1
        return self._released[release]

    def _check_budget(self, loss: PrivacyLoss) -> None:
        """Raise ``BudgetExceeded`` if another loss goes beyond the budget."""
        if self.budget is None:
            return
        after = self.spent + loss
        for name in ("epsilon", "delta"):
            total, most = getattr(after, name), getattr(self.budget, name)
            if total > most * (1 + 1e-9):
                raise BudgetExceeded(
                    f"limits.{name}: replies with noise would have spent {total:g} in all, of {most:g}",
                    mend=f"The party's engineer may raise {name}.",
                )

    # --- on a disk --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Array]:
        """All releases by name, for a file of arrays; the names are JSON."""
        return {json.dumps(asdict(one)): values for one, values in self._released.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Add releases that :meth:`arrays` gave; those that are here already stay as they are.

        Raises:
            ValueError: a name is none that it gave.
        """
        try:
            kept = {Release(**json.loads(name)): values for name, values in arrays.items()}
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"no record of a release ({error})") from error
        self._released = kept | self._released

    def clear(self) -> None:
        """Forget all releases, before those of a file are restored."""
        self._released = {}


class Privacy:
    """A party's privacy: the first thing that every reply passes on its way out.

    Attributes:
        accountant: what was released, and what it cost.
    """

    def __init__(self) -> None:
        self.accountant = Accountant()
        self._mechanisms: dict[type[Any], Mechanism] = {}

    def use(self, mechanisms: Iterable[Mechanism]) -> None:
        """Have replies pass these mechanisms, each for its kind of reply, in place of those before."""
        self._mechanisms = {one.reply_type: one for one in mechanisms}

    def outgoing(self, run: Callable[[], Any]) -> Any:
        """Compute a reply, and give what may leave of it.

        Args:
            run: computes the exact reply, or one that has noise already and was charged for.

        Raises:
            BudgetExceeded: the party has a budget, and the reply would go beyond it, states no cost, or has
                no noise where its kind has to.
        """
        charges = self.accountant.charges
        reply = run()
        mechanism = self._mechanisms.get(type(reply))
        if mechanism is not None:
            reply = self._released(mechanism, reply)
        if self.accountant.budget is None:
            return reply
        cost = type(reply).privacy_cost if isinstance(reply, PartyMessage) else None
        if cost is None:
            raise BudgetExceeded(
                f"limits.epsilon: {type(reply).__name__} states no privacy cost, and the party has a budget",
                mend="Its author states one where its class is defined; or the party's engineer takes the "
                "limit off.",
            )
        if cost == "charged" and self.accountant.charges == charges:
            raise BudgetExceeded(
                f"limits.epsilon: {type(reply).__name__} would leave without noise, beside the budget",
                mend="Ask for it with noise, as in certainty_weighted(epsilon=0.1).",
            )
        return reply

    def _released(self, mechanism: Mechanism, reply: Any) -> Any:
        """The reply as the mechanism releases it, the same for the same exact reply."""
        exact = hashlib.sha256(encode([replace(reply, round=0)])).hexdigest()

        def draw() -> Array:
            noisy = encode([replace(mechanism.release(reply), round=0)])
            return np.frombuffer(noisy, dtype=np.uint8)

        question = (type(mechanism).__name__, repr(mechanism.loss), exact)
        kind = type(reply).__name__
        (released,) = decode(
            self.accountant.release(kind, question, mechanism.loss, draw).tobytes()
        )
        return replace(released, round=reply.round)
