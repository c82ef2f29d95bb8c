"""Options by class, answers by class, and row weights that do not arrive: no wrong result in silence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, SGDClassifier
from sklearn.metrics import f1_score, log_loss, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from consilience import Federation, Party, as_learner, avg, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.core.numerics.outcomes import Classes

DRAW = np.random.default_rng(0)
Y = DRAW.integers(0, 3, 500)
X = DRAW.normal(size=(500, 4))
X[:, 0] += Y
OWN = np.flatnonzero(Y > 0)[:150]  # no row of class 0
HALF = np.clip(1 / (1 + np.exp(-2 * X[:, 1])), 0.001, 0.999)
SOFT = np.stack([1 - HALF, HALF], axis=1)
"""A teacher of two classes, who is unsure of many rows."""


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def fitted(model: Any, labels: dict[str, int] | None = None) -> Any:
    """A learner that was taught the classes 1 and 2 of three."""
    learner = as_learner(model)
    learner.labels = labels
    learner.bind(3)
    learner.check(X)
    learner.fit(X[OWN], np.eye(3)[Y[OWN]], rng=rng())
    return learner


def logistic(**options: Any) -> LogisticRegression:
    return LogisticRegression(max_iter=500, **options)


HEAVY = {0: 1, 1: 1, 2: 50}
BY_CLASS = [
    logistic(class_weight=HEAVY),
    SVC(class_weight=HEAVY),
    LinearSVC(class_weight=HEAVY),
    SGDClassifier(class_weight=HEAVY, random_state=0),
    DecisionTreeClassifier(max_depth=2, class_weight=HEAVY, random_state=0),
    RandomForestClassifier(10, max_depth=2, class_weight=HEAVY, random_state=0),
    make_pipeline(StandardScaler(), logistic(class_weight=HEAVY)),
    GridSearchCV(logistic(), {"class_weight": [HEAVY]}, cv=2),
    GridSearchCV(make_pipeline(SVC()), {"svc__class_weight": (HEAVY,)}, cv=2),
    CalibratedClassifierCV(logistic(class_weight=HEAVY), cv=2),
    make_pipeline(
        SelectFromModel(logistic(class_weight=HEAVY), max_features=2), logistic(class_weight=HEAVY)
    ),
]


@pytest.mark.parametrize("model", BY_CLASS, ids=lambda m: type(m).__name__)
def test_class_weights_are_of_the_federations_classes(model: Any) -> None:
    """A party that lacks a class gets what scikit-learn makes of its rows and their own labels."""
    expected = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected.fit(X[OWN], Y[OWN])
        learner = fitted(model)
    answers = learner.predict(X).argmax(axis=1)
    assert (answers == expected.predict(X)).mean() > 0.995
    usual = as_learner(logistic())
    usual.bind(3)
    usual.fit(X[OWN], np.eye(3)[Y[OWN]], rng=rng())
    assert not (answers == usual.predict(X).argmax(axis=1)).all()


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: VotingClassifier([("a", inner), ("b", inner)]),
        lambda inner: StackingClassifier([("a", logistic())], final_estimator=inner, cv=2),
        lambda inner: BaggingClassifier(inner, 5, random_state=0),
        lambda inner: AdaBoostClassifier(inner, n_estimators=2, random_state=0),
    ],
    ids=["voting", "stacking", "bagging", "boosting"],
)
def test_inner_models_of_coded_labels_get_class_weights_too(around: Any) -> None:
    """Class 2 must not be missed, and is missed by none of them."""
    heavy, plain = (
        (fitted(around(inner)).predict(X[Y == 2]).argmax(axis=1) == 2).mean()
        for inner in (logistic(class_weight=HEAVY), logistic())
    )
    assert heavy > 0.98 > plain


def test_keys_are_names_numbers_or_own_labels() -> None:
    labels = {"benign": 0, "odd": 1, "malignant": 2, "maligne": 2}
    twos = [
        (fitted(logistic(class_weight={key: 50}), labels).predict(X).argmax(axis=1) == 2).mean()
        for key in ("malignant", "maligne")
    ]
    number = (fitted(logistic(class_weight={2.0: 50})).predict(X).argmax(axis=1) == 2).mean()
    assert twos == [number, number] and number > 0.9
    with pytest.raises(InvalidInput, match="names class 'maligne' a second time"):
        fitted(logistic(class_weight={"malignant": 2, "maligne": 3}), labels)


def test_a_party_names_classes_by_its_own_labels() -> None:
    """Aliases hold for options too, and a key that is no class stops the run before anything is trained."""
    names = np.array(["gut", "boese"])[(Y == 2).astype(int)]
    theirs = np.array(["benign", "malignant"])[(Y == 2).astype(int)]
    alias = {"gut": "benign", "boese": "malignant"}

    def run(weight: Any) -> Any:
        own = Party(
            "a", logistic(class_weight=weight), X[:150], names[:150], outcome=Classes(aliases=alias)
        )
        other = Party("b", logistic(), X[150:300], theirs[150:300])
        return Federation([own, other], X[300:]).run(
            ensemble_distillation(aggregate=avg(), rounds=1)
        )

    shares = [
        (run(weight).models["a"].alone.predict(X) == "malignant").mean()
        for weight in ({"gut": 1, "boese": 50}, {"benign": 1, "malignant": 50})
    ]
    assert shares[0] == shares[1] > 0.7
    with pytest.raises(
        InvalidInput, match="names 'maligna', which is no class of the federation"
    ) as e:
        run({"maligna": 50})
    assert "'benign', 'malignant'" in str(e.value)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (logistic(class_weight={0: 1, 7: 2}), "names 7, which is no class"),
        (make_pipeline(StandardScaler(), logistic(class_weight={"2x": 1})), "names '2x'"),
        (logistic(class_weight={float("nan"): 1}), "names nan, which is no class"),
        (logistic(class_weight={1.5: 1}), "names 1.5, which is no class"),
        (logistic(class_weight={True: 1}), "names True, which is no class"),
        (GridSearchCV(logistic(), {"class_weight": [None, {9: 1}]}), "names 9"),
        (BaggingClassifier(logistic(class_weight={9: 1})), "names 9"),
        (OneVsRestClassifier(logistic(class_weight=HEAVY)), "inner model names 2"),
        (GaussianNB(priors=[0.5, 0.5]), "priors has 2 values, and the federation 3 classes"),
        (LinearDiscriminantAnalysis(priors=[0.5, 0.5]), "priors has 2 values"),
        (MultinomialNB(class_prior=[0.1, 0.9]), "class_prior has 2 values"),
        (GaussianNB(priors=[1.0, 0, 0]), "priors is 0 for all classes that its rows have"),
        (DummyClassifier(strategy="constant", constant=0), "a class that it has no rows of"),
        (DummyClassifier(strategy="constant", constant="x"), "names 'x'"),
    ],
)
def test_options_for_other_classes_are_refused(model: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        fitted(model)


def test_a_function_of_classes_is_refused() -> None:
    class Own(KNeighborsClassifier):
        def __init__(self, class_weight: Any = None) -> None:
            super().__init__()
            self.class_weight = class_weight

    with pytest.raises(InvalidInput, match="class_weight is a function"):
        fitted(Own(class_weight=lambda y: {0: 1}))


def searching(scoring: Any) -> GridSearchCV:
    chosen = "f1" if isinstance(scoring, dict) else True
    return GridSearchCV(logistic(), {"C": [1e-6, 1.0]}, scoring=scoring, cv=3, refit=chosen)


@pytest.mark.parametrize(
    "scoring",
    [
        make_scorer(f1_score, pos_label="ill"),
        {"f1": make_scorer(f1_score, pos_label="ill"), "fit": "accuracy"},
        make_scorer(
            log_loss,
            labels=["ill", "well"],
            response_method="predict_proba",
            greater_is_better=False,
        ),
    ],
    ids=["label", "several scorers", "labels"],
)
def test_scorers_name_labels(scoring: Any) -> None:
    """Such a search could score nothing, and took its first candidate, which answers one class alone."""
    names = np.where((X[:, 1] > 1), "ill", "well")
    learner = as_learner(searching(scoring))
    learner.labels = {"ill": 0, "well": 1}
    learner.bind(2)
    learner.check(X)
    learner.fit(X, np.eye(2)[(names == "well").astype(int)], rng=rng())
    assert learner.trained.best_params_ == searching(scoring).fit(X, names).best_params_ == {"C": 1}


def test_scorers_by_name_are_of_class_1() -> None:
    """Of labels 1 and 2 it is the first, and not the one whose code is 1."""
    labels = np.where(X[:, 1] > 1, 1, 2)
    learner = as_learner(GridSearchCV(logistic(), {"C": [1e-6, 1.0]}, scoring="f1", cv=3))
    learner.labels = {"1": 0, "2": 1}
    learner.bind(2)
    learner.fit(X, np.eye(2)[labels - 1], rng=rng())
    alone = GridSearchCV(logistic(), {"C": [1e-6, 1.0]}, scoring="f1", cv=3).fit(X, labels)
    assert np.allclose(
        learner.trained.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]
    )


@pytest.mark.filterwarnings("ignore")
def test_a_search_that_scores_nothing_is_refused() -> None:
    def scorer(model: Any, X: Any, y: Any) -> float:
        return float(f1_score(y, model.predict(X), pos_label="ill"))

    learner = as_learner(searching(scorer))
    learner.bind(2)
    with pytest.raises(InvalidInput, match="could score no candidate"):
        learner.fit(X, np.eye(2)[(X[:, 1] > 1).astype(int)], rng=rng())


def test_an_object_without_parameters_has_its_attributes_translated() -> None:
    class Own:
        def __init__(self) -> None:
            self.class_weight = {1: 1, 2: 50}

        def fit(self, X: Any, y: Any) -> None:
            self.inner = logistic(class_weight=self.class_weight).fit(X, y)

        def predict(self, X: Any) -> Any:
            return self.inner.predict(X)

    own = Own()
    learner = as_learner(own, kind="classification")
    learner.bind(3)
    learner.fit(X[OWN], np.eye(3)[Y[OWN]], rng=rng())
    expected = logistic(class_weight={1: 1, 2: 50}).fit(X[OWN], Y[OWN]).predict(X)
    np.testing.assert_array_equal(learner.predict(X).argmax(axis=1), expected)
    assert own.class_weight == {1: 1, 2: 50}  # the user's own stays


@pytest.mark.parametrize(
    ("model", "own"),
    [
        (GaussianNB(priors=[0.5, 0.05, 0.45]), GaussianNB(priors=[0.1, 0.9])),
        (
            LinearDiscriminantAnalysis(priors=(0.5, 0.05, 0.45)),
            LinearDiscriminantAnalysis(priors=[0.1, 0.9]),
        ),
        (
            make_pipeline(MinMaxScaler(), MultinomialNB(class_prior=[0.5, 0.05, 0.45])),
            make_pipeline(MinMaxScaler(), MultinomialNB(class_prior=[0.1, 0.9])),
        ),
        (NearestCentroid(priors="uniform"), NearestCentroid(priors="uniform")),
    ],
    ids=["gauss", "lda", "multinomial", "centroid"],
)
def test_priors_are_of_the_federations_classes(model: Any, own: Any) -> None:
    """0.05 and 0.45 for the two classes that it has are 0.1 and 0.9."""
    found = fitted(model).predict(X)
    expected = own.fit(X[OWN], Y[OWN])
    np.testing.assert_array_equal(found.argmax(axis=1), expected.predict(X))
    if hasattr(expected, "predict_proba"):
        np.testing.assert_allclose(found[:, 1:], expected.predict_proba(X), atol=1e-9)


def test_one_against_the_rest_keeps_the_weights_of_its_own_two_labels() -> None:
    model = OneVsRestClassifier(logistic(class_weight={0: 1, 1: 10}))
    targets, expected = np.eye(3)[Y], OneVsRestClassifier(logistic(class_weight={0: 1, 1: 10}))
    learner = as_learner(model)
    learner.bind(3)
    learner.check(X)
    learner.fit(X, targets, rng=rng())
    np.testing.assert_allclose(learner.predict(X), expected.fit(X, Y).predict_proba(X), atol=1e-9)


def test_class_weights_of_histogram_boosting() -> None:
    """Of labels other than 0, 1, … scikit-learn 1.9 itself takes these for codes."""
    model = HistGradientBoostingClassifier(max_iter=5, class_weight=HEAVY)
    own = HistGradientBoostingClassifier(max_iter=5, class_weight={0: 1, 1: 50})
    expected = own.fit(X[OWN], Y[OWN] - 1).predict_proba(X)
    np.testing.assert_allclose(fitted(model).predict(X)[:, 1:], expected, atol=1e-9)


def boosters() -> list[Any]:
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    return [
        xgboost.XGBClassifier(n_estimators=5, n_jobs=1, scale_pos_weight=20),
        lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, scale_pos_weight=20),
    ]


def test_the_weight_of_positives_is_the_second_classs_of_two() -> None:
    y = (Y == 2).astype(int)
    for model in boosters():
        learner = as_learner(model)
        learner.labels = {"no": 0, "yes": 1}
        learner.bind(2)
        learner.check(X)
        learner.fit(X, np.eye(2)[y], rng=rng())
        expected = model.fit(X, y).predict_proba(X)
        np.testing.assert_allclose(learner.predict(X), expected, atol=1e-6)
        with pytest.raises(InvalidInput, match="scale_pos_weight is for two classes"):
            fitted(model)


def test_class_weights_of_boosted_trees() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, class_weight=HEAVY)
    expected = lightgbm.LGBMClassifier(
        n_estimators=5, n_jobs=1, verbose=-1, class_weight={1: 1, 2: 50}
    )
    found = fitted(model).predict(X)
    np.testing.assert_allclose(
        found[:, 1:], expected.fit(X[OWN], Y[OWN]).predict_proba(X), atol=1e-9
    )


@pytest.mark.parametrize("weights", [[1, 1, 50], {0: 1, 1: 1, 2: 50}])
def test_class_weights_of_catboost(weights: Any) -> None:
    catboost = pytest.importorskip("catboost")
    usual = {"iterations": 5, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    found = fitted(catboost.CatBoostClassifier(class_weights=weights, **usual)).predict(X)
    assert (found.argmax(axis=1) == 2).mean() > 0.8
    assert not found[:, 0].any()


# --- balanced weights ----------------------------------------------------------------------------


RARE = np.clip(0.05 + 0.5 / (1 + np.exp(-3 * X[:, 1])), 0, 1)
"""Probability of a class that is likelier than the other on few rows."""


@pytest.mark.parametrize(
    "model",
    [
        logistic(class_weight="balanced"),
        SVC(class_weight="balanced"),
        DecisionTreeClassifier(min_samples_leaf=40, class_weight="balanced", random_state=0),
        RandomForestClassifier(
            20, min_samples_leaf=40, class_weight="balanced_subsample", random_state=0
        ),
        BaggingClassifier(logistic(class_weight="balanced"), 5, random_state=0),
        HistGradientBoostingClassifier(max_iter=20, class_weight="balanced", random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_balanced_weights_are_of_sums_of_soft_labels(model: Any) -> None:
    """Taught probabilities, it answers as taught labels that were drawn by them."""
    learner, targets = as_learner(model), np.stack([1 - RARE, RARE], axis=1)
    learner.bind(2)
    learner.fit(X, targets, rng=rng(), phase="distill")
    soft = learner.predict(X)[:, 1]
    drawn = (rng().random((20, len(X))) < RARE).astype(int)
    many, labels = np.tile(X, (20, 1)), drawn.ravel()
    learner.fit(many, np.eye(2)[labels], rng=rng())
    hard = learner.predict(X)[:, 1]
    assert abs(soft.mean() - hard.mean()) < 0.04
    assert abs((soft > 0.5).mean() - (hard > 0.5).mean()) < 0.1
    assert (soft > 0.5).mean() > 0.3  # without balance it is likelier on few rows


def test_unbalanced_positives_are_weighed_and_not_counted() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    usual = {"n_estimators": 20, "n_jobs": 1, "verbose": -1}
    targets = np.stack([1 - RARE, RARE], axis=1)
    shares = []
    for options in ({"is_unbalance": True}, {"class_weight": "balanced"}, {}):
        learner = as_learner(lightgbm.LGBMClassifier(**usual, **options))
        learner.bind(2)
        learner.fit(X, targets, rng=rng(), phase="distill")
        shares.append(learner.predict(X)[:, 1].mean())
    assert abs(shares[0] - shares[1]) < 0.02 and shares[0] > shares[2] + 0.1


# --- row weights that do not arrive ------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifierCV(KNeighborsClassifier(), cv=2),
        CalibratedClassifierCV(make_pipeline(StandardScaler(), logistic()), cv=2),
        make_pipeline(
            StandardScaler(), CalibratedClassifierCV(make_pipeline(DecisionTreeClassifier()), cv=2)
        ),
    ],
    ids=["calibrated", "calibrated pipeline", "nested"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_models_that_drop_row_weights_are_taught_the_likeliest_class(model: Any) -> None:
    learner = as_learner(model)
    assert learner.abilities.soft_targets == "hardened" and not learner.abilities.sample_weight
    assert "shows no effect of row weights in a trial" in learner.abilities.how
    learner.bind(2)
    learner.fit(X, SOFT, rng=rng(), phase="distill")
    assert ((learner.predict(X)[:, 1] > 0.5) == (HALF > 0.5)).mean() > 0.9


@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifierCV(logistic(), cv=2),
        CalibratedClassifierCV(logistic(class_weight={1: 2}), cv=2),
        CalibratedClassifierCV(GaussianNB(priors=[0.5, 0.5]), cv=2),
        BaggingClassifier(logistic(), 5, random_state=0),
        AdaBoostClassifier(n_estimators=5, random_state=0),
        HistGradientBoostingClassifier(max_iter=5, early_stopping=True),
    ],
    ids=lambda m: type(m).__name__,
)
def test_models_that_hand_row_weights_on_get_them(model: Any) -> None:
    learner = as_learner(model)
    assert learner.abilities.soft_targets == "weighted"
    learner.bind(2)
    learner.fit(X, SOFT, rng=rng(), phase="distill")
    assert ((learner.predict(X)[:, 1] > 0.5) == (HALF > 0.5)).mean() > 0.9


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_folds_that_see_no_weights_are_tried() -> None:
    """Its folds choose C by the share of copies that are right, which is a half whatever C is."""
    learner = as_learner(LogisticRegressionCV(Cs=[1e-6, 1.0], cv=2, scoring="accuracy"))
    learner.bind(2)
    learner.fit(X, SOFT, rng=rng(), phase="distill")
    found = learner.predict(X)[:, 1]
    assert ((found > 0.5) == (HALF > 0.5)).mean() > 0.9 and found.max() > 0.9


def test_an_object_that_takes_weights_and_drops_them() -> None:
    class Drops:
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
            self.model = logistic().fit(X, y)

        def predict(self, X: Any) -> Any:
            return self.model.predict(X)

    class Takes(Drops):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
            self.model = logistic().fit(X, y, sample_weight)

    for model, expected in ((Drops(), "hardened"), (Takes(), "weighted")):
        learner = as_learner(model, kind="classification")
        assert learner.abilities.soft_targets == expected
        learner.bind(2)
        learner.fit(X, SOFT, rng=rng(), phase="distill")
        assert ((learner.predict(X)[:, 1] > 0.5) == (HALF > 0.5)).mean() > 0.95


def test_regressors_that_drop_row_weights_say_so() -> None:
    class Drops(Ridge):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            return super().fit(X, y)

    assert not as_learner(Drops()).abilities.sample_weight
    assert "shows no effect of row weights" in as_learner(Drops()).abilities.how
    assert as_learner(BaggingRegressor(Ridge(), 3, random_state=0)).abilities.sample_weight


def test_a_trial_leaves_random_numbers_alone() -> None:
    class Draws:
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
            np.random.rand(3)  # noqa: NPY002

        def predict(self, X: Any) -> Any:
            return np.zeros(len(X))

    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr] # noqa: NPY002
    as_learner(Draws(), kind="classification")
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("before", [[], [StandardScaler()]], ids=["bare", "scaled"])
def test_a_kernel_machine_is_taught_probabilities(before: list[Any]) -> None:
    """Taught the exact probabilities it is about as near as taught one label a row drawn by them."""
    model = make_pipeline(*before, SVC(probability=True)) if before else SVC(probability=True)
    learner = as_learner(model)
    learner.bind(2)
    learner.fit(X, SOFT, rng=rng(), phase="distill")
    soft = np.abs(learner.predict(X)[:, 1] - HALF).mean()
    learner.fit(X, np.eye(2)[(rng().random(len(X)) < HALF).astype(int)], rng=rng())
    assert hasattr(learner.trained, "predict_proba")  # of hard labels its own
    hard = np.abs(learner.predict(X)[:, 1] - HALF).mean()
    assert soft < 1.5 * hard


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (FrozenEstimator(logistic().fit(X, Y)), "never trained"),
        (CalibratedClassifierCV(FrozenEstimator(logistic().fit(X, Y))), "never trained"),
        (FixedThresholdClassifier(logistic(), threshold=0.9), "threshold would have no effect"),
        (
            make_pipeline(StandardScaler(), TunedThresholdClassifierCV(logistic())),
            "threshold would have no effect",
        ),
    ],
)
def test_what_training_or_the_exchange_would_ignore_is_refused(model: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        as_learner(model)


# --- answers ---------------------------------------------------------------------------------------------


class Answers:
    """An object whose answers are a function of a good model's."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def fit(self, X: Any, y: Any) -> None:
        self.model = logistic().fit(X, y)

    def predict(self, X: Any) -> Any:
        return self.answer(self.model, X)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda m, X: m.predict_proba(X)[:, 1], "none of the labels"),
        (lambda m, X: m.predict_proba(X)[:, 1:], "none of the labels"),
        (lambda m, X: m.predict_proba(X), r"answers of shape \(500, 2\)"),
        (lambda m, X: np.where(m.predict(X) > 0, 1, -1), "predict gave -1"),
        (lambda m, X: m.predict(X) + 1, "predict gave 2"),
        (lambda m, X: m.decision_function(X), "none of the labels"),
        (lambda m, X: np.array(["no", "yes"])[m.predict(X)], "predict gave no"),
        (lambda m, X: np.full(len(X), np.nan), "predict gave nan"),
        (lambda m, X: m.predict(X)[:-1], r"answers of shape \(499,\)"),
    ],
)
def test_answers_that_are_no_codes_are_refused(answer: Any, said: str) -> None:
    learner = as_learner(Answers(answer), kind="classification")
    learner.bind(2)
    learner.fit(X, np.eye(2)[(HALF > 0.5).astype(int)], rng=rng())
    with pytest.raises(InvalidInput, match=said):
        learner.predict(X)


@pytest.mark.parametrize(
    "answer",
    [
        lambda m, X: m.predict(X),
        lambda m, X: m.predict(X)[:, None].astype(np.float32),
        lambda m, X: m.predict(X) == 1,
        lambda m, X: m.predict(X).astype(object),
        lambda m, X: m.predict(X).tolist(),
    ],
)
def test_answers_that_are_codes_are_taken(answer: Any) -> None:
    learner = as_learner(Answers(answer), kind="classification")
    learner.bind(2)
    learner.fit(X, np.eye(2)[(HALF > 0.5).astype(int)], rng=rng())
    assert ((learner.predict(X)[:, 1] == 1) == (HALF > 0.5)).mean() > 0.98


class Ordered(Answers):
    """Its columns are in the order of ``classes_``, whatever that is."""

    def __init__(self, order: list[Any], names: Any = None, scale: float = 1.0) -> None:
        super().__init__(None)
        self.order, self.classes_, self.scale = order, names or order, scale

    def predict_proba(self, X: Any) -> Any:
        return self.model.predict_proba(X)[:, self.order] * self.scale


class Scores(Ordered):
    """The same with scores."""

    predict_proba = None  # type: ignore[assignment]

    def decision_function(self, X: Any) -> Any:
        return self.model.decision_function(X)[:, self.order]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_columns_are_put_in_order_by_the_models_classes(order: list[int]) -> None:
    learner = as_learner(Ordered(order))
    learner.bind(3)
    learner.fit(X, np.eye(3)[Y], rng=rng())
    np.testing.assert_array_equal(learner.predict(X), logistic().fit(X, Y).predict_proba(X))


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_one_score_a_row_is_the_second_of_the_models_classes(order: list[int]) -> None:
    class One:
        def fit(self, X: Any, y: Any) -> None:
            self.model, self.classes_ = logistic().fit(X, y), np.array(order)

        def predict(self, X: Any) -> Any:
            return self.model.predict(X)

        def decision_function(self, X: Any) -> Any:
            return self.model.decision_function(X) * (1 if order[1] == 1 else -1)

    learner = as_learner(One(), kind="classification")
    learner.bind(2)
    learner.fit(X, np.eye(2)[(HALF > 0.5).astype(int)], rng=rng())
    assert ((learner.predict(X)[:, 1] > 0.5) == (HALF > 0.5)).mean() > 0.98


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Ordered([0, 1, 2], ["a", "b", "c"]), "classes_ are a, b, c"),
        (Ordered([0, 1, 2], [1, 2, 3]), "classes_ are 1, 2, 3"),
        (Ordered([0, 1, 2], [0, 1, 1]), "classes_ are 0, 1, 1"),
        (Ordered([0, 1], [0, 1, 2]), r"shape \(500, 2\), expected \(500, 3\)"),
        (Ordered([0, 1, 2], None, scale=0.9), "as probabilities of a row"),
        (Ordered([0, 1, 2], None, scale=-1.0), "as probabilities of a row"),
        (Ordered([0, 1, 2], None, scale=np.nan), "as probabilities of a row"),
    ],
)
def test_columns_that_are_no_probabilities_of_the_classes_are_refused(
    model: Any, said: str
) -> None:
    learner = as_learner(model)
    learner.bind(3)
    learner.fit(X, np.eye(3)[Y], rng=rng())
    with pytest.raises(InvalidInput, match=said):
        learner.predict(X)


def test_a_class_that_the_model_left_out_has_probability_zero() -> None:
    class Leaves(Answers):
        def fit(self, X: Any, y: Any) -> None:
            kept = y > 0
            self.model = logistic().fit(X[kept], y[kept])
            self.classes_ = self.model.classes_

        def predict_proba(self, X: Any) -> Any:
            return self.model.predict_proba(X)

    learner = as_learner(Leaves(None))
    learner.bind(3)
    learner.fit(X, np.eye(3)[Y], rng=rng())
    found = learner.predict(X)
    assert not found[:, 0].any()
    np.testing.assert_array_equal(found[:, 1:], logistic().fit(X[Y > 0], Y[Y > 0]).predict_proba(X))


def test_scores_of_pairs_inside_of_another_model_are_no_scores_of_classes() -> None:
    """Of three classes there are three pairs."""
    for model in (
        GridSearchCV(SVC(decision_function_shape="ovo"), {"C": [1.0]}, cv=2),
        GridSearchCV(SVC(), {"decision_function_shape": ["ovo"]}, cv=2),
    ):
        learner = as_learner(model)
        learner.bind(3)
        learner.fit(X, np.eye(3)[Y], rng=rng())
        np.testing.assert_array_equal(learner.predict(X).argmax(axis=1), model.fit(X, Y).predict(X))


def test_values_of_another_number_are_refused() -> None:
    class Two:
        def fit(self, X: Any, y: Any) -> None:
            pass

        def predict(self, X: Any) -> Any:
            return np.zeros((len(X), 2))

    learner = as_learner(Two(), kind="regression")
    learner.bind(1)
    learner.fit(X, HALF[:, None], rng=rng())
    with pytest.raises(InvalidInput, match=r"values of shape \(500, 2\), expected \(500, 1\)"):
        learner.predict(X)
