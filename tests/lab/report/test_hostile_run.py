"""A run folder that a stranger made: its report ends, harms no other file, and says what is wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import ConsilienceError, RunFailed
from consilience.lab.report import read_results, write_report
from test_files import journal

Make = Callable[..., Path]
PRECIOUS = "what the user wrote"


@pytest.fixture
def run(make_run: Make) -> Path:
    """A small run that is done."""
    scores = {s: {"accuracy": [[0.2, 0.4], [0.3, 0.5]]} for s in range(2)}
    return make_run({"local": scores, "avg": scores}, seeds=2, trust={"avg": [[1, 0], [0, 1]]})


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.txt"
    path.write_text(PRECIOUS)
    return path


def altered(run: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        for statement in statements:
            ledger.executescript(statement)
    return run


# --- links ------------------------------------------------------------------------------------------


def test_no_file_of_the_users_is_overwritten(run: Path, precious: Path) -> None:
    (run / "plots").mkdir()
    for name in ("report.html", ".report.html.writing", ".part-report.html", "plots/rounds.svg"):
        (run / name).symlink_to(precious)
    assert write_report(run).read_text().startswith("<!DOCTYPE html>")
    assert precious.read_text() == PRECIOUS


def test_plots_are_not_written_into_another_folder(run: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (run / "plots").symlink_to(tmp_path / "pictures")
    with pytest.raises(RunFailed, match=r"run/plots: it is a link to .*pictures, out of"):
        write_report(run)
    assert not list((tmp_path / "pictures").iterdir())


def test_a_report_changes_no_ledger_and_leaves_nothing_beside_it(run: Path) -> None:
    before = (run / "ledger.sqlite").read_bytes()
    write_report(run)
    assert (run / "ledger.sqlite").read_bytes() == before
    assert {path.name for path in run.iterdir()} == {
        "config.json", "ledger.sqlite", "plots", "report.html",
    }  # fmt: skip


def test_a_report_is_made_while_the_run_goes_on(run: Path) -> None:
    from consilience.lab.experiments import Ledger

    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        ledger.note(started="while somebody reads")
        assert read_results(run).meta["started"] == "while somebody reads"


def test_a_journal_deletes_nothing(run: Path, precious: Path) -> None:
    journal(run / "ledger.sqlite", precious)
    with pytest.raises(RunFailed, match=r"ledger\.sqlite-journal: this journal has SQLite delete"):
        write_report(run)
    assert precious.exists()


def test_a_configuration_without_end(run: Path) -> None:
    (run / "config.json").unlink()
    (run / "config.json").symlink_to("/dev/zero")
    with pytest.raises(RunFailed, match=r"config.json: .*damaged \(it is no regular file\)"):
        write_report(run)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": ' * 20_000])
def test_a_configuration_without_bottom(run: Path, text: str) -> None:
    (run / "config.json").write_text(text)
    with pytest.raises(RunFailed, match=r"config.json: the configuration is damaged"):
        write_report(run)


# --- the ledger -------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
TABLE = "method TEXT, seed INTEGER, status TEXT NOT NULL, seconds REAL NOT NULL DEFAULT 0"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "change",
    [
        f"DROP TABLE method_runs; CREATE VIEW method_runs AS {ENDLESS} "
        "SELECT 'avg' method, i seed, 'done' status, 1.0 seconds FROM n;",
        f"CREATE VIEW more AS {ENDLESS} SELECT i FROM n;",
        "CREATE TRIGGER more AFTER INSERT ON rounds BEGIN DELETE FROM metrics; END;",
        "CREATE VIRTUAL TABLE more USING fts4(text);",
        f"DROP TABLE method_runs; CREATE TABLE method_runs ({TABLE}, "
        "more GENERATED ALWAYS AS (zeroblob(seed)), PRIMARY KEY (method, seed));",
        "CREATE INDEX more ON rounds (abs(seed));",
        "DROP TABLE metrics;",
    ],
)  # fmt: skip
def test_tables_that_are_none_of_ours_are_not_read(run: Path, change: str) -> None:
    altered(run, change)
    with pytest.raises(RunFailed, match=r"ledger.sqlite: the ledger is damaged \('?\w+'?.*table"):
        read_results(run)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("INSERT INTO rounds VALUES ('avg', 0, 1000000000000, 1.0, NULL, 0, 0.5)", "rounds of 'avg'"),
        ("INSERT INTO metrics VALUES ('avg', 0, 1000000000000, 'a', 'accuracy', 0.5)", "a round"),
        ("INSERT INTO metrics VALUES ('avg', 0, 1, 'nobody', 'accuracy', 0.5)", "party 'nobody'"),
        ("INSERT INTO trust VALUES ('avg', 0, 1, 'nobody', 'yes', 0.5)", "party 'nobody'"),
        ("INSERT INTO trust VALUES ('avg', 0, 1, 'a', 'maybe', 0.5)", "class 'maybe'"),
        (
            "INSERT INTO deliveries VALUES ('avg', 0, 'nobody', 1, 'Distill', 'ok', '', 1, 1, 1, '', 1, 0)",
            "party 'nobody'",
        ),
        ("INSERT INTO holdings VALUES (0, 'a', 'svc', 'maybe', 3)", "each class"),
        ("DELETE FROM holdings WHERE seed = 1", "seed 1"),
        ("UPDATE metrics SET round = 'r' || round", "metrics.round"),
        ("UPDATE metrics SET value = 'good'", "metrics.value"),
        ("UPDATE metrics SET value = 9e999", "metrics.value"),
        ("UPDATE holdings SET rows = -1", "holdings.rows"),
        ("UPDATE deliveries SET party = NULL", "deliveries.party"),
        ("UPDATE holdings SET party = CAST(party AS BLOB)", "holdings.party"),
        ("UPDATE holdings SET model = hex(zeroblob(9000000))", "too big"),
        ("UPDATE holdings SET model = CAST(x'ff' AS TEXT)", "UTF-8"),
        ("UPDATE meta SET value = '[' WHERE key = 'versions'", "no JSON"),
        ("UPDATE meta SET value = '3' WHERE key = 'versions'", "meta.versions"),
        ("INSERT INTO meta VALUES ('warnings', '5')", "meta.warnings"),
        ("UPDATE meta SET value = '\"x\"' WHERE key = 'public_rows'", "meta.public_rows"),
    ],
)  # fmt: skip
def test_values_that_no_run_writes_are_refused(run: Path, change: str, said: str) -> None:
    row = "INSERT INTO deliveries VALUES ('avg', 0, 'a', 1, 'Distill', 'ok', '', 1, 1, 1, '', 1, 0)"
    altered(run, row, change)
    with pytest.raises(RunFailed, match=r"ledger\.sqlite: the ledger is damaged") as failed:
        read_results(run)
    assert said in failed.value.what


def test_metrics_may_be_missing_and_noise_is_no_damage(run: Path) -> None:
    altered(run, "UPDATE metrics SET value = NULL WHERE party = 'a'")
    assert np.isnan(read_results(run).methods[0].scores["accuracy"][..., 0]).all()
    write_report(run)


@pytest.mark.timeout(20)
def test_what_would_not_fit_into_memory_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few MB of rows, of many parties and of many rounds, that would be a table of gigabytes."""
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**9)
    many = f"{ENDLESS} SELECT {{}} FROM n LIMIT 30000;"
    altered(
        run,
        "DELETE FROM holdings; DELETE FROM rounds WHERE method = 'avg'; DELETE FROM metrics;",
        "INSERT INTO holdings " + many.format("0, 'p' || i, 'svc', 'yes', 1"),
        "INSERT INTO holdings " + many.format("1, 'p' || i, 'svc', 'yes', 1"),
        "INSERT INTO rounds " + many.format("'avg', 0, i - 1, 1.0, NULL, 0, NULL"),
        "DELETE FROM trust",
    )
    with pytest.raises(ConsilienceError, match=r"ledger.sqlite: .* GB of memory") as failed:
        read_results(run)
    assert "30,000 parties" in str(failed.value)


def test_memory_is_counted_by_the_longest_of_a_methods_runs(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(
        "consilience.lab.report.reading.check_memory",
        lambda needed, *_, **__: counted.append(needed),
    )
    for seed in (0, 1):  # the second seed's tables have as many rounds by the first's already
        altered(
            run,
            f"DELETE FROM rounds WHERE method = 'avg' AND seed = {seed}",
            f"INSERT INTO rounds {ENDLESS} SELECT 'avg', {seed}, i - 1, 1, NULL, 0, NULL FROM n LIMIT 300",
        )
        read_results(run)
    assert counted[0] == counted[1]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("seeds", [10**12, 10_001])
def test_seeds_without_number(run: Path, seeds: int) -> None:
    config = json.loads((run / "config.json").read_text())
    config["configuration"]["seeds"] = seeds
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunFailed, match="seeds"):
        read_results(run)
