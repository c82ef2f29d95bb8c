"""Logistic regression on soft labels: it minimises their loss, with a penalty selected on held-out rows.

A suitable penalty for a party's few labels is too strong for a teacher's many soft labels, which contain less
noise. If the penalty is strong, C is therefore selected among its value and three multiples of it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import log_softmax

from consilience.core.validation.arrays import Array

WEAKER = (5.0, 25.0, 125.0)
"""Multiples of C, tried in this order as long as the loss on held-out rows falls."""

USUAL = 1.0
"""Default C of scikit-learn, an upper bound on the selected C."""

_HELD_OUT = 5
"""One row in this many is held out."""

_ROUGH = 1e-3
"""Gradient tolerance of the fits for comparison."""

_ANY = {"C", "max_iter", "tol", "random_state", "n_jobs", "verbose", "warm_start"}
"""Parameters that may have any value."""

_SAME: dict[str, tuple[Any, ...]] = {"penalty": ("l2", "deprecated"), "l1_ratio": (None, 0)}
"""Values equivalent to the default."""


def is_plain_logistic(last: Any) -> bool:
    """Return whether an estimator is scikit-learn's logistic regression with defaults except for C etc."""
    kind = type(last)
    if kind.__name__ != "LogisticRegression" or not kind.__module__.startswith("sklearn."):
        return False
    if not isinstance(last.C, float | int | np.number) or not last.C > 0:
        return False  # the library says what is wrong
    usual = kind().get_params()
    given = last.get_params().items()
    return all(name in _ANY or value in _SAME.get(name, (usual[name],)) for name, value in given)


def has_strong_penalty(last: Any) -> bool:
    """Return whether it is a plain logistic regression with a strong penalty: five times C is at most 1."""
    return is_plain_logistic(last) and last.C * WEAKER[0] <= USUAL


def as_numbers(last: Any, X: Any) -> Any:
    """Validate rows as the estimator's ``fit`` does, and record their columns in it.

    Args:
        last: the estimator.
        X: inputs, shape ``(n, d)``, in any format that the estimator accepts.

    Returns:
        Rows, shape ``(n, d)``; dense ones in double precision.
    """
    from sklearn.utils.validation import validate_data

    dtype = "numeric" if issparse(X) else np.float64
    return validate_data(last, X, accept_sparse="csr", dtype=dtype)


def weaken(
    last: Any, X: Any, targets: Array, weights: Array | None, rng: np.random.Generator
) -> Array | None:
    """Set the C with the lowest loss on held-out rows if the penalty is strong; else keep C.

    Args:
        last: a logistic regression that satisfies :func:`is_plain_logistic`.
        X: inputs, shape ``(n, d)``, dense or sparse, from :func:`as_numbers`.
        targets: probabilities of the classes, shape ``(n, k)`` with k of 2 or more.
        weights: weights of the rows; ``None`` for 1 each.
        rng: source of randomness for the choice of held-out rows.

    Returns:
        Initial coefficients for a fit with that C, shape ``(k, d + 1)``, or ``(1, d + 1)`` for two classes;
        ``None`` for zeros.
    """
    if not has_strong_penalty(last):
        return None
    w = np.ones(len(targets)) if weights is None else weights
    held = rng.permutation(len(targets)) % _HELD_OUT == 0
    best, least, start, found = float(last.C), np.inf, None, None
    for C in (best, *(best * more for more in WEAKER)):
        if C > USUAL or held.all():
            break
        start, steps = _minimum(X[~held], targets[~held], w[~held], C, start, last.max_iter, _ROUGH)
        said = log_softmax(_scores(X[held], start), axis=1)
        loss = float(-w[held] @ (targets[held] * said).sum(axis=1))
        if loss >= least or steps >= last.max_iter:
            break
        best, least, found = C, loss, start
    last.set_params(C=best)
    return found


def fit_to_soft_labels(
    last: Any, X: Any, targets: Array, weights: Array | None, start: Array | None = None
) -> None:
    """Fit a logistic regression to soft labels of dense rows, in place.

    Its objective is that of copies of each row for each class, and so are its steps, by L-BFGS.

    Args:
        last: one that :func:`is_plain_logistic`.
        X: inputs, shape ``(n, d)``, as :func:`as_numbers` gives them.
        targets: as of :func:`weaken`.
        weights: as of :func:`weaken`.
        start: coefficients to begin from, as :func:`weaken` gives them.

    Warns:
        ConvergenceWarning: it made as many steps as it may.
    """
    w = np.ones(len(targets)) if weights is None else weights
    found, steps = _minimum(X, targets, w, last.C, start, last.max_iter, last.tol)
    if steps >= last.max_iter:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"LogisticRegression did not converge in max_iter = {last.max_iter} steps: scale its inputs, or "
            "allow more",
            ConvergenceWarning,
            stacklevel=2,
        )
    last.coef_, last.intercept_ = found[:, :-1].copy(), found[:, -1].copy()
    last.classes_ = np.arange(targets.shape[1])
    last.n_iter_ = np.array([steps], dtype=np.int32)


def _scores(X: Any, coefficients: Array) -> Array:
    """Scores of the classes, shape ``(n, k)``; one row of coefficients is the second class's of two."""
    found = np.asarray(X @ coefficients[:, :-1].T) + coefficients[:, -1]
    return np.hstack([np.zeros_like(found), found]) if found.shape[1] == 1 else found


def _minimum(
    X: Any, targets: Array, w: Array, C: float, start: Array | None, most: int, slope: float
) -> tuple[Array, int]:
    """Minimise scikit-learn's objective: coefficients and intercepts, shape ``(k, d + 1)``, and steps made.

    ``C sum_i w_i loss_i + ½ sum of squared coefficients``; of two classes one row of them is free.
    """
    from scipy.optimize import minimize

    k, d = targets.shape[1], X.shape[1]
    shape = (k if k > 2 else 1, d + 1)
    scale = 1 / (C * w.sum())

    def objective(flat: Array) -> tuple[float, Array]:
        free = flat.reshape(shape)
        said = log_softmax(_scores(X, free), axis=1)
        off = ((np.exp(said) - targets) * w[:, None])[:, -shape[0] :] / w.sum()
        slopes = np.asarray(X.T @ off).T + scale * free[:, :-1]
        loss = -w @ (targets * said).sum(axis=1) / w.sum()
        gradient = np.hstack([slopes, off.sum(axis=0)[:, None]])
        return float(loss + scale / 2 * (free[:, :-1] ** 2).sum()), gradient.ravel()

    first = np.zeros(shape) if start is None else start
    options = {"maxiter": most, "gtol": slope, "ftol": 64 * np.finfo(float).eps, "maxls": 50}
    found = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape), int(found.nit)
