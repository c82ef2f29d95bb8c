"""What ``benchmarks/rivals.py`` counts: numbers that leave a party, and who is worse off."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import rivals

    monkeypatch.setattr(rivals, "FOLDER", tmp_path)
    monkeypatch.setitem(
        rivals.PROBLEMS,
        "digits",
        {"data": {"public": 50, "test_rows": 40}, "model": {"name": "naive-bayes"}},
    )
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
    setting = {"name": "classes", "per_party": 5, "samples": 40}
    common = {"data": "digits", "parties": 4, "models": "one", "rounds": 2, "repetition": 0}
    common["purpose"] = "taught"
    found = rivals.trial(setting=setting, rule=rule, **common)
    assert (found["floats"], found["parties"]) == (floats, 4)
    assert rule != "alone" or found["worse_error"] == found["worse_log_loss"] == 0


def test_worse_off_by_more_than_a_standard_error(rivals: Any) -> None:
    """Means 1/2 and 1/4 of four rows, errors √(4/4)/4 = 1/4 and √(3/4)/4 = 0.22: both; 0 ± 0.5: not."""
    own = np.ones(4)
    assert rivals._worse(np.array([1.0, 1, 0, 0]), own)
    assert rivals._worse(np.array([1.0, 0, 0, 0]), own)
    assert not rivals._worse(np.array([1.0, -1, 1, -1]), own)
    assert not rivals._worse(np.zeros(4), own)
    assert not rivals._worse(np.array([0.0, 0, 5, 5]), np.array([1.0, 1, 0, 0]))
