"""Parties on Ray, through Flower's simulation engine, which takes half a minute to start."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from consilience.core.checks import classifiers
from consilience.core.errors import MissingExtra
from consilience.sites.transport.flower.ray import RayNetwork
from helpers import flower_grid  # noqa: F401 (imports flwr without its warnings)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "consilience.sites.transport.flower.server_app.find_spec", lambda name: None
    )
    with pytest.raises(MissingExtra, match=r"pip install 'consilience\[ray\]'"):
        RayNetwork(*classifiers())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_the_same_bits_as_in_process(tmp_path: Path) -> None:
    """In a process of its own: Ray leaves files open, which would be another test's warnings."""
    done = subprocess.run(
        [sys.executable, "-m", "helpers.ray_comparison", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["the same bits", "the same run"]
