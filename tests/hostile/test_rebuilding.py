"""Rebuilding of rows, small: it succeeds on exact ratios and fails on coarse ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import rebuilding


@pytest.fixture
def attack() -> Any:
    return rebuilding


def rebuilt(attack: Any, rule: str, size: int, priors: tuple[float, ...]) -> Any:
    table = attack.table_of("digits", 150)
    return attack.rebuilding(table, size, attack.LOOKS[rule], priors=priors, trials=1, starts=2)


def test_rows_are_rebuilt_from_exact_ratios(attack: Any) -> None:
    found = rebuilt(attack, "exact", 2, (1e-10,))
    assert found.distances.max() < 0.01 < attack.CLOSE < found.nearest.min()


@pytest.mark.parametrize("rule", ["coarse", "coarse, finest"])
def test_they_are_not_from_coarse_ones(attack: Any, rule: str) -> None:
    """Not a single row: all are farther away than the nearest public row, which the attacker has."""
    found = rebuilt(attack, rule, 20, (0.1, 1.0))
    assert found.distances.min() > attack.CLOSE
    assert np.median(found.distances) > np.median(found.nearest)
    assert np.median(found.seen) > np.median(found.seen_nearest)
    assert not len(rebuilt(attack, rule, 19, (1.0,)).distances), "nothing leaves of 19 rows"


def test_slopes_are_those_of_the_sums(attack: Any) -> None:
    rng = np.random.default_rng(0)
    landmarks, rows, spread = (
        rng.normal(size=(4, 3)),
        rng.normal(size=(2, 3)),
        np.array([1.0, 2, 3]),
    )
    same = lambda z: z  # noqa: E731
    known = attack.Known(landmarks, 5.0, np.zeros(4), 0.5, spread, same, same)
    slopes = attack.jacobian(known, rows, known.near(rows))
    for i, step in enumerate(1e-6 * np.eye(6).reshape(6, 2, 3)):
        further = known.near(rows + step * spread).sum(axis=0) - known.near(rows).sum(axis=0)
        np.testing.assert_allclose(slopes[:, i], further / 1e-6 / 0.5, rtol=1e-4, atol=1e-6)


def test_members_are_told_by_exact_ratios_and_hardly_by_coarse_ones(attack: Any) -> None:
    table = attack.table_of("census-like", 300)
    exact, _ = attack.membership(table, attack.LOOKS["exact"], trials=2)
    coarse, people = attack.membership(table, attack.LOOKS["coarse"], trials=10)
    assert people == 200 and exact > 0.99
    assert coarse < 0.7
    person, _ = attack.around(table, attack.RATIOS["exact"], people=16)
    assert person == 1.0
