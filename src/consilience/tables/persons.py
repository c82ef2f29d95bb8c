"""Find columns that name a person on several rows, because such rows are not independent of one another.

Rows are dealt at random to training, test, calibration and public rows. If a person has several rows, a model
may be tested on a person from its training rows. It then predicts 94 % of the labels correctly, even if a
coin decided the label of each person.

A column names persons on several rows if one of these holds:

1. Its name is one of persons or their numbers, such as ``patient``, ``Subject No``, ``USUBJID`` or ``id``, a
   value is on two rows, and a value is on 50 rows or fewer in the mean.
2. It holds texts or whole numbers, twenty different ones or more, on 2 to 50 rows each in the mean, and the
   target, or two other columns, never differ between rows of one value, though chance would bring that about
   less than once in a million. Columns that rise with it, as an age group does with age, do not count.
3. Its name is ``no``, ``code`` or the like, and each of its values, twenty or more, is on 2 to 50 rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.tables.table import Table
from consilience.tables.texts import read_texts

MOST_ROWS = 50
"""Rows of one value in the mean, above which a column holds categories and not persons."""

_FEWEST = 20
"""Values of a column below which it holds categories, unless its name is one of persons: a dozen wards may
decide the target."""
_DATE = re.compile(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b")
_CHANCE = math.log(1e-6)
_FIRST = 200
"""Number of values to check first, since few columns are constant on the rows of each of them."""

_NUMBER = "ids?|uids?|uuid|guid|nr|no|num|number|code|key|hash|pseudonym|identifier|name"
_PERSON = (
    "patients?|patienten|subjects?|subj|persons?|participants?|probands?|probanden|individuals?|respondents?|"
    "customers?|clients?|members?|users?|employees?|students?|animals?"
)
_NAMES = re.compile(
    rf"(unique|anon(ymi[sz]ed)?|pseudo(nymi[sz]ed)?|study|u)?"
    rf"(({_PERSON})({_NUMBER}|nummer)?|(pat|pt|case|record|fall)(ids?|uids?|nr|no|num|number|nummer)|"
    r"ids?|uids?|uuid|guid|identifier|pseudonym|mrn|ssn|rid|nhsn(o|umber))"
)
_NUMBERED = re.compile(r"(no|nr|num|number|code|key|hash|name|case|record|fall)")


def check_persons(
    table: Table, targets: Sequence[Array], *, but: Collection[str | None], where: str
) -> None:
    """Refuse a table in which a person has several rows.

    Args:
        table: all columns of a file, including columns outside of the inputs.
        targets: labels or values, each of shape ``(n,)``.
        but: names of the columns of targets and groups, which name no persons.
        where: the file.

    Raises:
        InvalidInput: a column names persons on several rows, by the rule in the module's docstring.
    """
    table = replace(
        table,
        columns={name: _as_read(table, name, where) for name in table.columns if name not in but},
    )
    for name, values in table.columns.items():
        codes, counts = _codes(values)
        if why := _evidence(name, values, codes, counts, table, targets):
            raise InvalidInput(
                f"column {name!r} names persons, as it seems, and they have several rows: {len(counts):,} "
                f"values on {int(counts.sum()):,} rows, and {why}",
                where=where,
                mend="Rows of one person would be dealt to training and to test rows, and the test would be "
                "of persons that the model has seen. Keep one row of each person, or make one of all. If the "
                "rows are independent of one another, say --rows-are-independent, or rows_are_independent = "
                "true in the section [data].",
            )


def _evidence(
    name: str,
    values: Array,
    codes: Array,
    counts: Array,
    table: Table,
    targets: Sequence[Array],
) -> str:
    """Describe the evidence that a column names persons on several rows; empty without evidence."""
    if not len(counts) or counts.max() < 2 or counts.mean() > MOST_ROWS:
        return ""
    plain = re.sub(r"[\W_]+", "", name.lower())
    if _NAMES.fullmatch(plain) and values.dtype.kind != "M":
        return "that is how persons are named"
    if not _discrete(values) or len(counts) < _FEWEST:
        return ""
    each = counts.min() >= 2 and counts.max() <= MOST_ROWS
    if each and _NUMBERED.fullmatch(plain):
        return f"each is on 2 to {MOST_ROWS} rows"
    if counts.mean() < 2:
        return ""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    rising = codes if values.dtype.kind != "O" else None
    if any(_same(order, codes, _codes(target)[0], rising) for target in targets):
        return "rows of one value have one target"
    others = (
        other
        for other, found in table.columns.items()
        if other != name and _same(order, codes, _codes(found)[0], rising)
    )
    alike = [other for other, _ in zip(others, range(2), strict=False)]
    if len(alike) == 2:
        return f"{alike[0]!r} and {alike[1]!r} never differ on the rows of one value"
    return ""


def _as_read(table: Table, name: str, where: str) -> Array:
    """Read a column of texts as numbers or dates if possible, such as those of a file with decimal commas."""
    values = table.columns[name]
    with suppress(InvalidInput):  # it may be no input; who reads it says so
        if values.dtype.kind == "O":
            return read_texts(values, name, where=where, mark=table.mark)
    return values


def _discrete(values: Array) -> bool:
    """Tell whether a column holds texts or whole numbers, and no dates."""
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        return bool(len(known)) and bool((np.isfinite(known) & (known == np.round(known))).all())
    if values.dtype.kind == "O":
        return not any(_DATE.match(str(one)) for one in values[:_FIRST].tolist())
    return values.dtype.kind in "SUiu"


def _codes(values: Array) -> tuple[Array, Array]:
    """Number the different values of a column in their order; -1 for gaps.

    Returns:
        The number of each row's value, shape ``(n,)``; and rows of each value.
    """
    if values.dtype.kind == "O":
        known = np.array([one is not None and one == one for one in values.tolist()], dtype=bool)
        plain = np.array([str(one) for one in values[known].tolist()], dtype=str)
    else:
        known = values == values
        plain = values[known]
    codes = np.full(len(values), -1, dtype=np.int64)
    distinct, found, counts = np.unique(plain, return_inverse=True, return_counts=True)
    codes[known] = found.ravel()
    return codes, counts if len(distinct) else counts[:0]


def _same(order: Array, codes: Array, other: Array, rising: Array | None) -> bool:
    """Check whether a column is constant on the rows of each value of another one, and not by chance.

    Args:
        order: rows by their value; rows without one are excluded.
        codes: the value of each row, shape ``(n,)``.
        other: the column's values, as numbers in their order; a gap counts as a value.
        rising: the value of each row, if values have an order: a column that rises or falls with it all along
            is made of it.
    """
    for few in (True, False):
        rows = order[codes[order] < _FIRST] if few else order
        groups, inside = codes[rows], other[rows]
        if (inside[1:] != inside[:-1])[groups[1:] == groups[:-1]].any():
            return False
    firsts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    if rising is not None and len(steps := np.diff(inside[firsts])) and _one_way(steps):
        return False
    shares = np.unique(other[order], return_counts=True)[1] / len(order)
    sizes, times = np.unique(np.diff(np.r_[firsts, len(rows)]), return_counts=True)
    chance = sum(
        n * math.log((shares**size).sum())
        for size, n in zip(sizes.tolist(), times.tolist(), strict=True)
        if size > 1
    )
    return bool(chance < _CHANCE)


def _one_way(steps: Array) -> bool:
    """Tell whether numbers never fall, or never rise."""
    return bool((steps >= 0).all() or (steps <= 0).all())
