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
from consilience.validation.table_remarks import (
    FEW,
    TEMPERATURES,
    column_remarks,
    converted,
    one_spelling,
    unit_remark,
)
from consilience.validation.table_schema import Column, Schema
from consilience.validation.tables import MARKS, Table, is_number, read_texts

MOST_CATEGORIES = 255
"""Categories of a column; more are texts, or names."""

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

    @property
    def kept(self) -> list[int]:
        """Places of the columns that the table has."""
        return [i for i in range(self.X.shape[1]) if i not in self.absent]


def rows_and_schema(table: Table, *, where: str, texts: Texts = "refused") -> Rows:
    """Make the schema that a table suggests, and its rows.

    Numbers are numbers, and so are texts that all say some. Texts of which few differ are categories. Words
    of which most differ are left out, and so is a column without a value; each with a note.

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
        listed = json.dumps(long, ensure_ascii=False)
        raise InvalidInput(
            f"{', '.join(map(repr, long))}: texts of which most differ, neither numbers nor categories",
            where=where,
            mend=f"Leave them out: drop = {listed}; take one alone, as the text of a row: columns; or make "
            f"columns of numbers of them: consilience.learners.encoders.text_columns(table, {listed}).",
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
    known, notes = [text for text in values if text is not None], list[str]()
    if values.dtype.kind == "O" and len(set(known)) > min(FEW, len(known) / 2):
        values, notes = _without_marks(values, name, where)
    if values.dtype.kind != "O":
        kinds: dict[str, Any] = {"b": "boolean", "M": "date"}
        column, part = Column(name, kinds.get(values.dtype.kind, "number")), _days_or(values)
        _check_finite(part, name, where)
        if np.isnan(part.astype(np.float64)).all():
            return None, part, [f"{name!r} is missing in every row: left out"]
        return column.measured(part), part, [*notes, *column_remarks(column, part)]
    one, same = one_spelling(known)
    distinct = sorted(set(one.values()))
    if len(distinct) > min(FEW, len(known) / 2):
        strange = {text for text in set(known) if not is_number(text)}
        words = [text for text in known if text in strange]
        if len(words) < len(known) / 2:
            raise _number_among(words, name, where)
        if len(distinct) > MOST_CATEGORIES or FEW < len(distinct) > len(known) / 2:
            if sum(" " in text for text in distinct) > len(distinct) / 20:
                said = f"{name!r}: texts of which most differ, neither numbers nor categories"
                raise LongTexts(said, where=where)
            many = f"{len(distinct):,} different words, as names and numbers of persons have"
            return None, values, [f"{name!r} holds {many}: left out"]
    place: dict[Any, float] = {text: float(code) for code, text in enumerate(distinct)}
    part = np.array([np.nan if text is None else place[one[text]] for text in values])
    column = Column(name, "category", tuple(distinct)).measured(part)
    notes = [f"{name!r}: {said}" for said in same]
    return column, part, [*notes, *column_remarks(column, part)]


def _without_marks(values: Array, name: str, where: str) -> tuple[Array, list[str]]:
    """Read numbers among which a word that says "missing" stands; and a remark, if there is one."""
    words = {text for text in set(values) if text is not None and not is_number(text)}
    marks = sorted(word for word in words if word.lower() in MARKS)
    if not marks:
        return values, []
    bare = np.array([None if text in marks else text for text in values], dtype=object)
    found = read_texts(bare, name, where=where)
    if found.dtype.kind == "O":
        return values, []
    return found, [f"{', '.join(map(repr, marks))} in {name!r} is read as missing"]


def _number_among(words: list[str], name: str, where: str) -> InvalidInput:
    """An error that names a word among numbers."""
    if not words:
        return InvalidInput(
            f"column {name!r} holds numbers that are written in several ways",
            where=where,
            mend="Write all with one decimal mark, and without separators of thousands.",
        )
    many = f" and {len(words) - 1:,} more" if len(words) > 1 else ""
    limit = "; of a limit such as <0.5 write a number" if words[0][0] in "<>≤≥" else ""
    return InvalidInput(
        f"column {name!r} holds numbers and {words[0]!r}{many}",
        where=where,
        mend=f"Leave it empty where there is no number{limit}.",
    )


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
    """Read a table as rows of a schema; other columns are left out.

    Differences of spelling are mended: the order of columns, small and capital letters and blanks of names
    and categories, ``1`` and ``1.0``, ``yes`` and ``true``, numbers and dates that are texts.

    Args:
        table: the rows.
        schema: their columns.
        where: whose they are, for errors.
        rename: name in the table to the name in the schema.
        units: name in the schema to a factor that the table's numbers are multiplied by, or ``"F to C"`` or
            ``"C to F"``; such a column's unit is right by this word.
        missing: whether the table may lack columns.
        unknown: what becomes of categories that the schema does not have: refused, or read as missing.
        discreet: leave what the table holds out of errors, as whoever sent the schema reads them.
        options: whether the options above can be given by whoever reads an error.

    Raises:
        InvalidInput: a column that is not there, or holds another kind of value, unknown categories or
            numbers of another unit.
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
            _check_finite(given, column.name, where)
        if column.kind == "category":
            part, note = _codes(given, column, unknown, discreet, where)
        else:
            part, note = _values(given, column, discreet, where)
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
    """Map a schema's columns to a table's own names of them, those that the table has.

    Args:
        table: the rows.
        schema: the columns agreed on.
        rename: name in the table to the name in the schema, beside those that are spelt alike.
        where: whose table it is, for errors.
        discreet: leave the table's own names out of errors.

    Raises:
        InvalidInput: ``rename`` has a name that is not there.
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
    values, notes = given, list[str]()
    try:
        if given.dtype.kind == "O":
            values = read_texts(given, column.name, where=where)
        if values.dtype.kind == "O" and column.kind == "number":
            values, notes = _without_marks(values, column.name, where)
    except InvalidInput as error:
        if not discreet:
            raise
        said = f"column {column.name!r} is not written in one way"
        raise InvalidInput(said, where=where, mend=error.mend) from None
    truth = column.kind == "boolean" or (column.low, column.high) == (0, 1)
    if values.dtype.kind == "O" and truth:
        truths = [None if one is None else _TRUTH.get(one.lower(), 2) for one in values]
        if 2 not in truths:
            return np.array([np.nan if one is None else float(one) for one in truths]), []
    date = values.dtype.kind == "M"
    if values.dtype.kind == "O" or (date != (column.kind == "date") and not _empty(values)):
        what = f"column {column.name!r} is a {column.kind} in the public rows, and not here"
        if values.dtype.kind == "O" and not discreet:
            here = [text for text in values if text is not None]
            what += f": {next((text for text in here if not is_number(text)), here[0])!r}"
        raise InvalidInput(what, where=where, mend="Write it as the public rows do.")
    part = _days_or(values)
    if column.kind == "boolean" and not np.isin(part[~np.isnan(part.astype(float))], (0, 1)).all():
        raise InvalidInput(
            f"column {column.name!r} is true or false in the public rows, and not here", where=where
        )
    return part, [] if discreet else notes


def _empty(values: Array) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).all())
