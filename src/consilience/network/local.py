"""Parties in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

from consilience.errors import InvalidInput
from consilience.knowledge import Public
from consilience.learners import Model
from consilience.network.base import Arrival, Network, arrival_of, reply_of
from consilience.party import Party
from consilience.tasks import Task
from consilience.wire import decode, encode, size


@dataclass
class LocalNetwork(Network):
    """The default network: every party is an object here.

    Args:
        members: the parties.
        public: the public data, which each of them will hold.
        wire: pass every message through bytes and back, as a real network does; results are the same
            bit for bit, which the tests hold.
    """

    members: Iterable[Party]
    public: Public
    wire: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._members = by_name(self.members, self.public)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(self._members)

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Ask one party after another; a late answer is known to be late only when it is there."""
        arrivals = {}
        for name in to:
            start = perf_counter()
            part = self._part(name, tasks, request)
            arrivals[name] = replace(part, seconds=perf_counter() - start)
        return arrivals

    def _part(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        """What the party answers, in no time."""
        if self.wire:
            return arrival_of(name, reply_of(self._members[name], decode(request), encode)[1], 0.0)
        return Arrival(*reply_of(self._members[name], tasks, size), 0.0)

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands."""
        members = self._members.items()
        return {name: member.model() for name, member in members if member.learner.fitted}


def by_name(members: Iterable[Party], public: Public) -> dict[str, Party]:
    """The parties sorted by name, the public data in their hands.

    Sorted, because results may not depend on the order they were given in.

    Raises:
        InvalidInput: no parties, or two of one name.
    """
    members = list(members)
    if not members:
        raise InvalidInput("there are no parties", where="federation")
    names = [member.name for member in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"two parties are called {twice[0]!r}", where="federation")
    for member in members:
        member.public = public
    return {member.name: member for member in sorted(members, key=lambda member: member.name)}
