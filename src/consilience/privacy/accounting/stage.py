"""Privacy of what leaves a party: noise on arrays, and an accountant of the privacy loss.

Every reply passes a party's :class:`Privacy` on its way out, where it is a stage of the party's outbox
(:mod:`consilience.core.party.outbox`). It holds

- mechanisms (:class:`.Mechanism`), at most one for each kind of reply, that clip and add noise;
- the accountant (:class:`Accountant`), which adds up the privacy losses of all releases
  (:mod:`.losses`), refuses what would go beyond the party's :class:`Budget`, and keeps every release: the
  same question gets the same release. At a party's own machine they stand in a ledger
  (:mod:`.ledger`) before they leave.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.base import PartyMessage
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import decode, encode
from consilience.core.party.outbox import OutgoingStage
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.ledger import PrivacyLedger, Release, lacks
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.accounting.mechanisms import Mechanism
from consilience.privacy.accounting.units import RowUnits


class BudgetExceeded(KnowledgeRefused):
    """A reply would cost more privacy than a party has left, or an unknown amount."""

    spoken = True


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
        self._scope = ""
        """Scope of its releases in a ledger that parties share."""

    def __bool__(self) -> bool:
        return bool(self._released)

    @property
    def spent(self) -> PrivacyLoss:
        """Privacy loss of all releases."""
        return self._with([])

    def _with(self, further: Iterable[Release]) -> PrivacyLoss:
        """Add up the losses of all releases and of further ones, for the budget's neighbours."""
        own = map(self._scoped, further)
        new = (one for one in own if one.asked not in self._by_question)
        releases = [one for one in dict.fromkeys([*self._released, *new]) if one.loss]
        found = [one.loss for one in releases]
        scopes = dict.fromkeys(one.scope for one in releases)
        total = PrivacyLoss()
        if self.budget is not None:
            total = replace(total, adjacency=self.budget.adjacency, unit=self.budget.unit)
        elif found:
            weakest = next((one for one in found if one.adjacency == "replace"), found[0])
            total = replace(total, adjacency=weakest.adjacency, unit=weakest.unit)
        # Each party numbers its arrivals by itself.
        return total.plus(
            self._together(total, [one for one in releases if one.scope == scope])
            for scope in scopes
        )

    @staticmethod
    def _together(total: PrivacyLoss, releases: Sequence[Release]) -> PrivacyLoss:
        """Add up the losses of one party's releases; a row is in one arrival.

        Args:
            total: no loss, for the neighbours that count.
            releases: of one scope.
        """
        arrivals = {one.arrival for one in releases} - {None}
        if (total.adjacency, total.unit) != ("add-remove", "row") or len(arrivals) < 2:
            return total.plus(one.loss for one in releases)
        each = [
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
        release = self._scoped(release)
        if release.asked not in self._by_question:
            with self._spending(release):
                self.check([release])
                values = draw()
                if self._ledger is not None and release.loss:
                    self._ledger.add(release, values)
            self._keep({release: values})
        self.charges += bool(release.loss)
        return self._released[self._by_question[release.asked]]

    def _scoped(self, release: Release) -> Release:
        """The release under this party's scope, unless it has one."""
        return release if release.scope or not self._scope else replace(release, scope=self._scope)

    @contextmanager
    def _spending(self, release: Release) -> Iterator[None]:
        """Have nobody else spend from the ledger in this block, and know what all have spent."""
        if self._ledger is None or not release.loss:
            yield
            return
        with self._ledger.spending():
            known = self._released
            self._keep({one: it for one, it in self._ledger.released.items() if one not in known})
            yield

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

    def keep_in(self, ledger: PrivacyLedger, *, scope: str = "") -> None:
        """Write releases into a ledger from now on, and know those that are in it.

        Args:
            ledger: it.
            scope: of this party's releases, where others write into it too.
        """
        self._ledger, self._scope = ledger, scope
        self.clear()

    def arrays(self) -> dict[str, Array]:
        """All of its own releases by name, for a file of arrays; the names are JSON."""
        own = (one for one in self._released.items() if one[0].scope == self._scope)
        return {one.to_json(): values for one, values in own}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Add releases that :meth:`arrays` gave; those that are here already stay as they are.

        Raises:
            ValueError: a name is none that it gave.
            RunFailed: the ledger lacks one of them, so that it was cut or set back.
        """
        kept = {Release.from_json(name): values for name, values in arrays.items()}
        new = {one: values for one, values in kept.items() if one not in self._released}
        if self._ledger is not None and any(one.loss for one in new):
            raise lacks(self._ledger.folder)
        self._keep(new)

    def clear(self) -> None:
        """Forget all releases that are in no ledger, before those of a file are restored."""
        self._released, self._by_question = {}, {}
        self._keep({} if self._ledger is None else self._ledger.released)


class Privacy(OutgoingStage):
    """A party's privacy: a stage of its outbox, and what its state keeps of releases.

    Attributes:
        accountant: what was released, and what it cost.
        rows: units and arrivals of the private rows.
    """

    in_checkpoints = True

    def __init__(self) -> None:
        self.accountant, self.rows = Accountant(), RowUnits()
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

    def declare(self, rows: RowUnits) -> None:
        """Take the units and arrivals of the private rows."""
        self.rows = rows

    @property
    def discreet(self) -> bool:
        """True with a budget: words of errors and the form of rows may hang on private rows."""
        return self.accountant.budget is not None

    def before(self, party: Any, tasks: Sequence[Any]) -> None:
        """Hold all that tasks would cost against the budget, before the first of them runs."""
        self.check(((task, task.releases(party)) for task in tasks), party.agreement)

    def note(self, kind: str, question: Sequence[str]) -> None:
        """Count a question that costs nothing; the same is counted once."""
        self.accountant.release(
            Release.of(kind, tuple(question), PrivacyLoss()), lambda: np.zeros(0)
        )

    def joined(self) -> None:
        """Keep all releases: noise that was drawn anew could be averaged away."""

    def to_bytes(self) -> bytes:
        """Write the releases."""
        arrays = self.accountant.arrays()
        return save(arrays) if arrays else b""

    def read(self, data: bytes | None, *, only: bool) -> None:
        """Add releases that :meth:`to_bytes` wrote; those that are here already stay as they are.

        Args:
            data: the bytes; ``None`` for no releases.
            only: whether to forget first what is in no ledger.

        Raises:
            ValueError: the bytes are damaged.
        """
        if only:
            self.accountant.clear()
        try:
            self.accountant.restore(load(data) if data else {})
        except SafetensorError as error:
            raise ValueError(str(error)) from error

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
