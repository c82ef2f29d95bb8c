"""Privacy of what leaves a party: noise on arrays, and an accountant of the privacy loss.

Every reply passes a party's :class:`Privacy` on its way out (:mod:`consilience.tasks.outgoing`). It holds

- mechanisms (:class:`Mechanism`), at most one for each kind of reply, that clip and add noise;
- the accountant (:class:`Accountant`), which adds up the privacy losses of all releases, refuses what would
  go beyond the party's budget, and keeps every release: the same question gets the same release.

A mechanism's releases are kept under what was asked and never under the reply, so that neither a release that
comes again nor what is charged tells whether two replies were the same. Noise comes from the operating
system, not from the run's seed, which the coordinator knows. Losses are added up by basic composition: ε and
δ of all releases, over the party's whole life.

Source:
    Dwork & Roth 2014, "The Algorithmic Foundations of Differential Privacy", Theorem 3.16 (composition),
    Proposition 2.1 (what is computed from a release costs nothing more) and Theorem 3.22 (Gaussian noise).
"""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.errors import KnowledgeRefused
from consilience.messages.base import PartyMessage
from consilience.messages.schema import Agreement
from consilience.messages.wire import decode, encode
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_number


class BudgetExceeded(KnowledgeRefused):
    """A reply would cost more privacy than a party has left, or an unknown amount."""


@dataclass(frozen=True)
class PrivacyLoss:
    """Parameters of (ε, δ)-differential privacy, for one private row replaced by another.

    Attributes:
        epsilon: ε ≥ 0.
        delta: δ ≥ 0; from 1 on it promises nothing.

    Raises:
        InvalidInput: a number is negative, infinite or none.
    """

    epsilon: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            check_number(name, getattr(self, name), at_least=0, where=type(self).__name__)

    def __bool__(self) -> bool:
        return self.epsilon > 0 or self.delta > 0

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

    Raises:
        InvalidInput: ε or δ is out of these bounds, where the theorem does not hold.

    Source:
        Dwork & Roth 2014, Theorem 3.22.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            check_number(name, getattr(self, name), above=0, below=1, where=type(self).__name__)

    @property
    def loss(self) -> PrivacyLoss:
        """Privacy loss of one vector with this noise."""
        return PrivacyLoss(self.epsilon, self.delta)

    def scale(self, sensitivity: float) -> float:
        """Compute the standard deviation for a vector of this sensitivity Δ.

        Raises:
            InvalidInput: the sensitivity is negative, infinite or no number.
        """
        check_number("sensitivity", sensitivity, at_least=0, where=type(self).__name__)
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

    A party applies it to every reply of the type, whatever a coordinator asks for. A question that comes
    again, with the same fields, round and agreement, gets the release that it got, also where the model has
    learnt since; any other draws anew, and is charged::

        class NoisyPredictions(Mechanism):
            reply_type = Predictions

            def __init__(self, noise: GaussianNoise) -> None:
                self.loss = noise.loss
                ...

            def release(self, reply: Predictions) -> Predictions: ...

    Its settings are attributes of the object: other settings make another question.

    Attributes:
        reply_type: the kind of reply.
        loss: privacy loss of one release; it must not depend on private rows.
    """

    reply_type: ClassVar[type[Any]]
    loss: PrivacyLoss

    @abstractmethod
    def release(self, reply: Any) -> Any:
        """Make the reply that leaves; it has the same type, shapes and dtypes, and is valid.

        Args:
            reply: the exact reply.
        """

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Name the release that answers a task, by nothing that depends on private rows.

        Args:
            task: the task, with all its fields, the round among them.
            agreement: what the federation agreed on; ``None`` before the party has joined.
        """
        kind = type(self)
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays whole
            settings = repr((self.loss, sorted(vars(self).items())))
        asked = encode([task] if agreement is None else [task, agreement])
        name = f"{kind.__module__}.{kind.__qualname__}"
        question = (name, settings, hashlib.sha256(asked).hexdigest())
        return Release.of(self.reply_type.__name__, question, self.loss)


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

    @classmethod
    def of(cls, kind: str, question: Sequence[str], loss: PrivacyLoss) -> Release:
        """Name a release.

        Args:
            kind: what it is, such as ``"certainties"``.
            question: all that it depends on: settings, digests of rows.
            loss: what it costs the first time.
        """
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:32]
        return cls(kind, digest, loss.epsilon, loss.delta)

    @property
    def loss(self) -> PrivacyLoss:
        """Privacy loss of it."""
        return PrivacyLoss(self.epsilon, self.delta)


class Accountant:
    """Releases of a party, and the privacy loss that they add up to, in all its life.

    Neither joining nor restoring undoes a release: noise that was drawn anew could be averaged away.

    Attributes:
        budget: the most that all releases together may cost; ``None`` for no limit.
        charges: how often something was released at a cost, or again, since this object was made.
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
        return sum((one.loss for one in self._released), PrivacyLoss())

    def count(self, kind: str) -> int:
        """Count the releases of a kind."""
        return sum(one.kind == kind for one in self._released)

    def release(self, release: Release, draw: Callable[[], Array]) -> Array:
        """Release something: the first time as it is drawn, and from then on the same again, at no cost.

        Args:
            release: its name.
            draw: computes it, noise included.

        Raises:
            BudgetExceeded: it would cost more than is left; nothing is drawn then.
        """
        if release not in self._released:
            self.check([release])
            self._released[release] = draw()
        self.charges += bool(release.loss)
        return self._released[release]

    def check(self, releases: Iterable[Release]) -> None:
        """Raise ``BudgetExceeded`` if releases, as far as they are new, go beyond the budget together."""
        if self.budget is None:
            return
        after = self.spent
        for one in dict.fromkeys(releases):
            if one not in self._released:
                after += one.loss
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
            sum((one.loss for one in kept), PrivacyLoss())
        except (TypeError, ValueError) as error:
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

    def check(
        self, tasks: Iterable[tuple[Any, Iterable[Release]]], agreement: Agreement | None
    ) -> None:
        """Hold all that tasks would cost against the budget, before the first of them runs.

        Args:
            tasks: each task, and the releases that it makes of the accountant itself.
            agreement: what the federation agreed on; ``None`` before the party has joined.

        Raises:
            BudgetExceeded: the party has a budget, and the replies would go beyond it together, or one states
                no cost, or has no noise where its kind has to; its code is ``"budget"``.
        """
        if self.accountant.budget is None:
            return
        releases: list[Release] = []
        try:
            for task, own in tasks:
                costs = list(own)
                if (mechanism := self._mechanisms.get(task.reply_type)) is not None:
                    costs.append(mechanism.planned(task, agreement))
                _check_cost(task.reply_type, charged=any(one.loss for one in costs))
                releases += costs
            self.accountant.check(releases)
        except BudgetExceeded as error:
            error.code = "budget"  # nothing has run
            raise

    def outgoing(self, task: Any, agreement: Agreement | None, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, and give what may leave of it.

        Args:
            task: the task.
            agreement: what the federation agreed on; ``None`` before the party has joined.
            run: computes the exact reply, or one that has noise already and was charged for.

        Raises:
            BudgetExceeded: as :meth:`check`, of what a task did not state before.
        """
        charges = self.accountant.charges
        reply = run()
        if (mechanism := self._mechanisms.get(type(reply))) is not None:
            reply = self._released(mechanism.planned(task, agreement), mechanism, reply)
        if self.accountant.budget is not None:
            _check_cost(type(reply), charged=self.accountant.charges > charges)
        return reply

    def _released(self, release: Release, mechanism: Mechanism, reply: Any) -> Any:
        """The reply as the mechanism releases it, or as it was released before."""

        def draw() -> Array:
            return np.frombuffer(encode([mechanism.release(reply)]), dtype=np.uint8)

        (released,) = decode(self.accountant.release(release, draw).tobytes())
        return released


def _check_cost(kind: type[Any], *, charged: bool) -> None:
    """Raise ``BudgetExceeded`` unless a kind of reply may leave a party that has a budget.

    Args:
        kind: the class of the reply.
        charged: whether the accountant is charged for it.
    """
    cost = kind.privacy_cost if issubclass(kind, PartyMessage) else None
    if cost is None:
        raise BudgetExceeded(
            f"limits.epsilon: {kind.__name__} states no privacy cost, and the party has a budget",
            mend="Its author states one where its class is defined; or the party's engineer takes the "
            "limit off.",
        )
    if cost == "charged" and not charged:
        raise BudgetExceeded(
            f"limits.epsilon: {kind.__name__} would leave without noise, beside the budget",
            mend="Ask for it with noise, as in certainty_weighted(epsilon=0.1).",
        )
