"""Privacy of what leaves a party: noise on arrays, and an accountant of the privacy loss.

Every reply passes a party's :class:`Privacy` on its way out (:mod:`consilience.tasks.outgoing`). It holds

- mechanisms (:class:`.Mechanism`), at most one for each kind of reply, that clip and add noise;
- the accountant (:class:`Accountant`), which adds up the privacy losses of all releases
  (:mod:`.accounting`), refuses what would go beyond the party's :class:`Budget`, and keeps every release: the
  same question gets the same release. At a party's own machine they stand in a ledger
  (:mod:`.privacy_ledger`) before they leave.

With a budget whatever has no stated cost does not leave: predictions, scores, counts, metrics, notes. A
mechanism's releases are kept under what was asked and never under the reply, so that neither a release that
comes again nor what is charged tells whether two replies were the same. Noise is made of the operating
system's random bytes (:class:`.randomness.SystemNoise`), not of the run's seed, which the coordinator knows.
Losses are added up over the party's whole life.

Source:
    Dwork & Roth 2014, "The Algorithmic Foundations of Differential Privacy", Proposition 2.1 (what is
    computed from a release costs nothing more); Balle & Wang 2018 (Gaussian noise).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.base import PartyMessage
from consilience.messages.schema import Agreement
from consilience.messages.wire import decode, encode
from consilience.transforms.accounting import Adjacency, NoisyTraining, PrivacyLoss, gaussian_mu
from consilience.transforms.mechanisms import Mechanism
from consilience.transforms.privacy_ledger import PrivacyLedger, Release, lacks
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_choice, check_number
from consilience.validation.options import check_arguments

Noise = Literal["own", "shared"]
"""Noise on class sums: enough by itself, or together with that of the other parties of a secure sum."""


class BudgetExceeded(KnowledgeRefused):
    """A reply would cost more privacy than a party has left, or an unknown amount."""


@dataclass(frozen=True)
class Budget:
    """Limit of what all that leaves a party may tell of one unit of its private data, in all its life.

    Attributes:
        epsilon: ε > 0.
        delta: δ in (0, 1), far below one over the number of units: a δ of that size permits publishing one.
        adjacency: neighbouring data: with and without one unit, or with another in its place.
        unit: ``"row"``, or the column whose values are units, such as patients.
        each: ε of one release with the party's own noise; by default all of ``epsilon``.
        measured: whether metrics leave, outside of the guarantee: for experiments, where no data are private.
        arrivals: how many arrivals of rows have come, a number that is declared and not read off the rows.
            Sums of a later one are a release of its rows alone: where a unit is a row, earlier ones spend
            nothing; any other unit may have rows in all of them, and is charged for each.
        training: training of its network with noise, or a table of its fields: that is the one release then,
            and the network's predictions leave. ``None`` for models that nothing of leaves.
        noise: ``"own"`` is enough by itself. ``"shared"`` is a part of it: class sums leave under the masks
            of a secure sum alone, whose fewest parties have enough together, and nobody sees less than that.
        colluding: with shared noise, parties that may know their parts and tell them; 1 at least, for every
            party knows its own.

    Raises:
        InvalidInput: a setting that bounds nothing.
    """

    epsilon: float
    delta: float = 1e-5
    adjacency: Adjacency = "add-remove"
    unit: str = "row"
    each: float | None = None
    measured: bool = False
    arrivals: int = 1
    training: NoisyTraining | None = None
    noise: Noise = "own"
    colluding: int = 1

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_choice("noise", self.noise, get_args(Noise), where=where)
        check_number("colluding", self.colluding, at_least=1, whole=True, where=where)
        if self.noise == "shared" and (self.training is not None or self.arrivals > 1):
            raise InvalidInput(
                'noise = "shared" is for class sums of one arrival: a second would use noise twice',
                where=where,
                mend='Take noise = "own" for trainings and for several arrivals.',
            )
        if isinstance(self.training, Mapping):
            check_arguments(NoisyTraining, self.training, where=f"{where}, training")
            object.__setattr__(self, "training", NoisyTraining(**self.training))
        if self.training is not None and self.adjacency != "add-remove":
            raise InvalidInput(
                "the loss of training with noise is known for rows that are added or removed",
                where=where,
                mend='Leave adjacency = "replace" out.',
            )
        check_number("epsilon", self.epsilon, above=0, where=where)
        check_number("delta", self.delta, above=0, below=1, where=where)
        check_choice("adjacency", self.adjacency, get_args(Adjacency), where=where)
        check_number("each", self.each, above=0, at_most=self.epsilon, optional=True, where=where)
        check_number("arrivals", self.arrivals, at_least=1, whole=True, where=where)
        if self.arrivals > 1 and self.adjacency == "replace":
            raise InvalidInput(
                "arrivals are charged alone where a row is added or removed, and not where one is replaced",
                where=where,
                mend='Take adjacency = "add-remove", or one arrival.',
            )

    def check_delta(self, units: int, *, where: str) -> None:
        """Raise ``InvalidInput`` where δ is beyond 1 / (10 n).

        Args:
            units: number n of the units.
            where: whose they are, for the error.
        """
        if self.delta * units * 10 > 1:
            raise InvalidInput(
                f"delta is {self.delta:g} and there are {units:,} units: a δ of one in so many permits "
                "publishing one of them",
                where=f"{where}, delta",
                mend=f"Give 1 / {10 * units:,} or less.",
            )

    @property
    def release(self) -> PrivacyLoss:
        """Loss of one release with the party's own Gaussian noise."""
        mu = gaussian_mu(self.epsilon if self.each is None else self.each, self.delta)
        return PrivacyLoss(mu, (), self.adjacency, self.unit)

    @property
    def training_loss(self) -> PrivacyLoss:
        """Loss of the training with noise, which is one release."""
        assert self.training is not None
        epsilon = self.epsilon if self.each is None else self.each
        return replace(self.training.loss(epsilon, self.delta), unit=self.unit)

    @property
    def sigma(self) -> float:
        """Standard deviation of noise on sums that one unit moves by 1 at most, and replaced by 2."""
        return (1 if self.adjacency == "add-remove" else 2) / self.release.mu


class Accountant:
    """Releases of a party, and the privacy loss that they add up to, in all its life.

    Neither joining nor restoring undoes a release: noise that was drawn anew could be averaged away.

    Attributes:
        budget: the most that all releases together may cost; ``None`` for no limit.
        charges: how often something was released at a cost, or again, since this object was made.
    """

    def __init__(self) -> None:
        self.budget: Budget | None = None
        self.charges = 0
        self._released: dict[Release, Array] = {}
        self._by_question: dict[tuple[Any, ...], Release] = {}
        self._ledger: PrivacyLedger | None = None

    def __bool__(self) -> bool:
        return bool(self._released)

    @property
    def spent(self) -> PrivacyLoss:
        """Privacy loss of all releases."""
        return self._with([])

    def _with(self, further: Iterable[Release]) -> PrivacyLoss:
        """Add up the losses of all releases and of further ones, for the budget's neighbours."""
        new = (one for one in further if one.asked not in self._by_question)
        releases = [one for one in dict.fromkeys([*self._released, *new]) if one.loss]
        found = [one.loss for one in releases]
        total = PrivacyLoss()
        if self.budget is not None:
            total = replace(total, adjacency=self.budget.adjacency, unit=self.budget.unit)
        elif found:
            weakest = next((one for one in found if one.adjacency == "replace"), found[0])
            total = replace(total, adjacency=weakest.adjacency, unit=weakest.unit)
        arrivals = {one.arrival for one in releases} - {None}
        if (total.adjacency, total.unit) != ("add-remove", "row") or len(arrivals) < 2:
            return total.plus(found)
        each = [  # a row is in one arrival
            total.plus(one.loss for one in releases if one.arrival in (None, arrival))
            for arrival in arrivals
        ]
        return functools.reduce(PrivacyLoss.larger, each)

    def count(self, kind: str) -> int:
        """Count the releases of a kind."""
        return sum(one.kind == kind for one in self._released)

    def release(self, release: Release, draw: Callable[[], Array]) -> Array:
        """Release something: the first time as it is drawn, and from then on the same again, at no cost.

        What was asked before is found whatever loss the budget of today has for it.

        Args:
            release: its name.
            draw: computes it, noise included.

        Raises:
            BudgetExceeded: it would cost more than is left; nothing is drawn then.
            RunFailed: it cannot be written into the ledger.
        """
        if release.asked not in self._by_question:
            self.check([release])
            values = draw()
            if self._ledger is not None and release.loss:
                self._ledger.add(release, values)
            self._keep({release: values})
        self.charges += bool(release.loss)
        return self._released[self._by_question[release.asked]]

    def _keep(self, released: Mapping[Release, Array]) -> None:
        """Take on releases; of two of one question, the first is the one that is given again."""
        self._released |= released
        for one in released:
            self._by_question.setdefault(one.asked, one)

    def check(self, releases: Iterable[Release]) -> None:
        """Raise ``BudgetExceeded`` if releases, as far as they are new, go beyond the budget together."""
        if self.budget is None:
            return
        try:
            spent = self._with(releases).epsilon(self.budget.delta)
        except InvalidInput as error:
            raise BudgetExceeded(
                f"limits.adjacency: {error.what}",
                mend="Certainties are charged for a replaced row; class sums for what the limits say.",
            ) from error
        if spent > self.budget.epsilon * (1 + 1e-9):
            raise BudgetExceeded(
                f"limits.epsilon: replies with noise would have spent {spent:.4g} in all, of "
                f"{self.budget.epsilon:g}",
                mend="What left already comes again at no cost. The party's engineer may raise epsilon, and "
                "say in epsilon_each how much of it one more answer may cost.",
            )

    # --- on a disk --------------------------------------------------------------------------------

    def keep_in(self, ledger: PrivacyLedger) -> None:
        """Write releases into a ledger from now on, and know those that are in it."""
        self._ledger = ledger
        self.clear()

    def arrays(self) -> dict[str, Array]:
        """All releases by name, for a file of arrays; the names are JSON."""
        return {one.to_json(): values for one, values in self._released.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Add releases that :meth:`arrays` gave; those that are here already stay as they are.

        Raises:
            ValueError: a name is none that it gave.
            RunFailed: the ledger lacks one of them, so that it was cut or set back.
        """
        kept = {Release.from_json(name): values for name, values in arrays.items()}
        new = {one: values for one, values in kept.items() if one not in self._released}
        if self._ledger is not None:
            old = {
                name for name in arrays if '"loss"' not in name
            }  # of version 0.2, which had no ledger
            for one, values in new.items():
                if one.loss and not any(Release.from_json(name) == one for name in old):
                    raise lacks(self._ledger.folder)
                if one.loss:
                    self._ledger.add(one, values)
        self._keep(new)

    def clear(self) -> None:
        """Forget all releases that are in no ledger, before those of a file are restored."""
        self._released, self._by_question = {}, {}
        self._keep({} if self._ledger is None else self._ledger.released)


class Privacy:
    """A party's privacy: the first thing that every reply passes on its way out.

    Attributes:
        accountant: what was released, and what it cost.
    """

    def __init__(self) -> None:
        self.accountant = Accountant()
        self._mechanisms: dict[type[Any], Mechanism] = {}
        self._free: frozenset[type[Any]] = frozenset()

    def use(self, mechanisms: Iterable[Mechanism], *, free: Iterable[type[Any]] = ()) -> None:
        """Have replies pass these mechanisms, each for its kind of reply, in place of those before.

        Args:
            mechanisms: at most one for each kind of reply.
            free: kinds of replies that the party computes from releases and public rows alone.
        """
        self._mechanisms = {one.reply_type: one for one in mechanisms}
        self._free = frozenset(free)

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
                    costs += [one for one, _ in mechanism.parts(task, agreement)]
                self._check_cost(task.reply_type, charged=any(one.loss for one in costs))
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
            parts = mechanism.parts(task, agreement, reply)
            released = mechanism.joined([self._released(*one, mechanism) for one in parts])
            # The same question may come in another round, where its mechanism says so.
            named = hasattr(reply, "round")
            reply = replace(released, round=reply.round) if named else released
        if self.accountant.budget is not None:
            self._check_cost(type(reply), charged=self.accountant.charges > charges)
            if getattr(reply, "notes", ()):
                reply = replace(reply, notes=())  # they are made of private rows
        return reply

    def restated(self, replies: tuple[Any, ...]) -> tuple[Any, ...]:
        """Say what holds today on replies that left before.

        Args:
            replies: as they left.

        Raises:
            BudgetExceeded: the budget has become less than what is spent.
        """
        self.accountant.check(())
        known = self._mechanisms
        return tuple(
            [known[type(one)].joined([one]) if type(one) in known else one for one in replies]
        )

    def _released(self, release: Release, reply: Any, mechanism: Mechanism) -> Any:
        """The reply as the mechanism releases it, or as it was released before."""

        def draw() -> Array:
            return np.frombuffer(encode([mechanism.release(reply)]), dtype=np.uint8)

        (released,) = decode(self.accountant.release(release, draw).tobytes())
        return released

    def _check_cost(self, kind: type[Any], *, charged: bool) -> None:
        """Raise ``BudgetExceeded`` unless a kind of reply may leave a party that has a budget.

        Args:
            kind: the class of the reply.
            charged: whether the accountant is charged for it.
        """
        if kind in self._free:
            return
        cost = kind.privacy_cost if issubclass(kind, PartyMessage) else None
        assert self.accountant.budget is not None
        bare = cost == "unbudgeted" or (cost == "measured" and not self.accountant.budget.measured)
        if cost is None or (bare and kind not in self._mechanisms):
            raise BudgetExceeded(
                f"limits.epsilon: {kind.__name__} states no privacy cost, and the party has a budget",
                mend="A run of the protocol private_sums asks for nothing else than a budget allows.",
            )
        if cost == "charged" and not charged:
            raise BudgetExceeded(
                f"limits.epsilon: {kind.__name__} would leave without noise, beside the budget",
                mend="Ask for it with noise, as in certainty_weighted(epsilon=0.1).",
            )
