"""The table of rivals: numbers that leave a party, who is worse off, and the place of `auto`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

OPTIONS = {"rounds": 2, "purpose": "taught", "code": "", "repetition": 0}


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import rivals

    monkeypatch.setattr(rivals, "FOLDER", tmp_path)
    small = rivals.Problem({"name": "naive-bayes"}, 10, samples=40, public=50)
    monkeypatch.setitem(rivals.PROBLEMS, "digits", small)
    rivals.prepared.cache_clear()
    return rivals


@pytest.mark.parametrize(
    ("rule", "floats"),
    [
        ("alone", 0),
        ("avg", 2 * 50 * 10),
        ("fedgo", 2 * 50 * 10 + 50 + 1),
        ("density-ratio", 2 * 50 * 10 + 50 * 10),
    ],
)
def test_numbers_that_leave_a_party_in_two_rounds(rivals: Any, rule: str, floats: int) -> None:
    """50 public rows and 10 classes: predictions in both rounds, scores once."""
    cell = ("digits", "k = 5 of 10", 4, "one")
    found = rivals.trial(cell=cell, rule=rule, **OPTIONS)
    assert (found["floats"], found["parties"]) == (floats, 4)
    assert rule != "alone" or found["worse_error"] == found["worse_paired_log_loss"] == 0
    assert rule == "alone" or (found["teacher"] > 0.5 and found["log_loss_teacher"] > 0)
    for name in ("error", "log_loss"):  # worse off by both errors
        assert found[f"worse_both_{name}"] <= min(
            found[f"worse_{name}"], found[f"worse_paired_{name}"]
        )


def test_models_trained_once_are_those_that_every_rule_would_train(rivals: Any) -> None:
    cell = rivals.Cell("digits", "k = 5 of 10", 4, "one")
    ready = rivals.prepared(cell, "own", 0)
    again, *_ = rivals.outputs(ready.setup, "avg", 1, 0, ready.learners)
    anew, *_ = rivals.outputs(ready.setup, "avg", 1, 0, {})
    np.testing.assert_array_equal(again["mixed"], anew["mixed"])
    assert len(ready.learners) == 4 and (again["taught"] != ready.outputs).any()


def test_the_standard_error_of_a_mean_over_own_rows(rivals: Any) -> None:
    """1, 1, 0, 0 have the mean 1/2 and each is 1/2 from it: √(4/4)/4 = 1/4; other rows do not count."""
    assert rivals._error(np.array([1.0, 1, 0, 0]), np.ones(4)) == pytest.approx(1 / 4)
    assert rivals._error(np.array([1.0, 0, 5, 5]), np.array([1.0, 1, 0, 0])) == pytest.approx(
        8**-0.5
    )


def test_every_cell_of_the_table_can_be_dealt_out_and_auto_is_in_all(rivals: Any) -> None:
    cells = rivals.plan()
    assert len(set(cells)) == len(cells) > 80
    for cell in cells:
        assert "auto" in cell.rules and cell.setting in rivals.settings(cell.data)
    assert {"mean", "value-density-ratio"} < set(rivals.Cell("diabetes", "sorted", 4, "one").rules)


def test_the_page_names_the_cells_in_which_auto_is_behind(rivals: Any) -> None:
    """Taught, auto is 0.1 behind certainty; of the parties' models first. Of ten party-runs one is worse."""
    line = dict.fromkeys(rivals.COLUMNS, "0") | {
        "seeds": "1",
        "code": "x",
        "way": "",
        "way_taught": "1",
    }
    scores = {"alone": (0.2, 0.2), "true-labels": (0.9, 0.9), "avg": (0.5, 0.5), "auto": (0.6, 0.7)}
    rows = [
        line
        | {"rule": rule, "taught": str(taught), "score": str(score), "worse_off_both": "1"}
        | {"log_loss_taught": str(1 - score), "teacher": str(score)}
        for rule, (taught, score) in (scores | {"certainty": (0.7, 0.6)}).items()
    ]
    cell = {"data": "digits", "setting": "k = 2 of 10", "parties": "10", "models": "one"}
    rows = [row | cell | {"purpose": "own"} for row in rows]
    told = "\n".join(rivals.rivals_page.page(rows, []))
    assert "90.0% of 10 in accuracy" in told
    assert "on everyone's rows: first in 1 of 1 cells; elsewhere none." in told
    taught, own = (
        told.split(f"**{whose}**: ")[1] for whose in ("the taught models", "the parties' models")
    )
    assert taught.startswith(
        "first in 0 of 1 cells, first or close in 0; 90 % of the way to true labels in 1"
    )
    assert (
        "behind: digits, k = 2 of 10, 10 parties (certainty; its teacher 0.600, auto's 0.700)."
        in taught.split("\n")[0]
    )
    assert "behind: nowhere." in own.split("\n")[0]


def test_the_place_of_auto(rivals: Any) -> None:
    """0.80 is second to 0.83, whose error is 0.02 and then 0.04; true labels do not count. Errors are better
    when they are smaller."""
    scores = {"avg": 0.7, "best": 0.83, "auto": 0.8, "true-labels": 0.9}
    rules = {n: {"score": str(s), "score_error": "0.02"} for n, s in scores.items()}
    assert rivals.rivals_page.place(rules, "score") == (2, 3, False, "best")
    rules["best"]["score_error"] = "0.04"
    assert rivals.rivals_page.place(rules, "score") == (2, 3, True, "best")
    rules["mean"] = rules.pop("avg")
    assert rivals.rivals_page.place(rules, "score") == (2, 3, False, "mean")
