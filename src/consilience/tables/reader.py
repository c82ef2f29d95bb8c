"""Read tables for parties, coordinators and models: the table reader that the core package requires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.core.validation.printing import prints_no_rows
from consilience.core.validation.tables import Lenient, Rows, is_table
from consilience.tables.load import read_rows
from consilience.tables.remarks import says_target
from consilience.tables.rows import rows_and_schema, rows_of
from consilience.tables.table import Table, text_rows
from consilience.tables.text_columns import with_text_columns


def public_rows(table: Any, *, where: str) -> tuple[Array, Schema | None, tuple[str, ...]]:
    """Read public rows: texts or numbers, their schema, and remarks."""
    read = Table.of(table, where=where)
    if (found := text_rows(read)) is not None:
        return found, None, ()
    rows = rows_and_schema(read, where=where)
    return rows.X, rows.schema, rows.notes


def texts(table: Any, *, where: str) -> Array | None:
    """Read a table whose only column holds texts, shape ``(n,)``; ``None`` for others."""
    return text_rows(Table.of(table, where=where))


def columns(table: Any, *, where: str) -> Mapping[str, Array]:
    """Read the columns of a table by name."""
    return Table.of(table, where=where).columns


def rows_in(file: Path) -> Rows:
    """Read the rows of a file without labels."""
    return read_rows(file)


def asked_rows(table: Any, schema: Schema | None, *, where: str) -> Array | None:
    """Read prediction rows of a model by its training columns."""
    read = Table.of(table, where=where)
    if schema is None:
        return text_rows(read)
    return rows_of(with_text_columns(read, schema), schema, where=where, unknown="missing").X


def row_source(X: Any, tests: Any, *, where: str) -> OwnTable | None:
    """Take the inputs and the test inputs of a party; ``None`` unless they are a table of columns."""
    given = tests if X is None else X
    if not is_table(given):
        return None
    how = given if isinstance(given, PrivateTable) else PrivateTable(given)
    private, held = Table.of(how.table, where=where), None
    if text_rows(private) is not None:
        return None
    if is_table(tests):
        if isinstance(tests, PrivateTable):
            if replace(tests, table=how.table) != how:
                raise InvalidInput(
                    "its test rows are read in another way than its training rows",
                    where=where,
                    mend="Give PrivateTable the same options for both, or the test table as it is.",
                )
            tests = tests.table
        held = Table.of(tests, where=f"{where}, test data")
    return OwnTable(private, held, where, how, tested_alone=X is None)


@prints_no_rows
@dataclass(frozen=True)
class PrivateTable:
    """A party's table, with the settings to read it by the columns of the public rows.

    Attributes:
        table: a pandas table, or any with ``__arrow_c_stream__``.
        rename: own name of a column to the name of the public rows' column.
        units: the public rows' name of a column to the factor that own numbers are multiplied by, or
            ``"F to C"`` or ``"C to F"``; 1 confirms the public rows' unit.
        missing: whether columns of the public rows may be missing. The party is then trained on its existing
            columns, and answers public rows through them.
        unknown: treatment of categories missing from the public rows: refused, or read as missing.
    """

    table: Any = field(compare=False)  # two tables have no single answer to whether they are equal
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float | str] = field(default_factory=dict)
    missing: Literal["refused", "allowed"] = "refused"
    unknown: Lenient = "refused"
    is_table: ClassVar[bool] = True

    def __post_init__(self) -> None:
        where = type(self).__name__
        if isinstance(self.table, PrivateTable) or not is_table(self.table):
            raise InvalidInput(
                f"{type(self.table).__name__} is no table of named columns",
                where=where,
                mend="Give a DataFrame; arrays go to Party as they are.",
            )
        check_choice("missing", self.missing, ("refused", "allowed"), where=where)
        check_choice("unknown", self.unknown, get_args(Lenient), where=where)
        for name, value in (("rename", self.rename), ("units", self.units)):
            if not isinstance(value, Mapping):
                raise InvalidInput(f"{name} is {value!r}", where=where, mend="Give a dictionary.")
        for column, unit in self.units.items():
            if not isinstance(unit, str):
                check_number(f"units[{column!r}]", unit, where=where)
            if unit == 0:
                raise InvalidInput(f"the unit of {column!r} is 0", where=where)

    @property
    def index(self) -> Any:
        """Index of a pandas table, by which labels of another order are found; ``None`` for others."""
        return getattr(self.table, "index", None)


@prints_no_rows
@dataclass(frozen=True)
class OwnTable:
    """Private rows and test rows of a party with the names of their columns.

    Attributes:
        private: the private inputs.
        tests: the test inputs; ``None`` where there are none.
        where: the party, for errors.
        how: how the columns are read.
        tested_alone: whether it has test rows alone, which then are ``private`` too, for their columns.
    """

    private: Table
    tests: Table | None
    where: str
    how: PrivateTable
    tested_alone: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the party's columns."""
        return tuple(self.private.columns)

    @property
    def renamed(self) -> tuple[str, ...]:
        """The same as the public rows call them."""
        return tuple(self.how.rename.get(name, name) for name in self.private.columns)

    def remarks(self, y: Array) -> tuple[str, ...]:
        """Return remarks on columns that reveal the targets, for people."""
        return says_target(self.private, y)

    def rows(self) -> tuple[Rows, Array | None]:
        """Read the private rows by a schema of their columns, and the test rows by the same schema."""
        where = f"{self.where}, private data"
        found = rows_and_schema(self.private, where=where, texts="left out")
        assert found.schema is not None
        tests = None
        if self.tests is not None:
            where = f"{self.where}, test data"
            tests = rows_of(self.tests, found.schema, where=where, unknown="missing").X
        return found, tests

    def rows_by(
        self, schema: Schema, precision: np.dtype[Any], *, discreet: bool
    ) -> tuple[Rows, Array | None]:
        """Read private rows and test rows by the schema of public rows; see :meth:`.RowSource.rows_by`."""
        how = self.how
        options: dict[str, Any] = {
            "rename": how.rename,
            "unknown": how.unknown,
            "discreet": discreet,
        }
        found = rows_of(
            with_text_columns(self.private, schema),
            schema,
            where=self.where,
            units=how.units,
            missing=how.missing,
            **options,
        )
        found = replace(found, X=found.X.astype(precision))
        if self.tests is None:
            return found, None
        kept = schema.only(found.kept)
        units = {name: unit for name, unit in how.units.items() if name in kept.names}
        read = with_text_columns(self.tests, kept)
        tests = rows_of(read, kept, where=f"{self.where}, test data", units=units, **options)
        if not self.tested_alone:
            said = tuple(f"in the test rows, {note}" for note in tests.notes)
            found = replace(found, notes=found.notes + said)
        return found, tests.X.astype(precision)
