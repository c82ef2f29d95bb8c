"""All that a party or a coordinator writes is its user's alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience import Frozen, Party
from consilience.core.federation.forming import negotiate
from consilience.core.files import private_folder, privately
from consilience.core.messages.schema import Public
from consilience.core.tasks.lifecycle import Describe, Join, TakePublic
from consilience.core.tasks.predictions import Distill, PredictPublic
from consilience.lab.cli.main import app
from consilience.lab.runs.ledger import Ledger
from consilience.models import make
from consilience.sites.operations.processes import Processes
from consilience.sites.party import EVERYTHING, PartySite
from helpers.modes import open_to_others, umask
from helpers.party_sites import ask, one_party, requests, without_rows

MASKS = [0o022, 0o000, 0o077]


@pytest.mark.parametrize("mask", MASKS)
def test_a_party_of_a_whole_run(mask: int, tmp_path: Path) -> None:
    """Rounds, checkpoints, a state for each, public rows that were sent, a failure."""
    home = tmp_path / "a" / "b" / "state"
    with umask(mask):
        with PartySite(one_party, home, limits=EVERYTHING) as site:
            for request in requests(2):
                site.answer(request)
            ask(site, Distill(round=3, targets=np.ones((1, 1)), alpha=0.5))
        with PartySite(without_rows, tmp_path / "sent", limits=EVERYTHING) as site:
            ask(site, TakePublic.of(one_party().public))
        assert (tmp_path / "sent" / "public").is_dir() or any((tmp_path / "sent").iterdir())
    assert {"audit.jsonl", "audit.next", "current", "lock"} <= {
        path.name for path in home.iterdir()
    }
    assert not open_to_others(tmp_path / "a") and not open_to_others(tmp_path / "sent")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["mlp", "logistic-regression", "gradient-boosting"])
def test_models_of_every_way_of_saving(name: str, mask: int, tmp_path: Path) -> None:
    """Whatever library writes the file."""
    learner = make(name)
    learner.bind(2)
    rng = np.random.default_rng(0)
    X, targets = rng.normal(size=(20, 2)), np.eye(2)[[0, 1] * 10]
    held = (X, targets) if learner.abilities.validation else None
    learner.fit(X, targets, rng=rng, validation=held)
    with umask(mask):
        private_folder(tmp_path / "state")
        with privately():
            learner.save(tmp_path / "state" / f"model{learner.suffix}")
    assert len(list((tmp_path / "state").iterdir())) == 1
    assert not open_to_others(tmp_path / "state")


@pytest.mark.parametrize("mask", MASKS)
def test_answers_of_a_frozen_model(mask: int, tmp_path: Path) -> None:
    public = Public(np.linspace(0, 1, 8)[:, None])

    def party() -> Party:
        made = Party(
            "north", Frozen(lambda rows: np.full((len(rows), 2), 0.5), classes=["no", "yes"])
        )
        made.hold_public(public)
        made.keep_answers(tmp_path / "home" / "answers.jsonl")
        return made

    with umask(mask):
        agreed = negotiate([Describe().run(party())], public)
        with PartySite(party, tmp_path / "home", limits=EVERYTHING) as site:
            ask(site, Join(agreement=agreed))
            ask(site, PredictPublic(round=1))
        assert (tmp_path / "home" / "answers.jsonl").exists()
    assert not open_to_others(tmp_path / "home")


def test_a_folder_that_was_made_by_hand_becomes_private_while_it_is_empty(tmp_path: Path) -> None:
    with umask(0):
        (tmp_path / "empty").mkdir()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes").write_text("of the user's own")
        for name in ("empty", "full"):
            with PartySite(one_party, tmp_path / name) as site:
                ask(site, Describe())
    assert not open_to_others(tmp_path / "empty")
    assert open_to_others(tmp_path / "full", but=("notes",)) == [". 0777"]


@pytest.mark.parametrize("mask", MASKS)
def test_processes_and_what_they_write(mask: int, tmp_path: Path) -> None:
    """Their own files, those of a process that is started, and SQLite's three of a database."""
    folder = tmp_path / "run" / "flower"
    with umask(mask), privately(), Processes(folder, "a test") as processes:
        code = (
            "import pathlib; pathlib.Path('of-the-child').mkdir(); open('child.txt', 'w').close()"
        )
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        processes.ready()
        Ledger.begin(tmp_path / "run" / "ledger.sqlite")
        ledger = Ledger(tmp_path / "run" / "ledger.sqlite")
        ledger.note(excluded={})
        names = {path.name for path in (tmp_path / "run").iterdir()}
        assert {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"} <= names
        assert not open_to_others(tmp_path / "run")
        ledger.close()


@pytest.mark.parametrize("mask", MASKS)
def test_commands_of_a_party_and_of_a_coordinator(mask: int, tmp_path: Path) -> None:
    def call(*words: Any) -> str:
        result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    with umask(mask):
        call("coordinator", "init", tmp_path / "center", "--parties", "north,south")
        call(
            "coordinator", "invite", tmp_path / "center", "west", "--out", tmp_path / "center" / "w"
        )
        call("party", "join", tmp_path / "center" / "w", "--folder", tmp_path / "west")
        call("party", "init", tmp_path / "north")
    for name in ("center", "west", "north"):
        assert not open_to_others(tmp_path / name)


def test_the_umask_comes_back_whoever_leaves_first(tmp_path: Path) -> None:
    """Blocks of several threads overlap, and the first to end must not open what others write."""
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with privately():
            inside.set()
            done.wait(10)
            (tmp_path / "late").write_text("")

    with umask(0o022):
        thread = threading.Thread(target=other)
        with privately():
            thread.start()
            inside.wait(10)
        done.set()
        thread.join()
        (tmp_path / "after").write_text("")
        with pytest.raises(ZeroDivisionError), privately():
            raise ZeroDivisionError
        assert os.umask(0o022) == 0o022
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"late": 0o600, "after": 0o644}
