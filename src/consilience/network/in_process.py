"""Parties in this process: one after another, those whose models train as one side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from consilience.meeting import Meeting
from consilience.network.base import Arrival, Network, arrival_of, reply_of
from consilience.party import Party
from consilience.tasks import Task
from consilience.wire import decode, encode, size

Asked = tuple[tuple[Task, ...], bytes]
"""Tasks for a party, and the bytes that they would be."""

AT_A_TIME = 128
"""Parties that are in the midst of something at once; what they hold meanwhile is in memory."""


@dataclass
class InProcessNetwork(Network):
    """What networks of parties in this process share.

    Alike torch networks train side by side, small ones many times faster so
    (:mod:`consilience.learners.torch_cohort`); on a CPU what comes out is the same bit for bit. A party's
    time in the books is its own and its share of what was done together.

    Args:
        wire: pass every message through bytes and back, as a real network does; results are the same
            bit for bit, which the tests hold.
    """

    wire: bool = field(default=False, kw_only=True)

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

    def _meet(self, asked: Mapping[str, Asked]) -> Mapping[str, Arrival]:
        """Some at a time, each up to where it would train, then all trainings, then on."""
        arrivals: dict[str, Arrival] = {}
        for start in range(0, len(asked), AT_A_TIME):
            names = list(asked)[start : start + AT_A_TIME]
            arrivals.update(self._answers({name: asked[name] for name in names}))
        return arrivals

    def _answers(self, asked: Mapping[str, Asked]) -> dict[str, Arrival]:
        meeting = Meeting([partial(self._answer, name, *what) for name, what in asked.items()])
        return {
            name: Arrival(found.outcome, found.bytes_up, seconds)
            for name, found, seconds in zip(asked, meeting.results(), meeting.seconds, strict=True)
        }

    @abstractmethod
    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        """What a party answers, in no time."""

    def _said(self, party: Party, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if self.wire:
            return arrival_of(party.name, reply_of(party, decode(request), encode)[1], 0.0)
        return Arrival(*reply_of(party, tasks, size), 0.0)
