"""Penalty of logistic regressions that are taught."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience.learners.sklearn.learner import SklearnLearner
from consilience.learners.sklearn.penalty import USUAL, weakened

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 8))
SHARP = softmax(3 * X @ RNG.normal(size=(8, 3)), axis=1)
"""What a teacher says that a logistic regression without much of a penalty can say too."""
NOISE = np.eye(3)[RNG.integers(3, size=400)]


def strength(targets, *, phase="distill", C=0.01, weights=None):
    """C of the trained model, and the learner."""
    learner = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression(C=C)))
    learner.fit(X, targets, rng=np.random.default_rng(0), phase=phase, weights=weights)
    return learner.trained[-1].C, learner


def test_a_teacher_that_is_sure_weakens_it():
    C, learner = strength(SHARP)
    assert pytest.approx(0.25) == C
    assert learner.model[-1].C == 0.01, "the user's own model stays as it is"
    before = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression(C=0.01)))
    before.fit(X, SHARP, rng=np.random.default_rng(0))
    found, rigid = (np.abs(one.predict(X) - SHARP).mean() for one in (learner, before))
    assert found < rigid / 3


def test_noise_does_not_weaken_it():
    assert strength(NOISE)[0] < 0.1


@pytest.mark.parametrize("phase", ["first", "private"])
def test_own_labels_are_fitted_as_the_user_says(phase):
    assert strength(SHARP, phase=phase)[0] == 0.01


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_a_penalty_no_stronger_than_usual_stays(C):
    found, learner = strength(SHARP, C=C)
    assert found == C
    assert "penalty" not in learner.abilities.how


def test_it_is_not_weaker_than_usual():
    assert strength(SHARP, C=0.3)[0] == 0.3  # five times as much would be above 1
    assert strength(SHARP, C=0.2)[0] == USUAL


def test_rows_of_no_weight_have_no_say():
    """Where noise has nearly all the weight the penalty stays, sure as the other rows are."""
    half = np.arange(400) < 200
    mixed = np.where(half[:, None], SHARP, NOISE)
    assert strength(mixed, weights=np.where(half, 1.0, 1e-6))[0] > 0.2
    assert strength(mixed, weights=np.where(half, 1e-6, 1.0))[0] < 0.1


def test_a_class_that_no_kept_row_has():
    """One row of the second class: whether it is held out or not, there is an answer."""
    labels = np.zeros(10, dtype=int)
    labels[3] = 1
    rows = np.arange(10)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        last = LogisticRegression(C=0.1)
        assert 0.1 <= weakened(last, X[:10], labels, rows, None, rng) <= 1


def test_the_model_says_so():
    assert "weakened" in SklearnLearner(LogisticRegression(C=0.02)).abilities.how
