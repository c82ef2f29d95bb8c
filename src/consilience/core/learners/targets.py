"""Targets and row weights made ready for a model: checked, then hardened or expanded."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind

SMALLEST_SHARE = 0.05
"""A class below this share of its row's largest probability gets no copy of the row.

The training time of such models grows with the number of copies: kernel machines keep most of them as support
vectors. A teacher with 80 % confidence leaves two or three copies out of ten."""

SMALLEST_OF_BINS = 1e-3
"""The same share for ordered bins, in which many small shares together determine the survival time of a row.
"""

_SUM_TOLERANCE = 1e-3


def usable(
    X: Array, targets: Array, weights: Array | None, *, n_outputs: int, kind: Kind, where: str
) -> tuple[Array, Array, Array | None]:
    """Check the arguments of ``fit``, and drop rows of weight 0.

    Only the ratios of weights matter. Weights are scaled to mean 1, so that the strength of a model's
    regularisation does not depend on their scale; equal weights are returned as ``None``.

    Args:
        X: inputs, shape ``(n, ...)``.
        targets: shape ``(n, n_outputs)``.
        weights: shape ``(n,)`` or ``None``.
        n_outputs: the agreed number of classes or regression targets; 0 accepts any number.
        kind: classification targets must be probabilities, row by row.
        where: the learner, for messages.

    Returns:
        ``(X, targets, weights)``, targets as float64.

    Raises:
        InvalidInput: shapes differ, a value is not finite, or a row is not a distribution.
    """
    targets = np.asarray(targets, dtype=np.float64)
    if targets.ndim != 2 or targets.shape != (len(X), n_outputs or targets.shape[1]):
        expected = (len(X), n_outputs or "n_outputs")
        raise InvalidInput(f"targets have shape {targets.shape}, expected {expected}", where=where)
    if len(X) == 0:
        raise InvalidInput("there are no rows to train on", where=where)
    if not np.isfinite(targets).all():
        raise InvalidInput("targets hold NaN or infinite values", where=where)
    if kind == "classification" and (
        targets.min() < 0 or np.abs(targets.sum(axis=1) - 1).max() > _SUM_TOLERANCE
    ):
        raise InvalidInput(
            "targets are not probabilities: every row must be non-negative and sum to 1",
            where=where,
        )
    if weights is None:
        return X, targets, None
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(X),):
        raise InvalidInput(f"weights have shape {weights.shape}, expected {(len(X),)}", where=where)
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise InvalidInput("weights must be finite, non-negative and not all zero", where=where)
    kept = weights > 0
    if not kept.all():
        X, targets, weights = X[kept], targets[kept], weights[kept]
    if (weights == weights[0]).all():
        return X, targets, None
    return X, targets, weights / weights.mean()


def harden(targets: Array) -> Array:
    """Return the likeliest class of each row, shape ``(n,)``; the first one of equals.

    >>> harden(np.array([[0.2, 0.8], [0.5, 0.5]]))
    array([1, 0])
    """
    return np.asarray(np.argmax(targets, axis=1))


def without_small(targets: Array, smallest: float = SMALLEST_SHARE) -> Array:
    """Drop the classes up to a share of their row's largest probability, and rescale rows to sum to 1.

    >>> without_small(np.array([[0.03, 0.25, 0.75]]))
    array([[0.  , 0.25, 0.75]])
    """
    kept = np.where(targets > smallest * targets.max(axis=1, keepdims=True), targets, 0.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def expand(
    targets: Array, weights: Array | None, *, smallest: float = SMALLEST_SHARE
) -> tuple[Array, Array, Array | None]:
    """Turn soft rows into weighted hard-labelled copies.

    Row ``i`` becomes one copy per class ``c`` with ``p_ic > smallest * max_c p_ic``; the kept probabilities
    are renormalised to ``q`` and the copy weighs ``w_i q_ic``. If the model minimises a weighted sum over
    rows, this equals the soft cross-entropy, apart from the dropped classes.

    Args:
        targets: probabilities, shape ``(n, n_classes)``.
        weights: shape ``(n,)``, or ``None`` for 1 each.
        smallest: share of a row's largest probability up to which a class gets no copy.

    Returns:
        ``(rows, labels, weights)``, each of shape ``(n_copies,)``: index of the row, class and weight of
            each copy. If every row is hard, rows are ``0 … n-1`` and the weights are returned unchanged.

    >>> rows, labels, copies = expand(np.array([[1.0, 0.0], [0.25, 0.75]]), None)
    >>> rows.tolist(), labels.tolist(), copies.tolist()
    ([0, 1, 1], [0, 0, 1], [1.0, 0.25, 0.75])
    """
    kept = without_small(targets, smallest)
    rows, labels = np.nonzero(kept)
    if len(rows) == len(targets):
        return rows, labels, weights
    copies = kept[rows, labels]
    return rows, labels, copies if weights is None else copies * weights[rows]
