"""Class-conditional Gaussians and ratios to public rows against numbers worked out by hand."""

from __future__ import annotations

from math import exp, log, pi, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.numerics.class_gaussians import VARIANCE_FLOOR, ClassGaussians
from consilience.core.numerics.coarse_ratios import LANDMARKS, Coarseness, Counts, coarse_ratios
from consilience.core.numerics.density import DensityRatio, PublicRatio, selection


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


def ratio_of(public: np.ndarray, **options: Any) -> PublicRatio:
    return PublicRatio(public, np.random.default_rng(0), **options)


def test_ratios_of_two_public_rows():
    """Public 0 and 9: h = 81, k = 1/e between them. Three rows of group 0 at 0, one of group 1 at 9.

    (K + I/2)^-1 is [[1.5, -1/e], [-1/e, 1.5]] / (2.25 - 1/e^2); k(public, rows) 1 is 3 (1, 1/e) and (1/e, 1).
    """
    ratio = ratio_of(column(0, 9), ridge=0.5)
    rows, groups = column(0, 0, 0, 9), np.eye(2)[[0, 0, 0, 1]]
    same, other = 1.5 - exp(-2), (1.5 - 1) * exp(-1)
    by_hand = np.array([[3 * same, other], [3 * other, same]]) / (2.25 - exp(-2))
    np.testing.assert_allclose(ratio(rows, groups), by_hand, rtol=1e-6)


def test_public_rows_themselves_have_a_ratio_of_nearly_one():
    """K (K + ridge I)^-1 1 goes to 1 with the ridge: one of them comes on one of them."""
    public = np.random.default_rng(1).normal(size=(50, 2))
    found = ratio_of(public, ridge=1e-4)(public, np.ones((50, 1)))
    np.testing.assert_allclose(found, 1, atol=0.05)


def test_dense_public_rows_do_not_count_for_more():
    """Twice as many public rows on the right: one private row on either side, half the ratio there."""
    public = column(*np.linspace(-0.1, 0.1, 20), *np.linspace(9.9, 10.1, 40))
    found = ratio_of(public, ridge=0.1)(column(0, 10), np.eye(2))
    assert found[:20, 0].mean() == pytest.approx(1 / 20, rel=0.05)
    assert found[20:, 1].mean() == pytest.approx(1 / 40, rel=0.05)
    np.testing.assert_allclose(found[20:, 0], 0, atol=0.02)


def test_another_ridge_and_the_public_rows_themselves_are_not_computed_anew():
    """The bits of a ratio of its own; and a copy of the public rows, whose kernel is computed, agrees."""
    public = np.random.default_rng(0).normal(size=(30, 4))
    rows, groups = public[:7] + 0.1, np.ones((7, 1))
    first = PublicRatio(public, np.random.default_rng(1), ridge=1.0, most_landmarks=20)
    again = first.with_ridge(5.0)
    fresh = PublicRatio(public, np.random.default_rng(1), ridge=5.0, most_landmarks=20)
    np.testing.assert_array_equal(again(rows, groups), fresh(rows, groups))
    assert np.abs(again(rows, groups) - first(rows, groups)).max() > 0.01
    found = first.coefficients(rows, groups)
    np.testing.assert_array_equal(first.at(public, found), first.at(public.copy(), found))


def test_few_landmarks_are_as_good():
    """A third of the public rows, on smooth densities, gives nearly what all of them do."""
    rng = np.random.default_rng(2)
    public, rows = rng.normal(size=(300, 1)), rng.normal(1, 0.5, size=(20, 1))
    whole = ratio_of(public, ridge=0.3)(rows, np.ones((20, 1)))
    some = ratio_of(public, ridge=0.3, most_landmarks=100)(rows, np.ones((20, 1)))
    np.testing.assert_allclose(some, whole, atol=0.05 * whole.max())
    assert not np.array_equal(some, whole)


def test_public_rows_that_are_mostly_the_same():
    """The median distance is 0: a width of 1 stands in."""
    found = ratio_of(column(0, 0, 0, 0, 5), ridge=0.5)(column(0), np.ones((1, 1)))
    assert found[0, 0] == pytest.approx(1 / 4.5, rel=1e-3)
    assert found[4, 0] == pytest.approx(0, abs=1e-6)


@given(st.integers(0, 2**32))
def test_ratios_add_up_over_rows(seed):
    rng = np.random.default_rng(seed)
    ratio = ratio_of(rng.normal(size=(8, 2)), ridge=0.3)
    rows = rng.normal(size=(6, 2))
    apart = sum(ratio(rows[i : i + 1], np.ones((1, 1))) for i in range(6))
    np.testing.assert_allclose(ratio(rows, np.ones((6, 1))), apart, atol=1e-9)


@given(st.integers(0, 2**32))
def test_a_ratio_at_the_public_rows_is_the_ratio_of_the_public_rows(seed):
    rng = np.random.default_rng(seed)
    public, rows = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    ratio, groups = ratio_of(public, ridge=0.3), np.eye(3)[[0, 0, 1, 1, 2, 2]]
    there = ratio.at(public, ratio.coefficients(rows, groups))
    np.testing.assert_allclose(there, ratio(rows, groups), atol=1e-9)


def test_a_ratio_between_two_public_rows():
    """Public 0 and 9, one row at 0 with kernels K (1, 0): c = (K (K + I/2))⁻¹ K (1, 0), r(3) = k(3) c."""
    ratio = ratio_of(column(0, 9), ridge=0.5)
    c = np.linalg.solve([[1.5, exp(-1)], [exp(-1), 1.5]], [1, 0])
    found = ratio.at(column(3), ratio.coefficients(column(0), np.ones((1, 1))))
    np.testing.assert_allclose(found, [[c @ [exp(-9 / 81), exp(-36 / 81)]]], rtol=1e-6)


# --- coarse ratios ----------------------------------------------------------------------------------


def clouds(
    rows: int, *, seed: int = 0, directions: int = 20
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Own rows of two groups on either side, their groups, and public rows of both sides."""
    rng = np.random.default_rng(seed)
    own, public = rng.normal(size=(2 * rows, directions)), rng.normal(size=(150, directions))
    own[:, 0] += np.repeat([-4, 4], rows)
    public[:, 0] += np.repeat([-4, 4], 75)
    return own, np.eye(2)[np.repeat([0, 1], rows)], public


def test_counts_by_hand():
    """Of a circle halfway between landmarks 4 apart: h = 16, each row counts exp(-5/16) = 0.732.

    22 rows are 16.1, in fives 15 and in twos 16; 20 are 14.6, 15 and 14. One that comes again counts once.
    """
    angles = np.linspace(0, np.pi, 42)
    own = np.stack([np.zeros(42), np.cos(angles), np.sin(angles)], axis=1)
    groups = np.eye(2)[np.repeat([0, 1, 0], [22, 20, 22])]
    own, public = np.concatenate([own, own[:22]]), np.array([[-2.0, 0, 0], [2.0, 0, 0]])
    fives = Counts.of(own, groups, public, Coarseness())
    assert fives.width == pytest.approx(16)
    np.testing.assert_allclose(fives.near(own), exp(-5 / 16))
    np.testing.assert_array_equal(fives.values, [[15, 15], [15, 15]])
    twos = Counts.of(own, groups, public, Coarseness(unit=2))
    np.testing.assert_array_equal(twos.values, [[16, 14], [16, 14]])


def test_what_leaves_are_whole_counts_near_few_rows():
    own, groups, public = clouds(40)
    counts = Counts.of(own, groups, public, Coarseness())
    assert counts.values.shape == (LANDMARKS, 2)
    assert counts.values.max() <= 40 and not (counts.values % 5).any()
    assert set(counts.landmarks[:, 0]) <= set(public[:, 0])


def test_coarse_ratios_tell_the_groups_apart():
    own, groups, public = clouds(40)
    ratios = coarse_ratios(own, groups, public, Coarseness())
    assert ratios.min() == 0 and ratios.max() <= 40
    right = ratios.argmax(axis=1) == np.repeat([0, 1], 75)
    assert right.mean() > 0.8
    assert ratios[:75, 0].mean() > 3 * ratios[:75, 1].mean()


@pytest.mark.parametrize(
    ("rows", "directions", "said"),
    [(20, 20, True), (19, 20, False), (39, 5, False), (40, 5, True), (199, 1, False), (200, 1, True)],
)  # fmt: skip
def test_of_few_rows_or_few_directions_nothing_is_said(rows, directions, said):
    """200 unknowns are twice the 100 counts."""
    own, groups, public = clouds(rows, directions=directions)
    assert coarse_ratios(own, groups, public, Coarseness(unit=2)).any(axis=0).tolist() == [said] * 2


def test_one_row_many_times_is_one_row():
    own, groups, public = clouds(1)
    many = coarse_ratios(own.repeat(50, axis=0), groups.repeat(50, axis=0), public, Coarseness())
    assert not many.any()


def test_public_rows_around_one_single_nobody_out():
    """However near they lie, the kernel is as wide as the party's own rows are apart."""
    own, groups, _ = clouds(40)
    public = own[0] + 1e-6 * np.random.default_rng(1).normal(size=(150, 20))
    counts = Counts.of(own, groups, public, Coarseness())
    assert counts.width > 10
    without = Counts.of(own[1:], groups[1:], public, Coarseness())
    assert np.abs(counts.values - without.values).max() <= 5
    exact = ratio_of(public, ridge=0.3)
    assert exact(own, groups)[:, 0].max() > 1e-3 > exact(own[1:], groups[1:]).max()


# --- selection --------------------------------------------------------------------------------------


def test_density_ratio_of_two_rows():
    """y = 0 and x where the kernel is 1/2, λ = 1: 2 a = −1/2, so r(z) = k(z, 0) − k(z, x) / 4.

    r(0) = 7/8 and r(x) = 1/4.
    """
    x = sqrt(2 * log(2))
    ratio = DensityRatio(column(0), column(x), width=1, regularization=1)
    np.testing.assert_allclose(ratio.coefficients, [-1 / 4])
    np.testing.assert_allclose(ratio(column(0, x)), [7 / 8, 1 / 4])


def test_rows_of_one_distribution_have_the_ratio_one():
    """With y = x and M = K / n it is ``M (M + λ I)⁻¹ 1``, which is 1 as λ → 0."""
    rows = np.random.default_rng(0).normal(size=(15, 1))
    ratio = DensityRatio(rows, rows, width=1, regularization=1e-9)
    np.testing.assert_allclose(ratio(rows), 1, atol=1e-3)


def test_the_usual_regularization():
    """The smaller of 3 and 2 rows, to the −0.9th."""
    ratio = DensityRatio(column(0, 1, 2), column(0, 1), width=1)
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
