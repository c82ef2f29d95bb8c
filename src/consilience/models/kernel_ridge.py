"""Kernel ridge regression on weighted rows, exact, with a regularisation that data may choose."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import Kernel, check_definite, gram, kernel_of
from consilience.core.validation.arrays import Array

CHOICES = ("gcv", "calibration")
"""The ways to choose the regularisation."""

GRID: Array = np.logspace(1, -10, 45)
"""Candidates for λ, in units of the largest eigenvalue of ``W^{1/2} K W^{1/2}``: 4 values a decade."""


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel ridge regression with a fixed or an automatically chosen regularization.

    It minimises over the functions ``h`` of the kernel's space

        (1/Σw) Σ_i w_i (h(x_i) − y_i)² + λ ‖h‖²,

    which gives ``h = k(·, X) a`` with ``(K + λ W⁻¹) a = y`` and ``W = diag(w/Σw)``. Only ratios of weights
    matter, and a row of weight 0 is excluded. Weights α/N on private and (1−α)/N_p on public rows make this
    the distillation loss of Park et al. 2023. Several targets share λ; there is no intercept.

    A fixed λ takes one Cholesky factorisation of ``W^{1/2} K W^{1/2} + λ I``. A choice takes one
    eigendecomposition of ``W^{1/2} K W^{1/2}``. The candidates for λ are 10 … 10⁻¹⁰ times its largest
    eigenvalue, on a grid of four values a decade; the largest of equally good ones is taken.

    Args:
        regularization: λ > 0; or ``"gcv"``, which minimises generalised cross-validation,
            ``n ‖(I − H) ỹ‖² / tr(I − H)²`` with ``ỹ = W^{1/2} y`` and ``H ỹ`` its fit; or ``"calibration"``,
            which minimises the mean squared error on the ``validation`` rows given to :meth:`fit`.
        kernel: a name of :data:`consilience.core.numerics.kernels.KERNELS`, or a function of two matrices of
            rows, ``(n, d), (m, d) -> (n, m)``, symmetric and positive semi-definite; scikit-learn's
            ``gaussian_process.kernels`` are such functions.
        gamma: coefficient of a named kernel, if it has one; ``None`` uses scikit-learn's default.
        degree: degree of ``"polynomial"``.
        coef0: constant term of ``"polynomial"`` and ``"sigmoid"``.

    Attributes:
        X_fit_: the rows with a weight above 0, shape ``(n, d)``.
        dual_coef_: ``a``, shape ``(n,)`` or ``(n, n_targets)``.
        regularization_: the chosen λ.
        n_features_in_: ``d``.

    Source:
        Park, Hong & Hwang 2023, equations 2 and 5. Golub, Heath & Wahba, *Generalized cross-validation as a
        method for choosing a good ridge parameter* (1979).

    >>> model = KernelRidge(regularization=0.5, kernel="brownian")
    >>> model.fit([[0], [1], [2]], [0, 8, 16], sample_weight=[1, 1, 2]).predict([[0.5]]).round(9)
    array([5.25])
    """

    X_fit_: Array
    dual_coef_: Array
    regularization_: float
    n_features_in_: int

    def __init__(
        self,
        regularization: float | str = 1e-3,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
    ) -> None:
        self.regularization = regularization
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def check_parameters(self) -> None:
        """Raise ``InvalidInput`` if a parameter cannot be used; :meth:`fit` does so too."""
        value = self.regularization
        known = value in CHOICES if isinstance(value, str) else isinstance(value, Real)
        if not known or not (isinstance(value, str) or 0 < value < math.inf):
            raise InvalidInput(
                f"regularization is {value!r}",
                where="KernelRidge",
                mend=f"It is a number above 0, or one of {', '.join(CHOICES)}.",
            )
        self._kernel()

    @property
    def needs_validation(self) -> bool:
        """True if :meth:`fit` needs ``validation`` rows."""
        return bool(self.regularization == "calibration")

    def _get_fitted_attr_html(self, doc_link: str = "") -> tuple[()]:
        """List no fitted attributes in the HTML of scikit-learn: they hold the rows of ``fit``."""
        return ()

    def check_inputs(self, X: Any) -> None:
        """Raise ``InvalidInput`` if the kernel cannot take rows such as these, shape ``(n, d)``."""
        X = np.asarray(X, dtype=np.float64)
        gram(self._kernel(), X)
        check_definite(self._kernel(), X)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        validation: tuple[Any, Any] | None = None,
    ) -> KernelRidge:
        """Compute the coefficients.

        Args:
            X: shape ``(n, d)``.
            y: shape ``(n,)`` or ``(n, n_targets)``.
            sample_weight: shape ``(n,)``, non-negative; ``None`` for equal weights.
            validation: held-out ``(X, y)``, for ``regularization="calibration"`` only.

        Returns:
            Itself.

        Raises:
            InvalidInput: a parameter is out of range, the kernel is not positive semi-definite on these rows,
                a required ``validation`` is missing, or the system is too near to singular.
            ValueError: the rows or targets are not finite numbers of the right shape.
        """
        self.check_parameters()
        X, y = self._rows(X, y, reset=True)
        held_out = self._held_out(validation, y) if self.regularization == "calibration" else None
        shares = _shares(sample_weight, len(X))
        kept = shares > 0
        X, y, root = X[kept], y[kept], np.sqrt(shares[kept, None])
        kernel = self._kernel()
        check_definite(kernel, X)

        scaled = gram(kernel, X) * root * root.T
        targets = root * y.reshape(len(y), -1)
        if isinstance(self.regularization, str):
            values, vectors = scipy.linalg.eigh(scaled, overwrite_a=True, check_finite=False)
            values = np.maximum(values, 0)  # below 0 by rounding only
            coordinates = vectors.T @ targets
            grid = GRID * (values[-1] or 1.0)
            if held_out is None:
                errors = _cross_validated(values, coordinates, grid)
            else:
                there = gram(kernel, held_out[0], X) @ (root * vectors)
                errors = _on_held_out(there, held_out[1], values, coordinates, grid)
            self.regularization_ = float(grid[np.argmin(errors)])
            solution = vectors @ _shrunk(values, coordinates, self.regularization_)
        else:
            self.regularization_ = float(self.regularization)
            solution = _solved(scaled, targets, self.regularization_)
        self.X_fit_ = X
        self.dual_coef_ = (root * solution).reshape(y.shape)
        return self

    def predict(self, X: Any) -> Array:
        """Compute values, shape ``(n,)`` or ``(n, n_targets)`` as the targets were."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return gram(self._kernel(), X, self.X_fit_) @ self.dual_coef_

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, y = validate_data(
            self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True
        )
        return X, y.astype(np.float64)

    def _held_out(self, validation: tuple[Any, Any] | None, y: Array) -> tuple[Array, Array]:
        if validation is None:
            raise InvalidInput(
                "there are no validation rows to choose the regularization by",
                where="KernelRidge",
                mend="Hold rows out (a party's calibration share above 0, or fit's validation=(X, y)), "
                "or take regularization='gcv'.",
            )
        X_held, y_held = self._rows(*validation, reset=False)
        if y_held.shape[1:] != y.shape[1:]:
            raise InvalidInput(
                f"a target has shape {y.shape[1:]}, a validation target {y_held.shape[1:]}",
                where="KernelRidge",
            )
        return X_held, y_held.reshape(len(y_held), -1)


def _shares(weights: Any, n_rows: int) -> Array:
    """Non-negative weights that sum to 1, shape ``(n_rows,)``."""
    weights = np.ones(n_rows) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InvalidInput(
            f"weights have shape {weights.shape}, expected {(n_rows,)}", where="KernelRidge"
        )
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise InvalidInput(
            "weights must be finite, non-negative and not all zero", where="KernelRidge"
        )
    return np.asarray(weights / weights.sum())


def _solved(scaled: Array, targets: Array, regularization: float) -> Array:
    """``(S + λ I)⁻¹ targets``, by Cholesky; ``scaled``, which is S, is overwritten."""
    scaled[np.diag_indices_from(scaled)] += regularization
    # Squared pivots are at least λ in exact arithmetic: below this they are rounding.
    smallest = len(scaled) * np.finfo(np.float64).eps * scaled.diagonal().max()
    try:
        factor = scipy.linalg.cho_factor(scaled, lower=True, overwrite_a=True, check_finite=False)
        singular = factor[0].diagonal().min() ** 2 <= smallest
    except scipy.linalg.LinAlgError:
        singular = True
    if singular:
        raise InvalidInput(
            f"the kernel matrix with regularization {regularization:.3g} is not positive definite",
            where="KernelRidge",
            mend=f"Take a regularization of at least {2 * smallest:.1g}, or if it is that already, "
            "another kernel, such as 'rbf': this one is not positive semi-definite.",
        )
    return np.asarray(scipy.linalg.cho_solve(factor, targets, check_finite=False))


def _shrunk(values: Array, coordinates: Array, regularization: float) -> Array:
    """The solution in the eigenbasis, shape ``(n, n_targets)``."""
    return np.asarray(coordinates / (values + regularization)[:, None])


def _cross_validated(values: Array, coordinates: Array, grid: Array) -> Array:
    """Generalised cross-validation of every λ, shape ``(n_grid,)``; I − H has eigenvalues λ/(e + λ)."""
    left = grid[:, None] / (values + grid[:, None])
    residuals = np.square(left) @ np.square(coordinates).sum(axis=1)
    return np.asarray(len(values) * residuals / np.square(left.sum(axis=1)))


def _on_held_out(
    there: Array, y_held: Array, values: Array, coordinates: Array, grid: Array
) -> Array:
    """Mean squared error of every λ, shape ``(n_grid,)``; ``there`` takes the eigenbasis to the rows."""
    predictions = (there @ _shrunk(values, coordinates, one) for one in grid)
    return np.array([np.square(p - y_held).mean() for p in predictions])
