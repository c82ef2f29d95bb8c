"""Rows put back among the distributions."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.aggregation import onto_simplex


def test_negative_shares_are_cut_and_the_rest_rescaled():
    """(1.5, -0.5, 0.5) is (1.5, 0, 0.5) / 2; (0.2, 0.2, 0) is halves; (-1, -2, 0) has nothing left."""
    values = np.array([[1.5, -0.5, 0.5], [0.2, 0.2, 0], [-1, -2, 0], [0.5, 0.25, 0.25]])
    expected = [[0.75, 0, 0.25], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.25, 0.25]]
    np.testing.assert_allclose(onto_simplex(values), expected)
    given = onto_simplex(values, otherwise=np.full((4, 3), 7.0))
    np.testing.assert_array_equal(given[2], [7, 7, 7])


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_distributions_stay_bit_for_bit(precision):
    """Also beside a row that does not, and with a thousand classes, where float32 sums are no longer 1."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(1000), 50).astype(precision)
    rows[7] = np.eye(1000)[0]
    assert onto_simplex(rows) is rows
    rows[3, 0] = -1
    before = rows.copy()
    put_back = onto_simplex(rows)
    others = np.arange(50) != 3
    assert put_back.dtype == precision
    assert put_back[others].tobytes() == before[others].tobytes() == rows[others].tobytes()
    assert put_back[3].min() == 0 and put_back[3].sum() == pytest.approx(1)
