"""Options are checked by name and type before anything is called."""

from __future__ import annotations

import pytest

from consilience.core.aggregation import avg, suwa, trimmed_mean
from consilience.core.errors import InvalidInput
from consilience.lab.config.options import check_arguments


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
        (trimmed_mean, {"share": "a lot"}, "share is 'a lot'\n  It should be a valid number."),
    ],
)
def test_what_cannot_is_said_by_name(function, options, why):
    with pytest.raises(InvalidInput) as error:
        check_arguments(function, options, where="here")
    assert str(error.value) == f"here: {why}"


def test_what_the_caller_fills_in_is_hidden():
    with pytest.raises(InvalidInput, match="unknown option 'first'"):
        check_arguments(two, {"first": 1}, where="", given=["first"])
