"""Two classes, one looked for: figures by hand, and on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    roc_auc_score,
)

from consilience.lab.experiments import Ledger
from consilience.lab.experiments.measured_rows import _encoded
from consilience.lab.report import read_results, verdict
from consilience.lab.report.clinical import calibration_curve, clinical, measure
from consilience.lab.report.page import write_report

Make = Callable[..., Path]

SICK = np.arange(60) % 3 == 0  # 20 of 60
BETTER = np.where(SICK, 0.75, 0.25)


def sure(share: float) -> np.ndarray:
    """Probabilities that are on the right side for this share of the rows, in order."""
    return np.where(np.arange(60) < 60 * share, BETTER, 1 - BETTER)


def run(make_run: Make, *, groups: bool = False, **settings) -> Path:
    """Two parties with everyone's 60 rows for their own: a rises from 40 rows on the right side to all."""
    scores = {"accuracy": [[0.5, 0.5], [0.6, 0.5]], "auc": [[0.5, 0.5], [0.6, 0.5]]}
    folder = make_run({"local": {0: scores}, "avg": {0: scores}}, **settings)
    ledger = Ledger(folder / "ledger.sqlite")
    for party in "ab":
        ledger.write("own_rows", [(0, party, "rows", np.ones(60, "<f4").tobytes())])
        for method, said in (
            ("local", sure(2 / 3)),
            ("avg", sure(1) if party == "a" else sure(0.5)),
        ):
            signed = np.where(SICK, said, -said)
            ledger.write("row_scores", [(method, 0, 1, party, "auc", _encoded("auc", signed))])
    if groups:
        ledger.note(**{"subgroup 0": ["f"] * 30 + ["m"] * 30})
    ledger.close()
    return folder


def test_figures_are_those_of_scikit_learn_with_ties_and_weights() -> None:
    rng = np.random.default_rng(0)
    said, truth = rng.choice([0.1, 0.4, 0.6, 0.8], 50), rng.random(50) < 0.3
    weights = rng.integers(0, 3, (2, 50))
    found = measure(weights, said, truth)
    for draw, given in enumerate(weights):
        expected = {
            "auc": roc_auc_score(truth, said, sample_weight=given),
            "average_precision": average_precision_score(truth, said, sample_weight=given),
            "balanced_accuracy": balanced_accuracy_score(truth, said > 0.5, sample_weight=given),
            "brier": brier_score_loss(truth, said, sample_weight=given),
        }
        assert {name: values[draw] for name, values in found.items()} == pytest.approx(expected)


def test_a_calibration_curve_by_hand() -> None:
    """Ten rows in five pairs; of the pair at 0.9 one is of the class. Equal draws have no width."""
    said = np.array([0.1, 0.1, 0.3, 0.3, 0.5, 0.5, 0.7, 0.7, 0.9, 0.9])
    truth = np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, 0]).astype(bool)
    x, y, low, high = calibration_curve(said, truth, np.ones(10), np.ones((2, 10)))
    assert x == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    for found in (y, low, high):
        assert found == pytest.approx([0, 0, 0.5, 1, 0.5])
    x, y, *_ = calibration_curve(np.full(4, 0.5), np.arange(4) == 0, np.ones(4), np.ones((1, 4)))
    assert (x.tolist(), y.tolist()) == ([0.5], [0.25])


def test_the_rarer_class_is_looked_for_and_intervals_are_over_rows(make_run: Make) -> None:
    results = read_results(run(make_run))
    known = clinical(results, verdict(results))
    assert known is not None and (known.positive, known.share) == ("yes", pytest.approx(1 / 3))
    (table,) = known.tables()
    (name, when, *before), (_, _, *after) = table["rows"][:2]
    assert (name, when, after[0]) == ("a", "alone", "1.000 (1.000 to 1.000)")
    assert after[3] == "0.062 (0.062 to 0.062)"  # 0.25² on every row
    value, low, high = (
        float(one) for one in before[2].replace("(", "").strip(")").replace("to", "").split()
    )
    assert low < value < high and value == pytest.approx(2 / 3, abs=0.02)


def test_another_class_can_be_looked_for(make_run: Make) -> None:
    results = read_results(run(make_run, report={"positive": "no"}))
    known = clinical(results, verdict(results))
    assert known is not None and (known.positive, known.share) == ("no", pytest.approx(2 / 3))
    assert known.tables()[0]["rows"][1][2] == "1.000 (1.000 to 1.000)"


def test_groups_stand_on_the_page(make_run: Make) -> None:
    folder = run(make_run, groups=True, report={"subgroup": "sex"})
    results = read_results(folder)
    known = clinical(results, verdict(results))
    assert known is not None
    table = known.by_group()
    assert table is not None
    assert [row[:4] for row in table["rows"]] == [
        ["f", "30", "10", "alone"],
        ["", "", "", "after"],
        ["m", "30", "10", "alone"],
        ["", "", "", "after"],
    ]
    page = write_report(folder).read_text()
    assert "<h2>Finding yes</h2>" in page and "<h3>By sex</h3>" in page
    assert (folder / "plots" / "calibration.svg").exists()


def test_few_rows_of_a_class_are_not_judged(make_run: Make) -> None:
    folder = run(make_run)
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.note(**{"subgroup 0": ["a few"] * 6 + ["the rest"] * 54})
    ledger.close()
    results = read_results(folder)
    known = clinical(results, verdict(results))
    assert known is not None
    assert known.by_group()["rows"][0][:4] == ["a few", "6", "2", "too few to tell"]


def test_without_scores_of_rows_there_is_nothing(make_run: Make) -> None:
    results = read_results(make_run({"avg": {0: {"accuracy": [[0.5, 0.5], [0.6, 0.5]]}}}))
    assert clinical(results, verdict(results)) is None
