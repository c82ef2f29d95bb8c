"""The app that a coordinator hands to Flower."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from consilience.sites.transport.superlink import write_app


def test_the_app_that_is_written_has_both_halves(tmp_path: Path) -> None:
    """What it imports stands in a text, which neither types nor a move of modules see."""
    folder = write_app(tmp_path / "app")
    found = runpy.run_path(str(folder / "deployed.py"))
    assert isinstance(found["server"], ServerApp) and isinstance(found["client"], ClientApp)
