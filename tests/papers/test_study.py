"""Repetitions: kept one by one, gone on with, the same in one process and in two."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import RunFailed
from consilience_papers.park2023.trials import standalone
from consilience_papers.study import Study

CALLS: list[int] = []


def draw(*, repetition: int, scale: float) -> Mapping[str, Any]:
    CALLS.append(repetition)
    rng = np.random.default_rng(repetition)
    return {"one": scale * rng.random(), "three": rng.random(3)}


def broken_at_two(*, repetition: int) -> Mapping[str, Any]:
    CALLS.append(repetition)
    if repetition == 2 and CALLS.count(2) == 1:
        raise KeyboardInterrupt
    return {"value": float(repetition)}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


def test_shapes_and_values(tmp_path: Path) -> None:
    found = Study(tmp_path, processes=1).repeat(draw, 4, label="x", scale=2.0)
    assert found["one"].shape == (4,) and found["three"].shape == (4, 3)
    assert found["one"][3] == 2 * np.random.default_rng(3).random()


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    study = Study(tmp_path, processes=1)
    first = study.repeat(draw, 3, label="x", scale=1.0)
    more = study.repeat(draw, 5, label="x", scale=1.0)
    assert CALLS == [0, 1, 2, 3, 4]
    assert np.array_equal(more["three"][:3], first["three"])
    study.repeat(draw, 3, label="x", scale=2.0)  # another cell
    assert CALLS[5:] == [0, 1, 2]


def test_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    study = Study(tmp_path, processes=1)
    with pytest.raises(KeyboardInterrupt):
        study.repeat(broken_at_two, 4, label="x")
    assert study.repeat(broken_at_two, 4, label="x")["value"].tolist() == [0, 1, 2, 3]
    assert CALLS == [0, 1, 2, 2, 3]


def test_two_processes_give_the_same(tmp_path: Path) -> None:
    # Other processes find a function by its module, so that one of this file will not do.
    one, two = (
        Study(tmp_path / str(processes), processes=processes).repeat(
            standalone, 4, label="x", problem="3", rows=10, grid=(0.1,)
        )
        for processes in (1, 2)
    )
    assert np.array_equal(one["standalone"], two["standalone"])


def test_reports_every_repetition(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    study = Study(tmp_path, processes=1, report=lambda *what: said.append(what))
    study.repeat(draw, 2, label="x", scale=1.0)
    assert said == [("x", 0, 2), ("x", 1, 2), ("x", 2, 2)]


def test_results_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "results.sqlite").write_text("no database at all, but a text")
    with pytest.raises(RunFailed, match="results cannot be kept"):
        Study(tmp_path).repeat(draw, 2, label="x", scale=1.0)


def test_the_store_is_plain(tmp_path: Path) -> None:
    Study(tmp_path, processes=1).repeat(draw, 2, label="x", scale=1.0)
    with sqlite3.connect(tmp_path / "results.sqlite") as store:
        assert store.execute("SELECT count(*) FROM results").fetchone() == (2,)
    store.close()


def test_numbers_of_repetitions(tmp_path: Path) -> None:
    assert Study(tmp_path).times(100, 4) == 100
    assert Study(tmp_path, quick=True).times(100, 4) == 4
    assert Study(tmp_path, repetitions=7, quick=True).times(100, 4) == 7
