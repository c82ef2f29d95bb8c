"""What a party knows by its inputs alone, against numbers worked out by hand."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from consilience.certainty import (
    DIMENSIONS,
    DensityRatio,
    Privacy,
    PublicSpace,
    certainties,
    selection,
)
from consilience.errors import InvalidInput


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


# --- the space --------------------------------------------------------------------------------------


def test_columns_of_a_table_have_units_of_their_own():
    """In metres or millimetres, a row is in the same place."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    rows, units = X[:5] + 0.1, np.array([1, 1000, 0.01])
    lengths = np.linalg.norm(PublicSpace.fit(X)(rows), axis=1)
    other = np.linalg.norm(PublicSpace.fit(X * units)(rows * units), axis=1)
    np.testing.assert_allclose(lengths, other)


def test_distances_are_those_of_the_inputs_where_no_direction_is_left_out():
    """Pictures of 2 × 2 pixels keep their scale, also where a pixel hardly varies."""
    X = np.random.default_rng(0).normal(size=(20, 2, 2)) * [[1, 1], [1, 0.01]]
    Z = PublicSpace.fit(X)(X)
    flat = X.reshape(20, 4)
    distances = [np.linalg.norm(rows[1:] - rows[:-1], axis=1) for rows in (Z, flat)]
    np.testing.assert_allclose(*distances)


def test_a_space_has_few_dimensions():
    X = np.random.default_rng(0).normal(size=(100, 8, 8))
    assert PublicSpace.fit(X)(X).shape == (100, DIMENSIONS)
    assert PublicSpace.fit(X[:1])(X).shape == (100, 1)
    assert PublicSpace.fit(np.ones((5, 2)))(np.ones((3, 2))).tolist() == [[0, 0]] * 3


def test_texts_lie_near_those_of_the_same_words():
    texts = np.array(["the cat sat", "a cat sat down", "shares fell sharply", "shares rose"])
    Z = PublicSpace.fit(texts)(np.array(["cat sat", "shares", "word unknown"]))
    assert Z[0] @ Z[1] == pytest.approx(0, abs=1e-9)
    assert np.linalg.norm(Z[:2], axis=1).min() > 0.5
    np.testing.assert_allclose(Z[2], 0)


def test_texts_without_words():
    with pytest.raises(InvalidInput, match="no words"):
        PublicSpace.fit(np.array(["!", "?"]))


# --- certainties ------------------------------------------------------------------------------------


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
    """Δ = 2 / (100 · 0.01) = 2, sqrt(2 ln(1.25/δ)) = 2 for δ = 1.25 e⁻²: 2 · 2 / 0.5."""
    assert Privacy(0.5, 1.25 * exp(-2)).scale(100, 0.01) == pytest.approx(8)


def test_noise_is_as_large_as_it_is_said_to_be():
    """logit(s) is <w, h>, and |h| = 1 at norm 1: its noise has the standard deviation of a weight's."""
    privacy, rng = Privacy(0.5, 1e-3), np.random.default_rng(0)
    public = np.vstack([np.ones((1, 1)), -np.ones((49, 1))])
    exact = logit(certainties(column(1), public, regularization=1.0)[0])
    noisy = [
        certainties(column(1), public, regularization=1.0, privacy=privacy, rng=rng)[0]
        for _ in range(1000)
    ]
    scale = privacy.scale(51, 1.0)
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


# --- selection --------------------------------------------------------------------------------------


def test_density_ratio_of_two_rows():
    """y = 0 and x where the kernel is 1/2, λ = 1: 2 a = −1/2, so r(z) = k(z, 0) − k(z, x) / 4.

    r(0) = 7/8 and r(x) = 1/4.
    """
    x = sqrt(2 * log(2))
    ratio = DensityRatio.fit(column(0), column(x), width=1, regularization=1)
    np.testing.assert_allclose(ratio.coefficients, [-1 / 4])
    np.testing.assert_allclose(ratio(column(0, x)), [7 / 8, 1 / 4])


def test_rows_of_one_distribution_have_the_ratio_one():
    """With y = x and M = K / n it is ``M (M + λ I)⁻¹ 1``, which is 1 as λ → 0."""
    rows = np.random.default_rng(0).normal(size=(15, 1))
    ratio = DensityRatio.fit(rows, rows, width=1, regularization=1e-9)
    np.testing.assert_allclose(ratio(rows), 1, atol=1e-3)


def test_the_usual_regularization():
    """The smaller of 3 and 2 rows, to the −0.9th."""
    ratio = DensityRatio.fit(column(0, 1, 2), column(0, 1), width=1)
    assert ratio.regularization == pytest.approx(2**-0.9)


@pytest.mark.parametrize("reference", ["public", "uniform"])
def test_a_party_speaks_for_rows_like_its_own(reference):
    rng = np.random.default_rng(0)
    left, right = rng.normal(-3, 0.5, (40, 2)), rng.normal(3, 0.5, (40, 2))
    chosen = selection(
        left[:20],
        left[20:30],
        np.concatenate([left[30:], right]),
        reference=reference,
        quantile=0.0,
        rng=rng,
    )
    assert chosen[:10].mean() > 0.5 and not chosen[10:].any()


@given(st.integers(0, 2**32), st.sampled_from(["public", "uniform"]))
def test_a_higher_quantile_selects_no_more(seed, reference):
    rng = np.random.default_rng(seed)
    known, held_out, public = (rng.normal(size=(n, 2)) for n in (10, 5, 8))
    low, high = (
        selection(
            known,
            held_out,
            public,
            reference=reference,
            quantile=quantile,
            rng=np.random.default_rng(seed),
        )
        for quantile in (0.1, 0.9)
    )
    assert (low | ~high).all()


def test_equal_public_rows():
    chosen = selection(
        column(0, 0),
        column(0),
        column(1, 1, 1),
        reference="public",
        quantile=0.25,
        rng=np.random.default_rng(0),
    )
    assert chosen.tolist() == [False] * 3
