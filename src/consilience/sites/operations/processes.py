"""Processes started and stopped together, at most one group for each folder.

    lock             held by this process and all its child processes
    processes.json   their numbers and start times; the first one receives the signal to stop
    ready            number of the first one, once it is in service
    NAME.log         output of each of them

The lock is held as long as one of them is alive. If the first one was killed, the next command that starts
or stops processes in the folder finds and ends the others.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import private_folder, privately, without_links, write_whole
from consilience.sites.transport.flower.internals import QUIET, START

_SETTINGS = {
    **QUIET,
    "PYTHONSAFEPATH": "1",  # no modules of the folder that a process is started in
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds, not 1: a message waits for it
}

BIN = Path(sys.executable).parent
PATIENCE = 15.0
"""Seconds that a process has to stop by itself."""

_SAME = 2.0
"""Seconds that two readings of one process's birth may differ by; a number is not given twice as fast."""


class Processes:
    """The processes of one folder, this one first.

    Args:
        folder: created if needed.
        what: a name for them, for errors.
        patience: seconds that a process has to stop after the signal, before it is killed.

    Raises:
        InvalidInput: they run already.
        RunFailed: the folder cannot be written, or it contains a link to a place outside it.
    """

    def __init__(self, folder: Path, what: str, *, patience: float = PATIENCE) -> None:
        self.folder = folder = folder.resolve()
        self.patience = patience
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, int] = {}
        try:
            private_folder(folder)
            without_links(folder)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunFailed(f"cannot be written ({error.strerror})", where=str(folder)) from error
        if not _taken(self._lock):
            if (pid := running(folder)) is not None:
                os.close(self._lock)
                raise InvalidInput(
                    f"{what} runs already (PID {pid})", where=str(folder), mend="Stop it first."
                )
            end_rest(folder)
            if not _taken(self._lock):
                os.close(self._lock)
                raise InvalidInput(f"{what} runs already", where=str(folder), mend="Stop it first.")
        (folder / "ready").unlink(missing_ok=True)
        self._note()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in reversed(self._started):
            self.stop(name)
        for note in ("ready", "processes.json"):
            (self.folder / note).unlink(missing_ok=True)
        os.close(self._lock)

    def ready(self) -> None:
        """Record that this process is in service."""
        write_whole(self.folder / "ready", str(os.getpid()))

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> None:
        """Start a process in a new session; an earlier one of the same name is ended first.

        Args:
            name: its name, also that of its log.
            command: the program and its arguments.
            environment: its environment variables.
        """
        if name in self._started:
            self.stop(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._begun[name] = log.tell()
            self._started[name] = subprocess.Popen(
                list(map(str, command)),
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lock],
            )
        self._note()

    def ended(self, name: str) -> int | None:
        """The exit status of a process; ``None`` while it lives."""
        return self._started[name].poll()

    def stop(self, name: str) -> None:
        """End a process and all its descendants, including those in other sessions."""
        process = self._started[name]
        family = _family(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.patience)
        _kill_group(process.pid)
        process.wait()
        _until(lambda: not any(map(_lives, family)), self.patience)
        _kill(family)

    def output(self, name: str) -> str:
        """The output of a process since it was started."""
        with (self.folder / f"{name}.log").open("rb") as log:
            log.seek(self._begun[name])
            return log.read().decode(errors="replace")

    def last_lines(self, name: str) -> str:
        """The last lines of a process's output."""
        lines = self.output(name).splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())

    def _note(self) -> None:
        """Write down which processes are at work."""
        noted = []
        for pid in (os.getpid(), *(process.pid for process in self._started.values())):
            with suppress(psutil.NoSuchProcess):  # one that has ended
                noted.append((pid, _birth(psutil.Process(pid))))
        write_whole(self.folder / "processes.json", json.dumps(noted))


def running(folder: Path) -> int | None:
    """Return the number of the process to signal for a stop, if the folder's processes run."""
    owner = _owner(folder)
    return None if owner is None else owner.pid


def held(folder: Path) -> bool:
    """Return true if any process of the folder lives."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        return not _taken(handle)
    finally:
        os.close(handle)


def end(folder: Path, *, say: Callable[[str], None] = lambda line: None) -> bool:
    """Stop the folder's processes, and wait until they and their child processes have ended.

    Args:
        folder: the folder of the processes.
        say: called with a line that names the process to wait for.

    Returns:
        True if there were any.

    Raises:
        RunFailed: a process does not end.
    """
    if not held(folder):
        return False
    if (owner := _owner(folder)) is not None:
        say(f"PID {owner.pid} is told to stop, and ends what it has started")
        with suppress(psutil.NoSuchProcess):
            owner.terminate()
        _until(lambda: not _lives(owner), 4 * PATIENCE)
    end_rest(folder)
    if held(folder):
        raise RunFailed("a process does not end", where=str(folder / "processes.json"))
    return True


def end_rest(folder: Path) -> None:
    """Kill the remaining processes after their first one was killed."""
    left = [one for one in _noted(folder) if one is not None and one.pid != os.getpid()]
    family = [child for one in left for child in _family(one.pid)]
    for one in left:
        _kill_group(one.pid)
    _kill(family)
    _until(lambda: not held(folder), PATIENCE)


def detached(command: Sequence[str], folder: Path, log: Path) -> int:
    """Start consilience's own command in the background, and return its number once it is ready.

    Args:
        command: its arguments.
        folder: the folder of its processes.
        log: the file for its output.

    Raises:
        InvalidInput, RunFailed: it ended before that, with this error; its other words are in the log.
    """
    main = (
        "import sys; from consilience.lab.cli.main import main; sys.argv[0] = 'consilience'; main()"
    )
    private_folder(folder)
    without_links(folder)
    begun = log.stat().st_size if log.exists() else 0
    with privately(), log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", main, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _until(lambda: process.poll() is not None or _ready(folder) == process.pid, START)
    status = process.poll()
    if status == 0:  # it is done already
        return process.pid
    if status is not None or _ready(folder) != process.pid:
        words = log.read_bytes()[begun:].decode(errors="replace").strip()
        _, told, error = f"\n{words}".rpartition("\nerror: ")
        if status is not None and told:  # it says itself where, and what to do
            raise (InvalidInput if status == InvalidInput.exit_code else RunFailed)(error)
        still = f"it is not ready after {START:g} s (PID {process.pid})"
        raise RunFailed(still if status is None else words or "it ended", where=str(log))
    return process.pid


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return our environment with Flower's commands, a home for Flower, and Flower's telemetry disabled."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **_SETTINGS, "FLWR_HOME": str(home), "PATH": path, **more}


def _owner(folder: Path) -> psutil.Process | None:
    """Return the process to signal for a stop, if the folder's processes run."""
    noted = _noted(folder)
    return noted[0] if noted and held(folder) else None


def _noted(folder: Path) -> list[psutil.Process | None]:
    """Read the processes recorded in a folder; ``None`` for those already ended."""
    try:
        found: Any = json.loads((folder / "processes.json").read_text(encoding="utf-8"))
        return [_process(int(pid), float(birth)) for pid, birth in found]
    except (OSError, ValueError, TypeError):
        return []


def _ready(folder: Path) -> int | None:
    """Return the number of the process that reported to be ready; ``None`` if there is none."""
    try:
        return int((folder / "ready").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _process(pid: int, birth: float) -> psutil.Process | None:
    """Return the process with this number and start time; a number may be reused by another process."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid)
        if abs(_birth(found) - birth) < _SAME and _lives(found):
            return found
    return None


def _birth(process: psutil.Process) -> float:
    """Seconds from the start of the machine, which setting its clock does not change."""
    return float(process.create_time() - psutil.boot_time())


def _lives(process: psutil.Process) -> bool:
    """Return true if more than its exit status is left of a process."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _family(pid: int) -> list[psutil.Process]:
    """List all descendants of a process, in any session."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _kill_group(pid: int) -> None:
    """Kill a process that leads a session, with all of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _kill(family: Sequence[psutil.Process]) -> None:
    """Kill those that still live, and wait until they are gone."""
    for process in family:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
    _until(lambda: not any(map(_lives, family)), PATIENCE)


def _taken(handle: int) -> bool:
    """Try to lock a file; return false if another process holds the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _until(true: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, or the seconds are over."""
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)


def free_port() -> int:
    """Return a currently free port of the loopback device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
