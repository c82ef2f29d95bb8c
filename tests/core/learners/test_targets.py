"""Soft rows become weighted copies; weights keep their ratios."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.core.errors import InvalidInput
from consilience.core.learners.targets import SMALLEST_SHARE, expand, usable


def test_expand_by_hand() -> None:
    """Row 0 is hard; row 1 splits 0.25 / 0.75; in row 2 the class with 0.02 < 0.05 · 0.6 is
    left out, and 0.38, 0.6 are renormalised by their sum 0.98. Weights 1, 2, 4 multiply."""
    targets = np.array([[0, 1, 0], [0.25, 0, 0.75], [0.02, 0.38, 0.6]])
    rows, labels, weights = expand(targets, np.array([1.0, 2.0, 4.0]))
    assert rows.tolist() == [0, 1, 1, 2, 2]
    assert labels.tolist() == [1, 0, 2, 1, 2]
    expected = [1, 0.5, 1.5, 4 * 0.38 / 0.98, 4 * 0.6 / 0.98]
    np.testing.assert_allclose(weights, expected, rtol=1e-15)


def test_hard_rows_stay_as_they_are() -> None:
    rows, labels, weights = expand(np.eye(3)[[2, 0, 2]], None)
    assert (rows.tolist(), labels.tolist(), weights) == ([0, 1, 2], [2, 0, 2], None)


@given(arrays(np.float64, (6, 5), elements=st.floats(1e-6, 1)))
def test_copies_of_a_row_share_its_weight(raw: np.ndarray) -> None:
    targets = raw / raw.sum(axis=1, keepdims=True)
    rows, labels, weights = expand(targets, None)
    assert weights is not None or len(rows) == 6
    total = np.bincount(rows, weights=weights, minlength=6)
    np.testing.assert_allclose(total, 1, rtol=1e-12)
    kept = targets[rows, labels]
    assert (kept > SMALLEST_SHARE * targets.max(axis=1)[rows]).all()


def test_weights_are_scaled_to_mean_one_and_zero_rows_left_out() -> None:
    """(0, 1, 3) leaves (1, 3), whose mean is 2."""
    X, targets, weights = usable(
        np.arange(3)[:, None],
        np.eye(3),
        np.array([0, 1, 3]),
        n_outputs=3,
        kind="classification",
        where="",
    )
    assert X.ravel().tolist() == [1, 2]
    assert targets.argmax(axis=1).tolist() == [1, 2]
    assert weights is not None and weights.tolist() == [0.5, 1.5]


def test_equal_weights_are_no_weights() -> None:
    given_ = (np.zeros((2, 1)), np.eye(2), np.full(2, 0.1))
    assert usable(*given_, n_outputs=2, kind="classification", where="")[2] is None


@pytest.mark.parametrize(
    ("targets", "weights", "said"),
    [
        (np.eye(3), None, "shape"),
        (np.zeros((2, 2)), None, "not probabilities"),
        (np.array([[1.5, -0.5], [1, 0]]), None, "not probabilities"),
        (np.array([[np.nan, 1], [1, 0]]), None, "NaN"),
        (np.eye(2), np.ones(3), "weights have shape"),
        (np.eye(2), np.array([1, -1]), "non-negative"),
        (np.eye(2), np.zeros(2), "not all zero"),
        (np.eye(2), np.array([1, np.inf]), "finite"),
        (np.eye(2)[0], None, "shape"),
    ],
)
def test_bad_targets_and_weights(
    targets: np.ndarray, weights: np.ndarray | None, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        usable(
            np.zeros((2, 1)),
            targets,
            weights,
            n_outputs=2,
            kind="classification",
            where="a tree",
        )
    assert "a tree" in str(caught.value)


def test_no_rows() -> None:
    with pytest.raises(InvalidInput, match="no rows"):
        usable(
            np.zeros((0, 1)),
            np.zeros((0, 2)),
            None,
            n_outputs=2,
            kind="regression",
            where="",
        )
