"""The pooled ridge regression from moments: the same as of pooled rows, for classes and for values."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, Party
from consilience.core.errors import InvalidInput
from consilience.methods.comparison_rules.analytic_federation import analytic_federation

RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(30, 3)).round(2)
X = RNG.normal(size=(60, 3))
SPLITS = [np.arange(60) < 20, np.arange(60) >= 20]


def teacher(model, y, **options) -> np.ndarray:
    parties = [Party(name, model(), X[own], y[own]) for name, own in zip("ab", SPLITS, strict=True)]
    federation = Federation(parties, PUBLIC)
    protocol = analytic_federation(rounds=1, **options)
    return federation.run(protocol, progress=False).rounds[-1].teacher.values


def pooled(y, ridge: float) -> np.ndarray:
    """Ridge regression of all rows, in columns scaled by the public ones, cut at 3, and a constant."""
    scaled = np.clip((X - PUBLIC.mean(axis=0)) / PUBLIC.std(axis=0), -3, 3)
    public = (PUBLIC - PUBLIC.mean(axis=0)) / PUBLIC.std(axis=0)
    model = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky")
    model.fit(np.hstack([scaled, np.ones((60, 1))]), y)
    return model.predict(np.hstack([public.clip(-3, 3), np.ones((30, 1))]))


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_values_are_those_of_pooled_rows(ridge: float) -> None:
    y = X @ [[1.0, 0], [2, 1], [0, 3]] + RNG.normal(size=(60, 2))
    found = teacher(LinearRegression, y, ridge=ridge)
    np.testing.assert_allclose(found, pooled(y, ridge), rtol=0, atol=1e-8)


def test_classes_are_those_of_pooled_rows_on_the_simplex() -> None:
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    said = pooled(np.eye(3)[y], 1.0).clip(0)
    found = teacher(GaussianNB, y)
    np.testing.assert_allclose(found, said / said.sum(axis=1, keepdims=True), atol=1e-6)


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput, match="ridge is 0"):
        teacher(GaussianNB, (X[:, 0] > 0).astype(int), ridge=0)
