"""Terminals and logs that cannot show every character."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from pathlib import Path

import pytest

import consilience.lab.cli.main  # noqa: F401 (registers the handler of encodings)
from consilience.lab.cli.console import spelt_out


@pytest.mark.parametrize(
    ("encoding", "spelt"),
    [
        ("ascii", "0.9 +- 0.1 -> \\xf6 \\u533b epsilon ..."),
        ("latin-1", "0.9 ± 0.1 -> ö \\u533b epsilon ..."),
        ("cp1252", "0.9 ± 0.1 -> ö \\u533b epsilon …"),
        ("utf-8", "0.9 ± 0.1 → ö 医 ε …"),
    ],
)
def test_characters_that_an_encoding_lacks_are_spelt_out(encoding: str, spelt: str) -> None:
    written = "0.9 ± 0.1 → ö 医 ε …".encode(encoding, errors="consilience.spelt")
    assert written.decode(encoding) == spelt
    assert codecs.lookup_error("consilience.spelt") is spelt_out


def test_a_command_on_a_terminal_of_ascii_ends_well(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("größe,ort\n1.5,Köln\n2.5,Aachen\n", encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from consilience.lab.cli.main import main; main()",
            "check-table",
            "t.csv",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"gr\\xf6" in done.stdout.replace(b"\n", b"")
