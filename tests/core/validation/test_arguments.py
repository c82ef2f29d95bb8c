"""Options are checked by name and type before anything is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from consilience.core.aggregation import Aggregator, avg, suwa, trimmed_mean
from consilience.core.errors import InvalidInput
from consilience.core.validation.arguments import check_arguments, expected, may_be


def free(**anything: int) -> None: ...


def two(first: int, *, second: str = "x") -> None: ...


def test_what_can_be_called_passes():
    check_arguments(suwa, {"temperature": 0.5}, where="")
    check_arguments(suwa, {}, where="")
    check_arguments(two, {"second": "y"}, where="", given=["first"])
    check_arguments(free, {"whatever": 1}, where="")


@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        (suwa, {"temprature": 1.0}, "unknown option 'temprature'\n  Did you mean 'temperature'?"),
        (avg, {"share": 0.1}, "unknown option 'share'\n  It takes no options."),
        (two, {}, "needs the option 'first'"),
        (trimmed_mean, {"share": "a lot"}, "share is 'a lot'\n  It should be a number."),
    ],
)
def test_what_cannot_is_said_by_name(function, options, why):
    with pytest.raises(InvalidInput) as error:
        check_arguments(function, options, where="here")
    assert str(error.value) == f"here: {why}"


def test_what_the_caller_fills_in_is_hidden():
    with pytest.raises(InvalidInput, match="unknown option 'first'"):
        check_arguments(two, {"first": 1}, where="", given=["first"])


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        (1, float, True),
        (True, float, False),
        (True, int, False),
        (1.5, int, False),
        (np.float64(0.5), float, True),
        (np.int64(3), int, True),
        (None, float | None, True),
        ("a", float | None, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        ([1, 2], Sequence[int], True),
        ([1, "x"], Sequence[int], False),
        ("ab", Sequence[str], False),
        ({"a": 1}, Mapping[str, float], True),
        ({"a": "x"}, Mapping[str, float], False),
        ([1], Mapping[str, float], False),
        ("uwa", Aggregator, False),
        (suwa, Aggregator, True),
        ("anything", Any, True),
    ],
)
def test_types_are_those_that_a_file_can_spell(value: object, hint: object, fits: bool) -> None:
    """Of what no file can hold, the function that takes it judges: an uncalled rule, a NumPy integer."""
    assert may_be(value, hint) is fits


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | float | None, "a whole number, or a number"),
        (Literal["a", "b"], "'a' or 'b'"),
        (Mapping[str, float], "a table that gives each name a number"),
        (Sequence[int], "a list, each item a whole number"),
        (Aggregator, "a Aggregator"),
    ],
)
def test_types_are_named_in_words(hint: object, words: str) -> None:
    assert expected(hint) == words
