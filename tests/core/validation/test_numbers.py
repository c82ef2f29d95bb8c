"""Range checks accept what lies within the bounds, and say how to mend the rest."""

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.validation.numbers import (
    check_choice,
    check_flag,
    check_number,
    check_numbers,
)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_a_number_within_inclusive_bounds_is_accepted(value):
    check_number("share", value, at_least=0, at_most=1)


@pytest.mark.parametrize("value", [0, 1, -1, 2.0, np.inf, np.nan, True, None, "0.5", [0.5]])
def test_what_is_no_number_within_exclusive_bounds_is_refused(value):
    with pytest.raises(InvalidInput) as error:
        check_number("share", value, above=0, below=1, where="split")
    assert (error.value.what, error.value.where) == (f"share is {value!r}", "split")
    assert error.value.mend in {
        f"Give a {kind} above 0 and below 1." for kind in ("number", "finite number")
    }


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_without_bounds_a_number_is_still_finite(value):
    with pytest.raises(InvalidInput, match="Give a finite number\\."):
        check_number("offset", value)


def test_a_whole_number_is_an_integer_of_any_width():
    check_number("rows", np.uint8(3), above=0, whole=True)
    with pytest.raises(InvalidInput, match="Give a whole number of at least 1,000\\."):
        check_number("rows", 1000.0, at_least=1000, whole=True)


def test_an_optional_number_may_be_left_out_and_a_given_remedy_is_told():
    check_number("clip", None, above=0, optional=True)
    with pytest.raises(InvalidInput, match="above 0, or leave it out"):
        check_number("clip", 0, above=0, optional=True)
    with pytest.raises(InvalidInput, match="Scale it"):
        check_number("clip", 0, above=0, mend="Scale it.")


def test_of_a_list_the_number_that_does_not_fit_is_named():
    check_numbers("hidden", (64, 32), above=0, whole=True)
    with pytest.raises(InvalidInput, match=r"hidden\[1\] is 0"):
        check_numbers("hidden", [64, 0], above=0, whole=True, where="mlp")
    for values in (64, "64", None):
        with pytest.raises(InvalidInput, match="Give a list of numbers"):
            check_numbers("hidden", values)


def test_a_choice_is_one_of_its_words():
    check_choice("form", "top", ["top", "all"])
    for value in ("tpo", None, ["top"]):
        with pytest.raises(InvalidInput):
            check_choice("form", value, ["top", "all"])


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_a_flag_is_true_or_false_and_nothing_like_it(value):
    check_flag("flip", False)
    with pytest.raises(InvalidInput, match="Give true or false"):
        check_flag("flip", value)
