"""Columns of CSV, Parquet and Excel files.

Of a CSV the separator and the encoding are found out: the separator is the one by which most lines have the
same number of fields, more than one; the encoding UTF-8, with or without a mark in front, or else that of
Windows (cp1252). A file with letters of both encodings is refused. The decimal mark is decided for the whole
file; digits with a leading zero and ``1E5`` stay texts (:mod:`consilience.validation.table_texts`).
"""

from __future__ import annotations

import csv as lines
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.data.files import check_is_file, check_unpacked_size
from consilience.data.npz import array_names, read_arrays
from consilience.errors import InvalidInput, MissingExtra, nearest
from consilience.validation.arrays import Array
from consilience.validation.memory import check_memory
from consilience.validation.table_texts import Mark, mark_of, marks_shown
from consilience.validation.tables import GAPS, Table, check_names, is_text_column

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".npz")
"""Endings of files that hold a table."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Characters that may stand between the fields of a line."""

_LOOKED_AT = 1 << 16
"""Characters of a file that the separator is told by."""

_GAPS_AS_WRITTEN = sorted(
    {spelling for gap in GAPS for spelling in (gap, gap.upper(), gap.title())}
)

_MOST_LINES, _LARGE_SHEET, _LEAST_FILLED = 1 << 20, 1_000_000, 1_000
"""Rows of a sheet; cells of one that is refused if less than one in so many has a value."""

_FEW_VALUES = 1_000
"""Values of a column that may be classes or groups."""

_CODE = r"^\s*[-+]?0\d|0[xX]|\d[eE]\d"
_THOUSANDS = r"^\s*[-+]?[1-9]\d{0,2}\.\d{3}\s*$"
_LONG = r"^\s*[-+]?\d{17}"
_POINT = r"^\s*[-+]?(\d{4,}|0)?\.|^\s*[-+]?\d{1,3}\.(\d{1,2}|\d{4,})?(\s*$|[eE])|\.\d*[eE]"
"""Forms of numbers for pyarrow: codes, perhaps thousands, more digits than a float has, a decimal point."""

_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""A letter of UTF-8 beyond ASCII."""


def load_column(path: Path, name: str) -> Array:
    """Load one column of a table, or one array of an ``.npz``, which has to have a value in every row.

    Args:
        path: a file that :func:`read_table` reads, or an ``.npz``.
        name: of the column.

    Raises:
        InvalidInput: there is none of that name, or values are missing.
    """
    if path.suffix == ".npz":
        there = array_names(path)
        found = read_arrays(path, [name]) if name in there else {}
    else:
        found = dict(read_table(path).columns)
        there = list(found)
    if name not in found:
        raise InvalidInput(
            f"there is no column {name!r}", where=str(path), mend=nearest(name, there)
        )
    if any(one is None or one != one for one in found[name].ravel().tolist()):
        raise InvalidInput(f"rows have no value in {name!r}", where=str(path))
    return found[name]


def read_table(path: Path, rows: Array | None = None) -> Table:
    """Read a CSV, Parquet or Excel file; of an Excel file the first sheet.

    Args:
        path: the file, with the names of its columns in the first line.
        rows: mask of the rows to read, as if the file held no others; by default all.

    Raises:
        InvalidInput: no such file, another ending, two columns of one name, or it cannot be read.
        MissingExtra: an Excel file, and openpyxl is not installed.
    """
    import pyarrow as arrow

    if path.is_dir():
        check_is_file(path)
    if path.suffix not in SUFFIXES:
        raise InvalidInput(
            f"cannot read {path.suffix or 'a file without ending'}",
            where=str(path),
            mend=f"Known: {', '.join(SUFFIXES)}.",
        )
    check_is_file(path)
    try:
        if path.suffix == ".xlsx":
            return _from_excel(path, rows)
        read = _from_parquet if path.suffix == ".parquet" else _from_csv
        found = read(path, rows)
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    return Table.of(found, where=str(path))


def _from_csv(path: Path, rows: Array | None) -> Table:
    import pyarrow as arrow
    from pyarrow import csv

    check_memory(8 * path.stat().st_size, "what it holds", where=str(path))
    content = path.read_bytes()
    if not content.strip():
        # pyarrow says so too, and may then abort the process while its threads end
        raise InvalidInput("the file is empty", where=str(path))
    text = _decoded(content, path).lstrip("\r\n")
    separator = _separator(text[:_LOOKED_AT], path)
    header = _names([name.strip() for name in _first_line(text, separator, path)])
    check_names(header, where=str(path))
    data = text.encode()
    form = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    if rows is not None:  # written again as texts: no other row decides the kind of a column
        whole = csv.read_csv(
            arrow.py_buffer(data),
            csv.ReadOptions(autogenerate_column_names=True),
            form,
            csv.ConvertOptions(column_types={f"f{i}": arrow.string() for i in range(len(header))}),
        )
        chosen = io.BytesIO()
        plain = csv.WriteOptions(include_header=False, delimiter=separator)
        csv.write_csv(whole.filter([True, *rows]), chosen, plain)
        data = chosen.getvalue()

    def read(kinds: Mapping[str, Any], only: Sequence[str] = ()) -> dict[str, Any]:
        found = csv.read_csv(
            arrow.py_buffer(data),
            csv.ReadOptions(column_names=header, skip_rows_after_names=1),
            form,
            csv.ConvertOptions(
                null_values=_GAPS_AS_WRITTEN,
                strings_can_be_null=True,
                column_types=kinds,
                include_columns=list(only),
            ),
        )
        return dict(zip(found.column_names, found.columns, strict=True))

    found = read({})
    numbers = [name for name, one in found.items() if str(one.type) in ("int64", "double")]
    written = read(dict.fromkeys(numbers, arrow.string()), numbers) if numbers else {}
    mark = _decimal_mark(found, written)
    for name, texts in written.items():
        if _stays_text(texts, found[name], mark, separator):
            found[name] = texts
    return Table.of(found, where=str(path), mark=mark)


def _decimal_mark(found: Mapping[str, Any], written: Mapping[str, Any]) -> Mark:
    """The decimal mark that all columns of numbers of a file show, if they show one.

    Args:
        found: the file's columns.
        written: the texts of those that pyarrow takes for numbers.
    """
    import pyarrow.compute as compute

    texts = (one for one in found.values() if str(one.type) == "string")
    shown = {mark for one in texts for mark in marks_shown(compute.unique(one).to_pylist())}
    parts = (written[name] for name, one in found.items() if str(one.type) == "double")
    return mark_of(shown | {"."} if any(_any(one, _POINT) for one in parts) else shown)


def _stays_text(written: Any, read: Any, mark: Mark, separator: str) -> bool:
    """Tell whether numbers that pyarrow reads may be something else, or lose what tells them apart.

    They may be codes, or thousands with points. Two texts may be one number: 1.1 and 1.10, or whole numbers
    of 17 digits and more.
    """
    import pyarrow.compute as compute

    if str(read.type) == "int64":
        return _any(written, _CODE)
    if _any(written, f"{_CODE}|{_LONG}"):
        return True
    unsure = mark == "," or (mark == "" and separator != ",")
    if unsure and _any(written, _THOUSANDS) and not _any(written, _POINT):
        return True
    values = compute.unique(read)
    return len(values) <= _FEW_VALUES and len(compute.unique(written)) > len(values)


def _any(texts: Any, pattern: str) -> bool:
    import pyarrow.compute as compute

    return bool(compute.any(compute.match_substring_regex(texts, pattern)).as_py())


def _decoded(content: bytes, path: Path) -> str:
    """The text of a file: UTF-8 or UTF-16 with a mark, or else the encoding of Windows.

    Raises:
        InvalidInput: it is none of these, or partly one and partly another.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = _of_windows(content, error, path)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(
            f"line {line:,} holds a zero byte: it is no text, or of an encoding that is not known",
            where=str(path),
            mend="Save it as UTF-8.",
        )
    return text


def _of_windows(content: bytes, error: UnicodeDecodeError, path: Path) -> str:
    """The text of a file that is not UTF-8, unless parts of it are."""
    line = content.count(b"\n", 0, error.start) + 1
    if _UTF_8.search(content):
        raise InvalidInput(
            f"line {line:,} holds the byte 0x{content[error.start]:02X}, which is not UTF-8, and other lines "
            "hold letters that are",
            where=str(path),
            mend="Write that line again in UTF-8: the file has two encodings, or is damaged.",
        )
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError as other:
        line = content.count(b"\n", 0, other.start) + 1
        raise InvalidInput(
            f"line {line:,} holds the byte 0x{content[other.start]:02X}: it is neither UTF-8 nor the "
            "encoding of Windows (cp1252)",
            where=str(path),
            mend="Save it as UTF-8.",
        ) from None


def _first_line(text: str, separator: str, path: Path) -> list[str]:
    """The fields of a file's first line.

    Raises:
        InvalidInput: a quote in it is not closed, or a name is too long.
    """
    try:
        found = lines.reader(io.StringIO(text, newline=""), delimiter=separator)
        return next(filter(None, found), [])
    except lines.Error as error:
        raise InvalidInput(
            f"its first line cannot be read: {error}",
            where=str(path),
            mend="The first line has the names of the columns; is a quote in it not closed?",
        ) from error


def _names(given: Sequence[str]) -> list[str]:
    """Names of columns; one without a name is called by its place."""
    return [name or f"column {place + 1}" for place, name in enumerate(given)]


def _separator(text: str, path: Path) -> str:
    """The separator by which most lines have the same number of fields, two or more.

    Raises:
        InvalidInput: two do as well as one another, or none does and there are blanks.
    """
    sample = "".join(text.splitlines(keepends=True)[:200])
    fitting: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        try:
            fields_of = [
                len(line)
                for line in lines.reader(io.StringIO(sample, newline=""), delimiter=separator)
                if line
            ]
        except lines.Error:
            continue
        (fields, times), *_ = Counter(fields_of).most_common(1) or [(0, 0)]
        if fields > 1 and fields_of[0] == fields:
            fitting[separator] = times / len(fields_of), fields
    best = [one for one in fitting if fitting[one] == max(fitting.values())]
    if len(best) > 1:
        raise InvalidInput(
            f"its fields may stand between {' or '.join(SEPARATORS[one] for one in best)}",
            where=str(path),
            mend="Write it with one of them, and texts that hold the other in quotes.",
        )
    header, *body = [line.split() for line in sample.splitlines()[:100]] or [[]]
    if not best and len(header) > 1 and sum(map(len, body)) >= len(header) * len(body) > 0:
        raise InvalidInput(
            "its fields seem to stand between blanks",
            where=str(path),
            mend=f"Write it with {', '.join(list(SEPARATORS.values())[:-1])} or bars between them.",
        )
    return best[0] if best else ","


def _from_excel(path: Path, rows: Array | None) -> Table:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtra("openpyxl", extra="excel", where=str(path)) from error
    try:
        with zipfile.ZipFile(path) as packed:
            unpacked = sum(part.file_size for part in packed.infolist())
        check_memory(4 * unpacked, "what it holds", where=str(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and rules of input, which change no value
            book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
            try:
                header, *body = _sheet(book.worksheets[0], path)
            finally:
                book.close()
    except InvalidInput:
        raise
    except Exception as error:  # whatever openpyxl makes of a damaged file
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    width = max(map(len, [header, *body]))
    check_memory(16 * width * len(body), f"its {len(body):,} rows", where=str(path))
    names = _names([*(str(name or "").strip() for name in header), *[""] * (width - len(header))])
    check_names(names, where=str(path))
    if rows is not None:
        body = [line for line, kept in zip(body, rows, strict=True) if kept]
    columns = {name: np.full(len(body), None, dtype=object) for name in names}
    for place, column in enumerate(columns.values()):
        column[:] = [line[place] if place < len(line) else None for line in body]
    return Table.of(columns, where=str(path))


def _sheet(sheet: Any, path: Path) -> list[list[Any]]:
    """Values of a sheet by rows, from the first row that has one to the last; a row ends with its last value.

    Raises:
        InvalidInput: there are none, or it is nearly empty and so large that no table can be meant.
    """
    sheet.reset_dimensions()  # a file may declare any
    found, empty = list[list[Any]](), list[Any]()
    width = filled = 0
    for cells in sheet.rows:
        values = [_value(cell) for cell in cells]
        while values and values[-1] is None:
            values.pop()
        if values or found:
            found.append(values or empty)
        width, filled = max(width, len(values)), filled + len(values) - values.count(None)
        size = len(found) * width
        if len(found) > _MOST_LINES or (size > _LARGE_SHEET and filled < size / _LEAST_FILLED):
            raise InvalidInput(
                f"{filled:,} cells with a value lie in {len(found):,} rows and {width:,} columns",
                where=str(path),
                mend="Delete the cells that lie apart from the table, with their rows or columns; or save "
                "it as CSV.",
            )
    while found and not found[-1]:
        found.pop()
    if not found:
        raise InvalidInput("there are no rows", where=str(path))
    return found


def _value(cell: Any) -> Any:
    """The value of a cell; of an error such as #DIV/0! none."""
    value = None if cell.data_type == "e" or cell.value == "" else cell.value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _from_parquet(path: Path, rows: Array | None) -> Any:
    """Read a Parquet file that declares no more than there is memory for.

    Values that repeat take a few bytes for any number of rows.
    """
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    check_names(schema.names, where=str(path))
    # One text for all rows that have it.
    shared = [name for name in schema.names if is_text_column(schema.field(name).type)]
    with parquet.ParquetFile(path, read_dictionary=shared) as file:
        about = file.metadata
        unpacked = 24 * len(schema.names) * about.num_rows + sum(
            group.column(place).total_uncompressed_size
            for group in map(about.row_group, range(about.num_row_groups))
            for place in range(about.num_columns)
        )
        check_unpacked_size(unpacked, about.num_rows, path)
        found = file.read()
        return found if rows is None else found.filter(rows)
