"""Private rows: checked when a party is made, coded as rows of outputs and split when it joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ForeignValue, InvalidInput
from consilience.core.messages.schema import Agreement
from consilience.core.numerics.outcomes import Outcome
from consilience.core.validation.arrays import Array, as_rows, check_inputs, read_only
from consilience.core.validation.labels import Kind, class_order, label_names, one_hot
from consilience.core.validation.numbers import numbers_only
from consilience.core.validation.tables import is_table, table_reader


def checked_inputs(X: Any, *, where: str) -> Array:
    """Check inputs and return them as a read-only array.

    Args:
        X: inputs, shape ``(n, ...)``.
        where: the party and the table, for errors.

    Returns:
        Shape ``(n, ...)``.

    Raises:
        InvalidInput: there are no rows, or they cannot be used.
    """
    X = as_rows(X, where=where)
    if X.ndim == 0 or len(X) == 0:
        raise InvalidInput("there are no rows", where=where)
    check_inputs(X, where=where, gaps=True)
    return read_only(X)


def checked_rows(
    X: Any,
    y: Any,
    kind: Kind,
    aliases: Mapping[Any, str],
    *,
    where: str,
    outcome: Outcome | None = None,
) -> tuple[Array, Array]:
    """Check that inputs and targets fit, and return them read-only.

    Args:
        X: inputs, shape ``(n, ...)``.
        y: labels, shape ``(n,)``, or values.
        kind: ``"classification"`` or ``"regression"``.
        aliases: map from own labels to the federation's class names.
        where: the party and the table, for errors.
        outcome: coding that reads the targets; ``None``, the default, for labels and plain values.

    Returns:
        Inputs, shape ``(n, ...)``, and class names ``(n,)``, values ``(n, n_targets)``, or targets of the
        outcome.

    Raises:
        InvalidInput: they do not fit one another, or cannot be used.
    """
    X = as_rows(X, where=where)
    if outcome is not None:
        y = outcome.read(y, where=where)
    if X.ndim and len(X) != len(y):
        raise InvalidInput(f"{len(X)} rows of inputs and {len(y)} of targets", where=where)
    X = checked_inputs(X, where=where)
    if outcome is not None:
        return X, y
    if kind == "classification":
        return X, label_names(y, where=where, aliases=aliases)
    values = numbers_only(y, "targets", where=where)
    check_inputs(values, where=f"{where}, targets")
    return X, read_only(values.reshape(len(values), -1))


def target_names(y: Any, *, where: str) -> tuple[str, ...]:
    """Return the column names of a table of several target values; empty for one value or without names.

    Args:
        y: values of a regression, as a table or an array.
        where: the party and the table, for errors.
    """
    names = tuple(table_reader().columns(y, where=where)) if is_table(y) else ()
    return names if len(names) > 1 else ()


def in_order(y: Any, names: tuple[str, ...], *, where: str) -> Any:
    """Bring the columns of a table of values into the order of names; other values stay unchanged.

    Args:
        y: as in :func:`target_names`.
        names: the names; empty if there are none.
        where: the party and the table, for errors.

    Raises:
        InvalidInput: the table has other columns.
    """
    own = target_names(y, where=where)
    if not own or not names or own == names:
        return y
    if sorted(own) != sorted(names):
        raise InvalidInput(
            f"its targets are {', '.join(own)}, and those of the training rows {', '.join(names)}",
            where=where,
        )
    columns = table_reader().columns(y, where=where)
    return np.stack([columns[name] for name in names], axis=1)


def as_test(test: Any, *, where: str) -> tuple[Any, Any, Any]:
    """Split test data into inputs, labels and weights as own rows; missing weights are ``None``.

    Raises:
        InvalidInput: the data are no pair or triple.
    """
    if not (isinstance(test, tuple | list) and len(test) in (2, 3)):
        mend = "Give (X_test, y_test): rows and labels; or (X_test, y_test, own)."
        raise InvalidInput("test is not a pair", where=where, mend=mend)
    return test[0], test[1], test[2] if len(test) == 3 else None


def check_like_own(test: tuple[Array, Array], X: Array, targets: int, *, where: str) -> None:
    """Raise ``InvalidInput`` if test rows have another shape than private rows.

    Args:
        test: inputs and targets of the test rows.
        X: private inputs, shape ``(n, ...)``.
        targets: number of target values of a private row; 0 for classes and without targets.
        where: the party, for errors.
    """
    if test[0].shape[1:] != X.shape[1:]:
        raise InvalidInput(
            f"a private row has shape {X.shape[1:]}, a test row {test[0].shape[1:]}", where=where
        )
    if targets not in (0, *test[1].shape[1:]):
        raise InvalidInput(
            f"private rows have {targets} targets, test rows {test[1].shape[1]}", where=where
        )


def target_rows(y: Array, agreement: Agreement, *, where: str) -> Array:
    """Code targets as rows of outputs: one-hot in the agreed class order, or the values themselves.

    Args:
        y: names of classes, shape ``(n,)``, or values ``(n, n_outputs)``.
        agreement: agreement of the federation.
        where: the party, for errors.

    Returns:
        Shape ``(n, n_outputs)``.

    Raises:
        InvalidInput: a label is missing from the agreed classes.
    """
    if agreement.kind == "regression":
        return y
    position = {name: code for code, name in enumerate(agreement.classes)}
    unknown = sorted(set(y.tolist()) - set(position))
    if unknown:
        raise InvalidInput(
            f"labels of classes that were not agreed on: {unknown[:5]}",
            where=where,
            mend=f"Agreed on: {', '.join(map(repr, agreement.classes[:20]))}. Give an alias for another "
            "spelling, leave such rows out, or have the class added.",
        ) from ForeignValue(repr(unknown[:5]))  # labels stay at a party that redacts its errors
    return one_hot([position[name] for name in y.tolist()], len(position))


def calibration_rows(
    y: Array, share: float, kind: Kind, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Mark the rows to hold out: the same share of each class, so that no class is lost.

    Args:
        y: names of classes, shape ``(n,)``, or values.
        share: share to hold out, in [0, 1).
        kind: ``"classification"`` or ``"regression"``.
        rng: generator of the random draw.

    Returns:
        Shape ``(n,)``, bool.
    """
    held_out = np.zeros(len(y), dtype=bool)
    labels = y.tolist() if kind == "classification" else [""] * len(y)
    groups: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label, []).append(row)
    for name in class_order(groups):
        rows = groups[name]
        held_out[rng.permutation(rows)[: min(round(share * len(rows)), len(rows) - 1)]] = True
    return held_out
