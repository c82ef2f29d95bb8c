"""Schema of a table: the columns that the parties agree on, and the encoding of its rows as numbers.

Inside a federation every table row is a row of numbers, shape ``(d,)``: a category is its index among the
column's categories, a truth value is 0 or 1, a date is the number of days since 1970, and a gap is NaN. The
schema defines the meaning of these numbers. It is derived from the public rows, and parties with the same
digest use the same encoding.

Models that take tables receive a table (:meth:`Schema.frame`). For all other models, and for comparing rows,
:meth:`Schema.encode` computes numbers without gaps. It depends on the schema only, so that every party
computes the same numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array, precision_for

ColumnKind = Literal["number", "category", "boolean", "date"]

MOST_COLUMNS = 10_000
"""Columns that a table may have, and numbers that an encoded row may be of."""

_DIGITS = 6
"""Digits of means and spreads: the last ones depend on the processor that adds."""


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Attributes:
        name: unique in the table.
        kind: ``"number"``, ``"category"``, ``"boolean"`` or ``"date"``.
        categories: names of the categories in code order; empty for other kinds.
        gaps: whether values may be missing.
        low: the smallest value, 0 for categories, as all that follow.
        high: the largest value.
        median: the value that stands for a gap.
        mean: of the values.
        spread: their standard deviation; 1 where all are equal.
        deciles: values that a tenth, two tenths, … nine tenths do not exceed, by which units are compared.
    """

    name: str
    kind: ColumnKind = "number"
    # Of a party's own table these are its rows' values, which are not printed.
    categories: tuple[str, ...] = field(default=(), repr=False)
    gaps: bool = False
    low: float = field(default=0.0, repr=False)
    high: float = field(default=0.0, repr=False)
    median: float = field(default=0.0, repr=False)
    mean: float = field(default=0.0, repr=False)
    spread: float = field(default=1.0, repr=False)
    deciles: tuple[float, ...] = field(default=(), repr=False)

    def measured(self, values: Array) -> Column:
        """Take range, median, mean and spread of values, shape ``(n,)``; gaps may be among them."""
        gaps = np.isnan(values)
        if self.kind == "category" or gaps.all():
            return replace(self, gaps=self.gaps or bool(gaps.any()))
        known = values[~gaps].astype(np.float64)
        spread = 0.0 if known.min() == known.max() else float(known.std())
        deciles = np.quantile(known, np.arange(1, 10) / 10, method="inverted_cdf")
        return replace(
            self,
            gaps=self.gaps or bool(gaps.any()),
            low=float(known.min()),
            high=float(known.max()),
            median=float(np.median(known)),
            mean=_rounded(known.mean()),
            spread=_rounded(spread) or 1.0,
            deciles=tuple(deciles.tolist()),
        )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class Schema:
    """Columns of a table, in order.

    A schema is callable and encodes rows: it is the encoder
    (:class:`consilience.core.numerics.encoder.Encoder`) used to compare the rows of a table, unless the table
    is :attr:`plain`.

    Attributes:
        columns: the columns.

    Raises:
        InvalidInput: no columns, too many columns, or a duplicate name.
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.columns) <= MOST_COLUMNS or self.width > MOST_COLUMNS:
            raise InvalidInput(
                f"the table has {len(self.columns):,} columns, {self.width:,} with one for each category",
                where="table",
                mend=f"Choose columns: 1 to {MOST_COLUMNS:,} in all.",
            )
        if len(set(self.names)) < len(self.columns):
            raise InvalidInput("two columns have one name", where="table")

    @classmethod
    def of_numbers(cls, X: Array, names: Sequence[str] = ()) -> Schema:
        """Make the schema of rows of numbers, shape ``(n, d)``, whose columns may have no names."""
        names = names or [f"column {i}" for i in range(X.shape[1])]
        return cls(tuple(Column(n).measured(x) for n, x in zip(names, X.T, strict=True)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def plain(self) -> bool:
        """True if all columns are numbers without gaps, which every model takes as they are."""
        return not any(column.gaps or column.kind == "category" for column in self.columns)

    @cached_property
    def categorical(self) -> bool:
        """True if a column holds categories."""
        return any(column.kind == "category" for column in self.columns)

    @cached_property
    def precision(self) -> type[np.float32] | type[np.float64]:
        """Precision of the rows' numbers: double if single precision would merge distinct values."""
        known = [column for column in self.columns if column.low < column.high]
        return precision_for([one.mean for one in known], [one.spread for one in known])

    @property
    def width(self) -> int:
        """Numbers in an encoded row."""
        return sum(max(1, len(column.categories)) + column.gaps for column in self.columns)

    @cached_property
    def key(self) -> str:
        """Digest of the schema, which parties agree on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Write the schema as JSON."""
        return json.dumps([asdict(column) for column in self.columns], sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidInput: it is no schema.
        """
        try:
            columns = tuple(_column_of(one) for one in json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidInput(f"this is no schema of a table: {error}", where="schema") from error
        return cls(columns)

    def check(self, X: Array, *, where: str) -> None:
        """Raise ``InvalidInput`` unless rows, shape ``(n, d)``, have these columns and codes of categories.

        Args:
            X: the rows.
            where: whose they are, for the error.
        """
        if X.shape[1:] != (len(self.columns),):
            raise InvalidInput(
                f"rows of shape {X.shape[1:]} have {len(self.columns)} names of columns",
                where=where,
            )
        for column, values in zip(self.columns, X.T, strict=True):
            known = values[~np.isnan(values)] if column.kind == "category" else ()
            if len(known) and not np.isin(known, np.arange(len(column.categories))).all():
                raise InvalidInput(
                    f"column {column.name!r} holds numbers that are no categories", where=where
                )

    def measured(self, X: Array) -> Schema:
        """Take ranges, medians and scales of rows, shape ``(n, d)``; kinds and categories stay."""
        both = zip(self.columns, X.T, strict=True)
        return Schema(tuple(column.measured(values) for column, values in both))

    def without_units(self) -> Schema:
        """Return the schema without the deciles by which units are compared."""
        return Schema(tuple(replace(column, deciles=()) for column in self.columns))

    def only(self, places: Sequence[int]) -> Schema:
        """Select columns by their places."""
        return Schema(tuple(self.columns[place] for place in places))

    def encode(self, X: Array, *, fill: bool = True) -> Array:
        """Encode rows as numbers that any model takes.

        Numbers are centred and scaled by the public rows' statistics, and a gap becomes their median. Each
        column with gaps adds an indicator column, and each category has one column. For a :attr:`plain`
        table, only gaps are filled.

        Args:
            X: rows, shape ``(n, d)``.
            fill: whether to fill gaps in numbers; otherwise they stay NaN.

        Returns:
            Shape ``(n, width)``, float64.
        """
        if self.plain:
            X = np.asarray(X, dtype=np.float64)
            medians = np.array([column.median for column in self.columns])
            return np.where(np.isnan(X), medians, X) if fill else X
        return self._encoded(X, fill, [column.spread for column in self.columns])

    def scaled(self, X: Array) -> Array:
        """Encode rows as :meth:`encode` does, and scale the numbers of a :attr:`plain` table too.

        Columns of one unit, such as pixels, keep their proportions. Otherwise a nearly constant pixel would
        count as much as an informative one. Columns count as one unit if the ranges of at least three
        quarters of them are at least half the largest range.

        Args:
            X: rows, shape ``(n, d)``.

        Returns:
            Shape ``(n, width)``, float64.
        """
        spreads = [column.spread for column in self.columns]
        ranges = [column.high - column.low for column in self.columns if column.kind != "category"]
        ranges = sorted(wide for wide in ranges if wide > 0)
        if ranges and 2 * ranges[(len(ranges) - 1) // 4] >= ranges[-1]:
            spreads = [max(spreads)] * len(spreads)
        return self._encoded(X, True, spreads)

    def _encoded(self, X: Array, fill: bool, spreads: Sequence[float]) -> Array:
        X = np.asarray(X, dtype=np.float64)
        gaps = np.isnan(X)
        found = np.zeros((len(X), self.width))
        at = 0
        for place, column in enumerate(self.columns):
            values, missing = X[:, place], gaps[:, place]
            if column.kind == "category":
                known = np.flatnonzero(~missing)
                found[known, at + values[known].astype(np.int64)] = 1
                at += len(column.categories)
            else:
                values = np.where(missing, column.median, values) if fill else values
                found[:, at] = (values - column.mean) / spreads[place]
                at += 1
            if column.gaps:
                found[:, at] = missing
                at += 1
        return found

    __call__ = encode

    def frame(self, X: Array) -> Any:
        """Turn rows into a pandas table with names and labels; truth values are 0 and 1.

        Args:
            X: rows, shape ``(n, d)``.
        """
        import pandas as pd

        made: dict[str, Any] = {}
        for column, values in zip(self.columns, np.asarray(X).T, strict=True):
            gaps = np.isnan(values)
            if column.kind == "category":
                codes = np.where(gaps, -1, values).astype(np.int64)
                made[column.name] = pd.Categorical.from_codes(codes, categories=column.categories)
            else:  # of bool and float together, pandas would make objects
                made[column.name] = values.astype(np.float64)
        return pd.DataFrame(made)

    def levels(self, X: Array) -> Array:
        """Select the columns of numbers, shape ``(n, k)``, by which scales are compared; gaps stay NaN."""
        places = [i for i, column in enumerate(self.columns) if column.kind == "number"]
        return np.asarray(X, dtype=np.float64)[:, places]

    def describe(self) -> list[tuple[str, str, str]]:
        """Describe each column for people: name, kind, and its categories or range."""
        return [
            (
                column.name,
                column.kind + (", gaps" if column.gaps else ""),
                ", ".join(column.categories)
                if column.kind == "category"
                else f"{column.low:g} to {column.high:g}",
            )
            for column in self.columns
        ]


def _column_of(record: Any) -> Column:
    """One column of JSON, checked: it may come from elsewhere."""
    parts = dict(record)
    if parts.keys() != {one.name for one in fields(Column)}:
        raise ValueError(f"column {str(record)[:100]}")
    lists = {name: tuple(parts[name]) for name in ("categories", "deciles")}
    column = Column(**{**parts, **lists})
    levels = (column.low, column.high, column.median, column.mean, column.spread)
    numbers = (*levels, *column.deciles)
    if (
        column.kind not in ("number", "category", "boolean", "date")
        or not all(isinstance(one, str) and one for one in (column.name, *column.categories))
        or (column.kind == "category") != bool(column.categories)
        or len(set(column.categories)) < len(column.categories)
        or not isinstance(column.gaps, bool)
        or not all(isinstance(one, int | float) and np.isfinite(one) for one in numbers)
        or column.spread <= 0
        or len(column.deciles) not in (0, 9)
        or column.deciles != tuple(sorted(column.deciles))
    ):
        raise ValueError(f"column {str(record)[:100]}")
    return column
