"""``consilience papers``: what it prints and writes, what it refuses, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import matplotlib
import pytest

from helpers.command_line import PROGRAM, Call

QUICK = ("papers", "park2023", "fig1", "--repetitions", 2, "--processes", 1)


def test_lists_what_there_is(call: Call) -> None:
    said = call("papers")
    assert said.exit_code == 0
    assert all(
        word in said.stdout for word in ("park2023", "ICML 2023", "table1", "fig7", "anderson")
    )


def test_prints_and_writes(call: Call, folder: Path) -> None:
    with matplotlib.rc_context({"text.usetex": True}):  # as a matplotlibrc may have it
        said = call(*QUICK)
    assert said.exit_code == 0, said.output
    assert "Figure 1" in said.stdout and "holds: " in said.stdout
    written = folder / "runs" / "park2023"
    assert "| rounds |" in (written / "fig1.md").read_text()
    assert (written / "fig1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (written / "fig1.svg").read_text()


def test_data_on_stdout(call: Call) -> None:
    said = call(*QUICK, "--quiet", "--json", "-")
    found = json.loads(said.stdout)
    assert found["exhibits"]["fig1"]["rows"][0]["rounds"] == 1
    assert found["exhibits"]["fig1"]["claims"] and found["versions"]["numpy"]


def test_quick_is_kept_apart(call: Call, folder: Path) -> None:
    call("papers", "park2023", "fig1", "--quick", "--processes", 1, "--quiet")
    assert (folder / "runs" / "park2023-quick" / "fig1.md").exists()
    assert not (folder / "runs" / "park2023").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("papers", "park2024"), "Did you mean 'park2023'?"),
        (("papers", "park2023", "tabel1"), "Did you mean 'table1'?"),
        (("papers", "park2023", "fig1", "--json", "nowhere/x.json"), "there is no such folder"),
        (("papers", "park2023", "fig1", "--repetitions", "1"), "1 is not in the range x>=2"),
    ],
)
def test_refuses_before_any_work(
    call: Call, folder: Path, words: tuple[str, ...], said: str
) -> None:
    answer = call(*words)
    assert answer.exit_code == 2
    assert said in answer.stderr
    assert not (folder / "runs").exists()


def test_a_folder_that_cannot_be_written(call: Call, folder: Path) -> None:
    (folder / "taken").write_text("a file")
    answer = call(*QUICK, "--out", "taken")
    assert answer.exit_code == 1
    assert "results cannot be kept" in answer.stderr


def test_killed_goes_on(call: Call, folder: Path) -> None:
    """Killed when some repetitions are kept: the same command ends with what one that was not killed has."""
    words = ("papers", "park2023", "rates", "--repetitions", 2, "--quick", "--processes", 1)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    going = subprocess.Popen(
        [*PROGRAM, *map(str, words), "--out", "killed"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    until = time.monotonic() + 60
    while _kept(folder / "killed") < 2 and time.monotonic() < until:
        time.sleep(0.02)
    going.send_signal(signal.SIGKILL)
    going.wait()
    assert 2 <= _kept(folder / "killed") < 18
    assert call(*words, "--out", "killed").exit_code == 0
    assert call(*words, "--out", "straight").exit_code == 0
    assert (folder / "killed" / "rates.md").read_text() == (
        folder / "straight" / "rates.md"
    ).read_text()


def _kept(folder: Path) -> int:
    path = folder / "results.sqlite"
    if not path.exists():
        return 0
    try:
        store = sqlite3.connect(path)
        return int(store.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:  # it is just being made
        return 0
    finally:
        store.close()
