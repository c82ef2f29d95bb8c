"""Numbers are those that were frozen: a move or a rename that changes one shows here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

TOLERANCE = 1e-6
"""Without AVX-512 a sum is added up in another order: networks then differ by 1e-8, all else by nothing."""


@pytest.fixture(scope="module")
def golden() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        import golden

        yield golden
        sys.modules.pop("golden")


def test_protocols_give_the_same_numbers(golden: Any) -> None:
    pytest.importorskip("torch")
    stored = golden.read("protocols.json")
    assert not list(golden.differences(stored, golden.protocols(), tolerance=TOLERANCE))


def test_rules_give_the_same_numbers(golden: Any) -> None:
    stored = golden.read("rules.json")
    assert not list(golden.differences(stored, golden.rules(), tolerance=TOLERANCE))


def test_no_two_rules_have_the_same_numbers(golden: Any) -> None:
    """Else one in place of another would not be found."""
    seen: dict[str, str] = {}
    for name, found in golden.read("rules.json").items():
        told = json.dumps(found["teachers"])
        assert seen.setdefault(told, name) == name


@pytest.mark.slow
def test_the_demo_gives_the_same_numbers(golden: Any) -> None:
    assert not list(
        golden.differences(golden.read("demo.json"), golden.demo(), tolerance=TOLERANCE)
    )


@pytest.mark.parametrize(
    ("stored", "now", "told"),
    [
        ({"a": [1.0, None]}, {"a": [1.0 + 1e-9, None]}, []),
        ({"a": 1.0}, {"a": 1.001}, ["a: 1.0 became 1.001"]),
        ({"a": 1.0}, {}, ["a: is gone"]),
        ({}, {"a": 1.0}, ["a: is new"]),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, ["a: [1.0] became [1.0, 2.0]"]),
        ({"a": "ok"}, {"a": "late"}, ["a: ok became late"]),
        ({"a": "nan"}, {"a": 1.0}, ["a: nan became 1.0"]),
    ],
)
def test_differences_are_named(golden: Any, stored: Any, now: Any, told: list[str]) -> None:
    assert list(golden.differences(stored, now, tolerance=TOLERANCE)) == told


def test_an_array_whose_numbers_change_places_is_another_one(golden: Any) -> None:
    ordered = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert golden.numbers(ordered) != golden.numbers([0.0, 1.0, 2.0, 3.0, 5.0, 4.0])
