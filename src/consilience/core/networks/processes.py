"""Parties in worker processes: in parallel, and each beyond the reach of the others' crashes."""

from __future__ import annotations

import hashlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.importers import importers
from consilience.core.learners import Model
from consilience.core.messages.message import REGISTRY, message
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.base import Network
from consilience.core.networks.incoming import Arrival, decode_reply, timed_out
from consilience.core.networks.local import by_name
from consilience.core.networks.shared_arrays import MappedRows, take_up
from consilience.core.numerics.randomness import limited_threads
from consilience.core.party.party import Party
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import failure_of, reply_of
from consilience.core.tasks.requests import open_request

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Where numerical libraries look for a number of threads when they are loaded."""


@message
class Export(
    Task,
    reply_type=Receipt,
    exchanges=None,
    protocol=None,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Write your model into a folder of this machine, for the coordinator to load."""

    folder: str
    round: int = 0

    def run(self, party: PartyView) -> Receipt:
        """One folder, named after the party: its state, as it keeps it itself."""
        if not party.trainer.learner.fitted:
            raise InvalidInput("it has no trained model", where=f"party {party.name!r}")
        (folder := Path(self.folder) / _folder(party.name)).mkdir()
        party.write_state(folder)
        return Receipt(party=party.name, round=self.round)


def _folder(party: str) -> str:
    return hashlib.sha256(party.encode()).hexdigest()[:16]


@dataclass
class _Worker:
    process: multiprocessing.process.BaseProcess
    connection: Connection
    parties: tuple[str, ...]
    queue: list[str] = field(default_factory=list)
    """Parties of this exchange with an outstanding answer; the first one has the current request."""
    late: bool = False
    """Whether the worker still owes the answer to an abandoned request."""

    def ask(self, request: bytes) -> None:
        """Send the request to the next party; one at a time, so that both sides never write at once."""
        self.connection.send_bytes(self.queue[0].encode())
        self.connection.send_bytes(request)


@dataclass
class ProcessNetwork(Network):
    """Parties spread over worker processes; every message travels as bytes.

    Party i lives in worker i mod ``processes`` from start to :meth:`close`; the parties of one worker
    answer one after another, so a slow one can make its neighbours late. The parties themselves reach
    the workers when these start (``multiprocessing``'s spawn), their large arrays in a file that all map into
    memory, so that there is one copy of the public rows; from then on only bytes of
    :mod:`consilience.core.messages.wire` pass. A script that uses it needs the usual ``if __name__ ==
    "__main__":``.

    Args:
        members: the parties.
        public: the public data, which each of them will hold.
        processes: number of workers, at most one per party; by default as many as keep the cores busy that
            this process may use, with ``threads`` each.
        threads: numerical threads of each worker, whatever library they belong to.

    Raises:
        InvalidInput: a model that cannot be sent to another process.
    """

    members: Iterable[Party]
    public: Public
    processes: int | None = field(default=None, kw_only=True)
    threads: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads < 1:
            raise InvalidInput(f"{self.threads} threads", mend="Give at least 1.")
        processes = _cores() // self.threads or 1 if self.processes is None else self.processes
        if processes < 1:
            raise InvalidInput(f"{processes} processes", mend="Give at least 1.")
        members = self._untrained = by_name(self.members, self.public)
        for member in members.values():
            member.prototype.check_saving()  # models come back through files
        self._parties = tuple(members)
        self._workers: list[_Worker] = []
        context = multiprocessing.get_context("spawn")
        # A protocol may define messages in its own file; the workers must know them too.
        modules = sorted({made.__module__ for made in REGISTRY.values()} - {"__main__"})
        assert self.public.key  # made here once, it travels with the rows
        rows = MappedRows()
        try:
            for index in range(min(processes, len(members))):
                mine = {name: members[name] for name in self._parties[index::processes]}
                try:
                    packed = rows.packed(mine)
                except OSError as error:
                    raise RunFailed(
                        f"rows for the workers cannot be put down: {error}",
                        where="network",
                        mend=f"Free some space in {tempfile.gettempdir()}, or set TMPDIR.",
                    ) from error
                except Exception as error:  # what cannot be sent says so in many ways
                    raise InvalidInput(
                        f"a model of {', '.join(mine)} cannot be sent to another process: {error}",
                        where="network",
                        mend="Define classes and functions at the top level of a module.",
                    ) from error
                here, there = context.Pipe()
                arguments = (there, rows, packed, self.threads, modules, importers())
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                there.close()
                self._workers.append(_Worker(process, here, tuple(mine)))
        except BaseException:
            self.close()
            raise
        finally:
            rows.close()

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._parties

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        # All workers are kept busy until all parties have answered, or time is up.
        start = perf_counter()
        arrivals: dict[str, Arrival] = {}
        waiting: dict[Connection, _Worker] = {}

        def lose(worker: _Worker) -> None:
            lost = perf_counter() - start
            arrivals.update({name: _lost(name, lost) for name in worker.queue})
            waiting.pop(worker.connection, None)

        for worker in self._workers:
            worker.queue = [name for name in worker.parties if name in to]
            if worker.queue:
                waiting[worker.connection] = worker
                try:
                    if not worker.late:
                        worker.ask(request)
                except OSError:
                    lose(worker)
        while waiting:
            left = None
            if self.timeout is not None:
                left = max(0.0, self.timeout - (perf_counter() - start))
            ready = multiprocessing.connection.wait(list(waiting), left)
            if not ready:
                break
            for connection in ready:
                assert isinstance(connection, Connection)
                worker = waiting[connection]
                try:
                    reply = connection.recv_bytes()
                    if worker.late:
                        worker.late = False
                    else:
                        name = worker.queue.pop(0)
                        arrivals[name] = decode_reply(name, reply, perf_counter() - start)
                    if worker.queue:
                        worker.ask(request)
                    else:
                        del waiting[connection]
                except (EOFError, OSError):
                    lose(worker)
        for worker in waiting.values():
            worker.late = True
            assert self.timeout is not None
            seconds = perf_counter() - start
            for name in worker.queue:
                arrivals[name] = Arrival(timed_out(name, self.timeout), 0, seconds)
        return arrivals

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands, fetched from the workers through files."""
        with tempfile.TemporaryDirectory() as folder:
            recorded = len(self.deliveries)
            there = self._ask((Export(folder=folder),), None).parties
            del self.deliveries[recorded:]  # a look at the models is nothing that the run did
            for name in there:
                self._untrained[name].join(self.agreed)
                self._untrained[name].read_state(Path(folder) / _folder(name))
        return {name: self._untrained[name].trainer.model() for name in there}

    def close(self) -> None:
        """Stop the worker processes; later requests find them closed."""
        for worker in self._workers:
            worker.connection.close()
            worker.late = False
        for worker in self._workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join()


def _cores() -> int:
    """Cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def _lost(name: str, seconds: float) -> Arrival:
    mend = 'See what it said last. A script of your own needs an if __name__ == "__main__":.'
    return Arrival(Failure(party=name, reason="its process has ended", mend=mend), 0, seconds)


def _serve(
    connection: Connection,
    rows: int,
    packed: bytes,
    threads: int,
    modules: Iterable[str],
    _importers: object,  # which serve here since they were received
) -> None:
    """The worker: answer requests until the coordinator closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the coordinator ends us
    # What is loaded by now is limited below; what a model loads later reads these.
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    parties: Mapping[str, Party] = take_up(rows, packed)
    for module in modules:
        with suppress(ImportError):  # a message that stays unknown is refused when it comes
            import_module(module)
    with limited_threads(threads), suppress(EOFError, BrokenPipeError):
        while True:
            name = connection.recv_bytes().decode()
            request = connection.recv_bytes()
            try:
                reply = reply_of(parties[name], open_request(decode(request)), encode)[1]
            except KnowledgeRefused as refusal:
                reply = encode([failure_of(name, refusal)])
            connection.send_bytes(reply)
