"""Class probabilities of a fitted classifier, in the order of its training codes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from consilience.core.errors import ForeignValue, InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import one_hot

Source = Literal["native", "decision", "one-hot"]
"""Source of a classifier's probabilities: ``predict_proba``, a softmax of ``decision_function``, or the
answers of ``predict``."""

_OFF = 1e-3
"""Tolerance of the sum of a row's probabilities around 1."""


def source_of(model: Any) -> Source:
    """Return a classifier's best source of probabilities."""
    if hasattr(model, "predict_proba"):
        return "native"
    return "decision" if hasattr(model, "decision_function") else "one-hot"


def shares_of(
    model: Any,
    X: Any,
    classes: int,
    *,
    given: Source,
    where: str,
) -> Array:
    """Compute class probabilities of rows, shape ``(n, classes)``.

    The model's ``classes_`` give the code of each column; a class missing from them has probability 0. The
    columns of a model without ``classes_`` are taken to be in the order of the codes.

    Args:
        model: a classifier fitted to the codes 0 … ``classes`` − 1.
        X: inputs, shape ``(n, ...)``, in the model's input format.
        classes: number of classes, 2 or more.
        given: source of the probabilities. For ``"native"`` without ``predict_proba``, a softmax of the
            decision scores is used.
        where: the model, for errors.

    Returns:
        Probabilities, shape ``(n, classes)``.

    Raises:
        InvalidInput: the answers have another shape, or are not codes or probabilities.
    """
    if given == "one-hot":
        return one_hot(_codes(model.predict(X), len(X), classes, where), classes)
    if given == "native" and hasattr(model, "predict_proba"):
        found = np.asarray(model.predict_proba(X))
    else:
        found = softmax_of(np.asarray(model.decision_function(X), dtype=np.float64))
    columns = _columns(model, classes, where)
    if found.shape != (len(X), len(columns)):
        raise InvalidInput(
            f"the model gave probabilities of shape {found.shape}, expected {(len(X), len(columns))}",
            where=where,
        )
    found = checked(found, where)
    if np.array_equal(columns, np.arange(classes)):
        return found
    shares = np.zeros((len(X), classes))
    shares[:, columns] = found
    return shares


def checked(found: Array, where: str) -> Array:
    """Check rows of probabilities; those in single precision are rescaled to sum to 1.

    Args:
        found: rows of probabilities, shape ``(n, k)``.
        where: the model, for errors.

    Returns:
        Probabilities, of the same shape.

    Raises:
        InvalidInput: a row is not a distribution.
    """
    total = found.sum(axis=1, keepdims=True)
    # Not "any is wrong": NaN compares as false.
    if not ((found >= 0).all() and (np.abs(total - 1) <= _OFF).all()):
        row = int(np.argmin(((found >= 0).all(axis=1)) & (np.abs(total[:, 0] - 1) <= _OFF)))
        shown = _short(found[row])
        raise InvalidInput(
            f"the model gave {shown} as probabilities of a row",
            where=where,
            mend="Probabilities are 0 or more and sum to 1 in each row.",
        ) from ForeignValue(shown)
    if found.dtype == np.float32:  # XGBoost's rows sum to 1 only to seven digits
        found = found.astype(np.float64)
        found /= found.sum(axis=1, keepdims=True)
    return found


def softmax_of(scores: Array) -> Array:
    """Convert decision scores to probabilities, shape ``(n, k)``.

    A single score per row is the score of the second of two classes.
    """
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    return np.asarray(softmax(scores, axis=1))


def _columns(model: Any, classes: int, where: str) -> Array:
    """Codes of the columns of a model's probabilities."""
    known = getattr(model, "classes_", None)
    if known is None:
        return np.arange(classes)
    codes = _whole(np.asarray(known), classes)
    if codes is None or codes.ndim != 1 or len(set(codes.tolist())) < len(codes):
        shown = _short(known)
        raise InvalidInput(
            f"the model's classes_ are {shown}, expected the codes 0 … {classes - 1} in any order",
            where=where,
            mend="fit is given whole numbers as labels, and classes_ lists them in the order of the columns "
            "of predict_proba.",
        ) from ForeignValue(shown)
    return codes


def _codes(answers: Any, rows: int, classes: int, where: str) -> Array:
    """Answers of ``predict`` as codes, shape ``(n,)``.

    Raises:
        InvalidInput: they are anything else: probabilities, scores, other labels.
    """
    found = np.asarray(answers)
    if found.shape == (rows, 1):
        found = found[:, 0]
    codes = _whole(found, classes)
    if codes is not None and codes.shape == (rows,):
        return codes
    mend = f"predict answers with the labels that fit was given, which are 0 … {classes - 1}."
    if found.dtype.kind == "f" and found.size and found.min() >= 0 and found.max() <= 1:
        mend += (
            " If these are probabilities, call the method predict_proba and give one column for "
            "each class, shape (n, classes)."
        )
    if found.shape != (rows,):
        raise InvalidInput(
            f"predict gave answers of shape {found.shape}, expected {(rows,)}",
            where=where,
            mend=mend,
        )
    off = [one for one in found.tolist() if _whole(np.asarray([one]), classes) is None]
    shown = _short(off[:1])
    raise InvalidInput(
        f"predict gave {shown}, which is none of the labels that the model was trained on",
        where=where,
        mend=mend,
    ) from ForeignValue(shown)


def _whole(values: Array, classes: int) -> Array | None:
    """The values as codes below ``classes``; ``None`` if some are none."""
    if values.dtype.kind == "O":
        kinds = {type(one) for one in values.ravel().tolist()}
        if not kinds <= {int, bool, float} and not all(issubclass(k, np.number) for k in kinds):
            return None
        values = values.astype(np.float64)
    if values.dtype.kind not in "biuf" or not ((values >= 0) & (values < classes)).all():
        return None
    codes = values.astype(np.int64)
    return codes if (codes == values).all() else None


def _short(values: Any) -> str:
    """A few values for an error; numbers to four digits."""
    listed = np.asarray(values).ravel().tolist()
    shown = [f"{one:.4g}" if isinstance(one, float) else str(one)[:20] for one in listed[:5]]
    return ", ".join(shown) + (", …" if len(listed) > 5 else "")
