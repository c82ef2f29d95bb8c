"""Every kind of model under every condition, with default settings: taught, or refused in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from consilience import Federation, Party, auto, avg, ensemble_distillation, mean
from consilience.core.errors import InvalidInput
from consilience.core.federation.history import History
from consilience.core.learners import as_learner
from consilience.models import make
from consilience.models.torch.recipe import TorchRecipe

RNG = np.random.default_rng(0)
N = 150
X = RNG.normal(size=(N, 3)).astype(np.float64)
GROUP = np.where(RNG.random(N) < 0.5, "left", "right")
SCORE = X[:, 0] + 0.5 * X[:, 1] + (GROUP == "right") * 0.5
ILL = np.where(SCORE > 0.25, "ill", "well")
OWN, OTHER, PUBLIC = slice(0, 50), slice(50, 100), slice(100, N)


class Centres(ClassifierMixin, BaseEstimator):
    """A classifier of one's own: the nearest mean of a class."""

    def fit(self, X: Any, y: Any) -> Centres:
        self.classes_ = np.unique(y)
        self.means_ = np.stack([np.asarray(X)[y == one].mean(axis=0) for one in self.classes_])
        return self

    def predict(self, X: Any) -> np.ndarray:
        away = ((np.asarray(X)[:, None] - self.means_) ** 2).sum(axis=2)
        return self.classes_[away.argmin(axis=1)]


class _Unweighted(BaseEstimator):
    """A model behind a ``fit`` without weights, as meta-estimators have."""

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def fit(self, X: Any, y: Any) -> Any:
        self.model_ = clone(self.model).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


class UnweightedClassifier(ClassifierMixin, _Unweighted):
    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        return super().fit(X, y)


class UnweightedRegressor(RegressorMixin, _Unweighted):
    pass


def boosted(package: str, name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(import_module(package), name)(**options)


def network() -> Any:
    return make("mlp", recipe=TorchRecipe(epochs=20, learning_rate=0.05))


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic": LogisticRegression,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "svc": SVC,
    "knn": KNeighborsClassifier,
    "naive-bayes": GaussianNB,
    "tree": lambda: DecisionTreeClassifier(max_depth=3),
    "forest": lambda: RandomForestClassifier(n_estimators=5),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=3),
    "xgboost": boosted("xgboost", "XGBClassifier", n_estimators=5, n_jobs=1),
    "lightgbm": boosted(
        "lightgbm", "LGBMClassifier", n_estimators=5, min_child_samples=3, n_jobs=1, verbose=-1
    ),
    "catboost": boosted(
        "catboost",
        "CatBoostClassifier",
        iterations=10,
        thread_count=1,
        verbose=0,
        allow_writing_files=False,
    ),
    "mlp": lambda: MLPClassifier((8,), max_iter=40, learning_rate_init=0.05),
    "network": network,
    "own class": Centres,
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "ridge": Ridge,
    "kernel ridge": lambda: make("kernel-ridge"),
    "svr": SVR,
    "knn values": KNeighborsRegressor,
    "tree values": lambda: DecisionTreeRegressor(max_depth=4),
    "forest values": lambda: RandomForestRegressor(n_estimators=5),
    "boosting values": lambda: HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=3),
}
KINDS = {**CLASSIFIERS, **REGRESSORS}
CONDITIONS = ("no labels", "one class", "ten rows", "gaps", "weights refused", "categories")
PACKAGES = {one: one for one in ("xgboost", "lightgbm", "catboost")} | {"network": "torch"}
NO_ESTIMATOR = {"network", "kernel ridge", "own class"}
"""Kinds that no other estimator wraps: weights are no question to them."""


def rows(part: slice, form: str, condition: str) -> Any:
    values = X[part].copy()
    if condition == "gaps" and part == OWN:
        values[::4, 1] = np.nan
    if condition == "categories":
        columns = {"u": values[:, 0], "v": values[:, 1], "w": values[:, 2], "side": GROUP[part]}
        return pd.DataFrame(columns) if form == "table" else np.column_stack(list(columns.values()))
    return pd.DataFrame(values, columns=list("uvw")) if form == "table" else values


def party(kind: str, condition: str, form: str) -> Party:
    values = kind in REGRESSORS
    model = KINDS[kind]()
    if condition == "weights refused":
        model = UnweightedRegressor(model) if values else UnweightedClassifier(model)
    if condition == "no labels":
        model = as_learner(model, kind="regression" if values else "classification")
    ill = ILL[OWN] == "ill"
    chosen = {
        "one class": np.flatnonzero(ill),
        "ten rows": np.r_[np.flatnonzero(ill)[:5], np.flatnonzero(~ill)[:5]],
    }.get(condition, np.arange(len(ill)))
    X_own = rows(OWN, form, condition)
    y = (SCORE if values else ILL)[OWN][chosen]
    return Party(
        kind,
        model,
        X_own.iloc[chosen] if form == "table" else X_own[chosen],
        None if condition == "no labels" else y,
    )


def run(parties: list[Party], condition: str, form: str, rule: str, values: bool) -> History:
    """Parties of one condition beside two that are as usual."""
    usual = {
        "one": Ridge() if values else GaussianNB(),
        "two": DecisionTreeRegressor(max_depth=4)
        if values
        else DecisionTreeClassifier(max_depth=4),
    }
    y = SCORE if values else ILL
    others = [
        Party(name, one, rows(OTHER, form, condition), y[OTHER]) for name, one in usual.items()
    ]
    federation = Federation([*parties, *others], rows(PUBLIC, form, condition))
    made = auto() if rule == "auto" else (mean() if values else avg())
    return federation.run(ensemble_distillation(aggregate=made, rounds=1), progress=False)


@cache
def ran(values: bool, condition: str, form: str, rule: str) -> History:
    """One federation of all kinds of classifier, or of regressor, that are installed."""
    kinds = [
        kind
        for kind, of in CELLS
        if of == condition and (kind in REGRESSORS) == values and not missing(kind)
    ]
    parties = [party(kind, condition, form) for kind in kinds]
    return run(parties, condition, form, rule, values)


def missing(kind: str) -> bool:
    package = PACKAGES.get(kind)
    return package is not None and find_spec(package) is None


def refused(kind: str, condition: str, form: str) -> str:
    """What the error says, for cells that are refused."""
    if condition == "one class" and kind in CLASSIFIERS:
        return "its private data hold one class only, 'ill'"
    if condition == "categories" and form == "array":
        return "array of strings has shape"
    return ""


CELLS = [
    (kind, condition)
    for kind in KINDS
    for condition in CONDITIONS
    if condition != "weights refused" or kind not in NO_ESTIMATOR
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["mean", "auto"])
@pytest.mark.parametrize("form", ["array", "table"])
@pytest.mark.parametrize(("kind", "condition"), CELLS, ids=map(", ".join, CELLS))
def test_trained_and_taught_or_refused_in_words(
    kind: str, condition: str, form: str, rule: str
) -> None:
    if missing(kind):
        pytest.skip(f"{PACKAGES[kind]} is not installed")
    values = kind in REGRESSORS
    if said := refused(kind, condition, form):
        with pytest.raises(InvalidInput, match=said):
            run([party(kind, condition, form)], condition, form, rule, values)
        return
    history = ran(values, condition, form, rule)
    assert [(one.tasks, one.detail) for one in history.failures if one.party == kind] == []
    assert not any(kind in note for note in history.rounds[-1].teacher.notes)  # nor is it excluded
    model = history.models[kind]
    if condition != "no labels":
        assert model.alone is not None and model.choices  # it was taught, and has chosen
    held = rows(PUBLIC, form, condition)
    outputs = model.outputs(model.rows(held))
    assert outputs.shape == (50, 1 if values else 2) and np.isfinite(outputs).all()
    if values:
        assert ((outputs[:, 0] - SCORE[PUBLIC]) ** 2).mean() < SCORE[PUBLIC].var()
    else:
        np.testing.assert_allclose(outputs.sum(axis=1), 1, atol=1e-6)
        assert (model.predict(held) == ILL[PUBLIC]).mean() > (
            0.5 if condition == "ten rows" else 0.65
        )
