"""How surely rows are told to be a party's own, against numbers worked out by hand."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from consilience.methods.comparison_rules.membership import certainties
from consilience.privacy.accounting.mechanisms import GaussianNoise


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def test_two_rows():
    """A private row at 1 and a public one at −1: h = (±1, 1)/√2, and w = (a, 0) by symmetry.

    With t = a/√2 the gradient of ``log(1 + e^-t) + λ t²`` is 0 where ``2 λ t = 1 / (1 + e^t)``: at t = ln 3
    for λ = 1 / (8 ln 3). The public row has 1 / (1 + 3).
    """
    scores = certainties(column(1), column(-1), regularization=1 / (8 * log(3)))
    np.testing.assert_allclose(scores, [1 / 4], atol=1e-7)


def test_a_private_row_far_away_counts_as_one_at_the_edge():
    one, other = (certainties(column(x), column(-1), regularization=0.1) for x in (1, 1000))
    np.testing.assert_allclose(one, other)


def test_rows_like_private_ones_have_more():
    rng = np.random.default_rng(0)
    public = rng.normal(size=(100, 2))
    scores = certainties(public[public[:, 0] > 0.5] + 0.01, public, regularization=1e-5)
    assert scores[public[:, 0] > 0.6].min() > scores[public[:, 0] < 0].max()


def test_where_all_public_rows_are_the_same():
    """z = 0 at the public rows, so the constant alone tells them apart; a floor keeps them above 0."""
    scores = certainties(column(5, 5), column(0, 0), regularization=1e-5)
    assert (scores > 0).all() and scores[0] == scores[1] < 0.5


def test_the_scale_of_noise():
    """Δ = 2 / (100 · 0.01) = 2, and μ = 0.268051 for ε = 1 and δ = 10⁻⁵ (Balle & Wang 2018)."""
    assert GaussianNoise(1.0, 1e-5).scale(2 / (100 * 0.01)) == pytest.approx(2 / 0.268051, rel=1e-5)


def test_noise_is_as_large_as_it_is_said_to_be():
    """logit(s) is <w, h>, and |h| = 1 at norm 1: its noise has the standard deviation of a weight's."""
    noise, rng = GaussianNoise(0.5, 1e-3), np.random.default_rng(0)

    def add(weights: np.ndarray, sensitivity: float) -> np.ndarray:
        return weights + rng.normal(scale=noise.scale(sensitivity), size=weights.shape)

    public = np.vstack([np.ones((1, 1)), -np.ones((49, 1))])
    exact = logit(certainties(column(1), public, regularization=1.0)[0])
    noisy = [certainties(column(1), public, regularization=1.0, noise=add)[0] for _ in range(1000)]
    scale = noise.scale(2 / 51)
    assert np.std(logit(noisy)) == pytest.approx(scale, rel=0.1)
    assert np.mean(logit(noisy)) == pytest.approx(exact, abs=4 * scale / sqrt(1000))


@given(st.integers(0, 2**32), st.floats(-100, 100))
def test_one_private_row_changes_the_weights_by_less_than_their_sensitivity(seed, other):
    """<w, h> moves by at most Δ |h| ≤ 2 / (n λ)."""
    rng = np.random.default_rng(seed)
    private, public = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    changed = private.copy()
    changed[0] = other
    one, two = (logit(certainties(p, public, regularization=0.5)) for p in (private, changed))
    assert np.abs(one - two).max() <= 2 / (11 * 0.5) + 1e-6
