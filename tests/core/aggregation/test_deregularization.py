"""De-regularisation: two points by hand, against a kernel ridge regression, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from consilience import Deregularization
from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import kernel_of

RNG = np.random.default_rng(0)


def test_two_points():
    """k = 1 + min on 0 and 1: K = [[1, 1], [1, 2]], K⁻¹ = [[2, -1], [-1, 1]].

    N_p λ0 = 2 · 1/4: w = v + K⁻¹ v / 2 = (3, 5) + (1, 2) / 2 = (3.5, 6).
    """
    lift = Deregularization("brownian", 0.25, jitter=0).of(np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(lift(np.array([[3.0], [5.0]])), [[3.5], [6.0]], rtol=1e-14)


def test_the_jitter_is_relative_to_the_diagonal():
    """The same with ε = 0.2 · 3/2 = 0.3: K + ε I = [[1.3, 1], [1, 2.3]], of determinant 1.99.

    (K + ε I)⁻¹ v = (2.3 · 3 - 5, 1.3 · 5 - 3) / 1.99 = (1.9, 3.5) / 1.99, of which half is added.
    """
    lift = Deregularization("brownian", 0.25, jitter=0.2).of(np.array([[0.0], [1.0]]))
    expected = [[3 + 0.95 / 1.99], [5 + 1.75 / 1.99]]
    np.testing.assert_allclose(lift(np.array([[3.0], [5.0]])), expected, rtol=1e-14)


def test_a_client_that_distils_what_was_lifted_answers_the_consensus():
    X, values = RNG.random((20, 3)), RNG.normal(size=(20, 2))
    for kernel, options in (
        ("wendland", {}),
        ("rbf", {"gamma": 30.0}),
        ("laplacian", {"gamma": 1.0}),
    ):
        lifted = Deregularization(kernel, 1e-2, **options).of(X)(values)
        function = kernel_of(kernel, **options)
        client = KernelRidge(alpha=20 * 1e-2, kernel="precomputed").fit(function(X, X), lifted)
        np.testing.assert_allclose(client.predict(function(X, X)), values, rtol=1e-5, atol=1e-6)


def test_zero_changes_nothing_whatever_the_rows():
    values = np.ones((3, 1))
    assert Deregularization("rbf", 0).of(np.zeros((3, 2)))(values) is values


def test_a_kernel_of_ones_own():
    lift = Deregularization(lambda X, Z: X @ Z.T, 0.5, jitter=0).of(np.eye(2))
    np.testing.assert_allclose(lift(np.array([[1.0], [3.0]])), [[2], [6]])


def test_inputs_may_be_whole_numbers():
    rows = np.array([[0], [1]])
    values = np.array([[3.0], [5.0]])
    lift = Deregularization("brownian", 0.25)
    np.testing.assert_array_equal(lift.of(rows)(values), lift.of(rows.astype(float))(values))


@pytest.mark.parametrize(
    ("options", "what", "mend"),
    [
        ({"regularization": -1e-3}, "regularization is -0.001", "clients' own"),
        ({"regularization": float("nan")}, "regularization is nan", "above 0"),
        ({"jitter": -1.0}, "jitter is -1", "at least 0 and below 1"),
        ({"kernel": "rbff"}, "unknown kernel 'rbff'", "Did you mean 'rbf'"),
    ],
)
def test_arguments_are_checked(options, what, mend):
    with pytest.raises(InvalidInput) as raised:
        Deregularization(**{"kernel": "rbf", "regularization": 1e-3} | options)
    assert what in str(raised.value) and mend in str(raised.value)


@pytest.mark.parametrize(
    ("X", "options", "what", "mend"),
    [
        (
            np.array([[0.0], [1], [0], [1], [1]]),
            {},
            "public rows 0 and 2 are the same, and 2 more repeat earlier ones",
            "np.unique",
        ),
        (np.array([[0.5], [0.5]]), {}, "public rows 0 and 1 are the same: ", "once"),
        (np.zeros((3, 2, 2)), {}, "float64 of shape (3, 2, 2)", "flat = true"),
        (np.array(["a", "b"]), {}, "<U1 of shape (2,)", "X.reshape"),
        (
            np.eye(3)[:2],
            {"kernel": "sigmoid", "coef0": -1.0},
            "not positive semi-definite",
            "'rbf'",
        ),
        (
            np.eye(3)[:2],
            {"kernel": lambda X, Z: X @ np.triu(np.ones((3, 3))) @ Z.T},
            "not symm",
            "k(z",
        ),
        (
            np.array([[1.0], [2.0]]),
            {"kernel": "linear", "jitter": 0},
            "cannot be inverted",
            "Raise jitter (it is 0)",
        ),
    ],
)
def test_public_rows_that_cannot_be_used(X, options, what, mend):
    chosen = Deregularization(**{"kernel": "rbf", "regularization": 1e-3} | options)
    with pytest.raises(InvalidInput) as raised:
        chosen.of(X)
    assert what in str(raised.value) and mend in str(raised.value)
