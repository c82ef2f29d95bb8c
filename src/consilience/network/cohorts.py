"""Parties in this process, of which those with networks of one architecture train as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from consilience.meeting import Meeting
from consilience.network.base import Arrival
from consilience.network.local import LocalNetwork
from consilience.tasks import Task
from consilience.wire import encode


@dataclass
class CohortNetwork(LocalNetwork):
    """As :class:`~consilience.network.local.LocalNetwork`, with alike torch networks trained side by side.

    Small ones are trained several times faster so (which can be: :mod:`consilience.learners.torch_cohort`);
    other models are not touched. What comes out agrees with parties trained one by one but for rounding, and
    what training makes of that.

    A party's time in the books is its own and its share of what was done together.

    Args:
        members: the parties.
        public: the public data, which each of them will hold.
        wire: pass every message through bytes and back, as a real network does.
    """

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Every party up to where it would train, then all trainings, then on."""
        return self._meet({name: (tasks, request) for name in to})

    def exchange_each(self, tasks: Mapping[str, Task]) -> Mapping[str, Arrival]:
        """The same, with a task of its own for each."""
        return self._meet({name: ((task,), encode([task])) for name, task in tasks.items()})

    def _meet(self, asked: Mapping[str, tuple[tuple[Task, ...], bytes]]) -> Mapping[str, Arrival]:
        meeting = Meeting([partial(self._part, name, *given) for name, given in asked.items()])
        arrivals = meeting.results()
        return {
            name: replace(arrival, seconds=seconds)
            for name, arrival, seconds in zip(asked, arrivals, meeting.seconds, strict=True)
        }
