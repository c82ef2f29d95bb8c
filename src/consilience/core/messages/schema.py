"""Schema of a federation: the public rows, the parties' agreement, and bounds on numbers."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.messages.message import message
from consilience.core.numerics.encoder import Encoder
from consilience.core.validation.arrays import as_rows, check_inputs, read_only
from consilience.core.validation.labels import Kind
from consilience.core.validation.tables import is_table, table_reader

OutputKind = Literal["probabilities", "logits", "values"]
Ratios = Literal["none", "coarse", "exact"]
"""Density ratios that a party gives: none; coarse, in its own settings; or exact, in a simulation."""

PRECISION: Mapping[OutputKind, type[np.floating[Any]]] = {
    "probabilities": np.float32,
    "logits": np.float32,
    "values": np.float64,
}
"""Data types of exchanged numbers. Values keep all their digits, since a step of the protocol such as
de-regularisation may multiply their rounding errors a millionfold."""

LARGEST = 1e18
"""Largest absolute value of a model's number: its square still fits into single precision. A larger finite
number could make the teacher, or results computed from it, infinite."""

MOST_ROWS = 10**12
"""Maximum number of private rows that a party can report."""

VERSION = 2
"""Version of the messages. Raise it whenever ends of different versions would misunderstand one another.

Stored files have another number (:data:`consilience.core.files.FORMAT`).
"""

MOST_CLASSES = 65_536
"""Most classes, or targets of a regression."""

MOST_SUMMED = 100
"""Most parties of a secure sum: each has a mask with every other."""


class Public:
    """Unlabelled inputs of every party and the coordinator; :meth:`none` if a protocol needs no inputs.

    Args:
        X: shape ``(n, ...)`` of numbers, or ``(n,)`` of strings; or a table, whose columns make the
            schema.
        schema: the columns, if they have names; it also applies to the parties' tables. For numbers with gaps
            (NaN) a schema is created.

    Attributes:
        encoder: computes the features used to compare rows: the schema of a table with gaps or categories;
            ``None`` if the features come from the rows alone
            (:mod:`consilience.core.numerics.feature_space`).

    Raises:
        InvalidInput: no rows, non-finite values, or a number of names other than the number of columns.
    """

    def __init__(self, X: Any, schema: Schema | None = None) -> None:
        if is_table(X):
            X, found, self.notes = table_reader().public_rows(X, where="public data")
            schema = schema if found is None else found
        X = as_rows(X, where="public data")
        if X.ndim == 0 or len(X) == 0:
            raise InvalidInput(
                "there is no public data",
                where="public",
                mend="Parties teach one another on shared unlabelled rows: give at least one.",
            )
        check_inputs(X, where="public data", gaps=True)
        if schema is None and X.ndim == 2 and X.dtype.kind == "f" and np.isnan(X).any():
            schema = Schema.of_numbers(X)
        self.X, self.schema = read_only(X), schema
        if schema is not None:
            schema.check(X, where="public data")
            self.encoder = None if schema.plain else schema

    encoder: Encoder | None = None  # on the class: rows without a schema have none
    notes: tuple[str, ...] = ()
    """Remarks on the table from which the rows were read."""

    def __repr__(self) -> str:
        return f"Public({len(self.X):,} rows of shape {self.X.shape[1:]})"

    @cached_property
    def encoder_key(self) -> str:
        """Digest of the encoder; empty where there is none."""
        return "" if self.encoder is None else self.encoder.key

    @cached_property
    def columns_key(self) -> str:
        """Digest of the columns' kinds, categories, gaps and medians, by which parties read their own tables;
        empty for rows without a schema. For plain numbers :attr:`key` has only their names."""
        if self.schema is None:
            return ""
        columns = [
            [one.name, one.kind, one.categories, one.gaps, one.median]
            for one in self.schema.columns
        ]
        return hashlib.sha256(json.dumps(columns).encode()).hexdigest()

    def with_encoder(self, encoder: Encoder | None) -> Public:
        """Return the same rows, to be compared by the features of an encoder; these, if they already are."""
        if encoder is None or encoder.key == self.encoder_key:
            return self  # whose space all parties of a process have in common
        rows = copy.copy(self)
        rows.encoder = encoder
        rows.__dict__.pop("encoder_key", None)
        return rows

    def take(self, rows: Any) -> Public:
        """Select rows by index, mask or slice; columns and encoder stay."""
        found = copy.copy(self)
        found.X = read_only(self.X[rows])
        found.__dict__.pop("key", None)
        return found

    def only(self, places: Sequence[int]) -> Public:
        """Select columns by their indices, for a party that lacks the others; the digest stays the same.

        Args:
            places: indices of the columns to keep.

        Returns:
            Public data with these columns.
        """
        assert self.schema is not None
        found = copy.copy(self)
        found.__dict__["key"] = self.key
        found.__dict__["encoder_key"] = self.encoder_key
        found.__dict__["columns_key"] = self.columns_key
        found.X, found.schema = read_only(self.X[:, list(places)]), self.schema.only(places)
        found.encoder = None if found.schema.plain else found.schema
        return found

    @classmethod
    def none(cls, schema: Schema | None = None) -> Public:
        """Make an empty set of public rows, for protocols that exchange models.

        Args:
            schema: of the columns of a table that all parties' rows are parts of.
        """
        absent = cls.__new__(cls)
        absent.X, absent.schema = read_only(np.zeros(0)), schema
        return absent

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def key(self) -> str:
        """Digest of the rows, their order, shape, type and columns: both sides must mean the same set."""
        texts = self.X.dtype.kind in "UO"
        digest = hashlib.sha256(f"{'texts' if texts else self.X.dtype.kind}{self.X.shape}".encode())
        if texts:
            for text in map(str, self.X.ravel()):
                said = text.encode()
                digest.update(len(said).to_bytes(8, "little") + said)  # else "ab", "c" is "a", "bc"
        else:
            digest.update(self.X.astype(self.X.dtype.newbyteorder("<"), copy=False).tobytes())
        if self.schema is not None and not self.schema.plain:
            digest.update(self.schema.key.encode())
        elif self.schema is not None and len(self):
            digest.update(json.dumps(self.schema.names).encode())
        return digest.hexdigest()[:32]  # 128 bits: one who chooses both sets finds no two alike


class TaskLike(Protocol):
    """A task, as far as a reply is validated against it."""

    @property
    def round(self) -> int:
        """Round that the task belongs to."""


@message
class Agreement:
    """Schema of a federation, fixed when the parties join; replies are validated against it.

    Attributes:
        kind: ``"classification"`` or ``"regression"``.
        classes: the class order of every exchanged row, empty for regression.
        outputs: number of columns of every exchanged row.
        public: :attr:`Public.key` of the public data.
        rows: number of public rows.
        seed: seed of all random streams.
        encoder: digest of the encoder used to compare rows; empty for none.
        ratios: the kind of density ratios that every party sends.
        frozen: names of the parties that answer and are never trained.
        learners: names of the parties that only learn and send no predictions.
        outcome: key of the outcome whose bins are the classes
            (:attr:`consilience.core.numerics.outcomes.Outcome.key`); empty for ordinary classes.
        summed: sorted names of the parties in sums: all answering parties present when the agreement was
            made; empty for more than :data:`MOST_SUMMED` parties.
    """

    kind: Kind
    classes: tuple[str, ...]
    outputs: int
    public: str
    rows: int
    seed: int
    encoder: str = ""
    ratios: Ratios = "none"
    frozen: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    outcome: str = ""
    summed: tuple[str, ...] = ()

    def answering(self, parties: Sequence[str]) -> tuple[str, ...]:
        """Select the parties that send something, of some."""
        return tuple(name for name in parties if name not in self.learners)

    def taught(self, parties: Sequence[str]) -> tuple[str, ...]:
        """Select the parties that a teacher of some parties is sent to: those that learn only with them."""
        return (*(name for name in parties if name not in self.frozen), *self.learners)
