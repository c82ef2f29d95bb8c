"""A user's own table: CSV, Parquet or .npz."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.data.dataset import Dataset, as_texts, check_inputs
from consilience.data.splits import take_public
from consilience.errors import InvalidInput, nearest
from consilience.numerics.randomness import stream
from consilience.validation.arrays import Array
from consilience.validation.memory import check_memory

Kind = Literal["classification", "regression"]
SUFFIXES = (".csv", ".parquet", ".npz")

Read = Callable[[Sequence[str]], Any]
"""Columns by name to a pyarrow table of them."""


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
    """A dataset from the user's own file.

    Args:
        path: a ``.csv`` (comma-separated, with a header line), ``.parquet`` or ``.npz`` file. An
            ``.npz`` has arrays ``X`` and ``y``, and may have ``X_test`` and ``y_test``.
        target: the column of labels or values; in an ``.npz`` the array, ``"y"`` by default.
        group: the column (array) of natural groups, such as the hospital; not an input.
        columns: the input columns; by default all but target and group.
        test: a file of test rows with the same columns; else rows are set aside.
        test_fraction: which share to set aside, of every class, in every group.
        seed: which split; the same seed gives the same one.
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
    if kind not in ("classification", "regression"):
        raise InvalidInput(
            f"unknown kind {kind!r}",
            where=where,
            mend=nearest(kind, ["classification", "regression"]),
        )
    if test is not None:
        held_out = _read(Path(test), target, group, columns or rows.columns)
    elif path.suffix == ".npz" and "X_test" in _names_in(path):
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
    """Inputs without labels, to predict on.

    Args:
        path: as in :func:`load_table`.
        columns: which columns, in this order; ``None`` for all. An ``.npz`` has no column names.

    Returns:
        (inputs, float32, shape ``(n, columns)``; the names of the columns)
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
            mend=f"Set target to one of: {', '.join(_opened(path)[0].names)}.",
        )
    return _read_frame(path, target, group, columns)


def _read_frame(
    path: Path, target: str | None, group: str | None, columns: Sequence[str] | None
) -> _Rows:
    """The asked columns of a CSV or Parquet file, inputs as numbers without gaps."""
    where = str(path)
    schema, read = _opened(path)
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
    if strange := [name for name in inputs if not _is_number(schema.field(name).type)]:
        raise InvalidInput(
            f"columns that are not numbers: {', '.join(strange)}",
            where=where,
            mend="Encode them as numbers, or drop them by listing the others under columns.",
        )
    frame = read([*inputs, *(name for name in (target, group) if name is not None)])
    if frame.num_rows == 0:
        raise InvalidInput("there are no rows", where=where)
    X = np.column_stack([_to_numpy(frame.column(name)).astype(np.float64) for name in inputs])
    check_inputs(X, inputs, where)
    labels = [
        np.zeros(frame.num_rows, dtype=np.int64) if name is None else _whole(frame, name, where)
        for name in (target, group)
    ]
    return _Rows(X, inputs, labels[0], _texts(labels[1]) if group else None)


def _opened(path: Path) -> tuple[Any, Read]:
    """The pyarrow schema of a CSV or Parquet file, and how to read some of its columns."""
    import pyarrow as arrow
    from pyarrow import csv, parquet

    if path.suffix not in SUFFIXES:
        raise InvalidInput(
            f"cannot read {path.suffix or 'a file without ending'}",
            where=str(path),
            mend=f"Known: {', '.join(SUFFIXES)}.",
        )
    _must_exist(path)
    try:
        if path.suffix == ".csv":
            table = csv.read_csv(path)
            return table.schema, table.select
        schema = parquet.read_schema(path)
        return schema, partial(_from_parquet, path, schema)
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _from_parquet(path: Path, schema: Any, names: Sequence[str]) -> Any:
    """Some columns of a Parquet file, once what it says that it holds was held against the memory.

    Values that repeat take a few bytes for any number of rows.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    # One text for all rows that have it.
    shared = [name for name in names if _is_text(schema.field(name).type)]
    try:
        with parquet.ParquetFile(path, read_dictionary=shared) as file:
            about = file.metadata
            unpacked = 24 * len(names) * about.num_rows + sum(
                column.total_uncompressed_size
                for group in map(about.row_group, range(about.num_row_groups))
                for column in map(group.column, range(about.num_columns))
                if {column.path_in_schema, column.path_in_schema.partition(".")[0]} & {*names}
            )
            _check_size(unpacked, about.num_rows, path)
            return file.read(columns=list(names))
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _check_size(needed: int, rows: int, path: Path) -> None:
    """Raise ``InvalidInput`` if a file unpacks to more than there is memory for."""
    mend = "Give fewer rows or columns; a file may be much larger unpacked than it is on the disk."
    check_memory(needed, f"its {rows:,} rows", where=str(path), mend=mend)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _to_numpy(column: Any) -> Array:
    """A pyarrow column as numbers (gaps as NaN), booleans or ``str`` (gaps as None)."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) and not _is_number(kind):
        # Not one copy of the text for each row that has it.
        whole = column.combine_chunks()
        known = np.append(whole.dictionary.to_numpy(zero_copy_only=False), [None])
        texts: Array = known[whole.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return texts
    if types.is_dictionary(kind):  # pandas' categories
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast("float64")
    elif column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        column = column.cast("int64").cast("float64", safe=False)
    array: Array = column.to_numpy()
    return array


def _whole(frame: Any, name: str, where: str) -> Array:
    """A target or group column, every row of which must have a value."""
    column = frame.column(name)
    values = _to_numpy(column)
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
    there, where = _names_in(path), str(path)
    wanted = [name + side for name in ("X", target, group) if name is not None]
    for name in wanted:
        if name not in there:
            raise InvalidInput(
                f"there is no array {name!r}", where=where, mend=nearest(name, there)
            )
    arrays = _arrays(path, wanted)
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


def _names_in(path: Path) -> list[str]:
    """The arrays in an .npz file."""
    with _archive(path) as packed:
        return [name.removesuffix(".npy") for name in packed.namelist()]


def _arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Some arrays of an .npz file, once the sizes that it declares were held against its bytes and memory."""
    arrays: dict[str, Array] = {}
    with _archive(path) as packed:
        for name in names:
            size = packed.getinfo(f"{name}.npy").file_size
            with packed.open(f"{name}.npy") as file:
                shape, kind = _header(file)
            count = math.prod(shape)
            if count * max(kind.itemsize, 1) > size:
                raise ValueError(f"{name} is {shape} of {kind}, it says, and has {size:,} bytes")
            each = kind.itemsize + (8 if kind.kind in "biuf" else 80)  # as a number, or as a text
            rows = shape[0] if shape else 0
            _check_size(count * each + 8 * rows, rows, path)
            with packed.open(f"{name}.npy") as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array, by the beginning of its file."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"arrays of format {version} are not read here")
    shape, _, kind = read[version](file)
    return shape, kind


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An .npz file; what is wrong with it is said."""
    _must_exist(path)
    try:
        with zipfile.ZipFile(path) as packed:
            yield packed
    except InvalidInput:
        raise
    except (
        ValueError, TypeError, OSError, EOFError, KeyError, RuntimeError, NotImplementedError,
        zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise InvalidInput(
            f"cannot be read as an .npz file: {error}",
            where=str(path),
            mend="Save plain arrays of numbers or strings (no objects) with numpy.savez.",
        ) from error


def _must_exist(path: Path) -> None:
    if path.is_dir():
        raise InvalidInput("this is a folder, and a file is wanted", where=str(path))
    if not path.is_file():
        raise InvalidInput(f"there is no such file (in {path.parent.resolve()})", where=str(path))


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
        names = list(map(_name, distinct))
    return codes[: len(rows.target)], codes[len(rows.target) :], tuple(names)


def _texts(values: Array) -> Array:
    return as_texts(
        [
            one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one)
            for one in values
        ]
    )


def _name(label: Any) -> str:
    if isinstance(label, np.bool_):
        return "true" if label else "false"
    return f"{label:g}" if isinstance(label, np.floating) else str(label)
