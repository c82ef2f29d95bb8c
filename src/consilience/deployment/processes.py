"""Processes that are started together and stopped together, once for each folder.

    lock             held by whoever works here: this process and all that it started
    processes.json   who that is: the first is the one to be told to stop
    NAME.log         what each of them said

The lock is held as long as one of them lives. If the first one was killed, the rest is found and ended by
whoever comes next.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from consilience.errors import InvalidInput, RunFailed

QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds, not 1: a message waits for it
}
"""Keeps Flower from reporting to anyone."""

BIN = Path(sys.executable).parent
PATIENCE = 15.0
"""Seconds that a process has to stop by itself."""


class Processes:
    """The processes of one folder, this one first.

    Args:
        folder: made if need be.
        what: what they are, for errors.

    Raises:
        InvalidInput: they run already.
        RunFailed: the folder cannot be written.
    """

    def __init__(self, folder: Path, what: str) -> None:
        self.folder = folder = folder.resolve()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        (self.folder / "processes.json").unlink(missing_ok=True)
        os.close(self._lock)

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> None:
        """Start a process, and whatever it starts, in a session of its own; what had its name is ended."""
        if name in self._started:
            self.stop(name)
        with (self.folder / f"{name}.log").open("ab") as log:
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
        """End a process and whatever it started."""
        process = self._started[name]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        _end_group(process.pid)
        process.wait()

    def last_words(self, name: str) -> str:
        """The last lines that a process said."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())

    def _note(self) -> None:
        pids = [os.getpid(), *(process.pid for process in self._started.values())]
        part = self.folder / "processes.part"
        part.write_text(json.dumps([(pid, _born(pid)) for pid in pids]))
        part.replace(self.folder / "processes.json")


def running(folder: Path) -> int | None:
    """The process to be told to stop, if the folder's processes run."""
    noted = _noted(folder)
    return noted[0][0] if held(folder) and noted and _born(noted[0][0]) == noted[0][1] else None


def held(folder: Path) -> bool:
    """Whether any process of the folder lives."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        return not _taken(handle)
    finally:
        os.close(handle)


def end(folder: Path) -> bool:
    """Have the folder's processes stop; whether there were any.

    Raises:
        RunFailed: one does not.
    """
    if not held(folder):
        return False
    if (pid := running(folder)) is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _until(lambda: not held(folder), 4 * PATIENCE)
    end_rest(folder)
    if held(folder):
        raise RunFailed("a process does not end", where=str(folder / "processes.json"))
    return True


def end_rest(folder: Path) -> None:
    """Kill what is left of processes whose first one was killed."""
    for pid, born in _noted(folder):
        if pid != os.getpid() and born and _born(pid) == born:
            _end_group(pid)
    _until(lambda: not held(folder), PATIENCE)


def detached(command: Sequence[str], folder: Path, log: Path) -> int:
    """Start consilience's own command in the background; gives its process once it holds the folder.

    Raises:
        RunFailed: it ended before that; its words are in the log.
    """
    main = "import sys; from consilience.cli import main; sys.argv[0] = 'consilience'; main()"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", main, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _until(lambda: process.poll() is not None or running(folder) == process.pid, 60.0)
    status = process.poll()
    if status == 0:  # there was nothing left to do
        return process.pid
    if status is not None or running(folder) != process.pid:
        words = log.read_bytes()[begun:].decode(errors="replace").strip().removeprefix("error: ")
        raise RunFailed(words or "it did not start within a minute", where=str(log))
    return process.pid


def environment(home: Path, **more: str) -> dict[str, str]:
    """Ours, with a Flower home of its own, nothing reported to anyone, and Flower's commands found."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path, **more}


def _noted(folder: Path) -> list[tuple[int, str]]:
    try:
        found: Any = json.loads((folder / "processes.json").read_text())
        return [(int(pid), str(born)) for pid, born in found]
    except (OSError, ValueError, TypeError):
        return []


def _born(pid: int) -> str:
    """When a process started, as the system writes it: its number may be another's by now; else empty."""
    try:
        if Path("/proc/self/stat").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        asked = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _until(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)
