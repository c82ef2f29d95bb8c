"""A run of rows with several labels, from the file to the page and to predictions."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput
from consilience.lab.cli.main import app
from consilience.lab.config.experiment import Spec
from consilience.lab.data import load_table
from consilience.lab.experiments import gather, parse_spec, start
from consilience.lab.report.page import write_report
from consilience.lab.report.reading import read_results

pytestmark = pytest.mark.usefixtures("sketched")

RUN = """
name = "notes"
methods = ["local", "auto", "central"]
[data]
name = "csv"
labels = ["cough", "fever"]
group = "ward"
public = 30
[partition]
name = "group"
[[models]]
name = "naive-bayes"
[protocol]
rounds = 1
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two wards of 80 rows; the south says nothing of fever."""
    rng = np.random.default_rng(0)
    with (tmp_path / "notes.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["a", "b", "ward", "cough", "fever"])
        for i in range(160):
            a, b = rng.normal(size=2).round(3)
            fever = "" if i % 2 else "yes" if b > 0.5 else "no"
            lines.writerow([a, b, ("north", "south")[i % 2], "yes" if a > 0 else "no", fever])
    return tmp_path / "notes.csv"


def spec(table: Path, **data: Any) -> Spec:
    document = tomllib.loads(RUN)
    document["data"] |= {"path": str(table), **data}
    return parse_spec(document, where="test")


def test_labels_are_read_with_their_gaps(table: Path) -> None:
    found = load_table(table, labels=["fever", "cough"], group="ward", test_fraction=0.25)
    assert found.columns == ("a", "b") and found.labels == ("fever", "cough")
    south = found.group == "south"
    assert np.isnan(found.y[south, 0]).all() and not np.isnan(found.y[~south]).any()
    np.testing.assert_array_equal(found.y[:, 1], found.X[:, 0] > 0)
    assert found.strata_names == ("none", "fever", "cough")
    rarest = np.where(found.y[:, 0] == 1, 1, np.where(found.y[:, 1] == 1, 2, 0))
    np.testing.assert_array_equal(found.strata(found.y), rarest)


def test_a_run_of_labels(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(spec(table), run)
    results = read_results(run)
    assert results.parties == ("north", "south") and not results.failures
    local, auto = results.method("local"), results.method("auto")
    assert local is not None and auto is not None
    assert local.scores["macro_auc"][0, -1, 1] < 0.8 < auto.scores["macro_auc"][0, -1, 1]
    page = write_report(run).read_text()
    assert "Label by label" in page and "Several labels, under auto" in page
    words = ["predict", str(run), "--party", "south", str(table)]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    rows = list(csv.reader(said.stdout.splitlines()))
    assert rows[0] == ["cough", "fever"] and len(rows) == 161
    values, b = np.array(rows[1:], dtype=float), np.loadtxt(table, str, delimiter=",")[1:, 1]
    assert ((values >= 0) & (values <= 1)).all()
    assert values[b.astype(float) > 1, 1].mean() > values[b.astype(float) < 0, 1].mean() + 0.2


@pytest.mark.parametrize(
    "data, why",
    [
        ({"labels": ["cough", "fevre"]}, "no label column 'fevre'(.|\n)*'fever'"),
        ({"labels": ["cough", "cough"]}, "labels are"),
        ({"labels": ["cough", "b"]}, "label 'b' is"),
        ({"target": "cough"}, "and no target"),
        ({"labels": "cough"}, "labels"),
    ],
)
def test_labels_that_cannot_be_are_refused(table: Path, data: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        gather(spec(table, **data), 0)


def test_labels_have_no_bins_and_no_regressor(table: Path) -> None:
    document = tomllib.loads(RUN)
    document["data"]["path"] = str(table)
    with pytest.raises(InvalidInput, match="rows have several labels"):
        gather(parse_spec(document | {"outcome": {"horizon": 3.0}}, where="test"), 0)
    with pytest.raises(InvalidInput, match="it is for regression"):
        gather(parse_spec(document | {"models": [{"name": "ridge"}]}, where="test"), 0)
