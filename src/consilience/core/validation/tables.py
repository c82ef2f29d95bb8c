"""Recognition of tables, whose columns have names; another package reads them.

A package that reads tables registers a module as ``reader`` under ``consilience.tables``, with the functions
of :class:`TableReader`. A party with arrays alone does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np

from consilience.core.messages.columns import Schema
from consilience.core.registry import registered_object
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

Lenient = Literal["refused", "missing"]
"""What becomes of categories that the public rows do not have."""


def is_table(X: Any) -> bool:
    """Tell whether rows come as a table, whose columns have names."""
    if hasattr(X, "__arrow_c_stream__") and not hasattr(X, "iloc"):
        # A single column, such as a series of polars, has a type and no columns.
        return hasattr(X, "columns") or not (hasattr(X, "dtype") or hasattr(X, "type"))
    pandas = hasattr(X, "columns") and hasattr(X, "iloc")
    return pandas or isinstance(X, Mapping) or getattr(type(X), "is_table", False)


@prints_no_rows
@dataclass(frozen=True)
class Rows:
    """Rows of numbers that stand for a table's.

    Attributes:
        X: shape ``(n, d)``; float64, or the numbers as they came where all columns are of one such type.
        schema: their columns; ``None`` where they have no names.
        absent: places of columns that the table lacks, which are gaps in ``X``.
        notes: remarks on the table, for people.
    """

    X: Array
    schema: Schema | None
    absent: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def kept(self) -> list[int]:
        """Places of the columns that the table has."""
        return [i for i in range(self.X.shape[1]) if i not in self.absent]


class RowSource(Protocol):
    """A party's private rows and test rows as it has them, which are read by the public rows' columns."""

    @property
    def tested_alone(self) -> bool:
        """Whether it has test rows alone, which then are the private ones too, for their columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the table's columns."""

    @property
    def renamed(self) -> tuple[str, ...]:
        """The same as the public rows call them."""

    def rows(self) -> tuple[Rows, Array | None]:
        """Read private rows by the schema inferred from them, and test rows if there are any."""

    def rows_by(
        self, schema: Schema, precision: np.dtype[Any], *, discreet: bool
    ) -> tuple[Rows, Array | None]:
        """Read private rows by the schema of public rows, and test rows by their part of it.

        Args:
            schema: the schema.
            precision: data type of the numbers.
            discreet: omit the tables' contents from errors.

        Raises:
            InvalidInput: the tables do not match the schema.
        """

    def remarks(self, y: Array) -> tuple[str, ...]:
        """Return notes for people on columns that reveal the targets."""


class TableReader(Protocol):
    """Interface for packages that read tables; they register an implementation."""

    def public_rows(
        self, table: Any, *, where: str
    ) -> tuple[Array, Schema | None, tuple[str, ...]]:
        """Read public rows: texts or numbers, their schema, and remarks.

        Raises:
            InvalidInput: they cannot be read.
        """

    def row_source(self, X: Any, tests: Any, *, where: str) -> RowSource | None:
        """Take the inputs and the test inputs of a party; ``None`` unless they are a table of columns.

        Args:
            X: the inputs; ``None`` if there are none.
            tests: inputs of the test rows; ``None`` if there are none.
            where: the party, for errors.
        """

    def texts(self, table: Any, *, where: str) -> Array | None:
        """Read a table whose only column holds texts, shape ``(n,)``; ``None`` for others."""

    def asked_rows(self, table: Any, schema: Schema | None, *, where: str) -> Array | None:
        """Read rows for prediction by the columns of the model's training.

        Returns:
            Numbers; without a schema, the texts of the only column, or ``None`` if there are other columns.
        """

    def columns(self, table: Any, *, where: str) -> Mapping[str, Array]:
        """Read the columns of a table by name."""

    def rows_in(self, file: Path) -> Rows:
        """Read the rows of a file without labels, such as public rows.

        Raises:
            InvalidInput: the rows cannot be read.
        """


def table_reader() -> TableReader:
    """Find the package that reads tables.

    Raises:
        InvalidInput: none is installed.
    """
    return cast(TableReader, registered_object("consilience.tables", "reader"))
