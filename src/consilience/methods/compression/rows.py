"""Compression of tables of public rows, such as predictions: rows as bytes.

A row is written as a few bytes that do not depend on any other row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.compression.codec import Codec

TableForm = Literal["probabilities", "logits", "values", "scores"]

_EXACT: Mapping[TableForm, str] = {
    "probabilities": "<f4",
    "logits": "<f4",
    "values": "<f8",
    "scores": "<f4",
}
"""Data types of numbers sent without loss of precision."""

_STEPS = 1900.0
"""Steps of a score's 16 bits in one unit of arsinh: 32767 of them reach 1.5e7."""


@prints_no_rows
@dataclass(frozen=True)
class RowCoder:
    """Compression of one table.

    Args:
        codec: the settings.
        form: kind of the numbers. ``"scores"`` are one number a row, such as log-densities.
        count: rows of the table.
        columns: numbers in a row.

    Raises:
        InvalidInput: the codec is for probabilities, and these are not.
    """

    codec: Codec
    form: TableForm
    count: int
    columns: int

    def __post_init__(self) -> None:
        if 0 < self.codec.bits <= 8 and self.form in ("logits", "values"):
            raise InvalidInput(
                f"{self.codec.name} is for probabilities, and {self.form} are sent",
                where="codec",
                mend="Take float16() or zstd(), or an aggregator of probabilities.",
            )

    @property
    def length(self) -> int:
        """Bytes that :meth:`write` gives."""
        if self.codec.level:
            return self.count * len(self._widths)
        return (self.count * sum(self._widths) + 7) // 8

    def write(self, values: Array) -> bytes:
        """Encode the table as bytes, without the zstd step.

        If the codec uses zstd, every number has whole bytes and the table is written column by column, which
        places similar bytes next to each other. Otherwise the bits are packed without padding.

        Args:
            values: shape ``(count, columns)``, or ``(count,)``.

        Raises:
            InvalidInput: a number that 16 bits cannot hold.
        """
        rows = self._bytes_of(np.reshape(values, (self.count, self.columns)))
        if self.codec.level:
            return rows.T.tobytes()
        return np.packbits(np.unpackbits(rows, axis=1)[:, self._used]).tobytes()

    def read(self, content: bytes) -> tuple[Array, bytes]:
        """Read the table at the start of ``content``.

        Returns:
            The numbers, shape ``(count, columns)``: probabilities on the simplex, in float32; and the bytes
            after them.

        Raises:
            KnowledgeRefused: these bytes are no rows of this table.
        """
        if len(content) < self.length:
            raise KnowledgeRefused(
                f"{len(content)} bytes, expected {self.length} of {self.count} rows"
            )
        rows = self._unpacked(content[: self.length])
        return self._values(rows), content[self.length :]

    @property
    def _widths(self) -> tuple[int, ...]:
        """Number of its 8 bits that each byte of a row uses."""
        if self._shares:
            return (self.codec.bits,) * (self.columns - 1)  # the last share follows from the others
        size = 2 if self.codec.bits else np.dtype(_EXACT[self.form]).itemsize
        return (8,) * size * self.columns

    @property
    def _shares(self) -> bool:
        """Whether a row is multiples of 1/N that sum to 1."""
        return self.form == "probabilities" and 0 < self.codec.bits <= 8

    @property
    def _levels(self) -> int:
        """N, the largest number of that many bits."""
        return (1 << self.codec.bits) - 1

    @property
    def _used(self) -> Array:
        """Mask of the used bits of a row, shape ``(8 len(widths),)``; the lower ones of every byte."""
        unused = 8 - np.array(self._widths, dtype=int)
        return (np.arange(8) >= unused[:, None]).ravel()

    def _bytes_of(self, values: Array) -> Array:
        """Rows as bytes, shape ``(count, len(widths))``."""
        if not self.codec.bits:
            return _split(values, _EXACT[self.form])
        if self.form == "scores":
            steps = np.rint(np.arcsinh(values.astype(np.float64)) * _STEPS)
            return _split(np.clip(steps, -32767, 32767), "<i2")
        if self.form == "probabilities":
            values = values.astype(np.float64)
            values = values / values.sum(axis=1, keepdims=True)
        if self._shares:
            return nearest_multiples(values, self._levels)[:, :-1].astype(np.uint8)
        largest = float(np.abs(values).max(initial=0))
        if largest > float(np.finfo(np.float16).max):
            raise InvalidInput(
                f"{self.form} of up to {largest:.3g} do not fit 16 bits",
                where="codec",
                mend="Leave out float16(), or scale the targets.",
            )
        return _split(values, "<f2")

    def _unpacked(self, content: bytes) -> Array:
        """Rows of packed bytes."""
        flat, width = np.frombuffer(content, dtype=np.uint8), len(self._widths)
        if self.codec.level:
            return np.ascontiguousarray(flat.reshape(width, self.count).T)
        used = sum(self._widths)
        bits = np.zeros((self.count, 8 * width), dtype=np.uint8)
        bits[:, self._used] = np.unpackbits(flat, count=self.count * used).reshape(self.count, used)
        return np.packbits(bits, axis=1)

    def _values(self, rows: Array) -> Array:
        """Numbers of rows of bytes."""
        exact = np.dtype(_EXACT[self.form]).newbyteorder("=")
        bits = self.codec.bits
        if self.form == "scores" and bits:
            return np.asarray(np.sinh(_joined(rows, "<i2") / _STEPS).astype(exact))
        if self.form != "probabilities" or not bits:
            # Any bytes are numbers; what these must be, their message knows.
            numbers = _joined(rows, "<f2" if bits else _EXACT[self.form])
            return np.asarray(numbers.astype(exact))
        whole = 1
        if self._shares:
            whole = self._levels
            first = rows.astype(np.float64)
            shares = np.concatenate([first, whole - first.sum(axis=1, keepdims=True)], axis=1)
        else:
            shares = _joined(rows, "<f2").astype(np.float64)
        if not (np.isfinite(shares).all() and (shares >= 0).all()):
            raise KnowledgeRefused("shares are negative, infinite or NaN")
        total = shares.sum(axis=1, keepdims=True)
        if (np.abs(total - whole) > 0.01).any():
            raise KnowledgeRefused("shares do not sum to 1")
        return np.asarray((shares / total).astype(exact))


def nearest_multiples(shares: Array, levels: int) -> Array:
    """Round to whole numbers that sum to ``levels`` in every row, nearest to ``levels * shares``.

    All numbers are rounded down; then the numbers with the largest remainders are raised by 1 until the row
    sums to ``levels``.

    Args:
        shares: rows that sum to 1, shape ``(n, m)``.
        levels: N.

    Returns:
        Integers, shape ``(n, m)``.

    Source:
        Reznik 2011.
    """
    scaled = shares * levels
    whole = np.floor(scaled)
    missing = levels - whole.sum(axis=1, keepdims=True)
    rank = np.argsort(np.argsort(whole - scaled, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray((whole + (rank < missing)).astype(np.int64))


def _split(values: Array, kind: str) -> Array:
    """Numbers ``(n, m)`` as bytes ``(n, m size)``."""
    return np.ascontiguousarray(values.astype(kind)).view(np.uint8)


def _joined(rows: Array, kind: str) -> Array:
    """Numbers ``(n, m)`` from bytes ``(n, m size)``."""
    size = np.dtype(kind).itemsize
    return (
        np.ascontiguousarray(rows).reshape(-1).view(kind).reshape(len(rows), rows.shape[1] // size)
    )
