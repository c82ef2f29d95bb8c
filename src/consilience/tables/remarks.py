"""Remarks on columns: another unit, numbers that stand for a gap, numbers of persons, the target in disguise.

No row is changed here. A remark names a column and the evidence, and people decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Column, Schema
from consilience.core.numerics.units import FACTORS, FEW, TEMPERATURES, UNITS, converted
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import same_words
from consilience.tables.table import Table

_APART, _FITS, _SURE = 0.6, 0.25, 0.15
"""Distance of two distributions from which they are compared in other units, up to which these fit, and up to
which they surely do by a small factor. Sites with other patients lie apart less, or do not come together."""

_BODY = {"C to F": (30.0, 45.0), "F to C": (86.0, 113.0)}
"""Ranges of body temperatures; outside of them a scale cannot be distinguished from other values."""

_STANDS_FOR_A_GAP = re.compile(r"-1|-?(8{2,}|9{2,})")
_WHOLE_OR_PART = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
_IDENTITY = re.compile(
    r"(.*[\W_])?(id|uuid|guid|mrn|ssn|(patient|subject|person|case|record)[\W_]*(no|nr|num|number|code)?)([\W_].*)?"
)


def unit_remark(values: Array, column: Column, *, where: str, discreet: bool = False) -> str:
    """Return a remark if numbers seem to have another unit than the public ones, or else an empty text.

    The evidence is one of two. The numbers lie apart from the public deciles, and on them after a conversion
    between two known units; or both their size and their spread are ten times the public ones.

    Args:
        values: a party's values, shape ``(n,)``; gaps are NaN.
        column: the public rows' column.
        where: owner of the values, for the error.
        discreet: exclude the party's values from the text.

    Returns:
        The remark.

    Raises:
        InvalidInput: nine tenths of them also lie beyond all public ones, and the conversion fits well.
    """
    known = values[~np.isnan(values.astype(np.float64))].astype(np.float64)
    if len(known) < FEW or not column.deciles or column.low == column.high:
        return ""
    (fitting, sure), far = _fitting(known, np.array(column.deciles)), _far(known, column)
    if not fitting and far is None:
        return ""
    said = f"column {column.name!r} is of another unit than agreed on"
    if not discreet:
        words = " or ".join(fitting.values()) or f"by a factor of about {far:.2g}"
        medians = f"its median is {np.median(known):.4g}, of the public rows {column.median:.4g}"
        said += f": {medians} ({words})"
    low, high = np.quantile(known, [0.1, 0.9])
    if not (low > column.high or high < column.low) or not (sure or far):
        return f"{said}, as it seems"
    unit = "…" if discreet or not fitting else next(iter(fitting))
    raise InvalidInput(
        said,
        where=where,
        mend=f"Bring it to the unit of the public rows; or have the party do so: units = {{ "
        f"{json.dumps(column.name, ensure_ascii=False)} = {unit} }}, where 1 says that it is right as it is.",
    )


def _fitting(known: Array, deciles: Array) -> tuple[dict[str, str], bool]:
    """Conversions that bring numbers onto public deciles, as a file has them, with words; best first.

    And whether the best one surely does.
    """
    if min(len(np.unique(known)), len(np.unique(deciles))) < FEW // 2:
        return {}, False
    if _distance(known, deciles) < _APART:
        return {}, False
    for said, tried in (
        ("as large", {1 / factor: factor for factor in FACTORS}),
        ("as small", {factor: factor for factor in FACTORS}),
    ):
        far = {unit: _distance(known * unit, deciles) for unit in tried}
        near = [unit for unit in far if far[unit] <= min(_FITS, min(far.values()) + 0.1)]
        if near:
            near.sort(key=far.__getitem__)
            return {
                f"{unit:.6g}": f"{tried[unit]:g} times {said}: {FACTORS[tried[unit]]}"
                for unit in near[:3]
            }, far[near[0]] <= (_FITS if tried[near[0]] >= UNITS else _SURE)
    for unit, (low, high) in _BODY.items():
        if low < known.min() and known.max() < high:
            away = _distance(converted(known, unit), deciles)
            if away <= _FITS:
                return {f'"{unit}"': TEMPERATURES[unit]}, away <= _SURE
    return {}, False


def _distance(known: Array, deciles: Array) -> float:
    """Largest difference of two distribution functions at the deciles of one, which may be equal."""
    ordered, n = np.sort(known), len(known)
    below, upto = (np.searchsorted(ordered, deciles, side) / n for side in ("left", "right"))
    levels = np.arange(1, len(deciles) + 1) / (len(deciles) + 1)
    first = np.searchsorted(deciles, deciles, "left")
    last = np.searchsorted(deciles, deciles, "right") - 1
    return float(np.maximum(below - levels[last], levels[first] - upto).max())


def _far(known: Array, column: Column) -> float | None:
    """Factor by which size and spread are both beyond :data:`UNITS`; ``None`` where they are not."""
    deciles = np.array(column.deciles)
    if min((known != 0).mean(), (deciles != 0).mean()) < 1 / 2:  # a count that is mostly 0
        return None
    ours, theirs = (np.abs(one[one != 0]) for one in (known, deciles))
    factor, spread = float(np.median(ours) / np.median(theirs)), float(known.std()) / column.spread
    if min(factor, spread) >= UNITS or max(factor, spread) <= 1 / UNITS:
        return factor
    return None


def group_remarks(X: Array, schema: Schema, group: Array) -> Iterator[str]:
    """Yield remarks on columns with another unit in one group of rows, or without a value in the whole group.

    Args:
        X: rows, shape ``(n, d)``.
        schema: their columns.
        group: name of each row's group, shape ``(n,)``.
    """
    for name in sorted(set(group.tolist())):
        own = group == name
        if own.all():
            continue
        for column, values in zip(schema.columns, X.T, strict=True):
            missing = np.isnan(values[own].astype(np.float64)).all()
            if missing and not np.isnan(values.astype(np.float64)).all():
                yield f"{column.name!r} is missing in every row of {name!r}"
            elif column.kind == "number" and not (missing or identifies(column.name)):
                others = Column(column.name).measured(values[~own])
                try:
                    said = unit_remark(values[own], others, where="")
                except InvalidInput as error:
                    said = error.what
                if said:
                    yield f"rows of {name!r}: {said.replace('public', 'other')}"


def column_remarks(column: Column, values: Array) -> Iterator[str]:
    """Yield remarks on one column: no values, a constant, numbers that stand for a gap, numbers of persons.

    Args:
        column: the column.
        values: its values as numbers, shape ``(n,)``; gaps are NaN.
    """
    name, known = column.name, values[~np.isnan(values.astype(np.float64))]
    if not len(known):
        yield f"{name!r} is missing in every row"
        return
    distinct, times = np.unique(known, return_counts=True)
    if len(distinct) == 1 and len(known) == len(values) > 1:
        yield f"{name!r} is the same in every row: it tells nothing"
    if column.kind == "number":
        for place in {0, len(distinct) - 1} if len(distinct) > 2 else ():
            rest = np.delete(distinct, place)
            one, away = float(distinct[place]), float(np.abs(rest - distinct[place]).min())
            lone = away > rest[-1] - rest[0] or (one < 0 <= rest[0] and len(rest) > FEW)
            if times[place] > 1 and lone and _STANDS_FOR_A_GAP.fullmatch(f"{one:g}"):
                yield (
                    f"{name!r} is {one:g} in {times[place]:,} rows, far from all others: if that means "
                    "missing, leave them empty"
                )
    if said := numbers_persons(column, values):
        yield said


_NAMELESS = re.compile(r"column \d+|Unnamed: \d+|index|level_0")
"""Names of the index of a table that pandas wrote, and of columns without a name."""


def numbers_persons(column: Column, values: Array) -> str:
    """Say that a column holds numbers of persons or rows, as it seems; an empty text where it does not.

    Args:
        column: the column.
        values: its values as numbers, shape ``(n,)``; gaps are NaN.
    """
    name, known = column.name, values[~np.isnan(values.astype(np.float64))]
    distinct = np.unique(known)
    if len(known) > FEW and column.kind in ("number", "category"):
        whole = column.kind == "category" or bool((known % 1 == 0).all())
        counts = whole and len(known) == len(values) and (np.diff(np.sort(known)) == 1).all()
        named = identifies(name) and len(distinct) > max(FEW, len(known) / 20)
        digits = len(f"{known.max():.0f}") > 5 and len(f"{known.min():.0f}") == len(
            f"{known.max():.0f}"
        )
        long = column.kind == "number" and digits and len(distinct) > len(known) / 2
        index = bool(_NAMELESS.fullmatch(name)) and len(distinct) == len(known)
        if whole and (counts or named or long or index):
            what = "counts the rows" if counts else f"has {len(distinct):,} different values"
            whose = "a person or a row" if index else "a person"
            return (
                f"{name!r} {what}: if it is the number of {whose}, leave it out: drop = [{name!r}]"
            )
    return ""


def one_spelling(texts: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Find one spelling, the most frequent one, for texts with the same words.

    Args:
        texts: the texts of all rows.

    Returns:
        Each text's spelling; and remarks on merged texts, on different texts of one number, and on texts
        that differ by capital letters alone and stay apart, because they may be codes.

    >>> one_spelling(["Lebt", "lebt", "Lebt", "tot"])[0]
    {'Lebt': 'Lebt', 'lebt': 'Lebt', 'tot': 'tot'}
    """
    times = Counter(texts)
    order = sorted(times, key=lambda text: (-times[text], text))
    alike, folded = dict[str, list[str]](), dict[str, list[str]]()
    for text in order:
        alike.setdefault(same_words(text), []).append(text)
    for same in alike.values():
        folded.setdefault(" ".join(same[0].casefold().split()), []).append(same[0])
    numbers: dict[float, list[str]] = {}
    for text in filter(_WHOLE_OR_PART.fullmatch, alike):
        numbers.setdefault(float(text), []).append(alike[text][0])
    notes = [
        *(
            f"{_named(two, times)} are one number, and stay apart"
            for two in numbers.values()
            if two[1:]
        ),
        *(
            f"{_named(same, times)} are read as one: {same[0]!r}"
            for same in alike.values()
            if same[1:]
        ),
        *(
            f"{_named(two, times)} differ by a capital letter alone"
            for two in folded.values()
            if two[1:]
        ),
    ]
    found = {text: same[0] for same in alike.values() for text in same}
    return {text: found[text] for text in times}, tuple(notes)


def _named(texts: Sequence[str], times: Mapping[str, int]) -> str:
    return " and ".join(f"{text!r} ({times[text]:,} rows)" for text in texts)


def identifies(name: str) -> bool:
    """Tell whether a column is called as numbers of persons and records are.

    >>> [identifies(name) for name in ("id", "patient_id", "PatientID", "Subject No", "width", "paid")]
    [True, True, True, True, False, False]
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return _IDENTITY.fullmatch(apart.lower()) is not None


def says_target(table: Table, target: Array) -> tuple[str, ...]:
    """Return remarks on inputs that repeat the target under another name.

    An input repeats classes if every value occurs with one label, and either every label with one value, or
    every label with several values that each stand in many rows; gaps are excluded. An input repeats a
    target of values if it has their order, or the reverse.

    Args:
        table: the inputs.
        target: labels, shape ``(n,)``, or values ``(n, n_targets)``.

    Returns:
        The remarks; empty if there are none.
    """
    columns = target.reshape(len(target), -1).T
    found = []
    for name, values in table.columns.items():
        known = np.array([one is not None and one == one for one in values.tolist()], dtype=bool)
        if values.dtype.kind == "M":
            known = ~np.isnat(values)
        says = _same_order if target.dtype.kind == "f" else _one_label
        if known.any() and any(says(values[known], one[known]) for one in columns):
            found.append(f"{name!r} says the target under another name")
        elif target.dtype.kind != "f" and _one_label(known, columns[0]):
            found.append(f"{name!r} is missing or not as the target is")
    return tuple(found)


def _one_label(values: Array, labels: Array) -> bool:
    pairs = set(zip(values.tolist(), labels.tolist(), strict=True))
    firsts, seconds = ({pair[i] for pair in pairs} for i in (0, 1))
    if not 1 < len(seconds) <= len(firsts) == len(pairs) < len(values):
        return False
    return len(firsts) == len(seconds) or len(values) > FEW * FEW * len(firsts)


def _same_order(values: Array, targets: Array) -> bool:
    """True for numbers that rise, or fall, with the target at every row."""
    if values.dtype.kind not in "fiu" or len(values) < FEW:
        return False
    ours, theirs = (np.unique(one, return_inverse=True)[1] for one in (values, targets))
    last = ours.max()
    return bool(
        last == theirs.max() > 0 and ((ours == theirs).all() or (last - ours == theirs).all())
    )
