"""A folder with a small federation, and a way to call the command line in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.lab.cli.main import app
from helpers.command_line import CONFIG, TABLE, Call, Result, clinics


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with ``tiny.toml``, ``clinics.toml`` and ``clinics.csv``."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(CONFIG)
    Path("clinics.toml").write_text(TABLE)
    Path("clinics.csv").write_text("\n".join(clinics()) + "\n")
    return tmp_path


@pytest.fixture
def call(folder: Path) -> Call:
    """Call the command line in this process."""

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    return invoke
