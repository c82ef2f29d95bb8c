"""A dozen cells of the robustness benchmark, of two rounds, on a seed that no threshold was chosen on."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def robustness():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import robustness

        patch.setattr(robustness, "ROUNDS", 2)
        patch.setattr(
            robustness, "tried", cache(robustness.tried)
        )  # attacks of a cell share their floor
        yield robustness
        for name in ("robustness", "rivals", "rivals_page", "page"):
            sys.modules.pop(name, None)


SEED = 200


def marked(*cells):
    """Parameters of a test, those of heart disease with the mark of its data."""
    heart = pytest.mark.needs_data("heart-disease")
    return [
        pytest.param(*one, marks=heart if one[0].startswith("h") else ())
        for one in (cell if isinstance(cell, tuple) else (cell,) for cell in cells)
    ]


CELLS = [
    ("d5", False, "oblivious", 1, "default"),
    ("d5", False, "oblivious", 3, "default"),
    ("d5", False, "quiet", 1, "default"),
    ("d5", False, "threader", 1, "default"),
    ("d5", False, "jitter", 1, "default"),
    ("d2", True, "oblivious", 1, "default"),
    ("d2", True, "oblivious", 3, "default"),
    ("h4", False, "oblivious", 1, "default"),
    ("h4", False, "quiet", 1, "default"),
    ("h4", True, "oblivious", 1, "default"),
    ("d5", False, "threader", 3, "root"),
    ("d5", False, "greedy", 3, "root"),
]


@pytest.mark.parametrize(("cell", "coarse", "attack", "count", "guard"), marked(*CELLS))
def test_attackers_are_excluded_and_cost_a_point_at_most(
    robustness, cell, coarse, attack, count, guard
):
    trial = robustness.Trial(cell, coarse, SEED, attack, count, guard)
    found = robustness.tried(trial)
    floor = robustness.tried(robustness.floor(trial))
    assert set(found["excluded"]) == set(found["malicious"])
    assert floor["accuracy"] - found["accuracy"] <= 1


UNSEEN = [
    ("d10", "jitter", 3),
    ("h10", "quiet", 3),
    ("h10", "jitter", 3),
    ("u", "threader", 1),
    ("h4", "threader", 1),
    ("d5", "sybil", 3),
    ("h4", "constant", 1),
]


@pytest.mark.parametrize(("cell", "attack", "count"), marked(*UNSEEN))
def test_attackers_cost_a_point_at_most_with_coarse_ratios(robustness, cell, attack, count):
    """No claims tell who they are: answers that disagree with the others count less."""
    trial = robustness.Trial(cell, True, SEED, attack, count, "default")
    found, floor = (robustness.tried(one) for one in (trial, robustness.floor(trial)))
    assert set(found["excluded"]) <= set(found["malicious"])
    assert floor["accuracy"] - found["accuracy"] <= 1


@pytest.mark.parametrize("attack", ["threader", "framer", "next-class", "greedy"])
def test_ten_labelled_rows_a_class_bear_what_nobody_can_without_them(robustness, attack):
    """Three of ten, each of whom knows five classes, with coarse ratios of few classes."""
    trial = robustness.Trial("d5", True, SEED, attack, 3, "root")
    found, floor = (robustness.tried(one) for one in (trial, robustness.floor(trial)))
    assert floor["accuracy"] - found["accuracy"] <= 1


@pytest.mark.parametrize("cell", marked("d2", "d5", "u", "h4"))
@pytest.mark.parametrize("coarse", [False, True])
def test_no_honest_party_is_excluded(robustness, cell, coarse):
    trial = robustness.Trial(cell, coarse, SEED, "none", 0, "default")
    assert robustness.tried(trial)["excluded"] == {}


def test_the_unguarded_default_is_destroyed_by_one_party(robustness):
    """The attack that the default bears: without the guard the teacher is the attacker's."""
    trial = robustness.Trial("d5", False, SEED, "oblivious", 1, "unguarded")
    assert robustness.tried(trial)["accuracy"] < 40
