"""What every network does alike: ask, check what comes back, leave out what is not right, keep the books."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from consilience.errors import InvalidInput, KnowledgeRefused, QuorumLost, RunFailed
from consilience.learners import Model
from consilience.messages.replies import Agreement, Failure, Receipt, Replies
from consilience.messages.wire import decode, encode
from consilience.party.party import Party
from consilience.tasks.base import Task, answer

Outcome = tuple[Any, ...] | Failure

LONGEST_TEXT = 1_000
"""Characters kept of what a party says in words, such as why it failed."""


@dataclass(frozen=True)
class Delivery:
    """One party's part of one exchange, as the ledger keeps it.

    Attributes:
        party: who was asked.
        round: the round of the tasks.
        tasks: their names, joined by ``+``.
        status: ``"ok"``, or the kind of the :class:`~consilience.messages.replies.Failure`.
        left: what left the party: names and shapes.
        bytes_down: bytes of the tasks on the wire.
        bytes_up: bytes of the answer on the wire, 0 if there was none.
        seconds: from asking to answer.
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


@dataclass(frozen=True)
class Arrival:
    """What an exchange brought back from one party."""

    outcome: Outcome
    bytes_up: int
    seconds: float


@dataclass
class Network(ABC):
    """Where parties live. A subclass implements :meth:`exchange` alone.

    Args:
        timeout: seconds from asking to a party's answer; ``None`` for no limit. A later answer is dropped.
            In this process parties are asked one after another, each with its own clock; elsewhere all
            are asked at once.
        quorum: how many of the asked parties must answer: a number (int), or a share (float in (0, 1]).
    """

    timeout: float | None = field(default=None, kw_only=True)
    quorum: int | float = field(default=0.5, kw_only=True)
    agreement: Agreement | None = field(default=None, init=False)
    deliveries: list[Delivery] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        share = isinstance(self.quorum, float) and not 0 < self.quorum <= 1
        if isinstance(self.quorum, bool) or share or self.quorum <= 0:
            raise InvalidInput(
                f"quorum is {self.quorum}", mend="Give a number of parties, or a share in (0, 1]."
            )
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInput(f"timeout is {self.timeout} seconds", mend="It must be positive.")

    @property
    @abstractmethod
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""

    @abstractmethod
    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Have each party in ``to`` run the tasks; ``request`` is :func:`encode` of them.

        A party that cannot be reached or is late gets a :class:`Failure`; every name has an entry.
        """

    def exchange_each(self, tasks: Mapping[str, Task]) -> Mapping[str, Arrival]:
        """Have every party run a task of its own.

        By default one exchange after another, parties with the same task (the same object) in one.
        """
        alike: dict[int, list[str]] = {}
        for party, task in tasks.items():
            alike.setdefault(id(task), []).append(party)
        arrivals: dict[str, Arrival] = {}
        for group in alike.values():
            task = tasks[group[0]]
            arrivals.update(self.exchange((task,), tuple(group), encode([task])))
        return arrivals

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands, where the network can see into its parties.

        A party that could not be trained, or is gone, has none; where parties are on other machines,
        their models stay with them, and nobody has one here.
        """
        return {}

    def close(self) -> None:
        """Let go of processes and connections."""

    @property
    def agreed(self) -> Agreement:
        """What the parties agreed on when they joined."""
        if self.agreement is None:
            raise InvalidInput("the parties have not joined yet", where="network")
        return self.agreement

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have parties run tasks in one exchange; see :class:`consilience.tasks.base.Network`."""
        return self._enough(self._ask(tasks, to), tasks)

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Have every party run a task of its own; see :meth:`ask`."""
        self._known(tasks)
        ordered = {party: tasks[party] for party in sorted(tasks)}
        arrivals = self.exchange_each(ordered)
        asked = {party: ((task,), len(encode([task]))) for party, task in ordered.items()}
        return self._enough(self._told(asked, arrivals), tuple(tasks.values())[:1])

    def _enough(self, replies: Replies, tasks: tuple[Task, ...]) -> Replies:
        """The replies, if they are as many as the quorum asks for."""
        if len(replies) < self._needed(len(replies) + len(replies.missing)):
            raise QuorumLost(
                f"{len(replies)} of {len(replies) + len(replies.missing)} parties answered "
                f"{task_names(tasks)}, and the quorum is {self.quorum}",
                where=f"round {tasks[0].round}",
                mend=" ".join(
                    [
                        "Left out: "
                        + "; ".join(
                            f"{p} ({f.kind}: {f.reason})" for p, f in replies.missing.items()
                        )
                        + ".",
                        *dict.fromkeys(f.mend for f in replies.missing.values() if f.mend),
                    ]
                ),
            )
        return replies

    def gather(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Like :meth:`ask`, with whoever answers: for questions that the protocol does not hang on."""
        return self._ask(tasks, to)

    def require(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Like :meth:`ask`, where every party must answer.

        Raises:
            InvalidInput: a party's data or model cannot be used.
            RunFailed: a party failed for another reason.
        """
        replies = self._ask(tasks, to)
        for failure in sorted(
            replies.missing.values(), key=lambda failure: failure.kind != "invalid"
        ):
            kind = InvalidInput if failure.kind == "invalid" else RunFailed
            named = f"party {failure.party!r}"
            where = None if named in failure.reason else named
            raise kind(failure.reason, where=where, mend=failure.mend or None)
        return replies

    def _ask(self, tasks: tuple[Task, ...], to: Sequence[str] | None) -> Replies:
        asked = self.parties if to is None else tuple(sorted(set(to)))
        self._known(asked)
        request = encode(tasks)
        arrivals = self.exchange(tasks, asked, request)
        return self._told(dict.fromkeys(asked, (tasks, len(request))), arrivals)

    def _known(self, asked: Iterable[str]) -> None:
        if strangers := set(asked).difference(self.parties):
            raise InvalidInput(f"no party is called {min(strangers)!r}", where="network")

    def _told(
        self, asked: Mapping[str, tuple[tuple[Task, ...], int]], arrivals: Mapping[str, Arrival]
    ) -> Replies:
        """What arrived, if it is right, and the books, given the tasks and the bytes of each request."""
        answers: dict[str, tuple[Any, ...]] = {}
        missing: dict[str, Failure] = {}
        names = {id(tasks): task_names(tasks) for tasks, _ in asked.values()}
        for party, (tasks, down) in asked.items():
            arrival = arrivals[party]
            outcome = self._checked(party, tasks, arrival)
            notes: tuple[str, ...] = ()
            if isinstance(outcome, Failure):
                outcome = replace(outcome, reason=_brief(outcome.reason), mend=_brief(outcome.mend))
                missing[party] = outcome
            else:
                answers[party] = outcome
                notes = tuple(note for reply in outcome for note in getattr(reply, "notes", ()))
            self.deliveries.append(
                Delivery(
                    party=party,
                    round=tasks[0].round,
                    tasks=names[id(tasks)],
                    status=outcome.kind if isinstance(outcome, Failure) else "ok",
                    left=_left(arrival.outcome, len(tasks)) if arrival.bytes_up else "",
                    bytes_down=down,
                    bytes_up=arrival.bytes_up,
                    seconds=arrival.seconds,
                    detail=_brief(
                        outcome.reason if isinstance(outcome, Failure) else "; ".join(notes)
                    ),
                )
            )
        return Replies(answers, missing)

    def _checked(self, party: str, tasks: tuple[Task, ...], arrival: Arrival) -> Outcome:
        outcome = arrival.outcome
        if isinstance(outcome, Failure):
            if outcome.party == party:
                return outcome
            return Failure(party=party, reason=f"speaks for {outcome.party!r}", kind="refused")
        if self.timeout is not None and arrival.seconds > self.timeout:
            reason = f"answered after {arrival.seconds:.1f} s, the limit is {self.timeout:g} s"
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
                reply.validate(party=party, task=task, agreement=self.agreement)
        except KnowledgeRefused as refusal:
            return Failure(party=party, reason=refusal.what, kind="refused")
        except Exception as error:  # a stranger's answer may be what no check has thought of
            reason = f"its answer cannot be checked ({type(error).__name__}: {error})"
            return Failure(party=party, reason=reason, kind="refused")
        return outcome

    def _needed(self, asked: int) -> int:
        if isinstance(self.quorum, float):
            return max(1, math.ceil(self.quorum * asked))
        return min(self.quorum, asked)


T = TypeVar("T")


def reply_of(
    party: Party, tasks: Sequence[Task], write: Callable[[Sequence[object]], T]
) -> tuple[Outcome, T]:
    """What the party answers, and what ``write`` makes of it: its bytes (``encode``) or their number.

    An answer that cannot be written is a failure of the party.
    """
    outcome = answer(party, tasks)
    try:
        return outcome, write([outcome] if isinstance(outcome, Failure) else outcome)
    except TypeError as error:
        failure = Failure(party=party.name, reason=f"its answer cannot be sent: {error}")
        return failure, write([failure])


def arrival_of(party: str, reply: bytes, seconds: float) -> Arrival:
    """What a party's bytes bring, garbage included."""
    try:
        outcome = decode(reply)
    except KnowledgeRefused as refusal:
        failure = Failure(party=party, reason=refusal.what, kind="refused")
        return Arrival(failure, len(reply), seconds)
    if len(outcome) == 1 and isinstance(outcome[0], Failure):
        failure = replace(outcome[0], party=party)  # it cannot blame another
        return Arrival(failure, len(reply), seconds)
    return Arrival(outcome, len(reply), seconds)


def timed_out(party: str, timeout: float) -> Failure:
    """The failure of a party that did not answer within ``timeout`` seconds."""
    return Failure(party=party, reason=f"no answer within {timeout:g} s", kind="late")


def task_names(tasks: Sequence[object]) -> str:
    """The tasks of a request as the ledger names them."""
    return "+".join(type(task).__name__ for task in tasks)


def _brief(text: str) -> str:
    """A party's words in one line, as a ledger may hold and a terminal may show them."""
    short = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + " …"
    if short.isprintable():
        return short
    return "".join(sign if sign.isprintable() else " " for sign in short)


def _left(outcome: Outcome, asked: int) -> str:
    """What a reader of the audit wants to know of an answer to so many tasks: kinds and shapes."""
    if isinstance(outcome, Failure):
        return "Failure(text)"  # what a model says when it fails may hold anything
    kinds = []
    for reply in outcome[:asked]:
        if isinstance(reply, Receipt):
            continue
        shape = getattr(getattr(reply, "values", None), "shape", ())
        kinds.append(type(reply).__name__ + ("×".join(map(str, shape)).join("()") if shape else ""))
    if len(outcome) > asked:
        kinds.append(f"{len(outcome) - asked:,} more")
    return ", ".join(kinds)


def check_names(names: Iterable[str]) -> None:
    """Raise ``InvalidInput`` where there are none, or two alike."""
    counted = Counter(names)
    if not counted:
        raise InvalidInput("there are no parties", where="federation")
    if twice := sorted(name for name, count in counted.items() if count > 1):
        raise InvalidInput(f"two parties are called {twice[0]!r}", where="federation")
