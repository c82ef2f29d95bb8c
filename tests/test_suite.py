"""The suite ends: with an error where a worker dies, or a test is stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFIGURATION = Path(__file__).parents[1] / "pyproject.toml"

KILLED = "import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)"
STUCK = """
import ctypes
def test_it():
    lock, C = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    C.pthread_mutex_lock(lock), C.pthread_mutex_lock(lock)
"""


def ended(folder: Path, *options: str) -> str:
    """What pytest says of the tests in a folder, under the suite's own configuration; it finds an error."""
    own = [f"-c{CONFIGURATION}", f"--rootdir={folder}", "-pno:hypothesispytest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *options, folder],
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_where_a_worker_is_killed(tmp_path: Path) -> None:
    """After its first file, when nothing is left to be dealt out."""
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(KILLED if name == "c" else "def test_it(): pass")
    said = ended(tmp_path, "-n2", "--dist=loadfile")
    assert "crashed while running 'test_c.py::test_it'" in said and "1 failed, 3 passed" in said


def test_where_a_test_is_stuck_outside_of_python(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    assert "in test_it" in ended(tmp_path, "-n0", "-otimeout=2")
