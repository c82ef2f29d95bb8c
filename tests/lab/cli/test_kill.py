"""A run that is killed at any moment and resumed ends as if nobody had touched it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from consilience.lab.cli.predict import kept
from consilience.lab.data import load
from consilience.lab.experiments import read_spec, resume, start
from helpers.command_line import PROGRAM

CONFIG = """
name = "killed"
seeds = 1
methods = ["local", "suwa"]
keep_models = "all"
checkpoint_seconds = 0
data = { name = "digits", public = 100 }
partition = { name = "classes", parties = 3, per_party = 5 }
protocol = { rounds = ROUNDS, consensus = "damped", participation = 0.7 }
models = [
    { name = "naive-bayes" },
    { name = "knn" },
    NETWORK
]
"""
NETWORK = """{ name = "mlp", hidden = [32], recipe = { first_epochs = 5, distill_epochs = 2 } }"""

# All that a ledger holds but times, and when checkpoints fell.
TABLES = {
    "method_runs": "method, seed, status",
    "holdings": "*",
    "rounds": "method, seed, round, teacher_accuracy",
    "deliveries": "method, seed, party, round, tasks, status, left, bytes_down, bytes_up, detail",
    "metrics": "*",
    "trust": "*",
}


@pytest.mark.parametrize("kills, rounds", [(2, 5), pytest.param(10, 20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path: Path, kills: int, rounds: int) -> None:
    file, undisturbed, killed = (tmp_path / name for name in ("c.toml", "undisturbed", "killed"))
    network = kills > 2 and find_spec("torch")  # which takes a while to be imported
    config = CONFIG.replace("NETWORK", NETWORK if network else "")
    file.write_text(config.replace("ROUNDS", str(rounds)))
    spec = read_spec(file)
    start(spec, undisturbed)

    rng = np.random.default_rng(kills)
    words = ["run", str(file), "--out", str(killed), "--quiet"]
    done, died = 0, 0
    total = (rounds + 1) * len(spec.methods) * len(spec.seed_list)
    while died < kills:
        process = subprocess.Popen([*PROGRAM, *words], stderr=subprocess.PIPE, text=True)
        # At a moment of the work itself, not while modules are imported.
        target = done + rng.integers(1, max(1, (total - done) // (kills - died + 1)) + 1)
        while _rounds(killed) < target and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        assert process.returncode == -signal.SIGKILL, said
        died, done = died + 1, _rounds(killed)
        if killed.exists():
            words = ["resume", str(killed), "--quiet"]
    resume(killed)

    ours, theirs = _contents(killed), _contents(undisturbed)
    for table in TABLES:
        assert ours[table] == theirs[table], table
    rows = load("digits").X_test
    for method in ("local", "suwa"):
        for seed in spec.seed_list:
            for party in ("party-1", "party-2", "party-3"):
                resumed, straight = (
                    kept(run, party, method, seed).model.predict_proba(rows)
                    for run in (killed, undisturbed)
                )
                assert np.array_equal(resumed, straight), (method, seed, party)
    assert not (killed / "state").exists()


def _rounds(run: Path) -> int:
    if not run.exists():
        return -1
    connection = sqlite3.connect(f"file:{run / 'ledger.sqlite'}?mode=ro", uri=True, timeout=5)
    (count,) = connection.execute("SELECT count(*) FROM rounds").fetchone()
    connection.close()
    return int(count)


def _contents(run: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(run / "ledger.sqlite")
    found = {
        table: sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
        for table, columns in TABLES.items()
    }
    connection.close()
    return found
