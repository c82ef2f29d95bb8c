"""Survival and quantiles from a configuration to the page, to predictions, and past a crash."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.cli.predict import kept
from consilience.lab.experiments import Ledger, Spec, gather, resume, run, start
from consilience.lab.report.page import write_report
from consilience.lab.report.reading import read_results
from consilience.lab.report.verdict import verdict
from consilience.tables.predictions import predictions
from helpers.configurations import spec_with

EXAMPLES = Path(__file__).parents[3] / "examples"
SURVIVAL = """
name = "days"
methods = ["local", "avg", "central"]
checkpoint_seconds = 0
[data]
name = "csv"
time = "days"
event = "died"
group = "clinic"
public = 0.25
[outcome]
edges = [200, 500, 1000]
[partition]
name = "group"
[protocol]
rounds = 2
[[models]]
name = "logistic-regression"
[[models]]
name = "random-forest"
n_estimators = 10
min_samples_leaf = 5
"""


def survival(**changes: Any) -> Spec:
    changes.setdefault("data__path", str(EXAMPLES / "own-survival.csv"))
    return spec_with(SURVIVAL, **changes)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survival") / "run"
    start(survival(), folder)
    return folder


def measured(folder: Path) -> list[Any]:
    ledger = Ledger(folder / "ledger.sqlite", read_only=True)
    try:
        names = "method, seed, round, party, name, value"
        return sorted(ledger.read(f"SELECT {names} FROM metrics"))
    finally:
        ledger.close()


def test_a_run_is_judged_by_the_integrated_brier_score(days: Path) -> None:
    results = read_results(days)
    assert results.metrics[:2] == ("ibs", "ibs_own")
    found = verdict(results)
    assert found is not None and found.metric == "ibs" and found.first.over == "rows"
    assert results.holdings is not None and results.holdings.classes == ("censored", "event")
    central = results.baseline("central")
    assert central is not None and central.scores["harrell_c"][:, -1].mean() > 0.6


def test_the_page_has_curves_calibration_and_every_metric(days: Path) -> None:
    text = write_report(days).read_text()
    assert "What is predicted, party by party" in text and "Uno&#39;s C" in text
    assert "Kaplan-Meier" in text and "said to survive the time 1000" in text
    assert (days / "plots" / "survival.svg").exists()
    assert (days / "plots" / "outcome-calibration.svg").exists()


def test_predictions_are_the_share_that_survives_each_edge(days: Path) -> None:
    text = predictions(kept(days, "east"), EXAMPLES / "own-survival.csv")
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["survival_200", "survival_500", "survival_1000"] and len(rows) == 301
    said = np.array(rows[1:], dtype=float)
    assert ((said >= 0) & (said <= 1)).all() and (np.diff(said, axis=1) <= 1e-6).all()


def test_a_run_that_stopped_ends_as_if_it_had_not(days: Path, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.method == "avg" and progress.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(survival(), tmp_path / "run", report=stop)
    resume(tmp_path / "run")
    assert measured(tmp_path / "run") == measured(days)


def test_every_network_gives_the_same_bits(days: Path, tmp_path: Path) -> None:
    start(survival(network__kind="wire"), tmp_path / "run")
    assert measured(tmp_path / "run") == measured(days)


def test_rows_may_be_divided_by_events(tmp_path: Path) -> None:
    spec = survival(
        partition__name="dirichlet",
        partition__alpha=1.0,
        partition__parties=3,
        partition__min_rows=20,
        methods=["local", "avg"],
        data__group=None,
        data__columns=["age", "stage", "marker", "treated"],
    )
    start(spec, tmp_path / "run")
    assert read_results(tmp_path / "run").metrics[0] == "ibs"


def test_quantiles_from_a_table_to_predictions(tmp_path: Path) -> None:
    spec = survival(
        data__path=str(EXAMPLES / "own-data.csv"),
        data__time=None,
        data__event=None,
        data__target="pressure",
        data__kind="regression",
        data__columns=["age", "cholesterol"],
        outcome={"range": [90, 190], "bins": 10, "quantiles": [0.1, 0.5, 0.9]},
        methods=["local", "avg"],
    )
    folder = tmp_path / "run"
    start(spec, folder)
    results = read_results(folder)
    assert results.metrics[0] == "pinball" and "Quantiles" in write_report(folder).read_text()
    party = results.parties[0]
    rows = list(
        csv.reader(io.StringIO(predictions(kept(folder, party), EXAMPLES / "own-data.csv")))
    )
    assert rows[0] == ["q10", "q50", "q90"]
    said = np.array(rows[1:], dtype=float)
    assert (np.diff(said, axis=1) > 0).all() and said.min() >= 90 and said.max() <= 190


def rewritten(tmp_path: Path, change: Any) -> str:
    """A copy of the table with every row changed."""
    with (EXAMPLES / "own-survival.csv").open() as file:
        rows = [change(row, i) for i, row in enumerate(csv.DictReader(file))]
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, rows[0])
        lines.writeheader()
        lines.writerows(rows)
    return str(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row, i: row | {"days": -5 if i == 2 else row["days"]}, "row 3: -5"),
        (lambda row, i: row | {"died": "dead" if i == 2 else row["died"]}, "an event is 'dead'"),
        (lambda row, i: row | {"died": "" if i == 2 else row["died"]}, "no value in 'died'"),
        (lambda row, i: row | {"days": "" if i == 2 else row["days"]}, "no value in 'days'"),
        (
            lambda row, i: row | {"died": "no" if row["clinic"] == "east" else row["died"]},
            "party 'east', private data: all of its rows are censored",
        ),
    ],
)
def test_a_table_is_refused_by_its_column(change: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as found:
        run.rehearse(survival(data__path=rewritten(tmp_path, change)))
    assert said in str(found.value) and found.value.mend


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data__event": "dies"}, "there is no event column 'dies'"),
        ({"data__event": None}, "event None"),
        ({"data__target": "died"}, "target is 'died'"),
        ({"outcome": None}, "horizon = "),
        ({"outcome": {"edges": [9000, 9999]}}, "the first edge is 9000"),
        (
            {"data__time": None, "data__event": None, "data__target": "died"},
            "data.time and data.event",
        ),
        ({"models": [{"name": "ridge"}]}, "which models of classes learn"),
        ({"metric": "accuracy"}, "'accuracy' is not one of this outcome"),
        ({"methods": ["true-labels"]}, "true labels are known"),
        (
            {
                "data__time": None,
                "data__event": None,
                "data__target": "died",
                "outcome": {"edges": [1, 2, 3], "quantiles": [0.5]},
            },
            "quantiles are of a number",
        ),
    ],
)
def test_a_configuration_is_refused_before_any_work(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as found:
        run.rehearse(survival(**changes))
    assert said in str(found.value)


@pytest.mark.parametrize(
    "outcome", [{"edges": [2, 1]}, {}, {"horizon": 5, "edges": [1]}, {"bins": 3}]
)
def test_bins_that_cannot_be_are_refused_with_their_section(outcome: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="outcome"):
        survival(outcome=outcome)


def test_public_rows_have_as_many_events_as_the_others() -> None:
    setup = gather(survival(), 0)
    events = [setup.dataset.y[rows, 1].mean() for rows in setup.rows]
    groups = [setup.dataset.y[setup.dataset.group == name, 1].mean() for name in setup.names]
    assert events == pytest.approx(groups, abs=0.02) and setup.public_labels is None
