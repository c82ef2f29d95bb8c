"""A party that is killed at any moment has lost nothing, mixed nothing, and trained nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import killed_sites


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of all scenes, in a process that imports once and forks."""
    script, folder = Path(killed_sites.__file__), tmp_path_factory.mktemp("killed")
    path = os.pathsep.join([str(script.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_at_random_moments(scenes: dict[str, Any]) -> None:
    found = scenes["random"]
    assert found["kills"] >= killed_sites.FEWEST
    assert found["requests"] > 10
    assert found["replies"] and found["state"]
    assert found["faults"] == [] and found["failed"] == []


def test_before_every_step(scenes: dict[str, Any]) -> None:
    found = scenes["steps"]
    assert found["wrong"] == []
    assert found["old"] > 10 and found["new"] > 3, "both sides of the moment that counts were seen"
    assert found["old"] + found["new"] == found["steps"]


def test_before_every_step_while_public_rows_are_taken(scenes: dict[str, Any]) -> None:
    found = scenes["rows"]
    assert found["wrong"] == []
    assert found["without"] > 3 and found["held"] > 1, "both sides of the moment were seen"
    assert found["without"] + found["held"] == found["steps"]


def test_before_every_step_while_a_budget_is_spent(scenes: dict[str, Any]) -> None:
    """A replay, another round and another question: one line, and the bytes that it stands for."""
    found = scenes["sums"]
    assert found["wrong"] == []
    assert found["unspent"] > 3 and found["spent"] > 3, "both sides of the moment were seen"
    assert found["unspent"] + found["spent"] == found["steps"]
