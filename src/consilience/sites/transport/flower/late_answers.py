"""Predictions that arrive after the end of their exchange: stored for the next request for predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from consilience.core.messages.replies import Failure, Predictions, Replies
from consilience.core.messages.schema import Agreement
from consilience.core.networks.incoming import Arrival, Delivery, Request, validated
from consilience.core.tasks.base import Task
from consilience.core.tasks.requests import StagedTasks


class LateAnswers:
    """Last predictions of each party that arrived late."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, tuple[Any, ...]]] = {}
        """Party to the round that was asked about, and to its replies."""
        self._heard: dict[str, int] = {}
        """Party to the last round of which it has predicted, in time or late."""

    def keep(
        self, late: Delivery, tasks: tuple[Task, ...], arrival: Arrival, agreed: Agreement | None
    ) -> bool:
        """Store an answer if it contains valid predictions.

        Args:
            late: the ledger's entry for it.
            tasks: tasks of the request.
            arrival: the answer as received.
            agreed: the agreement of the parties.

        Returns:
            True if it was stored.
        """
        if not _predicted(tasks):
            return False
        if late.round <= self._heard.get(late.party, -1):
            return False
        said = validated(late.party, tasks, arrival, agreement=agreed, timeout=None)
        if isinstance(said, Failure):
            return False
        self._said[late.party] = late.round, said
        self._heard[late.party] = late.round
        return True

    def forget(self, party: str) -> None:
        """Delete the answers of a removed party, because another party may later use its name."""
        self._said.pop(party, None)
        self._heard.pop(party, None)

    def added_to(self, replies: Replies, requests: Mapping[str, Request]) -> Replies:
        """Add the late answers of missing parties to replies, if predictions were requested.

        Args:
            replies: the replies of an exchange.
            requests: party to its request, the same for all.

        Returns:
            The replies, with ``late`` set if there are late answers.
        """
        request = next(iter(requests.values()))
        if not _predicted(request.tasks):
            return replies
        for name in replies.answers:
            self._said.pop(name, None)
            self._heard[name] = request.round
        late = {
            name: (request.round - round, said)
            for name, (round, said) in self._said.items()
            if name in replies.missing and round < request.round
        }
        return replace(replies, late=late) if late else replies


def number_of(share: float, parties: int) -> int:
    """Number of parties in a share of all, at least one.

    >>> number_of(0.28, 25), number_of(0.5, 3), number_of(1e-10, 5)
    (7, 2, 1)
    """
    return max(1, math.ceil(share * parties - 1e-9))


def late_delivery(party: str, request: Request) -> Delivery:
    """Describe a late answer of unknown size, for the ledger."""
    return Delivery(
        party=party,
        round=request.round if request.tasks else 0,
        tasks=request.names or "Describe",
        status="late",
        left="an answer that nobody waited for",
        bytes_down=len(request.data),
        bytes_up=0,
        seconds=0.0,
        detail="arrived after its time: dropped",
    )


def _predicted(tasks: Sequence[object]) -> bool:
    """Return true if the tasks request plain predictions."""
    return not isinstance(tasks, StagedTasks) and any(
        isinstance(task, Task) and task.reply_type is Predictions for task in tasks
    )
