"""Replies of a party, stored with its state: a repeated request gets the stored reply."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.core.errors import RunFailed
from consilience.core.files import read_text
from consilience.core.messages.replies import Failure
from consilience.core.party.state import share_file
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import Outcome
from consilience.core.tasks.requests import StagedReplies
from consilience.sites.party.audit import contents
from consilience.sites.party.state import REPLIES


@dataclass(frozen=True)
class KeptReplies:
    """Replies in the folder of a state.

    For a reply changed by headers, a second file contains a description of the original reply.

    Attributes:
        state: the folder of the state.
    """

    state: Path

    @property
    def _folder(self) -> Path:
        return self.state / REPLIES

    def _file(self, round: int, request: bytes) -> Path:
        return self._folder / f"{round:08d}-{hashlib.sha256(request).hexdigest()}"

    def begin(self, before: KeptReplies | None, *, since: int) -> None:
        """Make the folder, with the replies of an earlier state to requests of some rounds.

        Args:
            before: of the earlier state; ``None`` where its replies no longer hold.
            since: the first of the rounds.
        """
        self._folder.mkdir()
        for file in () if before is None else before._folder.iterdir():
            if int(file.name.partition("-")[0]) >= since:
                share_file(file, self._folder / file.name)

    def keep(self, round: int, request: bytes, outcome: Outcome, reply: bytes) -> None:
        """Store a reply.

        Args:
            round: round of the request.
            request: its bytes.
            outcome: the reply.
            reply: its bytes.
        """
        file = self._file(round, request)
        file.write_bytes(reply)
        if isinstance(outcome, StagedReplies):
            held = json.dumps(reply_contents(outcome), separators=(",", ":"))
            file.with_name(f"{file.name}.json").write_text(held, encoding="utf-8")

    def find(self, round: int, request: bytes) -> bytes | None:
        """Give the bytes of the reply to a request of a round; ``None`` where there is none."""
        file = self._file(round, request)
        return file.read_bytes() if file.is_file() else None

    def contents(self, round: int, request: bytes) -> list[dict[str, Any]] | None:
        """Describe a kept reply that headers changed, as :func:`reply_contents` did; else ``None``."""
        file = self._file(round, request)
        kept = file.with_name(f"{file.name}.json")
        if not kept.is_file():
            return None
        try:
            return list(json.loads(read_text(kept)))
        except (ValueError, TypeError) as error:
            raise RunFailed("the file is damaged", where=str(kept)) from error


def reply_contents(outcome: Outcome) -> list[dict[str, Any]]:
    """List names, types and shapes of what an outcome holds, as it was before the headers changed it."""
    if isinstance(outcome, Failure):
        return contents([outcome])
    return contents(outcome.whole if isinstance(outcome, StagedReplies) else outcome)


def left_by(
    state: Path | None,
    tasks: Sequence[Task],
    request: bytes,
    outcome: Outcome,
    status: str,
) -> list[dict[str, Any]]:
    """List names, types and shapes of the contents of an answer; for a repeated answer, as stored earlier.

    Args:
        state: the folder of the state; ``None`` before there is one.
        tasks: tasks of the request.
        request: its bytes.
        outcome: the reply.
        status: status of the answer in the log.

    Returns:
        One dictionary for each field.
    """
    if status == "repeated" and state is not None:
        # Of an answer that is given again the bytes are known; what was changed is kept beside them.
        kept = KeptReplies(state).contents(tasks[0].round, request)
        if kept is not None:
            return kept
    return reply_contents(outcome)
