"""A federation: parties that agreed on classes and public data, and can run a protocol."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput, counted
from consilience.core.federation.driver import (
    CompletedRound,
    drive,
    measured_rounds,
    total_rounds,
    tracked,
)
from consilience.core.federation.forming import (
    bound_by_class,
    check_classes_fixed,
    check_tolerates,
    incompatible_parties,
    lacking_public,
    negotiate,
)
from consilience.core.federation.history import History
from consilience.core.messages.replies import Description, Metrics
from consilience.core.messages.schema import Agreement, Public
from consilience.core.networks import Network, in_process_network
from consilience.core.numerics.encoder import Encoder, find_encoder
from consilience.core.numerics.randomness import limited_threads
from consilience.core.party.party import Party
from consilience.core.protocols import Protocol, Round, RoundState
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join, TakePublic


@dataclass(frozen=True)
class _Connected:
    """Parties on a network, and the requirements that all of them meet."""

    network: Network
    encoder: str
    tolerates: int = 0

    def check_quorum(self) -> None:
        """Raise ``InvalidInput`` if the network has fewer parties than its quorum."""
        quorum, parties = self.network.quorum, len(self.network.parties)
        if not isinstance(quorum, float) and quorum > parties:
            raise InvalidInput(
                f"quorum is {quorum}, and there are {parties} parties",
                where="network",
                mend="Give a number of parties, or a share in (0, 1].",
            )


class Federation:
    """A set of parties and their shared public data.

    Args:
        parties: at least one :class:`~consilience.core.party.party.Party`; if there are many parties and few
            take part in each round, use a :class:`~consilience.core.networks.Population`.
        public: unlabelled inputs, shape ``(n_public, ...)``, or a table, whose columns then apply to the
            parties' tables; ``None`` for protocols that exchange models.
        seed: random seed; the same seed gives bit-identical results on every network.
        strict: refuse a party with a single class, and a class that only one party has. Both are usually
            labelling mistakes; set ``False`` if they are intended.
        threads: number of numerical threads during rounds.
        encoder: computes the features used to compare the parties' rows: a name (``consilience list
            encoders``) or a callable with a ``key``; ``None`` uses the public rows alone
            (:mod:`consilience.core.numerics.feature_space`).

    Raises:
        InvalidInput: no parties, two parties with the same name, or unusable public data.

    Example:
        >>> import numpy as np
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from consilience import Federation, Party, avg, ensemble_distillation
        >>> X = np.repeat(np.linspace(-1, 1, 40), 2)[:, None]
        >>> y = np.where(X[:, 0] < 0, "below", "above")
        >>> parties = [
        ...     Party("a", GaussianNB(), X[0::2], y[0::2]),
        ...     Party("b", DecisionTreeClassifier(), X[1::2], y[1::2]),
        ... ]
        >>> history = Federation(parties, public=X).run(
        ...     ensemble_distillation(aggregate=avg(), rounds=2)
        ... )
        >>> history.models["a"].predict([[-0.9], [0.9]]).tolist()
        ['below', 'above']
    """

    def __init__(
        self,
        parties: Iterable[Party] | _Connected,
        public: Any = None,
        *,
        seed: int = 0,
        strict: bool = True,
        threads: int = 1,
        encoder: Encoder | str | None = None,
    ) -> None:
        if isinstance(parties, _Connected):
            members, shared = parties, public
        else:
            shared = Public.none() if public is None else public
            if not isinstance(shared, Public):
                shared = Public(shared)
            for note in shared.notes:
                warnings.warn(f"public data: {note}", stacklevel=2)
            if encoder is not None:
                shared = shared.with_encoder(find_encoder(encoder))
            members = _Connected(in_process_network(parties, shared), shared.encoder_key)
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InvalidInput(
                f"seed is {seed!r}", where="federation", mend="Give a whole number, 0 or more."
            )
        members.check_quorum()
        self.network, self.public, self.threads = members.network, shared, threads
        self._seed, self._strict = int(seed), strict
        self._encoder, self._tolerates = members.encoder, members.tolerates
        self.bound = ""
        """A sentence on the malicious parties that each class bears, once it is formed."""
        self._last: History | None = None
        """Record of the run that the parties are as left by."""
        self._ran = ""
        """Name of the protocol of the last run."""
        self._testers: dict[str, int | None] = {}
        """Parties that can be measured, and how often in a run they let themselves be."""

    def __repr__(self) -> str:
        return (
            f"Federation({counted(len(self.network.parties), 'party', 'parties')}, {self.public!r})"
        )

    def form(self) -> Agreement:
        """Align classes, check every party against the agreement, and start from untrained models.

        The public rows are sent to each party that accepts them from the coordinator and does not have them
        yet. Parties in this process share one copy in memory, so that no rows are sent.

        Returns:
            The agreement: the common classes and input form.

        Raises:
            InvalidInput: the parties, their data or their models are incompatible.
        """
        self._last = None
        with limited_threads(self.threads):
            descriptions, agreement = self._negotiated()
            if lacking := lacking_public(descriptions, self.public):
                self.network.require(TakePublic.of(self.public), to=lacking)
            self.network.require(Join(agreement=agreement))
            self.network.agreement = agreement
        self._testers = {d.party: d.metrics for d in descriptions if d.tested}
        return agreement

    def _negotiated(self) -> tuple[list[Description], Agreement]:
        """Request every party's description; return the compatible descriptions and the agreement."""
        descriptions = self.network.require(Describe()).of(Description)
        odd = incompatible_parties(descriptions, self.public, strict=self._strict)
        self.network.leave_out(odd)
        fitting = [one for one in descriptions if one.party not in odd]
        check_tolerates(fitting, self._tolerates)
        self.bound = bound_by_class(
            {one.party: one.classes for one in fitting if not one.learns_only}
        )
        agreement = negotiate(fitting, self.public, seed=self._seed, encoder=self._encoder)
        return fitting, agreement

    def rounds(self, protocol: Protocol, *, state: RoundState | None = None) -> Iterator[Round]:
        """Compute the rounds of a protocol, one at a time, from untrained models.

        With ``state``, the parties keep their current state (see
        :class:`~consilience.core.tasks.lifecycle.Restore`), and the protocol continues after that round.

        Raises:
            InvalidInput: the parties or the protocol's options are incompatible; raised before any training.
        """
        self._last = None
        return (done.round for done in drive(self, protocol, state=state))

    def evaluate(self, round: int, *, parties: Collection[str] | None = None) -> dict[str, Metrics]:
        """Ask parties for their metrics on their own test data; parties without any are left out.

        Args:
            round: the round, for the ledger.
            parties: names of those to be measured; by default all.
        """
        asked = [name for name in self._testers if parties is None or name in parties]
        if not asked:
            return {}
        with limited_threads(self.threads):
            replies = self.network.gather(Evaluate(round=round), to=asked)
        return {metrics.party: metrics for metrics in replies.of(Metrics)}

    def run(
        self,
        protocol: Protocol,
        *,
        evaluate: bool | Literal["participants"] = True,
        progress: bool = True,
    ) -> History:
        """Run a protocol to its end.

        Args:
            protocol: the protocol, such as ``ensemble_distillation(aggregate=uwa(), rounds=10)``.
            evaluate: measure every party with test data after every round, or in :func:`measured_rounds` if
                its limits do not allow that many measurements; ``"participants"`` measures only the parties
                whose replies were used in the round.
            progress: show a progress bar when the output is a terminal.
        """
        return self._recorded(protocol, History(), None, evaluate, progress)

    def resume(
        self,
        history: History,
        protocol: Protocol,
        *,
        join: Iterable[Party] = (),
        evaluate: bool | Literal["participants"] = True,
        progress: bool = True,
    ) -> History:
        """Continue the last run of this federation, optionally with further parties.

        The parties keep their state from that run; parties that join late are untrained and take part from
        the next round. The protocol repeats its one-time requests to all parties.

        Args:
            history: the history of the last run.
            protocol: the same protocol, with more rounds.
            join: new parties, only on a network within this process; their classes must be among the agreed
                classes.
            evaluate: as in :meth:`run`.
            progress: as in :meth:`run`.

        Returns:
            The whole history: the rounds of ``history`` unchanged, and the rounds after them.

        Raises:
            InvalidInput: ``history`` is not from the last run; a joining party is incompatible (then no party
                joins); the protocol is a different one, or has no further rounds.
        """
        if history is not self._last:
            raise InvalidInput(
                "the parties are not as this run left them",
                where="federation",
                mend="Go on with what the last run of this federation returned.",
            )
        if self._ran != protocol.name:
            raise InvalidInput(
                f"the last run was of {self._ran}, and this is {protocol.name}",
                where="federation",
                mend="Resume the same protocol, or run the other one from the beginning.",
            )
        done, rounds = history.rounds[-1].state, total_rounds(protocol)
        if rounds <= done.round:
            raise InvalidInput(
                f"rounds is {rounds}, and {done.round} are done",
                where="protocol",
                mend="Give the number of all rounds, those that are done among them.",
            )
        self.admit(list(join))
        before = History(list(history.rounds), list(history.metrics), list(history.deliveries))
        return self._recorded(protocol, before, done, evaluate, progress)

    def admit(self, late: Sequence[Party]) -> None:
        """Admit further parties, all or none of them.

        Args:
            late: the parties that join.

        Raises:
            InvalidInput: the network does not admit parties, or a party is incompatible; the federation is
                then unchanged.
        """
        if not late:
            return
        before, network = self.network.agreed, self.network
        with limited_threads(self.threads), network.admitting(late):
            descriptions, agreement = self._negotiated()
            check_classes_fixed(agreement.classes, before.classes)
            agreement = replace(agreement, summed=before.summed)  # which the others hold to
            network.require(Join(agreement=agreement), to=[party.name for party in late])
        network.agreement = agreement
        self._testers = {d.party: d.metrics for d in descriptions if d.tested}

    def _recorded(
        self,
        protocol: Protocol,
        history: History,
        state: RoundState | None,
        evaluate: bool | Literal["participants"],
        progress: bool,
    ) -> History:
        """Do the rounds that follow a history, and add them to it."""
        if evaluate not in (True, False, "participants"):
            raise InvalidInput(
                f"evaluate is {evaluate!r}", mend='Give true, false or "participants".'
            )
        total = total_rounds(protocol)
        self.network.deliveries.clear()

        def measure(round: Round) -> dict[str, Metrics]:
            if not evaluate:
                return {}
            parties = self.network.parties
            if evaluate == "participants":
                parties = () if round.replies is None else round.replies.parties
            times = {name: measured_rounds(self._testers.get(name), total) for name in parties}
            due = [name for name in parties if round.number in times[name]]
            return self.evaluate(round.number, parties=due)

        def record(done: CompletedRound) -> None:
            history.add(done.round, done.metrics, self.network.deliveries)
            self.network.deliveries.clear()

        self._last, self._ran = None, protocol.name
        rounds = drive(self, protocol, state=state, evaluate=measure, record=record)
        for _ in tracked(rounds, total, protocol.name) if progress else rounds:
            pass
        history.models = self.network.models()
        self._last = history
        return history


def federation_over(
    network: Network,
    public: Public,
    *,
    seed: int = 0,
    strict: bool = True,
    threads: int = 1,
    encoder: str | None = None,
    tolerates: int = 0,
) -> Federation:
    """Make a federation of the parties on a network.

    Args:
        network: network that the parties are on.
        public: public rows; ``Public.none()`` for protocols that exchange models.
        seed: as of :class:`Federation`.
        strict: as of :class:`Federation`.
        threads: as of :class:`Federation`.
        encoder: digest of the encoder that every party must have, empty for none; ``None`` uses the digest
            of the public rows' encoder.
        tolerates: number of malicious parties to tolerate: less than half of the parties with any given
            class.

    Returns:
        The federation, which is not formed yet.

    Raises:
        InvalidInput: the seed is no whole number, or the quorum exceeds the number of parties.
    """
    members = _Connected(network, public.encoder_key if encoder is None else encoder, tolerates)
    return Federation(members, public, seed=seed, strict=strict, threads=threads)
