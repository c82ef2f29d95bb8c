"""Columns of CSV (:mod:`consilience.tables.files.csv_files`), Parquet and Excel files."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, MissingExtra, nearest
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory
from consilience.tables.files.csv_files import read_csv
from consilience.tables.files.npz import array_names, read_arrays
from consilience.tables.files.sizes import check_is_file, check_unpacked_size
from consilience.tables.table import Table, check_names, is_text_column, named_by_place

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".npz")
"""Endings of the names of table files."""

_MOST_LINES, _LARGE_SHEET, _LEAST_FILLED = 1 << 20, 1_000_000, 1_000
"""Most rows of a sheet; cells of a large sheet, which is refused if less than one in so many has a value."""


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
        read = _from_parquet if path.suffix == ".parquet" else read_csv
        found = read(path, rows)
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    return Table.of(found, where=str(path))


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
            with path.open("rb") as file:  # openpyxl leaves a damaged one open
                book = openpyxl.load_workbook(
                    file, read_only=True, data_only=True, keep_links=False
                )
                header, *body = _sheet(book.worksheets[0], path)
    except InvalidInput:
        raise
    except Exception as error:  # whatever openpyxl makes of a damaged file
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    width = max(map(len, [header, *body]))
    check_memory(16 * width * len(body), f"its {len(body):,} rows", where=str(path))
    names = named_by_place(
        [*(str(name or "").strip() for name in header), *[""] * (width - len(header))]
    )
    check_names(names, where=str(path))
    if rows is not None:
        body = [line for line, kept in zip(body, rows, strict=True) if kept]
    columns = {name: np.full(len(body), None, dtype=object) for name in names}
    for place, column in enumerate(columns.values()):
        column[:] = [line[place] if place < len(line) else None for line in body]
    return Table.of(columns, where=str(path))


def _sheet(sheet: Any, path: Path) -> list[list[Any]]:
    """List the values of a sheet by rows, without empty rows around them or gaps at a row's end.

    Raises:
        InvalidInput: the sheet is empty, or nearly empty and too large to be a table.
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
