"""Parties in this process: one after another, those whose models train as one side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TypeVar

from consilience.knowledge import Failure, Public, Receipt
from consilience.learners import Model
from consilience.meeting import Meeting
from consilience.network.base import Arrival, Network, arrival_of, reply_of
from consilience.network.population import Population, Residents, check_names
from consilience.party import Party
from consilience.tasks import Join, Task, answer
from consilience.wire import decode, encode, size

T = TypeVar("T")

AT_A_TIME = 128
"""Parties that are in the midst of something at once; what they hold meanwhile is in memory."""


@dataclass
class LocalNetwork(Network):
    """The default network: every party is an object here.

    Alike torch networks train side by side, small ones many times faster so
    (:mod:`consilience.learners.torch_cohort`); on a CPU what comes out is the same bit for bit. A party's
    time in the books is its own and its share of what was done together.

    Args:
        members: the parties, or a :class:`~consilience.network.Population` of them.
        public: the public data, which each of them will hold.
        wire: pass every message through bytes and back, as a real network does; results are the same
            bit for bit, which the tests hold.
    """

    members: Iterable[Party]
    public: Public
    wire: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._residents: Residents | None = None
        self._members: Mapping[str, Party] = {}
        if isinstance(self.members, Population):
            self._residents = Residents(self.members, self.public)
        else:
            self._members = by_name(self.members, self.public)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(self._members) if self._residents is None else self._residents.names

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Ask every party; a late answer is known to be late only when it is there."""
        return self._meet({name: (tasks, request) for name in to})

    def exchange_each(self, tasks: Mapping[str, Task]) -> Mapping[str, Arrival]:
        """The same, with a task of its own for each."""
        requests = {
            id(task): encode([task]) for task in {id(t): t for t in tasks.values()}.values()
        }
        return self._meet({name: ((task,), requests[id(task)]) for name, task in tasks.items()})

    def _meet(self, asked: Mapping[str, tuple[tuple[Task, ...], bytes]]) -> Mapping[str, Arrival]:
        """Some at a time, each up to where it would train, then all trainings, then on."""
        arrivals: dict[str, Arrival] = {}
        for start in range(0, len(asked), AT_A_TIME):
            names = list(asked)[start : start + AT_A_TIME]
            unfit = self._caught_up([name for name in names if not _can_wait(asked[name][0])])
            arrivals.update(unfit)
            names = [name for name in names if name not in unfit]
            meeting = Meeting([partial(self._part, name, *asked[name]) for name in names])
            for name, found, seconds in zip(names, meeting.results(), meeting.seconds, strict=True):
                arrivals[name] = Arrival(found.outcome, found.bytes_up, seconds)
        return arrivals

    def _caught_up(self, names: Sequence[str]) -> dict[str, Arrival]:
        """Have those of a population do what they put off, on nobody's clock: why some cannot be asked."""
        if self._residents is None:
            return {}
        behind = [name for name in names if self._residents.owed(name)]
        found = Meeting([partial(self._with, name, self._catch_up) for name in behind]).results()
        return {name: unfit for name, unfit in zip(behind, found, strict=True) if unfit is not None}

    def _part(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        """What the party answers, in no time."""
        if self._residents is None:
            return self._said(self._members[name], tasks, request)
        if _can_wait(tasks):
            if any(isinstance(task, Join) for task in tasks):  # which begins anew
                self._residents.owed(name).clear()
            self._residents.put_off(name, request)
            receipts = tuple(Receipt(party=name, round=task.round) for task in tasks)
            return Arrival(receipts, size(receipts), 0.0)
        return self._with(name, partial(self._said, tasks=tasks, request=request))

    def _with(self, name: str, do: Callable[[Party], T]) -> T | Arrival:
        """What comes of doing something with a party of a population, or why it cannot be had."""
        assert self._residents is not None
        try:
            party = self._residents.take(name)
        except Exception as error:  # what makes it is the user's own, and may raise anything
            reason = f"it cannot be had ({type(error).__name__}: {error})"
            failure = Failure(party=name, reason=reason)
            return Arrival(failure, size([failure]), 0.0)
        try:
            done = do(party)
        except BaseException:
            self._residents.leave(name)
            raise
        if done is not None:  # who has caught up is asked next
            self._residents.leave(name)
        return done

    def _said(self, party: Party, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if self.wire:
            return arrival_of(party.name, reply_of(party, decode(request), encode)[1], 0.0)
        return Arrival(*reply_of(party, tasks, size), 0.0)

    def _catch_up(self, party: Party) -> Arrival | None:
        """Have a party do what it has put off; why it cannot be asked anything, if it cannot.

        What it fails at comes into the books, and it goes on with the next, as if it had been asked at the
        time; only who cannot join has nothing to go on with.
        """
        assert self._residents is not None
        owed = self._residents.owed(party.name)
        while owed:
            tasks, start = decode(owed[0]), perf_counter()
            outcome = answer(party, tasks)
            if isinstance(outcome, Failure):
                arrival = Arrival(outcome, size([outcome]), perf_counter() - start)
                if any(isinstance(task, Join) for task in tasks):
                    party.agreement = None
                    return arrival
                self._told({party.name: (tasks, 0)}, {party.name: arrival})
            del owed[0]
        return None

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands.

        Those of a population are looked up when they are asked for, until the network is closed; a party that
        has never been asked is then trained as far as the others were told to be.
        """
        if self._residents is not None:
            return _Models(self, self._residents)
        members = self._members.items()
        return {name: member.model() for name, member in members if member.learner.fitted}

    def close(self) -> None:
        """Let go of a population."""
        if self._residents is not None:
            self._residents.close()


class _Models(Mapping[str, Model]):
    """The trained models of a population, each looked up when it is asked for."""

    def __init__(self, network: LocalNetwork, residents: Residents) -> None:
        self._network, self._residents = network, residents

    def __getitem__(self, name: str) -> Model:
        if name not in self._network.parties:
            raise KeyError(name)
        party = self._residents.take(name)
        try:
            self._network._catch_up(party)
            if party.agreement is None or not party.learner.fitted:
                raise KeyError(name)
            return party.model()
        finally:
            self._residents.leave(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._network.parties if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _can_wait(tasks: Sequence[Task]) -> bool:
    """Whether a party of a population may do all of them when it is next asked something."""
    return all(getattr(task, "can_wait", False) for task in tasks)


def by_name(members: Iterable[Party], public: Public) -> dict[str, Party]:
    """The parties sorted by name, the public data in their hands.

    Sorted, because results may not depend on the order they were given in.

    Raises:
        InvalidInput: no parties, or two of one name.
    """
    members = list(members)
    check_names(member.name for member in members)
    for member in members:
        member.public = public
    return {member.name: member for member in sorted(members, key=lambda member: member.name)}
