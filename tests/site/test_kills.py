"""A party that is killed at any moment has lost nothing, mixed nothing, and trained nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from helpers import killed_sites


def run(what: str, folder: Path) -> dict[str, Any]:
    script = Path(killed_sites.__file__)
    path = os.pathsep.join([str(script.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), what, str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_at_random_moments(tmp_path: Path) -> None:
    found = run("random", tmp_path)
    assert found["kills"] >= killed_sites.FEWEST
    assert found["requests"] > 10
    assert found["replies"] and found["state"]
    assert found["faults"] == [] and found["failed"] == []


def test_before_every_step(tmp_path: Path) -> None:
    found = run("steps", tmp_path)
    assert found["wrong"] == []
    assert found["old"] > 10 and found["new"] > 3, "both sides of the moment that counts were seen"
    assert found["old"] + found["new"] == found["steps"]


def test_before_every_step_while_public_rows_are_taken(tmp_path: Path) -> None:
    found = run("rows", tmp_path)
    assert found["wrong"] == []
    assert found["without"] > 3 and found["held"] > 1, "both sides of the moment were seen"
    assert found["without"] + found["held"] == found["steps"]
