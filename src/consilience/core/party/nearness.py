"""Distances between rows, to detect copied or crowded public rows, and public rows among private rows.

A coordinator that chooses the public rows can use them to test whether a person is in a party's data. It can
send copies of a record with other rows close around it, or the record alone among honest rows. Copies and
crowds are detected by the distances between public rows, compared with the distances between the party's own
rows. Own rows among the public rows can be excluded from all computation. The results are then the same
whether the party holds these rows or not.

Columns are measured in standard deviations of the party's own rows. Texts are compared by word counts of
length 1. Every bound is relative to the usual distance among the party's own rows, so the scale of the data
does not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.messages.columns import Schema
from consilience.core.messages.schema import Public
from consilience.core.validation.arrays import Array

COPY, CROWD = 1 / 3, 1 / 2
"""Distances of copies and crowds, as parts of the usual distances among own rows.

Up to the first part of the usual distance to the nearest row, a row is a copy of another. Below the second
part of the usual distance to half of the rows, a row lies in a crowd.
"""
MOST = 1 / 2
"""Largest share of copied or crowded public rows, among the rows that would not be so by chance."""

CHANCE = 0.02
"""Approximate number of own rows mistaken for copies of public rows by chance.

If many own rows have public rows nearby, a copy must be nearer. If rows often have identical numbers by
chance, as in tables of a few columns, no row is a copy.
"""

_LOW = 0.05
"""Quantile of the own nearest distances from which, with the median, the decrease of near rows is fitted."""

_ROWS, _NUMBERS = 1_000, 1 << 24
"""Largest number of rows, and of numbers in them, in one computation of distances."""


class Nearness:
    """Comparison of distances with those usual among a party's own rows.

    Args:
        own: own inputs, shape ``(n, ...)`` for numbers or ``(n,)`` for texts.
    """

    def __init__(self, own: Array) -> None:
        count = Counter(_contents(own))
        self._own, self._alike = own, 0.0
        self._twins = frozenset(content for content, times in count.items() if times > 1)
        if own.dtype.kind not in "UO":
            flat = own[_drawn(own)].reshape(-1, math.prod(own.shape[1:]))
            spread = flat.std(axis=0)
            self._varies = spread > 1e-9 * np.abs(flat).max(axis=0)
            self._mean, self._spread = flat.mean(axis=0)[self._varies], spread[self._varies]
            self._alike = _alike(flat[:, self._varies])

    def crowded(self, public: Array) -> bool:
        """Return true if most public rows are near or exact copies of one another, or lie around a point."""
        (usual, _), (found, _) = self._nearest(self._own), self._nearest(public)
        near = COPY * np.median(usual)
        # As many more rows are near as they lie more densely.
        expected = 1 - (1 - (usual <= near).mean()) ** (len(public) / len(self._own))
        half, crowd = self._half(self._own), self._half(public)
        dense = CROWD * np.median(half)
        return _most((found <= near).mean(), expected) or _most(
            (crowd < dense).mean(), (half < dense).mean()
        )

    def among(self, rows: Array, public: Array) -> NDArray[np.bool_]:
        """Mark the rows of a party that nearly or exactly equal a public row.

        A row with an identical copy among the own rows is not marked. No row is marked if rows often have
        identical numbers by chance.

        Args:
            rows: rows of the party, shape ``(n, ...)``.
            public: inputs of the public rows, shape ``(n_public, ...)``.

        Returns:
            Shape ``(n,)``, bool.
        """
        same = np.zeros(len(rows), dtype=bool)
        if self._alike * len(public) > CHANCE or len(self._own) < 2:
            return same
        near = self._copy(len(public))
        for there in _parts(public):
            placed = self._placed(public[there])
            for here in _parts(rows):
                distances = _distances(self._placed(rows[here]), placed)
                same[here] |= distances.min(axis=1) <= near
        lone = [content not in self._twins for content in _contents(rows)]
        same &= np.array(lone, dtype=bool)
        return same

    def _copy(self, count: int) -> float:
        """Compute the largest distance at which an own row is a copy of one of ``count`` public rows.

        The number of own rows with a neighbour within a distance grows about as a power of this distance. The
        power is at most the number of columns.
        """
        _, usual = self._nearest(self._own)
        low, half = np.quantile(usual, [_LOW, 0.5])
        power = np.log(0.5 / _LOW) / np.log(half / low) if half > low else np.inf
        if self._own.dtype.kind not in "UO":
            power = min(power, math.prod(self._own.shape[1:]))
        rare = 1 - (1 - CHANCE) ** (len(self._own) / count)
        return float(min(COPY * half, half * (2 * rare) ** (1 / power)))

    def _nearest(self, rows: Array) -> tuple[Array, Array]:
        """Compute the distances of sampled rows to their nearest other row and nearest different row."""
        drawn = _drawn(rows)
        placed, found, other = self._placed(rows[drawn]), [], []
        for part in _parts(rows):
            distances = _distances(placed, self._placed(rows[part]))
            itself = (part.start <= drawn) & (drawn < part.stop)
            distances[itself, drawn[itself] - part.start] = np.inf
            found.append(distances.min(axis=1))
            other.append(np.where(distances > 0, distances, np.inf).min(axis=1))
        return np.min(found, axis=0), np.min(other, axis=0)

    def _half(self, rows: Array) -> Array:
        """Compute for each sampled row the distance within which half of the sampled rows lie."""
        placed = self._placed(rows[_drawn(rows)])
        distances = _distances(placed, placed)
        return np.asarray(np.sort(distances, axis=1)[:, len(distances) // 2])

    def _placed(self, rows: Array) -> Any:
        """Compute the coordinates for distances, shape ``(n, d)``; for texts a sparse matrix."""
        if rows.dtype.kind in "UO":
            from sklearn.feature_extraction.text import HashingVectorizer

            return HashingVectorizer(alternate_sign=False).transform(rows)
        flat = rows.reshape(len(rows), -1)[:, self._varies]
        precision = (
            np.float64 if flat.shape[1] < 100 else np.float32
        )  # of a few columns all digits tell
        return ((flat - self._mean) / self._spread).astype(precision)


class PublicComparison:
    """Comparison of a party's rows with public rows, cached because it takes longer than a small round.

    Args:
        private: private inputs, shape ``(n, ...)``.
        tests: test inputs, shape ``(n_tests, ...)``; may be empty.
        schema: schema of a table, which encodes the rows before the comparison; ``None`` for other rows.
    """

    def __init__(self, private: Array, tests: Array, schema: Schema | None = None) -> None:
        # By the scales of the party's own rows: sent ones could be so large that no column varies.
        measured = None if schema is None else schema.measured(private) if len(private) else schema
        self._encode = np.asarray if measured is None else measured.encode
        self._private, self._tests = map(self._encode, (private, tests))
        self.found: dict[str, Array] = {}
        """Cached results for the latest public rows, as bits, by type of result and digests of all rows."""

    def recall(self, found: Mapping[str, Array]) -> None:
        """Restore earlier results; present results take precedence."""
        self.found = dict(found) | self.found

    def crowded(self, public: Public) -> bool:
        """Return true if public rows are copies or a crowd (:meth:`Nearness.crowded`)."""

        def compute(nearness: Nearness) -> NDArray[np.bool_]:
            return np.array([nearness.crowded(self._encode(public.X))])

        return bool(self._once("crowded", public, 1, compute)[0])

    def private_among(self, public: Public) -> NDArray[np.bool_]:
        """Mark the private rows that equal a public row, shape ``(n,)``, bool (:meth:`Nearness.among`)."""
        return self._among("private", self._private, public)

    def tests_among(self, public: Public) -> NDArray[np.bool_]:
        """Mark the test rows that equal a public row, shape ``(n_tests,)``, bool (:meth:`Nearness.among`)."""
        return self._among("tests", self._tests, public)

    def _among(self, name: str, rows: Array, public: Public) -> NDArray[np.bool_]:
        return self._once(
            name, public, len(rows), lambda nearness: nearness.among(rows, self._encode(public.X))
        )

    def _once(
        self,
        name: str,
        public: Public,
        count: int,
        compute: Callable[[Nearness], NDArray[np.bool_]],
    ) -> NDArray[np.bool_]:
        """Return the cached result of a name, computed on the first call; shape ``(count,)``, bool."""
        rows = f"{public.key} {self._digest}"
        if (key := f"{name} {rows}") not in self.found:
            kept = {other: bits for other, bits in self.found.items() if other.endswith(rows)}
            self.found = kept | {key: np.packbits(compute(self._nearness))}
        return np.unpackbits(self.found[key], count=count).astype(bool)

    @cached_property
    def _nearness(self) -> Nearness:
        return Nearness(self._private)

    @cached_property
    def _digest(self) -> str:
        return "-".join(Public(rows).key for rows in (self._private, self._tests) if len(rows))


def _drawn(rows: Array) -> NDArray[np.int64]:
    """Sample row indices for distances, seeded by the rows' contents, so the sample cannot be predicted."""
    step = next(_parts(rows)).stop
    if len(rows) <= step:
        return np.arange(len(rows))
    return np.random.default_rng(int(Public(rows).key, 16)).permutation(len(rows))[:step]


def _parts(rows: Array) -> Iterator[slice]:
    """Split rows into slices of a size whose distances fit into memory."""
    step = min(_ROWS, max(1, _NUMBERS // math.prod(rows.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def _alike(columns: Array) -> float:
    """Estimate the probability that two rows have the same numbers, for independent columns."""
    found = 1.0
    for column in columns.T:
        shares = np.unique(column, return_counts=True)[1] / len(column)
        pairs = (shares**2).sum() - 1 / len(column)  # but each row with itself
        found *= float(pairs) * len(column) / max(1, len(column) - 1)
        if found < 1e-15:
            return 0.0
    return found


def _contents(rows: Array) -> Iterator[bytes | str]:
    """Iterate over rows as hashable values."""
    return (row if isinstance(row, str) else row.tobytes() for row in rows)


def _distances(a: Any, b: Any) -> Array:
    """Distances from each row to each, shape ``(n, m)``; those of rounding size are 0."""
    lengths = [
        np.asarray((x.multiply(x) if hasattr(x, "multiply") else x * x).sum(axis=1)).ravel()
        for x in (a, b)
    ]
    total = lengths[0][:, None] + lengths[1]
    products = a @ b.T
    squares = total - 2 * (products.toarray() if hasattr(products, "toarray") else products)
    return np.sqrt(np.where(squares > 100 * np.finfo(squares.dtype).eps * total, squares, 0))


def _most(found: float, usual: float) -> bool:
    """Return true if more than :data:`MOST` of the rows are found, after subtracting the usual share."""
    return bool(found - usual > MOST * (1 - usual))
