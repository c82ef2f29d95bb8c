"""Dense kernel ridge regression against numbers by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from consilience_papers.theory import KernelExpansion, kernel_ridge


def dot(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return X @ Z.T


def test_one_row_by_hand():
    """k(2, 2) = 4, n = 1, λ = 4: the coefficient of y = 3 is 3/8, and h(x) = 2x · 3/8 = 3x/4."""
    h = kernel_ridge(dot, [[2.0]], [3.0], 4.0)
    np.testing.assert_allclose(h.coefficients, [3 / 8])
    np.testing.assert_allclose(h([[1.0], [4.0]]), [3 / 4, 3])


def test_weights_by_hand():
    """Orthogonal rows do not mix: w = (1, 1/4) and λ = 1 shrink 6 by 1 + 1 and 10 by 1 + 4."""
    h = kernel_ridge(dot, np.eye(2), [6.0, 10.0], 1.0, weights=[1, 1 / 4])
    np.testing.assert_allclose(h.coefficients, [3, 2])


@pytest.mark.parametrize("shape", [(8,), (8, 2)])
def test_as_scikit_learn(shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    X, y, new = rng.normal(size=(8, 3)), rng.normal(size=shape), rng.normal(size=(4, 3))
    weights = rng.uniform(0.1, 1, size=8)
    theirs = KernelRidge(alpha=0.1, kernel="rbf").fit(X, y, sample_weight=weights)
    ours = kernel_ridge(rbf_kernel, X, y, 0.1, weights=weights)(new)
    assert ours.shape == (4, *shape[1:])
    np.testing.assert_allclose(ours, theirs.predict(new), rtol=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [1.0, 2.0]}, "shape"),
        ({"X": np.empty((0, 1)), "y": []}, "n ≥ 1"),
        ({"X": [[1.0], [np.nan]]}, "inputs hold NaN"),
        ({"y": [1.0]}, "one for each row"),
        ({"y": [1.0, np.inf]}, "targets hold NaN"),
        ({"regularization": 0.0}, "regularization is 0"),
        ({"regularization": np.nan}, "regularization is nan"),
        ({"weights": [1.0, 0.0]}, "weights"),
        ({"weights": [1.0]}, "weights"),
        ({"kernel": lambda X, Z: -X @ Z.T}, "not positive semi-definite"),
        ({"kernel": lambda X, Z: X[:, 0]}, "shape"),
        ({"kernel": lambda X, Z: np.nan * X @ Z.T}, "NaN"),
    ],
)
def test_bad_input(change: dict, message: str):
    given = {"kernel": dot, "X": [[1.0], [2.0]], "y": [1.0, 2.0], "regularization": 0.1}
    with pytest.raises(ValueError, match=message):
        kernel_ridge(**{**given, **change})


def test_an_expansion_checks_what_it_predicts_for():
    with pytest.raises(ValueError, match="inputs hold NaN"):
        KernelExpansion(dot, np.eye(1), np.ones(1))([[np.nan]])
