"""Columns of CSV, Parquet and Excel files.

Of a CSV the separator and the encoding are found out: the separator is the one by which most lines have the
same number of fields, more than one; the encoding UTF-8, with or without a mark in front, or else that of
Windows (cp1252, which Latin-1 is a part of). Decimal marks are told column by column
(:func:`consilience.validation.tables.read_texts`).
"""

from __future__ import annotations

import csv as lines
import io
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from consilience.data.files import check_is_file, check_unpacked_size
from consilience.data.npz import array_names, read_arrays
from consilience.errors import InvalidInput, MissingExtra, nearest
from consilience.validation.arrays import Array
from consilience.validation.memory import check_memory
from consilience.validation.tables import GAPS, Table, check_names, is_text_column

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".npz")
"""Endings of files that hold a table."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Characters that may stand between the fields of a line."""

_LOOKED_AT = 1 << 16
"""Characters of a file that the separator is told by."""


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


def _from_csv(path: Path, rows: Array | None) -> Any:
    import pyarrow as arrow
    from pyarrow import csv

    check_memory(8 * path.stat().st_size, "what it holds", where=str(path))
    content = path.read_bytes()
    if not content.strip():
        # pyarrow says so too, and may then abort the process while its threads end
        raise InvalidInput("the file is empty", where=str(path))
    encoding = _encoding(content)
    text = content.decode(encoding)
    separator = _separator(text[:_LOOKED_AT], path)
    header = next(lines.reader(io.StringIO(text), delimiter=separator), [])
    check_names([name.strip() for name in header], where=str(path))
    gaps = sorted({spelling for gap in GAPS for spelling in (gap, gap.upper(), gap.title())})
    data = io.BytesIO(text.encode())
    form = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    if rows is not None:  # written anew as texts: no other row says of what kind a column is
        whole = csv.read_csv(
            data,
            csv.ReadOptions(autogenerate_column_names=True),
            form,
            csv.ConvertOptions(column_types={f"f{i}": arrow.string() for i in range(len(header))}),
        )
        data = io.BytesIO()
        plain = csv.WriteOptions(include_header=False, delimiter=separator)
        csv.write_csv(whole.filter([True, *rows]), data, plain)
        data.seek(0)
    return csv.read_csv(
        data,
        parse_options=form,
        convert_options=csv.ConvertOptions(null_values=gaps, strings_can_be_null=True),
    )


def _encoding(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _separator(text: str, path: Path) -> str:
    """The separator by which most lines have the same number of fields, two or more.

    Raises:
        InvalidInput: two do as well as one another, or none does and there are blanks.
    """
    sample = "".join(text.splitlines(keepends=True)[:200])
    fitting: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        counts = Counter(
            len(line) for line in lines.reader(io.StringIO(sample), delimiter=separator) if line
        )
        (fields, times), *_ = counts.most_common(1) or [(0, 0)]
        header = next(lines.reader(io.StringIO(sample), delimiter=separator), [])
        if fields > 1 and len(header) == fields:
            fitting[separator] = times / counts.total(), fields
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
    import pandas as pd

    try:
        with zipfile.ZipFile(path) as packed:
            unpacked = sum(part.file_size for part in packed.infolist())
        check_memory(4 * unpacked, "what it holds", where=str(path))
        frame = pd.read_excel(path, dtype=object, header=None)
    except ImportError as error:
        raise MissingExtra("openpyxl", extra="excel", where=str(path)) from error
    except InvalidInput:
        raise
    except Exception as error:  # whatever openpyxl makes of a damaged file
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    if not len(frame):
        raise InvalidInput("there are no rows", where=str(path))
    names = [str(name).strip() for name in frame.iloc[0]]
    check_names(names, where=str(path))
    body = frame.iloc[1:] if rows is None else frame.iloc[1:][rows]
    return Table.of(
        {name: body[place].to_numpy() for place, name in enumerate(names)}, where=str(path)
    )


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
