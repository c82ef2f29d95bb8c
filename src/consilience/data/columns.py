"""Columns of CSV and Parquet files, by pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from consilience.data.files import check_is_file, check_unpacked_size
from consilience.errors import InvalidInput
from consilience.validation.arrays import Array

SUFFIXES = (".csv", ".parquet", ".npz")
"""Endings of files that hold a table."""

Read = Callable[[Sequence[str]], Any]
"""Columns by name to a pyarrow table of them."""


def open_columns(path: Path) -> tuple[Any, Read]:
    """Return the pyarrow schema of a CSV or Parquet file, and a function that reads columns by name.

    Args:
        path: the file.

    Raises:
        InvalidInput: no such file, another ending, or it cannot be read.
    """
    import pyarrow as arrow
    from pyarrow import csv, parquet

    if path.suffix not in SUFFIXES:
        raise InvalidInput(
            f"cannot read {path.suffix or 'a file without ending'}",
            where=str(path),
            mend=f"Known: {', '.join(SUFFIXES)}.",
        )
    check_is_file(path)
    try:
        if path.suffix == ".csv":
            table = csv.read_csv(path)
            return table.schema, table.select
        schema = parquet.read_schema(path)
        return schema, partial(_from_parquet, path, schema)
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _from_parquet(path: Path, schema: Any, names: Sequence[str]) -> Any:
    """Read columns of a Parquet file that declares no more than there is memory for.

    Values that repeat take a few bytes for any number of rows.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    # One text for all rows that have it.
    shared = [name for name in names if _is_text(schema.field(name).type)]
    try:
        with parquet.ParquetFile(path, read_dictionary=shared) as file:
            about = file.metadata
            unpacked = 24 * len(names) * about.num_rows + sum(
                column.total_uncompressed_size
                for group in map(about.row_group, range(about.num_row_groups))
                for column in map(group.column, range(about.num_columns))
                if {column.path_in_schema, column.path_in_schema.partition(".")[0]} & {*names}
            )
            check_unpacked_size(unpacked, about.num_rows, path)
            return file.read(columns=list(names))
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def is_number_column(kind: Any) -> bool:
    """True for a pyarrow type of numbers, booleans or nothing but gaps, also as a dictionary's values."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def to_numpy(column: Any) -> Array:
    """Turn a pyarrow column into numbers (gaps as NaN), booleans or ``str`` (gaps as None)."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) and not is_number_column(kind):
        # Not one copy of the text for each row that has it.
        whole = column.combine_chunks()
        known = np.append(whole.dictionary.to_numpy(zero_copy_only=False), [None])
        texts: Array = known[whole.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return texts
    if types.is_dictionary(kind):  # pandas' categories
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast("float64")
    elif column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        column = column.cast("int64").cast("float64", safe=False)
    array: Array = column.to_numpy()
    return array
