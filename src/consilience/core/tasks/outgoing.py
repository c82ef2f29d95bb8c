"""The one door out: run the tasks of a request at a party, and make what leaves of its replies.

:func:`answer` is the only caller of :meth:`~consilience.core.tasks.base.Task.run`, on every network and at a
party's own machine. Every reply passes, in this order:

1. what the party's owner set, in its :class:`~consilience.core.party.outbox.Outbox`, such as noise and the
   charge for it, which no coordinator can lower;
2. what the coordinator asked for, by the headers of its request (:class:`.requests.Header`), such as
   compression.

What :func:`answer` returns is what leaves. A party at its own machine then writes it into its log, and stores
its state, before it sends it (:mod:`consilience.sites.party.site`).

Whatever goes wrong at a party leaves it as the :class:`~consilience.core.messages.replies.Failure` that
:func:`failure_of` makes of it, whoever found it.
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
"""Reason that leaves a party whose outbox is discreet."""

LONGEST_REASON = 200
"""Characters of an error's reason that leave a party, and as many of its advice."""


_KEPT = 10_000
"""Characters of an error that a party keeps in its log."""


Outcome = tuple[Any, ...] | Failure
"""A party's replies, one for each task, or the one failure in their place."""

T = TypeVar("T")


def answer(party: PartyView, tasks: Sequence[Task]) -> Outcome:
    """Run the tasks of a request at a party.

    Args:
        party: the party.
        tasks: tasks, in the order in which they are run.

    Returns:
        All that leaves: a reply for each task, or these as the request's headers have them
        (:class:`.StagedReplies`), or the failure of the first that went wrong.
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
    """Have a party run tasks, and write its answer; one that cannot be written is a failure of the party.

    Args:
        party: the party.
        tasks: the tasks, in order.
        write: from the answer's messages to its bytes (``encode``) or their number (``size``).
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
    """The failure that leaves a party; the party keeps the words that do not."""
    failure = failure_of(
        party.name, error, discreet=party.outbox.discreet, trusted=not party.rules.redact_errors
    )
    party.outbox.withhold(withheld(error, failure) or party.outbox.withheld)
    return failure


def _replies(party: PartyView, tasks: Sequence[Task]) -> tuple[Any, ...]:
    """Run tasks, and make what may leave of their replies; a budget that lacks refuses before the first."""
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
    """Refuse a reply of another type than the one by which limits judged the task."""
    if type(reply) is not task.reply_type:
        what = f"{type(task).__name__} states {task.reply_type.__name__}"
        raise KnowledgeRefused(f"{what}, and replies with {type(reply).__name__}")


def failure_of(
    party: str, error: Exception, *, discreet: bool = False, trusted: bool = False
) -> Failure:
    """Make the failure that leaves a party in place of replies; every failure that leaves one is made here.

    Of foreign code its class leaves and our own line that called it, since what it says may quote private
    rows (:func:`.without_foreign_words`). Of our own words little leaves, of the reason and of the advice
    alike; and nothing that no file or terminal takes, such as half of a surrogate pair.

    Args:
        party: name of the party.
        error: what went wrong.
        discreet: whether the party's outbox is: only an error in which no row has part, by its class or its
            code, then keeps its words.
        trusted: whether who asks holds the party's rows anyway, as in a simulation: then foreign words leave.
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
    """The words of an error for its party's audit log, where they did not leave; empty where they did.

    Args:
        error: what went wrong.
        failure: that left in its place.
    """
    if _cut(_reason(error)) == failure.reason:
        return ""
    return visible(str(error) if isinstance(error, ConsilienceError) else _reason(error))[:_KEPT]


def _reason(error: Exception) -> str:
    """One sentence on what went wrong, foreign words among it."""
    if not isinstance(error, ConsilienceError):
        return f"{type(error).__name__}: {error}"
    return f"{error.where}: {error.what}" if error.where else error.what


def _cut(text: str) -> str:
    """Return as much of a text as may leave."""
    text = text.encode(errors="replace").decode().strip()
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " …"
