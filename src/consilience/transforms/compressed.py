"""Messages of a compressed exchange, and arrays taken out of messages and put back.

Messages stay what they are, with empty arrays in place of the ones that were taken out; these follow as bytes
in one :class:`Compressed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from consilience.errors import KnowledgeRefused
from consilience.messages.message import REGISTRY, Brief, fields, message
from consilience.messages.wire import encode
from consilience.transforms.compression import Codec
from consilience.transforms.number_coder import decode_numbers, encode_numbers, encoded_length
from consilience.validation.arrays import Array


@message
class Compressed(Brief):
    """Arrays that were taken out of the messages before it.

    Attributes:
        size: bytes before zstd.
        data: the bytes, shape ``(n_bytes,)``, uint8: tables first, then other arrays in their order.
        since: round that the rows of tables are changes since; 0 where all rows are there.
        shapes: shapes of the other arrays.
        notes: notes of the replies that were left out.
    """

    size: int
    data: Array
    since: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()


@message
class CompressedRequest(Brief):
    """Compression of the tasks before it, and of the replies to them.

    Attributes:
        codec: settings of the :class:`~consilience.transforms.compression.Codec` that are not the defaults.
        heard: party to the round of its last tables that arrived, where that is not the round before.
        told: party to the round of the last table that it was sent, where that is not the round before.
        wanted: public rows that are asked for, a bit each, shape ``(n_bytes,)``, uint8; ``None`` for all.
        arrays: arrays of the tasks; ``None`` where they are in their places.
    """

    codec: Mapping[str, Any]
    heard: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, int] = field(default_factory=dict)
    wanted: Array | None = None
    arrays: Compressed | None = None


class CompressedTasks(tuple[Any, ...]):
    """Tasks of a request with compression; their arrays are put back at the party, before they run.

    Args:
        tasks: the tasks, with empty arrays in the places of those that were taken out.
        compression: the compression of the tasks, and of the replies to them.
        whole: the tasks with their arrays, where they are known; they are not sent.
    """

    compression: CompressedRequest
    whole: tuple[Any, ...]

    def __new__(
        cls, tasks: Sequence[Any], compression: CompressedRequest, whole: tuple[Any, ...] = ()
    ) -> CompressedTasks:
        made = super().__new__(cls, tasks)
        made.compression, made.whole = compression, whole
        return made


def open_request(messages: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the tasks of a decoded request, as :class:`CompressedTasks` where it is compressed."""
    if messages and isinstance(messages[-1], CompressedRequest):
        return CompressedTasks(messages[:-1], messages[-1])
    return messages


def write_request(tasks: tuple[Any, ...]) -> bytes:
    """Encode tasks, and the compression that they come with."""
    if isinstance(tasks, CompressedTasks):
        return encode([*tasks, tasks.compression])
    return encode(tasks)


def lossy_forms(kind: type[Any]) -> Mapping[str, str]:
    """Give the fields of a kind of message that compression may change, and their forms."""
    forms: Mapping[str, str] = getattr(kind, "lossy", {})  # messages within messages state none
    return forms


def take_arrays(
    codec: Codec, messages: Sequence[Any]
) -> tuple[tuple[Any, ...], bytes, tuple[tuple[int, ...], ...]]:
    """Take all arrays but tables out of messages, as far as a codec compresses them.

    Args:
        codec: the settings.
        messages: tasks or replies.

    Returns:
        The messages with empty arrays in their places; the bytes of the arrays; their shapes.

    Raises:
        InvalidInput: a number is beyond the range of the codec.
    """
    content: list[bytes] = []
    shapes: list[tuple[int, ...]] = []

    def take(values: Array, lossy: bool) -> Array:
        content.append(encode_numbers(_settings(codec, lossy), values))
        shapes.append(values.shape)
        return np.zeros((0,) * max(values.ndim, 1), dtype=values.dtype)

    left = tuple(_walk(codec, one, take) for one in messages)
    return left, b"".join(content), tuple(shapes)


def put_arrays(
    codec: Codec, messages: Sequence[Any], content: bytes, shapes: Sequence[tuple[int, ...]]
) -> tuple[Any, ...]:
    """Put arrays back that :func:`take_arrays` took out.

    Args:
        codec: the settings.
        messages: tasks or replies, with empty arrays in the places of those that were taken out.
        content: bytes of the arrays.
        shapes: shapes of the arrays.

    Raises:
        KnowledgeRefused: shapes and bytes do not fit the messages, or a number is NaN or infinite.
    """
    remaining, position = list(shapes), 0

    def put(empty: Array, lossy: bool) -> Array:
        nonlocal position
        if empty.size or not remaining:
            raise KnowledgeRefused("an array is in its place, and should have been compressed")
        shape = remaining.pop(0)
        if any(side < 0 for side in shape):
            raise KnowledgeRefused(f"an array of shape {shape}")
        settings, count = _settings(codec, lossy), math.prod(shape)
        end = position + encoded_length(settings, count, empty.dtype.itemsize)
        if end > len(content):
            raise KnowledgeRefused(f"an array of shape {shape} in {len(content) - position} bytes")
        values = decode_numbers(settings, content[position:end], count, empty.dtype)
        position = end
        return values.reshape(shape)

    restored = tuple(_walk(codec, one, put) for one in messages)
    if remaining or position != len(content):
        raise KnowledgeRefused(f"{len(content) - position} bytes too many")
    return restored


def _settings(codec: Codec, lossy: bool) -> Codec:
    """The part of a codec that holds for an array beside tables."""
    return Codec(bits=codec.bits if lossy else 0, level=codec.level)


def _walk(codec: Codec, value: Any, change: Callable[[Array, bool], Array]) -> Any:
    """A copy of a message with ``change(array, lossy)`` in place of the arrays that a codec compresses."""

    def changed(item: Any, form: str | None) -> Any:
        if isinstance(item, np.ndarray):
            lossy = form == "numbers" and item.dtype.kind == "f" and codec.bits > 0
            # Tables have coders of their own (:mod:`consilience.transforms.exchange`).
            compressed = (lossy or codec.level) and form not in ("rows", "scores")
            return change(item, lossy) if compressed else item
        if isinstance(item, tuple | list):
            return tuple(changed(one, None) for one in item)
        if isinstance(item, Mapping):
            return {name: changed(one, None) for name, one in item.items()}
        if REGISTRY.get(type(item).__name__) is type(item):
            forms = lossy_forms(type(item))
            return replace(
                item, **{name: changed(one, forms.get(name)) for name, one in fields(item)}
            )
        return item

    return changed(value, None)
