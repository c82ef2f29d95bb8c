"""Corollary 4.4 of Kovalchuk et al.: the rate, the floor and the bound, by hand and on random problems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from consilience_papers.theory import stage_two


def problem(seed: int, *, apart: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, what they are, and what a teacher says of them that mixes it with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    truth = softmax(X @ rng.normal(size=(3, 4)), axis=1)
    noise = softmax(rng.normal(size=(60, 4)), axis=1)
    return X, truth, (1 - apart) * truth + apart * noise


def test_one_step_by_hand():
    """One row x = 1, p* = (1, 0), p_A = (½, ½), μ = 1: at W = 0 the teacher's gradient is 0.

    b = (½, −½), so ‖b‖² = ½ and the floor is ¼; S² = 1 and the teacher's error is ½. L = 1 + ½, 1 − μ/L = ⅓.
    """
    found = stage_two([[1.0]], [[1.0, 0.0]], [[0.5, 0.5]], regularization=1.0, steps=3)
    assert (found.bias, found.error, found.score) == (0.5, 0.5, 1.0)
    assert found.floor == 0.25 and found.rate == pytest.approx(1 / 3)
    assert np.ptp(found.gaps) == 0 and found.gaps[0] > 0
    assert found.bound.tolist() == pytest.approx([0.25 + found.gaps[0] / 3**t for t in range(4)])


def test_a_right_teacher_leads_to_the_optimum_at_the_rate_of_the_corollary():
    X, truth, _ = problem(0, apart=0.0)
    found = stage_two(X, truth, truth, regularization=0.1, steps=300)
    assert found.error == found.bias == found.floor == 0
    assert found.gaps[-1] < 1e-10
    assert (found.gaps <= found.gaps[0] * found.rate ** np.arange(301) + 1e-10).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("apart", [0.05, 0.3, 1.0])
def test_a_wrong_one_leads_to_below_the_floor(seed: int, apart: float):
    found = stage_two(*problem(seed, apart=apart), regularization=0.1, steps=300)
    assert (found.gaps <= found.bound + 1e-12).all()
    assert found.bias <= found.score * found.error + 1e-12  # Lemma C.8
    assert 0 < found.gaps[-1] <= found.floor


def test_what_is_left_grows_with_the_teachers_error():
    ends = [
        stage_two(*problem(1, apart=apart), regularization=0.1, steps=300).gaps[-1]
        for apart in (0.1, 0.2, 0.4, 0.8)
    ]
    assert (np.diff(ends) > 0).all()


def test_bad_input():
    X, truth, taught = problem(0, apart=0.1)
    with pytest.raises(ValueError, match="shape"):
        stage_two(X, truth, taught[:, :2], regularization=0.1, steps=3)
    with pytest.raises(ValueError, match="shape"):
        stage_two(X[:5], truth, taught, regularization=0.1, steps=3)
    with pytest.raises(ValueError, match="distributions"):
        stage_two(X, truth, 2 * taught, regularization=0.1, steps=3)
    with pytest.raises(ValueError, match="regularization"):
        stage_two(X, truth, taught, regularization=0.0, steps=3)
    with pytest.raises(ValueError, match="0 steps"):
        stage_two(X, truth, taught, regularization=0.1, steps=0)
