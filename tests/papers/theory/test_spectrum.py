"""The effective dimension against the kernel whose spectrum is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from consilience_papers.theory import (
    brownian_effective_dimension,
    effective_dimension,
    sample_spectrum,
)


def brownian(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return 1 + np.minimum(X, Z.T)


def frequency(j: int) -> float:
    """The root of ω tan ω = 1 in (jπ, jπ + π/2)."""
    return brentq(lambda w: w * np.sin(w) - np.cos(w), j * np.pi, (j + 0.5) * np.pi, xtol=1e-14)


def test_by_hand():
    """1/(1 + 1/4) + (1/4)/(1/4 + 1/4) = 4/5 + 1/2."""
    assert effective_dimension([1, 1 / 4], 1 / 4) == pytest.approx(1.3)


@pytest.mark.parametrize("j", [0, 1, 4])
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_eigenfunctions(j: int, x: float):
    """∫ (1 + min(x, z)) cos(ω(1 − z)) dz = cos(ω(1 − x)) / ω², by quadrature."""
    w = frequency(j)
    value, _ = quad(lambda z: (1 + min(x, z)) * np.cos(w * (1 - z)), 0, 1, points=[x], epsabs=1e-12)
    assert value == pytest.approx(np.cos(w * (1 - x)) / w**2, abs=1e-10)


@pytest.mark.parametrize("regularization", [10.0, 0.1, 1e-3, 1e-5])
def test_closed_form_is_the_sum_over_the_spectrum(regularization: float):
    """The tail after J roots, Σ 1/(1 + λω²) with ω from about Jπ on, is close to 1/(λ π² J) and below it."""
    J = 3000
    eigenvalues = [frequency(j) ** -2 for j in range(J)]
    tail = brownian_effective_dimension(regularization) - effective_dimension(
        eigenvalues, regularization
    )
    a = np.pi * np.sqrt(regularization)
    assert tail == pytest.approx((np.pi / 2 - np.arctan(a * J)) / a, rel=1e-2)


def test_closed_form_at_its_ends():
    """For large λ the trace ∫ (1 + x) dx = 3/2 over λ; for small λ half of λ^{-1/2}."""
    assert brownian_effective_dimension(1e8) == pytest.approx(1.5e-8, rel=1e-6)
    assert brownian_effective_dimension(1e-12) == pytest.approx(5e5, rel=1e-5)


def test_a_sample_sees_the_spectrum():
    """Midpoints of 1,000 equal intervals integrate smooth functions with an error of order 1/n²."""
    X = (np.arange(1000)[:, None] + 0.5) / 1000
    values = sample_spectrum(brownian, X)
    np.testing.assert_allclose(values[:5], [frequency(j) ** -2 for j in range(5)], rtol=1e-4)
    for regularization in (1.0, 0.01, 1e-3):
        assert effective_dimension(values, regularization) == pytest.approx(
            brownian_effective_dimension(regularization), rel=1e-3
        )


def test_a_random_sample_is_near():
    X = np.random.default_rng(0).random((600, 1))
    measured = effective_dimension(sample_spectrum(brownian, X), 0.01)
    assert measured == pytest.approx(brownian_effective_dimension(0.01), rel=0.03)


def test_it_is_the_trace_of_what_regularisation_leaves():
    """tr(K (K + nλI)⁻¹), the degrees of freedom of kernel ridge regression."""
    X = np.random.default_rng(0).random((20, 1))
    K = brownian(X, X)
    trace = np.trace(K @ np.linalg.inv(K + 20 * 0.03 * np.eye(20)))
    assert effective_dimension(sample_spectrum(brownian, X), 0.03) == pytest.approx(trace)


def test_equal_rows_have_eigenvalue_zero():
    values = sample_spectrum(brownian, np.full((4, 1), 0.5))
    np.testing.assert_allclose(values, [1.5, 0, 0, 0], atol=1e-14)
    assert (values >= 0).all()


@pytest.mark.parametrize("eigenvalues", [[-0.1], [np.nan], [np.inf]])
def test_bad_eigenvalues(eigenvalues: list[float]):
    with pytest.raises(ValueError, match="eigenvalues"):
        effective_dimension(eigenvalues, 0.1)


def test_bad_input():
    for ask in (lambda: effective_dimension([1], 0), lambda: brownian_effective_dimension(-1)):
        with pytest.raises(ValueError, match="regularization is"):
            ask()
    with pytest.raises(ValueError, match="not positive semi-definite"):
        sample_spectrum(lambda X, Z: -brownian(X, Z), np.ones((2, 1)))
