"""Penalty of a linear classifier that is taught: many soft labels bear a weaker one than few own labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.validation.arrays import Array

WEAKER = (5.0, 25.0, 125.0)
"""Factors of C that are tried one after another, while they serve held-out rows."""

USUAL = 1.0
"""C of scikit-learn's own default, which is not exceeded."""

_HELD_OUT = 5
"""One of so many rows is held out."""

_ROUGH = 1e-3
"""Tolerance of fits that are compared."""

_UNHEARD = 1e-6
"""Least probability that a logarithm is taken of."""


def is_strong(last: Any) -> bool:
    """Tell whether an estimator is a logistic regression whose penalty is stronger than the default."""
    return type(last).__name__ == "LogisticRegression" and 0 < last.C < USUAL


def weakened(
    last: Any, X: Any, labels: Array, rows: Array, weights: Array | None, rng: np.random.Generator
) -> float:
    """Find the C that serves held-out rows: the model's own, or a larger one up to :data:`USUAL`.

    Args:
        last: the logistic regression, which is left as it is.
        X: inputs, one a label, shape ``(n_copies, d)``.
        labels: classes, of a row as many as it has copies, shape ``(n_copies,)``.
        rows: which row a label is of, shape ``(n_copies,)``.
        weights: of the labels; ``None`` for 1 each.
        rng: draws the rows that are held out.
    """
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    held = (rng.permutation(rows.max() + 1) % _HELD_OUT == 0)[rows]
    kept, judged = np.flatnonzero(~held), np.flatnonzero(held)
    if len(np.unique(labels[kept])) < 2 or not len(judged):
        return float(last.C)
    seen, asked = _safe_indexing(X, kept), _safe_indexing(X, judged)
    share = np.ones(len(labels)) if weights is None else weights
    model = clone(last).set_params(warm_start=True, tol=max(last.tol, _ROUGH))
    best, least = float(last.C), np.inf
    for C in (last.C, *(last.C * more for more in WEAKER)):
        if C > USUAL:
            break
        model.set_params(C=C).fit(seen, labels[kept], sample_weight=share[kept])
        found = np.zeros((len(judged), int(labels.max()) + 1))
        found[:, model.classes_] = model.predict_proba(asked)
        told = found[np.arange(len(judged)), labels[judged]]
        loss = float(-share[judged] @ np.log(np.maximum(told, _UNHEARD)))
        if loss >= least:
            break
        best, least = float(C), loss
    return best
