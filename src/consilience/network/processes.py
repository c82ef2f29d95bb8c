"""Parties in worker processes: in parallel, and each beyond the reach of the others' crashes."""

from __future__ import annotations

import hashlib
import multiprocessing
import multiprocessing.connection
import signal
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.knowledge import Failure, Public, Receipt
from consilience.messages import message
from consilience.network.base import Arrival, Network, timed_out
from consilience.network.local import by_name
from consilience.network.wire import decode, encode
from consilience.party import Model, Party
from consilience.randomness import limited_threads
from consilience.tasks import Task, answer


@message
class Export:
    """Write your model into a folder of this machine, for the coordinator to load."""

    answers: ClassVar[type[Any]] = Receipt
    folder: str
    round: int = 0

    def run(self, party: Party) -> Receipt:
        """One file, named after the party."""
        party.learner.save(Path(self.folder) / _file(party))
        return Receipt(party=party.name, round=self.round)


def _file(party: Party) -> str:
    return hashlib.sha256(party.name.encode()).hexdigest()[:16] + party.learner.suffix


@dataclass
class _Worker:
    process: multiprocessing.process.BaseProcess
    connection: Connection
    parties: tuple[str, ...]


@dataclass
class ProcessNetwork(Network):
    """Parties spread over worker processes; every message travels as bytes.

    Party i lives in worker i mod ``processes`` from start to :meth:`close`. The parties themselves reach
    the workers when these start (``multiprocessing``'s spawn); from then on only bytes of
    :mod:`consilience.network.wire` pass. A script that uses it needs the usual
    ``if __name__ == "__main__":``.

    Args:
        members: the parties.
        public: the public data, which each of them will hold.
        processes: number of workers, at most one per party.
        threads: numerical threads of each worker.
    """

    members: Iterable[Party]
    public: Public
    processes: int = field(default=2, kw_only=True)
    threads: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes < 1:
            raise InvalidInput(f"{self.processes} processes", mend="Give at least 1.")
        members = self._untrained = by_name(self.members, self.public)
        self._parties = tuple(members)
        self._workers: list[_Worker] = []
        self._late: dict[str, int] = dict.fromkeys(members, 0)
        context = multiprocessing.get_context("spawn")
        for index in range(min(self.processes, len(members))):
            mine = {name: members[name] for name in self._parties[index :: self.processes]}
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, mine, self.threads), daemon=True)
            process.start()
            there.close()
            self._workers.append(_Worker(process, here, tuple(mine)))

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._parties

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Send to all workers at once and gather until all answered or time is up."""
        start = perf_counter()
        arrivals: dict[str, Arrival] = {}
        waiting: dict[Connection, list[str]] = {}
        for worker in self._workers:
            asked = [name for name in worker.parties if name in to]
            try:
                for name in asked:
                    worker.connection.send_bytes(name.encode())
                    worker.connection.send_bytes(request)
                if asked:
                    waiting[worker.connection] = asked
            except OSError:
                arrivals |= {name: _lost(name, perf_counter() - start) for name in asked}
        while waiting:
            left = None if self.timeout is None else self.timeout - (perf_counter() - start)
            ready = (
                multiprocessing.connection.wait(list(waiting), left)
                if left is None or left > 0
                else []
            )
            if not ready:
                break
            for connection in ready:
                assert isinstance(connection, Connection)
                asked = waiting[connection]
                try:
                    name = connection.recv_bytes().decode()
                    reply = connection.recv_bytes()
                except (EOFError, OSError):
                    arrivals |= {name: _lost(name, perf_counter() - start) for name in asked}
                    del waiting[connection]
                    continue
                if self._late[name]:  # the answer to a question that was given up
                    self._late[name] -= 1
                    continue
                arrivals[name] = _arrival(name, reply, perf_counter() - start)
                asked.remove(name)
                if not asked:
                    del waiting[connection]
        for name in (name for asked in waiting.values() for name in asked):
            self._late[name] += 1
            assert self.timeout is not None
            arrivals[name] = Arrival(timed_out(name, self.timeout), 0, perf_counter() - start)
        return arrivals

    def models(self) -> Mapping[str, Model]:
        """Every party's model as it stands, fetched from the workers through files."""
        with tempfile.TemporaryDirectory() as folder:
            self.require(Export(folder=folder))
            for name, party in self._untrained.items():
                party.join(self.agreed)
                party.learner.load(Path(folder) / _file(party))
        return {name: party.model() for name, party in self._untrained.items()}

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join()
        self._workers.clear()


def _arrival(name: str, reply: bytes, seconds: float) -> Arrival:
    try:
        outcome = decode(reply)
    except KnowledgeRefused as refusal:
        return Arrival(
            Failure(party=name, reason=refusal.what, kind="refused"), len(reply), seconds
        )
    if len(outcome) == 1 and isinstance(outcome[0], Failure):
        return Arrival(outcome[0], 0, seconds)
    return Arrival(outcome, len(reply), seconds)


def _lost(name: str, seconds: float) -> Arrival:
    return Arrival(Failure(party=name, reason="its process has ended"), 0, seconds)


def _serve(connection: Connection, parties: Mapping[str, Party], threads: int) -> None:
    """The worker: answer requests until the coordinator closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the coordinator ends us
    with limited_threads(threads):
        while True:
            try:
                name = connection.recv_bytes().decode()
                request = connection.recv_bytes()
            except EOFError:
                return
            outcome = answer(parties[name], decode(request))
            connection.send_bytes(name.encode())
            connection.send_bytes(encode([outcome] if isinstance(outcome, Failure) else outcome))
