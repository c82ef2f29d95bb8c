"""Networks whose parties are objects of this process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from consilience.core.errors import InvalidInput
from consilience.core.learners import Model
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode, size
from consilience.core.networks.base import Network, check_distinct
from consilience.core.networks.incoming import Arrival, Request, decode_reply
from consilience.core.networks.scheduling import scheduler
from consilience.core.party.party import Party
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import reply_of
from consilience.core.tasks.requests import open_request


@dataclass
class InProcessNetwork(Network):
    """Base class of networks whose parties are objects of this process.

    Models that train faster together are trained together (:func:`.scheduling.schedule_with`), such as torch
    networks of one architecture; on a CPU the results are bit-identical. A party's recorded time is its
    individual time and its share of the joint time.

    Args:
        wire: pass every message through bytes and back, as a real network does; results are bit-identical.
        at_a_time: maximum number of parties that work at the same time; their intermediate data is in memory.
    """

    wire: bool = field(default=False, kw_only=True)
    at_a_time: int = field(default=128, kw_only=True)

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        # A late answer is known to be late only when it is there.
        return self._in_batches(dict.fromkeys(to, Request(tasks, request)))

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Ask every party its own question, all of them side by side."""
        return self._in_batches(requests)

    def _in_batches(self, asked: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Query at most ``at_a_time`` parties at once, so that the models of one batch can train together."""
        arrivals: dict[str, Arrival] = {}
        for start in range(0, len(asked), self.at_a_time):
            names = list(asked)[start : start + self.at_a_time]
            arrivals.update(self._answers({name: asked[name] for name in names}))
        return arrivals

    def _answers(self, asked: Mapping[str, Request]) -> dict[str, Arrival]:
        parties = scheduler(
            [partial(self._answer, name, one.tasks, one.data) for name, one in asked.items()]
        )
        return {
            name: Arrival(found.outcome, found.bytes_up, seconds)
            for name, found, seconds in zip(asked, parties.results(), parties.seconds, strict=True)
        }

    @abstractmethod
    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        """One party's answer; its seconds are measured outside."""

    def _run(self, party: Party, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if self.wire:
            return decode_reply(
                party.name, reply_of(party, open_request(decode(request)), encode)[1], 0.0
            )
        return Arrival(*reply_of(party, tasks, size), 0.0)


@dataclass
class LocalNetwork(InProcessNetwork):
    """The default network: every party is an object here, and all of them stay in memory.

    Args:
        members: the parties.
        public: the public data, which each of them will hold.
        wire: pass every message through bytes and back, as a real network does; results are the same
            bit for bit, which the tests hold.
    """

    members: Iterable[Party]
    public: Public

    def __post_init__(self) -> None:
        super().__post_init__()
        self._members = by_name(self.members, self.public)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(self._members)

    @contextmanager
    def admitting(self, parties: Sequence[Party]) -> Iterator[None]:
        """Take in further parties, unless the block fails: then all is as it was.

        Args:
            parties: the parties.

        Raises:
            InvalidInput: there is one of that name.
        """
        before = self._members
        had = {name: member.public for name, member in before.items()}
        self._members = by_name([*before.values(), *parties], self.public)

        def hand_back() -> None:
            """Give those who were there the public rows as they had read them, each by its own table."""
            for name, public in had.items():
                before[name].hold_public(public)

        hand_back()
        try:
            yield
        except BaseException:
            for name in self._members.keys() - before.keys():
                self._members[name].leave()
            self._members = before
            hand_back()
            raise

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands."""
        members = self._members.items()
        return {
            name: member.trainer.model()
            for name, member in members
            if member.agreement is not None and member.trainer.learner.fitted
        }

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        return self._run(self._members[name], tasks, request)


def by_name(members: Iterable[Party], public: Public) -> dict[str, Party]:
    """Sort parties by name, so that results do not depend on their order, and hand them the public data.

    Args:
        members: the parties.
        public: the public data.

    Raises:
        InvalidInput: no parties, two of one name, or something else.
    """
    if isinstance(members, Party):
        raise InvalidInput(
            "this is one party", where="federation", mend="Give a list: [Party(…), Party(…)]."
        )
    members = list(members)
    for member in members:
        if not isinstance(member, Party):
            raise InvalidInput(
                f"{member!r} is no party",
                where="federation",
                mend="Give a list: [Party(…), Party(…)].",
            )
    check_distinct(member.name for member in members)
    for member in members:
        member.hold_public(public)
    return {member.name: member for member in sorted(members, key=lambda member: member.name)}
