"""The class-conditional Gaussians against densities worked out by hand."""

from __future__ import annotations

from math import exp, log, pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.density import VARIANCE_FLOOR, ClassGaussians


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def test_two_classes():
    """Class 0 at -1, 1 has mean 0 and variance 1; class 1 at 2, 6 has mean 4 and variance 4.

    p(0) = (1/2) (0.3989423 + exp(-16/8) 0.3989423 / 2) = 0.2129689, ln p = -1.5466093.
    """
    density = ClassGaussians.fit(column(-1, 1, 2, 6), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(density.means, [[0], [4]])
    np.testing.assert_allclose(density.variances, [[1], [4]])
    assert density.log_density(column(0))[0] == pytest.approx(-1.5466093, abs=1e-6)
    by_hand = (1 / sqrt(2 * pi) + exp(-2) / sqrt(8 * pi)) / 2
    assert density.log_density(column(0))[0] == pytest.approx(log(by_hand))


def test_dimensions_are_independent():
    """One class at (-1, -2) and (1, 2): ln p(0, 0) = -ln(2 pi) - (ln 1 + ln 4)/2 = -2.531024."""
    density = ClassGaussians.fit(np.array([[-1.0, -2.0], [1.0, 2.0]]), np.zeros(2, dtype=int))
    assert density.log_density(np.zeros((1, 2)))[0] == pytest.approx(-2.531024, abs=1e-6)


def test_a_single_row_takes_the_pooled_variance():
    """Squares within classes sum to 1 + 1 + 0; three rows less two classes: variance 2."""
    density = ClassGaussians.fit(column(-1, 1, 5), np.array([3, 3, 7]))
    np.testing.assert_allclose(density.variances, [[1], [2]])


def test_one_row_in_all_has_the_floor():
    density = ClassGaussians.fit(column(2), np.array([0]))
    np.testing.assert_allclose(density.variances, [[VARIANCE_FLOOR]])
    expected = -0.5 * log(2 * pi * VARIANCE_FLOOR)
    assert density.log_density(column(2))[0] == pytest.approx(expected)


def test_a_constant_column_has_the_floor():
    density = ClassGaussians.fit(column(3, 3, 3), np.zeros(3, dtype=int), floor=0.25)
    np.testing.assert_allclose(density.variances, [[0.25]])


def test_far_away_it_does_not_vanish():
    """A million standard deviations away the density is 0 in floating point, its logarithm is not."""
    density = ClassGaussians.fit(column(-1, 1), np.zeros(2, dtype=int))
    far = density.log_density(column(1e6))[0]
    assert far == pytest.approx(-0.5e12 - 0.5 * log(2 * pi))


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_it_integrates_to_one(seed, classes):
    rng = np.random.default_rng(seed)
    density = ClassGaussians.fit(rng.normal(size=(12, 1)), np.arange(12) % classes, floor=0.01)
    grid = np.linspace(-12, 12, 4801)
    total = np.exp(density.log_density(grid[:, None])).sum() * (grid[1] - grid[0])
    assert total == pytest.approx(1, abs=1e-3)
