"""A party's rows beside public ones: a table is read by the public rows' schema, and both are compared."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.messages.schema import Public
from consilience.core.numerics.outcomes import Outcome
from consilience.core.party.nearness import PublicComparison
from consilience.core.party.outbox import Outbox
from consilience.core.validation.arrays import Array, check_alike, read_only
from consilience.core.validation.tables import RowSource, is_table, table_reader

MOST_SHARED = 0.25
"""Of a party's own rows, how many may be left out since they are public rows too: whoever could have all
others left out would ask about those that remain."""


class ReadByPublic:
    """Reading of a party's rows by public ones, and what it takes of these; a part of ``Party``."""

    X: Array
    y: Array
    test: tuple[Array, Array] | None
    table: RowSource | None
    schema: Schema | None
    outcome: Outcome | None
    comparison: PublicComparison
    public: Public | None
    kept_public: tuple[str, ...]
    max_public_bytes: int
    discreet: bool
    overlap: bool
    secret: bytes
    outbox: Outbox
    _where: str
    notes: tuple[str, ...] = ()
    """Remarks on its table."""

    def _numbers_of(self, X: Any, test: Any) -> tuple[Any, Any]:
        """Rows of a table by the schema that it suggests itself, and test rows with their labels."""
        if self.table is None:  # rows, or a single column of texts
            if is_table(X):
                X = table_reader().texts(X, where=self._where)
            if isinstance(test, tuple | list) and test and is_table(test[0]):
                test = (table_reader().texts(test[0], where=self._where), *test[1:])
            return X, test
        own, tests = self.table.rows()
        self.schema, self.notes = own.schema, own.notes
        return None if self.table.tested_alone else own.X, test if tests is None else (
            tests,
            *test[1:],
        )

    @property
    def row(self) -> str:
        """The form of its rows, of a table with a digest of the columns.

        ``"any"`` where it has none, or a budget of privacy: which columns hold anything is read off its rows.
        """
        if not len(self.X) or self.outbox.discreet:
            return "any"
        if self.X.dtype.kind in "UO":
            return "text"
        shape, schema = str(self.X.shape[1:]), self.schema
        if self.table is None or schema is None:
            return shape
        # Between sites nobody may guess from a digest what values a table holds.
        plain = schema.plain  # else categories say more
        said = json.dumps(schema.names) if plain else f"{self.secret.hex()}{schema.key}"
        return f"{shape} with columns {hashlib.sha256(said.encode()).hexdigest()[:8]}"

    @property
    def has_gaps(self) -> bool:
        """True if a number of its private rows or its test rows is missing."""
        both = (self.X,) if self.test is None else (self.X, self.test[0])
        return any(bool(np.isnan(rows).any()) for rows in both if rows.dtype.kind == "f")

    def _compared(self) -> PublicComparison:
        """Its rows and test rows, to be held against public ones."""
        tests = self.X[:0] if self.test is None else self.test[0]
        return PublicComparison(self.X, tests, self.schema)

    def read_by(self, public: Public) -> Public:
        """Read its rows by the columns of public rows, and return these, without columns that it lacks.

        Raises:
            InvalidInput: they have other columns, or do not look alike.
        """
        discreet, before = self.discreet, self.schema
        if len(public) and public.schema is not None and self.table is not None:
            precision = public.X.dtype if public.X.dtype.kind == "f" else np.dtype(np.float64)
            rows, tests = self.table.rows_by(public.schema, precision, discreet=discreet)
            if rows.absent:
                public = public.only(rows.kept)
            own = slice(0 if self.table.tested_alone else None)
            self.X = read_only(rows.X[own][:, rows.kept])
            said = self.table.remarks(self.y) if len(self.y) else ()
            self.notes = rows.notes + said
            if self.test is not None and tests is not None:
                self.test = read_only(tests), self.test[1]
        elif len(public) and public.schema is None and before is not None and not before.plain:
            raise InvalidInput(
                "its columns have names or gaps, and those of the public rows have no names",
                where=self._where,
                mend="Give the public rows as a table too.",
            )
        if len(public) or public.schema is not None:
            self.schema = public.schema
            if self.schema is None and self.has_gaps:
                self.schema = Schema.of_numbers(public.X)
        if not len(self.X) and self.test is None:
            self.X = public.X[:0]
        if self.schema != before or self.table is not None:
            found, self.comparison = self.comparison.found, self._compared()
            self.comparison.found = found
        if len(public) and len(self.X):
            texts = "UO"
            formed = self.X.shape[1:] == public.X.shape[1:]
            formed &= (self.X.dtype.kind in texts) == (public.X.dtype.kind in texts)
            # With a budget the form alone counts: whether the scale does is an answer about rows.
            if not formed or not self.outbox.discreet:
                _check_like(self.X, public.X, self.schema, where=self._where, discreet=discreet)
        return public

    @property
    def public_digests(self) -> tuple[str, ...]:
        """Digests of the public rows that it holds."""
        if self.max_public_bytes:
            return self.kept_public
        return () if self.public is None else (self.public.key,)

    def take_public(self, public: Public) -> None:
        """Take public rows that the coordinator sends; they count once they are agreed on.

        Raises:
            InvalidInput: it has rows of its own, or these do not look like the private ones.
        """
        self.check_public(public)
        self.public = public

    def check_public(self, public: Public) -> None:
        """Raise ``InvalidInput`` unless it takes public rows, and these look like its own."""
        self.check_takes_public()
        self._private_apart(self._check_alike(public))

    def check_takes_public(self) -> None:
        """Raise ``InvalidInput`` if it has public rows of its own, and takes none from a coordinator."""
        if not self.max_public_bytes:
            raise InvalidInput(
                "it has public rows of its own, and takes no others",
                where=self._where,
                mend="Name no public file at the party, and the coordinator sends the rows.",
            )

    def _check_alike(self, public: Public) -> Public:
        """Return public rows as it reads them, or raise ``InvalidInput``: they do not look like its own."""
        public = self.read_by(public)
        if self.max_public_bytes and self.comparison.crowded(public):
            raise InvalidInput(
                "most public rows are copies of one another, or lie around one point",
                where=self._where,
            )
        return public

    def _private_apart(self, public: Public) -> NDArray[np.bool_]:
        """Mark the private rows that are no public rows too, or all where these may overlap.

        Raises:
            InvalidInput: too many are.
        """
        if self.overlap or not len(public) or not len(self.X):
            return np.ones(len(self.X), dtype=bool)
        apart = ~self.comparison.private_among(public)
        if not self.outbox.discreet and apart.mean() < 1 - MOST_SHARED:
            raise InvalidInput(
                f"more than {MOST_SHARED:.0%} of its rows are among the public rows",
                where=self._where,
                mend="Take public rows of others; or let the party's engineer set limits.overlap = true.",
            )
        return apart


def _check_like(
    X: Array, public: Array, schema: Schema | None, *, where: str, discreet: bool
) -> None:
    """Raise ``InvalidInput`` unless private rows look like the public ones: type, shape and scale.

    Args:
        X: private rows.
        public: the public rows.
        schema: their columns; ``None`` for rows without names and gaps.
        where: the party, for the error.
        discreet: leave what the private rows hold out of the error.
    """
    names = list[str]()
    if schema is not None and X.shape[1:] == public.shape[1:] and X.dtype.kind not in "UO":
        schema.check(X, where=where)
        X, public = schema.levels(X), schema.levels(public)
        names = [column.name for column in schema.columns if column.kind == "number"]
        if not names:
            return
    check_alike(X, public, where=where, discreet=discreet, names=names)
