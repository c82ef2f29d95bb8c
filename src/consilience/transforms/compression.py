"""What is sent of a table of soft labels: fewer numbers, shorter ones, fewer rows, and fewer bytes for these.

A :class:`Codec` says what is done, in this order, whatever order it was put together in:

    1  of every row the k largest shares are kept, and what is left    ``top_k(k)``
    2  numbers have 16 bits, or are multiples of 1/(2^b − 1)           ``float16()``, ``quantized(b)``
    3  rows are left out that the receiver has, or nearly              ``changed_rows()``
    4  parties are not asked for rows whose teacher rests              ``cached_rows()``
    5  the bytes are compressed, without loss                          ``zstd()``

``chain(top_k(2), quantized(4), changed_rows(), zstd())`` does all but the fourth. There is one order
because there is one that works: what the receiver has is known only in the numbers it was sent, and
compressed bytes have no rows. So a codec is five settings, which cross the wire as numbers, and not a list
of functions, which could not.

A row is written as a few bytes that do not depend on any other row. That makes the rest simple: a row is
unchanged when its bytes are, and whatever rows arrive can stand beside those that came before.

A :class:`Coder` does it for one table that goes from one sender to one receiver or several, round after
round. Its functions are pure; what either end remembers is a mapping of arrays, ``{}`` at the start:

    sender      ``memory = update(values, memory, round)``, then ``write(memory, since)`` for a receiver that
                last heard in round ``since``, 0 for never
    receiver    ``arrived, rest = read(content, since)``, then ``memory = take(arrived, memory, round)`` and
                ``values(memory)``

The memory keeps for every row the round in which the receiver was last told of it, so that a receiver who
missed some rounds is sent what changed in them, and no more.

Sources: Sattler et al. 2022, "CFD: Communication-Efficient Federated Distillation via Soft-Label
Quantization and Delta Coding" (quantised, changed and compressed soft labels); Azuma et al. 2025,
"Soft-Label Caching and Sharpening for Communication-Efficient Federated Distillation" (SCARLET; rows that
are not asked for); Reznik 2011, "An Algorithm for Quantization of Discrete Probability Distributions"
(multiples of 1/N that sum to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.message import message
from consilience.validation.arrays import Array

Memory = Mapping[str, Array]
Form = Literal["probabilities", "logits", "values", "scores"]

_EXACT: Mapping[Form, str] = {
    "probabilities": "<f4",
    "logits": "<f4",
    "values": "<f8",
    "scores": "<f4",
}
"""What numbers are exchanged as where nothing is done to them."""

_STEPS = 1900.0
"""Steps of a score's 16 bits in one unit of arsinh: 32767 of them reach 1.5e7."""


@message
class Codec:
    """What is done to the tables of a round; made by the functions of this module.

    Attributes:
        largest: how many shares of a row are kept; 0 for all.
        renormalized: whether these are rescaled to sum to 1, or the others share alike what is left.
        bits: of a number: 1 to 8, or 16; 0 for as many as it has.
        tolerance: a row that moved no further is not sent again; ``None`` to send all rows in every round.
        still: a row rests whose teacher moved no further (total variation) in a round.
        rest: for how many rounds a resting row is not asked for; 0 to ask for all.
        level: of zstd, 1 to 22; 0 for none.

    Raises:
        InvalidInput: a setting out of its range.
    """

    largest: int = 0
    renormalized: bool = False
    bits: int = 0
    tolerance: float | None = None
    still: float = 0.0
    rest: int = 0
    level: int = 0

    def __post_init__(self) -> None:
        _in_range("top_k", "k", self.largest, 0, 65_536)
        if self.bits != 16:
            _in_range("quantized", "bits", self.bits, 0, 8)
        _in_range("changed_rows", "tolerance", self.tolerance or 0.0, 0, float("inf"))
        _in_range("cached_rows", "tolerance", self.still, 0, 1)
        _in_range("cached_rows", "rounds", self.rest, 0, 1_000_000)
        _in_range("zstd", "level", self.level, 0, 22)
        if self.rest and self.tolerance is None:
            raise InvalidInput("rows rest that are sent in every round", where="codec")

    @property
    def name(self) -> str:
        """As reports show it.

        >>> chain(top_k(2), quantized(4), zstd()).name
        'top_k(2) + quantized(4) + zstd(19)'
        """
        number = {0: "", 16: "float16"}.get(self.bits, f"quantized({self.bits})")
        rescaled = ", renormalized" if self.renormalized else ""
        parts = [f"top_k({self.largest}{rescaled})" if self.largest else "", number]
        if self.rest:
            parts.append(f"cached_rows({self.still:g}, {self.rest})")
        if self.tolerance is not None and not (self.rest and self.tolerance == 0):
            parts.append(f"changed_rows({self.tolerance:g})")
        parts.append(f"zstd({self.level})" if self.level else "")
        return " + ".join(filter(None, parts)) or "as it is"

    @property
    def remembers(self) -> bool:
        """Whether the two ends need to know what was sent before."""
        return self.tolerance is not None

    def error_bound(self, classes: int) -> float:
        """How far a row of probabilities may be from the one that arrives, as total variation.

        ``½ Σ_c |p_c − q_c|``, which also bounds every ``|p_c − q_c|``. It is the sum of

        - ``max_j j/(k + j) (1 − j/(C − k))``, j = 1, …, C − k, for keeping k of C, of rows with k + j equal
          shares. Renormalised: ``1 − k/C``, of an even row. Peaked rows lose less: never more than what is
          left beside the k largest shares;
        - ``a(m − a) / (mN)``, a = min(⌊m/2⌋, N), for multiples of 1/N, N = 2^b − 1, of m numbers (Reznik
          2011): C of them, k that are renormalised, or k and what is left; at most ``m/(4N)``;
        - ``2^−11 + m 2^−25`` for float16;
        - the tolerance below which a row is not sent again.

        Rounding to float32 comes on top, 1e-7 or so. zstd loses nothing; rows that rest are not sent, and the
        teacher there is what it was.

        >>> round(quantized(8).error_bound(10), 4), round(float16().error_bound(10), 4)
        (0.0098, 0.0005)
        """
        kept = min(self.largest, classes) if self.largest else classes
        others, bound, numbers = classes - kept, 1 - kept / classes, kept
        if others and not self.renormalized:
            bound = max(j / (kept + j) * (1 - j / others) for j in range(1, others + 1))
            numbers = kept + 1
        if self.bits == 16:
            bound += 2**-11 + numbers * 2**-25
        elif self.bits:
            levels = _levels(self.bits)
            up = min(numbers // 2, levels)
            bound += up * (numbers - up) / (numbers * levels)
        return min(1.0, bound + (self.tolerance or 0.0))


def _in_range(function: str, option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(
            f"{option} is {value}",
            where=function,
            mend=f"It lies in {max(least, 0):g} to {most:g}.",
        )


def _wanted(function: str, option: str, value: object, least: int) -> None:
    """Raise ``InvalidInput`` unless it is a whole number, so many at least: 0 is how a codec says "not"."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(
            f"{option} is {value!r}", where=function, mend=f"Give a whole number, {least} or more."
        )


def float16() -> Codec:
    """Numbers of 16 bits: half the bytes, an error of 5e-4 of each number."""
    return Codec(bits=16)


def quantized(bits: int = 8) -> Codec:
    """Shares as multiples of ``1/(2^bits - 1)`` that sum to 1, a byte each or less.

    Of all such rows the nearest is sent (largest remainders). The last share follows from the others and is
    not sent. Scores, one number a row, have 16 bits.

    Args:
        bits: of a share, 1 to 8. With 1 a row is its likeliest class.
    """
    _wanted("quantized", "bits", bits, 1)
    if bits > 8:
        raise InvalidInput(
            f"bits is {bits}", where="quantized", mend="Give 1 to 8, or take float16()."
        )
    return Codec(bits=bits)


def top_k(k: int, *, renormalize: bool = False) -> Codec:
    """The k largest shares of a row and which classes they are of; the others share alike what is left.

    What is left over is never further from the truth than a row without it, and keeps a teacher from sounding
    surer than it is.

    Args:
        k: at least 1.
        renormalize: rescale the k shares to sum to 1 in its place.
    """
    _wanted("top_k", "k", k, 1)
    return Codec(largest=k, renormalized=bool(renormalize))


def changed_rows(tolerance: float = 0.0) -> Codec:
    """Rows that are not what the receiver has of them already, and which they are.

    A row is compared with what was last sent of it, so that small steps in one direction add up until they
    are.

    Args:
        tolerance: how far a row may have moved and not be sent: in total variation for probabilities, in the
            largest difference for all other numbers. 0 loses nothing.
    """
    return Codec(tolerance=float(tolerance))


def cached_rows(tolerance: float = 0.01, *, rounds: int = 5) -> Codec:
    """Parties are not asked for rows whose teacher rests; unchanged rows are not sent either.

    A row whose teacher moved by no more than ``tolerance`` in a round is left as it is, and asked for again
    when ``rounds`` rounds have passed.

    Args:
        tolerance: in total variation, [0, 1]. With 1 all rows rest by turns, as in SCARLET.
        rounds: D, at least 1.
    """
    _wanted("cached_rows", "rounds", rounds, 1)
    return Codec(still=float(tolerance), rest=rounds, tolerance=0.0)


def zstd(level: int = 19) -> Codec:
    """Compressed without loss; whole bytes that are often alike take a few bits.

    Args:
        level: 1, quick, to 22, small.
    """
    _wanted("zstd", "level", level, 1)
    return Codec(level=level)


def chain(*codecs: Codec) -> Codec:
    """All of them together.

    Raises:
        InvalidInput: there are none, or two say different things of the same.
    """
    if not codecs:
        raise InvalidInput("there is nothing to chain", where="codec", mend="Give at least one.")
    said: dict[str, tuple[Any, Codec]] = {}
    for codec in codecs:
        if not isinstance(codec, Codec):
            raise InvalidInput(
                f"{codec!r} is not a codec", where="codec", mend="Call what makes one: zstd()."
            )
        for field in fields(codec):
            value = getattr(codec, field.name)
            if value == field.default:
                continue
            before, by = said.setdefault(field.name, (value, codec))
            if field.name == "tolerance" and 0.0 in (before, value):
                # cached_rows() leaves out unchanged rows too, and a tolerance may come on top.
                said[field.name] = (max(before, value), codec)
            elif before != value:
                raise InvalidInput(
                    f"{by.name} and {codec.name} do not go together",
                    where="codec",
                    mend="Each thing can be done once.",
                )
    return Codec(**{name: value for name, (value, _) in said.items()})


CODECS: dict[str, Callable[..., Codec]] = {
    "float16": float16,
    "quantized": quantized,
    "top_k": top_k,
    "changed_rows": changed_rows,
    "cached_rows": cached_rows,
    "zstd": zstd,
}
"""The codecs that a configuration can name, alone or in a list."""


# --- rows as bytes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrived:
    """Rows that were received.

    Attributes:
        which: their numbers, or ``None`` for all.
        rows: their bytes, shape ``(n_which, width)``.
    """

    which: Array | None
    rows: Array


@dataclass(frozen=True)
class Coder:
    """A codec for one table: how its rows become bytes, and what both ends remember of them.

    Args:
        codec: what is done.
        form: what the numbers are. ``"scores"`` are one number a row, such as log-densities.
        count: rows of the table.
        columns: numbers in a row.

    Raises:
        InvalidInput: the codec is for probabilities, and these are not; more shares than there are.
    """

    codec: Codec
    form: Form
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
        """What is to be known of the table after this round.

        Args:
            values: shape ``(count, columns)``, or ``(count,)``.
            memory: of the round before, ``{}`` to begin anew.
            round: the round.
            wanted: shape ``(count,)``, whether a row was asked for; all by default.

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
        """The bytes for a receiver who last heard in round ``since``; before compression."""
        rows, which = memory["rows"], memory["rounds"] > since
        if since == 0:
            return self._packed(rows)
        return np.packbits(which).tobytes() + self._packed(rows[which])

    # --- the receiver ---

    def read(self, content: bytes, since: int) -> tuple[Arrived, bytes]:
        """The rows at the start of ``content``, and what comes after them.

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
        """What is known of the table once these rows have come: ``rows`` and ``round``.

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
        """The numbers of some rows, shape ``(n, columns)``: probabilities on the simplex, in float32."""
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
        """How many of its 8 bits each byte of a row uses."""
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
        """Whether what is left beside these is one more number; it follows from the others."""
        return self._kept < self.columns and not self.codec.renormalized

    @property
    def _index_widths(self) -> tuple[int, ...]:
        """Bits of the bytes that say which classes the shares are of."""
        if self._kept == self.columns:
            return ()
        bits = (self.columns - 1).bit_length()
        return ((bits,) if bits <= 8 else (8, bits - 8)) * self._kept

    def _bytes_of(self, values: Array) -> Array:
        """Every row as bytes, shape ``(n, len(widths))``."""
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
        """As 16-bit floats."""
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
        """Whether a row is further from what is known of it than may be, shape ``(count,)``."""
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
        """Before zstd whole bytes, column by column, since alike stands by alike; else no bit unused."""
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
        """Which of a row's bits are used, shape ``(8 len(widths),)``; the lower ones of every byte."""
        unused = 8 - np.array(self.widths, dtype=int)
        return (np.arange(8) >= unused[:, None]).ravel()

    @property
    def most_bytes(self) -> int:
        """The longest that :meth:`write` can be."""
        return (self.count + 7) // 8 + self._packed_length(self.count)


def nearest_multiples(shares: Array, levels: int) -> Array:
    """Whole numbers that sum to ``levels`` in every row, nearest to ``levels * shares`` in every norm.

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


# --- bytes ------------------------------------------------------------------------------------------


def compress(codec: Codec, content: bytes) -> Array:
    """The bytes as they are sent, shape ``(n_bytes,)``, uint8."""
    if codec.level and content:
        import pyarrow  # for those alone who compress

        content = pyarrow.Codec("zstd", compression_level=codec.level).compress(
            content, asbytes=True
        )
    return np.frombuffer(content, dtype=np.uint8)


def decompress(codec: Codec, data: Array, size: int, most: int) -> bytes:
    """The bytes as they were.

    Args:
        codec: what was done.
        data: what was received, shape ``(n_bytes,)``, uint8.
        size: how many bytes it says it was.
        most: how many it can have been; more are refused before anything is done.

    Raises:
        KnowledgeRefused: it is something else.
    """
    if data.dtype != np.uint8 or data.ndim != 1:
        raise KnowledgeRefused("no row of bytes")
    if not 0 <= size <= most:
        raise KnowledgeRefused(f"says it is {size} bytes, and at most {most} were asked for")
    content = data.tobytes()
    if codec.level and content:
        import pyarrow

        try:
            content = pyarrow.Codec("zstd").decompress(content, size, asbytes=True)
        except (OSError, ValueError) as error:
            raise KnowledgeRefused(f"bytes that are not compressed by zstd ({error})") from error
    if len(content) != size:
        raise KnowledgeRefused(f"{len(content)} bytes, not the {size} it says")
    return content


def sections(
    codec: Codec, coders: Sequence[Coder], data: Array, size: int, since: int
) -> tuple[Arrived, ...]:
    """What a message brings of several tables.

    Raises:
        KnowledgeRefused: anything but what these coders write.
    """
    content = decompress(codec, data, size, sum(coder.most_bytes for coder in coders))
    arrived = []
    for coder in coders:
        one, content = coder.read(content, since)
        arrived.append(one)
    if content:
        raise KnowledgeRefused(f"{len(content)} bytes too many")
    return tuple(arrived)
