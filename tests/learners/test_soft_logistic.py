"""Logistic regressions with a strong penalty that are taught."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience.learners.sklearn.learner import SklearnLearner
from consilience.learners.sklearn.soft_logistic import USUAL, fit_to_soft_labels
from consilience.learners.targets import without_small

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
    rows, labels = np.repeat(np.arange(400), 3), np.tile([0, 1, 2], 400)
    copies = make_pipeline(StandardScaler(), LogisticRegression(C=C))
    shares = without_small(SHARP).ravel()
    copies.fit(X[rows], labels, logisticregression__sample_weight=shares)
    np.testing.assert_allclose(learner.predict(X), copies.predict_proba(X), atol=1e-3)
    assert "held-out" not in learner.abilities.how


def test_it_is_not_weaker_than_usual():
    assert strength(SHARP, C=0.3)[0] == 0.3  # five times as much would be above 1
    assert strength(SHARP, C=0.2)[0] == USUAL


def test_rows_of_no_weight_have_no_say():
    """Where noise has nearly all the weight the penalty stays, sure as the other rows are."""
    half = np.arange(400) < 200
    mixed = np.where(half[:, None], SHARP, NOISE)
    assert strength(mixed, weights=np.where(half, 1.0, 1e-6))[0] > 0.2
    assert strength(mixed, weights=np.where(half, 1e-6, 1.0))[0] < 0.1


@pytest.mark.parametrize("k", [2, 3])
def test_of_hard_labels_it_is_scikit_learns_own(k):
    labels = RNG.integers(k, size=400)
    weights = RNG.uniform(0.5, 1.5, size=400)
    ours, theirs = (LogisticRegression(C=0.02, tol=1e-7, max_iter=1000) for _ in range(2))
    fit_to_soft_labels(ours, X, np.eye(k)[labels], weights, np.random.default_rng(0))
    theirs.set_params(C=ours.C).fit(X, labels, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_soft_labels_are_many_rows_with_hard_ones():
    """A row of 0.3 and 0.7 is three rows of the first class and seven of the second."""
    shares = RNG.integers(1, 10, size=50) / 10
    ours = LogisticRegression(C=0.9, tol=1e-7)
    fit_to_soft_labels(
        ours, X[:50], np.stack([1 - shares, shares], axis=1), None, np.random.default_rng(0)
    )
    rows, labels = np.repeat(X[:50], 2, axis=0), np.tile([0, 1], 50)
    copies = np.stack([1 - shares, shares], axis=1).ravel()
    theirs = LogisticRegression(C=0.9, tol=1e-7).fit(rows, labels, sample_weight=copies)
    assert ours.C == 0.9
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


def test_sparse_rows_give_the_same():
    dense, sparse = (LogisticRegression(C=0.1, tol=1e-7) for _ in range(2))
    for model, rows in ((dense, X), (sparse, csr_array(X))):
        fit_to_soft_labels(model, rows, SHARP, None, np.random.default_rng(0))
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-4)
    assert dense.C == sparse.C and sparse.solver == "lbfgs"


@pytest.mark.parametrize("option", [{"class_weight": "balanced"}, {"fit_intercept": False}])
def test_other_options_are_left_to_the_library(option):
    learner = SklearnLearner(LogisticRegression(C=0.01, **option))
    learner.fit(X, SHARP, rng=np.random.default_rng(0), phase="distill")
    assert learner.trained.C == 0.01


def test_a_class_of_one_row_and_very_few_rows():
    for count in (2, 3, 10):
        targets = np.eye(2)[(np.arange(count) == 1).astype(int)]
        for seed in range(6):
            last = LogisticRegression(C=0.1)
            fit_to_soft_labels(last, X[:count], targets, None, np.random.default_rng(seed))
            assert np.isfinite(last.coef_).all() and last.C <= USUAL


def test_a_taught_model_is_saved_and_loaded(tmp_path):
    _, learner = strength(SHARP)
    learner.save(tmp_path / "model.skops")
    again = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression(C=0.01)))
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))


def test_the_model_says_so():
    assert "held-out rows" in SklearnLearner(LogisticRegression(C=0.02)).abilities.how
