"""Privacy stage of a party's outbox: adds noise to replies and accounts for the privacy loss.

Every reply passes a party's :class:`Privacy`, a stage of the party's outbox
(:mod:`consilience.core.party.outbox`), before the party sends it. The stage holds

- mechanisms (:class:`.Mechanism`), at most one for each kind of reply, that clip and add noise;
- the accountant (:class:`Accountant`), which adds up the privacy losses of all releases
  (:mod:`.losses`), refuses releases beyond the party's :class:`Budget`, and keeps every release: the
  same question gets the same release. On the party's own machine a ledger (:mod:`.ledger`) records each
  release before the party sends it.

With a budget, the party does not send replies without a stated privacy cost: predictions, scores, counts,
metrics, notes. Releases of a mechanism are kept by question and never by reply. A repeated
release and its charge therefore do not reveal whether two exact replies were equal. The noise uses the
operating system's random bytes (:class:`.randomness.SystemNoise`) and not the run's seed, because the
coordinator has the seed. Losses add up over the party's whole life.

Source:
    Dwork & Roth 2014, "The Algorithmic Foundations of Differential Privacy", Proposition 2.1
    (post-processing of a release costs no more privacy); Balle & Wang 2018 (Gaussian noise).
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
    """Accountant of a party's releases and of their total privacy loss over the party's whole life.

    Neither joining nor restoring undoes a release, because new noise on the same values could be averaged
    away.

    Attributes:
        budget: limit on the privacy loss of all releases together; ``None`` for no limit.
        charges: number of new or repeated releases with a privacy cost since this object was created.
    """

    def __init__(self) -> None:
        self.budget: Budget | None = None
        self.charges = 0
        self._released: dict[Release, Array] = {}
        self._by_question: dict[tuple[Any, ...], Release] = {}
        self._ledger: PrivacyLedger | None = None
        self._scope = ""
        """Scope of this party's releases in a shared ledger."""

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
        """Compose the losses of one party's releases; each row belongs to one arrival only.

        Args:
            total: zero loss, with the neighbouring data of the result.
            releases: releases of one scope.
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
        """Return the values of a release: draw and charge them at the first call, later repeat them for free.

        A repeated question finds its release even if the current budget has another loss for it.

        Args:
            release: record of the release.
            draw: computes the values, including noise.

        Returns:
            The released values, in the shape that ``draw`` returned them.

        Raises:
            BudgetExceeded: the release would cost more than the remaining budget; ``draw`` is not called
                then.
            RunFailed: the ledger cannot be written.
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
        """Lock the ledger for this block, and load the releases of all parties that share it."""
        if self._ledger is None or not release.loss:
            yield
            return
        with self._ledger.spending():
            known = self._released
            self._keep({one: it for one, it in self._ledger.released.items() if one not in known})
            yield

    def _keep(self, released: Mapping[Release, Array]) -> None:
        """Add releases; if two releases answer one question, the first one is repeated."""
        self._released |= released
        for one in released:
            self._by_question.setdefault(one.asked, one)

    def check(self, releases: Iterable[Release]) -> None:
        """Raise ``BudgetExceeded`` if the new ones among these releases would together exceed the budget."""
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
        """Write releases into a ledger from now on, and load its existing releases.

        Args:
            ledger: the ledger.
            scope: scope of this party's releases, if other parties write into the ledger too.
        """
        self._ledger, self._scope = ledger, scope
        self.clear()

    def arrays(self) -> dict[str, Array]:
        """Return this party's releases by name, for a file of arrays; the names are JSON."""
        own = (one for one in self._released.items() if one[0].scope == self._scope)
        return {one.to_json(): values for one, values in own}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Add releases from :meth:`arrays`; existing releases stay unchanged.

        Raises:
            ValueError: a name is not the JSON of a release.
            RunFailed: the ledger lacks one of them because it was truncated or restored from an older copy.
        """
        kept = {Release.from_json(name): values for name, values in arrays.items()}
        new = {one: values for one, values in kept.items() if one not in self._released}
        if self._ledger is not None and any(one.loss for one in new):
            raise lacks(self._ledger.folder)
        self._keep(new)

    def clear(self) -> None:
        """Forget all releases outside the ledger, before the releases of a file are restored."""
        self._released, self._by_question = {}, {}
        self._keep({} if self._ledger is None else self._ledger.released)


class Privacy(OutgoingStage):
    """Privacy stage of a party's outbox, including the releases that its state keeps.

    Attributes:
        accountant: accountant of the party's releases and of their privacy loss.
        rows: units and arrivals of the private rows.
    """

    in_checkpoints = True

    def __init__(self) -> None:
        self.accountant, self.rows = Accountant(), RowUnits()
        self._mechanisms: dict[type[Any], Mechanism] = {}
        self._free: frozenset[type[Any]] = frozenset()

    def use(self, mechanisms: Iterable[Mechanism], *, free: Iterable[type[Any]] = ()) -> None:
        """Replace the mechanisms for replies.

        Args:
            mechanisms: at most one for each kind of reply.
            free: kinds of replies computed only from releases and public rows.
        """
        self._mechanisms = {one.reply_type: one for one in mechanisms}
        self._free = frozenset(free)

    def declare(self, rows: RowUnits) -> None:
        """Set the units and arrivals of the private rows."""
        self.rows = rows

    @property
    def discreet(self) -> bool:
        """True with a budget, because error messages and the format of rows may depend on private rows."""
        return self.accountant.budget is not None

    def before(self, party: Any, tasks: Sequence[Any]) -> None:
        """Check the total privacy loss of the tasks against the budget, before the first task runs."""
        self.check(((task, task.releases(party)) for task in tasks), party.agreement)

    def note(self, kind: str, question: Sequence[str]) -> None:
        """Count a question without a privacy cost; an equal question is counted once."""
        self.accountant.release(
            Release.of(kind, tuple(question), PrivacyLoss()), lambda: np.zeros(0)
        )

    def joined(self) -> None:
        """Keep all releases, because new noise on the same values could be averaged away."""

    def to_bytes(self) -> bytes:
        """Write the releases."""
        arrays = self.accountant.arrays()
        return save(arrays) if arrays else b""

    def read(self, data: bytes | None, *, only: bool) -> None:
        """Add releases from :meth:`to_bytes`; existing releases stay unchanged.

        Args:
            data: the bytes; ``None`` for no releases.
            only: whether to forget all releases outside the ledger first.

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
        """Check the total privacy loss of all tasks against the budget, before the first task runs.

        Args:
            tasks: pairs of a task and the releases that the task itself makes with the accountant.
            agreement: agreement of the federation; ``None`` before the party has joined.

        Raises:
            BudgetExceeded: the party has a budget, and the replies would exceed it together, or a reply
                states no cost, or a reply of a kind that needs noise has none; the error's code is
                ``"budget"``.
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
        """Compute the reply to a task and return the version that the party may send.

        Args:
            task: the task.
            agreement: agreement of the federation; ``None`` before the party has joined.
            run: computes the exact reply, or a noisy reply with a charge already made.

        Returns:
            The reply after its mechanism, if its kind has one; with a budget, without notes.

        Raises:
            BudgetExceeded: as for :meth:`check`, for costs that the task did not state in advance.
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
        """Update the declarations in earlier replies to the present state of the party.

        Args:
            replies: replies as the party sent them.

        Raises:
            BudgetExceeded: the budget is now below the loss already spent.
        """
        self.accountant.check(())
        known = self._mechanisms
        return tuple(
            [known[type(one)].joined([one]) if type(one) in known else one for one in replies]
        )

    def _released(self, release: Release, reply: Any, mechanism: Mechanism) -> Any:
        """Return the reply as released by the mechanism, now or earlier."""

        def draw() -> Array:
            return np.frombuffer(encode([mechanism.release(reply)]), dtype=np.uint8)

        (released,) = decode(self.accountant.release(release, draw).tobytes())
        return released

    def _check_cost(self, kind: type[Any], *, charged: bool) -> None:
        """Raise ``BudgetExceeded`` unless the party, which has a budget, may send this kind of reply.

        Args:
            kind: class of the reply.
            charged: whether the accountant is charged for the reply.
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
