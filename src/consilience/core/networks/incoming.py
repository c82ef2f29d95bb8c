"""Decode and validate the parties' replies, and describe each for the ledger.

Every network passes arrived data to :func:`receive`, and a protocol sees only the result. This is the only
place with these checks on a reply: the sender is the party, the type is the one that the task declares, the
round and the public rows match the request, and the class order, shape and range match the agreement. An
invalid reply becomes a :class:`~consilience.core.messages.replies.Failure`, and the party is excluded. An
aggregator still checks its input: the kind of outputs and the required scores.

A :class:`Delivery` describes each party's part of an exchange. The network keeps these until a run writes
them into its ledger.

A linear protocol uses :meth:`~consilience.core.messages.replies.Replies.sum` of the replies and reads no
single reply; a secure-aggregation network can supply these sums.

A valid reply can still be false. Robust aggregators, such as
:func:`~consilience.core.aggregation.trimmed_mean`, tolerate a number of malicious parties. A filter that
compares the replies of an exchange, and excludes parties for every protocol, belongs in :func:`receive`. It
must run after validation, so that all arrays have one shape, and before deliveries are described, so that
the ledger records the reason for each exclusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.replies import Failure, Receipt, Replies
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import decode
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import Outcome
from consilience.core.tasks.requests import StagedTasks

LONGEST_TEXT = 1_000
"""Characters kept of a party's free text, such as the reason of a failure."""


@dataclass(frozen=True, eq=False)
class Request:
    """Tasks for parties.

    Attributes:
        tasks: the tasks to run.
        data: the bytes of the tasks on the wire.
    """

    tasks: tuple[Task, ...]
    data: bytes

    @cached_property
    def round(self) -> int:
        """Round of the tasks."""
        return self.tasks[0].round

    @cached_property
    def names(self) -> str:
        """Names of the tasks, as the ledger has them."""
        return task_names(self.tasks)

    @cached_property
    def bookkeeping(self) -> bool:
        """True if all tasks belong to the experiment, and none to a method."""
        return all(task.bookkeeping for task in self.tasks)


class Arrival(NamedTuple):
    """One party's part of an exchange, decoded and not yet validated.

    Attributes:
        outcome: its replies, or why there are none.
        bytes_up: bytes of the answer on the wire, 0 if there was none.
        seconds: from asking to answer.
    """

    outcome: Outcome
    bytes_up: int
    seconds: float


class Delivery(NamedTuple):
    """One party's part of one exchange, as stored in the ledger.

    Attributes:
        party: name of the queried party.
        round: the round of the tasks.
        tasks: their names, joined by ``+``.
        status: ``"ok"``, or the kind of the :class:`~consilience.core.messages.replies.Failure`.
        left: the data that the party sent: names and shapes.
        bytes_down: bytes of the tasks on the wire.
        bytes_up: bytes of the answer on the wire, 0 if there was none.
        seconds: time from request to answer.
        detail: the reason of a failure, and notes.
    """

    party: str
    round: int
    tasks: str
    status: str
    left: str
    bytes_down: int
    bytes_up: int
    seconds: float
    detail: str


def decode_reply(party: str, reply: bytes, seconds: float) -> Arrival:
    """Decode the bytes of a party's answer; bytes that cannot be read are a failure of the party.

    Args:
        party: who sent them.
        reply: the bytes.
        seconds: from asking to answer.
    """
    try:
        replies = decode(reply)
    except KnowledgeRefused as refusal:
        failure = Failure(party=party, reason=refusal.what, kind="refused")
        return Arrival(failure, len(reply), seconds)
    if len(replies) == 1 and isinstance(replies[0], Failure):
        failure = replace(replies[0], party=party)  # it cannot blame another
        return Arrival(failure, len(reply), seconds)
    return Arrival(replies, len(reply), seconds)


def timed_out(party: str, timeout: float) -> Failure:
    """The failure of a party that did not answer within ``timeout`` seconds."""
    return Failure(party=party, reason=f"no answer within {timeout:g} s", kind="late")


def receive(
    requests: Mapping[str, Request],
    arrivals: Mapping[str, Arrival],
    *,
    agreement: Agreement | None,
    timeout: float | None,
) -> tuple[Replies, list[Delivery]]:
    """Validate arrived replies, and exclude the parties with invalid ones.

    Args:
        requests: party to its request, sorted by name.
        arrivals: party to its answer; every queried party has an entry.
        agreement: the parties' agreement; ``None`` before they join.
        timeout: seconds after which an answer no longer counts; ``None`` for no limit.

    Returns:
        The valid replies, and one ledger entry for each party.
    """
    answers: dict[str, tuple[Any, ...]] = {}
    missing: dict[str, Failure] = {}
    deliveries = []
    for party, request in requests.items():
        tasks, arrival = request.tasks, arrivals[party]
        read = arrival
        if isinstance(tasks, StagedTasks):
            read = _unstaged(party, tasks, arrival, agreement)
            tasks = tasks.whole
        outcome = validated(party, tasks, read, agreement=agreement, timeout=timeout)
        if isinstance(outcome, Failure):
            outcome = replace(outcome, reason=one_line(outcome.reason), mend=one_line(outcome.mend))
            missing[party] = outcome
        else:
            answers[party] = outcome
        # The ledger says what replies held before the stages changed them, unless they cannot be read.
        held = arrival if isinstance(read.outcome, Failure) else read
        deliveries.append(_delivery(party, request, held, outcome))
    return Replies(answers, missing), deliveries


def validated(
    party: str,
    tasks: Sequence[Task],
    arrival: Arrival,
    *,
    agreement: Agreement | None,
    timeout: float | None,
) -> Outcome:
    """Return the replies of one party if they match its tasks, otherwise a failure.

    Args:
        party: name of the queried party.
        tasks: the tasks in its request.
        arrival: the party's answer, with all stages decoded.
        agreement: the parties' agreement; ``None`` before they join.
        timeout: seconds after which an answer no longer counts; ``None`` for no limit.

    Returns:
        One reply for each task, or a :class:`~consilience.core.messages.replies.Failure`.
    """
    outcome = arrival.outcome
    if isinstance(outcome, Failure):
        if outcome.party == party:
            return outcome
        return Failure(party=party, reason=f"speaks for {outcome.party!r}", kind="refused")
    if timeout is not None and arrival.seconds > timeout:
        reason = f"answered after {arrival.seconds:.1f} s, the limit is {timeout:g} s"
        return Failure(party=party, reason=reason, kind="late")
    try:
        if len(outcome) != len(tasks):
            raise KnowledgeRefused(f"{len(outcome)} answers to {len(tasks)} tasks", where=party)
        for task, reply in zip(tasks, outcome, strict=True):
            if not isinstance(reply, task.reply_type):
                raise KnowledgeRefused(
                    f"answered {type(reply).__name__}, expected {task.reply_type.__name__}",
                    where=party,
                )
            reply.validate(party=party, task=task, agreement=agreement)
    except Exception as error:
        return _refused(party, error)
    return outcome


def _unstaged(
    party: str, tasks: StagedTasks, arrival: Arrival, agreement: Agreement | None
) -> Arrival:
    """Return what arrived as it was before the stages, or why it cannot be read."""
    if agreement is None or isinstance(arrival.outcome, Failure):
        return arrival
    try:
        outcome: Outcome = tasks.received(party, arrival.outcome, agreement)
    except Exception as error:
        outcome = _refused(party, error)
    return arrival._replace(outcome=outcome)


def _refused(party: str, error: Exception) -> Failure:
    """Return the failure that replaces a refused answer; a malicious answer can raise any exception."""
    if isinstance(error, KnowledgeRefused):
        return Failure(party=party, reason=error.what, kind="refused")
    reason = f"its answer cannot be checked ({type(error).__name__}: {error})"
    return Failure(party=party, reason=reason, kind="refused")


def task_names(tasks: Sequence[object]) -> str:
    """The tasks of a request as the ledger names them."""
    return "+".join(type(task).__name__ for task in tasks)


def one_line(text: str) -> str:
    """Return a party's free text as one line of printable characters, cut to the longest text of a ledger."""
    short = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + " …"
    if short.isprintable():
        return short
    return "".join(sign if sign.isprintable() else " " for sign in short)


def _delivery(party: str, request: Request, arrival: Arrival, outcome: Outcome) -> Delivery:
    """The ledger's entry for one party of an exchange."""
    status, detail = "ok", ""
    if isinstance(outcome, Failure):
        status, detail = outcome.kind, outcome.reason
    elif notes := [note for reply in outcome for note in getattr(reply, "notes", ())]:
        detail = one_line("; ".join(notes))
    return Delivery(
        party=party,
        round=request.round,
        tasks=request.names,
        status=status,
        left=_contents(arrival.outcome, len(request.tasks)) if arrival.bytes_up else "",
        bytes_down=len(request.data),
        bytes_up=arrival.bytes_up,
        seconds=arrival.seconds,
        detail=detail,
    )


def _contents(outcome: Outcome, asked: int) -> str:
    """Names and shapes of what an answer to so many tasks held, accepted or not."""
    if isinstance(outcome, Failure):
        return "Failure(text)"  # what a model says when it fails may hold anything
    kinds = []
    for reply in outcome[:asked]:
        if type(reply) is not Receipt:
            shape = getattr(getattr(reply, "values", None), "shape", ())
            kinds.append(_named(type(reply).__name__, shape))
    if len(outcome) > asked:
        kinds.append(f"{len(outcome) - asked:,} more")
    return ", ".join(kinds)


@lru_cache(maxsize=1000)
def _named(kind: str, shape: tuple[int, ...]) -> str:
    """Name of a reply's kind, with the shape of its values."""
    return kind + ("×".join(map(str, shape)).join("()") if shape else "")
