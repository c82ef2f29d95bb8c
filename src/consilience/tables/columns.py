"""Columns of a table as numbers: the column that values suggest, and values read as an agreed column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import Column
from consilience.core.numerics.units import FEW
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import same_words
from consilience.core.validation.tables import Lenient
from consilience.tables.remarks import column_remarks, one_spelling
from consilience.tables.texts import (
    MARKS,
    Mark,
    are_codes,
    is_number,
    number_text,
    read_texts,
)

MOST_CATEGORIES = 255
"""Categories of a column; more are texts, or names."""

_TRUTH = {"yes": 1, "y": 1, "true": 1, "t": 1, "1": 1, "no": 0, "n": 0, "false": 0, "f": 0, "0": 0}

_CODE = re.compile(r"[-+]?[\d.,eE]+")
_PLAIN = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d*)?")


class LongTexts(InvalidInput):
    """The texts of a column are no categories."""


def suggested_column(
    name: str, given: Array, *, where: str, mark: Mark = ""
) -> tuple[Column | None, Array, list[str]]:
    """Read one column as :func:`rows_and_schema` does.

    Args:
        name: name of the column.
        given: its values, as a :class:`~consilience.tables.table.Table` has them.
        where: owner of the column, for errors.
        mark: decimal mark of the table.

    Returns:
        the column of the schema, ``None`` if it is excluded; its values as numbers; and remarks.

    Raises:
        LongTexts: the texts are no categories.
        InvalidInput: infinite numbers, or values that could mean two things.
    """
    values = given
    if given.dtype.kind == "O":
        values = read_texts(given, name, where=where, mark=mark)
    known, notes = [text for text in values if text is not None], list[str]()
    if values.dtype.kind == "O" and len(set(known)) > min(FEW, len(known) / 2):
        values, notes = _without_marks(values, name, where, mark)
    if values.dtype.kind != "O":
        kinds: dict[str, Any] = {"b": "boolean", "M": "date"}
        column, part = Column(name, kinds.get(values.dtype.kind, "number")), _days_or(values)
        check_finite_column(part, name, where=where)
        if np.isnan(part.astype(np.float64)).all():
            return None, part, [f"{name!r} is missing in every row: left out"]
        return column.measured(part), part, [*notes, *column_remarks(column, part)]
    one, same = one_spelling(known)
    distinct = sorted(set(one.values()))
    code = are_codes(known)
    if code is not None and all(map(_CODE.fullmatch, known)):
        notes = [f"{name!r} holds codes, and no numbers: {code!r}"]
    if code is None and len(distinct) > min(FEW, len(known) / 2):
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
    notes += [f"{name!r}: {said}" for said in same]
    return column, part, [*notes, *column_remarks(column, part)]


def _without_marks(values: Array, name: str, where: str, mark: Mark) -> tuple[Array, list[str]]:
    """Read numbers among which words for "missing" stand, and return them with a remark, if there is one."""
    words = {text for text in set(values) if text is not None and not is_number(text)}
    marks = sorted(word for word in words if word.lower() in MARKS)
    if not marks:
        return values, []
    bare = np.array([None if text in marks else text for text in values], dtype=object)
    found = read_texts(bare, name, where=where, mark=mark)
    if found.dtype.kind == "O":
        return values, []
    return found, [f"{', '.join(map(repr, marks))} in {name!r} is read as missing"]


def _number_among(words: list[str], name: str, where: str) -> InvalidInput:
    """An error that names a word among numbers."""
    others = len(set(words)) - 1
    times = f" in {len(words):,} rows" if not others and len(words) > 1 else ""
    many = (
        f" and {others:,} other{'s' * (others > 1)} like it, in {len(words):,} rows"
        if others
        else ""
    )
    limit = "; of a limit such as <0.5 write a number" if words[0][0] in "<>≤≥" else ""
    return InvalidInput(
        f"column {name!r} holds numbers and {words[0]!r}{times}{many}",
        where=where,
        mend=f"Leave it empty where there is no number{limit}.",
    )


def _days_or(values: Array) -> Array:
    """Dates as days since 1970 and a part of one; other columns as they are."""
    if values.dtype.kind != "M":
        return values
    days = values.astype("datetime64[ms]").astype(np.int64) / 86_400_000
    return np.where(np.isnat(values), np.nan, days)


def check_finite_column(values: Array, name: str, *, where: str) -> None:
    """Raise ``InvalidInput`` where a column holds infinite numbers.

    Args:
        values: its numbers, shape ``(n,)``.
        name: of the column.
        where: whose they are, for errors.
    """
    if count := int(np.isinf(values).sum()):
        raise InvalidInput(
            f"infinite values: {count:,} in {name!r}", where=where, mend="Leave them empty."
        )


def codes_of(
    given: Array, column: Column, unknown: Lenient, *, discreet: bool, where: str
) -> tuple[Array, list[str]]:
    """Read values as codes of a column's categories, allowing for spelling differences; gaps are NaN.

    Args:
        given: values of one column of a table.
        column: the agreed column.
        unknown: treatment of other categories: refused, or read as missing.
        discreet: exclude the values from errors and remarks.
        where: owner of the values, for errors.

    Returns:
        Codes, shape ``(n,)``, and remarks.
    """
    exact = {name: code for code, name in enumerate(column.categories)}
    near: dict[str, int | None] = {}
    texts = _as_texts(given)
    known = {text for text in texts if text is not None}
    capitals = not (_of_one_case(exact) and _of_one_case(known))
    by_truth = {truth_of(name): code for name, code in exact.items()}
    if len(exact) != 2 or by_truth.keys() != {0, 1}:
        by_truth = {}
    for name, code in exact.items():
        for spelling in _spellings(name, capitals=capitals):
            near[spelling] = None if spelling in near and near[spelling] != code else code
    places: dict[Any, float] = {None: np.nan}
    strange: list[str] = []
    for text in dict.fromkeys(texts):
        if text is None:
            continue
        spellings = _spellings(text, capitals=capitals)
        alike = [exact.get(text), *map(near.get, spellings), by_truth.get(truth_of(text))]
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
    return [None if math.isnan(one) else number_text(one) for one in values.tolist()]


def _spellings(text: str, *, capitals: bool = True) -> list[str]:
    """List other spellings of a text: with small letters in words, and as a number.

    Args:
        text: any text.
        capitals: whether codes and single letters that differ only in capitals stay different.
    """
    words = same_words(text)
    found = [words if capitals else words.lower()]
    if _PLAIN.fullmatch(found[0]):
        whole, _, part = found[0].lstrip("+").partition(".")
        found.append(f"{whole}.{part.rstrip('0')}".rstrip(".").replace("-0", "0", whole == "-0"))
    return found


def _of_one_case(texts: Iterable[str]) -> bool:
    """True for texts without small letters, or without capital ones."""
    whole = " ".join(texts)
    return whole in (whole.lower(), whole.upper())


def truth_of(text: str) -> int | None:
    """Return the truth value of a text such as ``yes``, 0 or 1; ``None`` if the text is no truth value."""
    spellings = _spellings(text, capitals=False)
    return next((_TRUTH[one] for one in spellings if one in _TRUTH), None)


def numbers_of(
    given: Array, column: Column, *, discreet: bool, where: str, mark: Mark = ""
) -> tuple[Array, list[str]]:
    """Read values as numbers: numbers, texts of numbers, truth values or dates.

    Args:
        given: values of one column of a table.
        column: the agreed column.
        discreet: exclude the values from errors and remarks.
        where: owner of the values, for errors.
        mark: decimal mark of the table.

    Returns:
        Numbers, shape ``(n,)``, and remarks.
    """
    values, notes = given, list[str]()
    try:
        if given.dtype.kind == "O":
            values = read_texts(given, column.name, where=where, mark=mark)
        if values.dtype.kind == "O" and column.kind == "number":
            values, notes = _without_marks(values, column.name, where, mark)
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
