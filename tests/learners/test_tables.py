"""Models on rows of a table: each takes them as it can, and is the same after it was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from consilience.learners import as_learner
from consilience.validation.table_schema import Column, Schema

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
