"""Kernel ridge regression, dense and plain: what everything else in this room is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

Array = NDArray[Any]
Kernel = Callable[[Array, Array], Array]
"""``k(X, Z)`` of rows of shapes ``(n, d)`` and ``(m, d)``, with values of shape ``(n, m)``."""


@dataclass(frozen=True)
class KernelExpansion:
    """A function in the kernel's Hilbert space, ``h(x) = sum_i k(x, z_i) c_i``.

    Attributes:
        kernel: k.
        centres: the z_i, shape ``(n, d)``.
        coefficients: the c_i, shape ``(n,)`` or ``(n, n_outputs)``.
    """

    kernel: Kernel
    centres: Array
    coefficients: Array

    def __call__(self, X: ArrayLike) -> Array:
        """Evaluate at the rows of ``X``; shape ``(len(X),)`` or ``(len(X), n_outputs)``."""
        return np.asarray(gram(self.kernel, rows(X), self.centres) @ self.coefficients)


def kernel_ridge(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    regularization: float,
    *,
    weights: ArrayLike | None = None,
) -> KernelExpansion:
    """Kernel ridge regression by one dense solve.

    Minimises ``sum_i w_i (h(x_i) - y_i)² + λ ‖h‖²``; the coefficients are ``(K + λ diag(w)⁻¹)⁻¹ y``.

    Args:
        kernel: k.
        X: shape ``(n, d)``.
        y: shape ``(n,)`` or ``(n, n_outputs)``.
        regularization: λ > 0.
        weights: shape ``(n,)``, each above 0; ``1/n`` by default, the paper's.

    Raises:
        ValueError: shapes that do not go together, values that are not finite, λ ≤ 0, a kernel that is not
            positive semi-definite on these rows.

    Source:
        Park et al. 2023, section 3.2.
    """
    X = rows(X)
    y = targets(y, len(X))
    positive(regularization, "regularization")
    w = np.full(len(X), 1 / len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(X),) or not (np.isfinite(w) & (w > 0)).all():
        raise ValueError(f"weights must be {len(X)} finite numbers above 0, one for each row")
    try:
        factor = cho_factor(gram(kernel, X, X) + np.diag(regularization / w))
    except np.linalg.LinAlgError:
        raise ValueError(
            "the kernel is not positive semi-definite on these rows; take another one"
        ) from None
    return KernelExpansion(kernel, X, cho_solve(factor, y))


def gram(kernel: Kernel, X: Array, Z: Array) -> Array:
    """``k(X, Z)``, its shape and values checked."""
    values = np.asarray(kernel(X, Z), dtype=np.float64)
    if values.shape != (len(X), len(Z)):
        raise ValueError(
            f"the kernel gives shape {values.shape} for {len(X)} and {len(Z)} rows; "
            "it must take (n, d) and (m, d) and give (n, m)"
        )
    if not np.isfinite(values).all():
        raise ValueError("the kernel gives NaN or infinite values; scale the inputs")
    return values


def rows(X: ArrayLike) -> Array:
    """Inputs as an array of shape ``(n, d)``, n ≥ 1, all finite."""
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or not len(values):
        raise ValueError(
            f"inputs have shape {values.shape}; they must have shape (n, d) with n ≥ 1"
        )
    if not np.isfinite(values).all():
        raise ValueError("inputs hold NaN or infinite values; drop those rows")
    return values


def targets(y: ArrayLike, n: int) -> Array:
    """Targets of n rows as an array of shape ``(n,)`` or ``(n, n_outputs)``, all finite."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(f"targets have shape {values.shape} for {n} rows; give one for each row")
    if not np.isfinite(values).all():
        raise ValueError("targets hold NaN or infinite values; drop those rows")
    return values


def positive(value: float, name: str) -> None:
    """Raise ``ValueError`` unless ``value`` is finite and above 0."""
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be above 0, such as 1e-3")


def inside_unit(value: float, name: str) -> None:
    """Raise ``ValueError`` unless ``value`` lies in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must lie in (0, 1), such as 0.5")
