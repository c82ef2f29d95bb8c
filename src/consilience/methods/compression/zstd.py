"""Compression of bytes without loss, by zstd."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.validation.arrays import Array
from consilience.methods.compression.codec import Codec


def compress(codec: Codec, content: bytes) -> Array:
    """Compress bytes with zstd if the codec has a zstd level and the result is shorter.

    Returns:
        The bytes, shape ``(n_bytes,)``, uint8; unchanged if zstd is disabled or does not shorten them.
    """
    if codec.level and content:
        import pyarrow  # for those alone who compress

        shorter = pyarrow.Codec("zstd", compression_level=codec.level).compress(
            content, asbytes=True
        )
        content = min(content, shorter, key=len)
    return np.frombuffer(content, dtype=np.uint8)


def decompress(codec: Codec, data: Array, size: int, most: int) -> bytes:
    """Decompress the output of :func:`compress`.

    Args:
        codec: the settings.
        data: received bytes, shape ``(n_bytes,)``, uint8.
        size: announced number of bytes before compression.
        most: upper limit of ``size``; a larger ``size`` is refused before decompression.

    Raises:
        KnowledgeRefused: the data cannot be decompressed, or their size differs from ``size``.
    """
    if data.dtype != np.uint8 or data.ndim != 1:
        raise KnowledgeRefused("no row of bytes")
    if not 0 <= size <= most:
        raise KnowledgeRefused(f"says it is {size} bytes, and at most {most} were asked for")
    content = data.tobytes()
    if codec.level and len(content) != size:
        import pyarrow

        try:
            content = pyarrow.Codec("zstd").decompress(content, size, asbytes=True)
        except (OSError, ValueError) as error:
            raise KnowledgeRefused(f"bytes that are not compressed by zstd ({error})") from error
    if len(content) != size:
        raise KnowledgeRefused(f"{len(content)} bytes, not the {size} it says")
    return content
