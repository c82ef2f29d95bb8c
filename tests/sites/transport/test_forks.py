"""Messages answered by forks of one process: nothing is carried over but which modules are imported."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from consilience.sites.transport.flower.forks import ForkExecutor, _import_ahead
from helpers import flower_grid  # noqa: F401 (imports flwr without its warnings)

PROGRAM = """
import importlib.util, json, os, sys, threading
import numpy as np
import psutil
import pytest

from consilience.sites.transport.flower.forks import in_forks

seen = []
sys.path.append("party")

def answer():
    known = [name in sys.modules for name in ("colorsys", "chunk", "own")]
    import colorsys, own
    file = importlib.util.spec_from_file_location("chunk", "party/chunk.py")
    sys.modules["chunk"] = importlib.util.module_from_spec(file)  # of a party, called as an installed one
    number = sys.argv[1]
    with open(number, "w") as file:
        drawn = np.random.random(), own.drawn
        json.dump([os.getpid(), seen, known, drawn, sys.stdin.read()], file)
    seen.append(number)
    if number == "2":
        raise ValueError("the second fails")

in_forks(answer)
"""
FILE = "import sys; [open(line.split('\"')[3], 'w').close() for line in sys.stdin]"


def test_every_message_has_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "party").mkdir()
    own = "import numpy as np\ndrawn = np.random.default_rng().random()\n"
    for name in ("own", "chunk"):
        (tmp_path / f"party/{name}.py").write_text(own)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        found = []
        for number in "123":
            process.stdin.write(json.dumps([number]).encode() + b"\n")
            process.stdin.flush()
            until(lambda written=tmp_path / number: written.exists() and written.read_text() != "")
            found.append(json.loads((tmp_path / number).read_text()))
            until(lambda: not psutil.pid_exists(found[-1][0]))  # then its modules are imported
        _, words = process.communicate(timeout=30)
    pids, seen, known, drawn, read = zip(*found, strict=True)
    assert process.returncode == 0 and words.count(b"the second fails") == 1
    assert len({*pids, process.pid}) == 4
    assert [len(set(numbers)) for numbers in zip(*drawn, strict=True)] == [3, 3]
    assert seen == ([], [], []) and read == ("", "", "")
    assert known == ([False] * 3, *[[True, False, False]] * 2)


def test_a_module_that_cannot_be_imported_is_left_to_the_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, ends in (("needs_a_display", "raise RuntimeError"), ("moved", "raise SystemExit")):
        (tmp_path / f"{name}.py").write_text(ends)
    here = str(tmp_path / "needs_a_display.py")
    _import_ahead({"needs_a_display": here, "moved": here})


def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it never was")


def test_a_process_that_was_killed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    executor = ForkExecutor([sys.executable, "-c", FILE])
    first = executor._process
    first.kill()
    first.wait()
    spec = SimpleNamespace(runtime_api_address="here", token="t", insecure=True, parent_pid=None)
    assert executor.launch(spec).status == "accepted"
    executor.close()
    assert executor._process is not first and executor._process.wait(30) == 0
    assert (tmp_path / "here").exists()


def test_messages_alone_are_taken() -> None:
    executor = ForkExecutor(["true"])
    assert executor.get_eligible_capacity({"flwr-clientapp", "flwr-model"}, insecure=True) == (
        {"flwr-clientapp"},
        set(),
    )
    executor.close()
    executor._process.wait()
