"""A user's own table: CSV, Parquet or .npz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from consilience.data.columns import is_number_column, open_columns, to_numpy
from consilience.data.dataset import Dataset, as_texts, check_inputs
from consilience.data.npz import array_names, read_arrays
from consilience.data.splits import take_public
from consilience.errors import InvalidInput, nearest
from consilience.numerics.randomness import stream
from consilience.validation.arrays import Array
from consilience.validation.labels import Kind
from consilience.validation.numbers import check_choice


def load_table(
    path: str | Path,
    target: str | None = None,
    *,
    group: str | None = None,
    columns: Sequence[str] | None = None,
    test: str | Path | None = None,
    test_fraction: float = 0.3,
    seed: int = 0,
    kind: Kind | None = None,
) -> Dataset:
    """Load a dataset from the user's own file.

    Args:
        path: a ``.csv`` (comma-separated, with a header line), ``.parquet`` or ``.npz`` file. An
            ``.npz`` has arrays ``X`` and ``y``, and may have ``X_test`` and ``y_test``.
        target: the column of labels or values; in an ``.npz`` the array, ``"y"`` by default.
        group: the column (array) of natural groups, such as the hospital; not an input.
        columns: the input columns; by default all but target and group.
        test: a file of test rows with the same columns; else rows are set aside.
        test_fraction: the share to set aside, of every class, in every group.
        seed: of the split; the same seed gives the same one.
        kind: by default ``"classification"`` for strings, integers and booleans, and
            ``"regression"`` for floating-point numbers.

    Raises:
        InvalidInput: a file or column that is not there (with the nearest and the known names),
            columns that are not numbers, missing values (by column and count), no rows.
    """
    path = Path(path)
    rows = _read(path, target, group, columns)
    where = str(path)
    kind = kind or ("regression" if rows.target.dtype.kind == "f" else "classification")
    check_choice("kind", kind, get_args(Kind), where=where)
    if test is not None:
        held_out = _read(Path(test), target, group, columns or rows.columns)
    elif path.suffix == ".npz" and "X_test" in array_names(path):
        held_out = _read_npz(path, target or "y", group, "_test")
    else:
        held_out = None
    y, y_test, classes = _encode(rows, held_out, kind, where)
    if held_out is None:
        rng = stream(seed, path.name, 0, "test split")
        train, aside = take_public(y, float(test_fraction), rng, group=rows.group)
        held_out, y_test = rows.take(aside), y[aside]
        rows, y = rows.take(train), y[train]
    return Dataset(
        name=path.stem,
        X=rows.X,
        y=y,
        X_test=held_out.X,
        y_test=y_test,
        classes=classes,
        columns=rows.columns,
        group=rows.group,
        group_test=held_out.group,
    )


def read_rows(
    path: str | Path, columns: Sequence[str] | None = None
) -> tuple[Array, tuple[str, ...] | None]:
    """Read inputs without labels, to predict on.

    Args:
        path: as in :func:`load_table`.
        columns: names of columns, in this order; ``None`` for all. An ``.npz`` has no column names.

    Returns:
        inputs, float32, shape ``(n, columns)``, or texts; and the names of the columns.

    Raises:
        InvalidInput: as in :func:`load_table`.
    """
    path = Path(path)
    rows = _read_npz(path, None, None) if path.suffix == ".npz" else _read_frame(
        path, None, None, columns
    )  # fmt: skip
    return (rows.X if rows.X.dtype == object else rows.X.astype(np.float32)), rows.columns


@dataclass(frozen=True)
class _Rows:
    X: Array
    columns: tuple[str, ...] | None
    target: Array
    group: Array | None

    def take(self, rows: Array) -> _Rows:
        group = None if self.group is None else self.group[rows]
        return _Rows(self.X[rows], self.columns, self.target[rows], group)


def _read(
    path: Path, target: str | None, group: str | None, columns: Sequence[str] | None
) -> _Rows:
    if path.suffix == ".npz":
        if columns is not None:
            raise InvalidInput("arrays have no named columns to choose from", where=str(path))
        return _read_npz(path, target or "y", group)
    if target is None:
        raise InvalidInput(
            "which column is the target?",
            where=str(path),
            mend=f"Set target to one of: {', '.join(open_columns(path)[0].names)}.",
        )
    return _read_frame(path, target, group, columns)


def _read_frame(
    path: Path, target: str | None, group: str | None, columns: Sequence[str] | None
) -> _Rows:
    """Read columns of a CSV or Parquet file, inputs as numbers without gaps."""
    where = str(path)
    schema, read = open_columns(path)
    names = schema.names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidInput(f"columns that appear twice: {', '.join(twice)}", where=where)
    for role, name in [
        ("target", target),
        ("group", group),
        *(("input", c) for c in columns or ()),
    ]:
        if name is not None and name not in names:
            raise InvalidInput(
                f"there is no {role} column {name!r}",
                where=where,
                mend=f"{nearest(name, names)} The columns are: {', '.join(names)}.",
            )
    inputs = tuple(columns) if columns else tuple(n for n in names if n not in (target, group))
    if not inputs or target in inputs or group in inputs:
        raise InvalidInput(
            "inputs must be one or more columns that are neither target nor group", where=where
        )
    if strange := [name for name in inputs if not is_number_column(schema.field(name).type)]:
        raise InvalidInput(
            f"columns that are not numbers: {', '.join(strange)}",
            where=where,
            mend="Encode them as numbers, or drop them by listing the others under columns.",
        )
    frame = read([*inputs, *(name for name in (target, group) if name is not None)])
    if frame.num_rows == 0:
        raise InvalidInput("there are no rows", where=where)
    X = np.column_stack([to_numpy(frame.column(name)).astype(np.float64) for name in inputs])
    check_inputs(X, inputs, where)
    labels = [
        np.zeros(frame.num_rows, dtype=np.int64)
        if name is None
        else _complete_column(frame, name, where)
        for name in (target, group)
    ]
    return _Rows(X, inputs, labels[0], _texts(labels[1]) if group else None)


def _complete_column(frame: Any, name: str, where: str) -> Array:
    """A target or group column, checked to have a value in every row."""
    column = frame.column(name)
    values = to_numpy(column)
    gaps = column.null_count
    if values.dtype == object:
        gaps += int(np.sum(values == ""))
    if gaps:
        raise InvalidInput(
            f"{gaps:,} of {len(values):,} rows have no value in {name!r}",
            where=where,
            mend="Drop these rows, or move them to a file of public data.",
        )
    return values


def _read_npz(path: Path, target: str | None, group: str | None, side: str = "") -> _Rows:
    """The arrays of an .npz file; ``side`` is ``""`` or ``"_test"``."""
    there, where = array_names(path), str(path)
    wanted = [name + side for name in ("X", target, group) if name is not None]
    for name in wanted:
        if name not in there:
            raise InvalidInput(
                f"there is no array {name!r}", where=where, mend=nearest(name, there)
            )
    arrays = read_arrays(path, wanted)
    X = arrays["X" + side]
    if X.ndim == 0 or len(X) == 0:
        raise InvalidInput("there are no rows", where=where)
    X = X.astype(object) if X.dtype.kind in "UT" else X
    check_inputs(X if X.dtype.kind not in "iub" else X.astype(np.float32), None, where)
    labels = arrays[target + side] if target else np.zeros(len(X), dtype=np.int64)
    if labels.ndim != 1 or len(labels) != len(X):
        raise InvalidInput(
            f"X has {len(X)} rows, {target}{side} has shape {labels.shape}", where=where
        )
    return _Rows(X, None, labels, _texts(arrays[group + side]) if group else None)


def _encode(
    rows: _Rows, held_out: _Rows | None, kind: str, where: str
) -> tuple[Array, Array, tuple[str, ...] | None]:
    """Targets as values, or as codes into the classes of all rows, sorted."""
    tail = held_out.target if held_out is not None else rows.target[:0]
    if kind == "regression":
        if rows.target.dtype.kind not in "iuf" or tail.dtype.kind not in "iuf":
            raise InvalidInput("targets of a regression must be numbers", where=where)
        return rows.target.astype(np.float64), tail.astype(np.float64), None
    both = [
        _texts(values) if values.dtype.kind in "OSU" else values for values in (rows.target, tail)
    ]
    if len(tail) and (both[0].dtype.kind in "iufb") != (both[1].dtype.kind in "iufb"):
        raise InvalidInput(
            "labels are of mixed type: text in one file, numbers in the other", where=where
        )
    everything = np.concatenate(both)
    if everything.dtype == object:  # one text a class, not one as wide as the longest for each row
        known = sorted(set(everything.tolist()))
        place = {name: code for code, name in enumerate(known)}
        codes = np.array([place[name] for name in everything.tolist()], dtype=np.int64)
        names = known
    else:
        distinct, codes = np.unique(everything, return_inverse=True)
        names = list(map(_class_name, distinct))
    return codes[: len(rows.target)], codes[len(rows.target) :], tuple(names)


def _texts(values: Array) -> Array:
    return as_texts(
        [
            one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one)
            for one in values
        ]
    )


def _class_name(label: Any) -> str:
    if isinstance(label, np.bool_):
        return "true" if label else "false"
    return f"{label:g}" if isinstance(label, np.floating) else str(label)
