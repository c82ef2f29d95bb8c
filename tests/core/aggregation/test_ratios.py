"""Weighting by density ratios against numbers worked out by hand, and in a federation.

Two parties, one public row, two classes. a says 0.9, 0.1 and b 0.4, 0.6.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from consilience import (
    Federation,
    Party,
    avg,
    coarse_density_ratio,
    density_ratio,
    ensemble_distillation,
)
from consilience.core.aggregation.density_ratio import DOUBT
from consilience.core.errors import InvalidInput
from consilience.core.messages.scores import DensityRatios
from helpers.replies import replies

A, B = [[0.9, 0.1]], [[0.4, 0.6]]


def close(teacher, values, weights) -> None:
    np.testing.assert_allclose(teacher.values, values, atol=2 * DOUBT)
    np.testing.assert_allclose(teacher.weights, weights, atol=2 * DOUBT)


def test_row_and_class():
    """a has 2 rows of class 0 near, b 3 of class 1: 2 · 0.9 : 3 · 0.6 is even, half from each."""
    close(density_ratio()(replies(A, B, ratios=[[[2, 0]], [[0, 3]]])), [[0.5, 0.5]], [[0.5], [0.5]])


def test_who_has_no_row_near_does_not_count():
    """b has none near, or an estimate below 0: 1 · 0.9 : 1 · 0.1, all from a."""
    close(density_ratio()(replies(A, B, ratios=[[[1, 1]], [[0, -5]]])), A, [[1], [0]])


def test_doubt_to_the_last_digit():
    """Rows 4 and 0 near make a mean of 2, and DOUBT of it shared by two is DOUBT on each class: call it d.

    Row 1: (4 + d) 0.9 + 0.4 d of class 0 and 0.1 d + 0.6 d of class 1. Row 2: d each, the plain mean.
    """
    told = replies([*A, *A], [*B, *B], ratios=[[[4, 0], [0, 0]], [[0, 0], [0, 0]]])
    teacher, d = density_ratio()(told), DOUBT
    first, second = (4 + d) * 0.9 + 0.4 * d, 0.7 * d
    share = first / (first + second)
    np.testing.assert_allclose(teacher.values, [[share, 1 - share], [0.65, 0.35]], rtol=1e-6)
    np.testing.assert_allclose(teacher.weights[:, 1], [0.5, 0.5])


def test_where_nobody_knows_anything_it_is_the_mean():
    told = replies(A, B, ratios=[[[0, 0]], [[-1, 0]]])
    np.testing.assert_array_equal(density_ratio()(told).values, avg()(told).values)


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(seed, unit):
    """More public rows make every ratio smaller by the same factor."""
    rng = np.random.default_rng(seed)
    outputs, near = rng.dirichlet(np.ones(3), (4, 5)), rng.exponential(size=(4, 5, 3))
    one, other = (density_ratio()(replies(*outputs, ratios=s * near)) for s in (1, unit))
    np.testing.assert_allclose(one.values, other.values, atol=1e-5)


@given(st.integers(0, 2**32))
def test_a_party_split_in_two_counts_as_before(seed):
    """Ratios add up over rows: two parties with half of the rows and the same model are one."""
    rng = np.random.default_rng(seed)
    (p, q), near = rng.dirichlet(np.ones(3), (2, 5)), rng.exponential(size=(2, 5, 3))
    whole = density_ratio()(replies(p, q, ratios=near))
    split = density_ratio()(replies(p, p, q, ratios=[near[0] / 2, near[0] / 2, near[1]]))
    np.testing.assert_allclose(whole.values, split.values, atol=10 * DOUBT)  # it has two doubts
    np.testing.assert_allclose(whole.weights[0], split.weights[:2].sum(axis=0), atol=10 * DOUBT)


@pytest.mark.parametrize("ridge", [0, -1, float("nan"), float("inf")])
def test_a_ridge_is_positive(ridge):
    with pytest.raises(InvalidInput, match="ridge is"):
        density_ratio(ridge=ridge)


def test_coarse_ratios_weigh_as_exact_ones_do():
    told = replies(A, B, ratios=[[[2, 0]], [[0, 3]]])
    exact, coarse = density_ratio()(told), coarse_density_ratio()(told)
    np.testing.assert_array_equal(exact.values, coarse.values)
    np.testing.assert_array_equal(exact.weights, coarse.weights)


def federation() -> tuple[Federation, np.ndarray]:
    """Three parties with one cloud each at a corner of a triangle, and public rows of all three."""
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 4.0], [-4.0, -4.0], [4.0, -4.0]])
    parties = []
    for i in range(3):
        rows = corners[[i, (i + 1) % 3]].repeat(20, axis=0) + rng.normal(size=(40, 2))
        labels = np.array([i, (i + 1) % 3]).repeat(20)
        parties.append(Party(f"party {i}", LogisticRegression(), rows, labels))
    truth = np.arange(30) % 3
    return Federation(parties, corners[truth] + rng.normal(size=(30, 2))), truth


def test_those_who_know_a_class_teach_it():
    """Each class is known by two parties of three; the third gets little of the weight."""
    made, truth = federation()
    history = made.run(ensemble_distillation(aggregate=density_ratio(), rounds=2), progress=False)
    for round in history.rounds[1:]:
        np.testing.assert_array_equal(round.teacher.values.argmax(axis=1), truth)
        for i in range(3):
            foreign = truth == (i + 2) % 3
            assert round.teacher.weights[i, foreign].mean() < 0.1


def test_what_leaves_depends_on_inputs_alone():
    """The ratios of round 1 and of round 2, when the models have changed, are the same bits."""
    made, _ = federation()
    rounds = list(made.rounds(ensemble_distillation(aggregate=density_ratio(), rounds=2)))
    first, second = (round.replies.of(DensityRatios) for round in rounds[1:])
    for before, after in zip(first, second, strict=True):
        np.testing.assert_array_equal(before.values, after.values)
        assert before.values.any(axis=0).sum() == 2  # a class that is not held has zeros
