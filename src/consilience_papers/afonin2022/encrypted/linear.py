"""Linear models, which an additively homomorphic scheme can evaluate on a party's encrypted columns."""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import message
from consilience.core.validation.arrays import Array
from consilience.models.kernel_ridge import KernelRidge

INPUTS = "inputs"
"""The features of a model that is linear in the inputs themselves."""

_WORKS = (
    "What works: a linear regressor (Ridge, Lasso, LinearRegression, SGDRegressor, ...), "
    "KernelRidge(kernel='linear'), and in place of other kernels make_pipeline(RBFSampler(gamma=1.0, "
    "random_state=0), Ridge()), the same RBFSampler at every party. Any other model must travel itself."
)
_SHARED = (
    "Features before it must be known to everyone: RBFSampler with a number as gamma and as random_state, "
    "or FrozenEstimator(Nystroem(gamma=1.0, random_state=0).fit(public_rows)). A StandardScaler goes "
    "between them and the regressor, or scale all parties' inputs alike beforehand."
)


@message
class LinearModel:
    """Linear model ``f(x) = φ(x) W + b``, which its owner sends to the relay and to no one else.

    Attributes:
        coefficients: W, float64 of shape ``(d, n_outputs)``.
        intercept: b, float64 of shape ``(n_outputs,)``.
        features: what φ is, as :func:`shared_features` calls it.

    Raises:
        KnowledgeRefused: wrong shapes, or values that are not finite.
    """

    coefficients: Array
    intercept: Array
    features: str = INPUTS

    def __post_init__(self) -> None:
        W, b = self.coefficients, self.intercept
        if W.ndim != 2 or b.shape != W.shape[1:] or 0 in W.shape:
            raise KnowledgeRefused(
                f"coefficients of shape {W.shape} with an intercept of shape {b.shape}",
                where="LinearModel",
            )
        if W.dtype != np.float64 or b.dtype != np.float64:
            raise KnowledgeRefused("coefficients are not float64", where="LinearModel")
        if not (np.isfinite(W).all() and np.isfinite(b).all()):
            raise KnowledgeRefused("coefficients are not finite", where="LinearModel")


def linear_model(model: Any) -> LinearModel:
    """Extract the coefficients of a fitted model, with scalers folded in.

    Args:
        model: a fitted regressor whose predictions are ``X @ coef_.T + intercept_``; ``KernelRidge`` with the
            linear kernel, ``W = Xᵀ a``; or a pipeline of shared features, ``StandardScaler`` and one of
            these, of which only the last is needed. A scaler's mean μ and scale s become ``W/s`` and
            ``b − (μ/s) W``.

    Raises:
        InvalidInput: not fitted, or not linear in columns that every party can compute.

    >>> from sklearn.linear_model import LinearRegression
    >>> model = linear_model(LinearRegression().fit([[0.0], [2.0]], [1.0, 5.0]))
    >>> model.coefficients.round(9).tolist(), model.intercept.round(9).tolist()
    ([[2.0]], [1.0])
    """
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    steps = [step for step in steps if step not in (None, "passthrough")]
    for step in steps:
        _check_fitted(step)
    *before, regressor = steps
    W, b = _coefficients(regressor)
    while before and isinstance(before[-1], StandardScaler):
        scaler = before.pop()
        if scaler.with_std:
            W = W / scaler.scale_[:, None]
        if scaler.with_mean:
            b = b - scaler.mean_ @ W
    features = shared_features(before.pop()) if before else INPUTS
    if before:
        raise InvalidInput(
            f"{type(before[-1]).__name__} comes before the features",
            where=type(regressor).__name__,
            mend=_SHARED,
        )
    return LinearModel(coefficients=W, intercept=b, features=features)


def shared_features(features: Any) -> str:
    """Name features that every party computes for itself: the same name for the same function.

    Args:
        features: a fitted ``RBFSampler`` whose seed and gamma are given, drawn from nothing else; or a
            ``FrozenEstimator`` of a ``Nystroem`` that was fitted on public rows, so that no pipeline fits it
            on private ones.

    Raises:
        InvalidInput: others, or not fitted.
    """
    inner = features.estimator if isinstance(features, FrozenEstimator) else features
    name = type(inner).__name__
    if isinstance(inner, RBFSampler):
        shared = isinstance(inner.random_state, Integral) and isinstance(inner.gamma, Real)
    else:
        shared = isinstance(inner, Nystroem) and inner is not features
        shared = shared and isinstance(inner.kernel, str) and not inner.kernel_params
    if not shared:
        raise InvalidInput(
            f"{name} is not known to give every party the same features",
            where="features",
            mend=_SHARED,
        )
    _check_fitted(inner)
    if isinstance(inner, RBFSampler):
        arrays, described = [inner.random_weights_, inner.random_offset_], ""
    else:
        kernel = (inner.kernel, inner.gamma, inner.coef0, inner.degree)
        arrays, described = [inner.components_], repr(kernel)
    digest = hashlib.sha256(described.encode())
    for array in arrays:
        # In single precision: a random number's last bit may differ between machines.
        digest.update(repr(array.shape).encode() + array.astype("<f4").tobytes())
    return f"{name} {digest.hexdigest()[:16]}"


def _check_fitted(model: Any) -> None:
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InvalidInput(
            "it is not fitted", where=type(model).__name__, mend="Fit it first."
        ) from error
    except TypeError as error:  # no estimator of scikit-learn's
        raise InvalidInput(
            "it is not linear in the inputs", where=type(model).__name__, mend=_WORKS
        ) from error


def _coefficients(model: Any) -> tuple[Array, Array]:
    """W of shape ``(d, n_outputs)`` and b."""
    name = type(model).__name__
    if isinstance(model, KernelRidge | SklearnKernelRidge):
        if model.kernel != "linear":
            raise InvalidInput(
                f"a {model.kernel} kernel with {name}'s own rows, which the asking party may not see, "
                "cannot be evaluated on encrypted inputs",
                where=name,
                mend=_WORKS,
            )
        W = model.X_fit_.T @ model.dual_coef_.reshape(len(model.dual_coef_), -1)
        return np.asarray(W, dtype=np.float64), np.zeros(W.shape[1])
    if not (is_regressor(model) and hasattr(model, "coef_") and hasattr(model, "intercept_")):
        raise InvalidInput("it is not linear in the inputs", where=name, mend=_WORKS)
    W = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64)).T
    b = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), W.shape[1:]).copy()
    # Of the many models with a coef_, some have a link, or centre their inputs, outside of it.
    probe = np.random.default_rng(0).normal(size=(8, len(W)))
    ours = probe @ W + b
    theirs = np.asarray(model.predict(probe), dtype=np.float64).reshape(len(probe), -1)
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, 1e-6, 1e-6 * np.abs(W).max()):
        raise InvalidInput(
            "its predictions are not X @ coef_.T + intercept_", where=name, mend=_WORKS
        )
    return W, b
