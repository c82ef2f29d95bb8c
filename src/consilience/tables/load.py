"""A user's own table: CSV, Parquet or .npz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import Schema
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.numbers import check_choice, check_flag
from consilience.core.validation.printing import prints_no_rows
from consilience.core.validation.tables import Lenient, Rows
from consilience.tables.dataset import Dataset, as_texts, check_inputs
from consilience.tables.files.columns import read_table
from consilience.tables.files.npz import array_names, read_arrays
from consilience.tables.persons import check_persons
from consilience.tables.remarks import group_remarks, one_spelling, says_target
from consilience.tables.rows import rows_and_schema, rows_of
from consilience.tables.splits import of_groups, take_public
from consilience.tables.table import Table, text_rows
from consilience.tables.targets import (
    LabelColumns,
    Target,
    encoded,
    joined_target,
    lacks,
    roles_of,
    strata_of,
    target_column,
    target_columns,
    values_or_classes,
)
from consilience.tables.texts import number_text


def load_table(
    path: str | Path,
    target: str | None = None,
    *,
    time: str | None = None,
    event: str | None = None,
    labels: Sequence[str] | None = None,
    group: str | None = None,
    groups: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    test: str | Path | None = None,
    test_fraction: float = 0.3,
    seed: int = 0,
    kind: Kind | None = None,
    rows_are_independent: bool = False,
) -> Dataset:
    """Load a dataset from the user's own file.

    Args:
        path: a ``.csv`` file with a header line, of any separator and encoding, ``.parquet``, ``.xlsx`` or
            ``.npz``. An ``.npz`` has arrays ``X`` and ``y``, and may have ``X_test`` and ``y_test``.
        target: the column of labels or values; in an ``.npz`` the array, ``"y"`` by default.
        time: for survival, in place of a target, the column of times until the event, or until the row was
            last seen.
        event: the column of events: 1 or 0, yes or no, true or false.
        labels: in place of a target, columns of several labels; a gap means that the label is unknown.
        group: the column (array) of natural groups, such as the hospital; not an input.
        groups: names of the groups that take part, as if the files held no others; by default all.
        columns: the input columns; by default all but target and group. They may hold numbers, categories,
            truth values and dates, with gaps; or there is one, of texts.
        drop: columns to exclude from the inputs, such as the number of a person.
        test: a file of test rows with the same columns; by default rows are set aside.
        test_fraction: the share to set aside, of every class, in every group.
        seed: seed of the split; the same seed gives the same one.
        kind: by default ``"classification"`` for strings, integers and booleans, and
            ``"regression"`` for floating-point numbers.
        rows_are_independent: whether to accept a table with a column that seems to name persons on several
            rows (:mod:`~consilience.tables.persons`).

    Returns:
        The dataset.

    Raises:
        InvalidInput: a file or column does not exist (with the nearest and the known names), columns cannot
            be used, rows lack a label, there are no rows, or persons have several rows.
    """
    path = Path(path)
    named = target_columns(target, time, event, labels, where=str(path))
    if group is not None and group == named:
        raise InvalidInput(
            f"{group!r} is the target, and the group too",
            where=str(path),
            mend="Name another column for one of them.",
        )
    check_flag("rows_are_independent", rows_are_independent, where=str(path))
    wanted = _Wanted(
        named, group, groups, columns, drop, kind=kind, independent=rows_are_independent
    )
    rows, held_out, classes = _labelled(path, wanted, test, float(test_fraction), seed)
    assert held_out is not None
    notes = rows.notes + tuple(f"in the test rows, {note}" for note in held_out.notes)
    if rows.schema is not None and rows.group is not None:
        notes += tuple(group_remarks(rows.X, rows.schema, rows.group))
    return Dataset(
        name=path.stem,
        X=rows.X,
        y=rows.target,
        X_test=held_out.X,
        y_test=held_out.target,
        classes=classes,
        columns=None if rows.schema is None else rows.schema.names,
        group=rows.group,
        group_test=held_out.group,
        schema=rows.schema,
        remarks=notes,
        labels=tuple(labels or ()),
    )


def load_own(
    path: Path,
    target: str | None,
    *,
    time: str | None = None,
    event: str | None = None,
    labels: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    test: Path | float | None = 0.3,
    kind: Kind | None = None,
    rows_are_independent: bool = False,
) -> tuple[tuple[Any, Array], tuple[Any, Array] | None, bool]:
    """Load a party's own rows without conversion, because the public rows determine how to read them.

    Args:
        path: as in :func:`load_table`, and all that follow.
        target: the column of labels or values.
        time: the column of times.
        event: the column of events.
        labels: columns of several labels; a label without a column is unknown.
        columns: the input columns.
        test: a file of test rows, or the share to set aside; ``None`` for none.
        kind: ``"classification"`` or ``"regression"``.
        rows_are_independent: as in :func:`load_table`.

    Returns:
        inputs (a :class:`~consilience.tables.table.Table` or an array) and targets, names of classes or
        values; the same of the test rows, or ``None``; and whether the targets are classes.

    Raises:
        InvalidInput: as :func:`load_table`.
    """
    aside = test if isinstance(test, float) else None
    file = test if isinstance(test, Path) else None
    named = target_columns(target, time, event, labels, where=str(path))
    wanted = _Wanted(
        named, columns=columns, as_numbers=False, kind=kind, independent=rows_are_independent
    )
    rows, held_out, classes = _labelled(path, wanted, file, aside, 0)
    tests = None if held_out is None else (held_out.X, held_out.target)
    if classes is None:
        return (rows.X, rows.target), tests, False
    if len(classes) < 2 and test is not None:
        raise InvalidInput(
            f"there is only one class ({', '.join(classes)})",
            where=str(path),
            mend="Two or more are needed; is this the right target column?",
        )
    names = np.array(classes, dtype=object)
    tests = None if held_out is None else (held_out.X, names[held_out.target])
    return (rows.X, names[rows.target]), tests, True


def load_unlabelled(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Load a party's own rows without labels, of all columns or some: a table as it came, or an array.

    Raises:
        InvalidInput: as :func:`load_table`.
    """
    if path.suffix == ".npz":
        return read_rows(path, columns).X
    return _chosen(read_table(path), _Wanted(columns=columns), str(path))


@dataclass(frozen=True)
class _Wanted:
    """Selection of a file's columns and groups, and whether inputs become numbers."""

    target: Target = None
    group: str | None = None
    groups: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    as_numbers: bool = True
    kind: Kind | None = None
    independent: bool = True
    """Whether its rows are taken to be, whatever they hold."""

    @property
    def named(self) -> tuple[str, ...]:
        """The target's columns."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()


def _labelled(
    path: Path,
    wanted: _Wanted,
    test: str | Path | None,
    test_fraction: float | None,
    seed: int,
) -> tuple[_Rows, _Rows | None, tuple[str, ...] | None]:
    """Training rows and test rows, if any, their targets as codes or values, and the classes."""
    if path.suffix == ".npz":
        wanted = replace(wanted, target=wanted.target or "y")
    rows = _read(path, wanted)
    where = str(path)
    kind = wanted.kind or ("regression" if rows.target.dtype.kind == "f" else "classification")
    check_choice("kind", kind, get_args(Kind), where=where)
    held_out = None
    if test is not None:
        held_out = _read(Path(test), wanted, like=rows.schema, tests=True)
    elif path.suffix == ".npz" and "X_test" in array_names(path):
        held_out = _read_npz(path, wanted, "_test")
    if wanted.as_numbers:
        rows, held_out = _spelt_alike(rows, held_out)
    tail = rows.target[:0] if held_out is None else held_out.target
    y, y_test, classes = encoded(rows.target, tail, kind, where)
    rows = replace(rows, target=y)
    if held_out is not None:
        return rows, replace(held_out, target=y_test), classes
    if test_fraction is None:
        return rows, None, classes
    rng = stream(seed, path.name, 0, "test split")
    train, aside = take_public(strata_of(y, wanted.target), test_fraction, rng, group=rows.group)
    return rows.take(train), replace(rows.take(aside), notes=()), classes


def _spelt_alike(rows: _Rows, held_out: _Rows | None) -> tuple[_Rows, _Rows | None]:
    """Unify classes, and groups, that differ only in capital letters and blanks, and add a note."""
    parts = [rows] if held_out is None else [rows, held_out]
    for role in ("target", "group"):
        given = [getattr(part, role) for part in parts]
        if any(one is None or one.dtype.kind not in "OSU" for one in given):
            continue
        texts = [as_texts(one) for one in given]
        spelling, notes = one_spelling(np.concatenate(texts).tolist())
        if notes:
            for i, one in enumerate(texts):
                merged = as_texts([spelling[text] for text in one])
                parts[i] = _Rows(**{**vars(parts[i]), role: merged})
            parts[0] = replace(parts[0], notes=parts[0].notes + notes)
    return parts[0], parts[1] if held_out is not None else None


def read_rows(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    drop: Sequence[str] = (),
    like: Schema | None = None,
    unknown: Lenient = "refused",
    rename: Mapping[str, str] | None = None,
    units: Mapping[str, float | str] | None = None,
    prepared: Callable[[Table], Table] = lambda table: table,
    precision: type[np.float32] | type[np.float64] | None = None,
) -> Rows:
    """Read inputs without labels, such as public rows.

    Args:
        path: as in :func:`load_table`.
        columns: names of columns, in this order; ``None`` for all. An ``.npz`` has no column names.
        drop: names of columns to exclude from these.
        like: the schema to read the rows by, which excludes other columns; by default the rows suggest one.
        unknown: treatment of categories missing from ``like``: refused, or read as missing.
        rename: name in the file to the name in ``like``; names missing from the file are ignored.
        units: as in :func:`~consilience.tables.rows.rows_of`.
        prepared: function from the table in the file to the table to read.
        precision: type of the numbers; by default the one that the columns of the schema need.

    Returns:
        inputs, shape ``(n, columns)``, or texts; and their schema, if columns have names.

    Raises:
        InvalidInput: as in :func:`load_table`.
    """
    path = Path(path)
    if path.suffix == ".npz":
        X = _read_npz(path, _Wanted()).X
        return Rows(X if X.dtype == object else X.astype(np.float32), like)
    table = prepared(_chosen(read_table(path), _Wanted(columns=columns, drop=drop), str(path)))
    renamed = {own: name for own, name in (rename or {}).items() if own in table.columns}
    X, schema, notes = _inputs(table, str(path), like, unknown=unknown, rename=renamed, units=units)
    if X.dtype != object:
        assert schema is not None
        X = X.astype(precision or schema.precision)
    return Rows(X, schema, notes=notes)


@prints_no_rows
@dataclass(frozen=True)
class _Rows:
    X: Any
    target: Array
    group: Array | None
    schema: Schema | None = None
    notes: tuple[str, ...] = ()

    def take(self, rows: Array) -> _Rows:
        group = None if self.group is None else self.group[rows]
        X = self.X.take(rows) if isinstance(self.X, Table) else self.X[rows]
        return _Rows(X, self.target[rows], group, self.schema, self.notes)


def _read(path: Path, wanted: _Wanted, like: Schema | None = None, *, tests: bool = False) -> _Rows:
    """Read the inputs, as numbers or as an unconverted table, the targets and the groups of a file.

    Inputs are read by the schema ``like``, if it is given; test rows may lack a group.
    """
    where = str(path)
    if path.suffix == ".npz":
        if wanted.columns is not None or wanted.drop:
            raise InvalidInput("arrays have no named columns to choose from", where=where)
        return _read_npz(path, wanted)
    table = read_table(path)
    if wanted.target is None:
        raise InvalidInput(
            "which column is the target?",
            where=where,
            mend=f"Set target to one of: {', '.join(table.columns)}.",
        )
    inputs = _chosen(table, wanted, where)
    group = None
    if wanted.group is not None:
        values = target_column(table, wanted.group, where)
        group = as_texts(values if values.dtype.kind != "f" else map(number_text, values.tolist()))
        if wanted.groups is not None:
            part = of_groups(group, wanted.groups, where, tests=tests)
            table, group = read_table(path, part), group[part]
            inputs = _chosen(table, wanted, where)
    several = isinstance(wanted.target, LabelColumns)
    parts = [target_column(table, name, where, labels=several) for name in wanted.named]
    if not several:  # a target, or a time and an event
        parts[0] = values_or_classes(parts[0], wanted.target, wanted.kind, table.mark, where)
    labels = joined_target(parts, wanted.target, where)
    if not (wanted.independent or tests):
        check_persons(table, parts, but=(*wanted.named, wanted.group), where=where)
    if not wanted.as_numbers:
        return _Rows(inputs, labels, group)
    X, schema, notes = _inputs(inputs, where, like, unknown="missing")
    said = [] if like is not None else [one for part in parts for one in says_target(inputs, part)]
    return _Rows(X, labels, group, schema, (*notes, *dict.fromkeys(said)))


def _chosen(table: Table, wanted: _Wanted, where: str) -> Table:
    """The inputs among the columns of a table."""
    names, others = list(table.columns), (*wanted.named, wanted.group)
    for role, name in [
        *zip(roles_of(wanted.target), wanted.named, strict=False),
        ("group", wanted.group),
        *(("input", c) for c in (*(wanted.columns or ()), *wanted.drop)),
    ]:
        if role == "label" and not wanted.as_numbers and lacks(table, str(name), wanted.named):
            continue
        if name is not None and name not in names:
            raise InvalidInput(
                f"there is no {role} column {name!r}",
                where=where,
                mend=f"{nearest(name, names)} The columns are: {', '.join(names)}.",
            )
    inputs = list(wanted.columns) if wanted.columns else [n for n in names if n not in others]
    inputs = [name for name in inputs if name not in wanted.drop]
    if not inputs or set(inputs).intersection(others):
        raise InvalidInput(
            "inputs must be one or more columns that are neither target nor group", where=where
        )
    if not len(table):
        raise InvalidInput("there are no rows", where=where)
    return table.only(inputs)


def _inputs(
    table: Table, where: str, like: Schema | None, **options: Any
) -> tuple[Array, Schema | None, tuple[str, ...]]:
    """Rows of a table with their schema and remarks; a single column of texts is the text of each row."""
    if like is None and (texts := text_rows(table)) is not None:
        return texts, None, ()
    rows = (
        rows_and_schema(table, where=where)
        if like is None
        else rows_of(table, like, where=where, options=False, **options)
    )
    return rows.X.astype(np.float64, copy=False), rows.schema, rows.notes


def _read_npz(path: Path, wants: _Wanted, side: str = "") -> _Rows:
    """The arrays of an .npz file; ``side`` is ``""`` or ``"_test"``."""
    there, where = array_names(path), str(path)
    target, group = wants.target, wants.group
    named = target if isinstance(target, tuple) else (target,)
    wanted = [name + side for name in ("X", *named, group) if name is not None]
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
    if isinstance(target, tuple):
        labels = joined_target([arrays[name + side] for name in target], target, where)
    else:
        labels = arrays[target + side] if target else np.zeros(len(X), dtype=np.int64)
    if labels.ndim != len(named) or len(labels) != len(X):
        raise InvalidInput(
            f"X has {len(X)} rows, {target}{side} has shape {labels.shape}", where=where
        )
    rows = _Rows(X, labels, as_texts(arrays[group + side]) if group else None)
    if rows.group is None or wants.groups is None:
        return rows
    return rows.take(of_groups(rows.group, wants.groups, where, tests=side != ""))
