"""Logistic regression taught by soft labels: their exact loss, and the penalty that held-out rows ask for.

A penalty that is right for a party's few labels is too strong for a teacher's many soft ones, which hold less
chance. So the C of a model with a strong one is chosen: its own, or a multiple up to the library's default.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import log_softmax

from consilience.learners.sklearn.estimators import parts
from consilience.learners.targets import expand, harden
from consilience.validation.arrays import Array

WEAKER = (1.0, 5.0, 25.0, 125.0)
"""Multiples of C that are tried one after another, while they serve held-out rows."""

USUAL = 1.0
"""C of scikit-learn's own default, which is not exceeded."""

_HELD_OUT = 5
"""One of so many rows is held out."""

_ROUGH = 1e-3
"""Largest slope at the end of fits that are only compared."""

_ANY = {"C", "max_iter", "tol", "random_state", "n_jobs", "verbose", "warm_start"}
"""Parameters that may differ from the library's defaults."""


def is_plain_logistic(model: Any) -> bool:
    """Tell whether a model ends in scikit-learn's logistic regression, as it is but for C and the like."""
    last = parts(model)[1]
    if type(last).__name__ != "LogisticRegression" or not last.C > 0:
        return False
    usual = type(last)().get_params()
    return all(name in _ANY or usual[name] == value for name, value in last.get_params().items())


def has_strong_penalty(model: Any) -> bool:
    """Tell whether it is such a one with a stronger penalty than the default."""
    return is_plain_logistic(model) and parts(model)[1].C < USUAL


def fit_to_soft_labels(
    model: Any, X: Any, targets: Array, weights: Array | None, rng: np.random.Generator | None
) -> Any:
    """Fit a model that :func:`is_plain_logistic` to soft labels, in place.

    It is the optimum that copies of each row for each class have: on dense rows by their loss itself and as
    many steps of L-BFGS, on sparse ones, where words by classes are thousands of coefficients, by copies and
    Newton's method, which takes a tenth of the steps.

    Args:
        model: a logistic regression, or a pipeline that ends in one.
        X: inputs, shape ``(n, ...)``.
        targets: probabilities of its classes, which are numbered, shape ``(n, k)`` with k of 2 or more.
        weights: of the rows; ``None`` for 1 each.
        rng: draws the rows that are held out to choose a strong penalty by; ``None`` to leave it as it is.
    """
    from sklearn.pipeline import Pipeline

    before, last = parts(model)
    if before:
        X = Pipeline(before).fit_transform(X, harden(targets))
    w = np.ones(len(targets)) if weights is None else weights
    start = None
    if rng is not None and has_strong_penalty(last):
        start = _weaken(last, X, targets, w, rng)
    if issparse(X):
        rows, labels, copies = expand(targets, weights, smallest=0.0)
        last.set_params(solver="newton-cg").fit(X[rows], labels, sample_weight=copies)
        last.set_params(solver="lbfgs")
        return model
    found, steps = _minimum(X, targets, w, last.C, start, last.max_iter, last.tol)
    last.coef_, last.intercept_ = found[:, :-1].copy(), found[:, -1].copy()
    last.classes_, last.n_features_in_ = np.arange(targets.shape[1]), X.shape[1]
    last.n_iter_ = np.array([steps], dtype=np.int32)
    return model


def _weaken(last: Any, X: Any, targets: Array, w: Array, rng: np.random.Generator) -> Array | None:
    """Set the C that serves held-out rows best; give coefficients to begin from, ``None`` for zeros."""
    held, found = rng.permutation(len(targets)) % _HELD_OUT == 0, None
    best, least, start = last.C, np.inf, None
    for C in (last.C * more for more in WEAKER):
        if C > USUAL or held.all():
            break
        start, _ = _minimum(X[~held], targets[~held], w[~held], C, start, last.max_iter, _ROUGH)
        said = log_softmax(_scores(X[held], start), axis=1)
        loss = float(-w[held] @ (targets[held] * said).sum(axis=1))
        if loss >= least:
            break
        best, least, found = C, loss, start
    last.set_params(C=best)
    return found


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
        gradient = np.hstack(
            [np.asarray(X.T @ off).T + scale * free[:, :-1], off.sum(axis=0)[:, None]]
        )
        loss = -w @ (targets * said).sum(axis=1) / w.sum()
        return float(loss + scale / 2 * (free[:, :-1] ** 2).sum()), gradient.ravel()

    first = np.zeros(shape) if start is None else start
    options = {"maxiter": most, "gtol": slope, "ftol": 64 * np.finfo(float).eps, "maxls": 50}
    found = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape), int(found.nit)
