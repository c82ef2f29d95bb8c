"""What inputs must be, by themselves and beside one another."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import check_alike, check_inputs

X = np.random.default_rng(0).normal(size=(20, 2))


def test_inputs_of_an_integer_type_are_finite():
    check_inputs(np.array([1, 2]), where="")


@pytest.mark.parametrize(
    ("private", "public", "why"),
    [
        (X, X[:, :1], r"shape \(2,\), a public row \(1,\)"),
        (X, np.array(["a", "b"]), "one is text"),
        (np.abs(X) * 255, np.abs(X), "2 of 2 columns are on another scale"),
        (X + 30, X, "on another scale"),
        (X * np.array([1, 100]), X, "1 of 2 columns"),
    ],
)
def test_public_data_of_another_kind(private, public, why):
    with pytest.raises(InvalidInput, match=why):
        check_alike(private, public, where="a")


def test_public_data_of_the_same_kind():
    """Another sample, a constant column on one side, integers against floats: all the same kind."""
    check_alike(X, 1.5 * X[:5] + 0.5, where="a")
    check_alike(X * [1, 0], X, where="a")
    check_alike((X * 100).astype(int), X * 100, where="a")
    check_alike(np.array(["a"]), np.array(["b", "c"]), where="a")
    # The spread of a constant is rounding: 1e-17 in ten rows, another in 490.
    check_alike(np.full((10, 1), 0.1), np.full((490, 1), 0.1), where="a")


def test_a_sorted_table_has_the_same_scale():
    """The first 2,000 of 100,000 sorted rows lie at one end."""
    rows = np.random.default_rng(0).random((100_000, 1))
    check_alike(np.sort(rows, axis=0), rows[:5_000], where="a")
