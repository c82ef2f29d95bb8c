"""What each command does when all is well, and what it says when a run could not go on."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from consilience import __version__
from consilience.core.errors import nearest
from consilience.lab.cli.listing import KINDS
from consilience.lab.experiments import Ledger, read_spec, start
from helpers.command_line import PROGRAM, TABLE, Call, clinics

pytestmark = pytest.mark.usefixtures("sketched")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the two clinics, not to be written to."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "clinics.csv").write_text("\n".join(clinics()) + "\n")
    (folder / "clinics.toml").write_text(TABLE)
    start(read_spec(folder / "clinics.toml"), folder / "run")
    return folder / "run"


@pytest.fixture
def ran(call: Call, finished: Path) -> Path:
    """A copy of that run in the current folder."""
    shutil.copytree(finished, "run")
    return Path("run")


def test_version_and_help_need_little(tmp_path: Path) -> None:
    """Neither loads what a run needs, so that completion and ``--help`` are quick."""
    code = (
        "import sys; from consilience.lab.cli.main import app; app(sys.argv[1:], standalone_mode=False); "
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    for word, expected in (("--version", __version__), ("--help", "resume")):
        said = subprocess.run(
            [sys.executable, "-c", code, word], capture_output=True, text=True, check=True
        ).stdout
        assert expected in said
        loaded = set(said.splitlines()[-1].split())
        assert "consilience" in loaded
        assert not loaded & {"numpy", "sklearn", "torch", "matplotlib", "pydantic", "pyarrow"}


@pytest.mark.parametrize("command", ["run", "resume", "compare", "report", "list", "predict"])
def test_every_help_has_an_example(call: Call, command: str) -> None:
    said = " ".join(call(command, "--help").stdout.split())
    assert f"Example: consilience {command}" in said


@pytest.mark.parametrize("kind", KINDS)
def test_list(call: Call, kind: str) -> None:
    found = json.loads(call("list", kind, "--json", "-").stdout)
    said = call("list", kind).stdout
    assert found
    for entry in found:
        assert entry["line"] and entry["name"] in said


def test_list_of_nothing(call: Call) -> None:
    result = call("list", "leaners")
    assert result.exit_code == 2 and nearest("leaners", KINDS) in result.stderr


def test_runs_are_numbered(call: Call) -> None:
    """The number after the highest, so that a deleted run's number is not used again."""
    Path("runs/clinics-007").mkdir(parents=True)
    Path("runs/clinics-old").mkdir()
    result = call("run", "clinics.toml", "--quiet", "--quick")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(Path("runs/clinics-008"))
    assert not result.stderr


def test_a_run_says_where_it_is(call: Call) -> None:
    result = call("run", "clinics.toml", "--out", "run", "--json", "table.json")
    assert result.exit_code == 0, result.output
    assert "uwa, seed 0: round 1 of 1" in result.stderr
    assert str(Path("run/report.html")) in result.stdout and "uwa" in result.stdout
    assert Path("run/report.html").is_file()
    data = json.loads(Path("table.json").read_text())
    shown = [row for row in data["results"] if row["metric"] == "accuracy"]
    assert [row["method"] for row in shown] == ["local", "uwa"]
    assert data["versions"]["consilience"] == __version__ and data["run"] == "run"


def test_settings_win(call: Call) -> None:
    """``--seeds`` over ``--set`` over ``--quick`` over the file."""
    words = ("--quick", "--set", "protocol.rounds=3", "--set", "seeds=5", "--seeds", "2")
    assert call("run", "clinics.toml", "--out", "run", "--quiet", *words).exit_code == 0
    config = json.loads(Path("run/config.json").read_text())["configuration"]
    assert (config["seeds"], config["protocol"]["rounds"]) == (2, 3)


def test_compare_and_report(call: Call, ran: Path) -> None:
    result = call("compare", ran, ran, "--metric", "accuracy", "--json", "-")
    assert {row["method"] for row in json.loads(result.stdout)["results"]} == {"local", "uwa"}
    assert call("report", ran).stdout.strip() == str(ran / "report.html")
    assert (ran / "report.html").is_file()


def test_a_finished_run_is_left_as_it_is(call: Call, ran: Path) -> None:
    before = (ran / "models/uwa/seed-0/north/model.skops").read_bytes()
    assert call("resume", ran, "--quiet").exit_code == 0
    assert (ran / "models/uwa/seed-0/north/model.skops").read_bytes() == before


def test_one_process_holds_a_run(call: Call, ran: Path) -> None:
    with contextlib.closing(sqlite3.connect(ran / "lock.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        result = call("resume", ran)
    assert result.exit_code == 2
    assert "this run is going on in another process" in result.stderr
    assert call("resume", ran, "--quiet").exit_code == 0


MODELS = """
class Surprised:
    def fit(self, X, y):
        if len(set(X[:, 0] > 50)) == 2:
            raise RuntimeError("no " + "x" * 1000)
        return self
    def predict_proba(self, X):
        return self.fit(X, None)
    def predict(self, X):
        return self.fit(X, None)
"""


def test_a_party_that_fails_is_named_even_quietly(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is found in the current folder, once that is trusted; of its error, little leaves."""
    (folder / "mymodels.py").write_text(MODELS)
    (folder / "clinics.toml").write_text(
        TABLE.replace("rounds = 1", "rounds = 1\n[network]\nquorum = 1")
        + '[[models]]\nname = "mymodels:Surprised"\n'
    )
    monkeypatch.syspath_prepend(folder)  # as in a process of its own
    done = call("run", "clinics.toml", "--out", "run", "--quiet", "--trust")
    assert done.exit_code == 0, done.stderr
    assert "trusted: models.1.name = 'mymodels:Surprised' (from" in done.stderr
    assert "warning: party 'south' was left out" in done.stderr
    assert "the model cannot be" in done.stderr and "x" * 300 not in done.stderr
    asked = call("predict", "run", "--party", "south", "clinics.csv")
    assert asked.exit_code == 2 and "has no model: its training failed" in asked.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--set", "metric=mse"], "metric 'mse' is not one of classification"),
        (["--json", "nowhere/there.json"], "there is no such folder"),
        (["--json", "."], "this is a folder, and a file is wanted"),
        (["--json", "locked.json"], "it cannot be written"),
    ],
)
def test_what_would_fail_at_the_end_is_said_first(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], what: str
) -> None:
    Path("locked.json").touch()
    allowed = os.access  # root may write whatever the permissions say
    monkeypatch.setattr(os, "access", lambda at, how: "locked" not in str(at) and allowed(at, how))
    done = call("run", "clinics.toml", "--out", "run", *words)
    assert done.exit_code == 2 and what in done.stderr
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    "words", [["resume", "run"], ["compare", "run", "run"], ["list", "learners"]]
)
def test_where_data_goes_is_looked_at_first(call: Call, words: list[str]) -> None:
    done = call(*words, "--json", "nowhere/there.json")
    assert done.exit_code == 2 and "--json nowhere/there.json: there is no such" in done.stderr


def test_the_example_of_a_table(call: Call) -> None:
    """``examples/own-data.toml`` runs as it is, from any folder, and its models predict."""
    example = Path(__file__).parents[3] / "examples" / "own-data.toml"
    result = call("run", example, "--out", "run", "--quiet", "--quick")
    assert result.exit_code == 0, result.output
    Path("new.csv").write_text("age,pressure,cholesterol\n30,105,180\n70,145,220\n")
    for party in ("east", "north", "west"):
        lines = call("predict", "run", "--party", party, "new.csv").stdout.splitlines()
        assert [line.partition(",")[0] for line in lines] == ["prediction", "no", "yes"]


# --- predict ------------------------------------------------------------------------------------


def test_predict(call: Call, ran: Path) -> None:
    """Columns are found by name, whatever stands between; age decides who is ill."""
    Path("new.csv").write_text("name,pressure,age\nAnn,120,25\nBob,120,75\n")
    result = call("predict", ran, "--party", "north", "new.csv")
    assert result.exit_code == 0, result.output
    assert "model: uwa, seed 0, north" in result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["prediction"] for row in rows] == ["no", "yes"]
    assert all(abs(float(row["no"]) + float(row["yes"]) - 1) < 2e-6 for row in rows)
    again = call("predict", ran, "new.csv", "--party", "north", "--method", "uwa", "--out", "p.csv")
    assert not again.stdout and Path("p.csv").read_text() == result.stdout


def test_predict_values(call: Call) -> None:
    """Blood pressure from age: a regression, one column of values."""
    settings = {
        "data.target": "pressure",
        "data.kind": "regression",
        "data.columns": '["age"]',
        "methods": '["mean"]',
        "models": '[{name="ridge"}]',
        "data.group": "clinic",
    }
    words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    result = call("run", "clinics.toml", "--out", "run", "--quiet", *words)
    assert result.exit_code == 0, result.output
    Path("new.csv").write_text("age\n30\n60\n")
    lines = call("predict", "run", "--party", "south", "new.csv").stdout.splitlines()
    assert lines[0] == "prediction" and all(90 < float(line) < 160 for line in lines[1:])


def test_predict_images(call: Call, ran: Path) -> None:
    """An .npz has no column names; the number of values per row must be right."""
    np.savez("rows.npz", X=np.ones((3, 2), dtype=np.float32))
    assert len(call("predict", ran, "--party", "north", "rows.npz").stdout.splitlines()) == 4
    np.savez("rows.npz", X=np.ones((3, 5), dtype=np.float32))
    result = call("predict", ran, "--party", "north", "rows.npz")
    assert result.exit_code == 2 and "a row has 5 numbers" in result.stderr


@pytest.mark.parametrize(
    "words, what",
    [
        (["--party", "nort"], "Did you mean 'north'?"),
        (["--party", "north", "--method", "uwaa"], "Did you mean 'uwa'?"),
        (["--party", "north", "--seed", "3"], "there is no seed '3'"),
    ],
)
def test_predict_what_is_not_there(call: Call, ran: Path, words: list[str], what: str) -> None:
    Path("new.csv").write_text("age,pressure\n25,120\n")
    result = call("predict", ran, "new.csv", *words)
    assert result.exit_code == 2 and what in result.stderr
    Path("new.csv").write_text("aeg,pressure\n25,120\n")
    result = call("predict", ran, "new.csv", "--party", "north")
    assert result.exit_code == 2 and "Did you mean 'aeg'?" in result.stderr


# --- damage -------------------------------------------------------------------------------------


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        file.write(b"\xa5" * (path.stat().st_size // 3))


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_truncated, _overwritten, _emptied, Path.unlink])
@pytest.mark.parametrize("file", ["model.skops", "model.json"])
def test_damaged_model(call: Call, ran: Path, file: str, harm: object) -> None:
    Path("new.csv").write_text("age,pressure\n25,120\n")
    harm(ran / "models/uwa/seed-0/north" / file)  # type: ignore[operator]
    _failed(call("predict", ran, "--party", "north", "new.csv"), file)


@pytest.mark.parametrize("harm", [_truncated, _overwritten, _emptied, Path.unlink])
@pytest.mark.parametrize("file", ["ledger.sqlite", "config.json"])
def test_damaged_run(call: Call, ran: Path, file: str, harm: object) -> None:
    harm(ran / file)  # type: ignore[operator]
    for command in ("resume", "report", "compare"):
        result = call(command, ran)
        assert file in result.stderr
        # Without a configuration a folder is no run at all: the call was wrong.
        no_run = file == "config.json" and harm is Path.unlink
        assert result.exit_code == (2 if no_run else 1), result.stderr
        assert "Traceback" not in result.stderr


def _failed(result: object, what: str) -> None:
    assert result.exit_code == 1, result.output  # type: ignore[attr-defined]
    assert what in result.stderr and "Traceback" not in result.stderr  # type: ignore[attr-defined]


# --- a run that stops ---------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [30_000, 130_000])
def test_full_disk(call: Call, folder: Path, limit: int) -> None:
    """No file may grow beyond a limit: below the empty ledger's size, and below what the run writes."""

    words = ("run", "tiny.toml", "--out", "run", "--quiet", "--set", "checkpoint_seconds=0")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        result = call(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1, result.stderr
    assert "Traceback" not in result.stderr
    left = {path.name for path in folder.iterdir()}
    if limit == 30_000:
        assert "the run folder cannot be made" in result.stderr
        assert left == {"tiny.toml", "clinics.toml", "clinics.csv"}
        return
    assert "run" in left and "written" in result.stderr
    resumed = call("resume", "run", "--json", "-")
    assert resumed.exit_code == 0, resumed.stderr
    found = json.loads(resumed.stdout)
    assert {row["method"] for row in found["results"]} == {"local", "avg", "uwa", "central"}


def test_control_c(folder: Path) -> None:
    words = ("run", "tiny.toml", "--out", "run", "--set", "protocol.rounds=500")
    # A shell has what it runs in the background ignore the signal, and processes hand that on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([*PROGRAM, *words], stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    while not Path("run").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "stopped; continue with: consilience resume run"
    assert "Traceback" not in said
    ledger = Ledger(Path("run/ledger.sqlite"))
    assert not ledger.read("SELECT * FROM method_runs WHERE status = 'done'")
    ledger.close()


def test_an_unexpected_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("consilience.lab.experiments.start", broken)
    result = call("run", "tiny.toml")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ZeroDivisionError: a bug\n")
    assert "--debug" in result.stderr and "Traceback" not in result.stderr
    result = call("run", "tiny.toml", "--debug")
    assert result.exit_code == 1 and "Traceback" in result.stderr and "in broken" in result.stderr


def test_names_that_a_file_system_minds(call: Call) -> None:
    """A clinic called ``../x`` stays inside the run folder, and is found by its own name."""
    Path("clinics.csv").write_text("\n".join(clinics()).replace("north", "../x") + "\n")
    assert call("run", "clinics.toml", "--out", "run", "--quiet").exit_code == 0
    Path("new.csv").write_text("age,pressure\n25,120\n")
    result = call("predict", "run", "--party", "../x", "new.csv")
    assert result.exit_code == 0 and result.stdout.splitlines()[1].startswith("no")
    assert sorted(os.listdir("run/models/uwa/seed-0")) == ["%2E.%2Fx", "south"]


BLANK = """lambda figure, png: ('<svg viewBox="0 0 1 1"></svg>', b"")"""
"""What is drawn where nobody looks."""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_sees_a_bar(folder: Path) -> None:
    """And a warning above it, on lines of its own."""
    Path("public.csv").write_text("age,pressure\n" + "100,185\n120,210\n" * 10)
    text = Path("clinics.toml").read_text().replace("public = 0.3", 'public_file = "public.csv"')
    Path("clinics.toml").write_text(text)
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    program = (
        f"from consilience.lab.report import drawing; drawing.rendered = {BLANK}; {PROGRAM[-1]}"
    )
    process = subprocess.Popen(
        [*PROGRAM[:-1], program, "run", "clinics.toml", "--out", "run"],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env=environment,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
    table, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    for expected in (b"mean over parties", b"uwa", b"100%"):
        assert expected in said
    assert re.search(rb"(\r|\n|\x1b\[2K|\x1b\[\?25l)warning: Your parties know ", said)
    assert b"report.html" in table
