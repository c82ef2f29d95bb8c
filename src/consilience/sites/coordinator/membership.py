"""Membership of a deployed federation: a party that cannot join, or refuses to, is excluded by name.

The other parties continue if they meet the quorum. After every round an excluded party is invited to join,
and receives no other request. It is not invited if the protocol requires an answer of all parties before
the first round, because that cannot be repeated later. A party that accepts fewer bytes of public rows than
the coordinator has is queried for its current limit instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import check_classes_fixed, lacking_public, too_large_for
from consilience.core.messages.replies import Description, Failure, Replies
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import decode
from consilience.core.networks.incoming import Arrival, Request
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Describe, Join, TakePublic
from consilience.lab.runs.ledger import Ledger
from consilience.sites.transport.flower.network import FlowerNetwork


def agreement_of(ledger: Ledger) -> Agreement | None:
    """The agreement that the parties of a run hold to; ``None`` where no round was kept yet."""
    written = ledger.meta.get("agreement")
    found: Agreement | None = None if written is None else decode(bytes.fromhex(written))[0]
    return found


@dataclass
class MembershipNetwork(FlowerNetwork):
    """Flower network that tracks which registered parties have joined, and excludes the others.

    Other networks end the run in :meth:`require` if a party does not answer. This one excludes the party and
    continues with the others while they meet the quorum.

    Args:
        public: the rows that every party must hold; they are sent to parties without a file of them.
        excluded: party to its failure to join.
        banned: excluded parties that may not join later.
        described: parties with an answer to ``Describe``, which is required before a party joins.
        most_measurements: party to its limit on evaluations in a run; ``None`` for no limit.
        changed: called when a party was excluded or has joined.
        sends: maximum number of times that the public rows are sent to one party in a run, because a party
            may refuse or lose them repeatedly.

    Raises:
        QuorumLost: fewer joined than the quorum; it names the others.
    """

    public: Public = field(kw_only=True)
    changed: Callable[[], None] = field(default=lambda: None, kw_only=True)
    sends: int = field(default=3, kw_only=True)
    excluded: dict[str, Failure] = field(default_factory=dict, kw_only=True)
    banned: set[str] = field(default_factory=set, kw_only=True)
    described: set[str] = field(default_factory=set, kw_only=True)
    most_measurements: dict[str, int | None] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        assert isinstance(self.nodes, tuple)
        if self.least is None:
            self.least = self._needed(len(self.nodes))
        self._too_small_limit: set[str] = set()
        """Parties whose limit was below the bytes of the public rows when they were last asked."""
        self._sent: Counter[str] = Counter()
        """Number of times that each party was sent the public rows."""
        self._failed: dict[str, Failure] = {}
        """Party to its failure, where the last answer was one."""
        super().__post_init__()

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Send requests to the joined parties; for each excluded party, return its failure as the reply."""
        inside = {name: one for name, one in requests.items() if name not in self.excluded}
        self._sent.update(
            name for name, one in inside.items() if one.tasks[0].lifecycle == "public"
        )
        arrivals = dict(super().exchange_each(inside)) if inside else {}
        for name, one in arrivals.items():
            self._failed.pop(name, None)
            if isinstance(one.outcome, Failure):
                self._failed[name] = one.outcome
        return arrivals | {
            name: Arrival(self.excluded[name], 0, 0.0) for name in requests.keys() - inside.keys()
        }

    def require(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Ask what every party must answer to take part; one that does not is excluded.

        Args:
            tasks: run in order.
            to: names of parties; by default all.

        Raises:
            QuorumLost: too few are left.
        """
        named = self.parties if to is None else to
        replies = self.gather(*tasks, to=[name for name in named if name not in self.excluded])
        if tasks[0].lifecycle == "describe":
            self._too_small_limit.clear()
            self._describe(_descriptions(replies.answers))
        self._exclude(replies.missing, tasks)
        if self.agreement is not None:  # else it is describing or joining, which can be repeated
            self.banned |= self.excluded.keys()
        return Replies(replies.answers, dict(self.excluded))

    def leave_out(self, errors: Mapping[str, InvalidInput]) -> None:
        """Exclude parties that do not fit the others.

        Args:
            errors: party to the reason.

        Raises:
            QuorumLost: too few are left.
        """
        self._exclude(
            {name: _failure(name, error) for name, error in errors.items()}, (Describe(),)
        )

    def admit(self, names: Iterable[str]) -> None:
        """Have new parties, absent when the federation was formed, describe themselves and join."""
        if names := sorted(names):
            for name in names:
                self.excluded.pop(name, None)
            replies = self.gather(Describe(), to=names)
            everyone = _descriptions(replies.answers)
            odd = self._with_other_classes(everyone)
            said = [one for one in everyone if one.party not in odd]
            self._describe(said)
            agreed, frozen = self.agreed, [one.party for one in said if one.frozen]
            learners = [one.party for one in said if one.learns_only]
            self.agreement = replace(
                agreed,
                frozen=tuple(sorted({*agreed.frozen, *frozen})),
                learners=tuple(sorted({*agreed.learners, *learners})),
            )
            self._exclude({**replies.missing, **odd})
            lacking = lacking_public(said, self.public)
            self._send_public(name for name in lacking if name not in self._too_small_limit)
            self.join(one.party for one in said)

    def _with_other_classes(self, said: Iterable[Description]) -> dict[str, Failure]:
        """Find the parties with classes beyond the agreed ones; return the failure of each."""
        found = {}
        for one in said:
            try:
                check_classes_fixed(one.classes, self.agreed.classes)
            except InvalidInput as error:
                found[one.party] = _failure(one.party, error.located(f"party {one.party!r}"))
        return found

    def _describe(self, said: Sequence[Description]) -> None:
        """Note how often parties let themselves be measured, and whose limit is below the public rows."""
        self.described |= {one.party for one in said}
        for one in said:
            self.most_measurements[one.party] = one.metrics if one.tested else 0
        self._too_small_limit |= set(too_large_for(said, self.public))

    def join(self, names: Iterable[str]) -> None:
        """Have parties join the current agreement from the beginning; exclude those that do not.

        If a party lacks the public rows, they are sent to it, and the request is repeated.
        """
        if names := sorted(names):
            for name in names:
                self.excluded.pop(name, None)
            join, missing = Join(agreement=self.agreed), self._still_too_small(names)
            if able := [name for name in names if name not in missing]:
                missing |= self.with_rows(dict.fromkeys(able, (join,))).missing
            self._exclude(missing)

    def _still_too_small(self, names: Iterable[str]) -> dict[str, Failure]:
        """Ask parties again whose limit was below the public rows; return failures where it still is."""
        if not (asked := sorted(self._too_small_limit.intersection(names))):
            return {}
        replies = self.gather(Describe(), to=asked)
        odd = too_large_for(_descriptions(replies.answers), self.public)
        self._too_small_limit -= set(replies) - odd.keys()
        return dict(replies.missing) | {name: _failure(name, error) for name, error in odd.items()}

    def with_rows(self, asked: Mapping[str, tuple[Task, ...]]) -> Replies:
        """Send requests to parties in parallel; send the public rows to those without them, and try again.

        Args:
            asked: party to its tasks, sorted by name; the same object for equal tasks.

        Returns:
            The answers, and the failures of the other parties.
        """
        replies = self._ask_parties(asked)
        sent = self.send_public(replies.missing)
        now = {name: asked[name] for name in sent.parties}
        again = self._ask_parties(now) if now else sent
        missing = {**replies.missing, **sent.missing, **again.missing}
        answers = {**replies.answers, **again.answers}
        return Replies(answers, {name: why for name, why in missing.items() if name not in answers})

    def send_public(self, missing: Mapping[str, Failure]) -> Replies:
        """Send the public rows to parties that failed for want of them, ``sends`` times at most."""
        return self._send_public(
            name for name, why in missing.items() if why.code == "lacks-public"
        )

    def _send_public(self, names: Iterable[str]) -> Replies:
        """Send the public rows to parties, except to excluded ones and those with ``sends`` attempts."""
        to = [name for name in names if name not in self.excluded and self._sent[name] < self.sends]
        if not to or not len(self.public):
            return Replies({}, {})
        return self.gather(TakePublic.of(self.public), to=to)

    def take_back(self) -> None:
        """Send the public rows to parties that lost them, and have parties join whose state is gone."""
        failed = dict(self._failed)
        self.send_public(failed)
        lost = {name for name, why in failed.items() if why.code == "not-joined"}
        self.join(lost - self.banned)

    def readmit(self) -> None:
        """Have excluded parties join if they can now, except for banned ones."""
        outside = self.excluded.keys() - self.banned
        self.join(outside & self.described)
        self.admit(outside - self.described)

    def regroup(self, parties: Collection[str]) -> None:
        """Have the registered parties be these from now on: new ones may join, others are let go.

        Args:
            parties: names of all.
        """
        gone = [name for name in self.parties if name not in parties]
        for name in gone:
            self.excluded.pop(name, None)
            self._failed.pop(name, None)
            self.most_measurements.pop(name, None)
            self.banned.discard(name)
            self.described.discard(name)
            self.forget(name)
            self._sent.pop(name, None)
        self._nodes = {name: self._nodes.get(name) for name in sorted(parties)}
        agreed = self.agreed
        frozen, learners = (
            tuple(name for name in names if name not in gone)
            for names in (agreed.frozen, agreed.learners)
        )
        self.agreement = replace(agreed, frozen=frozen, learners=learners)
        new = [name for name in parties if name not in self.described and name not in self.excluded]
        self.admit(new)
        self.changed()

    def _exclude(self, missing: Mapping[str, Failure], asked: tuple[Task, ...] = ()) -> None:
        """Exclude parties; raise ``QuorumLost`` if ``asked`` was sent to all and too few are left."""
        for name, why in missing.items():
            self.excluded[name] = replace(why, reason=f"it has not joined: {why.reason}")
        self.changed()
        if asked:
            left = [name for name in self.parties if name not in self.excluded]
            self.enough(Replies(dict.fromkeys(left, ()), dict(self.excluded)), asked)


def _failure(name: str, error: InvalidInput) -> Failure:
    reason = f"{error.where}: {error.what}"
    return Failure(party=name, reason=reason, mend=error.mend or "", kind="invalid")


def _descriptions(answers: Mapping[str, tuple[Description, ...]]) -> list[Description]:
    return [said for (said,) in answers.values()]
