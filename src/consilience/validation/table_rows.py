"""Rows of numbers of a table: the schema that a table suggests, and a party's own table held against one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from consilience.errors import InvalidInput, nearest
from consilience.validation.arrays import Array
from consilience.validation.memory import check_memory
from consilience.validation.table_schema import Column, Schema
from consilience.validation.tables import Table, is_number, read_texts

MOST_CATEGORIES = 255
"""Categories of a column; more are texts, or names."""
FEW = 10
"""Different texts of a column that are categories, however few the rows."""
UNITS = 10.0
"""Factor between a party's numbers and the public rows' from which they are of other units."""

_TRUTH = {"yes": 1, "y": 1, "true": 1, "t": 1, "1": 1, "no": 0, "n": 0, "false": 0, "f": 0, "0": 0}

Lenient = Literal["refused", "missing"]
Texts = Literal["refused", "left out"]


@dataclass(frozen=True)
class Rows:
    """Rows of numbers that stand for a table's.

    Attributes:
        X: shape ``(n, d)``; float64, or the numbers as they came where all columns are of one such type.
        schema: their columns; ``None`` where they have no names.
        absent: places of columns that the table lacks, which are gaps in ``X``.
        notes: remarks on the table, for people.
    """

    X: Array
    schema: Schema | None
    absent: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())


def rows_and_schema(table: Table, *, where: str, texts: Texts = "refused") -> Rows:
    """Make the schema that a table suggests, and its rows.

    Numbers are numbers, and so are texts that all say some. Texts of which few differ are categories. A text
    that is another one in every row is left out, with a note.

    Args:
        table: the rows.
        where: whose they are, for errors.
        texts: what becomes of columns of texts that are no categories: refused, or left out.

    Raises:
        InvalidInput: no rows or columns, infinite numbers, texts that are no categories, or dates or numbers
            that are not written in one way.
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
            column, part, said = suggested_column(name, given, where=where)
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
    if long and texts == "refused":
        others = ", ".join(json.dumps(column.name, ensure_ascii=False) for column in columns)
        raise InvalidInput(
            f"{', '.join(map(repr, long))}: texts of which most differ, neither numbers nor categories",
            where=where,
            mend=f"Leave them out: columns = [{others}]; or take one alone, as the text of a row.",
        )
    if not columns:
        raise InvalidInput("no column is left that says anything", where=where)
    schema = Schema(tuple(columns))
    return Rows(_stacked(parts), schema, notes=tuple(notes))


class LongTexts(InvalidInput):
    """A column of texts that are no categories."""


def suggested_column(
    name: str, given: Array, *, where: str
) -> tuple[Column | None, Array, list[str]]:
    """Read one column as :func:`rows_and_schema` does.

    Args:
        name: of the column.
        given: its values, as a :class:`~consilience.validation.tables.Table` has them.
        where: whose they are, for errors.

    Returns:
        the column of the schema, ``None`` where it is left out; its values as numbers; and remarks.

    Raises:
        LongTexts: texts that are no categories.
        InvalidInput: infinite numbers, or values that could mean two things.
    """
    values = read_texts(given, name, where=where) if given.dtype.kind == "O" else given
    if values.dtype.kind != "O":
        kinds: dict[str, Any] = {"b": "boolean", "M": "date"}
        column, part = Column(name, kinds.get(values.dtype.kind, "number")), _days_or(values)
        _check_finite(part, name, where)
        counts = column.kind == "number" and _identifies(part)
        note = f"{name!r} counts the rows: if it is the number of a person, leave it out"
        return column.measured(part), part, [note] * counts
    known = [text for text in values if text is not None]
    distinct = sorted(set(known))
    if not len(distinct) <= min(FEW, len(known) / 2):
        words = [text for text in known if not is_number(text)]
        if len(words) < len(known) / 2:
            raise InvalidInput(
                f"column {name!r} holds numbers and {words[0]!r}",
                where=where,
                mend="Leave it empty where there is no number.",
            )
        if len(distinct) == len(known) > FEW and not any(" " in text for text in distinct):
            note = (
                f"{name!r} is different in every row, as a name or number of a person is: left out"
            )
            return None, values, [note]
        if len(distinct) > MOST_CATEGORIES or FEW < len(distinct) > len(known) / 2:
            raise LongTexts(
                f"{name!r}: texts of which most differ, neither numbers nor categories", where=where
            )
    place: dict[Any, float] = {text: float(code) for code, text in enumerate(distinct)}
    part = np.array([place.get(text, np.nan) for text in values])
    return Column(name, "category", tuple(distinct)).measured(part), part, []


def _identifies(values: Array) -> bool:
    """True for whole numbers without gaps of which each is one more than another."""
    if len(values) <= FEW or not np.isfinite(values).all() or (values % 1 != 0).any():
        return False
    return bool((np.diff(np.sort(values)) == 1).all())


def _days_or(values: Array) -> Array:
    """Dates as days since 1970 and a part of one; other columns as they are."""
    if values.dtype.kind != "M":
        return values
    days = values.astype("datetime64[ms]").astype(np.int64) / 86_400_000
    return np.where(np.isnat(values), np.nan, days)


def _stacked(parts: list[Array]) -> Array:
    """Columns side by side: of one type of numbers in that, else in float64."""
    kinds = {part.dtype for part in parts}
    if len(kinds) == 1 and next(iter(kinds)).kind in "fiu":
        return np.stack(parts, axis=1)
    return np.stack([part.astype(np.float64) for part in parts], axis=1)


def _check_finite(values: Array, name: str, where: str) -> None:
    if count := int(np.isinf(values).sum()):
        raise InvalidInput(
            f"infinite values: {count:,} in {name!r}", where=where, mend="Leave them empty."
        )


def says_target(table: Table, target: Array) -> tuple[str, ...]:
    """Remarks on inputs of which every value goes with one label, and every label with one value.

    Args:
        table: the inputs.
        target: labels, shape ``(n,)``, or values ``(n, n_targets)``; of several values nothing is said.
    """
    if target.ndim == 2 and target.shape[1] > 1:
        return ()
    target = target.reshape(-1)

    def says(values: Array) -> bool:
        pairs = set(zip(values.tolist(), target.tolist(), strict=True))
        firsts, seconds = ({pair[i] for pair in pairs} for i in (0, 1))
        return 1 < len(firsts) == len(seconds) == len(pairs) < len(values)

    return tuple(
        f"{name!r} says the target under another name"
        for name, values in table.columns.items()
        if says(values)
    )


def rows_of(
    table: Table,
    schema: Schema,
    *,
    where: str,
    rename: Mapping[str, str] | None = None,
    missing: Literal["refused", "allowed"] = "refused",
    unknown: Lenient = "refused",
    discreet: bool = False,
) -> Rows:
    """Read a table as rows of a schema; other columns are left out.

    Differences of spelling are mended: the order of columns, small and capital letters and blanks of names
    and categories, ``1`` and ``1.0``, ``yes`` and ``true``, numbers and dates that are texts.

    Args:
        table: the rows.
        schema: their columns.
        where: whose they are, for errors.
        rename: name in the table to the name in the schema.
        missing: whether the table may lack columns.
        unknown: what becomes of categories that the schema does not have: refused, or read as missing.
        discreet: leave what the table holds out of errors, as whoever sent the schema reads them.

    Raises:
        InvalidInput: a column that is not there, or holds another kind of value, unknown categories or
            numbers of another unit.
    """
    columns = _renamed(table, schema, rename or {}, where)
    absent = [name for name in schema.names if name not in columns]
    if absent and (missing == "refused" or len(absent) == len(schema.names)):
        others = [name for name in columns if name not in schema.names]
        hint = f"{nearest(absent[0], others)} " if others and not discreet else ""
        raise InvalidInput(
            f"there is no input column {', '.join(map(repr, absent[:5]))}, which the public rows have",
            where=where,
            mend=f"{hint}Name its own with rename = {{ own = {absent[0]!r} }}; or take part with fewer "
            'columns: missing = "allowed".',
        )
    notes = [f"it lacks {', '.join(map(repr, absent))}, and takes part without"] if absent else []
    parts = []
    for column in schema.columns:
        if column.name in absent:
            parts.append(np.full(len(table), np.nan))
            continue
        given = columns[column.name]
        if given.dtype.kind == "f":
            _check_finite(given, column.name, where)
        if column.kind == "category":
            part, note = _codes(given, column, unknown, discreet, where)
        else:
            part, note = _values(given, column, discreet, where)
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


def _renamed(
    table: Table, schema: Schema, rename: Mapping[str, str], where: str
) -> dict[str, Array]:
    for own, name in rename.items():
        if own not in table.columns:
            raise InvalidInput(
                f"there is no column {own!r} to rename",
                where=where,
                mend=nearest(own, table.columns),
            )
        if name not in schema.names:
            raise InvalidInput(
                f"the public rows have no column {name!r}",
                where=where,
                mend=nearest(name, schema.names),
            )
    named = {name: values for name, values in table.columns.items() if name not in rename}
    named |= {name: table.columns[own] for own, name in rename.items()}
    for name in schema.names:
        alike = [own for own in named if _alike(own) == _alike(name) and own not in schema.names]
        if name not in named and len(alike) == 1:
            named[name] = named.pop(alike[0])
    return named


def _alike(name: str) -> str:
    """A name of a column in small letters, without blanks, dashes and underscores."""
    return re.sub(r"[\s_-]+", "", name.lower())


def _codes(
    given: Array, column: Column, unknown: Lenient, discreet: bool, where: str
) -> tuple[Array, list[str]]:
    """Codes of categories, spelt alike or nearly; gaps are NaN."""
    exact = {name: code for code, name in enumerate(column.categories)}
    near: dict[str, int | None] = {}
    by_truth = {truth_of(name): code for name, code in exact.items()}
    if len(exact) != 2 or by_truth.keys() != {0, 1}:
        by_truth = {}
    for name, code in exact.items():
        for spelling in _spellings(name):
            near[spelling] = None if spelling in near and near[spelling] != code else code
    places: dict[Any, float] = {None: np.nan}
    strange: list[str] = []
    texts = _as_texts(given)
    for text in dict.fromkeys(texts):
        if text is None:
            continue
        alike = [exact.get(text), *map(near.get, _spellings(text)), by_truth.get(truth_of(text))]
        found = next((code for code in alike if code is not None), None)
        if found is None:
            strange.append(text)
        places[text] = np.nan if found is None else float(found)
    notes = []
    if strange:
        many = f"{len(strange)} categories" if len(strange) > 1 else "a category"
        what = f"column {column.name!r} holds {many} that the public rows do not know"
        if not discreet:
            what += f": {', '.join(map(repr, sorted(strange)[:5]))}"
        if unknown == "refused":
            hint = "" if discreet else f" {nearest(strange[0], column.categories)}"
            raise InvalidInput(
                what,
                where=where,
                mend=f'Write it as the public rows do; or read it as missing: unknown = "missing".{hint}',
            )
        notes.append(f"{what}: read as missing")
    return np.array([places[text] for text in texts]), notes


def _as_texts(values: Array) -> list[str | None]:
    """Values of a column as texts; whole numbers without a point, truth values as words."""
    if values.dtype.kind == "O":
        return list(values)
    if values.dtype.kind == "b":
        return ["true" if one else "false" for one in values]
    if values.dtype.kind == "M":
        return [None if np.isnat(one) else str(one.astype("datetime64[D]")) for one in values]
    return [None if math.isnan(one) else f"{one:.15g}" for one in values.tolist()]


def _spellings(text: str) -> list[str]:
    """Other spellings of a text: in small letters and without blanks, and as a number."""
    found = [" ".join(text.lower().split())]
    with suppress(ValueError):
        found.append(f"{float(found[0]):.15g}")
    return found


def truth_of(text: str) -> int | None:
    """Truth value that a text says, 0 or 1; ``None`` where it says none."""
    return next((_TRUTH[one] for one in _spellings(text) if one in _TRUTH), None)


def _values(given: Array, column: Column, discreet: bool, where: str) -> tuple[Array, list[str]]:
    """Numbers of a column: as they are, of texts that say some, of truth values or dates."""
    values = given
    if given.dtype.kind == "O":
        values = read_texts(given, column.name, where=where)
    truth = column.kind == "boolean" or (column.low, column.high) == (0, 1)
    if values.dtype.kind == "O" and truth:
        said = [None if one is None else _TRUTH.get(one.lower(), 2) for one in values]
        if 2 not in said:
            return np.array([np.nan if one is None else float(one) for one in said]), []
    date = values.dtype.kind == "M"
    if values.dtype.kind == "O" or (date != (column.kind == "date") and not _empty(values)):
        what = f"column {column.name!r} is a {column.kind} in the public rows, and not here"
        if values.dtype.kind == "O" and not discreet:
            said_here = [text for text in values if text is not None]
            what += f": {said_here[0]!r}"
        raise InvalidInput(what, where=where, mend="Write it as the public rows do.")
    part = _days_or(values)
    if column.kind == "boolean" and not np.isin(part[~np.isnan(part.astype(float))], (0, 1)).all():
        raise InvalidInput(
            f"column {column.name!r} is true or false in the public rows, and not here", where=where
        )
    return part, _units(part, column, discreet, where) if column.kind == "number" else []


def _empty(values: Array) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def _units(values: Array, column: Column, discreet: bool, where: str) -> list[str]:
    """Remarks on numbers that are larger or smaller by a factor than the public ones.

    Raises:
        InvalidInput: four fifths of them lie beyond all public ones.
    """
    known = values[~np.isnan(values.astype(np.float64))]
    sizes = np.abs(known[known != 0])
    if len(sizes) < FEW or not column.size or column.low == column.high:
        return []
    factor = float(np.median(sizes)) / column.size
    spread = float(known.std()) / column.spread
    if 1 / UNITS < factor < UNITS or 1 / UNITS < spread < UNITS or (factor > 1) != (spread > 1):
        return []
    about = f"column {column.name!r} is of another unit than agreed on"
    said = about if discreet else f"{about}, by a factor of about {float(f'{factor:.2g}'):g}"
    low, high = np.quantile(known, [0.1, 0.9])
    if low > column.high or high < column.low:
        raise InvalidInput(said, where=where, mend="Bring it to the unit of the public rows.")
    return [f"{said}, as it seems"]
