"""Membership of a deployed federation: a party that cannot or does not want to join is excluded by name.

The others go on where they are enough. An excluded party is asked nothing but to join, after every round;
not even that where the protocol made sure of something at all the others before the first round, which it
cannot do later. One that takes fewer bytes of public rows than there are is asked how many it takes instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from consilience.errors import InvalidInput
from consilience.federation.forming import too_large_for
from consilience.messages.replies import Description, Failure, Replies
from consilience.messages.schema import Public
from consilience.networks.flower.network import FlowerNetwork
from consilience.networks.incoming import Arrival
from consilience.tasks.base import Task
from consilience.tasks.lifecycle import Describe, Join, TakePublic


@dataclass
class MembershipNetwork(FlowerNetwork):
    """Flower network that tracks which registered parties have joined, and excludes the others.

    Where another network ends the run, in :meth:`require`, this one excludes the parties that do not answer,
    and goes on with the others while they are enough.

    Args:
        public: the rows that every party must hold; parties without a file of them are sent them.
        excluded: party to the failure for which it has not joined.
        banned: excluded parties that may not join any more.
        most_measurements: party to how often in a run it lets itself be measured; ``None`` for no limit.
        changed: called when a party was excluded or has joined.
        sends: times that the public rows are sent to a party in a run: it may refuse them, or lose them,
            without end.

    Raises:
        QuorumLost: fewer joined than the quorum; it names the others.
    """

    public: Public = field(kw_only=True)
    changed: Callable[[], None] = field(default=lambda: None, kw_only=True)
    sends: int = field(default=3, kw_only=True)
    excluded: dict[str, Failure] = field(default_factory=dict, kw_only=True)
    banned: set[str] = field(default_factory=set, kw_only=True)
    most_measurements: dict[str, int | None] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        assert isinstance(self.nodes, tuple)
        if self.least is None:
            self.least = self._needed(len(self.nodes))
        self._too_small_limit: set[str] = set()
        """Parties whose limit was below the bytes of the public rows when they were last asked."""
        self._sent: Counter[str] = Counter()
        """Number of times that each party was sent the public rows."""
        super().__post_init__()

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Ask the parties that have joined; every other one's reply is the failure for which it has not.

        Args:
            tasks: run in order.
            to: names of parties, excluded ones among them.
            request: the tasks as bytes.
        """
        inside = tuple(name for name in to if name not in self.excluded)
        if tasks and isinstance(tasks[0], TakePublic):
            self._sent.update(inside)
        arrivals = dict(super().exchange(tasks, inside, request)) if inside else {}
        return arrivals | {
            name: Arrival(self.excluded[name], 0, 0.0) for name in to if name in self.excluded
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
        if isinstance(tasks[0], Describe):
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
        """Have parties describe themselves and join that were not there when the federation was formed."""
        if names := sorted(names):
            replies = self.gather(Describe(), to=names)
            said = _descriptions(replies.answers)
            self._describe(said)
            agreed, frozen = self.agreed, [one.party for one in said if one.frozen]
            learners = [one.party for one in said if one.learns_only]
            self.agreement = replace(
                agreed,
                frozen=tuple(sorted({*agreed.frozen, *frozen})),
                learners=tuple(sorted({*agreed.learners, *learners})),
            )
            self._exclude(replies.missing)
            self.join(replies)

    def _describe(self, said: Sequence[Description]) -> None:
        """Note how often parties let themselves be measured, and whose limit is below the public rows."""
        for one in said:
            self.most_measurements[one.party] = one.metrics if one.tested else 0
        self._too_small_limit |= set(too_large_for(said, self.public))

    def join(self, names: Iterable[str]) -> None:
        """Have parties join what was agreed on, from the beginning; one that does not is excluded.

        A party that lacks the public rows is sent them, and asked again.
        """
        if names := sorted(names):
            for name in names:
                self.excluded.pop(name, None)
            join, missing = Join(agreement=self.agreed), self._still_too_small(names)
            if able := [name for name in names if name not in missing]:
                missing |= self.with_rows(join, to=able).missing
            self._exclude(missing)

    def _still_too_small(self, names: Iterable[str]) -> dict[str, Failure]:
        """Ask parties again whose limit was below the public rows; return failures where it still is."""
        if not (asked := sorted(self._too_small_limit.intersection(names))):
            return {}
        replies = self.gather(Describe(), to=asked)
        odd = too_large_for(_descriptions(replies.answers), self.public)
        self._too_small_limit -= set(replies) - odd.keys()
        return dict(replies.missing) | {name: _failure(name, error) for name, error in odd.items()}

    def with_rows(self, *tasks: Task, to: Sequence[str]) -> Replies:
        """Ask parties, whoever answers; one that lacks the public rows is sent them, and asked again.

        Args:
            tasks: run in order.
            to: names of parties.
        """
        replies = self.gather(*tasks, to=to)
        sent = self.send_public(replies.missing)
        again = self.gather(*tasks, to=sent.parties) if sent.parties else sent
        missing = {**replies.missing, **sent.missing, **again.missing}
        answers = {**replies.answers, **again.answers}
        return Replies(answers, {name: why for name, why in missing.items() if name not in answers})

    def send_public(self, missing: Mapping[str, Failure]) -> Replies:
        """Send the public rows to parties that failed for want of them, ``sends`` times at most."""
        lacking = [
            name
            for name, why in missing.items()
            if why.code == "lacks-public"
            and name not in self.excluded
            and self._sent[name] < self.sends
        ]
        if not lacking or not len(self.public):
            return Replies({}, {})
        return self.gather(TakePublic.of(self.public), to=lacking)

    def readmit(self) -> None:
        """Have excluded parties join, if they can now; banned ones are not asked."""
        self.join(self.excluded.keys() - self.banned)

    def _exclude(self, missing: Mapping[str, Failure], asked: tuple[Task, ...] = ()) -> None:
        """Exclude parties; raise ``QuorumLost`` where too few are left for what all were asked."""
        for name, why in missing.items():
            self.excluded[name] = replace(why, reason=f"it has not joined: {why.reason}")
        self.changed()
        if asked:
            left = [name for name in self.parties if name not in self.excluded]
            self._enough(Replies(dict.fromkeys(left, ()), dict(self.excluded)), asked)


def _failure(name: str, error: InvalidInput) -> Failure:
    reason = f"{error.where}: {error.what}"
    return Failure(party=name, reason=reason, mend=error.mend or "", kind="invalid")


def _descriptions(answers: Mapping[str, tuple[Description, ...]]) -> list[Description]:
    return [said for (said,) in answers.values()]
