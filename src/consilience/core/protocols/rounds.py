"""Rounds of a protocol, the state after each, and how far it comes before its first question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.core.aggregation import Teacher
from consilience.core.messages.message import message
from consilience.core.messages.replies import Replies
from consilience.core.tasks.base import Task, WrappedNetwork
from consilience.core.tasks.requests import Stage
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

SECURE = "secure_aggregation"
"""Option of a protocol for secure aggregation: the coordinator sees only sums of the parties' answers."""


@message
class RoundState:
    """State of the protocol after a round, from which it can resume; parties keep their state themselves.

    Attributes:
        round: number of the completed round.
        consensus: consensus of the parties in it, shape ``(n_public, n_outputs)``; ``None`` before the
            first exchange, and if a protocol has none.
        memory: memory of the consensus step.
        trust: memory of the rule, and of the excluded parties (:attr:`.Teacher.memory`).
    """

    round: int
    consensus: Array | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    trust: Mapping[str, Any] = field(default_factory=dict)


@prints_no_rows
@dataclass(frozen=True)
class Round:
    """One completed round.

    Attributes:
        number: 0 for the local models, before any exchange; then 1, 2, …
        state: state to resume from after this round.
        teacher: teacher of the round, if there is one.
        replies: replies from which the teacher was computed.
        notes: remarks for the ledger, in addition to those on the teacher.
    """

    number: int
    state: RoundState
    teacher: Teacher | None = None
    replies: Replies | None = None
    notes: tuple[str, ...] = ()


Rounds = Iterator[Round]


class FirstQuestion(Exception):
    """Raised in the place of a protocol's first question that takes work; its tasks are the arguments."""


class BeforeTheFirstQuestion(WrappedNetwork):
    """Network for checks before training: it passes on requirements, and raises on any other question."""

    def wrap(self, stage: Stage) -> BeforeTheFirstQuestion:
        """Return itself: questions by :meth:`require` pass no stage."""
        return self

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Raise :class:`FirstQuestion` with the tasks."""
        raise FirstQuestion(*tasks)

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Raise :class:`FirstQuestion` with the tasks."""
        raise FirstQuestion(*tasks.values())
