"""A party at its own machine: bytes in, bytes out, and nothing lost or done twice in between.

A request is the bytes of some tasks (:mod:`consilience.messages.wire`), whatever carries them. For each one

    1  it is decoded, and refused where it is no question for this party or goes beyond its limits
    2  if it was answered before, that answer is given again
    3  the party becomes what the last answer left it, and runs the tasks
    4  its state and the answer are put down together, whole or not at all
    5  a line of the audit log is written
    6  the answer leaves

Public rows that a coordinator sends are no part of the state: they are kept beside it, under their digest
(:mod:`consilience.site.public_rows`), with a record of all that were ever sent, and a request to take them
changes nothing else.

A crash before 4 is done leaves the party as it was, and the request can be repeated; a crash after it leaves
an answer to be given again. A request that is refused changes nothing; one that fails changes nothing either,
but that it counts: a coordinator cannot have a party work without end by asking for what must fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from consilience.errors import ConsilienceError, InvalidInput, KnowledgeRefused, RunFailed
from consilience.messages.replies import Agreement, Failure, Metrics, Public, Receipt
from consilience.messages.wire import decode, encode
from consilience.numerics.randomness import limited_threads
from consilience.party.party import Party
from consilience.party.row_scores import compared_sets, spent
from consilience.site.audit import BEGINNING, AuditLog, contents
from consilience.site.limits import Limits, undefined, within
from consilience.site.public_rows import (
    kept_public,
    name_of_set,
    read_public,
    sent_sets,
    sweep_public,
    write_public,
    write_sets,
)
from consilience.site.secret import own_secret
from consilience.site.state import StateFolder, current_state, keep
from consilience.tasks.base import (
    LONGEST_REASON,
    Checkpoint,
    Describe,
    Evaluate,
    Join,
    Restore,
    TakePublic,
    Task,
    answer,
)

Outcome = tuple[Any, ...] | Failure

AUDIT = "audit.jsonl"
"""The audit log's name in a party's folder."""

_AGREEMENT, _MEMORY = "agreement.safetensors", "memory.safetensors"

_SESSION = "session.json"

_DRAWN = "drawn.safetensors"
"""Scores with noise, which stay what they are, and what density ratios were said for, whatever is joined or
restored."""


@dataclass(frozen=True)
class Session:
    """Where a party is: the plain part of its state.

    Attributes:
        federation: whom it has joined, by the name the transport gave, or a digest of what was agreed on.
        round: the latest round that it was asked for; -1 where it has just joined.
        rounds: how many it has taken part in, in all its life.
        requests: how many it has answered in the latest of them.
        metrics: how often it has said how good its model is, since it joined.
        measured: the same in all its life.
        audit: the SHA-256 of the line of the audit log that this was written after.
    """

    federation: str
    round: int = -1
    rounds: int = 0
    requests: int = 0
    metrics: int = 0
    measured: int = 0
    audit: str = BEGINNING


class PartySite:
    """Answers a coordinator's requests for one party, whose state lives in a folder.

    One process at a time works on a folder; close the site, or use it in a ``with`` statement, to let another
    take over.

    Args:
        make: makes the party; called once, when the first request comes. Where its ``public`` is not set, it
            takes the public rows that the coordinator sends, under its limits.
        home: the folder of its state and its audit log.
        name: to report failures by while there is no party yet.
        limits: what it lets itself be asked.
        threads: numerical threads while it works.
        wait: seconds to wait for another process to let go of the folder.

    Raises:
        RunFailed: another process works on the folder, it cannot be written, or its audit log lacks lines.
    """

    def __init__(
        self,
        make: Callable[[], Party],
        home: Path,
        *,
        name: str = "?",
        limits: Limits | None = None,
        threads: int = 1,
        wait: float = 0.0,
    ) -> None:
        self.name, self.limits = name, Limits() if limits is None else limits
        self._make, self._threads = make, threads
        self._party: Party | None = None
        self._standing: Path | None = None
        """The state that the party in memory is in, where it is in one."""
        self._busy = Lock()
        self._state = StateFolder(home, wait=wait)
        try:
            sweep_public(home)
            self._audit = AuditLog(home / AUDIT, written_after=_written_after(home))
        except BaseException:
            self._state.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process take over."""
        self._state.close()

    # --- answering --------------------------------------------------------------------------------

    def answer(self, request: bytes, *, federation: str = "", to: str | None = None) -> bytes:
        """The bytes of the answers to the tasks in ``request``, or of one ``Failure``; it never raises.

        Args:
            request: what a coordinator asks (:func:`consilience.messages.wire.encode` of tasks).
            federation: its name, where the transport carries one; held against the one that was joined.
            to: whom the request is for, where the transport says so.
        """
        with self._busy:
            tasks: tuple[Task, ...] = ()
            try:
                tasks = self._tasks(request, to)
                with limited_threads(self._threads):
                    outcome, reply, status = self._answered(tasks, request, federation)
            except _Failed as failed:
                outcome, reply, status = _said(failed.failure)
            except ConsilienceError as error:
                outcome, reply, status = _said(failure_of(self.name, error))
            except (
                Exception
            ) as error:  # whatever `make` raises; the coordinator waits for an answer
                unexpected = RunFailed(f"{type(error).__name__}: {error}")
                outcome, reply, status = _said(failure_of(self.name, unexpected))
            try:
                self._log(tasks, request, outcome, reply, status, federation)
            except ConsilienceError as error:  # then nothing but this leaves
                return encode([failure_of(self.name, error)])
            return reply

    def party(self) -> Party | None:
        """The party as the last answer left it, its model trained; ``None`` before it has joined.

        It is this site's own, and changes with the next request: take ``party().model()`` to keep.
        """
        with self._busy:
            if self._session() is None:
                return None
            return self._taken_up()

    def _tasks(self, request: bytes, to: str | None) -> tuple[Task, ...]:
        """The tasks of a request, if they are any that this party can be asked."""
        tasks = decode(request)
        if to is not None and to != self._made().name:
            raise KnowledgeRefused(f"the request is for {to!r}, and this is {self._made().name!r}")
        if not tasks or not all(isinstance(task, Task) for task in tasks):
            raise KnowledgeRefused("the request holds no tasks, or something else beside them")
        held = tuple(within(tasks))
        if len({task.round for task in held}) > 1 or tasks[0].round < 0:
            raise KnowledgeRefused("the tasks are not of one round")
        if len({type(task) for task in held}) < len(held):
            raise KnowledgeRefused("it asks for the same more than once")
        alone = (Describe, TakePublic, Join, Restore)
        if any(isinstance(task, alone) for task in held) and (
            len(tasks) > 1 or not isinstance(tasks[0], alone)
        ):
            raise KnowledgeRefused(
                "describing, taking public rows, joining and restoring are asked for alone"
            )
        for task in tasks:
            if (field := undefined(task)) is not None:
                raise KnowledgeRefused(f"{field} holds NaN or infinite numbers")
        return tuple(tasks)

    def _answered(
        self, tasks: tuple[Task, ...], request: bytes, federation: str
    ) -> tuple[Outcome, bytes, str]:
        """The outcome, its bytes, and how the log calls it."""
        session, first = self._session(), tasks[0]
        asks = federation
        if session is not None and not isinstance(first, Join):
            asks = federation or session.federation
        self.limits.refuse(tasks, federation=asks)
        if isinstance(first, Describe):
            party = self._made()
            party.kept_public = kept_public(self._state.home)
            self.limits.bind(party, measured=session.measured if session else 0)
            return (*_run(party, (first,)), "ok")
        if isinstance(first, TakePublic):
            return self._taken(first, session)
        if isinstance(first, Join):
            name = asks or hashlib.sha256(encode([first.agreement])).hexdigest()[:16]
            joined = replace(
                session or Session(name),
                federation=name,
                round=-1,
                metrics=0,
                audit=self._audit.head,
            )
            party = self._made()
            self._supply(party, first.agreement.public)
            return (*self._moved_on(party, tasks, request, joined), "ok")
        if session is None:
            raise RunFailed(
                "it has not joined, or its state is gone",
                where=f"party {self._made().name!r}",
                mend=f"Its state belongs in {self._state.home}; start the run anew.",
                code="not-joined",
            )
        if asks != session.federation:
            raise KnowledgeRefused(
                f"the request is of federation {asks!r}, and it has joined {session.federation!r}"
            )
        said = self._folder() / "replies" / _reply_name(first.round, request)
        if said.is_file():
            reply = said.read_bytes()
            return decode(reply), reply, "repeated"
        _check_round(tasks, session.round)
        further = self._further(session, tasks)
        # What is restored begins from where a party has just joined, whatever it has learned since.
        party = self._joined() if isinstance(first, Restore) else self._taken_up()
        try:
            return (*self._moved_on(party, tasks, request, further), "ok")
        except _Failed:
            if not isinstance(first, Restore):
                self._count(further)
            raise

    def _taken(self, task: TakePublic, session: Session | None) -> tuple[Outcome, bytes, str]:
        """Keep the rows that were sent, and those of the federation that it has joined; forget all others."""
        home, party = self._state.home, self._made()
        in_use = set() if session is None else {self._agreed().public}
        public = task.rows_for(party)
        self._look_at(party, public)
        # What it holds from here on is what is kept: rows that could not be written are not to be used.
        self._standing = party.public = None
        kept = read_public(home, public.key)
        held = kept is not None and kept.columns == public.columns
        # Before the new ones are written, so that no more than two sets are ever on the disk.
        sweep_public(home, in_use | {public.key} if held else in_use)
        if not held:
            write_public(home, public)
        reply = Receipt(party=party.name, round=task.round)
        return (reply,), encode([reply]), "repeated" if held else "ok"

    def _look_at(self, party: Party, public: Public) -> None:
        """Raise unless rows that were sent look like the party's own.

        Each set is looked at once, and again only where the form of the party's own rows was changed since,
        which somebody there has to do.

        Raises:
            InvalidInput: they do not.
            KnowledgeRefused: it has looked at as many sets as it does.
            RunFailed: that it looks, or what it saw, cannot be put down.
        """
        home, name = self._state.home, name_of_set(public)
        sets = sent_sets(home)
        if name not in sets:
            self.limits.refuse_sets(len(sets) + 1)
            sets[name] = {}
            write_sets(home, sets)
        form = [*map(str, party.X.shape[1:]), *party.columns]
        if sets[name].get("form") != form:
            refusal = None
            try:
                party.check_public(public)
            except InvalidInput as error:
                refusal = {"what": error.what, "where": error.where, "mend": error.mend}
            sets[name] = {"form": form, "refusal": refusal}
            write_sets(home, sets)
        if refusal := sets[name]["refusal"]:
            raise InvalidInput(**refusal)

    def _supply(self, party: Party, digest: str) -> None:
        """Have a party without public rows of its own hold those of a digest, if they were sent to it."""
        if not party.takes_public or (party.public is not None and party.public.key == digest):
            return
        if digest == Public.none().key:
            party.public = Public.none()
        else:
            party.public = read_public(self._state.home, digest)

    def _count(self, session: Session) -> None:
        """Put down that a request was worked at; all else of the state stays."""

        def fill(after: Path, before: Path | None) -> None:
            assert before is not None
            for path in sorted(before.rglob("*")):
                if path.is_dir():
                    (after / path.relative_to(before)).mkdir()
                elif path != before / _SESSION:
                    keep(path, after / path.relative_to(before))
            (after / _SESSION).write_text(json.dumps(asdict(session)))

        self._state.write(fill)

    def _further(self, session: Session, tasks: tuple[Task, ...]) -> Session:
        """The session after a request, if the limits allow another one."""
        session, first = replace(session, audit=self._audit.head), tasks[0]
        if isinstance(first, Restore):  # nothing of the model leaves with it
            return replace(session, round=first.round)
        if first.round > session.round:
            session = replace(session, round=first.round, rounds=session.rounds + 1, requests=0)
        session = replace(session, requests=session.requests + 1)
        self.limits.refuse_more(rounds=session.rounds, requests=session.requests)
        times = sum(task.reply_type is Metrics for task in within(tasks))
        session = replace(
            session, metrics=session.metrics + times, measured=session.measured + times
        )
        if times:
            self.limits.refuse_metrics(session.metrics, session.measured)
        return session

    def _moved_on(
        self, party: Party, tasks: tuple[Task, ...], request: bytes, session: Session
    ) -> tuple[Outcome, bytes]:
        """Run the tasks and put down what comes of it, or raise :class:`_Failed` and leave all as it was."""
        result: list[tuple[Outcome, bytes]] = []
        first = tasks[0]

        def fill(after: Path, before: Path | None) -> None:
            party.home = after / "checkpoints"
            party.drawn = _numbers(before / _DRAWN) if before is not None else {}
            if before is not None and not (
                isinstance(first, Join) and self._another(first, session)
            ):
                for file in (before / "checkpoints").glob("*/*"):
                    keep(file, party.home / file.parent.name / file.name)
            outcome, reply = _run(party, tasks)
            if isinstance(outcome, Failure):
                raise _Failed(outcome)
            self.limits.refuse_spending(*spent(party.drawn))
            self.limits.refuse_comparisons(compared_sets(party.drawn))
            result.append((outcome, reply))
            (after / _SESSION).write_text(json.dumps(asdict(session)))
            if isinstance(first, Join):
                (after / _AGREEMENT).write_bytes(encode([first.agreement]))
            else:
                assert before is not None
                keep(before / _AGREEMENT, after / _AGREEMENT)
            model = f"model{party.learner.suffix}"
            if before is not None and all(task.keeps_model for task in tasks):
                if (before / model).exists():
                    keep(before / model, after / model)
            elif party.learner.fitted:
                party.learner.save(after / model)
            if party.memory:
                save_file(party.memory, after / _MEMORY)
            if party.drawn:
                save_file(party.drawn, after / _DRAWN)
            (after / "replies").mkdir()
            if isinstance(first, Join | Restore):
                return  # what was said before no longer holds
            assert before is not None
            for file in (before / "replies").iterdir():
                if int(file.name.partition("-")[0]) >= session.round - 1:
                    keep(file, after / "replies" / file.name)
            (after / "replies" / _reply_name(first.round, request)).write_bytes(reply)

        self._standing = None
        self._state.write(fill)
        self._standing = self._state.current
        return result[0]

    def _another(self, join: Join, session: Session) -> bool:
        """Whether this joins another federation than before, whose checkpoints are of no use to it."""
        before = self._session()
        assert before is not None
        agreed = (self._folder() / _AGREEMENT).read_bytes()
        return before.federation != session.federation or agreed != encode([join.agreement])

    # --- its state --------------------------------------------------------------------------------

    def _made(self) -> Party:
        if self._party is None:
            party = self._make()
            self.limits.bind(party)
            if self.limits.secret and not party.secret:
                party.secret = own_secret(self._state.home)
            self._party = party
            if party.public is None:
                party.takes_public = self.limits.takes_public
                if not party.takes_public:
                    party.public = Public.none()  # so that it is not sent what it would refuse
            self.name = party.name
        return self._party

    def _taken_up(self) -> Party:
        """The party as the last answer left it."""
        party, folder = self._made(), self._folder()
        if folder == self._standing:
            return party
        self._joined()
        try:
            model = folder / f"model{party.learner.suffix}"
            if model.is_file():
                party.learner.load(model)
            party.memory, party.drawn = _numbers(folder / _MEMORY), _numbers(folder / _DRAWN)
        except (OSError, SafetensorError, KnowledgeRefused) as error:
            raise RunFailed(f"its state is damaged: {error}", where=str(folder)) from error
        self._standing = folder
        return party

    def _joined(self) -> Party:
        """The party as it was when it had joined."""
        party, agreed = self._made(), self._agreed()
        self._supply(party, agreed.public)
        party.join(agreed)
        return party

    def _agreed(self) -> Agreement:
        """What it has joined."""
        path = self._folder() / _AGREEMENT
        try:
            agreed: Agreement
            (agreed,) = decode(path.read_bytes())
        except (OSError, KnowledgeRefused) as error:
            raise RunFailed(f"its state is damaged: {error}", where=str(path.parent)) from error
        return agreed

    def _session(self) -> Session | None:
        return read_session(self._state.home)

    def _folder(self) -> Path:
        folder = self._state.current
        assert folder is not None
        return folder

    # --- what is said and written --------------------------------------------------------------------

    def _log(
        self,
        tasks: tuple[Task, ...],
        request: bytes,
        outcome: Outcome,
        reply: bytes,
        status: str,
        federation: str,
    ) -> None:
        with suppress(RunFailed):  # a state that is damaged; the line says so
            session = self._session()
            federation = federation or (session.federation if session else "")
        self._audit.append(
            federation=federation[:200],
            round=tasks[0].round if tasks else None,
            tasks="+".join(type(task).__name__ for task in tasks),
            status=status,
            detail=self._detail(tasks, outcome),
            left=contents([outcome] if isinstance(outcome, Failure) else outcome),
            bytes=len(reply),
            asked=hashlib.sha256(request).hexdigest(),
            sha256=hashlib.sha256(reply).hexdigest(),
        )

    def _detail(self, tasks: tuple[Task, ...], outcome: Outcome) -> str:
        """What a line of the log says in words."""
        if isinstance(outcome, Failure):
            return outcome.reason
        if isinstance(first := tasks[0], TakePublic):
            rows = len(first.values if first.lengths is None else first.lengths)
            return f"{rows:,} public rows came from the coordinator, digest {first.public}"
        if isinstance(first, Join) and (shared := self._made().shared_rows):
            return f"{shared:,} of its rows are among the public rows, and are left out"
        return "; ".join(note for reply in outcome for note in getattr(reply, "notes", ()))


def read_session(home: Path) -> Session | None:
    """Where the party whose state lives in ``home`` is; ``None`` before it has joined.

    Raises:
        RunFailed: the state is gone or damaged.
    """
    while (folder := current_state(home)) is not None:
        try:
            return Session(**json.loads((folder / _SESSION).read_text()))
        except (OSError, ValueError, TypeError) as error:
            if current_state(home) == folder:  # else it was replaced while it was read
                raise RunFailed(f"its state is damaged: {error}", where=str(folder)) from error
    return None


def _written_after(home: Path) -> str | None:
    """The line of the audit log that the state names; what is wrong with the state an answer will say."""
    with suppress(RunFailed):
        session = read_session(home)
        return session.audit if session is not None else None
    return None


def _numbers(file: Path) -> dict[str, Any]:
    return dict(load_file(file)) if file.is_file() else {}


def failure_of(party: str, error: ConsilienceError) -> Failure:
    """What leaves of an error that happened outside of the tasks."""
    kind: Literal["failed", "invalid", "refused"] = "failed"
    if isinstance(error, InvalidInput | KnowledgeRefused):
        kind = "invalid" if isinstance(error, InvalidInput) else "refused"
    reason = f"{error.where}: {error.what}" if error.where else error.what
    reason = reason.encode(errors="replace").decode()[:LONGEST_REASON]
    return Failure(party=party, reason=reason, mend=error.mend or "", kind=kind, code=error.code)


class _Failed(Exception):
    """The tasks failed: the state that was being made is not to be put down."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)


def _run(party: Party, tasks: tuple[Task, ...]) -> tuple[Outcome, bytes]:
    """What the party answers, and its bytes; an answer that cannot be written is a failure."""
    outcome = answer(party, tasks)
    try:
        return outcome, encode([outcome] if isinstance(outcome, Failure) else outcome)
    except TypeError as error:
        raise RunFailed(f"its answer cannot be sent: {error}") from error


def _said(failure: Failure) -> tuple[Outcome, bytes, str]:
    return failure, encode([failure]), failure.kind


def _check_round(tasks: tuple[Task, ...], current: int) -> None:
    """Raise ``KnowledgeRefused`` for what belongs to a round that is over."""
    round = tasks[0].round
    if isinstance(tasks[0], Restore):
        return  # a run that was broken off goes on from an earlier one
    # Round 1 may have begun when the state after round 0 is measured and kept.
    late = all(isinstance(task, Evaluate | Checkpoint) for task in tasks)
    if round < current - late and not all(task.static for task in tasks):
        raise KnowledgeRefused(f"the request is of round {round}, and it is in round {current}")


def _reply_name(round: int, request: bytes) -> str:
    return f"{round:08d}-{hashlib.sha256(request).hexdigest()}"
