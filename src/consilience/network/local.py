"""Parties that are objects of this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consilience.knowledge import Public
from consilience.learners import Model
from consilience.network.base import Arrival, check_names
from consilience.network.in_process import InProcessNetwork
from consilience.party import Party
from consilience.tasks import Task


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

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands."""
        members = self._members.items()
        return {name: member.model() for name, member in members if member.learner.fitted}

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        return self._said(self._members[name], tasks, request)


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
