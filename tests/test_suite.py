"""The suite ends: with an error where a worker dies, or a test is stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
CONFIGURATION = TESTS.parent / "pyproject.toml"

KILLED = "import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)"
LONG = "import time\ndef test_it(): time.sleep(100)"
STUCK = """
import ctypes
def test_it():
    lock, C = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    C.pthread_mutex_lock(lock), C.pthread_mutex_lock(lock)
"""


def ended(folder: Path, *options: str) -> str:
    """What pytest says of the tests in a folder, under the suite's own configuration; it finds an error."""
    own = [f"-c{CONFIGURATION}", f"--rootdir={folder}", "-pno:hypothesispytest", "-pconftest"]
    clean = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *options, folder],
        env=clean | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_where_a_worker_is_killed(tmp_path: Path) -> None:
    """After its first file, while the other has a long one and nothing is left to be dealt out."""
    for name, text in {"a": "", "b": "", "c": KILLED, "d": LONG}.items():
        (tmp_path / f"test_{name}.py").write_text(text or "def test_it(): pass")
    assert "a worker died in test_c.py::test_it" in ended(tmp_path, "-n2", "--dist=loadfile")


def test_where_a_test_is_stuck_outside_of_python(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    assert "in test_it" in ended(tmp_path, "-n0", "-otimeout=2")
