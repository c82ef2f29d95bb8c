"""Rows of numbers of a table: the schema that a table suggests, and a party's own table held against one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import MOST_COLUMNS, Column, Schema
from consilience.core.numerics.units import TEMPERATURES, converted
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory
from consilience.core.validation.tables import Lenient, Rows
from consilience.tables.columns import (
    LongTexts,
    check_finite_column,
    codes_of,
    numbers_of,
    suggested_column,
)
from consilience.tables.remarks import unit_remark
from consilience.tables.table import Table

Texts = Literal["refused", "left out"]


def rows_and_schema(table: Table, *, where: str, texts: Texts = "refused") -> Rows:
    """Make the schema that a table suggests, and its rows.

    Numbers, truth values and dates keep their kind, and a column of texts that can all be read as numbers or
    dates gets that kind. A column with few different texts becomes categories. A column of mostly different
    words is excluded, and so is a column without a value; each with a note.

    Args:
        table: the rows.
        where: owner of the rows, for errors.
        texts: treatment of text columns that cannot be categories: refused, or excluded.

    Returns:
        Rows, shape ``(n, columns)``, their schema, and notes.

    Raises:
        InvalidInput: no rows or columns, infinite numbers, texts that cannot be categories, or dates or
            numbers in several formats.
    """
    n = len(table)
    if not n or not table.columns:
        raise InvalidInput(
            "there are no rows" if table.columns else "there are no columns", where=where
        )
    check_memory(16 * n * len(table.columns), f"its {n:,} rows", where=where)
    columns: list[Column] = []
    parts: list[Array] = []
    notes: list[str] = []
    long: list[str] = []
    for name, given in table.columns.items():
        try:
            column, part, said = suggested_column(name, given, where=where, mark=table.mark)
        except LongTexts:
            long.append(name)
            continue
        except InvalidInput:
            if texts == "left out":
                continue
            raise
        notes += said
        if column is not None:
            columns.append(column)
            parts.append(part)
        if len(columns) > MOST_COLUMNS:  # the schema would be refused, after a long time
            raise InvalidInput(
                f"the table has {len(table.columns):,} columns",
                where=where,
                mend=f"Choose columns: 1 to {MOST_COLUMNS:,} in all.",
            )
    if long and texts == "refused":
        listed = json.dumps(long, ensure_ascii=False)
        raise InvalidInput(
            f"{', '.join(map(repr, long))}: texts of which most differ, neither numbers nor categories",
            where=where,
            mend=f"Leave them out: drop = {listed}; take one alone, as the text of a row: columns; or make "
            "columns of numbers of them: "
            f"consilience.tables.text_columns.text_columns(table, {listed}).",
        )
    if not columns:
        raise InvalidInput("no column is left that says anything", where=where)
    schema = Schema(tuple(columns))
    return Rows(_stacked(parts), schema, notes=tuple(notes))


def _stacked(parts: list[Array]) -> Array:
    """Columns side by side: of one type of numbers in that, else in float64."""
    kinds = {part.dtype for part in parts}
    if len(kinds) == 1 and next(iter(kinds)).kind in "fiu":
        return np.stack(parts, axis=1)
    return np.stack([part.astype(np.float64) for part in parts], axis=1)


def rows_of(
    table: Table,
    schema: Schema,
    *,
    where: str,
    rename: Mapping[str, str] | None = None,
    units: Mapping[str, float | str] | None = None,
    missing: Literal["refused", "allowed"] = "refused",
    unknown: Lenient = "refused",
    discreet: bool = False,
    options: bool = True,
) -> Rows:
    """Read a table as rows of a schema; exclude other columns.

    These differences of spelling are accepted: the order of columns, small and capital letters and blanks of
    names and categories, ``1`` and ``1.0``, ``yes`` and ``true``, numbers and dates as texts.

    Args:
        table: the rows.
        schema: their columns.
        where: owner of the table, for errors.
        rename: name in the table to the name in the schema.
        units: name in the schema to a factor that the table's numbers are multiplied by, or ``"F to C"`` or
            ``"C to F"``; such a column's unit is then not checked.
        missing: whether the table may lack columns.
        unknown: treatment of categories missing from the schema: refused, or read as missing.
        discreet: exclude the table's content from errors, because the sender of the schema reads them.
        options: whether the reader of an error can set the options above.

    Returns:
        Rows, shape ``(n, columns)``.

    Raises:
        InvalidInput: a column does not exist, has another kind of value, unknown categories or numbers of
            another unit.
    """
    own, units = own_names(table, schema, rename or {}, where=where, discreet=discreet), units or {}
    for name, unit in units.items():
        if name not in schema.names:
            raise InvalidInput(
                f"units is about {name!r}, which the public rows do not have",
                where=where,
                mend=nearest(name, schema.names),
            )
        if isinstance(unit, str) and unit not in TEMPERATURES:
            raise InvalidInput(f"units: {unit!r}", where=where, mend=nearest(unit, TEMPERATURES))
    absent = [name for name in schema.names if name not in own]
    if absent and (missing == "refused" or len(absent) == len(schema.names)):
        others = list(table.columns.keys() - set(own.values()))
        mend = "" if discreet or not others else nearest(absent[0], others)
        if options:
            mend += (
                f" Name its own with rename = {{ own = {absent[0]!r} }}; or take part with fewer columns: "
                'missing = "allowed".'
            )
        raise InvalidInput(
            f"there is no input column {', '.join(map(repr, absent[:5]))}, which the public rows have",
            where=where,
            mend=mend.strip() or "Call it so in the file.",
        )
    notes = [f"it lacks {', '.join(map(repr, absent))}, and takes part without"] if absent else []
    parts = []
    for column in schema.columns:
        if column.name in absent:
            parts.append(np.full(len(table), np.nan))
            continue
        given = table.columns[own[column.name]]
        if given.dtype.kind == "f":
            check_finite_column(given, column.name, where=where)
        if column.kind == "category":
            part, note = codes_of(given, column, unknown, discreet=discreet, where=where)
        else:
            part, note = numbers_of(given, column, discreet=discreet, where=where, mark=table.mark)
        if column.name in units:
            part = converted(part, units[column.name])
        elif column.kind == "number":
            said = unit_remark(part, column, where=where, discreet=discreet)
            note = [*note, said] if said else note
        if len(part) and np.isnan(part).all():
            notes.append(f"{column.name!r} is missing in every row")
        notes += note
        parts.append(part)
    return Rows(
        _stacked(parts),
        schema,
        tuple(schema.names.index(name) for name in absent),
        tuple(notes),
    )


def own_names(
    table: Table, schema: Schema, rename: Mapping[str, str], *, where: str, discreet: bool = False
) -> dict[str, str]:
    """Map a schema's columns to a table's own names of them, for the columns that exist in the table.

    Args:
        table: the rows.
        schema: the agreed columns.
        rename: name in the table to the name in the schema, in addition to names of similar spelling.
        where: owner of the table, for errors.
        discreet: exclude the table's own names from errors.

    Returns:
        Each name in the schema with the name in the table.

    Raises:
        InvalidInput: a name in ``rename`` does not exist.
    """
    for own, name in rename.items():
        if own not in table.columns:
            raise InvalidInput(
                f"there is no column {own!r} to rename",
                where=where,
                mend=None if discreet else nearest(own, table.columns),
            )
        if name not in schema.names:
            raise InvalidInput(
                f"the public rows have no column {name!r}",
                where=where,
                mend=nearest(name, schema.names),
            )
    left = {own: None for own in table.columns if own not in rename}
    found = {name: name for name in schema.names if name in left}
    found |= {name: own for own, name in rename.items()}
    strange: dict[str, list[str]] = {}
    for one in left:
        if one not in found:
            strange.setdefault(_alike(one), []).append(one)
    for name in schema.names:
        alike = strange.get(_alike(name), [])
        if name not in found and len(alike) == 1:
            found[name] = alike.pop()
    return found


def _alike(name: str) -> str:
    """A name of a column in small letters, without blanks, dashes and underscores."""
    return re.sub(r"[\s_-]+", "", name.lower())
