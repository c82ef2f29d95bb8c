"""Processes that are started once, and ended whoever was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.sites.operations.processes import (
    BIN,
    Processes,
    detached,
    end,
    environment,
    held,
    running,
)
from consilience.sites.party.process import write_programs
from consilience.sites.transport.flower.internals import task_commands

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
OWNER = """
import sys, time
from pathlib import Path
from consilience.sites.operations.processes import Processes
with Processes(Path(sys.argv[1]), "the test") as processes:
    processes.start("child", [sys.executable, "-c", "import time; time.sleep(60)"], {})
    print(processes._started["child"].pid, flush=True)
    time.sleep(60)
"""

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
sys.stdin.read()
"""
RUN = """
import os, threading, time
from consilience.sites.transport.coordinator_app import end_after
threading.Thread(target=end_after, args=(os.getppid(),), daemon=True).start()
print("watches", flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def until(true, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_started_is_ended_and_nobody_starts_twice(tmp_path: Path) -> None:
    with Processes(tmp_path, "the test") as processes:
        processes.start("child", SLEEP, environment(tmp_path / "home"))
        assert running(tmp_path) == os.getpid()
        with pytest.raises(InvalidInput, match=rf"the test runs already \(PID {os.getpid()}\)"):
            Processes(tmp_path, "the test")
        assert processes.ended("child") is None
    assert processes.ended("child") == -signal.SIGTERM
    assert not held(tmp_path) and running(tmp_path) is None
    assert end(tmp_path) is False


@pytest.mark.parametrize("killed", [False, True])
def test_stop_ends_the_owner_or_what_it_left(tmp_path: Path, killed: bool) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        child = int(owner.stdout.readline())
        if killed:
            owner.kill()
            owner.wait()
            assert held(tmp_path) and running(tmp_path) is None  # the child holds it
        else:
            assert running(tmp_path) == owner.pid
        assert end(tmp_path) is True
        assert not alive(owner.pid)
    until(lambda: not alive(child))
    assert not held(tmp_path)


STARTS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_what_a_process_started_in_a_session_of_its_own_is_ended_too(tmp_path: Path) -> None:
    """As Flower's SuperLink does; it takes its time when it is told to end."""
    with Processes(tmp_path, "the test", patience=0.5) as processes:
        processes.start("parent", [sys.executable, "-c", STARTS], {})
        log = tmp_path / "parent.log"
        until(lambda: log.read_text().strip())
        child = int(log.read_text())
        processes.stop("parent")
        assert not alive(child)


def test_what_is_left_of_an_owner_that_was_killed_is_ended_in_whatever_session(
    tmp_path: Path,
) -> None:
    starting = OWNER.replace('"import time; time.sleep(60)"', repr(STARTS))
    owner = subprocess.Popen(
        [sys.executable, "-c", starting, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        owner.stdout.readline()
        log = tmp_path / "child.log"
        until(lambda: log.read_text().strip())
        owner.kill()
    assert end(tmp_path) is True
    assert not alive(int(log.read_text()))


def test_an_owner_whose_exit_status_nobody_took_does_not_run(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        owner.stdout.readline()
        assert running(tmp_path) == owner.pid
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: not alive(owner.pid))
        assert held(tmp_path) and running(tmp_path) is None
        assert end(tmp_path) is True


def test_in_the_background_it_is_ready_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = (
        "import sys, time; from pathlib import Path; "
        "from consilience.sites.operations.processes import Processes\n"
        "with Processes(Path(sys.argv[1]), 'the test') as processes:\n"
        "    time.sleep(1); Path(sys.argv[1], 'listens').touch(); processes.ready(); time.sleep(60)"
    )
    real, made = subprocess.Popen, []

    def program(command: list[str], **rest: Any) -> Any:
        made.append(real([sys.executable, "-c", late, str(tmp_path / "run")], **rest))
        return made[-1]

    monkeypatch.setattr("consilience.sites.operations.processes.subprocess.Popen", program)
    pid = detached([], tmp_path / "run", tmp_path / "log")
    assert (tmp_path / "run" / "listens").exists() and running(tmp_path / "run") == pid
    with pytest.raises(RunFailed, match=r"InvalidInput: .*the test runs already"):
        detached([], tmp_path / "run", tmp_path / "log")
    monkeypatch.undo()
    assert end(tmp_path / "run") is True
    assert [one.wait(5) for one in made] == [-signal.SIGTERM, 1]


@pytest.mark.parametrize(("status", "kind"), [(2, InvalidInput), (1, RunFailed)])
def test_what_ends_in_the_background_tells_its_error_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception]
) -> None:
    says = (
        f"print('it dials'); print('error: here: wrong\\n  Mend it.'); raise SystemExit({status})"
    )
    real = subprocess.Popen
    monkeypatch.setattr(
        "consilience.sites.operations.processes.subprocess.Popen",
        lambda command, **rest: real([sys.executable, "-c", says], **rest),
    )
    with pytest.raises(kind) as caught:
        detached([], tmp_path / "run", tmp_path / "log")
    assert str(caught.value) == "here: wrong\n  Mend it."


def test_in_the_background_modules_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typer.py").write_text("1 / 0")
    assert detached(["--version"], tmp_path / "run", tmp_path / "log")
    made = environment(tmp_path / "home")
    asked = [sys.executable, "-c", "import sys; print(sys.flags.safe_path)"]
    assert subprocess.run(asked, env=made, capture_output=True, text=True).stdout == "True\n"


def test_who_comes_after_a_kill_takes_over(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        child = int(owner.stdout.readline())
        owner.kill()
    with Processes(tmp_path, "the test"):
        assert not alive(child)
        assert running(tmp_path) == os.getpid()


def test_flower_is_kept_quiet(tmp_path: Path) -> None:
    made = environment(tmp_path / "home")
    assert made["FLWR_TELEMETRY_ENABLED"] == made["RAY_USAGE_STATS_ENABLED"] == "0"
    assert made["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert made["FLWR_HOME"] == str(tmp_path / "home")


def test_whatever_flower_starts_at_a_party_is_ours(tmp_path: Path) -> None:
    """A run of another kind than messages would unpack the code that was sent, and run it."""
    folder = write_programs(tmp_path / "bin")
    search = f"{folder}{os.pathsep}{BIN}"
    for command in task_commands():
        assert shutil.which(command, path=search) == str(folder / command)
        said = subprocess.run([folder / command], capture_output=True, text=True, check=False)
        assert said.returncode == 1 and "runs nothing else" in said.stderr
    (tmp_path / "consilience.py").write_text("raise SystemExit('of the folder')")
    words = [folder / "flower-superexec", "--help"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "usage: " in said.stdout, said.stderr


def test_a_run_ends_with_whoever_started_it() -> None:
    """Its Flower would call a SuperLink that is gone for ever, and hold the run."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == b"watches\n" and alive(child)
        parent.kill()
    until = time.monotonic() + 30
    while alive(child):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_process_that_ended_by_itself_keeps_no_other_from_being_started(tmp_path: Path) -> None:
    with Processes(tmp_path, "the test") as processes:
        processes.start("short", [sys.executable, "-c", ""], {})
        until(lambda: processes.ended("short") is not None)
        processes.start("child", SLEEP, {})
        assert processes.ended("child") is None and running(tmp_path) == os.getpid()
