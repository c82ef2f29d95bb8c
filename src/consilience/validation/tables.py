"""Tables as they come: columns with names, of numbers, truth values, dates or texts, with gaps.

A pandas or pyarrow table, or a mapping of names to columns, becomes one :class:`Table`. A column of texts
that says numbers or dates in one way is read as such: ``1,234`` of a spreadsheet, ``3,14``, ``45 %``, ``$5``,
``24.12.2026``; a time of the day is hours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import InvalidInput
from consilience.validation.arrays import Array
from consilience.validation.printing import prints_no_rows

GAPS = frozenset(
    ["", "?", "na", "n/a", "#n/a", "nan", "-nan", "null", "<na>", "nat", "1.#ind", "1.#qnan"]
)
"""Texts that stand for a missing value, in small letters."""

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
    "%Y-%m-%d %H:%M:%S": r"\d{4}-\d{1,2}-\d{1,2}[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?",
}
"""Forms of a date that are read, the first that fits all values of a column."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_SIGN = re.compile(r"([$€£]?)\s*([^$€£%]+?)\s*([%$€£]?)")
_TIME = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?")
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}([ \u00a0\u202f'’]\d{3})+([.,]\d+)?")
_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+),\d+")


@prints_no_rows
@dataclass(frozen=True)
class Table:
    """Columns by name, in their order.

    Attributes:
        columns: name to values, shape ``(n,)``: numbers (gaps are NaN), truth values, days since 1970 as
            ``datetime64``, or an object array of ``str`` with ``None`` for a gap.
    """

    columns: Mapping[str, Array]

    @classmethod
    def of(cls, table: Any, *, where: str) -> Table:
        """Read a pandas or pyarrow table, or a mapping of names to columns.

        Args:
            table: what is to be read.
            where: whose it is, for errors.

        Raises:
            InvalidInput: two columns of one name, columns of other lengths, or no table at all.
        """
        if isinstance(table, Table):
            return table
        if hasattr(table, "column_names"):
            names, column = list(table.column_names), table.column
        elif isinstance(table, Mapping):
            names, column = list(table), table.__getitem__
        else:
            names, column = list(table.columns), lambda name: table[name]
        texts = [str(name).strip() or f"column {i + 1}" for i, name in enumerate(names)]
        check_names(texts, where=where)
        found = {
            text: _column(column(name), text, where)
            for text, name in zip(texts, names, strict=True)
        }
        if len({len(values) for values in found.values()}) > 1:
            raise InvalidInput("its columns are not of one length", where=where)
        return cls(found)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def take(self, rows: Array) -> Table:
        """Select rows by index or mask."""
        return Table({name: values[rows] for name, values in self.columns.items()})

    def only(self, names: Sequence[str]) -> Table:
        """Select columns by name."""
        return Table({name: self.columns[name] for name in names})


def is_table(X: Any) -> bool:
    """Tell whether rows come as a table, whose columns have names."""
    pandas = hasattr(X, "columns") and hasattr(X, "iloc")
    return pandas or hasattr(X, "column_names") or isinstance(X, Table | Mapping)


def is_text(values: Array) -> bool:
    """Tell whether a column holds texts of several words of which most differ, as posts and letters do."""
    if values.dtype != object:
        return False
    known = {text for text in values if text is not None}
    return len(known) > len(values) / 2 and sum(" " in text for text in known) > len(known) / 2


def is_number(text: str) -> bool:
    """Tell whether a text is a number, with whatever decimal mark, separators and sign."""
    signed = _SIGN.fullmatch(text)
    bare = signed[2] if signed else text
    return any(form.fullmatch(bare) for form in (_NUMBER, _THOUSANDS, _GROUPS, _COMMA))


def text_rows(table: Table) -> Array | None:
    """Return the texts of a table whose only column holds texts, shape ``(n,)``; ``None`` for others."""
    values = next(iter(table.columns.values()), np.zeros(0))
    if len(table.columns) != 1 or not is_text(values):
        return None
    texts = np.empty(len(values), dtype=object)
    texts[:] = [text or "" for text in values]
    return texts


def check_names(names: Sequence[str], *, where: str) -> None:
    """Raise ``InvalidInput`` where two columns have one name."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(
            f"columns that appear twice: {', '.join(twice)}",
            where=where,
            mend="Give every column a name of its own.",
        )


def _column(values: Any, name: str, where: str) -> Array:
    """Values of one column, as :class:`Table` has them."""
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):  # a pandas series
        dtype = values.dtype
        if not isinstance(dtype, np.dtype):
            gaps = np.asarray(values.isna())
            values = (
                values.to_numpy(dtype=object, na_value=None) if gaps.any() else values.to_numpy()
            )
        else:
            values = values.to_numpy()
    elif hasattr(values, "to_numpy") and hasattr(values, "null_count"):
        values = from_arrow(values)
    values = np.asarray(values)
    if values.ndim != 1:
        raise InvalidInput(f"column {name!r} has shape {values.shape}", where=where)
    found: Array = values
    if found.dtype.kind == "M":
        return found.astype("datetime64[ms]")
    if found.dtype.kind in "fiub":
        return found
    if values.dtype.kind not in "OUS":
        raise InvalidInput(f"column {name!r} is of {values.dtype}", where=where)
    return _of_objects(values)


def _of_objects(values: Array) -> Array:
    """Python objects as numbers, truth values or dates where all are, else as texts; gaps stay gaps."""
    found = np.empty(len(values), dtype=object)
    if all(
        one is None or type(one) is str for one in values
    ):  # each text that repeats is looked at once
        read = {text: _gap_or(text) for text in dict.fromkeys(values)}
        found[:] = [read[text] for text in values]
    else:
        found[:] = [_gap_or(one) for one in values.tolist()]
    known = [one for one in found if one is not None]
    if not known:
        return np.full(len(values), np.nan)
    if all(isinstance(one, bool | np.bool_) for one in known):
        whole = len(known) == len(found)
        return found.astype(bool) if whole else _numbers(found)
    if all(isinstance(one, int | float | np.number) for one in known) or all(
        type(one).__name__ == "Decimal" for one in known
    ):
        return _numbers(found)
    if all(hasattr(one, "isoformat") for one in known):
        return np.array(
            [None if one is None else one.isoformat()[:19] for one in found], dtype="datetime64[ms]"
        )
    for i, one in enumerate(found):
        if one is not None and type(one) is not str:
            found[i] = _text(one)
    return found


def _gap_or(value: Any) -> Any:
    """A value, or ``None`` for one that is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        value = value.strip()
        return None if value.lower() in GAPS else value
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def _text(value: Any) -> str:
    """A value as a text; whole numbers without the point that a float has."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _numbers(values: Array) -> Array:
    return np.array([np.nan if one is None else float(one) for one in values])


def from_arrow(column: Any) -> Array:
    """Turn a pyarrow column into numbers (gaps as NaN), booleans, dates or ``str`` (gaps as None)."""
    from pyarrow import types

    kind = column.type
    inner = kind.value_type if types.is_dictionary(kind) else kind
    numbers = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_null,
    )
    number = any(test(inner) for test in numbers)
    if types.is_dictionary(kind) and not number:
        # Not one copy of the text for each row that has it.
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        known = np.append(whole.dictionary.to_numpy(zero_copy_only=False), [None])
        texts: Array = known[whole.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return texts
    if types.is_dictionary(kind):  # pandas' categories
        column, kind = column.cast(inner), inner
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast("float64")
    elif column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        column = column.cast("int64").cast("float64", safe=False)
    elif types.is_temporal(kind):
        to = "string" if types.is_time(kind) else "timestamp[ms]"
        column = column.cast(to, safe=False)
    array: Array = column.to_numpy()
    return array


def is_text_column(kind: Any) -> bool:
    """True for a pyarrow type of texts or bytes."""
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def read_texts(texts: Array, name: str, *, where: str) -> Array:
    """Read a column of texts as numbers or dates where all of them say some in one way; else leave it.

    Args:
        texts: object array of ``str`` and ``None``.
        name: of the column, for errors.
        where: whose it is, for errors.

    Returns:
        float64, ``datetime64``, or the texts without blanks at their ends.

    Raises:
        InvalidInput: dates in several forms, or numbers and dates that could be meant in two ways.
    """
    distinct = list(dict.fromkeys(texts))
    if 2 * len(distinct) < len(texts):  # a text that repeats is read once
        found = read_texts(np.array(distinct, dtype=object), name, where=where)
        place = {text: i for i, text in enumerate(distinct)}
        return texts if found.dtype.kind == "O" else found[[place[text] for text in texts]]
    known = [text for text in texts if text is not None]
    if not known:
        return np.full(len(texts), np.nan)
    if all(map(_NUMBER.fullmatch, known)):
        return _numbers(texts)
    if any(map(_GROUPS.fullmatch, known)) and all(map(is_number, known)):
        bare = [None if text is None else re.sub(r"[ \u00a0\u202f'’]", "", text) for text in texts]
        found = read_texts(np.array(bare, dtype=object), name, where=where)
        return texts if found.dtype.kind == "O" else found
    signs = {_SIGN.sub(r"\1\3", text) for text in known}
    if len(signs) == 1 and signs <= {"%", "$", "€", "£"}:
        bare = [None if text is None else _SIGN.sub(r"\2", text).strip() for text in texts]
        found = read_texts(np.array(bare, dtype=object), name, where=where)
        return texts if found.dtype.kind == "O" else found
    if all(map(_TIME.fullmatch, known)):
        return np.array([np.nan if text is None else _hours(text) for text in texts])
    plain = [text for text in known if not _NUMBER.fullmatch(text)]
    thousands, comma = (all(map(form.fullmatch, plain)) for form in (_THOUSANDS, _COMMA))
    if thousands and comma and len(plain) == len(known):
        whole, part = (plain[0].replace(",", mark) for mark in ("", "."))
        raise InvalidInput(
            f"column {name!r}: {plain[0]!r} may be {whole} or {part}",
            where=where,
            mend="Write its numbers with a point and without separators.",
        )
    if thousands or (comma and len(plain) == len(known)) or (comma and not _decimal_points(known)):
        strip, point = (",", ".") if thousands else (".", ",")
        changed = [
            None if text is None else text.replace(strip, "").replace(point, ".") for text in texts
        ]
        return _numbers(np.array(changed, dtype=object))
    return _dates(texts, known, name, where)


def _hours(text: str) -> float:
    """Hours of a time of the day."""
    hours, minutes, *seconds = map(float, text.split(":"))
    return hours + minutes / 60 + sum(seconds) / 3600


def _decimal_points(texts: Sequence[str]) -> bool:
    return any("." in text and "," not in text for text in texts)


def _dates(texts: Array, known: Sequence[str], name: str, where: str) -> Array:
    """Dates of one form, or the texts as they are."""
    from datetime import datetime

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
            stripped = [text.rstrip("Z").replace("T", " ") for text in known]
            if "%H" in one:
                stripped = [
                    (text if text.count(":") == 2 else f"{text}:00").partition(".")[0]
                    for text in stripped
                ]
            read.append([datetime.strptime(text, one) for text in stripped])
        except ValueError:
            continue
    if not read:
        raise InvalidInput(
            f"column {name!r} has dates in several forms: {known[0]!r} and "
            f"{next((t for t in known if not forms[fitting[0]].fullmatch(t)), known[-1])!r}",
            where=where,
            mend="Write all as 2026-12-24.",
        )
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
