"""Processes that are started together and stopped together, once for each folder.

    lock             held by whoever works here: this process and all that it started
    processes.json   who that is: the first is the one to be told to stop
    ready            the first one, once it does what it was started for
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
from consilience.files import without_links, write_whole
from consilience.networks.flower.network import QUIET

_SETTINGS = {
    **QUIET,
    "PYTHONSAFEPATH": "1",  # no modules of the folder that a process is started in
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds, not 1: a message waits for it
}

BIN = Path(sys.executable).parent
PATIENCE = 15.0
"""Seconds that a process has to stop by itself."""

START = 300.0
"""Seconds that a command in the background has to do what it was started for."""


class Processes:
    """The processes of one folder, this one first.

    Args:
        folder: made if need be.
        what: what they are, for errors.

    Raises:
        InvalidInput: they run already.
        RunFailed: the folder cannot be written, or something in it is a link out of it.
    """

    def __init__(self, folder: Path, what: str) -> None:
        self.folder = folder = folder.resolve()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, int] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        """Say that this process does what it was started for."""
        write_whole(self.folder / "ready", str(os.getpid()))

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> None:
        """Start a process, and whatever it starts, in a session of its own; what had its name is ended."""
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
        """End a process and whatever it started, some of it in sessions of its own; all is gone then."""
        process = self._started[name]
        family = _family(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        _end_group(process.pid)
        process.wait()
        _until(lambda: not any(_lives(*one) for one in family), PATIENCE)
        _end_all(family)

    def said(self, name: str) -> str:
        """All that a process has said since it was started."""
        with (self.folder / f"{name}.log").open("rb") as log:
            log.seek(self._begun[name])
            return log.read().decode(errors="replace")

    def last_words(self, name: str) -> str:
        """The last lines that a process said."""
        lines = self.said(name).splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())

    def _note(self) -> None:
        pids = [os.getpid(), *(process.pid for process in self._started.values())]
        noted = json.dumps([(pid, _born(pid)) for pid in pids])
        write_whole(self.folder / "processes.json", noted)


def running(folder: Path) -> int | None:
    """The process to be told to stop, if the folder's processes run."""
    noted = _noted(folder)
    return noted[0][0] if held(folder) and noted and _lives(*noted[0]) else None


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


def end(folder: Path, *, say: Callable[[str], None] = lambda line: None) -> bool:
    """Have the folder's processes stop, and wait until all that they started is gone; whether there were any.

    Args:
        folder: theirs.
        say: is told what is waited for.

    Raises:
        RunFailed: one does not.
    """
    if not held(folder):
        return False
    if (pid := running(folder)) is not None:
        owner = (pid, _born(pid))
        say(f"PID {pid} is told to stop, and ends what it has started")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _until(lambda: not _lives(*owner), 4 * PATIENCE)
    end_rest(folder)
    if held(folder):
        raise RunFailed("a process does not end", where=str(folder / "processes.json"))
    return True


def end_rest(folder: Path) -> None:
    """Kill what is left of processes whose first one was killed."""
    left = [(pid, born) for pid, born in _noted(folder) if pid != os.getpid() and _lives(pid, born)]
    family = [one for pid, _ in left for one in _family(pid)]
    for pid, _ in left:
        _end_group(pid)
    _end_all(family)
    _until(lambda: not held(folder), PATIENCE)


def detached(command: Sequence[str], folder: Path, log: Path) -> int:
    """Start consilience's own command in the background; gives its process once that is ready.

    Raises:
        InvalidInput, RunFailed: it ended before that, with this error; its other words are in the log.
    """
    main = "import sys; from consilience.cli import main; sys.argv[0] = 'consilience'; main()"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    without_links(folder)
    begun = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
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
    """Ours, with a Flower home of its own, nothing reported to anyone, and Flower's commands found."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **_SETTINGS, "FLWR_HOME": str(home), "PATH": path, **more}


def _noted(folder: Path) -> list[tuple[int, str]]:
    try:
        found: Any = json.loads((folder / "processes.json").read_text())
        return [(int(pid), str(born)) for pid, born in found]
    except (OSError, ValueError, TypeError):
        return []


def _ready(folder: Path) -> int | None:
    """The process that said that it is ready."""
    try:
        return int((folder / "ready").read_text())
    except (OSError, ValueError):
        return None


def _lives(pid: int, born: str) -> bool:
    return bool(born) and _born(pid) == born


def _born(pid: int) -> str:
    """When a process started, as the system writes it: its number may be another's by now; else empty."""
    return _processes(pid).get(pid, (0, ""))[1]


def _family(pid: int) -> list[tuple[int, str]]:
    """The processes that one has started and those that they have, in any session, each with its birth."""
    known, found, parents = _processes(), list[tuple[int, str]](), {pid}
    while parents:
        parents = {child for child, (parent, _) in known.items() if parent in parents}
        found += [(child, known[child][1]) for child in sorted(parents)]
    return found


def _processes(*pids: int) -> dict[int, tuple[int, str]]:
    """Process to who started it and when; all there are, unless some are named.

    Those of which only the exit status is left are not among them.
    """
    found: dict[int, tuple[int, str]] = {}
    lines: list[list[str]] = []
    if Path("/proc/self/stat").exists():
        for name in map(str, pids) if pids else filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                state, parent, *rest = (
                    Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                )
                lines.append([name, parent, state, rest[17]])
    else:
        which = ["-p", ",".join(map(str, pids))] if pids else ["-A"]
        asked = ["ps", *which, "-o", "pid=,ppid=,stat=,lstart="]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        lines = [line.split(maxsplit=3) for line in said.splitlines()]
    for pid, parent, state, born in lines:
        if not state.startswith("Z"):
            found[int(pid)] = (int(parent), born)
    return found


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _end_all(family: Sequence[tuple[int, str]]) -> None:
    """Kill those that still live, and wait until they are gone."""
    for pid, born in family:
        if _lives(pid, born):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    _until(lambda: not any(_lives(*one) for one in family), PATIENCE)


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
