"""Kernels: what they are by hand, and what is said of one that is none."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import (
    KERNELS,
    brownian,
    check_definite,
    gram,
    kernel_of,
    name_of,
    wendland,
)

RNG = np.random.default_rng(0)
X, Z = RNG.uniform(size=(7, 3)), RNG.uniform(size=(5, 3))
BY_THEOREM = sorted({*KERNELS} - {"additive_chi2", "sigmoid"})


def test_brownian_by_hand() -> None:
    K = brownian(np.array([[0.0], [2.0]]), np.array([[1.0], [3.0], [0.5]]))
    assert K.tolist() == [[1, 1, 1], [2, 3, 1.5]]


def test_wendland_by_hand() -> None:
    """r = 0: 1. r = 1/2 (0.3, 0.4): (1/2)^4 · 3 = 3/16. r = 1 and beyond: 0."""
    K = wendland(np.zeros((1, 2)), np.array([[0, 0], [0.3, 0.4], [0, 1], [2, 3]]))
    np.testing.assert_allclose(K, [[1, 3 / 16, 0, 0]], atol=1e-15)


@pytest.mark.parametrize("name", sorted({*KERNELS} - {"brownian", "wendland"}))
def test_names_of_scikit_learn(name: str) -> None:
    np.testing.assert_array_equal(kernel_of(name)(X, Z), pairwise_kernels(X, Z, metric=name))


def test_parameters_go_to_the_kernels_that_have_them() -> None:
    """⟨x, z⟩ = 2·3 = 6 and ‖x − z‖² = 1: (6/2 + 1)² = 16, exp(−1/2)."""
    x, z = np.array([[2.0]]), np.array([[3.0]])
    given = {"gamma": 0.5, "degree": 2, "coef0": 1.0}
    assert kernel_of("polynomial", **given)(x, z).tolist() == [[16]]
    np.testing.assert_allclose(kernel_of("rbf", **given)(x, z), [[np.exp(-0.5)]])
    assert kernel_of("linear", **given)(x, z).tolist() == [[6]]
    assert kernel_of("brownian", **given) is brownian
    assert kernel_of(wendland, **given) is wendland


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("rbff", {}, "Did you mean 'rbf'"),
        ("zzz", {}, "Known: additive_chi2, brownian"),
        (3, {}, "unknown kernel 3"),
        ("rbf", {"gamma": 0}, "kernel rbf: gamma is 0\n  Give a number above 0"),
        ("rbf", {"gamma": np.nan}, "gamma is nan"),
        ("rbf", {"gamma": "auto"}, "gamma is 'auto'"),
        ("poly", {"degree": 1.5}, "degree is 1.5\n  Give a whole number above 0"),
        ("poly", {"degree": 0}, "degree is 0"),
        ("sigmoid", {"coef0": np.inf}, "coef0 is inf\n  Give a finite number"),
    ],
)
def test_names_and_parameters_that_are_none(name, given, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        kernel_of(name, **given)


@pytest.mark.parametrize(
    ("kernel", "rows", "said"),
    [
        ("brownian", np.zeros((2, 2)), "one column"),
        ("brownian", -np.ones((2, 1)), "no value below 0"),
        ("wendland", np.zeros((2, 4)), "4 columns"),
        (lambda X, Z: X @ Z.T @ np.ones(len(Z)), X, r"shape \(7,\) for 7 and 7 rows"),
        (lambda X, Z: np.full((len(X), len(Z)), np.nan), X, "NaN or infinite"),
    ],
)
def test_values_that_are_no_kernel_matrix(kernel, rows, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        gram(kernel_of(kernel), rows)


def test_a_matrix_of_rows_and_others() -> None:
    assert gram(kernel_of("linear"), X).shape == (7, 7)
    assert gram(kernel_of("linear"), X.astype(np.float32), Z).dtype == np.float64
    np.testing.assert_array_equal(gram(brownian, X[:, :1], Z[:0, :1]), np.zeros((7, 0)))


@pytest.mark.parametrize("name", BY_THEOREM)
def test_what_is_definite_by_theorem_is_so_to_rounding(name: str) -> None:
    rows = RNG.uniform(size=(150, 1 if name == "brownian" else 3))
    kernel = kernel_of(name)
    check_definite(kernel, rows)
    values = np.linalg.eigvalsh(gram(kernel, rows))
    assert values[0] > -1e-12 * values[-1]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda X, Z: X @ np.triu(np.ones((3, 3))) @ Z.T, "not symmetric"),
        (lambda X, Z: -X @ Z.T, "kernel <lambda>: it is not positive semi-definite"),
        (kernel_of("sigmoid", coef0=-1), "kernel sigmoid: it is not positive semi-definite"),
        (kernel_of("poly", degree=2, coef0=-1), "kernel poly: it is not positive semi-definite"),
        (partial(pairwise_kernels, metric="additive_chi2"), "not positive semi-definite"),
    ],
)
def test_functions_that_are_no_kernel(kernel, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_definite(kernel, X)


def test_rows_are_picked_from_first_to_last() -> None:
    """The fault is in the last row only: k(x, x) = −1 there."""
    rows = np.arange(1000.0)[:, None]

    def kernel(X, Z):
        return (X == Z.T) * np.where(X == 999, -1.0, 1.0)

    check_definite(kernel, rows[:-1])
    with pytest.raises(InvalidInput, match="eigenvalue -1"):
        check_definite(kernel, rows)


def test_names_for_messages() -> None:
    assert name_of(kernel_of("rbf")) == "rbf"
    assert name_of(brownian) == "brownian"
    assert name_of(partial(brownian)) == "brownian"


def test_importing_the_package_does_not_import_kernels() -> None:
    code = (
        "import consilience, consilience.core.learners, sys; "
        "assert 'consilience.core.numerics.kernels' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
