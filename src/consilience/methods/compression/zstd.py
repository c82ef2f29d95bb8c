"""Compression of bytes without loss, by zstd."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.validation.arrays import Array
from consilience.methods.compression.codec import Codec


def compress(codec: Codec, content: bytes) -> Array:
    """Compress bytes with zstd, where the codec has a level for it: shape ``(n_bytes,)``, uint8.

    Bytes that it does not make fewer stay as they are.
    """
    if codec.level and content:
        import pyarrow  # for those alone who compress

        shorter = pyarrow.Codec("zstd", compression_level=codec.level).compress(
            content, asbytes=True
        )
        content = min(content, shorter, key=len)
    return np.frombuffer(content, dtype=np.uint8)


def decompress(codec: Codec, data: Array, size: int, most: int) -> bytes:
    """Decompress bytes that :func:`compress` gave.

    Args:
        codec: the settings.
        data: bytes that were received, shape ``(n_bytes,)``, uint8.
        size: announced number of bytes before compression.
        most: largest number that there can be; more are refused before anything is done.

    Raises:
        KnowledgeRefused: they are none, or not as many as announced.
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
