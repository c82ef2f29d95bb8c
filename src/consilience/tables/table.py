"""Tables as they come: columns with names, of numbers, truth values, dates or texts, with gaps.

A pandas table, any table with ``__arrow_c_stream__`` (pyarrow, polars) or a mapping of names to columns
becomes one :class:`Table`. A time of the day is hours, a duration is days, and a date with a time zone is
converted to UTC. Texts stay texts here; :func:`consilience.tables.texts.read_texts` reads those
that are numbers, times or dates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, time, timedelta
from typing import Any, ClassVar

import numpy as np

from consilience.core.errors import ConsilienceError, InvalidInput
from consilience.core.validation.arrays import Array, unmasked
from consilience.core.validation.labels import composed, is_gap
from consilience.core.validation.printing import prints_no_rows
from consilience.tables.texts import Mark, mark_of, marks_shown, some_zones

GAPS = frozenset(
    (
        *("", "?", "na", "n/a", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "<na>", "nat"),
        *("1.#ind", "1.#qnan", "-1.#ind", "-1.#qnan"),
    )
)
"""Texts that stand for a missing value, in small letters."""

MOST_READ = 100_000
"""Columns of a table; a schema takes fewer of them."""


@prints_no_rows
@dataclass(frozen=True)
class Table:
    """Columns by name, in their order.

    Attributes:
        columns: name to values, shape ``(n,)``: numbers (gaps are NaN), truth values, days since 1970 as
            ``datetime64``, or an object array of ``str`` with ``None`` for a gap.
        mark: decimal mark of numbers in texts, as determined from the whole table.
    """

    is_table: ClassVar[bool] = True
    """Marks the class as a table for the core package."""

    columns: Mapping[str, Array]
    mark: Mark = ""

    @classmethod
    def of(cls, table: Any, *, where: str, mark: Mark | None = None) -> Table:
        """Read a pandas table, one with ``__arrow_c_stream__``, or a mapping of names to columns.

        Args:
            table: the table to read.
            where: owner of the table, for errors.
            mark: decimal mark of its texts; by default determined from the texts.

        Returns:
            The table.

        Raises:
            InvalidInput: two columns of one name, columns of other lengths, values that cannot be read, or no
                table at all.
        """
        if isinstance(table, Table):
            return table
        if not hasattr(table, "iloc") and hasattr(table, "__arrow_c_stream__"):
            table = _arrow_table(table, where)
        if hasattr(table, "column_names"):
            names, column = list(table.column_names), table.column
        elif isinstance(table, Mapping):
            names, column = list(table), table.__getitem__
        else:
            names, column = list(table.columns), lambda name: table[name]
        texts = named_by_place([composed(str(name)).strip() for name in names])
        check_names(texts, where=where)
        found = {
            text: _readable_column(column(name), text, where)
            for text, name in zip(texts, names, strict=True)
        }
        if len({len(values) for values in found.values()}) > 1:
            raise InvalidInput("its columns are not of one length", where=where)
        if mark is None:
            texts_only = [values for values in found.values() if values.dtype.kind == "O"]
            mark = mark_of(one for values in texts_only for one in marks_shown(values))
        return cls(found, mark)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def take(self, rows: Array) -> Table:
        """Select rows by index or mask."""
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})

    def only(self, names: Sequence[str]) -> Table:
        """Select columns by name."""
        return replace(self, columns={name: self.columns[name] for name in names})


def is_text(values: Array) -> bool:
    """Check whether a column holds mostly different texts of several words, such as posts and letters."""
    if values.dtype != object:
        return False
    known = {text for text in values if text is not None}
    return len(known) > len(values) / 2 and sum(" " in text for text in known) > len(known) / 2


def text_rows(table: Table) -> Array | None:
    """Return the texts of a table whose only column holds texts, shape ``(n,)``; ``None`` for others."""
    values = next(iter(table.columns.values()), np.zeros(0))
    if len(table.columns) != 1 or not is_text(values):
        return None
    texts = np.empty(len(values), dtype=object)
    texts[:] = [text or "" for text in values]
    return texts


def named_by_place(given: Sequence[str]) -> list[str]:
    """Return names of columns; one without a name is called by its place."""
    return [name or f"column {place + 1}" for place, name in enumerate(given)]


def check_names(names: Sequence[str], *, where: str) -> None:
    """Raise ``InvalidInput`` if two columns have one name, or there are more than :data:`MOST_READ`."""
    if len(names) > MOST_READ:
        raise InvalidInput(
            f"the table has {len(names):,} columns, of at most {MOST_READ:,}",
            where=where,
            mend="Are rows and columns exchanged, or is there a row of separators alone?",
        )
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise InvalidInput(
            f"columns that appear twice: {', '.join(twice)}",
            where=where,
            mend="Give every column a name of its own.",
        )


def _arrow_table(table: Any, where: str) -> Any:
    """A pyarrow table of an object with ``__arrow_c_stream__``."""
    import pyarrow as arrow

    if isinstance(table, arrow.Table):
        return table
    try:
        return arrow.table(table)
    except Exception as error:  # of whatever library the object is from
        raise InvalidInput(
            f"{type(table).__name__} gives no table: {type(error).__name__}", where=where
        ) from error


def _readable_column(values: Any, name: str, where: str) -> Array:
    """Read the values of one column, and convert an error of their library to ``InvalidInput``."""
    try:
        return _column(values, name, where)
    except ConsilienceError:
        raise
    except Exception as error:  # its text may hold a value
        raise InvalidInput(
            f"column {name!r} holds values that cannot be read ({type(error).__name__})",
            where=where,
            mend="Write them as numbers, texts, dates or truth values.",
        ) from error


def _column(values: Any, name: str, where: str) -> Array:
    """Values of one column, as :class:`Table` has them."""
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):  # a pandas series
        dtype = values.dtype
        if not hasattr(values, "to_numpy"):
            what = f"column {name!r} is a {type(values).__name__}, which is no column in memory"
            raise InvalidInput(what, where=where, mend="Give a table of pandas, pyarrow or polars.")
        if getattr(dtype, "tz", None) is not None:
            values = values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        elif not isinstance(dtype, np.dtype):
            gaps = np.asarray(values.isna())
            values = (
                values.to_numpy(dtype=object, na_value=None) if gaps.any() else values.to_numpy()
            )
        else:
            values = values.to_numpy()
    elif hasattr(values, "to_numpy") and hasattr(values, "null_count"):
        values = _of_arrow(values, name, where)
    values = np.asarray(unmasked(values))
    if values.ndim != 1:
        raise InvalidInput(f"column {name!r} has shape {values.shape}", where=where)
    found: Array = values
    if found.dtype.kind == "M":
        return found.astype("datetime64[ms]")
    if found.dtype.kind == "m":
        return _days(found)
    if found.dtype.kind in "fiub":
        return found
    if values.dtype.kind not in "OUS":
        raise InvalidInput(f"column {name!r} is of {values.dtype}", where=where)
    return _of_objects(values, name, where)


def _days(durations: Array) -> Array:
    """Durations as days; gaps are NaN."""
    return np.asarray(durations / np.timedelta64(1, "D"))


def _of_arrow(column: Any, name: str, where: str) -> Array:
    """Read the values of a pyarrow column; the error for an unsupported type names the type."""
    from pyarrow import ArrowException, types

    if not types.is_nested(column.type) or types.is_dictionary(column.type):
        try:
            return from_arrow(column)
        except ArrowException as error:
            raise _no_column(name, column.type, where) from error
    raise _no_column(name, column.type, where)


def _no_column(name: str, kind: object, where: str) -> InvalidInput:
    return InvalidInput(
        f"column {name!r} is of type {kind}, which is not read",
        where=where,
        mend="Make numbers, truth values, dates or texts of it, or leave it out.",
    )


def _of_objects(values: Array, name: str, where: str) -> Array:
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
    # Before whole numbers: NumPy's durations are some too.
    if all(isinstance(one, timedelta | np.timedelta64) for one in known):
        day = timedelta(days=1)  # not by an array, whose microseconds may overflow
        return np.array([np.nan if one is None else float(one / day) for one in found])
    whole = len(known) == len(found) and all(isinstance(one, int | np.integer) for one in known)
    if whole and all(abs(int(one)) < 1 << 63 for one in known):
        return found.astype(np.int64)
    if all(isinstance(one, int | float | np.number) for one in known) or all(
        type(one).__name__ == "Decimal" for one in known
    ):
        return _numbers(found)
    if all(hasattr(one, "isoformat") or isinstance(one, timedelta) for one in known):
        return _moments(found, name, where)
    if nested := next(
        (one for one in known if isinstance(one, list | tuple | dict | set | np.ndarray)), None
    ):
        raise _no_column(name, type(nested).__name__, where)
    for i, one in enumerate(found):
        if one is not None and type(one) is not str:
            found[i] = _text(one)
    return found


def _moments(values: Array, name: str, where: str) -> Array:
    """Dates as ``datetime64``, those with a time zone in UTC; times of the day as hours."""
    known = [one for one in values if one is not None]
    kinds = {_kind(one) for one in known}
    if len(kinds) > 1:
        what = f"column {name!r} holds {' and '.join(sorted(kinds, reverse=True))}"
        raise InvalidInput(what, where=where, mend="Make a column of each.")
    times = isinstance(known[0], time)
    zoned = [one for one in known if getattr(one, "tzinfo", None) is not None]
    if zoned and (times or len(zoned) < len(known)):
        raise some_zones(name, where, times=times)
    if times:
        return np.array([np.nan if one is None else _hours(one) for one in values])
    told = (one.astimezone(UTC) if zoned and one is not None else one for one in values)
    return np.array(
        [None if one is None else one.isoformat()[:19] for one in told], dtype="datetime64[ms]"
    )


def _kind(value: Any) -> str:
    if isinstance(value, time):
        return "times of the day"
    return "durations" if isinstance(value, timedelta) else "dates"


def _hours(value: time) -> float:
    """Hours of a time of the day."""
    return value.hour + value.minute / 60 + (value.second + value.microsecond / 1e6) / 3600


def _gap_or(value: Any) -> Any:
    """Convert a value of a column; return ``None`` for a missing one."""
    if is_gap(value) or (isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value)):
        return None
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    if isinstance(value, str):
        value = composed(value).strip()
        return None if value.lower() in GAPS else value
    # pandas' months, quarters and the like
    return value.start_time if type(value).__name__ == "Period" else value


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
    if types.is_dictionary(kind) and is_text_column(inner):
        # Not one copy of the text for each row that has it.
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        known = np.append(whole.dictionary.to_numpy(zero_copy_only=False), [None])
        texts: Array = known[whole.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return texts
    if types.is_dictionary(kind):  # pandas' categories
        column, kind = column.cast(inner), inner
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast("float64")
    elif column.null_count and types.is_boolean(kind):
        column = column.cast("uint8").cast("float64")
    elif column.null_count and types.is_integer(kind):
        column = column.cast("float64", safe=False)
    elif types.is_time(kind):
        column = column.cast("string", safe=False)
    elif types.is_temporal(kind) and not types.is_duration(kind):  # a time zone: converted to UTC
        column = column.cast("timestamp[ms]", safe=False)
    array: Array = column.to_numpy()
    return array


def is_text_column(kind: Any) -> bool:
    """True for a pyarrow type of texts or bytes."""
    from pyarrow import types

    texts = (types.is_string, types.is_large_string, types.is_string_view)
    binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(kind) for test in (*texts, *binary))
