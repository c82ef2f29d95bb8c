"""Temperature and biases against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from consilience.core.numerics.calibration import Calibration


def counted(logits: list[float], counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """As many rows of each class as counted, all with the same logits."""
    return np.tile(logits, (sum(counts), 1)), np.repeat(np.eye(len(counts)), counts, axis=0)


def test_without_rows_nothing_is_corrected():
    found = Calibration.fit(np.zeros((0, 3)), np.zeros((0, 3)))
    np.testing.assert_array_equal(found.of(np.eye(3)), np.eye(3))


def test_a_model_that_is_too_sure_is_flattened():
    """It says 3 : 0 in logits, each way as often, and is right of 3 in 4: sharpness ln 3 / 3 = 0.366."""
    one, other = counted([3, 0], [3000, 1000]), counted([0, 3], [1000, 3000])
    logits, targets = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    found = Calibration.fit(logits, targets)
    assert found.sharpness == pytest.approx(np.log(3) / 3, abs=0.002)
    np.testing.assert_allclose(found.biases, 0, atol=1e-3)


def test_a_balanced_model_has_the_classes_shares_again():
    """It knows nothing, and says 1 : 1 where 9 of 10 rows are of class 0: biases of ±ln(9)/2."""
    found = Calibration.fit(*counted([0, 0], [9000, 1000]))
    np.testing.assert_allclose(found.biases, [np.log(9) / 2, -np.log(9) / 2], atol=0.002)
    np.testing.assert_allclose(softmax(found.of(np.zeros((1, 2)))), [[0.9, 0.1]], atol=0.001)


def test_few_rows_correct_little():
    """One row that it gives 1 : 0 in logits, and is wrong: the slope p = 0.7 against a trust of 4."""
    found = Calibration.fit(*counted([1, 0], [0, 1]))
    assert 1 - 0.75 / 4 < found.sharpness < 1 - 0.6 / 4
    assert abs(found.biases).max() == 0  # of one class alone there are no shares


def test_classes_without_rows_keep_their_place():
    """The third class has no rows: its logit is not moved, the other two by as much up as down."""
    found = Calibration.fit(*counted([0, 0, 0], [30, 10, 0]))
    assert found.biases[0] == pytest.approx(-found.biases[1]) and found.biases[0] > 0
    assert found.biases[2] == 0


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_its_own_rows_are_likelier_afterwards_and_the_same_rows_give_the_same_bits(seed, n):
    rng = np.random.default_rng(seed)
    logits, targets = 3 * rng.normal(size=(n, 4)), np.eye(4)[rng.integers(4, size=n)]
    found = Calibration.fit(logits, targets)
    before, after = ((targets * log_softmax(z, axis=1)).sum() for z in (logits, found.of(logits)))
    assert after >= before - 1e-6 and found.sharpness >= 0.05
    again = Calibration.fit(logits.copy(), targets.copy())
    assert again.sharpness == found.sharpness and np.array_equal(again.biases, found.biases)
