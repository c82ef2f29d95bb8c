"""A party at its site: answers requests, and survives crashes without lost or repeated work.

A request consists of the bytes of some tasks (:mod:`consilience.core.messages.wire`), independent of the
transport. For each request

    1  it is decoded, and refused if it is not addressed to this party or exceeds its limits
    2  if it was answered before, the stored answer is sent again
    3  the party is loaded in its state after the last answer, and runs the tasks
    4  its state and the answer are written together, atomically
    5  a line of the audit log is written
    6  the answer is sent

Public rows received from a coordinator do not belong to the state. They are stored under their digest
(:mod:`consilience.sites.party.public_rows`), with a record of all sets ever received; a request to take
public rows does not change the state.

If the party crashes before step 4 is done, it is unchanged and the request can be repeated. If it crashes
later, the stored answer is sent on the next request. A request refused before a task runs changes no state.
A request that fails, or is refused after a task has run, only increases the counts, so that a coordinator
cannot keep a party busy forever with failing requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from consilience.core.errors import ConsilienceError, KnowledgeRefused, RunFailed
from consilience.core.files import privately
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.numerics.randomness import NoiseSource, SystemNoise, limited_threads
from consilience.core.party.party import Party
from consilience.core.party.row_scores import COMPARED_SETS
from consilience.core.party.state import read_agreement
from consilience.core.tasks.base import Task
from consilience.core.tasks.fields import within
from consilience.core.tasks.outgoing import Outcome, failure_of, reply_of, withheld
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.sites.party.audit import AUDIT, AuditLog
from consilience.sites.party.limits import Limits
from consilience.sites.party.own_ledger import ledger_of
from consilience.sites.party.public_rows import (
    check_sent,
    keep_sent,
    read_public,
    sweep_public,
)
from consilience.sites.party.replies import KeptReplies, left_by
from consilience.sites.party.requests import TasksFailed, check_round, read_request
from consilience.sites.party.secret import own_secret
from consilience.sites.party.session import (
    Session,
    failed_joins,
    last_line,
    read_session,
    write_failed_joins,
)
from consilience.sites.party.stage import SiteStage
from consilience.sites.party.state import (
    CHECKPOINTS,
    SESSION,
    StateFolder,
    share_checkpoint,
    share_files,
)


class PartySite:
    """Answers a coordinator's requests for one party, whose state is stored in a folder.

    One process at a time works on a folder; close the site, or use it in a ``with`` statement, to free it.

    Args:
        make: makes the party; called once, at the first request. If the party's ``public`` is not set, it
            accepts the public rows that the coordinator sends, within its limits.
        home: the folder of its state and its audit log.
        name: name in failure reports before the party is made.
        limits: limits on requests.
        threads: number of threads for numerical work.
        wait: seconds to wait for another process to release the folder.
        noise: constructor of the noise source.

    Raises:
        RunFailed: another process works on the folder, it cannot be written, or a log lacks lines.
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
        noise: NoiseSource = SystemNoise,
    ) -> None:
        self.name, self.limits = name, Limits() if limits is None else limits
        self._make, self._threads, self._noise = make, threads, noise
        self._party: Party | None = None
        self._loaded_state: Path | None = None
        """The folder of the state that the party in memory is in, where it is in one."""
        self._busy = Lock()
        with privately():
            self._open(home, wait)

    def _open(self, home: Path, wait: float) -> None:
        """Lock the folder, and open its audit log and privacy ledger."""
        self._state = StateFolder(home, wait=wait)
        try:
            sweep_public(home)
            self._audit = AuditLog(home / AUDIT, written_after=last_line(home))
            self._ledger, self._scope = ledger_of(home, self.limits)
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
        self._ledger.close()
        self._state.close()

    # --- answering --------------------------------------------------------------------------------

    def answer(
        self, request: bytes, *, federation: str = "", to: str | None = None, recorded: int = -1
    ) -> bytes:
        """Answer a request; never raises.

        Args:
            request: bytes of a coordinator's tasks (:func:`consilience.core.messages.wire.encode`).
            federation: name of the coordinator's federation, if the transport carries one; compared with the
                joined one.
            to: name of the addressed party, if the transport carries one.
            recorded: last round recorded by the coordinator, if the transport carries it. The party's state
                at the first request with this number is the checkpoint that ``Restore`` of that round loads.

        Returns:
            The bytes of the replies to the tasks, or of one ``Failure``.
        """
        with self._busy, privately():
            tasks: tuple[Task, ...] = ()
            self._trouble = ""
            if self._party is not None:
                self._party.outbox.withhold("")
            try:
                tasks = self._read(request, to)
                with limited_threads(self._threads):
                    outcome, reply, status = self._answered(tasks, request, federation, recorded)
            except TasksFailed as failed:
                outcome, reply, status = _refusal(failed.failure)
            except Exception as error:  # `make` may raise anything; the coordinator waits
                spoken = isinstance(error, KnowledgeRefused)  # all else may speak of rows
                discreet = self.limits.epsilon is not None and not spoken
                failure = failure_of(self.name, error, discreet=discreet)
                outcome, reply, status = _refusal(failure)
                self._trouble = withheld(error, failure)
            try:
                self._log(tasks, request, outcome, reply, status, federation)
            except ConsilienceError as error:  # then nothing but this leaves
                return encode([failure_of(self.name, error)])
            return reply

    def party(self) -> Party | None:
        """The party as the last answer left it, its model trained; ``None`` before it has joined.

        It is this site's own, and changes with the next request: take ``party().model()`` to keep.
        """
        with self._busy, privately():
            if self._session() is None:
                return None
            return self._load()

    def _read(self, request: bytes, to: str | None) -> tuple[Task, ...]:
        """Decode the tasks of a request, and check its addressee."""
        tasks = read_request(request, self.limits.allow)
        if to is not None and to != self._made().name:
            raise KnowledgeRefused(f"the request is for {to!r}, and this is {self._made().name!r}")
        return tasks

    def _answered(
        self, tasks: tuple[Task, ...], request: bytes, federation: str, recorded: int
    ) -> tuple[Outcome, bytes, str]:
        """The outcome, its bytes, and its status in the log."""
        session = self._session()
        first: Any = tasks[0]  # a task that joins has an agreement, one that sends rows has these
        asks = federation
        if session is not None and first.lifecycle != "join":
            asks = federation or session.federation
        self.limits.refuse(tasks, federation=asks)
        if first.lifecycle == "describe":  # its rows may not fit what it joined
            outcome, reply = reply_of(self._made(), (first,), encode)
            return outcome, reply, getattr(outcome, "kind", "ok")
        if first.lifecycle == "public":
            return self._taken(first, session)
        if first.lifecycle == "join":
            name = asks or hashlib.sha256(encode([first.agreement])).hexdigest()[:16]
            home = self._state.home
            begun = session or Session(name, joins=failed_joins(home))
            joined = begun.joined(name, self.limits, audit=self._audit.head)
            party = self._made()
            self._supply(party, first.agreement.public)
            try:
                return (*self._run_and_write(party, tasks, request, session, joined), "ok")
            except TasksFailed:
                if session is None:
                    write_failed_joins(home, joined.joins)
                else:
                    self._count(replace(session, joins=joined.joins, audit=joined.audit))
                raise
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
        if (earlier := KeptReplies(self._folder()).find(first.round, request)) is not None:
            replies = decode(earlier, allow=self.limits.allow)
            if self.limits.epsilon is not None:  # which may have changed since
                replies = privacy_of(self._made()).restated(replies)
                earlier = encode(replies)
            return replies, earlier, "repeated"
        check_round(tasks, session.round)
        further = session.after(tasks, self.limits, audit=self._audit.head, recorded=recorded)
        # What is restored begins from where a party has just joined, whatever it has learned since.
        party = self._joined() if first.lifecycle == "restore" else self._load()
        try:
            return (*self._run_and_write(party, tasks, request, session, further), "ok")
        except TasksFailed as failed:
            if first.lifecycle == "restore":  # it stays in its round
                further = replace(further, round=session.round)
            if failed.failure.code != "budget":  # then nothing ran
                self._count(replace(further, recorded=session.recorded))
            raise

    def _taken(self, task: Any, session: Session | None) -> tuple[Outcome, bytes, str]:
        """Store received public rows; delete all others except those of the joined federation."""
        home, party = self._state.home, self._made()
        in_use = set() if session is None else {read_agreement(self._folder()).public}
        try:
            public = task.rows_for(party)
            check_sent(home, party, public, self.limits)
        finally:
            # Made anew, it holds what is kept: rows that were refused or not written are not to be used.
            self._loaded_state = self._party = None
        new = keep_sent(home, public, in_use)
        reply = Receipt(party=party.name, round=task.round)
        return (reply,), encode([reply]), "ok" if new else "repeated"

    def _supply(self, party: Party, digest: str) -> None:
        """Load the public rows of a digest into a party without a file of them, if they were received."""
        held = party.public is not None and party.public.key == digest
        if not party.rules.public.sent or held:
            return
        none = Public.none()
        party.hold_public(none if digest == none.key else read_public(self._state.home, digest))

    def _count(self, session: Session) -> None:
        """Write the session of a request that failed; all else of the state stays."""

        def fill(after: Path, before: Path | None) -> None:
            assert before is not None
            share_files(before, after, but={SESSION})
            session.write(after)

        self._state.write(fill)

    def _run_and_write(
        self,
        party: Party,
        tasks: tuple[Task, ...],
        request: bytes,
        was: Session | None,
        session: Session,
    ) -> tuple[Outcome, bytes]:
        """Run the tasks and write the state after them, or raise ``TasksFailed`` and leave all as it was."""
        result: list[tuple[Outcome, bytes]] = []
        first: Any = tasks[0]

        def fill(after: Path, before: Path | None) -> None:
            party.keep_states_in(checkpoints := after / CHECKPOINTS)
            if before is None or was is None:
                privacy_of(party).accountant.clear()
            else:
                party.read_features(before, only=True)
                another = first.lifecycle == "join" and (
                    was.federation != session.federation
                    or encode([read_agreement(before)]) != encode([first.agreement])
                )
                if session.recorded > was.recorded:
                    share_checkpoint(before, checkpoints, session.recorded)
                elif not another:  # else they are of no use
                    share_files(before / CHECKPOINTS, checkpoints)
            outcome, reply = reply_of(party, tasks, encode)
            if isinstance(outcome, Failure):
                raise TasksFailed(outcome)
            try:
                self.limits.refuse_comparisons(privacy_of(party).accountant.count(COMPARED_SETS))
            except KnowledgeRefused as error:  # the tasks have run, and count
                raise TasksFailed(failure_of(self.name, error)) from error
            result.append((outcome, reply))
            session.write(after)
            # Those too that a sum question carries.
            keeps_model = all(task.keeps_model for task in within(tasks))
            party.write_state(after, before=before, keeps_model=keeps_model)
            anew = first.lifecycle in ("join", "restore")
            kept = KeptReplies(after)
            earlier = None if anew or before is None else KeptReplies(before)
            kept.begin(earlier, since=session.round - 1)
            if not anew:
                kept.keep(first.round, request, outcome, reply)

        self._loaded_state = None
        self._state.write(fill)
        self._loaded_state = self._state.current
        return result[0]

    # --- its state --------------------------------------------------------------------------------

    def _made(self) -> Party:
        """The party, under its limits and discreet; made when it is first needed."""
        if self._party is None:
            party = self._make()
            keys, most_bytes = party.rules.keys, 0
            if self.limits.secret and not keys.secret:
                keys = replace(keys, secret=own_secret(self._state.home))
            if party.public is None and not (most_bytes := self.limits.max_public_bytes):
                party.hold_public(Public.none())  # so that it is not sent what it would refuse
            public = replace(party.rules.public, most_bytes=most_bytes)
            party.keep_to(replace(party.rules, redact_errors=True, keys=keys, public=public))
            self.limits.bind(party, noise=self._noise)
            privacy_of(party).accountant.keep_in(self._ledger, scope=self._scope)
            party.outbox.use(SiteStage(self.limits, self._state.home))
            self._party, self.name = party, party.name
        return self._party

    def _load(self) -> Party:
        """The party as the last answer left it."""
        party, folder = self._made(), self._folder()
        if folder == self._loaded_state:
            return party
        self._joined()
        privacy_of(party).accountant.clear()
        party.read_state(folder)
        self._loaded_state = folder
        return party

    def _joined(self) -> Party:
        """The party as it was when it had joined."""
        party, folder = self._made(), self._folder()
        self._supply(party, read_agreement(folder).public)
        party.join_again(folder)
        return party

    def _session(self) -> Session | None:
        """The session of the state that counts."""
        return read_session(self._state.home)

    def _folder(self) -> Path:
        """The folder of the state that counts; there is one once it has joined."""
        folder = self._state.current
        assert folder is not None
        return folder

    # --- the audit log ------------------------------------------------------------------------------

    def _log(
        self,
        tasks: tuple[Task, ...],
        request: bytes,
        outcome: Outcome,
        reply: bytes,
        status: str,
        federation: str,
    ) -> None:
        """Add a line on a request and its answer to the audit log."""
        with suppress(RunFailed):  # a state that is damaged; the line says so
            federation = federation or getattr(self._session(), "federation", "")
        self._audit.append(
            federation=federation[:200],
            round=tasks[0].round if tasks else None,
            tasks="+".join(type(task).__name__ for task in tasks),
            status=status,
            detail=self._detail(tasks, outcome),
            left=left_by(self._state.current, tasks, request, outcome, status),
            bytes=len(reply),
            asked=hashlib.sha256(request).hexdigest(),
            sha256=hashlib.sha256(reply).hexdigest(),
        )

    def _detail(self, tasks: tuple[Task, ...], outcome: Outcome) -> str:
        """The words of a line of the log: those too that do not leave, with a budget or of foreign code."""
        if trouble := self._trouble or (self._party.outbox.withheld if self._party else ""):
            return trouble
        if isinstance(outcome, Failure):
            return outcome.reason
        first: Any = tasks[0]
        if first.lifecycle == "public":
            rows = len(first.values if first.lengths is None else first.lengths)
            return f"{rows:,} public rows came from the coordinator, digest {first.public}"
        if first.lifecycle == "join" and (shared := self._made().trainer.rows.left_out):
            return f"{shared:,} of its rows are among the public rows, and are left out"
        return "; ".join(note for reply in outcome for note in getattr(reply, "notes", ()))


def _refusal(failure: Failure) -> tuple[Outcome, bytes, str]:
    """A failure as an outcome, its bytes, and its status in the log."""
    return failure, encode([failure]), failure.kind
