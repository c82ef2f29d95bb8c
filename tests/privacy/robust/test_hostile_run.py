"""A run that a stranger left half done: going on with it touches nothing outside of its folder."""

from __future__ import annotations

import shutil
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from consilience.core.errors import RunFailed
from consilience.lab.experiments import parse_spec, resume, start
from consilience.lab.runs.folder import locked
from test_files import journal

CONFIG = """
name = "left"
methods = ["avg"]
checkpoint_seconds = 0
data = { name = "digits", public = 50, test_rows = 50 }
partition = { parties = 2 }
protocol = { rounds = 2 }
models = [{ name = "naive-bayes" }]
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first round."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"

    def stop(progress: object) -> None:
        if getattr(progress, "round", 0) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(parse_spec(tomllib.loads(CONFIG), where="test"), folder, report=stop)
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder of the user's that looks like a party's."""
    file = tmp_path / "others" / "party-1" / "old" / "model.skops"
    file.parent.mkdir(parents=True)
    file.write_text("years of work")
    return tmp_path / "others"


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_run_that_was_left_is_gone_on_with(run: Path) -> None:
    """So that the others are refused for their links."""
    resume(run)
    assert not (run / "state").exists() and len(list(run.glob("models/avg/*/*/model.json"))) == 2


@pytest.mark.parametrize("name", ["state", "state/party-1", "models", "models/avg"])
def test_no_folder_of_the_users_is_changed(run: Path, others: Path, name: str) -> None:
    before, link = contents(others), run / name
    if link.is_dir():
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(others / "party-1" if "/" in name else others)
    with pytest.raises(RunFailed, match=rf"run/{name}: it is a link to .*, out of"):
        resume(run)
    assert contents(others) == before


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-wal", "lock.sqlite"])
def test_no_file_of_the_users_is_opened_as_a_database(run: Path, others: Path, name: str) -> None:
    before = contents(others)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(others / "party-1" / "old" / "model.skops")
    with pytest.raises(RunFailed, match=rf"{name}: it is a link to"):
        resume(run)
    assert contents(others) == before


@pytest.mark.parametrize("name", ["ledger.sqlite", "lock.sqlite"])
def test_a_journal_deletes_nothing(run: Path, others: Path, name: str) -> None:
    with closing(sqlite3.connect(run / name)) as made:
        made.execute("VACUUM")
    journal(run / name, others / "party-1" / "old" / "model.skops")
    with pytest.raises(RunFailed, match=f"{name}-journal: this journal has SQLite delete"):
        resume(run)
    assert contents(others)


def test_a_ledger_with_a_trigger_is_not_written(run: Path) -> None:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        ledger.execute("CREATE TRIGGER t AFTER INSERT ON rounds BEGIN DELETE FROM rounds; END")
    with pytest.raises(RunFailed, match="'t' in it is none of the tables"):
        resume(run)


def test_a_lock_that_is_none(run: Path) -> None:
    (run / "lock.sqlite").write_text("this is no database, and long enough not to be taken for one")
    with pytest.raises(RunFailed, match=r"cannot be locked \(file is not a database\)"):
        locked(run)
