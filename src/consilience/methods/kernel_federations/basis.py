"""The eigenbasis of the public kernel matrix, exact or by Nyström's approximation."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg

from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import Kernel, gram, name_of
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

_ROWS_AT_ONCE = 4096


class Basis(Protocol):
    """``K_pp = Q diag(μ) Qᵀ`` with r orthonormal columns.

    Attributes:
        eigenvalues: μ, shape ``(r,)``, none below 0.
    """

    eigenvalues: Array

    def coordinates(self, X: Array) -> Array:
        """``k(X, X_p) Q``, shape ``(n, r)``."""

    def predictions(self, coordinates: Array) -> Array:
        """Values on the public rows, ``Q v̂`` of shape ``(N_p, k)``."""

    def of(self, predictions: Array) -> Array:
        """Coordinates of values on the public rows, ``Qᵀ v`` of shape ``(r, k)``."""


class Exact:
    """All N_p eigenpairs.

    Args:
        kernel: k.
        public: X_p, shape ``(N_p, d)``.

    Raises:
        InvalidInput: an eigenvalue is negative beyond rounding.
    """

    def __init__(self, kernel: Kernel, public: Array) -> None:
        self._kernel, self._public = kernel, public
        K = gram(kernel, public)
        values, self._Q = scipy.linalg.eigh(K, driver="evd", overwrite_a=True, check_finite=False)
        self.eigenvalues = _not_negative(values, kernel)

    def coordinates(self, X: Array) -> Array:
        """``k(X, X_p) Q``."""
        return np.asarray(gram(self._kernel, X, self._public) @ self._Q)

    def predictions(self, coordinates: Array) -> Array:
        """``Q v̂``."""
        return np.asarray(self._Q @ coordinates)

    def of(self, predictions: Array) -> Array:
        """``Qᵀ v``."""
        return np.asarray(self._Q.T @ predictions)


class Nystrom:
    """Nyström basis of the public rows: the kernel ``k̃(x, z) = k(x, L) K_LL⁻¹ k(L, z)`` of landmarks L.

    The rank r is at most len(L). Between a client's own rows, the kernel stays k, which is the sum of k̃ and
    a positive semi-definite remainder. If all public rows are landmarks, the basis is exact. Features ψ with
    ``k̃(x, z) = ψ(x)·ψ(z)`` are rotated to make the columns of ψ(X_p) orthogonal; then
    ``k̃(X, X_p) Q = ψ(X) diag(√μ)``. Memory is O(N_p r) for :meth:`predictions` and O(r²) for all other
    methods.

    Args:
        kernel: k.
        public: X_p, shape ``(N_p, d)``.
        landmarks: number of landmarks L, taken evenly spaced from the public rows.

    Source:
        Williams & Seeger 2001, "Using the Nyström method to speed up kernel machines".
    """

    def __init__(self, kernel: Kernel, public: Array, landmarks: int) -> None:
        check_number(
            "landmarks",
            landmarks,
            at_least=1,
            at_most=len(public),
            whole=True,
            where="kernel federation",
            mend=f"Give a number from 1 to the {len(public)} public rows.",
        )
        self._kernel, self._public = kernel, public
        self._landmarks = public[np.linspace(0, len(public) - 1, landmarks).round().astype(int)]
        values, vectors = scipy.linalg.eigh(gram(kernel, self._landmarks), driver="evd")
        values = _not_negative(values, kernel)
        kept = values > landmarks * np.finfo(float).eps * values[-1]
        self._turn = vectors[:, kept] / np.sqrt(values[kept])
        moments = np.zeros((int(kept.sum()),) * 2)
        for start in range(0, len(public), _ROWS_AT_ONCE):
            features = self._features(public[start : start + _ROWS_AT_ONCE])
            moments += features.T @ features
        values, vectors = scipy.linalg.eigh(moments, driver="evd")
        self.eigenvalues = _not_negative(values, kernel)
        self._turn = self._turn @ vectors

    def _features(self, X: Array) -> Array:
        return np.asarray(gram(self._kernel, X, self._landmarks) @ self._turn)

    def coordinates(self, X: Array) -> Array:
        """``ψ(X) diag(√μ)``."""
        return self._features(X) * np.sqrt(self.eigenvalues)

    def predictions(self, coordinates: Array) -> Array:
        """``Q v̂ = ψ(X_p) diag(1/√μ) v̂``."""
        return self._features(self._public) @ (coordinates / self._roots)

    def of(self, predictions: Array) -> Array:
        """``Qᵀ v``: the projection of v on the values that functions of the approximate kernel can take."""
        return np.asarray((self._features(self._public).T @ predictions) / self._roots)

    @property
    def _roots(self) -> Array:
        return np.sqrt(self.eigenvalues)[:, None]


def _not_negative(values: Array, kernel: Kernel) -> Array:
    if values[0] < -1e-8 * max(values[-1], 0):
        raise InvalidInput(
            f"it is not positive semi-definite: K_pp has the eigenvalue {values[0]:.3g}",
            where=f"kernel {name_of(kernel)}",
            mend="Take another kernel, such as 'rbf', 'laplacian' or 'wendland'.",
        )
    return np.asarray(np.maximum(values, 0.0))
