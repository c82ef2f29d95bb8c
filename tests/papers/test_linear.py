"""Which models can be evaluated on encrypted inputs, and with which coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDRegressor,
)
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVR

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.wire import decode, encode
from consilience.models.kernel_ridge import KernelRidge
from consilience_papers.afonin2022.encrypted import LinearModel, linear_model
from consilience_papers.afonin2022.encrypted.linear import shared_features

rng = np.random.default_rng(3)
X = rng.normal(size=(40, 3)) * [1, 20, 0.1] + [0, 5, -1]
y = X @ [1.0, -0.2, 3.0] + 0.5
Y = np.stack([y, -2 * y + 1], axis=1)
NEW = rng.normal(size=(6, 3)) + X[:6]
PUBLIC = rng.normal(size=(10, 3))


def said(model: LinearModel, features: np.ndarray) -> np.ndarray:
    return np.asarray(features @ model.coefficients + model.intercept)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (LinearRegression(), y),
        (Ridge(), Y),
        (Ridge(fit_intercept=False), y),
        (Lasso(alpha=0.1), Y),
        (SVR(kernel="linear"), y),
        (make_pipeline(StandardScaler(), SGDRegressor(random_state=0)), y),
        (make_pipeline(StandardScaler(with_mean=False), "passthrough", Ridge()), Y),
        (make_pipeline(StandardScaler(with_std=False), StandardScaler(), Ridge()), y),
        (KernelRidge(kernel="linear"), y),
        (make_pipeline(StandardScaler(), KernelRidge(kernel="linear")), Y),
        (SklearnKernelRidge(), Y),
    ],
)
def test_coefficients_give_the_models_own_predictions(model: Any, targets: np.ndarray) -> None:
    expected = model.fit(X, targets).predict(NEW).reshape(len(NEW), -1)
    found = linear_model(model)
    np.testing.assert_allclose(said(found, NEW), expected, rtol=1e-9, atol=1e-9)
    assert found.features == "inputs"


def test_a_scaler_by_hand() -> None:
    """Rows 0 and 2 have μ = 1, s = 1, so x ↦ x − 1; targets 3 and 7 are then 5 + 2 (x − 1) = 3 + 2 x."""
    model = make_pipeline(StandardScaler(), LinearRegression()).fit([[0.0], [2.0]], [3.0, 7.0])
    found = linear_model(model)
    np.testing.assert_allclose(found.coefficients, [[2.0]])
    np.testing.assert_allclose(found.intercept, [3.0])


def test_kernel_ridge_by_hand() -> None:
    """Rows 1 and 2, targets 1 and 2, λ = ½: ½ Σ (w x_i − y_i)² + ½ w² is least at 5 w − 5 + w = 0."""
    model = KernelRidge(regularization=0.5, kernel="linear").fit([[1.0], [2.0]], [1.0, 2.0])
    np.testing.assert_allclose(linear_model(model).coefficients, [[5 / 6]])


@pytest.mark.parametrize(
    "features",
    [
        RBFSampler(gamma=0.1, n_components=20, random_state=4),
        FrozenEstimator(Nystroem(gamma=0.1, n_components=10, random_state=0).fit(PUBLIC)),
    ],
)
def test_features_that_everyone_has(features: Any) -> None:
    """They are named by the function that they compute, and scalers after them are folded in."""
    one = make_pipeline(features, StandardScaler(), Ridge()).fit(X, y)
    two = make_pipeline(features, Ridge()).fit(X[:9], y[:9])
    found = linear_model(one)
    np.testing.assert_allclose(said(found, one[0].transform(NEW))[:, 0], one.predict(NEW))
    assert found.features == linear_model(two).features == shared_features(one[0]) != "inputs"


def test_other_features_have_another_name() -> None:
    def drawn(**parameters: Any) -> str:
        return shared_features(RBFSampler(**{"random_state": 0, **parameters}).fit(X))

    def landmarks(rows: np.ndarray, **parameters: Any) -> str:
        fitted = Nystroem(**{"n_components": 5, "random_state": 0, **parameters}).fit(rows)
        return shared_features(FrozenEstimator(fitted))

    names = [
        drawn(),
        drawn(gamma=2.0),
        drawn(random_state=1),
        drawn(n_components=7),
        landmarks(PUBLIC),
        landmarks(X),
        landmarks(PUBLIC, gamma=0.3),
        landmarks(PUBLIC, kernel="laplacian"),
        landmarks(PUBLIC, n_components=4),
    ]
    assert len(set(names)) == len(names)
    assert drawn() == names[0]
    assert landmarks(PUBLIC) == names[4]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RandomForestRegressor(n_estimators=2), "RandomForestRegressor: it is not linear"),
        (KNeighborsRegressor(), "Any other model must travel itself"),
        (KernelRidge(kernel="rbf"), r"KernelRidge: a rbf kernel .* RBFSampler"),
        (SklearnKernelRidge(kernel="laplacian"), "the asking party may not see"),
        (PoissonRegressor(), "PoissonRegressor: its predictions are not X"),
        (PLSRegression(), "PLSRegression: its predictions are not X"),
        (LogisticRegression(), "LogisticRegression: it is not linear"),
        (make_pipeline(MinMaxScaler(), Ridge()), "MinMaxScaler is not known"),
        (make_pipeline(RBFSampler(), Ridge()), "RBFSampler is not known"),
        (make_pipeline(RBFSampler(gamma="scale", random_state=0), Ridge()), "RBFSampler is not"),
        (make_pipeline(Nystroem(n_components=5), Ridge()), r"Nystroem is .* FrozenEstimator"),
        (make_pipeline(PolynomialCountSketch(), Ridge()), "PolynomialCountSketch is not known"),
        (
            make_pipeline(StandardScaler(), RBFSampler(random_state=0), Ridge()),
            "StandardScaler comes before the features",
        ),
    ],
)
def test_other_models_are_refused_by_name(model: Any, message: str) -> None:
    targets = np.arange(len(y)) % 2
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        linear_model(model.fit(X, targets))


def test_not_fitted_and_no_model() -> None:
    with pytest.raises(InvalidInput, match="Ridge: it is not fitted"):
        linear_model(Ridge())
    with pytest.raises(InvalidInput, match="RBFSampler: it is not fitted"):
        shared_features(RBFSampler(random_state=0))
    with pytest.raises(InvalidInput, match="object: it is not linear"):
        linear_model(object())


def test_a_model_crosses_the_wire_and_is_checked_on_arrival() -> None:
    model = linear_model(Ridge().fit(X, Y))
    (back,) = decode(encode([model]))
    assert np.array_equal(back.coefficients, model.coefficients)
    assert np.array_equal(back.intercept, model.intercept)
    W, b = np.ones((3, 2)), np.ones(2)
    for coefficients, intercept in [
        (W, np.ones(3)),
        (np.ones(3), b),
        (np.ones((0, 2)), b),
        (W.astype(np.float32), b),
        (W * np.nan, b),
        (W, b * np.inf),
    ]:
        with pytest.raises(KnowledgeRefused, match="LinearModel"):
            LinearModel(coefficients=coefficients, intercept=intercept)
