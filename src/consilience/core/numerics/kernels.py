"""Kernels: functions of two sets of rows that give the matrix of their similarities.

A kernel is any function ``k(X, Z)`` of rows of shape ``(n, d)`` and ``(m, d)`` whose value has shape
``(n, m)``, symmetric and positive semi-definite. Strings name scikit-learn's pairwise kernels and those of
Park et al. 2023 (appendix E.1).

>>> kernel_of("brownian")(np.array([[0.2], [0.5]]), np.array([[0.3]])).tolist()
[[1.2], [1.3]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import (
    KERNEL_PARAMS,
    PAIRWISE_KERNEL_FUNCTIONS,
    pairwise_kernels,
)

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

Kernel = Callable[[Array, Array], Array]

_ROWS_CHECKED = 200
_INDEFINITE = 1e-8
_DEFINITE = ("chi2", "cosine", "laplacian", "linear", "rbf")
_POLYNOMIAL = ("poly", "polynomial")


def brownian(X: Array, Z: Array) -> Array:
    """``1 + min(x, z)``, of Brownian motion from a random start: one column, no value below 0.

    Source:
        Park et al. 2023, k_1 of appendix E.1.
    """
    if X.shape[1] != 1 or min(X.min(initial=0), Z.min(initial=0)) < 0:
        raise InvalidInput(
            "inputs must have one column and no value below 0",
            where="kernel brownian",
            mend="Scale the column to [0, 1], or take another kernel, such as 'laplacian'.",
        )
    return np.asarray(1 + np.minimum(X, Z.T), dtype=np.float64)


def wendland(X: Array, Z: Array) -> Array:
    """``(1 - r)^4 (4 r + 1)`` for ``r = ‖x - z‖ ≤ 1``, else 0: compact support, at most three columns.

    Source:
        Park et al. 2023, k_2 of appendix E.1; positive definite in up to three dimensions (Wendland 1995).
    """
    if X.shape[1] > 3:
        raise InvalidInput(
            f"inputs have {X.shape[1]} columns, and it is positive definite for up to three",
            where="kernel wendland",
            mend="Take another kernel, such as 'rbf'.",
        )
    r = cdist(X, Z)
    inside = np.maximum(1 - r, 0)
    inside *= inside
    inside *= inside
    r *= 4
    r += 1
    return np.asarray(inside * r)


OURS: Mapping[str, Kernel] = {"brownian": brownian, "wendland": wendland}
KERNELS: tuple[str, ...] = tuple(sorted({*OURS, *PAIRWISE_KERNEL_FUNCTIONS}))
"""Names of the available kernels."""


def kernel_of(kernel: str | Kernel, **parameters: float | None) -> Kernel:
    """Return the kernel with a given name and parameters.

    Args:
        kernel: a name of :data:`KERNELS`, or a function ``(n, d), (m, d) -> (n, m)``, returned unchanged.
        parameters: of scikit-learn's kernels: ``gamma`` above 0, ``degree`` a whole number above 0, and
            ``coef0``; parameters that do not apply to the kernel, and ``None`` values, are ignored.

    Raises:
        InvalidInput: unknown kernel name, or a parameter out of range.
    """
    if callable(kernel):
        return kernel
    if kernel not in KERNELS:
        raise InvalidInput(
            f"unknown kernel {kernel!r}", mend=nearest(str(kernel), KERNELS, {"gaussian": "rbf"})
        )
    if kernel in OURS:
        return OURS[kernel]
    taken = KERNEL_PARAMS[kernel]
    given = {k: v for k, v in parameters.items() if v is not None and k in taken}
    for name, value in given.items():
        if isinstance(value, float) and value.is_integer() and name == "degree":
            value = int(value)
        above = None if name == "coef0" else 0
        check_number(name, value, above=above, whole=name == "degree", where=f"kernel {kernel}")
    return partial(_pairwise, name=kernel, parameters=given)


def _pairwise(X: Array, Z: Array, *, name: str, parameters: Mapping[str, float]) -> Array:
    # What scikit-learn gives, whose checks cost many times a small product.
    if name == "linear" and X.dtype == Z.dtype == np.float64:
        return np.asarray(X @ Z.T)
    return np.asarray(pairwise_kernels(X, Z, metric=name, **parameters), dtype=np.float64)


def gram(kernel: Kernel, X: Array, Z: Array | None = None) -> Array:
    """Compute the kernel matrix of rows; check its shape and finiteness.

    Args:
        kernel: a kernel from :func:`kernel_of`.
        X: shape ``(n, d)``.
        Z: shape ``(m, d)``; ``X`` itself if ``None``.

    Returns:
        Shape ``(n, m)``, float64.

    Raises:
        InvalidInput: the kernel returns another shape, or a non-finite value.
    """
    other = X if Z is None else Z
    values = np.asarray(kernel(X, other), dtype=np.float64)
    if values.shape != (len(X), len(other)):
        raise InvalidInput(
            f"it gives shape {values.shape} for {len(X)} and {len(other)} rows",
            where=f"kernel {name_of(kernel)}",
            mend="A kernel takes (n, d) and (m, d) and gives (n, m).",
        )
    if not np.isfinite(values).all():
        raise InvalidInput(
            "it gives NaN or infinite values for these rows",
            where=f"kernel {name_of(kernel)}",
            mend="Scale the inputs, or take another kernel.",
        )
    return values


def check_definite(kernel: Kernel, X: Array) -> None:
    """Raise ``InvalidInput`` if the kernel is not symmetric positive semi-definite on the rows.

    The check computes the eigenvalues of the kernel matrix of up to 200 evenly picked rows. An eigenvalue
    below ``-1e-8`` times the largest is too large for a rounding error. Kernels with a proof of positive
    semi-definiteness are not checked.
    """
    if _known_definite(kernel):
        return
    picked = np.linspace(0, len(X) - 1, min(len(X), _ROWS_CHECKED)).astype(np.int64)
    K = gram(kernel, X[picked])
    scale = float(np.abs(K).max(initial=0))
    where = f"kernel {name_of(kernel)}"
    if np.abs(K - K.T).max(initial=0) > _INDEFINITE * scale:
        raise InvalidInput("it is not symmetric", where=where, mend="Take k(x, z) = k(z, x).")
    values = np.linalg.eigvalsh(K)
    if values[0] < -_INDEFINITE * max(values[-1], scale):
        raise InvalidInput(
            f"it is not positive semi-definite: on these rows it has the eigenvalue {values[0]:.3g}",
            where=where,
            mend="Take another kernel, such as 'rbf', 'laplacian' or 'linear'.",
        )


def _known_definite(kernel: Kernel) -> bool:
    if kernel in OURS.values():
        return True
    if not (isinstance(kernel, partial) and kernel.func is _pairwise):
        return False
    name, parameters = kernel.keywords["name"], kernel.keywords["parameters"]
    return name in _DEFINITE or (name in _POLYNOMIAL and parameters.get("coef0", 1) >= 0)


def check_distinct(X: Array, *, where: str) -> None:
    """Raise ``InvalidInput`` if two rows are the same: no kernel's matrix of them can be inverted.

    Args:
        X: rows, shape ``(n, d)``.
        where: the data, for the error.
    """
    _, first, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    earlier = first[inverse.ravel()]
    again = np.flatnonzero(earlier != np.arange(len(X)))
    if len(again):
        others = f", and {len(again) - 1} more repeat earlier ones" if len(again) > 1 else ""
        raise InvalidInput(
            f"public rows {earlier[again[0]]} and {again[0]} are the same{others}: "
            "their kernel matrix cannot be inverted",
            where=where,
            mend="Keep each row once: np.unique(X, axis=0); in a configuration, give data.public_file "
            "without repeats.",
        )


def name_of(kernel: Kernel) -> str:
    """Return a kernel's name, for messages."""
    if isinstance(kernel, partial):
        return str(kernel.keywords.get("name", getattr(kernel.func, "__name__", "of your own")))
    return str(getattr(kernel, "__name__", type(kernel).__name__))
