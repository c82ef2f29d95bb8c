"""Models on rows of a table: each takes them as it can, and is the same after it was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from consilience.core.errors import InvalidInput
from consilience.core.learners import as_learner
from consilience.core.learners.sklearn.per_column import column_option
from consilience.core.messages.columns import Column, Schema

RNG = np.random.default_rng(0)
COLUMNS = (Column("age", gaps=True), Column("ward", "category", ("a", "b", "c"), gaps=True))
ROWS = np.stack([RNG.normal(size=60), RNG.integers(3, size=60)], axis=1)
TARGETS = np.eye(2)[(ROWS[:, 0] + (ROWS[:, 1] == 1) > 0.3).astype(int)]
ROWS[::7, 0], ROWS[::11, 1] = np.nan, np.nan
SCHEMA = Schema(COLUMNS).measured(ROWS)


def by_name() -> Any:
    steps = [
        ("numbers", SimpleImputer(), ["age"]),
        ("words", OneHotEncoder(handle_unknown="ignore"), ["ward"]),
    ]
    return make_pipeline(ColumnTransformer(steps), LogisticRegression())


def xgboost() -> Any:
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=5, n_jobs=1)


def lightgbm() -> Any:
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)


def catboost() -> Any:
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return pytest.importorskip("catboost").CatBoostClassifier(iterations=5, **quiet)


MODELS = {
    "names": by_name,
    "categories": lambda: HistGradientBoostingClassifier(max_iter=5),
    "categories of xgboost": xgboost,
    "categories of lightgbm": lightgbm,
    "categories of catboost": catboost,
    "gaps": lambda: RandomForestClassifier(n_estimators=5),
    "gaps, imputed": lambda: make_pipeline(StandardScaler(), SimpleImputer(), LogisticRegression()),
    "numbers": LogisticRegression,
    "numbers of a network": lambda: "mlp",
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_takes_gaps_and_categories(kind: str, tmp_path: Path) -> None:
    learner = as_learner(MODELS[kind]())
    assert learner.abilities.takes == kind.split(" ")[0].rstrip(",")
    learner.bind(2, SCHEMA)
    learner.check(ROWS[:5])
    learner.fit(ROWS, TARGETS * 0.9 + 0.05, rng=np.random.default_rng(1), phase="first")
    said = learner.predict(ROWS)
    assert said.shape == (60, 2) and np.isfinite(said).all()
    path = tmp_path / f"model{learner.suffix}"
    learner.save(path)
    again = as_learner(MODELS[kind]())
    again.bind(2, SCHEMA)
    again.load(path)
    np.testing.assert_array_equal(again.predict(ROWS), said)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("column", [0, 1])
def test_a_column_may_be_missing_in_every_row_of_a_training(kind: str, column: int) -> None:
    X = ROWS.copy()
    X[:, column] = np.nan
    learner = as_learner(MODELS[kind]())
    learner.bind(2, SCHEMA)
    learner.fit(X, TARGETS, rng=np.random.default_rng(1), phase="first")
    assert np.isfinite(learner.predict(ROWS)).all()


def test_what_models_are_given() -> None:
    given = {}
    for kind in ("names", "categories", "gaps", "numbers"):
        learner = as_learner(MODELS[kind]())
        learner.bind(2, SCHEMA)
        given[kind] = learner.rows(ROWS)
    assert list(given["names"].columns) == ["age", "ward"]
    assert given["categories"]["ward"].cat.categories.tolist() == ["a", "b", "c"]
    assert given["gaps"].shape == (60, 6) and np.isnan(given["gaps"][0, 0])
    assert not np.isnan(given["numbers"]).any()


@pytest.mark.parametrize("kind", ["categories", "gaps", "numbers"])
def test_numbers_without_gaps_are_given_as_they_are(kind: str) -> None:
    X = np.arange(6.0).reshape(3, 2)
    learner = as_learner(MODELS[kind]())
    learner.bind(2, Schema.of_numbers(X, ("a", "b")))
    assert learner.rows(X) is X


def test_catboost_learns_by_category_and_by_gap() -> None:
    """The ward alone says the class, and one of the wards is a gap; 0.9 of the truth comes back as 0.9."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, np.nan]] * 20)
    targets = np.where(np.isnan(X[:, 1:]), [[0.1, 0.9]], [[0.9, 0.1]])
    learner = as_learner(catboost().copy().set_params(iterations=200))
    learner.bind(2, SCHEMA)
    learner.fit(X, targets, rng=np.random.default_rng(1))
    np.testing.assert_allclose(learner.predict(X[:3]), targets[:3], atol=0.05)


PLAIN = Schema((Column("age"), Column("dose"), Column("pulse"))).measured(RNG.normal(size=(9, 3)))


def lightgbm_with(**options: Any) -> Any:
    return lightgbm().set_params(**options)


def xgboost_with(**options: Any) -> Any:
    return xgboost().set_params(**options)


@pytest.mark.parametrize(
    "model",
    [
        lambda: HistGradientBoostingClassifier(monotonic_cst={"dose": 1}),
        lambda: HistGradientBoostingClassifier(
            interaction_cst=[{0}, {1, 2}], monotonic_cst={"dose": 1}
        ),
        lambda: GridSearchCV(
            HistGradientBoostingClassifier(monotonic_cst={"dose": 1}), {"max_iter": [50, 100]}, cv=2
        ),
        lambda: xgboost_with(monotone_constraints={"dose": 1}),
        lambda: catboost().set_params(monotone_constraints={"dose": 1}),
    ],
    ids=["histogram", "both", "search", "xgboost", "catboost"],
)
def test_constraints_by_name_count(model: Any, tmp_path: Path) -> None:
    """Labels fall with the dose, so that a model that must rise with it answers the same for all doses."""
    learner = as_learner(model())
    learner.bind(2, PLAIN)
    rows = np.random.default_rng(1).normal(size=(200, 3))
    learner.check(rows)
    learner.fit(rows, np.eye(2)[(rows[:, 1] < 0).astype(int)], rng=np.random.default_rng(2))
    doses = np.stack([np.zeros(20), np.linspace(-2, 2, 20), np.zeros(20)], axis=1)
    answers = learner.predict(doses)
    assert (np.diff(answers[:, 1]) >= -1e-9).all()
    learner.save(tmp_path / "m.skops")
    again = as_learner(model())
    again.bind(2, PLAIN)
    again.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict(doses), answers)


POSITIONS = {
    "columns": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), [0])]), LogisticRegression()
    ),
    "mask": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), [True, False, False])]), LogisticRegression()
    ),
    "slice": lambda: ColumnTransformer([("a", StandardScaler(), slice(0, 2))]),
    "monotonic_cst": lambda: HistGradientBoostingClassifier(monotonic_cst=[1, 0, 0]),
    "in a forest": lambda: RandomForestClassifier(monotonic_cst=[1, 0, 0]),
    "after scaling": lambda: make_pipeline(
        StandardScaler(), HistGradientBoostingClassifier(categorical_features=[0])
    ),
    "xgboost": lambda: xgboost_with(monotone_constraints=(1, 0, 0)),
    "xgboost, text": lambda: xgboost_with(monotone_constraints="(1,0,0)"),
    "lightgbm": lambda: lightgbm_with(categorical_feature=[0]),
    "search": lambda: GridSearchCV(HistGradientBoostingClassifier(interaction_cst=[{0}]), {}),
}
NO_POSITIONS = {
    "names": by_name,
    "a name": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), "age")]), LogisticRegression()
    ),
    "chosen by kind": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), make_column_selector())]), LogisticRegression()
    ),
    "after a choice": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), ["age"])]),
        HistGradientBoostingClassifier(categorical_features=[0]),
    ),
    "words": lambda: HistGradientBoostingClassifier(interaction_cst="pairwise"),
    "lightgbm": lambda: lightgbm_with(categorical_feature="name:age"),
    "none": xgboost,
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_options_that_count_columns_are_found(kind: str) -> None:
    assert column_option(POSITIONS[kind](), "position")


@pytest.mark.parametrize("kind", NO_POSITIONS)
def test_options_that_count_no_columns(kind: str) -> None:
    assert column_option(NO_POSITIONS[kind](), "position") == ""


def test_positions_are_refused_where_the_model_is_given_other_columns() -> None:
    learner = as_learner(RandomForestClassifier(monotonic_cst=[1, 0]))
    learner.bind(2, SCHEMA)
    with pytest.raises(InvalidInput, match=r"monotonic_cst says .* given 6 columns for the 2"):
        learner.check(ROWS)
    learner = as_learner(HistGradientBoostingClassifier(monotonic_cst=[1, 0]))
    learner.bind(2, SCHEMA)
    learner.check(ROWS)  # it takes categories as they are
