"""The single exit of a party: run the tasks of a request, and process the replies before they are sent.

:func:`answer` is the only caller of :meth:`~consilience.core.tasks.base.Task.run`, on every network and at a
party's own machine. Every reply passes, in this order:

1. the stages of the party's owner, in its :class:`~consilience.core.party.outbox.Outbox`, such as noise and
   its privacy cost, which no coordinator can lower;
2. the stages requested by the coordinator, in the headers of its request (:class:`.requests.Header`), such as
   compression.

The party sends the result of :func:`answer`. A party at its own machine first writes it into its log, and
stores its state (:mod:`consilience.sites.party.site`).

Every error at a party is sent as the :class:`~consilience.core.messages.replies.Failure` that
:func:`failure_of` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from consilience.core.errors import (
    ConsilienceError,
    InvalidInput,
    KnowledgeRefused,
    RunFailed,
    visible,
)
from consilience.core.messages.replies import Failure
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.foreign_errors import without_foreign_words
from consilience.core.tasks.requests import StagedReplies, StagedTasks

UNSAID = "what went wrong is said at the party alone, which has a budget of privacy"
"""Reason sent by a party with a discreet outbox."""

LONGEST_REASON = 200
"""Largest number of characters of an error's reason that a party sends, and of its advice."""


_KEPT = 10_000
"""Largest number of characters of an error in the party's log."""


Outcome = tuple[Any, ...] | Failure
"""A party's replies, one for each task, or a single failure instead."""

T = TypeVar("T")


def answer(party: PartyView, tasks: Sequence[Task]) -> Outcome:
    """Run the tasks of a request at a party.

    Args:
        party: the party.
        tasks: tasks, in the order in which they run.

    Returns:
        The message content to send: a reply for each task, their form under the request's headers
        (:class:`.StagedReplies`), or the failure of the first task with an error.
    """
    party.outbox.withhold("")
    try:
        if not isinstance(tasks, StagedTasks):
            return _replies(party, tasks)
        if party.agreement is None:
            raise KnowledgeRefused("no header is read before the party has joined")
        levels = tasks.opened(agreement := party.agreement)
        sent = whole = _replies(party, levels[0])
        for header, level in zip(tasks.headers, levels, strict=True):
            sent = header.seal(level, sent, party=party.name, agreement=agreement)
        return StagedReplies(sent, whole)
    except Exception as error:  # a model may raise anything; the round goes on without it
        return _failed(party, error)


def reply_of(
    party: PartyView, tasks: Sequence[Task], write: Callable[[Sequence[object]], T]
) -> tuple[Outcome, T]:
    """Have a party run tasks, and encode its answer; an answer that cannot be encoded becomes a failure.

    Args:
        party: the party.
        tasks: the tasks, in order.
        write: function from the answer's messages to its bytes (``encode``) or their number (``size``).

    Returns:
        The replies or the failure, and the result of ``write``.
    """
    outcome = answer(party, tasks)
    try:
        return outcome, write([outcome] if isinstance(outcome, Failure) else outcome)
    except TypeError as error:
        failed = RunFailed(f"its answer cannot be sent: {error}")
        failed.__cause__ = error
        failure = _failed(party, failed)
        return failure, write([failure])


def _failed(party: PartyView, error: Exception) -> Failure:
    """Make the failure to send; the party keeps the text omitted from it."""
    failure = failure_of(
        party.name, error, discreet=party.outbox.discreet, trusted=not party.rules.redact_errors
    )
    party.outbox.withhold(withheld(error, failure) or party.outbox.withheld)
    return failure


def _replies(party: PartyView, tasks: Sequence[Task]) -> tuple[Any, ...]:
    """Run tasks and process their replies; an insufficient budget refuses before the first runs."""
    party.outbox.before(party, tasks)
    agreed, replies = party.agreement, []
    for task in tasks:
        if task.remembered and party.agreement is not None:
            party.trainer.history.add(task)  # before it runs: joining and restoring set the history
        try:
            replies.append(party.outbox.outgoing(task, agreed, partial(task.run, party)))
            _check_type(task, replies[-1])
        except BaseException:
            if task.remembered and party.agreement is not None:
                # It may have changed the model in part, as it did at no other party.
                party.trainer.history.forget()
            raise
    return tuple(replies)


def _check_type(task: Task, reply: Any) -> None:
    """Refuse a reply of another type than the type stated by the task, by which limits judged it."""
    if type(reply) is not task.reply_type:
        what = f"{type(task).__name__} states {task.reply_type.__name__}"
        raise KnowledgeRefused(f"{what}, and replies with {type(reply).__name__}")


def failure_of(
    party: str, error: Exception, *, discreet: bool = False, trusted: bool = False
) -> Failure:
    """Make the failure that a party sends instead of replies; this function makes all of them.

    Errors of third-party code are reduced to their class and our own line that called the code, because their
    text may quote private rows (:func:`.without_foreign_words`). Reason and advice are each cut to
    :data:`LONGEST_REASON` characters. Characters that a file or terminal cannot encode, such as half of a
    surrogate pair, are replaced.

    Args:
        party: name of the party.
        error: the error.
        discreet: whether the party's outbox is discreet. Only errors that cannot depend on rows, by their
            class or code, then keep their text. The default is false.
        trusted: whether the receiver holds the party's rows anyway, as in a simulation; third-party text is
            then kept. The default is false.

    Returns:
        The failure.
    """
    spoken = isinstance(error, ConsilienceError) and (error.spoken or error.code)
    if discreet and not spoken:
        error = RunFailed(UNSAID)
    if not trusted:
        error = without_foreign_words(error)
    if not isinstance(error, ConsilienceError):
        return Failure(party=party, reason=_cut(_reason(error)))
    kind: Literal["failed", "invalid", "refused"] = "failed"
    if isinstance(error, InvalidInput | KnowledgeRefused):
        kind = "invalid" if isinstance(error, InvalidInput) else "refused"
    return Failure(
        party=party,
        reason=_cut(_reason(error)),
        mend=_cut(error.mend or ""),
        kind=kind,
        code=error.code,
    )


def withheld(error: Exception, failure: Failure) -> str:
    """Return the text of an error for its party's audit log, if the failure omits it.

    Args:
        error: the error.
        failure: the failure sent in its place.

    Returns:
        The text; empty if the failure contains the reason completely.
    """
    if _cut(_reason(error)) == failure.reason:
        return ""
    return visible(str(error) if isinstance(error, ConsilienceError) else _reason(error))[:_KEPT]


def _reason(error: Exception) -> str:
    """Describe an error in one sentence, including third-party text."""
    if not isinstance(error, ConsilienceError):
        return f"{type(error).__name__}: {error}"
    return f"{error.where}: {error.what}" if error.where else error.what


def _cut(text: str) -> str:
    """Cut a text to :data:`LONGEST_REASON` characters, and replace characters that cannot be encoded."""
    text = text.encode(errors="replace").decode().strip()
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " …"
