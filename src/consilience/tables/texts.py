"""Read columns of texts as numbers, times of the day or dates.

A column is read as numbers if all of its texts are numbers with one decimal mark: ``1,234.5`` and ``3.14``,
or ``1.234,5`` and ``3,14``, with ``45 %``, ``$5`` and ``1 234``. ``1,234`` alone may be 1234 or 1.234. The
other texts of the column decide, then those of the whole table (:func:`marks_shown`); otherwise the column is
refused.

Digits that begin with a zero, such as ``007``, and ``1E5`` are codes, and stay texts (:func:`are_codes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array

Mark = Literal[".", ",", ""]
"""Decimal mark of a table; empty if the table does not show it."""

MARKS = frozenset(
    (
        *(
            "-",
            "--",
            ".",
            "*",
            "none",
            "unknown",
            "missing",
            "n.a.",
            "nd",
            "n.d.",
            "#div/0!",
            "#value!",
        ),
        *("k.a.", "k. a.", "keine angabe"),
    )
)
"""Texts that stand for a missing value where all others are numbers, in small letters."""

DATES = {
    "%Y-%m-%d": r"\d{4}-\d{1,2}-\d{1,2}",
    "%Y/%m/%d": r"\d{4}/\d{1,2}/\d{1,2}",
    "%d.%m.%Y": r"\d{1,2}\.\d{1,2}\.\d{4}",
    "%d/%m/%Y": r"\d{1,2}/\d{1,2}/\d{4}",
    "%m/%d/%Y": r"\d{1,2}/\d{1,2}/\d{4}",
    "%d-%m-%Y": r"\d{1,2}-\d{1,2}-\d{4}",
    "%m-%d-%Y": r"\d{1,2}-\d{1,2}-\d{4}",
    "%d %b %Y": r"\d{1,2} [A-Za-z]{3} \d{4}",
    "%Y-%m-%d %H:%M:%S": r"\d{4}-\d{1,2}-\d{1,2}[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}(:?\d{2})?)?",
}
"""Accepted forms of a date; the first that fits all values of a column is used."""

_DECIMAL_MARKS = ((".", r"\.", ","), (",", ",", r"\."))
"""Decimal marks, each as a pattern, with that of the other one."""

_BLANKS = r"[ \u00a0\u202f'’]"
_SHOWN = {
    mark: re.compile(
        rf"[-+]?(\d{{4,}}|0)?{m}\d+|[-+]?\d{{1,3}}{m}(\d{{1,2}}|\d{{4,}})?"  # no thousand has this form
        rf"|[-+]?\d*{m}\d*[eE][-+]?\d+"
        rf"|[-+]?[1-9]\d{{0,2}}({o}\d{{3}})+{m}\d+|[-+]?[1-9]\d{{0,2}}({o}\d{{3}}){{2,}}"
        rf"|[-+]?[1-9]\d{{0,2}}({_BLANKS}\d{{3}})+{m}\d+"
    )
    for mark, m, o in _DECIMAL_MARKS
}
"""Numbers whose decimal mark is certain, by that mark."""

_UNSURE = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""Numbers that may be thousands or have three decimals."""

_ZERO = re.compile(r"[-+]?0\d+([.,]\d*)?")
"""Digits of a code."""

_BARE = re.compile(r"\d+[eE]\d+")
"""Codes, or powers of ten as people write them. Programs write a sign or a decimal mark: 1e+05, 1.0E5."""

_NUMBERS = {
    mark: re.compile(
        rf"[-+]?(\d+({m}\d*)?|{m}\d+)([eE][-+]?\d+)?"
        rf"|[-+]?[1-9]\d{{0,2}}({o}\d{{3}})+({m}\d*)?"
        rf"|[-+]?[1-9]\d{{0,2}}({_BLANKS}\d{{3}})+({m}\d*)?"
    )
    for mark, m, o in _DECIMAL_MARKS
}
_SIGN = re.compile(r"([$€£]?)\s*([^$€£%]+?)\s*([%$€£]?)")
_ZONE = re.compile(r"(?<=\d)(Z|([+-])(\d{2}):?(\d{2})?)$")
_TIME = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?")


def is_number(text: str) -> bool:
    """Tell whether a text is a number, with any decimal mark, separators and sign; a code is none."""
    bare = _bare(text)
    known = any(form.fullmatch(bare) for form in _NUMBERS.values())
    return known and not _ZERO.fullmatch(bare)


def are_codes(texts: Iterable[str]) -> str | None:
    """Find a text which shows that a column holds codes and no numbers; ``None`` if there is none.

    Args:
        texts: the texts of a column.

    Returns:
        The first such text, or ``None``.

    >>> are_codes(["1", "01"]), are_codes(["2E3", "7"]), are_codes(["1e3", "7"]), are_codes(["1E3", "0.5"])
    ('01', '2E3', None, None)
    """
    distinct = list(dict.fromkeys(texts))
    if zero := next(filter(_ZERO.fullmatch, distinct), None):
        return zero
    bare = [text for text in distinct if _BARE.fullmatch(text)]
    others = [text for text in distinct if not _BARE.fullmatch(text)]
    if bare and all(text.isdigit() or not is_number(text) for text in others):
        return next((text for text in bare if "E" in text or not others), None)
    return None


def marks_shown(texts: Iterable[str | None]) -> frozenset[str]:
    """Find the decimal marks that a column of texts shows for certain; none if it is no column of numbers.

    >>> sorted(marks_shown(["1,234", "7"])), sorted(marks_shown(["3,5"])), sorted(marks_shown(["1,234,567"]))
    ([], [','], ['.'])
    """
    found = set[str]()
    for text in dict.fromkeys(texts):
        if text is None or text.lower() in MARKS:
            continue
        if not is_number(text):
            return frozenset()
        found |= {mark for mark, form in _SHOWN.items() if form.fullmatch(_bare(text))}
    return frozenset(found)


def mark_of(shown: Iterable[str]) -> Mark:
    """Return the decimal mark of a table whose columns show some: the only one, or none."""
    found = set(shown)
    return "" if len(found) != 1 else "," if "," in found else "."


def number_text(value: float | np.floating[Any]) -> str:
    """Write a number so that no other number has the same text: whole ones without a point.

    >>> number_text(3.0), number_text(1234567.0), number_text(0.1), number_text(-0.0)
    ('3', '1234567', '0.1', '0')
    """
    return str(int(value)) if float(value).is_integer() else str(value)


def read_texts(texts: Array, name: str, *, where: str, mark: Mark = "") -> Array:
    """Read a column of texts as numbers or dates if all of them are, in one form; otherwise leave it.

    Args:
        texts: object array of ``str`` and ``None``, shape ``(n,)``.
        name: of the column, for errors.
        where: the table, for errors.
        mark: decimal mark of the table, which decides if the column does not.

    Returns:
        float64, ``datetime64``, or the texts, shape ``(n,)``.

    Raises:
        InvalidInput: dates or numbers in several forms, or that could be meant in two ways.
    """
    distinct = list(dict.fromkeys(texts))
    if 2 * len(distinct) < len(texts):  # a text that repeats is read once
        found = read_texts(np.array(distinct, dtype=object), name, where=where, mark=mark)
        place = {text: i for i, text in enumerate(distinct)}
        return texts if found.dtype.kind == "O" else found[[place[text] for text in texts]]
    known = [text for text in texts if text is not None]
    if not known:
        return np.full(len(texts), np.nan)
    if are_codes(known):
        return texts
    if all(map(is_number, known)):
        bare = [None if text is None else _bare(text) for text in texts]
        point = _mark_of_column(known, name, where, mark)
        return np.array([np.nan if text is None else _number(text, point) for text in bare])
    if all(map(_TIME.fullmatch, known)):
        return np.array([np.nan if text is None else _hours(text) for text in texts])
    return _dates(texts, known, name, where)


def _bare(text: str) -> str:
    """A number without its unit, and with an ordinary minus."""
    signed = _SIGN.fullmatch(text)
    return (signed[2] if signed else text).replace("\u2212", "-")


def _mark_of_column(texts: Sequence[str], name: str, where: str, mark: Mark) -> Mark:
    """Find the decimal mark of all numbers of a column.

    Raises:
        InvalidInput: the numbers have several marks or units, or their mark is ambiguous.
    """
    known = list(map(_bare, texts))
    shown = {one for one, form in _SHOWN.items() if any(map(form.fullmatch, known))}
    units = {_SIGN.sub(r"\1\3", text) for text in texts}  # 5 % and 5: of one, or of a hundred?
    found = mark_of(shown) or mark
    if (
        len(shown) > 1
        or len(units) > 1
        or (found and not all(map(_NUMBERS[found].fullmatch, known)))
    ):
        raise InvalidInput(
            f"column {name!r} holds numbers that are written in several ways",
            where=where,
            mend="Write all with one decimal mark, one unit or none, and without separators of thousands.",
        )
    unsure = next(filter(_UNSURE.fullmatch, known), None)
    if unsure and not found:
        whole, part = (re.sub("[.,]", one, unsure) for one in ("", "."))
        raise InvalidInput(
            f"column {name!r}: {unsure!r} may be {whole} or {part}",
            where=where,
            mend="Write its numbers with a point and without separators, in a file with commas between its "
            "fields; or store them as numbers and not as texts.",
        )
    return found


def _number(text: str, mark: Mark) -> float:
    """A number whose decimal mark is known; without one it has none."""
    plain = re.sub(_BLANKS, "", text)
    plain = plain.replace(".", "").replace(",", ".") if mark == "," else plain.replace(",", "")
    return float(plain)


def _hours(text: str) -> float:
    """Hours of a time of the day."""
    hours, minutes, *seconds = map(float, text.split(":"))
    return hours + minutes / 60 + sum(seconds) / 3600


def _dates(texts: Array, known: Sequence[str], name: str, where: str) -> Array:
    """Dates of one form, or the texts as they are."""
    forms = {one: re.compile(pattern) for one, pattern in DATES.items()}
    fitting = [one for one, form in forms.items() if form.fullmatch(known[0])]
    if not fitting or not all(
        any(form.fullmatch(text) for form in forms.values()) for text in known
    ):
        return texts
    read = []
    for one in forms:
        if not all(map(forms[one].fullmatch, known)):
            continue
        try:
            read.append([_moment(text, one) for text in known])
        except ValueError:
            continue
    if not read and (strange := next((t for t in known if _no_day(t, forms)), None)):
        raise InvalidInput(
            f"column {name!r} holds dates and {strange!r}, which is no day",
            where=where,
            mend="Write it as 2026-12-24, or leave it empty.",
        )
    if not read:
        raise InvalidInput(
            f"column {name!r} has dates in several forms: {known[0]!r} and "
            f"{next((t for t in known if not forms[fitting[0]].fullmatch(t)), known[-1])!r}",
            where=where,
            mend="Write all as 2026-12-24.",
        )
    if len({":" in text and _ZONE.search(text) is not None for text in known}) > 1:
        raise some_zones(name, where)
    if len(read) > 1 and read[0] != read[1]:
        raise InvalidInput(
            f"column {name!r}: {known[0]!r} may be a day and a month or a month and a day",
            where=where,
            mend="Write its dates as 2026-12-24.",
        )
    dates = iter(read[0])
    return np.array(
        [np.datetime64("NaT") if text is None else next(dates) for text in texts],
        dtype="datetime64[ms]",
    )


def _no_day(text: str, forms: Mapping[str, re.Pattern[str]]) -> bool:
    """Check whether a text looks like a date but is none, such as 31 February or a month in French."""
    for one, form in forms.items():
        if form.fullmatch(text):
            try:
                _moment(text, one)
            except ValueError:
                continue
            return False
    return True


def _moment(text: str, form: str) -> datetime:
    """Parse a date, with or without a time of the day, in a form of :data:`DATES`; convert it to UTC."""
    if "%H" not in form:
        return datetime.strptime(text, form)
    zone = _ZONE.search(text)
    bare = text[: zone.start()] if zone else text
    bare = bare.replace("T", " ").partition(".")[0]
    found = datetime.strptime(bare if bare.count(":") == 2 else f"{bare}:00", form)
    if zone is None or zone[1] == "Z":
        return found
    ahead = timedelta(hours=int(zone[3]), minutes=int(zone[4] or 0))
    return found - ahead if zone[2] == "+" else found + ahead


def some_zones(name: str, where: str, *, times: bool = False) -> InvalidInput:
    """Make an error for a column that cannot be converted to UTC.

    Args:
        name: name of the column.
        where: the table.
        times: whether it holds times of the day, and no dates.

    Returns:
        The error, not raised.
    """
    return InvalidInput(
        f"column {name!r} holds {'times of the day with' if times else 'dates with and without'} a time zone",
        where=where,
        mend="Write all without one, or as dates with one." if times else "Write all in UTC.",
    )
