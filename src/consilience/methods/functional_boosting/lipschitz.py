"""Lipschitz constants of data, and Lipschitz extensions of data."""

from __future__ import annotations

import math

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array

HELD = 1 << 22
"""Distances held at a time: 32 MB."""

_ROUNDING = 1e-9


def lipschitz_constant(X: Array, values: Array, *, held: int = HELD) -> float:
    """Compute ``max ‖v_i − v_j‖ / ‖x_i − x_j‖`` over all pairs; infinite if equal rows differ in value.

    The result is the least Lipschitz constant of a function with these values at these rows. For a function
    on a larger domain, it is a lower bound. Time grows with the square of the number of rows.

    Args:
        X: inputs, shape ``(n, ...)``, flattened row by row.
        values: shape ``(n,)`` or ``(n, c)``.
        held: number of distances in memory at a time.

    Raises:
        InvalidInput: there are no rows, shapes do not match, or values are NaN or infinite.

    Example:
        >>> lipschitz_constant(np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 2.0, 0.0]))
        2.0
    """
    points, values = _checked_data(X, values)
    steepest = 0.0
    for rows in _blocks(len(points), len(points), held):
        steepest = max(steepest, _steepest(points, values, rows))
    return steepest


class LipschitzExtension:
    """The largest function with a Lipschitz constant through data, ``u(x) = min_j (y_j + L ‖x − x_j‖)``.

    For labels without noise, ``g − u`` is a functional gradient of the squared loss at g. It is defined
    everywhere, and its Lipschitz constant is at most the sum of the constants of g and u (Shen et al. 2022,
    equation 13). Several outputs are extended independently, and u then has the constant ``√c L``.
    Kirszbaum's extension, which the paper names for this case, would keep L but has no such formula.

    Args:
        X: inputs, shape ``(n, ...)``, flattened row by row.
        y: values, shape ``(n,)`` or ``(n, c)``.
        constant: L, for every output; by default the Lipschitz constant of each output's data.
        held: number of distances in memory at a time.

    Attributes:
        constants: L of each output, shape ``(c,)``; ``(1,)`` if ``y`` has one axis.

    Raises:
        InvalidInput: L is below the Lipschitz constant of the data, equal rows have different values, or
            shapes do not match.

    Source:
        McShane 1934, "Extension of range of functions"; Shen et al. 2022, equation 13.

    Example:
        >>> u = LipschitzExtension(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), 1.0)
        >>> u.predict(np.array([[0.0], [1.0], [2.0], [5.0]])).tolist()
        [0.0, 1.0, 1.0, 4.0]
    """

    def __init__(
        self, X: Array, y: Array, constant: float | None = None, *, held: int = HELD
    ) -> None:
        self._held = held
        self._points, values = _checked_data(X, y)
        self._values = values.reshape(len(values), -1)
        self._one_axis = values.ndim == 1
        own = np.array(
            [lipschitz_constant(self._points, column, held=held) for column in self._values.T]
        )
        if not np.isfinite(own).all():
            raise InvalidInput(
                "equal rows have different values, so no Lipschitz function takes them",
                where="LipschitzExtension",
                mend="Put equal rows together, with the mean of their values.",
            )
        if constant is None:
            self.constants = own
            return
        if not math.isfinite(constant) or constant < own.max() * (1 - _ROUNDING):
            raise InvalidInput(
                f"the constant is {constant:g}, and the data have {own.max():g} themselves",
                where="LipschitzExtension",
                mend=f"Take {own.max():.6g} or more.",
            )
        self.constants = np.full(len(own), float(constant))

    def predict(self, X: Array) -> Array:
        """Compute ``u(x)``, shape ``(m,)`` or ``(m, c)`` as the values given."""
        points = self._like(X)
        found = np.concatenate(
            [
                self._reached(points[rows])[0]
                for rows in _blocks(len(points), len(self._points), self._held)
            ]
        )
        return found[:, 0] if self._one_axis else found

    def gradient(self, X: Array) -> Array:
        """Compute ``∇u(x) = L (x − x_j) / ‖x − x_j‖`` with j that of the minimum, shape ``(m, c, d)``.

        It is 0 at the data themselves, where u has a kink, unless another point explains the value as well.
        """
        points = self._like(X)
        found = np.zeros((len(points), len(self.constants), points.shape[1]))
        for rows in _blocks(len(points), len(self._points), self._held):
            _, nearest = self._reached(points[rows])
            away = points[rows][:, None, :] - self._points[nearest]
            lengths = np.linalg.norm(away, axis=2, keepdims=True)
            unit = np.divide(away, lengths, out=np.zeros_like(away), where=lengths > 0)
            found[rows] = self.constants[:, None] * unit
        return found

    def _reached(self, points: Array) -> tuple[Array, Array]:
        """Minimum of each output, and the index of its data point, each ``(m, c)``."""
        distances = _distances(points, self._points)
        found, nearest = [], []
        for column, constant in zip(self._values.T, self.constants, strict=True):
            cones = column + constant * distances
            nearest.append(cones.argmin(axis=1))
            found.append(cones[np.arange(len(points)), nearest[-1]])
        return np.stack(found, axis=1), np.stack(nearest, axis=1)

    def _like(self, X: Array) -> Array:
        points = _flat(X)
        if points.shape[1] != self._points.shape[1]:
            raise InvalidInput(
                f"the inputs have {points.shape[1]} columns, expected {self._points.shape[1]}",
                where="LipschitzExtension",
            )
        return points


def _distances(rows: Array, others: Array) -> Array:
    from scipy.spatial.distance import cdist  # a tenth of a second that few starts need

    return np.asarray(cdist(rows, others))


def _steepest(points: Array, values: Array, rows: slice) -> float:
    distances = _distances(points[rows], points)
    changes = _distances(values[rows].reshape(-1, values[0].size), values.reshape(len(values), -1))
    if (changes[distances == 0] > 0).any():
        return math.inf
    return float(np.divide(changes, distances, out=changes, where=distances > 0).max())


def _checked_data(X: Array, values: Array) -> tuple[Array, Array]:
    points, values = _flat(X), np.asarray(values, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        raise InvalidInput(
            f"inputs have shape {np.shape(X)}, values {values.shape}; expected (n, ...) and (n,) or (n, c), "
            "n at least 1",
            where="Lipschitz",
        )
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        raise InvalidInput("inputs or values hold NaN or infinite numbers", where="Lipschitz")
    return points, values


def _flat(X: Array) -> Array:
    X = np.asarray(X)
    if X.dtype.kind not in "biuf" or X.ndim < 2:
        raise InvalidInput(
            f"the inputs are {X.dtype} of shape {X.shape}, expected rows of numbers",
            where="Lipschitz",
        )
    return X.reshape(len(X), math.prod(X.shape[1:])).astype(np.float64)


def _blocks(rows: int, columns: int, held: int) -> list[slice]:
    size = max(1, held // max(columns, 1))
    return [slice(start, start + size) for start in range(0, max(rows, 1), size)]
