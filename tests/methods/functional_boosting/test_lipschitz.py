"""Lipschitz constants and extensions: by hand, as properties, against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.methods.functional_boosting.lipschitz import LipschitzExtension, lipschitz_constant

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = np.stack([np.sin(X[:, 0]) + X[:, 1], np.abs(X[:, 2])], axis=1)
NEW = RNG.normal(size=(300, 3)) * 2


def test_constants_by_hand():
    """(0,0), (3,4), (0,4) with values 0, 10, 4: 10/5, 6/3, 4/4. In the plane: (0,0), (0,3): 3/5."""
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    assert lipschitz_constant(points, np.array([0.0, 10.0, 4.0])) == 2
    assert lipschitz_constant(points[:2], np.array([[0.0, 0.0], [0.0, 3.0]])) == pytest.approx(0.6)
    assert lipschitz_constant(points[:1], np.array([7.0])) == 0
    assert lipschitz_constant(points[[0, 0]], np.array([1.0, 1.0])) == 0
    assert lipschitz_constant(points[[0, 0]], np.array([1.0, 2.0])) == np.inf


def test_blocks_change_nothing():
    u = LipschitzExtension(X, Y)
    whole = lipschitz_constant(X, Y), u.predict(NEW), u.gradient(NEW)
    u = LipschitzExtension(X, Y, held=100)
    pieces = lipschitz_constant(X, Y, held=100), u.predict(NEW), u.gradient(NEW)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(one, other)


def test_extension_by_hand():
    """min(0 + 2|x|, 1 + 2|x − 2|): 0 at 0, 2 at 1, 1 at 2, 3 at 3; they meet at 1¼."""
    u = LipschitzExtension(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), 2.0)
    at = np.array([[0.0], [1.0], [1.25], [1.5], [2.0], [3.0], [-1.0]])
    np.testing.assert_allclose(u.predict(at), [0, 2, 2.5, 2, 1, 3, 2])
    np.testing.assert_allclose(u.gradient(at)[[1, 3, 5, 6], 0, 0], [2, -2, 2, -2])
    np.testing.assert_array_equal(u.gradient(at)[[0, 4], 0, 0], [0, 0])


@pytest.mark.parametrize("factor", [None, 1.0, 3.0])
def test_it_interpolates_and_has_its_constant(factor: float | None):
    own = np.array([lipschitz_constant(X, column) for column in Y.T])
    u = LipschitzExtension(X, Y, None if factor is None else factor * own.max())
    np.testing.assert_allclose(u.predict(X), Y, atol=1e-12)
    expected = own if factor is None else np.full(2, factor * own.max())
    np.testing.assert_allclose(u.constants, expected)
    for column in range(2):
        values = u.predict(NEW)[:, column]
        assert lipschitz_constant(NEW, values) <= u.constants[column] * (1 + 1e-9)
    slopes = np.linalg.norm(u.gradient(NEW), axis=2)
    np.testing.assert_allclose(slopes, np.broadcast_to(u.constants, slopes.shape))


def test_it_is_the_largest():
    """Every other L-Lipschitz function with these values lies below."""
    values = np.linalg.norm(X - 1, axis=1)  # of a 1-Lipschitz function
    u = LipschitzExtension(X, values, 1.0)
    assert (u.predict(NEW) >= np.linalg.norm(NEW - 1, axis=1) - 1e-12).all()


def test_gradients_are_those_of_finite_differences():
    u = LipschitzExtension(X, Y)
    h = 1e-6
    for i in range(3):
        step = h * np.eye(3)[i]
        differences = (u.predict(NEW + step) - u.predict(NEW - step)) / (2 * h)
        np.testing.assert_allclose(u.gradient(NEW)[:, :, i], differences, atol=1e-4)


def test_images_are_flattened_and_one_axis_stays_one():
    images = X.reshape(40, 3, 1)
    u = LipschitzExtension(images, Y[:, 0])
    assert u.predict(images[:5]).shape == (5,)
    assert u.gradient(images[:5]).shape == (5, 1, 3)
    np.testing.assert_allclose(u.predict(NEW), LipschitzExtension(X, Y).predict(NEW)[:, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LipschitzExtension(X[:3], np.array([0.0, 9.0, 0.0]), 0.5), "the constant is 0.5"),
        (lambda: LipschitzExtension(X, Y, np.inf), "the constant is inf"),
        (lambda: LipschitzExtension(X[[0, 0]], np.array([1.0, 2.0])), "equal rows"),
        (lambda: LipschitzExtension(X, Y).predict(X[:, :2]), "2 columns, expected 3"),
        (lambda: lipschitz_constant(X, Y[:3]), "values"),
        (lambda: lipschitz_constant(X[:0], Y[:0]), "n at least 1"),
        (lambda: lipschitz_constant(X[:, 0], Y), "rows of numbers"),
        (lambda: lipschitz_constant(np.array([["a"]]), np.array([1.0])), "rows of numbers"),
        (lambda: lipschitz_constant(X[:1], np.array([np.nan])), "NaN"),
    ],
)
def test_bad_input(call: Any, message: str):
    with pytest.raises(InvalidInput, match=message):
        call()
