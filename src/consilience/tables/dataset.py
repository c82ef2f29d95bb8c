"""One table of rows with labels, split into training and test rows, and checked on arrival."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array, precision_for, unmasked
from consilience.core.validation.memory import check_memory
from consilience.core.validation.printing import prints_no_rows
from consilience.tables.outcomes.several_labels import rarest


@prints_no_rows
@dataclass(frozen=True)
class Dataset:
    """Rows with their labels, and the names of classes and columns.

    Attributes:
        name: name in reports.
        X: training inputs: numbers, shape ``(n, ...)`` with two or more axes (tables ``(n, columns)``, grey
            images ``(n, 28, 28)``, colour images ``(n, 3, 32, 32)``, pixels in [0, 1]), or texts: an object
            array of ``str``, shape ``(n,)``. Numbers are float32, or float64 if float32 would make different
            numbers of a column equal.
        y: training labels, shape ``(n,)``: int64 codes into ``classes``, or float64 values; survival times
            and events have shape ``(n, 2)``.
        X_test: test inputs, shaped like ``X``.
        y_test: test labels.
        classes: the names of the classes in code order; ``None`` for regression.
        columns: the names of the columns of a 2-D ``X``; ``None`` if they have no names.
        group: a natural group of each training row (the hospital), shape ``(n,)``, ``str``.
        group_test: the same for test rows.
        notes: important remarks for readers, such as "30,000 of 50,000 training rows found".
        schema: the columns of a table; it marks the columns of ``X`` that may have gaps (NaN).
        remarks: warnings of columns that may reveal persons or the target.
        labels: names of several labels; ``y`` then has shape ``(n, L)``: 1, 0, and NaN if unknown.

    Raises:
        InvalidInput: no rows, NaN or infinite values, labels that do not match the rows or the
            classes, fewer than two classes.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    classes: tuple[str, ...] | None
    columns: tuple[str, ...] | None = None
    group: Array | None = None
    group_test: Array | None = None
    notes: str = ""
    schema: Schema | None = None
    remarks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Frozen for users; only here are the arrays brought to the promised types.
        precision = _precision(self.X, self.schema)
        for field in ("X", "X_test"):
            object.__setattr__(self, field, _inputs(getattr(self, field), precision))
        for field in ("y", "y_test"):
            given = np.asarray(unmasked(getattr(self, field)))
            shaped = given.shape[1:] == (len(self.labels) or 2,) and self.classes is None
            object.__setattr__(self, field, _labels(given, self.classes, self.name, shaped))
        for field in ("group", "group_test"):
            if getattr(self, field) is not None:
                texts = as_texts(getattr(self, field))
                object.__setattr__(self, field, fixed_width(texts, f"{self.name}, {field}"))
        self.validate()
        if self.schema is None and self.columns is not None:
            object.__setattr__(self, "schema", Schema.of_numbers(self.X, self.columns))

    def validate(self) -> None:
        """Raise ``InvalidInput`` at the first thing that no learner could use."""
        if self.classes is not None:
            if len(set(self.classes)) != len(self.classes):
                raise InvalidInput("two classes have the same name", where=self.name)
            if len(self.classes) < 2:
                raise InvalidInput(
                    f"there is only one class ({', '.join(self.classes) or 'none'})",
                    where=self.name,
                    mend="Two or more are needed; is this the right target column?",
                )
        sides = (
            ("training", self.X, self.y, self.group),
            ("test", self.X_test, self.y_test, self.group_test),
        )
        for side, X, y, group in sides:
            where = f"{self.name}, {side} rows"
            if len(X) == 0:
                raise InvalidInput("there are no rows", where=where)
            if len(y) != len(X):
                raise InvalidInput(f"{len(X)} rows and {len(y)} labels", where=where)
            if group is not None and group.shape != (len(X),):
                raise InvalidInput(f"{len(X)} rows and {len(group)} groups", where=where)
            gaps = self.schema is not None and not self.schema.plain
            check_inputs(np.where(np.isnan(X), 0, X) if gaps else X, self.columns, where)
            _check_labels(np.nan_to_num(y) if self.labels else y, self.classes, where)
        if self.X.shape[1:] != self.X_test.shape[1:]:
            raise InvalidInput(
                f"training rows have shape {self.X.shape[1:]}, test rows {self.X_test.shape[1:]}",
                where=self.name,
            )
        if (self.group is None) != (self.group_test is None):
            raise InvalidInput("only one of training and test rows has groups", where=self.name)

    @property
    def survival(self) -> bool:
        """Tell whether its labels are times and events."""
        return self.y.ndim == 2 and not self.labels

    def strata(self, y: Array) -> Array:
        """Give what rows are divided by, shape ``(n,)``: labels; of survival whether there was an event.

        Of several labels it is the rarest that a row has.
        """
        if self.labels:
            return rarest(y) + 1
        return y[:, 1].astype(np.int64) if y.ndim == 2 else y

    @property
    def strata_names(self) -> tuple[str, ...] | None:
        """Names of what whole numbers of :meth:`strata` are codes of; ``None`` for values."""
        if self.labels:
            return ("none", *self.labels)
        return ("censored", "event") if self.survival else self.classes

    @property
    def is_text(self) -> bool:
        """True if the inputs are texts, not numbers."""
        return self.X.ndim == 1

    def flat(self) -> Dataset:
        """Flatten every image to one row of numbers; tables and texts stay as they are."""
        if self.X.ndim < 3:
            return self
        flat = [rows.reshape(len(rows), -1) for rows in (self.X, self.X_test)]
        return replace(self, X=flat[0], X_test=flat[1])

    def take(self, rows: Array) -> Dataset:
        """Select training rows by index, and keep all test rows."""
        group = None if self.group is None else self.group[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], group=group)

    def take_test(self, rows: Array) -> Dataset:
        """Select test rows by index, and keep all training rows."""
        group = None if self.group_test is None else self.group_test[rows]
        return replace(self, X_test=self.X_test[rows], y_test=self.y_test[rows], group_test=group)


def as_texts(values: Iterable[Any]) -> Array:
    """Put values as texts into an object array: a fixed-width one would be as wide as the longest of them."""
    texts = [
        one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one)
        for one in values
    ]
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def fixed_width(texts: Array, where: str) -> Array:
    """Turn texts, shape ``(n,)``, into an array of fixed width.

    Args:
        texts: an object array of ``str``.
        where: the data, for errors.

    Raises:
        InvalidInput: they would not fit into memory.
    """
    longest = max(map(len, texts.tolist()), default=0)
    check_memory(
        4 * longest * len(texts), f"{len(texts):,} texts of {longest:,} characters", where=where
    )
    return texts.astype(str)


def _precision(X: Array, schema: Schema | None) -> type[np.float32] | type[np.float64]:
    """The precision that the columns of a table need; all else has single precision."""
    X = np.asarray(unmasked(X))
    if X.ndim != 2 or X.dtype.kind not in "iuf" or X.dtype.itemsize < 4 or X.dtype == np.float32:
        return np.float32
    if schema is not None:
        return schema.precision
    known = np.ma.masked_invalid(X.astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        return precision_for(known.mean(axis=0).filled(0), known.std(axis=0).filled(0))


def _inputs(X: Array, precision: type[np.float32] | type[np.float64]) -> Array:
    X = np.asarray(unmasked(X))
    if X.dtype.kind in "OUT":
        return X.astype(object)
    # An overflow to infinity is reported by validate(), where the column is known.
    with np.errstate(over="ignore"):
        return X if X.dtype.kind == "c" else X.astype(precision, copy=False)


def _labels(y: Array, classes: tuple[str, ...] | None, name: str, shaped: bool) -> Array:
    if (y.ndim != 1 and not shaped) or y.dtype.kind not in ("iu" if classes is not None else "iuf"):
        wanted = "integer codes into classes" if classes is not None else "numbers"
        raise InvalidInput(
            f"labels must be {wanted}, one a row; got {y.dtype} with shape {y.shape}", where=name
        )
    return y.astype(np.float64 if classes is None else np.int64, copy=False)


def check_inputs(X: Array, columns: tuple[str, ...] | None, where: str) -> None:
    """Raise ``InvalidInput`` unless ``X`` is texts or finite numbers; the error names the bad columns.

    Args:
        X: inputs, shape ``(n, ...)``.
        columns: names of the columns, or ``None``.
        where: the data, for errors.
    """
    if X.dtype == object:
        if X.ndim != 1 or not all(isinstance(text, str) for text in X):
            raise InvalidInput(
                "inputs must be numbers or one text a row",
                where=where,
                mend="Encode or drop what is neither.",
            )
        return
    if X.dtype.kind != "f" or X.ndim < 2:
        raise InvalidInput(
            f"inputs must be real numbers with shape (n, ...); got {X.dtype} {X.shape}",
            where=where,
            mend="A single column has shape (n, 1).",
        )
    if columns is not None and (X.ndim != 2 or len(columns) != X.shape[1]):
        raise InvalidInput(f"{len(columns)} column names for shape {X.shape}", where=where)
    # One pass without a mask as large as the data: a sum is finite only if every term is.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(X).reshape(len(X), -1)
    if columns is None:
        what = f"{bad.sum():,} values in {bad.any(axis=1).sum():,} rows are NaN or infinite"
    else:
        counts = {name: int(n) for name, n in zip(columns, bad.sum(axis=0), strict=True) if n}
        what = "NaN or infinite values: " + ", ".join(f"{n:,} in {c!r}" for c, n in counts.items())
    raise InvalidInput(what, where=where, mend="Fill them in or drop these rows or columns.")


def _check_labels(y: Array, classes: tuple[str, ...] | None, where: str) -> None:
    if classes is None:
        if not np.isfinite(y).all():
            n = int((~np.isfinite(y)).sum())
            raise InvalidInput(f"{n:,} targets are NaN or infinite", where=where)
    elif y.min() < 0 or y.max() >= len(classes):
        raise InvalidInput(
            f"labels run from {y.min()} to {y.max()}, and there are {len(classes)} classes",
            where=where,
            mend="Labels are codes into classes, counted from 0.",
        )
