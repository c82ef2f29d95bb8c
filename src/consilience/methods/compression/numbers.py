"""Encode arrays of numbers, such as parameters: quantised in blocks, as 16-bit floats, or unchanged.

Numbers are quantised in blocks of :data:`BLOCK`. Each block has its own minimum and step, so that layers of
different scale do not affect one another. The error of a number is at most half a step of its block
(:meth:`consilience.methods.compression.codec.Codec.number_error_bound`).
"""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.validation.arrays import Array
from consilience.methods.compression.codec import Codec

BLOCK = 1024
"""Numbers per block; the numbers of a block share a minimum and a step."""

_TOGETHER = 64
"""Number of blocks decoded at a time."""


def encoded_length(codec: Codec, count: int, itemsize: int) -> int:
    """Compute the number of bytes that :func:`encode_numbers` writes for an array.

    Args:
        codec: the settings.
        count: numbers in the array.
        itemsize: bytes of each number without a codec.
    """
    if codec.bits == 16:
        return 2 * count
    if not codec.bits:
        return count * itemsize
    codes = count if codec.level else (count * codec.bits + 7) // 8
    return 8 * _blocks(count) + codes


def encode_numbers(codec: Codec, values: Array) -> bytes:
    """Encode an array of fractions.

    Raises:
        InvalidInput: a number is beyond the range of 16 bits.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if not codec.bits:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()
    if codec.bits == 16:
        largest = float(np.abs(flat).max(initial=0))
        if largest > float(np.finfo(np.float16).max):
            raise InvalidInput(
                f"numbers of up to {largest:.3g} do not fit 16 bits",
                where="codec",
                mend="Take quantized(8), or leave out float16().",
            )
        return flat.astype("<f2").tobytes()
    low, step = _scales(flat, codec.bits)
    spread = np.repeat(np.where(step > 0, step, 1), BLOCK)[: len(flat)].astype(np.float64)
    codes = np.rint((flat - np.repeat(low, BLOCK)[: len(flat)].astype(np.float64)) / spread)
    codes = np.clip(codes, 0, (1 << codec.bits) - 1).astype(np.uint8)
    return low.tobytes() + step.tobytes() + _packed(codec, codes)


def decode_numbers(codec: Codec, content: bytes, count: int, dtype: np.dtype) -> Array:
    """Decode an array of fractions that :func:`encode_numbers` wrote.

    Args:
        codec: the settings.
        content: the encoded bytes; their number is :func:`encoded_length`.
        count: numbers in the array.
        dtype: their data type.

    Raises:
        KnowledgeRefused: a number is NaN or infinite, or a bool is not 0 or 1.
    """
    if not codec.bits:
        numbers = np.frombuffer(content, dtype.newbyteorder("<"))
        if dtype.kind == "b" and (numbers.view(np.uint8) > 1).any():
            raise KnowledgeRefused("a bool is neither true nor false")
    elif codec.bits == 16:
        numbers = np.frombuffer(content, "<f2")
    else:
        return _dequantized(codec, content, count, dtype)
    with np.errstate(over="ignore"):
        values = numbers.astype(dtype)
    if not np.isfinite(values).all():
        raise KnowledgeRefused("numbers are NaN or infinite")
    return np.asarray(values)


def _dequantized(codec: Codec, content: bytes, count: int, dtype: np.dtype) -> Array:
    """Decode quantised bytes, a few blocks at a time to limit the memory for temporary arrays."""
    blocks, values = _blocks(count), np.empty(count, dtype)
    scales = np.frombuffer(content[: 8 * blocks], "<f4").reshape(2, blocks).astype(np.float64)
    bits = 8 if codec.level else codec.bits
    for first in range(0, blocks, _TOGETHER):
        start, end = first * BLOCK, min((first + _TOGETHER) * BLOCK, count)
        at = 8 * blocks + start * bits // 8
        part = content[at : at + -(-(end - start) * bits // 8)]
        low, step = np.repeat(scales[:, first : first + _TOGETHER], BLOCK, axis=1)[:, : end - start]
        with np.errstate(over="ignore", invalid="ignore"):  # both are refused below
            values[start:end] = low + _unpacked(codec, part, end - start) * step
        if not np.isfinite(values[start:end]).all():
            raise KnowledgeRefused("numbers are NaN or infinite")
    return values


def _blocks(count: int) -> int:
    """Number of blocks of an array."""
    return -(-count // BLOCK)


def _scales(flat: Array, bits: int) -> tuple[Array, Array]:
    """Least number and step of each block, float32."""
    starts = np.arange(0, len(flat), BLOCK)
    if not len(starts):
        return np.zeros(0, "<f4"), np.zeros(0, "<f4")
    low = np.minimum.reduceat(flat, starts).astype("<f4")
    high = np.maximum.reduceat(flat, starts)
    return low, ((high - low) / ((1 << bits) - 1)).astype("<f4")


def _packed(codec: Codec, codes: Array) -> bytes:
    """Codes as whole bytes before zstd, else without an unused bit."""
    if codec.level:
        return codes.tobytes()
    used = np.unpackbits(codes[:, None], axis=1)[:, 8 - codec.bits :]
    return np.packbits(used).tobytes()


def _unpacked(codec: Codec, content: bytes, count: int) -> Array:
    """Codes of packed bytes."""
    flat = np.frombuffer(content, np.uint8)
    if codec.level:
        return flat
    bits = np.zeros((count, 8), np.uint8)
    bits[:, 8 - codec.bits :] = np.unpackbits(flat, count=count * codec.bits).reshape(count, -1)
    return np.packbits(bits, axis=1)[:, 0]
