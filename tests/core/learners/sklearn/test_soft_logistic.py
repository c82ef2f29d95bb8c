"""Logistic regressions of soft labels: the library's own on copies of rows, and a penalty that serves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array, csr_array
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from consilience.core.errors import InvalidInput
from consilience.core.learners.sklearn import soft_logistic
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.learners.sklearn.soft_logistic import USUAL, is_plain_logistic
from consilience.core.learners.targets import expand

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 8))
SHARP = softmax(3 * X @ RNG.normal(size=(8, 3)), axis=1)
"""What a teacher says that a logistic regression without much of a penalty can say too."""


def noise():
    """Soft labels that no rows tell."""
    return 0.8 * np.eye(3)[RNG.integers(3, size=400)] + 0.2 / 3


NOISE = noise()
SOFT = {2: np.stack([SHARP[:, 0], 1 - SHARP[:, 0]], axis=1), 3: SHARP}


def trained(model, targets, *, rows=X, weights=None):
    """A learner of a model, fitted."""
    learner = SklearnLearner(model)
    learner.fit(rows, targets, rng=np.random.default_rng(0), weights=weights)
    return learner


def strength(targets, *, C=0.01, weights=None):
    """C of the trained model."""
    return trained(LogisticRegression(C=C), targets, weights=weights).trained.C


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("C", [0.5, 1.0, 10.0])
def test_it_is_the_library_s_own_on_copies_of_rows(k, weighted, C):
    weights = RNG.uniform(0.5, 1.5, size=400) if weighted else None
    ours = trained(LogisticRegression(C=C, tol=1e-7, max_iter=1000), SOFT[k], weights=weights)
    scaled = None if weights is None else weights / weights.mean()
    rows, labels, copies = expand(SOFT[k], scaled)
    theirs = LogisticRegression(C=C, tol=1e-7, max_iter=1000)
    theirs.fit(X[rows], labels, sample_weight=copies)
    assert ours.trained.C == C
    np.testing.assert_allclose(ours.trained.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict_proba(X), atol=1e-5)
    assert ours.trained.n_iter_ == pytest.approx(theirs.n_iter_, rel=0.1)


def test_a_teacher_that_is_sure_weakens_the_penalty():
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    learner = trained(model, SHARP)
    assert pytest.approx(0.25) == learner.trained[-1].C
    assert model[-1].C == 0.01, "the user's own model stays as it is"
    rigid = LogisticRegression(C=0.01)
    rows, labels, copies = expand(SHARP, None)
    rigid.fit(X[rows], labels, sample_weight=copies)
    far = np.abs(rigid.predict_proba(X) - SHARP).mean()
    assert np.abs(learner.predict(X) - SHARP).mean() < far / 3


def test_noise_does_not(monkeypatch):
    tried = []
    minimum = soft_logistic._minimum
    monkeypatch.setattr(
        soft_logistic, "_minimum", lambda *given: tried.append(given[3]) or minimum(*given)
    )
    assert np.median([strength(noise()) for _ in range(5)]) == 0.01
    assert tried[:2] == [0.01, 0.05], "a larger one was tried on held-out rows"


def test_own_labels_are_fitted_as_the_user_says():
    assert strength(np.eye(3)[SHARP.argmax(axis=1)]) == 0.01


def test_it_is_not_weaker_than_usual():
    assert strength(SHARP, C=0.3) == 0.3  # five times as much would be above 1
    assert strength(SHARP, C=0.2) == USUAL
    assert strength(SHARP, C=10.0) == 10.0


def test_rows_of_no_weight_have_no_say():
    half = np.arange(400) < 200
    mixed = np.where(half[:, None], SHARP, NOISE)
    assert strength(mixed, weights=np.where(half, 1.0, 1e-6)) > 0.2
    assert strength(mixed, weights=np.where(half, 1e-6, 1.0)) < 0.1


@pytest.mark.parametrize("form", [csr_array, coo_array])
def test_sparse_rows_give_the_same(form):
    model = LogisticRegression(C=0.1, tol=1e-7)
    sparse = make_pipeline(FunctionTransformer(form), model)
    found, dense = trained(sparse, SHARP).trained[-1], trained(model, SHARP).trained
    np.testing.assert_allclose(dense.coef_, found.coef_, atol=1e-4)
    assert dense.C == found.C > 0.1 and found.solver == "lbfgs"


def test_rows_of_any_type_are_numbers_of_double_precision():
    wide = X.astype(np.float32)
    learner = trained(LogisticRegression(), SHARP, rows=wide)
    again = trained(LogisticRegression(), SHARP, rows=wide.astype(np.float64))
    np.testing.assert_array_equal(learner.trained.coef_, again.trained.coef_)


def test_names_of_columns_are_kept_as_the_library_keeps_them():
    """Without them the library warns when it predicts, and warnings are errors here."""
    named = StandardScaler().set_output(transform="pandas")
    learner = trained(make_pipeline(named, LogisticRegression()), SHARP)
    learner.predict(X)
    assert len(learner.trained[-1].feature_names_in_) == 8


def test_columns_of_several_types():
    def mixed(rows):
        return pd.DataFrame({"a": rows[:, 0], "flag": rows[:, 1] > 0})

    learner = trained(make_pipeline(FunctionTransformer(mixed), LogisticRegression()), SHARP)
    assert np.isfinite(learner.predict(X)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused(bad):
    rows = X.copy()
    rows[3, 2] = bad
    with pytest.raises(InvalidInput, match=r"contains (NaN|infinity)"):
        trained(LogisticRegression(), SHARP, rows=rows)


def test_too_few_steps_are_said():
    with pytest.warns(ConvergenceWarning, match="max_iter = 2"):
        trained(LogisticRegression(max_iter=2), SHARP)


@pytest.mark.parametrize(
    ("option", "plain"),
    [
        ({"C": 0.5, "max_iter": 7, "random_state": 3}, True),
        ({"l1_ratio": None}, True),
        ({"class_weight": "balanced"}, False),
        ({"fit_intercept": False}, False),
        ({"solver": "saga"}, False),
        ({"C": "1"}, False),
        ({"C": 0}, False),
    ],
)
def test_what_is_plain(option, plain):
    assert is_plain_logistic(LogisticRegression(**option)) is plain


def test_other_models_of_that_name_are_their_own():
    class LogisticRegression:
        """Any object with ``fit`` and ``predict``."""

        def fit(self, X, y):
            self.seen = len(y)

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    learner = SklearnLearner(LogisticRegression(), kind="classification")
    learner.fit(X, SHARP, rng=np.random.default_rng(0))
    assert learner.trained.seen == 400


def test_other_options_are_left_to_the_library():
    assert trained(LogisticRegression(C=0.01, class_weight="balanced"), SHARP).trained.C == 0.01


@pytest.mark.parametrize("count", [2, 3, 10])
def test_very_few_rows(count):
    targets = np.eye(2)[(np.arange(count) == 1).astype(int)]
    weights = np.arange(1.0, count + 1)
    learner = trained(LogisticRegression(C=0.1), targets, rows=X[:count], weights=weights)
    assert np.isfinite(learner.trained.coef_).all() and learner.trained.C <= USUAL


def test_a_taught_model_is_saved_and_loaded(tmp_path):
    learner = trained(make_pipeline(StandardScaler(), LogisticRegression(C=0.01)), SHARP)
    learner.save(tmp_path / "model.skops")
    again = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression(C=0.01)))
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))


def test_the_model_says_so():
    assert "Held-out rows" in SklearnLearner(LogisticRegression(C=0.02)).abilities.how
    assert "Held-out rows" not in SklearnLearner(LogisticRegression()).abilities.how
