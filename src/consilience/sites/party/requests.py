"""Requests to a party at its own machine: decoded, checked, run, and answered with messages or a failure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.replies import Failure
from consilience.core.messages.wire import decode
from consilience.core.tasks.base import Task
from consilience.core.tasks.fields import undefined, within
from consilience.core.tasks.requests import StagedTasks, open_request

_ALONE = ("describe", "public", "join", "restore")
"""Places in the life cycle of tasks that come alone in their request."""


class TasksFailed(Exception):
    """The tasks failed at the party; the new state must not be written."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)


def read_request(request: bytes, allow: Collection[str]) -> tuple[Task, ...]:
    """Decode a request and check that its tasks may be combined.

    Args:
        request: the bytes.
        allow: groups and names of tasks that may be imported.

    Returns:
        The tasks, in order.

    Raises:
        KnowledgeRefused: it is not a message, contains other objects than tasks, or combines tasks that
            cannot be combined.
    """
    tasks = open_request(decode(request, allow=allow))
    if not tasks or not all(isinstance(task, Task) for task in tasks):
        raise KnowledgeRefused("the request holds no tasks, or something else beside them")
    held = tuple(within(tasks))
    if len({task.round for task in held}) > 1 or tasks[0].round < 0:
        raise KnowledgeRefused("the tasks are not of one round")
    if len({type(task) for task in held}) < len(held):
        raise KnowledgeRefused("it asks for the same more than once")
    if any(task.lifecycle in _ALONE for task in held) and (
        len(tasks) > 1 or tasks[0].lifecycle not in _ALONE or isinstance(tasks, StagedTasks)
    ):  # limits look at the arrays of these before they run
        raise KnowledgeRefused(
            "describing, taking public rows, joining and restoring are asked for alone"
        )
    for task in tasks:
        if (field := undefined(task)) is not None:
            raise KnowledgeRefused(f"{field} holds NaN or infinite numbers")
    return tasks


def check_round(tasks: Sequence[Task], current: int) -> None:
    """Raise ``KnowledgeRefused`` if the tasks belong to an earlier round than ``current``, the latest one.

    The error has the code ``not-joined``: after a reset to an earlier round, the coordinator then has the
    party join again.
    """
    round = tasks[0].round
    if tasks[0].lifecycle == "restore":
        return  # a run that was broken off goes on from an earlier one
    # Parties may train for round 1 before round 0 is complete, and are measured after that.
    late = all(task.lifecycle in ("measure", "checkpoint") for task in tasks)
    if round < current - late and not all(task.static for task in tasks):
        what = f"the request is of round {round}, and it is in round {current}"
        raise KnowledgeRefused(what, code="not-joined")
