"""Compression of tables of public rows, such as predictions: rows as bytes, and the memory of both ends.

A row is written as a few bytes that do not depend on any other row. That makes the rest simple: a row is
unchanged when its bytes are, and whatever rows arrive can stand beside the ones that came before.

A :class:`RowCoder` does it for one table that goes from one sender to one receiver or several, round after
round. Its functions are pure; what either end remembers is a mapping of arrays, ``{}`` at the start:

    sender      ``memory = update(values, memory, round)``, then ``write(memory, since)`` for a receiver that
                last heard in round ``since``, 0 for never
    receiver    ``arrived, rest = read(content, since)``, then ``memory = take(arrived, memory, round)`` and
                ``values(memory)``

The memory keeps for every row the round in which the receiver was last told of it, so that a receiver who
missed some rounds is sent what changed in them, and no more. Where a table is sent more than once in a round,
the number of its exchange stands in place of the round (:mod:`.compressed_messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.transforms.codec import Codec
from consilience.validation.arrays import Array
from consilience.validation.printing import prints_no_rows

Memory = Mapping[str, Array]
TableForm = Literal["probabilities", "logits", "values", "scores"]

_EXACT: Mapping[TableForm, str] = {
    "probabilities": "<f4",
    "logits": "<f4",
    "values": "<f8",
    "scores": "<f4",
}
"""Data types of numbers where nothing is done to them."""

_STEPS = 1900.0
"""Steps of a score's 16 bits in one unit of arsinh: 32767 of them reach 1.5e7."""


@prints_no_rows
@dataclass(frozen=True)
class Arrived:
    """Rows that were received.

    Attributes:
        which: row numbers, or ``None`` for all.
        rows: their bytes, shape ``(n_which, width)``.
    """

    which: Array | None
    rows: Array


@prints_no_rows
@dataclass(frozen=True)
class RowCoder:
    """Compression of one table: its rows as bytes, and what both ends remember of them.

    Args:
        codec: the settings.
        form: kind of the numbers. ``"scores"`` are one number a row, such as log-densities.
        count: rows of the table.
        columns: numbers in a row.

    Raises:
        InvalidInput: the codec is for probabilities, and these are not; more shares than there are.
    """

    codec: Codec
    form: TableForm
    count: int
    columns: int

    def __post_init__(self) -> None:
        codec, name = self.codec, self.codec.name
        shortened = 0 < codec.bits <= 8 or codec.largest > 0
        if shortened and self.form in ("logits", "values"):
            raise InvalidInput(
                f"{name} is for probabilities, and {self.form} are sent",
                where="codec",
                mend="Take float16(), changed_rows() or zstd(), or an aggregator of probabilities.",
            )
        if self.form == "probabilities" and codec.largest > self.columns:
            raise InvalidInput(
                f"{name} of {self.columns} classes",
                where="codec",
                mend=f"Keep {self.columns - 1} shares or fewer.",
            )

    # --- the sender ---

    def update(
        self, values: Array, memory: Memory, round: int, wanted: Array | None = None
    ) -> Memory:
        """Compute the sender's memory after this round.

        Args:
            values: shape ``(count, columns)``, or ``(count,)``.
            memory: memory of the round before, ``{}`` to begin anew.
            round: the round.
            wanted: mask of the rows that were asked for, shape ``(count,)``; all by default.

        Returns:
            ``rows``, the bytes, ``(count, width)``; ``rounds``, when a row was last sent, ``(count,)``;
            ``round``.

        Raises:
            InvalidInput: a number that 16 bits cannot hold.
        """
        rows = self._bytes_of(np.reshape(values, (self.count, self.columns)))
        rounds = np.full(self.count, round, dtype=np.int64)
        if memory and self.codec.remembers:
            moves = self._moved(rows, memory["rows"])
            if wanted is not None:
                moves &= wanted
            rows = np.where(moves[:, None], rows, memory["rows"])
            rounds = np.where(moves, rounds, memory["rounds"])
        return {"rows": rows, "rounds": rounds, "round": np.array(round)}

    def write(self, memory: Memory, since: int) -> bytes:
        """Write the bytes for a receiver who last heard in round ``since``, before zstd."""
        rows, which = memory["rows"], memory["rounds"] > since
        if since == 0:
            return self._packed(rows)
        return np.packbits(which).tobytes() + self._packed(rows[which])

    # --- the receiver ---

    def read(self, content: bytes, since: int) -> tuple[Arrived, bytes]:
        """Read the rows at the start of ``content``; give them, and the bytes after them.

        Raises:
            KnowledgeRefused: these bytes are no rows of this table.
        """
        which: Array | None = None
        count = self.count
        if since > 0:
            length = (self.count + 7) // 8
            marks = np.unpackbits(np.frombuffer(content[:length], np.uint8))
            if len(marks) < self.count or marks[self.count :].any():
                raise KnowledgeRefused("which rows were sent cannot be read")
            which = np.flatnonzero(marks[: self.count])
            content, count = content[length:], len(which)
        length = self._packed_length(count)
        if len(content) < length:
            raise KnowledgeRefused(f"{len(content)} bytes, expected {length} of {count} rows")
        rows = self._unpacked(content[:length], count)
        self._check(rows)
        return Arrived(which, rows), content[length:]

    def take(self, arrived: Arrived, memory: Memory, round: int) -> Memory:
        """Compute the receiver's memory once these rows have come: ``rows`` and ``round``.

        Args:
            arrived: the rows.
            memory: memory of the round before, ``{}`` for none.
            round: the round.

        Raises:
            KnowledgeRefused: a part of the rows came, and nothing is known of the others.
        """
        if arrived.which is None:
            return {"rows": arrived.rows, "round": np.array(round)}
        if "rows" not in memory or memory["rows"].shape != (self.count, len(self.widths)):
            raise KnowledgeRefused("changed rows came, and nothing is known of the others")
        rows = memory["rows"].copy()
        rows[arrived.which] = arrived.rows
        return {"rows": rows, "round": np.array(round)}

    def values(self, rows: Array) -> Array:
        """Decode some rows, shape ``(n, columns)``: probabilities on the simplex, in float32."""
        exact = np.dtype(_EXACT[self.form]).newbyteorder("=")
        if self.form == "scores" and self.codec.bits:
            return np.asarray(np.sinh(_joined(rows, "<i2") / _STEPS).astype(exact))
        if self.form != "probabilities" or not (self.codec.bits or self.codec.largest):
            numbers = _joined(rows, "<f2" if self.codec.bits else _EXACT[self.form])
            return np.asarray(numbers.astype(exact))
        indices, shares = self._shares(rows)
        shares = shares / shares.sum(axis=1, keepdims=True)
        if indices is None:
            return np.asarray(shares.astype(exact))
        whole = np.zeros((len(rows), self.columns), dtype=exact)
        if self._leaves:
            whole += (shares[:, -1:] / (self.columns - self._kept)).astype(exact)
        np.put_along_axis(whole, indices, shares[:, : self._kept].astype(exact), axis=1)
        return whole

    # --- one row ---

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of its 8 bits that each byte of a row uses."""
        size = np.dtype(_EXACT[self.form]).itemsize
        if self.form == "scores":
            return (8,) * (2 if self.codec.bits else size) * self.columns
        if 0 < self.codec.bits <= 8:
            sent = self._kept - (not self._leaves)
            return self._index_widths + (self.codec.bits,) * sent
        return self._index_widths + (8,) * (2 if self.codec.bits else size) * self._kept

    @property
    def _kept(self) -> int:
        """Numbers of a row that are sent."""
        listed = self.form == "probabilities" and self.codec.largest
        return self.codec.largest if listed else self.columns

    @property
    def _leaves(self) -> bool:
        """Existence of one more number, the rest beside the kept shares; it follows from the others."""
        return self._kept < self.columns and not self.codec.renormalized

    @property
    def _index_widths(self) -> tuple[int, ...]:
        """Bits of the bytes that name the classes of the shares."""
        if self._kept == self.columns:
            return ()
        bits = (self.columns - 1).bit_length()
        return ((bits,) if bits <= 8 else (8, bits - 8)) * self._kept

    def _bytes_of(self, values: Array) -> Array:
        """Rows as bytes, shape ``(n, len(widths))``."""
        bits = self.codec.bits
        if self.form == "scores" and bits:
            steps = np.rint(np.arcsinh(values.astype(np.float64)) * _STEPS)
            return _split(np.clip(steps, -32767, 32767), "<i2")
        if self.form != "probabilities" or not (bits or self.codec.largest):
            return self._rounded(values) if bits else _split(values, _EXACT[self.form])
        shares, indices = values.astype(np.float64), np.zeros((len(values), 0), dtype=np.uint8)
        shares = shares / shares.sum(axis=1, keepdims=True)
        if self._kept < self.columns:
            order = np.argsort(-shares, axis=1, kind="stable")[:, : self._kept]
            shares = np.take_along_axis(shares, order, axis=1)
            indices = _split(order, "<u2" if self.columns > 256 else "<u1")
            if self._leaves:
                left = np.maximum(1 - shares.sum(axis=1, keepdims=True), 0)
                shares = np.concatenate([shares, left], axis=1)
            shares = shares / shares.sum(axis=1, keepdims=True)
        if 0 < bits <= 8:
            written = nearest_multiples(shares, _levels(bits))[:, :-1].astype(np.uint8)
        else:
            written = _split(shares[:, : self._kept], "<f2" if bits else "<f4")
        return np.concatenate([indices, written], axis=1)

    def _rounded(self, values: Array) -> Array:
        """Rows as bytes of 16-bit floats."""
        largest = float(np.abs(values).max(initial=0))
        if largest > float(np.finfo(np.float16).max):
            raise InvalidInput(
                f"{self.form} of up to {largest:.3g} do not fit 16 bits",
                where="codec",
                mend="Leave out float16(), or scale the targets.",
            )
        return _split(values, "<f2")

    def _shares(self, rows: Array) -> tuple[Array | None, Array]:
        """Classes ``(n, kept)``, or ``None`` for all, and their shares before rescaling, what is left
        last."""
        split = len(self._index_widths)
        indices: Array | None = None
        if split:
            indices = _joined(rows[:, :split], "<u2" if self.columns > 256 else "<u1")
            indices = indices.astype(np.intp)
        written = rows[:, split:]
        if 0 < self.codec.bits <= 8:
            first = written.astype(np.float64)
            last = _levels(self.codec.bits) - first.sum(axis=1, keepdims=True)
            return indices, np.concatenate([first, last], axis=1)
        first = _joined(written, "<f2" if self.codec.bits else "<f4").astype(np.float64)
        if not self._leaves:
            return indices, first
        # Rounding may leave a little less than nothing.
        left = np.maximum(1 - first.sum(axis=1, keepdims=True), 0)
        return indices, np.concatenate([first, left], axis=1)

    def _check(self, rows: Array) -> None:
        """Raise ``KnowledgeRefused`` unless bytes from elsewhere are rows that could have been sent."""
        if self.form != "probabilities" or not (self.codec.bits or self.codec.largest):
            return  # any bytes are numbers; what these must be, their message knows
        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN, and refused below
            indices, shares = self._shares(rows)
        if indices is not None:
            ordered = np.sort(indices, axis=1)
            twice = (np.diff(ordered, axis=1) == 0).any()
            if len(rows) and (ordered.max() >= self.columns or twice):
                raise KnowledgeRefused("a share is of no class, or two of the same")
        if not (np.isfinite(shares).all() and (shares >= 0).all()):
            raise KnowledgeRefused("shares are negative, infinite or NaN")
        whole = _levels(self.codec.bits) if 0 < self.codec.bits <= 8 else 1
        if (np.abs(shares.sum(axis=1) - whole) > 0.01).any():
            raise KnowledgeRefused("shares do not sum to 1")

    def _moved(self, rows: Array, known: Array) -> Array:
        """Mask of the rows that are further from what is known of them than may be, shape ``(count,)``."""
        moved = np.asarray((rows != known).any(axis=1))
        tolerance = self.codec.tolerance or 0.0
        if tolerance > 0 and moved.any():
            apart = np.abs(self.values(rows[moved]) - self.values(known[moved]))
            if self.form == "probabilities":
                moved[moved] = apart.sum(axis=1) / 2 > tolerance
            else:
                moved[moved] = apart.max(axis=1) > tolerance
        return moved

    # --- rows in a message ---

    def _packed(self, rows: Array) -> bytes:
        """Bytes of a message: before zstd whole ones, column by column, as alike stands by alike; else no bit
        unused."""
        if self.codec.level:
            return rows.T.tobytes()
        return np.packbits(np.unpackbits(rows, axis=1)[:, self._used]).tobytes()

    def _packed_length(self, count: int) -> int:
        if self.codec.level:
            return count * len(self.widths)
        return (count * sum(self.widths) + 7) // 8

    def _unpacked(self, content: bytes, count: int) -> Array:
        flat = np.frombuffer(content, dtype=np.uint8)
        if self.codec.level:
            return np.ascontiguousarray(flat.reshape(len(self.widths), count).T)
        bits, used = np.zeros((count, 8 * len(self.widths)), dtype=np.uint8), sum(self.widths)
        bits[:, self._used] = np.unpackbits(flat, count=count * used).reshape(count, used)
        return np.packbits(bits, axis=1)

    @property
    def _used(self) -> Array:
        """Mask of the used bits of a row, shape ``(8 len(widths),)``; the lower ones of every byte."""
        unused = 8 - np.array(self.widths, dtype=int)
        return (np.arange(8) >= unused[:, None]).ravel()

    @property
    def most_bytes(self) -> int:
        """Most bytes that :meth:`write` can give."""
        return (self.count + 7) // 8 + self._packed_length(self.count)


def nearest_multiples(shares: Array, levels: int) -> Array:
    """Round to whole numbers that sum to ``levels`` in every row, nearest to ``levels * shares``.

    Rounded down, and then one more where the largest remainders are, as many as are missing.

    Args:
        shares: rows that sum to 1, shape ``(n, m)``.
        levels: N.

    Source:
        Reznik 2011.
    """
    scaled = shares * levels
    whole = np.floor(scaled)
    missing = levels - whole.sum(axis=1, keepdims=True)
    rank = np.argsort(np.argsort(whole - scaled, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray((whole + (rank < missing)).astype(np.int64))


def _levels(bits: int) -> int:
    """Largest multiple that b bits can hold."""
    return (1 << bits) - 1


def _split(values: Array, kind: str) -> Array:
    """Numbers ``(n, m)`` as bytes ``(n, m size)``."""
    return np.ascontiguousarray(values.astype(kind)).view(np.uint8)


def _joined(rows: Array, kind: str) -> Array:
    """Numbers ``(n, m)`` from bytes ``(n, m size)``."""
    size = np.dtype(kind).itemsize
    return (
        np.ascontiguousarray(rows).reshape(-1).view(kind).reshape(len(rows), rows.shape[1] // size)
    )
