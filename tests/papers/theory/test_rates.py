"""Exponents by hand, and slopes of simulated errors whose exponent is known."""

from __future__ import annotations

import numpy as np
import pytest

from consilience_papers.theory import Slope, error_exponent, prescribed_regularization, slope


@pytest.mark.parametrize(
    ("smoothness", "exponent", "regularization"),
    [(0, -1 / 4, 64**-0.5), (1 / 4, -3 / 10, 64**-0.4), (1 / 2, -1 / 3, 1 / 4)],
)
def test_theory_by_hand(smoothness: float, exponent: float, regularization: float):
    """(2r+1)/(4r+4) is 1/4, 1.5/5 and 2/6; 1/(2r+2) is 1/2, 1/2.5 and 1/3."""
    assert error_exponent(smoothness) == pytest.approx(exponent)
    assert prescribed_regularization(64, smoothness) == pytest.approx(regularization)


def test_the_exponent_is_that_of_the_regularization_times_bias():
    """At the prescribed λ the bias λ^{r+1/2} of the error has the exponent of the whole bound."""
    for r in (0, 0.1, 0.5):
        bias = prescribed_regularization(1000, r) ** (r + 0.5)
        assert bias == pytest.approx(1000 ** error_exponent(r))


def test_slope_by_hand():
    """Means 1 and 1/10 at 10 and 100: slope −1. s² = 0.02 and 0.0002 with R = 2: both log means have the
    variance 0.01. c = ±1/ln 10, so the slope has 0.02/(ln 10)², on (0.01 + 0.01)²/(0.01² + 0.01²) = 2 degrees
    of freedom, whose t at 95 % is 4.302653: half the width is 4.302653 · √0.02 / ln 10 = 0.264263.
    """
    measured = slope([10, 100], [[0.9, 1.1], [0.09, 0.11]])
    assert measured.exponent == pytest.approx(-1)
    assert measured.high - measured.exponent == pytest.approx(0.264263, abs=1e-6)
    assert measured.exponent - measured.low == pytest.approx(0.264263, abs=1e-6)
    assert measured.level == 0.95
    assert str(measured) == "-1.000 (-1.264 to -0.736, 95%)"


def test_an_exact_power_is_found_exactly():
    sizes = np.array([10, 30, 50, 400])
    measured = slope(sizes, 3 * sizes[:, None] ** -0.7 * np.ones((1, 2)))
    assert measured.low == pytest.approx(-0.7)
    assert measured.high == pytest.approx(-0.7)


def test_units_do_not_matter():
    rng = np.random.default_rng(0)
    sizes, errors = np.array([5, 9, 20]), rng.gamma(4, size=(3, 6))
    one, other = slope(sizes, errors), slope(1000 * sizes, 7 * errors)
    np.testing.assert_allclose(
        [one.exponent, one.low, one.high], [other.exponent, other.low, other.high]
    )


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("repetitions", [10, 100])
def test_intervals_cover_at_their_level(repetitions: int, level: float):
    """Gamma errors, whose spread goes from a third of the mean at small sizes to a tenth at large ones.

    2,000 simulations see a coverage of 0.95 with a standard error of 0.005, 0.8 with 0.009.
    """
    rng = np.random.default_rng(0)
    sizes = np.array([10, 20, 40, 80, 160])
    shape = np.array([9, 16, 25, 49, 100])[:, None]
    mean = 2 * sizes[:, None] ** -0.6
    covered = 0
    for _ in range(2000):
        errors = rng.gamma(shape, mean / shape, size=(5, repetitions))
        measured = slope(sizes, errors, level=level)
        covered += measured.low <= -0.6 <= measured.high
    assert covered / 2000 == pytest.approx(level, abs=0.02)


def test_verdict():
    measured = Slope(-0.6, -0.7, -0.5, 0.95)
    assert measured.no_slower_than(-0.5)
    assert measured.no_slower_than(-0.69)
    assert not measured.no_slower_than(-0.71)


@pytest.mark.parametrize(
    ("sizes", "errors", "message"),
    [
        ([10, 20], [[1.0, 2.0]], "sizes have shape"),
        ([10, 20], [1.0, 2.0], "sizes have shape"),
        ([10, 20], [[1.0], [2.0]], "two repetitions"),
        ([10, 20], [[1.0, 0.0], [1.0, 1.0]], "above 0"),
        ([10, 20], [[1.0, np.nan], [1.0, 1.0]], "finite"),
        ([0, 20], [[1.0, 1.0], [1.0, 1.0]], "above 0"),
        ([10, 10], [[1.0, 1.0], [1.0, 1.0]], "two different sizes"),
    ],
)
def test_bad_measurements(sizes: list[int], errors: list, message: str):
    with pytest.raises(ValueError, match=message):
        slope(sizes, errors)


def test_bad_parameters():
    with pytest.raises(ValueError, match="level is 95;"):
        slope([1, 2], [[1, 2], [1, 2]], level=95)
    with pytest.raises(ValueError, match="rows is 0"):
        prescribed_regularization(0, 0.5)
    for ask in (error_exponent, lambda r: prescribed_regularization(10, r)):
        with pytest.raises(ValueError, match=r"smoothness is 0\.6"):
            ask(0.6)
