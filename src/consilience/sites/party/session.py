"""Session of a party with a federation: the plain part of its state, by which limits count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from consilience.core.errors import RunFailed
from consilience.core.files import write_whole
from consilience.core.messages.replies import Metrics
from consilience.core.party.state import read_about
from consilience.core.tasks.base import Task
from consilience.core.tasks.fields import within
from consilience.sites.party.audit import BEGINNING
from consilience.sites.party.limits import Limits
from consilience.sites.party.state import SESSION, current_state

_FAILED_JOINS = "failed-joins"


@dataclass(frozen=True)
class Session:
    """Position of a party in a federation, and counts for its limits.

    Attributes:
        federation: name of the joined federation as given by the transport, or a digest of the agreement.
        round: latest round with a request; -1 if the party has just joined.
        rounds: number of rounds over the party's lifetime.
        requests: number of answered requests in the latest round.
        metrics: number of evaluations since the party joined.
        measured: number of evaluations over the party's lifetime.
        audit: SHA-256 of the last line of the audit log when this session was written.
        recorded: last round that the coordinator has recorded, according to its requests. The party's state
            after this round is a checkpoint. -1 if there is none.
        joins: number of joins and returns to an earlier round since the latest round began.
    """

    federation: str
    round: int = -1
    rounds: int = 0
    requests: int = 0
    metrics: int = 0
    measured: int = 0
    audit: str = BEGINNING
    recorded: int = -1
    joins: int = 0

    def joined(self, federation: str, limits: Limits, *, audit: str) -> Session:
        """The session after joining a federation, if the limits allow another request.

        Args:
            federation: its name.
            limits: the party's limits.
            audit: the head of the audit log.

        Raises:
            KnowledgeRefused: a limit is reached.
        """
        further = self.begun_again(limits)
        return replace(
            further, federation=federation, round=-1, metrics=0, audit=audit, recorded=-1
        )

    def begun_again(self, limits: Limits) -> Session:
        """The session with one more joining or restoring; raises ``KnowledgeRefused`` if it is too many."""
        limits.refuse_joins(self.joins + 1)
        return replace(self, joins=self.joins + 1)

    def after(self, tasks: Sequence[Task], limits: Limits, *, audit: str, recorded: int) -> Session:
        """The session after a request, if the limits allow another one.

        Args:
            tasks: the tasks of the request.
            limits: the party's limits.
            audit: the head of the audit log.
            recorded: the last round that the coordinator has recorded, by the request.

        Raises:
            KnowledgeRefused: a limit is reached.
        """
        session = replace(self, audit=audit, recorded=max(self.recorded, recorded))
        first = tasks[0]
        if first.lifecycle == "restore":
            return replace(session.begun_again(limits), round=first.round)
        if first.round > session.round:
            further = session.rounds + 1
            session = replace(session, round=first.round, rounds=further, requests=0, joins=0)
        session = replace(session, requests=session.requests + 1)
        limits.refuse_more(rounds=session.rounds, requests=session.requests)
        times = sum(task.reply_type is Metrics for task in within(tasks))
        session = replace(
            session, metrics=session.metrics + times, measured=session.measured + times
        )
        if times:
            limits.refuse_metrics(session.metrics, session.measured)
        return session

    def write(self, folder: Path) -> None:
        """Write it into the folder of a state."""
        (folder / SESSION).write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_session(home: Path) -> Session | None:
    """Read the session of the party whose state lives in ``home``; ``None`` before it has joined.

    Args:
        home: the folder.

    Raises:
        RunFailed: the state is gone or damaged, or has another format.
    """
    while (folder := current_state(home)) is not None:
        try:
            read_about(folder, whole=home)
            written = json.loads((folder / SESSION).read_text(encoding="utf-8"))
            return Session(**{field.name: written[field.name] for field in fields(Session)})
        except (OSError, ValueError, TypeError, KeyError, RunFailed) as error:
            if current_state(home) != folder:  # it was replaced while it was read
                continue
            if isinstance(error, RunFailed):
                raise
            raise RunFailed(f"its state is damaged: {error}", where=str(folder)) from error
    return None


def failed_joins(home: Path) -> int:
    """Read the number of failed joins of a party before its first successful one.

    Raises:
        RunFailed: the record is damaged.
    """
    path = home / _FAILED_JOINS
    try:
        return int(path.read_text(encoding="utf-8")) if path.exists() else 0
    except (OSError, ValueError) as error:
        raise RunFailed(
            f"the number of failed joins is damaged: {error}", where=str(path)
        ) from error


def write_failed_joins(home: Path, joins: int) -> None:
    """Write how often it has failed to join, whole or not at all."""
    write_whole(home / _FAILED_JOINS, str(joins), sync=True)


def last_line(home: Path) -> str | None:
    """Return the digest of the audit-log line recorded in the state; ``None`` if the state cannot be read.

    A damaged state is reported later, in the answer to a request.
    """
    with suppress(RunFailed):
        session = read_session(home)
        return session.audit if session is not None else None
    return None
