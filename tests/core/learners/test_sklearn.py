"""Estimators, pipelines and users' own objects as learners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import as_learner
from consilience.core.learners.sklearn.estimators import few_values
from consilience.core.learners.sklearn.learner import SklearnLearner

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS / 16
KNOWN = np.array([1, 4, 7])
ROWS = np.flatnonzero(np.isin(LABELS, KNOWN))[:150]
X, HARD = DIGITS[ROWS], np.eye(10)[LABELS[ROWS]]
SOFT = 0.9 * HARD + 0.1 * np.isin(np.arange(10), KNOWN) / 3
MANY = [
    LogisticRegression(max_iter=500),
    make_pipeline(StandardScaler(), SVC(break_ties=True)),  # what the argmax of scores does
    LinearSVC(),
    SGDClassifier(),
    LinearDiscriminantAnalysis(),
    GaussianNB(var_smoothing=0.01),
    HistGradientBoostingClassifier(max_iter=5),
    RandomForestClassifier(10),
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class NearestMean:
    """A user's own classifier in a dozen lines; hard answers only."""

    def fit(self, X: Any, y: Any) -> None:
        self.means = np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])

    def predict(self, X: Any) -> Any:
        return np.square(X[:, None] - self.means).sum(axis=2).argmin(axis=1)


class Noisy(NearestMean):
    """One that draws random numbers, as scikit-learn's do."""

    def __init__(self) -> None:
        self.random_state: int | None = None

    def predict(self, X: Any) -> Any:
        return np.random.default_rng(self.random_state).integers(3, size=len(X))


class Images:
    """Takes images as they are, with weights, and gives probabilities of the wrong width."""

    def __init__(self, width: int) -> None:
        self.width = width

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        assert X.ndim == 3

    def predict(self, X: Any) -> Any:
        raise AssertionError("predict_proba is there")

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), self.width), 1 / self.width)


@pytest.mark.parametrize("model", MANY, ids=lambda m: type(m).__name__)
def test_hard_labels_give_the_estimators_own_answer(model: Any) -> None:
    """Same estimator, same labels, same random state: nothing is added or lost on the way."""
    own = clone(model)
    if "random_state" in own.get_params():
        own.set_params(random_state=7)
    learner = as_learner(own)
    learner.fit(X, HARD, rng=rng())
    own.fit(X, LABELS[ROWS])
    answer = learner.predict(DIGITS)
    np.testing.assert_array_equal(answer.argmax(axis=1), own.predict(DIGITS))
    np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-12)
    assert not np.delete(answer, KNOWN, axis=1).any()
    if hasattr(own, "predict_proba"):
        np.testing.assert_allclose(answer[:, KNOWN], own.predict_proba(DIGITS), atol=1e-12)


@pytest.mark.parametrize("model", MANY, ids=lambda m: type(m).__name__)
def test_same_stream_same_model_and_saved_equals_loaded(model: Any, tmp_path: Any) -> None:
    first, second, loaded = (as_learner(model) for _ in range(3))
    for learner in (first, second):
        learner.bind(10)
        learner.fit(X, SOFT, rng=rng(3))
    np.testing.assert_array_equal(first.predict(DIGITS), second.predict(DIGITS))
    first.save(tmp_path / "model.skops")
    loaded.load(tmp_path / "model.skops")
    assert loaded.fitted
    np.testing.assert_array_equal(first.predict(DIGITS), loaded.predict(DIGITS))
    assert [file.name for file in tmp_path.iterdir()] == ["model.skops"]


def test_weighted_expansion_by_hand() -> None:
    """Rows x = 0, 2, 4 with (1, 0), (½, ½), (0, 1). Class 0 weighs 1.5, its mean is
    (0·1 + 2·½)/1.5 = 2/3 and its variance ((2/3)²·1 + (4/3)²·½)/1.5 = 8/9; class 1 mirrors it at
    10/3. Priors are equal, so the log odds are ((x−2/3)² − (x−10/3)²)/(2·8/9) = 3x − 6."""
    learner = as_learner(GaussianNB(var_smoothing=0))
    assert learner.abilities.soft_targets == "weighted"
    targets = np.array([[1, 0], [0.5, 0.5], [0, 1]])
    learner.fit(np.array([[0.0], [2.0], [4.0]]), targets, rng=rng())
    x = np.array([0.0, 1.0, 2.0, 2.5])
    np.testing.assert_allclose(
        learner.predict(x[:, None])[:, 1], 1 / (1 + np.exp(6 - 3 * x)), rtol=1e-9
    )


def test_binary_decision_becomes_a_sigmoid() -> None:
    rows = np.isin(LABELS, [1, 4])
    learner = as_learner(LinearSVC(random_state=0))
    assert learner.abilities.probabilities == "decision"
    learner.fit(DIGITS[rows], np.eye(10)[LABELS[rows]], rng=rng())
    own = LinearSVC(random_state=0).fit(DIGITS[rows], LABELS[rows])
    np.testing.assert_allclose(
        learner.predict(DIGITS)[:, 4], 1 / (1 + np.exp(-own.decision_function(DIGITS))), rtol=1e-9
    )


def test_pairwise_decisions_are_no_scores_of_classes() -> None:
    """Three classes have three pairs: the shapes agree and the meaning does not."""
    learner = as_learner(SVC(decision_function_shape="ovo"))
    assert learner.abilities.probabilities == "one-hot"
    learner.fit(X, HARD, rng=rng())
    answer = learner.predict(X)
    assert set(np.unique(answer)) == {0.0, 1.0}
    np.testing.assert_array_equal(answer.argmax(axis=1), SVC().fit(X, LABELS[ROWS]).predict(X))


def test_transformers_see_every_row_once() -> None:
    """Copies of soft rows would move the scaler's mean; the selector sees hard labels."""
    scaler = make_pipeline(StandardScaler(), SelectKBest(k=2), LogisticRegression())
    uneven = np.array([[0.5, 0.5], [1, 0], [1, 0], [0, 1]] * 10)
    inputs = DIGITS[:40, 18:22]
    learner = SklearnLearner(scaler)
    learner.fit(inputs, uneven, rng=rng())
    np.testing.assert_allclose(learner._models[0][0].mean_, inputs.mean(axis=0), rtol=1e-12)


def test_cached_pipeline_is_fitted_too(tmp_path: Any) -> None:
    plain = Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])
    cached = Pipeline(plain.steps, memory=str(tmp_path))
    answers = []
    for model in (plain, cached):
        learner = as_learner(model)
        learner.fit(X, SOFT, rng=rng())
        answers.append(learner.predict(X))
    np.testing.assert_array_equal(*answers)


def test_texts() -> None:
    texts = np.array(["cat sat", "dog ran", "cat slept", "dog barked"])
    learner = as_learner(make_pipeline(TfidfVectorizer(), LogisticRegression()))
    learner.check(texts)
    learner.fit(texts, np.array([[0.9, 0.1, 0], [0.1, 0.9, 0]] * 2), rng=rng())
    assert learner.predict(np.array(["cat", "dog"])).argmax(axis=1).tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="takes texts"):
        learner.check(X)
    with pytest.raises(InvalidInput, match="TfidfVectorizer"):
        as_learner(LogisticRegression()).check(texts)


def test_images_are_flattened_for_estimators() -> None:
    flat, square = (
        as_learner(GaussianNB(var_smoothing=0.01)),
        as_learner(GaussianNB(var_smoothing=0.01)),
    )
    flat.fit(X, HARD, rng=rng())
    square.fit(X.reshape(-1, 8, 8), HARD, rng=rng())
    np.testing.assert_array_equal(flat.predict(X), square.predict(X.reshape(-1, 8, 8)))


def test_open_random_states_come_from_the_stream_and_set_ones_stay() -> None:
    forest = RandomForestClassifier(5)
    answers = []
    for seed in (0, 1):
        learner = as_learner(make_pipeline(StandardScaler(), forest))
        learner.fit(X, HARD, rng=rng(seed))
        answers.append(learner.predict(DIGITS))
    assert (answers[0] != answers[1]).any()
    answers = []
    for seed in (0, 1):
        learner = as_learner(clone(forest).set_params(random_state=9))
        learner.fit(X, HARD, rng=rng(seed))
        answers.append(learner.predict(DIGITS))
    np.testing.assert_array_equal(*answers)
    assert forest.random_state is None and not hasattr(forest, "estimators_")


def test_single_class() -> None:
    one = np.eye(10)[np.full(20, 4)]
    learner = as_learner(RandomForestClassifier(3))
    learner.fit(X[:20], one, rng=rng())
    np.testing.assert_array_equal(learner.predict(X[:5]), one[:5])
    with pytest.raises(InvalidInput, match="LogisticRegression: the model cannot be trained"):
        as_learner(LogisticRegression()).fit(X[:20], one, rng=rng())


@pytest.mark.parametrize(
    "model",
    [
        Ridge(),
        SVR(),
        make_pipeline(StandardScaler(), GradientBoostingRegressor(n_estimators=5)),
        MLPRegressor(hidden_layer_sizes=(4,), max_iter=3000, learning_rate_init=0.01),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_regressors_of_one_and_many_outputs(model: Any, n_outputs: int, tmp_path: Any) -> None:
    values = X[:, 10 : 10 + n_outputs] * [1.0, 5.0, -3.0][:n_outputs]
    learner = as_learner(model)
    learner.bind(n_outputs)
    learner.fit(X, values, rng=rng(), weights=None)
    answer = learner.predict(X)
    assert answer.shape == values.shape and answer.dtype == np.float64
    assert np.square(answer - values).mean() < 0.9 * values.var(axis=0).mean()
    learner.save(tmp_path / "model.skops")
    again = as_learner(model)
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), answer)


def test_a_users_own_object(tmp_path: Any) -> None:
    learner = as_learner(NearestMean(), kind="classification")
    assert learner.abilities.soft_targets == "hardened"
    assert learner.abilities.probabilities == "one-hot"
    learner.fit(X, SOFT, rng=rng())
    assert (learner.predict(X).argmax(axis=1) == LABELS[ROWS]).mean() > 0.9
    learner.save(tmp_path / "own.skops")
    again = as_learner(NearestMean(), kind="classification")
    again.load(tmp_path / "own.skops")
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))
    with pytest.raises(RunFailed, match="NearestMean"):
        as_learner(GaussianNB()).load(tmp_path / "own.skops")


def test_a_users_random_state_is_set_and_the_object_left_alone() -> None:
    mine = Noisy()
    learner = as_learner(mine, kind="classification")
    learner.fit(X, HARD, rng=rng())
    np.testing.assert_array_equal(learner.predict(X), learner.predict(X))
    assert mine.random_state is None and not hasattr(mine, "means")


def test_own_objects_get_images_and_wrong_widths_are_named() -> None:
    images = X.reshape(-1, 8, 8)
    learner = as_learner(Images(3))
    assert learner.abilities.soft_targets == "hardened"  # its answers do not follow the weights
    learner.fit(images, SOFT, rng=rng())
    np.testing.assert_allclose(learner.predict(images)[:, KNOWN], 1 / 3)
    learner = as_learner(Images(4))
    learner.fit(images, SOFT, rng=rng())
    with pytest.raises(InvalidInput, match=r"\(150, 4\), expected \(150, 3\)"):
        learner.predict(images)


def test_equal_weights_are_no_weights_and_others_are_refused_by_neighbours() -> None:
    learner = as_learner(LinearDiscriminantAnalysis())
    assert not learner.abilities.sample_weight
    learner.fit(X, HARD, rng=rng(), weights=np.full(len(X), 0.3))
    with pytest.raises(InvalidInput, match="takes no row weights"):
        learner.fit(X, HARD, rng=rng(), weights=np.arange(len(X)))


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        (RandomForestClassifier, None, "this is a class"),
        (KMeans(), None, "neither classifier nor regressor"),
        (StandardScaler(), None, r"fit and predict\n.*consilience.Frozen"),
        (StackingClassifier([("c", SVC())]), None, r"fit and predict\n.*final_estimator="),
        (17, None, "fit and predict"),
        (NearestMean(), None, "Say kind="),
        (SVR(), "classification", "is a regressor"),
        (SVC(), "regression", "is a classifier"),
        (SVC(), "clustering", "Known: classification"),
        (RandomForestClassifier(n_estimators=-3), None, "n_estimators"),
        (make_pipeline(StandardScaler(), SVC(C=-1)), None, "C"),
        (make_pipeline(StandardScaler()), None, "fit and predict"),
    ],
)
def test_what_is_no_model(model: Any, kind: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        as_learner(model, kind=kind)


def test_bad_use() -> None:
    learner = as_learner(GaussianNB())
    with pytest.raises(InvalidInput, match="not been trained"):
        learner.predict(X)
    with pytest.raises(InvalidInput, match="not been trained"):
        learner.save("nowhere.skops")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="one row per sample"):
        learner.check(np.arange(3.0))
    with pytest.raises(InvalidInput, match="GaussianNB: the model cannot be trained"):
        learner.fit(np.where(X > 0.9, np.nan, X), HARD, rng=rng())
    learner.bind(9)
    with pytest.raises(InvalidInput, match="shape"):
        learner.fit(X, HARD, rng=rng())


def test_what_cannot_be_saved_safely(tmp_path: Any) -> None:
    class Hidden(NearestMean):
        def fit(self, X: Any, y: Any) -> None:
            super().fit(X, y)
            self.generator = (row for row in X)

    learner = as_learner(Hidden(), kind="classification")
    learner.fit(X, HARD, rng=rng())
    with pytest.raises(InvalidInput, match="plain attributes"):
        learner.save(tmp_path / "model.skops")
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows + 1), GaussianNB())
    learner = as_learner(pipeline)
    learner.fit(X, HARD, rng=rng())
    with pytest.raises(InvalidInput, match="cannot be saved"):
        learner.save(tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())


def test_no_folder_to_write_to(tmp_path: Any) -> None:
    learner = as_learner(GaussianNB())
    learner.fit(X, HARD, rng=rng())
    with pytest.raises(RunFailed, match="cannot be written"):
        learner.save(tmp_path / "missing" / "model.skops")


def test_damaged_and_foreign_files(tmp_path: Any) -> None:
    import skops.io

    learner = as_learner(GaussianNB(var_smoothing=0.01))
    learner.fit(X, HARD, rng=rng())
    file = tmp_path / "model.skops"
    learner.save(file)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a zip", whole[:200] + b"\0" * 200):
        file.write_bytes(damaged)
        with pytest.raises(RunFailed, match="damaged"):
            learner.load(file)
    with pytest.raises(RunFailed, match="no such model file"):
        learner.load(tmp_path / "other.skops")
    for foreign in ([1, 2], {"models": [GaussianNB()]}):
        skops.io.dump(foreign, file)
        with pytest.raises(RunFailed, match="not one of ours"):
            learner.load(file)
    # A function of a trusted library is code that a file would choose: refused.
    skops.io.dump({"models": [FunctionTransformer(np.linalg.norm)]}, file)
    with pytest.raises(RunFailed, match="norm"):
        learner.load(file)
    file.write_bytes(whole)
    other = as_learner(GaussianNB())
    other.bind(3)
    with pytest.raises(RunFailed, match="10 outputs, expected 3"):
        other.load(file)


def test_columns_of_many_values_are_rounded_to_means_of_bins() -> None:
    """Of 0, 1, 2, 3, 10 and 20 three bins of two rows; another column has a gap and few values."""
    column = np.array([3.0, 0.0, 10.0, 1.0, 20.0, 2.0])
    other = np.array([np.nan, 1.0, 1.0, 5.0, 5.0, 5.0])
    found = few_values(np.stack([column, other], axis=1), 3)
    assert found[:, 0].tolist() == [2.5, 0.5, 15.0, 0.5, 15.0, 2.5]
    assert np.array_equal(found[:, 1], other, equal_nan=True)
    assert column[0] == 3.0


def test_soft_texts_reach_the_optimum_and_the_solver_is_the_users() -> None:
    """Texts of one word each: their shares of classes are the answer, but for the penalty."""
    texts = np.array(["red", "blue"], dtype=object)
    learner = as_learner(make_pipeline(TfidfVectorizer(), LogisticRegression(C=1e6)))
    learner.fit(texts, np.array([[0.75, 0.25], [0.1, 0.9]]), rng=rng(), phase="distill")
    assert isinstance(learner, SklearnLearner) and learner.trained[-1].solver == "lbfgs"
    assert learner.predict(texts) == pytest.approx(np.array([[0.75, 0.25], [0.1, 0.9]]), abs=1e-3)


@pytest.mark.parametrize(
    "model", [DecisionTreeClassifier(), RandomForestClassifier(5), ExtraTreesClassifier(5)], ids=str
)
def test_rows_with_gaps_that_cannot_be_written_to(model: Any) -> None:
    """As rows are that came over the wire, or that a party holds."""
    rows = X.astype(np.float32)
    rows[rng().random(rows.shape) < 0.1] = np.nan
    kept = rows.copy()
    rows.flags.writeable = False
    learner = as_learner(model)
    learner.fit(rows, HARD, rng=rng())
    assert (learner.predict(rows).argmax(axis=1) == HARD.argmax(axis=1)).mean() > 0.8
    assert np.array_equal(rows, kept, equal_nan=True)
