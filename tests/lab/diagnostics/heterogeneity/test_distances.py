"""Distances between parties and their mixture, against closed forms and independent code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import wasserstein_distance, wasserstein_distance_nd

from consilience.core.errors import InvalidInput
from consilience.lab.diagnostics.heterogeneity import (
    party_weights,
    shortening,
    sliced_wasserstein,
    total_variation,
    total_variation_to_mixture,
    wasserstein_of_atoms,
    wasserstein_on_a_line,
)

# --- total variation ------------------------------------------------------------------------------


def test_two_bernoulli() -> None:
    """TV(B(p), B(q)) = |p − q|."""
    assert total_variation(np.array([0.8, 0.2]), np.array([0.35, 0.65])) == pytest.approx(0.45)


def test_it_is_the_largest_difference_over_events() -> None:
    """Equation 18 as it stands: the supremum over all 2⁵ events."""
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), size=2)
    events = (np.arange(32)[:, None] >> np.arange(5)) & 1
    assert total_variation(p, q) == pytest.approx(np.abs(events @ (p - q)).max())


def test_bernoulli_parties_by_hand() -> None:
    """Parties with shares 0.2, 0.5 and 0.8 of ones: the mixture has 0.5, the distances are 0.3, 0, 0.3.

    By rows, with 10, 20 and 70 of them: the mixture has 0.02 + 0.1 + 0.56 = 0.68.
    """
    counts = np.array([[8, 2], [10, 10], [14, 56]])
    assert total_variation_to_mixture(counts) == pytest.approx([0.3, 0, 0.3])
    by_rows = total_variation_to_mixture(counts, by_rows=True)
    assert by_rows == pytest.approx([0.48, 0.18, 0.12])
    assert party_weights(counts.sum(axis=1), by_rows=True) == pytest.approx([0.1, 0.2, 0.7])


@pytest.mark.parametrize("parties", [2, 3, 10])
def test_disjoint_parties(parties: int) -> None:
    """1 − 1/N whatever they hold, if no outcome is shared."""
    counts = np.kron(np.eye(parties, dtype=int), [[3, 0, 9]])
    assert total_variation_to_mixture(counts) == pytest.approx(1 - 1 / parties)


@given(st.integers(0, 2**32), st.booleans())
def test_merging_outcomes_never_raises_it(seed: int, by_rows: bool) -> None:
    counts = 1 + np.random.default_rng(seed).poisson(2, size=(4, 6))
    merged = counts.reshape(4, 3, 2).sum(axis=2)
    finer = total_variation_to_mixture(counts, by_rows=by_rows)
    assert (total_variation_to_mixture(merged, by_rows=by_rows) <= finer + 1e-12).all()
    assert (finer <= 1 - party_weights(counts.sum(axis=1), by_rows=by_rows) + 1e-12).all()


@pytest.mark.parametrize(
    ("p", "q", "what"),
    [
        ([0.5, 0.5], [1.0], "shapes"),
        ([0.5, 0.6], [0.5, 0.5], "no probabilities"),
        ([1.5, -0.5], [0.5, 0.5], "no probabilities"),
        ([np.nan, 1.0], [0.5, 0.5], "no probabilities"),
    ],
)
def test_what_is_no_distribution(p: list[float], q: list[float], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        total_variation(np.array(p), np.array(q))


@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ([1, 2], "shape"),
        (np.empty((3, 0)), "shape"),
        ([[1.5, 2], [1, 1]], "whole numbers"),
        ([[np.nan, 2], [1, 1]], "whole numbers"),
        ([[-1, 2], [1, 1]], "whole numbers"),
        ([["1", "2"], ["1", "1"]], "whole numbers"),
        ([[1, 2]], "one party"),
        ([[1, 2], [0, 0]], "party 1 .* has no rows"),
    ],
)
def test_what_is_no_table_of_counts(counts: object, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        total_variation_to_mixture(np.asarray(counts))


# --- one dimension --------------------------------------------------------------------------------


def test_shifted_uniforms() -> None:
    """U(0, 1) and U(s, 1 + s): the mixture is s/2 from both. By rows (3 : 1) s/4 and 3s/4."""
    grid = (np.arange(1000) + 0.5) / 1000
    for s in (0.25, 1.0, 7.0):
        assert wasserstein_on_a_line([grid, grid + s]) == pytest.approx(s / 2)
    unequal = [np.repeat(grid, 3), grid + 2.0]
    assert wasserstein_on_a_line(unequal, by_rows=True) == pytest.approx([0.5, 1.5])


def test_shifted_gaussians() -> None:
    """W1 of a distribution and its mixture with a copy shifted by s is s/2."""
    z = np.random.default_rng(1).normal(size=4000)
    assert wasserstein_on_a_line([z, z + 3.0]) == pytest.approx(1.5)


def test_gaussians_of_other_widths() -> None:
    """σ = 1 and 3: W1 to the mixture is half of ∫ |F_1 − F_3|, which is (3 − 1) E|z| = 2√(2/π)."""
    from scipy.stats import norm

    quantiles = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    found = wasserstein_on_a_line([quantiles, 3 * quantiles])
    gap, _ = quad(lambda x: abs(norm.cdf(x) - norm.cdf(x / 3)), -30, 30, points=[0.0])
    assert gap == pytest.approx(2 * np.sqrt(2 / np.pi))
    assert found == pytest.approx(gap / 2, rel=1e-3)


@given(
    st.lists(
        st.lists(st.integers(-5, 5) | st.floats(-1e3, 1e3), min_size=1, max_size=12),
        min_size=2,
        max_size=5,
    ),
    st.booleans(),
)
def test_a_line_against_scipy(values: list[list[float]], by_rows: bool) -> None:
    """With ties and parties of one row, for every party by itself."""
    parties = [np.array(one, dtype=float) for one in values]
    weights = party_weights(np.array([len(one) for one in parties]), by_rows=by_rows)
    rows = np.concatenate(parties)
    mixture = np.concatenate(
        [np.full(len(p), w / len(p)) for p, w in zip(parties, weights, strict=True)]
    )
    expected = [wasserstein_distance(party, rows, None, mixture) for party in parties]
    found = wasserstein_on_a_line(parties, by_rows=by_rows)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    turned = wasserstein_on_a_line(parties[::-1], by_rows=by_rows)
    assert turned[::-1] == pytest.approx(found, rel=1e-9, abs=1e-9)


# --- several dimensions ---------------------------------------------------------------------------


def test_corners_of_a_square() -> None:
    """Each of four parties has a corner of the unit square: (0 + 1 + 1 + √2)/4 to the mixture."""
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    found = wasserstein_of_atoms(5 * np.eye(4, dtype=int), corners)
    assert found == pytest.approx((2 + np.sqrt(2)) / 4)


@pytest.mark.parametrize("by_rows", [False, True])
def test_atoms_against_scipy(by_rows: bool) -> None:
    rng = np.random.default_rng(2)
    atoms, counts = rng.normal(size=(12, 3)), rng.poisson(1.5, size=(4, 12))
    shares = counts / counts.sum(axis=1, keepdims=True)
    mixture = party_weights(counts.sum(axis=1), by_rows=by_rows) @ shares
    expected = [wasserstein_distance_nd(atoms, atoms, own, mixture) for own in shares]
    assert wasserstein_of_atoms(counts, atoms, by_rows=by_rows) == pytest.approx(expected)


def test_atoms_on_a_line_are_the_line() -> None:
    counts = np.random.default_rng(3).poisson(3, size=(5, 9))
    values = np.arange(9.0) ** 1.5
    parties = [np.repeat(values, row) for row in counts]
    found = wasserstein_of_atoms(counts, values[:, None])
    assert found == pytest.approx(wasserstein_on_a_line(parties))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 50])
def test_projection_shortens_by(dimensions: int) -> None:
    """1 in one dimension, 2/π in two, ½ in three; √(2/(πd)) in many. Also as a mean over directions."""
    known = {1: 1.0, 2: 2 / np.pi, 3: 0.5, 50: np.sqrt(2 / (np.pi * 50)) * (1 + 1 / 200)}
    assert shortening(dimensions) == pytest.approx(known[dimensions], rel=1e-4)
    drawn = np.random.default_rng(0).normal(size=(40_000, dimensions))
    mean = np.abs(drawn[:, 0] / np.linalg.norm(drawn, axis=1)).mean()
    assert shortening(dimensions) == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("dimensions", [2, 20])
def test_sliced_distance_of_a_shift_is_the_shift(dimensions: int) -> None:
    rows = np.random.default_rng(4).normal(size=(200, dimensions))
    shift = np.full(dimensions, 2.0)
    found, error = sliced_wasserstein([rows, rows + shift], directions=2000, seed=1)
    exact = np.linalg.norm(shift) / 2
    assert (np.abs(found - exact) < 4 * error).all() and (error < 0.03 * exact).all()


def test_sliced_distance_never_exceeds_the_exact_one() -> None:
    rng = np.random.default_rng(5)
    counts, atoms = (
        rng.poisson(1, size=(3, 15)) + np.eye(3, 15, dtype=int),
        rng.normal(size=(15, 4)),
    )
    parties = [np.repeat(atoms, row, axis=0) for row in counts]
    found, error = sliced_wasserstein(parties, directions=1000)
    exact = wasserstein_of_atoms(counts, atoms)
    assert (found < exact + 3 * error).all() and (found > 0.5 * exact).all()


def test_the_standard_error_is_the_spread_of_repetitions() -> None:
    rng = np.random.default_rng(6)
    parties = [rng.normal(size=(30, 5)), rng.normal(size=(30, 5)) * [3, 1, 1, 1, 1]]
    runs = [sliced_wasserstein(parties, directions=50, seed=seed) for seed in range(60)]
    found, errors = (np.array(part) for part in zip(*runs, strict=True))
    assert errors.mean(axis=0) == pytest.approx(found.std(axis=0, ddof=1), rel=0.35)
    again, _ = sliced_wasserstein(parties, directions=50, seed=7)
    assert np.array_equal(again, found[7])


@given(st.floats(1e-3, 1e3))
def test_distances_scale_with_the_rows(factor: float) -> None:
    rng = np.random.default_rng(7)
    parties = [rng.normal(size=(9, 3)), rng.normal(1, size=(5, 3))]
    plain, _ = sliced_wasserstein(parties, directions=8)
    scaled, _ = sliced_wasserstein([factor * rows for rows in parties], directions=8)
    assert scaled == pytest.approx(factor * plain)


def test_bad_rows() -> None:
    good = np.zeros((3, 2))
    for bad, what in (
        ([good], "one party"),
        ([], "no parties"),
        ([good, good[:0]], "party 1 .* has no rows"),
        ([good, good[:, :1]], "party 1 .* shape"),
        ([good, good * np.nan], "party 1 .* not finite"),
    ):
        with pytest.raises(InvalidInput, match=what):
            sliced_wasserstein(bad)
    with pytest.raises(InvalidInput, match="directions is 1"):
        sliced_wasserstein([good, good], directions=1)
    with pytest.raises(InvalidInput, match=r"party 0 .* not finite"):
        wasserstein_on_a_line([np.array([np.inf]), np.array([1.0])])
    with pytest.raises(InvalidInput, match="atoms of shape"):
        wasserstein_of_atoms(np.ones((2, 3), dtype=int), np.zeros((2, 2)))
