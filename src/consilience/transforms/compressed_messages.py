"""Messages of a compressed exchange, and arrays and tables taken out of messages and put back.

Messages stay what they are, with empty arrays in place of the ones that were taken out; these follow as bytes
in one :class:`Compressed`.

A *table* is an array with a row for each public row. Replies that are a table, and hold nothing else that
the coordinator does not know, are left out whole and made again from it. Of tables both ends remember what
was sent: the coordinator in ``RoundState.coding``, a party in its memory. A party that is late, fails or
misses a round stays behind, and is sent what it missed. Nothing is ever put beside rows that the receiver may
not have: a message says which exchange it goes on from, and where the two ends differ all rows are sent, or
it is refused.

Exchanges of a table have numbers that grow with each: that of the round, or a larger one where the same kind
of table is sent again within a round, or another to each party.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.message import REGISTRY, Brief, fields, message
from consilience.messages.schema import Agreement
from consilience.messages.wire import encode
from consilience.transforms.byte_coder import compress, decompress
from consilience.transforms.codec import Codec
from consilience.transforms.number_coder import decode_numbers, encode_numbers, encoded_length
from consilience.transforms.row_coder import RowCoder
from consilience.validation.arrays import Array
from consilience.validation.memory import check_memory

_MOST_RATIO, _SMALL = 256, 1 << 20
"""Arrays beside tables may take so many times the bytes that arrived in memory, and this number more."""


@message
class Compressed(Brief):
    """Arrays that were taken out of the messages before it.

    Attributes:
        size: bytes before zstd.
        data: the bytes, shape ``(n_bytes,)``, uint8: tables first, then other arrays in their order.
        since: number of the exchange that the rows of tables are changes since; 0 where all rows are there.
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
        codec: settings of the :class:`~consilience.transforms.codec.Codec` that are not the defaults.
        heard: party to the number of its last tables that arrived, where that is not the one before.
        told: party to the number of the last table that it was sent, where that is not the one before.
        wanted: public rows that are asked for, a bit each, shape ``(n_bytes,)``, uint8; ``None`` for all.
        arrays: arrays of the tasks; ``None`` where they are in their places.
        number: of the exchange, where it is not that of the round; 0 where it is.
    """

    codec: Mapping[str, Any]
    heard: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, int] = field(default_factory=dict)
    wanted: Array | None = None
    arrays: Compressed | None = None
    number: int = 0


@message
class AskedBefore(Brief):
    """Mark of a request that is like an earlier one of its round, and wants a reply of its own.

    Attributes:
        times: how often it was asked before.
    """

    times: int


class CompressedTasks(tuple[Any, ...]):
    """Tasks of a request with compression; their arrays are put back at the party, before they run.

    As a tuple it holds the tasks, with empty arrays in the places of those that were taken out.

    Attributes:
        compression: the compression of the tasks, and of the replies to them.
        whole: the tasks with their arrays, where they are known; they are not sent.
    """

    compression: CompressedRequest
    whole: tuple[Any, ...]

    @property
    def number(self) -> int:
        """Number of the exchange, by which both ends know its tables."""
        return self.compression.number or int(self[0].round)

    def __new__(
        cls, tasks: Sequence[Any], compression: CompressedRequest, whole: tuple[Any, ...] = ()
    ) -> CompressedTasks:
        made = super().__new__(cls, tasks)
        made.compression, made.whole = compression, whole
        return made


def open_request(messages: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the tasks of a decoded request, as :class:`CompressedTasks` where it is compressed."""
    if messages and isinstance(messages[-1], AskedBefore):
        messages = messages[:-1]
    if messages and isinstance(messages[-1], CompressedRequest):
        return CompressedTasks(messages[:-1], messages[-1])
    return messages


def write_request(tasks: tuple[Any, ...], before: int = 0) -> bytes:
    """Encode tasks, and the compression that they come with.

    A party at its own machine gives a request that comes again, byte by byte, its earlier reply.

    Args:
        tasks: of the request.
        before: how often the same was asked in the round before, and is not meant now.
    """
    messages = [*tasks, tasks.compression] if isinstance(tasks, CompressedTasks) else [*tasks]
    return encode([*messages, AskedBefore(times=before)] if before else messages)


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
        shape = _next_shape(empty, remaining)
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


def measure_arrays(
    codec: Codec,
    messages: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    most: Sequence[int | None] | None = None,
) -> tuple[int, int]:
    """Compute the bytes of the arrays that :func:`put_arrays` would put back, without making one.

    Args:
        codec: the settings.
        messages: tasks or replies, with empty arrays in the places of those that were taken out.
        shapes: shapes of the arrays.
        most: for each message the numbers that an array of it may have at most; ``None`` where nobody knows.

    Returns:
        Bytes of the arrays before zstd, and in memory once they are decoded.

    Raises:
        KnowledgeRefused: shapes do not fit the messages, or an array is larger than was asked for.
    """
    remaining, encoded, decoded = list(shapes), 0, 0

    def measure(largest: int | None, empty: Array, lossy: bool) -> Array:
        nonlocal encoded, decoded
        shape = _next_shape(empty, remaining)
        count = math.prod(shape)
        if largest is not None and count > largest:
            raise KnowledgeRefused(
                f"an array of shape {shape}, and at most {largest:,} numbers were asked for"
            )
        encoded += encoded_length(_settings(codec, lossy), count, empty.dtype.itemsize)
        decoded += count * empty.dtype.itemsize
        return empty

    for one, largest in zip(messages, most or [None] * len(messages), strict=True):
        _walk(codec, one, partial(measure, largest))
    if remaining:
        raise KnowledgeRefused(f"{len(remaining)} arrays too many")
    return encoded, decoded


def _next_shape(empty: Array, remaining: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Take the shape of an array from the front of those that remain."""
    if empty.size or not remaining:
        raise KnowledgeRefused("an array is in its place, and should have been compressed")
    shape = remaining.pop(0)
    if any(side < 0 for side in shape):
        raise KnowledgeRefused(f"an array of shape {shape}")
    return shape


def _settings(codec: Codec, lossy: bool) -> Codec:
    """The part of a codec that holds for an array beside tables."""
    return Codec(bits=codec.bits if lossy else 0, level=codec.level)


def _walk(codec: Codec, value: Any, change: Callable[[Array, bool], Array]) -> Any:
    """A copy of a message with ``change(array, lossy)`` in place of the arrays that a codec compresses."""

    def changed(item: Any, form: str | None) -> Any:
        if isinstance(item, np.ndarray):
            lossy = form == "numbers" and item.dtype.kind == "f" and codec.bits > 0
            # Tables have coders of their own (:func:`reply_table`, :func:`task_table`).
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


# --- tables, and the bytes of a message -----------------------------------------------------------------


def reply_table(codec: Codec, task: Any, agreement: Agreement) -> RowCoder | None:
    """Make the coder of the table that a task is answered with; ``None`` where the reply is no table.

    Args:
        codec: the settings.
        task: the task.
        agreement: what the federation agreed on.

    Raises:
        InvalidInput: the codec is not for tables of this kind.
    """
    form = lossy_forms(task.reply_type).get("values")
    if form == "scores":
        return RowCoder(codec, "scores", agreement.rows, 1)
    if form == "rows":
        kind = getattr(task, "outputs", _outputs(agreement))
        return RowCoder(codec, kind, agreement.rows, agreement.outputs)
    return None


def task_table(codec: Codec, task: Any, agreement: Agreement) -> tuple[str, RowCoder] | None:
    """Find the field of a task that is a table, and its coder; ``None`` where it has none.

    Args:
        codec: the settings.
        task: the task.
        agreement: what the federation agreed on.

    Raises:
        InvalidInput: the codec is not for tables of this kind.
    """
    for name, form in lossy_forms(type(task)).items():
        if form == "rows":
            coder = RowCoder(codec, _outputs(agreement), agreement.rows, agreement.outputs)
            return name, coder
    return None


def _outputs(agreement: Agreement) -> Any:
    """Kind of a teacher's rows."""
    return "values" if agreement.kind == "regression" else "probabilities"


def changes_since(heard: Mapping[str, int], party: str, number: int, codec: Codec) -> int:
    """Give the number of the exchange that changes can be changes since, 0 for none.

    Args:
        heard: party to the exchange that was last heard of it, where that is not the one before.
        party: name of the party.
        number: number of the exchange.
        codec: the settings.
    """
    last = heard.get(party, number - 1) if codec.remembers else 0
    return last if last < number else 0


def read_content(
    codec: Codec,
    given: Compressed,
    coders: Iterable[RowCoder],
    messages: Sequence[Any],
    most: Sequence[int | None] | None = None,
) -> bytes:
    """Decompress the bytes of a message, once what they would become is known to be no more than it may.

    Args:
        codec: the settings.
        given: the message.
        coders: coders of the tables in it.
        messages: tasks or replies that its other arrays belong to, with empty arrays in their places.
        most: see :func:`measure_arrays`.

    Raises:
        KnowledgeRefused: they cannot be read, or become too much.
    """
    encoded, decoded = measure_arrays(codec, messages, given.shapes, most)
    allowed = _SMALL + _MOST_RATIO * len(given.data)
    if decoded > allowed:
        raise KnowledgeRefused(
            f"{len(given.data):,} bytes become arrays of {decoded:,} bytes, of at most {allowed:,}"
        )
    try:
        check_memory(encoded + decoded, "its arrays", where="codec")
    except InvalidInput as error:
        raise KnowledgeRefused(error.what, mend=error.mend) from error
    tables = sum(coder.most_bytes for coder in coders)
    return decompress(codec, given.data, given.size, tables + encoded)


def write_content(
    codec: Codec, content: bytes, messages: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> Array:
    """Compress the bytes of a message, unless the receiver would refuse so few for what they become.

    Args:
        codec: the settings.
        content: the bytes.
        messages: what :func:`take_arrays` left.
        shapes: shapes of the arrays that it took.
    """
    data = compress(codec, content)
    if measure_arrays(codec, messages, shapes)[1] > _SMALL + _MOST_RATIO * len(data):
        return np.frombuffer(content, dtype=np.uint8)
    return data
