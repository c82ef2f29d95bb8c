"""Check a table against a schema and list every difference, whereas a run would stop at the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import Column, Schema
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.tables import Lenient
from consilience.tables.columns import suggested_column
from consilience.tables.files.columns import read_table
from consilience.tables.load import load_own
from consilience.tables.persons import check_persons
from consilience.tables.remarks import numbers_persons, says_target
from consilience.tables.rows import own_names, rows_of
from consilience.tables.table import Table, text_rows


@dataclass(frozen=True)
class ColumnCheck:
    """One column, as a run would read it.

    Attributes:
        name: name in the schema; without a schema, in the table.
        own: name in the table; ``None`` if the table lacks the column.
        kind: ``"number"``, ``"category"``, ``"boolean"``, ``"date"``, ``"text"``, ``"classes"`` or
            ``"values"``; empty if it could not be determined.
        missing: share of rows without a value.
        holds: number of rows by the name of the category or class; for other values the least, the median and
            the largest, as texts for dates.
        notes: remarks.
        suited: whether the column can and should be an input; false for a refused or excluded column, or one
            that seems to number persons.
        refused: the reason why a run would refuse it; ``None`` if a run would accept it.
        mend: advice on how to correct that.
    """

    name: str
    own: str | None
    kind: str = ""
    missing: float = 0.0
    holds: Mapping[str, int] | tuple[float | str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    suited: bool = True
    refused: str | None = None
    mend: str | None = None


@dataclass(frozen=True)
class TableCheck:
    """Findings on a table.

    Attributes:
        rows: number of rows.
        columns: the schema's columns, in its order; without a schema, the table's.
        target: the column of labels or values, if one was named.
        left_out: columns of the table excluded from the inputs.
        schema: the agreed columns, or those that the table suggests; ``None`` for texts, and if a column was
            refused.
    """

    rows: int
    columns: tuple[ColumnCheck, ...]
    target: ColumnCheck | None
    left_out: tuple[str, ...]
    schema: Schema | None

    @property
    def refused(self) -> tuple[ColumnCheck, ...]:
        """Columns that a run would refuse."""
        everything = (*self.columns, *filter(None, [self.target]))
        return tuple(one for one in everything if one.refused is not None)


def check_table(
    path: Path,
    *,
    like: Schema | None = None,
    target: str | None = None,
    kind: Kind | None = None,
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    units: Mapping[str, float | str] | None = None,
    missing: Literal["refused", "allowed"] = "refused",
    unknown: Lenient = "refused",
    rows_are_independent: bool = False,
) -> TableCheck:
    """Read a table as a run would, and report all problems.

    Args:
        path: a ``.csv``, ``.parquet`` or ``.xlsx`` file.
        like: the agreed columns; by default those that the table suggests.
        target: its column of labels or values.
        kind: ``"classification"`` or ``"regression"``; by default the values of the target decide.
        drop: columns to exclude.
        rename: name in the table to the name in ``like``.
        units: name in ``like`` to the factor that converts the table's numbers to its unit.
        missing: whether the table may lack columns.
        unknown: treatment of categories missing from ``like``: refused, or read as missing.
        rows_are_independent: whether a column may name persons on several rows.

    Returns:
        The findings on every column.

    Raises:
        InvalidInput: the file cannot be read, a column named here does not exist, or persons have several
            rows.
    """
    where, table = str(path), named_columns(path)
    for name in (*drop, *filter(None, [target])):
        if name not in table.columns:
            raise InvalidInput(
                f"there is no column {name!r}", where=where, mend=nearest(name, table.columns)
            )
    if not len(table):
        raise InvalidInput("there are no rows below the header", where=where)
    if not rows_are_independent:
        targets = [] if target is None else [table.columns[target]]
        check_persons(table, targets, but=(target,), where=where)
    inputs = table.only([name for name in table.columns if name not in (target, *drop)])
    outcome = None if target is None else check_outcome(path, table, target, kind)
    if like is not None:
        own = own_names(inputs, like, rename or {}, where=where)
        taken, units = set(own.values()), units or {}
        others = inputs.only([name for name in inputs.columns if name not in taken])
        options: dict[str, Any] = {
            "where": where,
            "missing": missing if own else "refused",
            "unknown": unknown,
        }
        found = tuple(
            _agreed(
                inputs,
                own.get(column.name),
                others,
                like.only([place]),
                {**options, "units": {k: v for k, v in units.items() if k == column.name}},
            )
            for place, column in enumerate(like.columns)
        )
        return TableCheck(len(table), found, outcome, (*drop, *others.columns), like)
    if text_rows(inputs) is not None:
        (name,) = inputs.columns
        return TableCheck(
            len(table), (ColumnCheck(name, name, "text"),), outcome, tuple(drop), None
        )
    found, schema = suggest_columns(inputs, where=where)
    return TableCheck(len(table), found, outcome, tuple(drop), schema)


def named_columns(path: Path) -> Table:
    """Read a table whose columns have names, which those of an ``.npz`` have not."""
    if path.suffix == ".npz":
        raise InvalidInput("arrays have no columns with names", where=str(path))
    return read_table(path)


def suggest_columns(table: Table, *, where: str) -> tuple[tuple[ColumnCheck, ...], Schema | None]:
    """Read every column of a table as it suggests itself.

    Args:
        table: the inputs.
        where: whose they are.

    Returns:
        a finding a column; and the schema, ``None`` where a column is refused or none is left.
    """
    both = [_suggested(name, table, where) for name in table.columns]
    columns = tuple(column for _, column in both if column is not None)
    found = tuple(one for one, _ in both)
    whole = columns and not any(one.refused for one in found)
    return found, Schema(columns) if whole else None


def check_outcome(path: Path, table: Table, name: str, kind: Kind | None) -> ColumnCheck:
    """Read the column of labels or values of a table, as a party of a run does.

    Args:
        path: path of the file.
        table: its rows.
        name: name of the column.
        kind: ``"classification"``, ``"regression"``, or ``None`` if the values decide.

    Returns:
        The findings on the column.
    """
    try:
        (_, own), tests, classes = load_own(path, name, kind=kind, rows_are_independent=True)
    except InvalidInput as error:
        return ColumnCheck(name, name, refused=error.what, mend=error.mend)
    values = own if tests is None else np.concatenate([own, tests[1]])
    if classes:
        inputs = table.only([one for one in table.columns if one != name])
        notes = says_target(inputs, table.columns[name])
        return ColumnCheck(name, name, "classes", holds=dict(Counter(values.tolist())), notes=notes)
    middle = float(np.median(values))
    return ColumnCheck(
        name, name, "values", holds=(float(values.min()), middle, float(values.max()))
    )


def _suggested(name: str, table: Table, where: str) -> tuple[ColumnCheck, Column | None]:
    """A column as the table itself suggests, and its place in the schema."""
    try:
        column, part, notes = suggested_column(
            name, table.columns[name], where=where, mark=table.mark
        )
    except InvalidInput as error:
        found = ColumnCheck(name, name, suited=False, refused=error.what, mend=error.mend)
        return found, None
    if column is None:
        return ColumnCheck(name, name, "text", notes=tuple(notes), suited=False), None
    suited = not numbers_persons(column, part)
    return replace(_found(column, name, part, notes), suited=suited), column


def _agreed(
    table: Table, own: str | None, others: Table, schema: Schema, options: Mapping[str, Any]
) -> ColumnCheck:
    """A column of the schema, which has this one alone, as the table has it.

    Args:
        table: the inputs.
        own: the column's name in the table; ``None`` where it has none.
        others: columns of the table that stand for none of the schema's.
        schema: of the one column.
        options: of :func:`~consilience.tables.rows.rows_of`.
    """
    (column,) = schema.columns
    if own is None and options["missing"] == "allowed":
        return ColumnCheck(column.name, None, column.kind, 1.0, notes=("the table lacks it",))
    named = others if own is None else Table({column.name: table.columns[own]}, table.mark)
    try:
        rows = rows_of(named, schema, **options)
    except InvalidInput as error:
        return ColumnCheck(column.name, own, column.kind, refused=error.what, mend=error.mend)
    said = [] if own in (None, column.name) else [f"it is called {own!r} in the table"]
    return _found(column, own, rows.X[:, 0], [*said, *rows.notes])


def _found(column: Column, own: str | None, part: Array, notes: Sequence[str]) -> ColumnCheck:
    """Describe a column after it was read: its values, and its share of gaps."""
    gaps = np.isnan(part.astype(np.float64))
    known = part[~gaps]
    holds: Mapping[str, int] | tuple[float | str, ...] = field(default=(), repr=False)
    if column.kind == "category":
        counts = np.bincount(known.astype(np.int64), minlength=len(column.categories))
        holds = {name: int(n) for name, n in zip(column.categories, counts, strict=True) if n}
    elif len(known):
        holds = float(known.min()), float(np.median(known)), float(known.max())
        if column.kind == "date":
            holds = tuple(str(np.datetime64(int(day), "D")) for day in holds)
    share = float(gaps.mean()) if len(part) else 0.0
    return ColumnCheck(column.name, own, column.kind, share, holds, tuple(notes))
