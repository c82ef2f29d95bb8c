"""Compress messages at the coordinator and at the parties.

Messages keep their types, with empty arrays in place of the extracted arrays. The bytes of these arrays
follow in one :class:`Compressed`. Each request and each answer is compressed independently, without state
from earlier messages.

A *table* is an array with one row per public row. If a reply consists of a table and of values that the
coordinator has already, only the table is sent, and the coordinator rebuilds the reply from it.

:class:`Compression` is the coordinator's side; :class:`CompressedRequest` carries out the party's side.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import REGISTRY, Brief, fields, message
from consilience.core.messages.schema import Agreement
from consilience.core.tasks.requests import Header, Stage
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory
from consilience.methods.compression.codec import Codec, read_codec
from consilience.methods.compression.numbers import decode_numbers, encode_numbers, encoded_length
from consilience.methods.compression.rows import RowCoder
from consilience.methods.compression.zstd import compress, decompress

_MOST_RATIO, _SMALL = 256, 1 << 20
"""Limit of the decoded arrays other than tables: this ratio times the received bytes, plus this constant."""


@message
class Compressed(Brief):
    """Arrays extracted from the preceding messages.

    Attributes:
        size: number of bytes before zstd.
        data: the bytes, shape ``(n_bytes,)``, uint8: tables first, then the other arrays in order.
        shapes: shapes of the other arrays.
        notes: notes of the omitted replies.
        whole: positions of the preceding messages which keep their arrays.
    """

    size: int
    data: Array
    shapes: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()


def lossy_forms(kind: type[Any]) -> Mapping[str, str]:
    """Return the fields of a message type which compression may change, with their forms."""
    forms: Mapping[str, str] = getattr(kind, "lossy", {})  # messages within messages state none
    return forms


@dataclass(frozen=True)
class Taken:
    """Messages with empty arrays, and the arrays extracted from them.

    Attributes:
        left: the messages, with empty arrays in place of the extracted arrays.
        content: bytes of the extracted arrays.
        shapes: shapes of the extracted arrays.
        whole: positions of the unchanged messages.
    """

    left: tuple[Any, ...]
    content: bytes
    shapes: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]


class _StaysWhole(Exception):
    """A message cannot be without its arrays: its class checks them when it is made."""


def take_arrays(codec: Codec, messages: Sequence[Any]) -> Taken:
    """Extract all arrays except tables from messages, as far as the codec compresses them.

    Args:
        codec: the settings.
        messages: tasks or replies.

    Raises:
        InvalidInput: a number is beyond the range of the codec.
    """
    content: list[bytes] = []
    shapes: list[tuple[int, ...]] = []

    def take(values: Array, lossy: bool) -> Array:
        content.append(encode_numbers(_settings(codec, lossy), values))
        shapes.append(values.shape)
        return np.zeros((0,) * max(values.ndim, 1), dtype=values.dtype)

    left, whole = list[Any](), list[int]()
    for position, one in enumerate(messages):
        before = len(content)
        try:
            left.append(_walk(codec, one, take, _emptied))
        except _StaysWhole:
            del content[before:], shapes[before:]
            left.append(one)
            whole.append(position)
    return Taken(tuple(left), b"".join(content), tuple(shapes), tuple(whole))


def _emptied(message: Any, **changed: Any) -> Any:
    """Make a message with empty arrays, or raise :class:`_StaysWhole`."""
    try:
        return replace(message, **changed)
    except Exception as error:  # the checks of a message may raise anything
        raise _StaysWhole from error


def put_arrays(
    codec: Codec,
    messages: Sequence[Any],
    content: bytes,
    shapes: Sequence[tuple[int, ...]],
    whole: Container[int] = (),
) -> tuple[Any, ...]:
    """Restore the arrays which :func:`take_arrays` extracted.

    Args:
        codec: the settings.
        messages: tasks or replies, with empty arrays in place of the extracted arrays.
        content: bytes of the extracted arrays.
        shapes: shapes of the extracted arrays.
        whole: positions of the messages which kept their arrays.

    Returns:
        The messages with their arrays.

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

    restored = tuple(
        one if position in whole else _walk(codec, one, put)
        for position, one in enumerate(messages)
    )
    if remaining or position != len(content):
        raise KnowledgeRefused(f"{len(content) - position} bytes too many")
    return restored


def measure_arrays(
    codec: Codec,
    messages: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    most: Sequence[int | None] | None = None,
    whole: Container[int] = (),
) -> tuple[int, int]:
    """Compute the size of the arrays which :func:`put_arrays` would restore, without allocating them.

    Args:
        codec: the settings.
        messages: tasks or replies, with empty arrays in place of the extracted arrays.
        shapes: shapes of the extracted arrays.
        most: for each message, the largest allowed size of an array; ``None`` if there is no limit.
        whole: positions of the messages which kept their arrays.

    Returns:
        Bytes of the arrays before zstd, and bytes of the decoded arrays in memory.

    Raises:
        KnowledgeRefused: shapes do not fit the messages, or an array is larger than requested.
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

    largest = most or [None] * len(messages)
    for position, one in enumerate(messages):
        if position not in whole:
            _walk(codec, one, partial(measure, largest[position]))
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
    """The settings for an array other than a table: zstd, and the bits if the array may lose precision."""
    return Codec(bits=codec.bits if lossy else 0, level=codec.level)


def _walk(
    codec: Codec,
    value: Any,
    change: Callable[[Array, bool], Array],
    make: Callable[..., Any] = replace,
) -> Any:
    """A copy of a message with ``change(array, lossy)`` in place of the arrays that a codec compresses.

    Args:
        codec: the settings.
        value: the message.
        change: makes the array in place of another.
        make: makes a message of one and of its changed fields.
    """

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
            return make(item, **{name: changed(one, forms.get(name)) for name, one in fields(item)})
        return item

    return changed(value, None)


# --- tables, and the bytes of a message -----------------------------------------------------------------


def reply_table(codec: Codec, task: Any, agreement: Agreement) -> RowCoder | None:
    """Make the coder for the table in the reply to a task; ``None`` if the reply is not a table.

    Args:
        codec: the settings.
        task: the task.
        agreement: the federation's agreement.

    Raises:
        InvalidInput: the codec does not support tables of this kind.
    """
    form = lossy_forms(task.reply_type).get("values")
    if form == "scores":
        return RowCoder(codec, "scores", agreement.rows, 1)
    if form == "rows":
        kind = getattr(task, "outputs", _outputs(agreement))
        return RowCoder(codec, kind, agreement.rows, agreement.outputs)
    return None


def task_table(codec: Codec, task: Any, agreement: Agreement) -> tuple[str, RowCoder] | None:
    """Find a task's table field and its coder; ``None`` if the task has no table.

    Args:
        codec: the settings.
        task: the task.
        agreement: the federation's agreement.

    Raises:
        InvalidInput: the codec does not support tables of this kind.
    """
    for name, form in lossy_forms(type(task)).items():
        if form == "rows":
            coder = RowCoder(codec, _outputs(agreement), agreement.rows, agreement.outputs)
            return name, coder
    return None


def _outputs(agreement: Agreement) -> Any:
    """Kind of a teacher's rows."""
    return "values" if agreement.kind == "regression" else "probabilities"


def read_content(
    codec: Codec,
    given: Compressed,
    coders: Iterable[RowCoder],
    messages: Sequence[Any],
    most: Sequence[int | None] | None = None,
) -> bytes:
    """Decompress the bytes of a message, after a check that the decoded arrays do not exceed the limits.

    Args:
        codec: the settings.
        given: the message.
        coders: coders of its tables.
        messages: tasks or replies with empty arrays, to which the other arrays belong.
        most: see :func:`measure_arrays`.

    Raises:
        KnowledgeRefused: the bytes cannot be read, or the decoded arrays would be too large.
    """
    encoded, decoded = measure_arrays(codec, messages, given.shapes, most, given.whole)
    allowed = _SMALL + _MOST_RATIO * len(given.data)
    if decoded > allowed:
        raise KnowledgeRefused(
            f"{len(given.data):,} bytes become arrays of {decoded:,} bytes, of at most {allowed:,}"
        )
    try:
        check_memory(encoded + decoded, "its arrays", where="codec")
    except InvalidInput as error:
        raise KnowledgeRefused(error.what, mend=error.mend) from error
    tables = sum(coder.length for coder in coders)
    return decompress(codec, given.data, given.size, tables + encoded)


def write_content(
    codec: Codec, tables: bytes, taken: Taken, messages: Sequence[Any], notes: tuple[str, ...] = ()
) -> Compressed:
    """Compress the bytes of messages, unless the compression ratio exceeds the receiver's limit.

    Args:
        codec: the settings.
        tables: bytes of the tables.
        taken: the arrays, other than tables, extracted from the messages.
        messages: the messages without tables and extracted arrays.
        notes: notes of the omitted replies.
    """
    content = tables + taken.content
    data = compress(codec, content)
    decoded = measure_arrays(codec, messages, taken.shapes, whole=taken.whole)[1]
    if decoded > _SMALL + _MOST_RATIO * len(data):
        data = np.frombuffer(content, dtype=np.uint8)
    return Compressed(
        size=len(content), data=data, shapes=taken.shapes, notes=notes, whole=taken.whole
    )


# --- both ends ------------------------------------------------------------------------------------------


class Compression(Stage):
    """Compress requests and decompress the answers, at the coordinator.

    Args:
        codec: the settings.

    Attributes:
        taught: the last table sent, as the parties decode it, shape ``(n_public, n_outputs)``.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.taught: Array | None = None

    def send(
        self, tasks: tuple[Any, ...], agreement: Agreement
    ) -> tuple[tuple[Any, ...], CompressedRequest] | None:
        """Take arrays out of tasks, if there is something to compress in them or in the replies.

        Raises:
            InvalidInput: the codec is not for tables of this kind.
        """
        codec = self.codec
        taken = take_arrays(codec, tasks)
        emptied, written = list(taken.left), b""
        for i, task in enumerate(tasks):
            if table := task_table(codec, task, agreement):
                name, coder = table
                values = getattr(task, name)
                table_bytes = coder.write(values)
                self.taught, _ = coder.read(table_bytes)
                written += table_bytes
                emptied[i] = replace(emptied[i], **{name: np.zeros((0, 0), dtype=values.dtype)})
        replied = any(_may_compress(codec, task.reply_type) for task in tasks)
        if not (written or taken.shapes or replied):
            return None
        arrays = None
        if written or taken.shapes:
            arrays = write_content(codec, written, taken, emptied)
        return tuple(emptied), CompressedRequest(codec=codec.settings, arrays=arrays)

    def receive(
        self, party: str, tasks: tuple[Any, ...], replies: tuple[Any, ...], agreement: Agreement
    ) -> tuple[Any, ...]:
        """Put the arrays back into a party's replies.

        Raises:
            KnowledgeRefused: the bytes cannot be read.
        """
        if not replies or not isinstance(replies[-1], Compressed):
            return replies
        *plain, given = replies
        coders = [reply_table(self.codec, task, agreement) for task in tasks]
        beside = [task for task, coder in zip(tasks, coders, strict=True) if coder is None]
        if len(plain) != len(beside):
            answers = len(plain) + len(tasks) - len(beside)
            raise KnowledgeRefused(f"{answers} answers to {len(tasks)} tasks")
        most = [_most_numbers(task) for task in beside]
        content = read_content(self.codec, given, filter(None, coders), plain, most)
        made: dict[int, Any] = {}
        for i, (task, coder) in enumerate(zip(tasks, coders, strict=True)):
            if coder is not None:
                values, content = coder.read(content)
                made[i] = _table_reply(task, values, party, given.notes, agreement)
        others = iter(put_arrays(self.codec, plain, content, given.shapes, given.whole))
        return tuple(made[i] if i in made else next(others) for i in range(len(tasks)))


@message
class CompressedRequest(Header):
    """Compress the preceding tasks and the replies to them, at a party.

    Attributes:
        codec: settings of the :class:`~consilience.methods.compression.codec.Codec` other than the defaults.
        arrays: extracted arrays of the tasks; ``None`` if the tasks kept their arrays.
    """

    codec: Mapping[str, Any]
    arrays: Compressed | None = None

    def open(self, tasks: tuple[Any, ...], agreement: Agreement) -> tuple[Any, ...]:
        """Put the arrays of a request back into its tasks.

        Raises:
            KnowledgeRefused: the request cannot be read.
        """
        given = self.arrays
        if given is None:
            return tasks
        codec = read_codec(self.codec)
        tables = {
            i: table
            for i, task in enumerate(tasks)
            if (table := task_table(codec, task, agreement)) and not getattr(task, table[0]).size
        }
        content = read_content(codec, given, [coder for _, coder in tables.values()], tasks)
        restored = list(tasks)
        for i, (name, coder) in tables.items():
            values, content = coder.read(content)
            if not np.isfinite(values).all():
                raise KnowledgeRefused(f"{name} holds NaN or infinite numbers")
            restored[i] = replace(tasks[i], **{name: values})
        return put_arrays(codec, restored, content, given.shapes, given.whole)

    def seal(
        self, tasks: tuple[Any, ...], replies: tuple[Any, ...], *, party: str, agreement: Agreement
    ) -> tuple[Any, ...]:
        """Take the arrays out of replies.

        Returns:
            The replies without tables, and one :class:`Compressed`; the unchanged replies if they contain no
            array to compress.

        Raises:
            KnowledgeRefused: a reply would be refused on arrival.
            InvalidInput: a number is beyond the range of the codec.
        """
        codec = read_codec(self.codec)
        coders = [reply_table(codec, task, agreement) for task in tasks]
        others, written, notes = list[Any](), b"", list[str]()
        for task, reply, coder in zip(tasks, replies, coders, strict=True):
            # What would be refused on arrival is not even written: NaN has no bytes in most codecs.
            if lossy_forms(type(reply)):
                reply.validate(party=party, task=task, agreement=agreement)
            if coder is None:
                others.append(reply)
            else:
                written += coder.write(reply.values)
                notes += getattr(reply, "notes", ())
        taken = take_arrays(codec, others)
        if len(others) == len(replies) and not taken.shapes:
            return replies
        return (*taken.left, write_content(codec, written, taken, taken.left, tuple(notes)))


def _table_reply(
    task: Any, values: Array, party: str, notes: tuple[str, ...], agreement: Agreement
) -> Any:
    """Rebuild the reply to a task from its table, the task, the agreement and the notes."""
    given = {
        "party": party,
        "round": task.round,
        "public": agreement.public,
        "classes": agreement.classes,
        "kind": getattr(task, "outputs", None),
        "absent": not values.any(),  # scores are 0 on every row of a party without rows alone
        "values": values[:, 0] if lossy_forms(task.reply_type)["values"] == "scores" else values,
        "notes": notes,
    }
    return task.reply_type(
        **{field.name: given[field.name] for field in dataclasses.fields(task.reply_type)}
    )


def _most_numbers(task: Any) -> int | None:
    """Largest allowed array size in the reply to a task; ``None`` if the task sets no size."""
    if "numbers" not in lossy_forms(task.reply_type).values():
        return None
    size = getattr(task, "size", None)
    return size if isinstance(size, int) else None


def _may_compress(codec: Codec, kind: type[Any]) -> bool:
    """Return whether a codec compresses any field of a reply type."""
    forms = lossy_forms(kind).values()
    return any(form != "numbers" or codec.bits for form in forms) or (
        codec.level > 0 and _holds_arrays(kind)
    )


def _holds_arrays(kind: Any) -> bool:
    """Return whether a message type has array fields, also within nested messages."""
    return any(_names_array(hint) for hint in get_type_hints(kind).values())


def _names_array(hint: Any) -> bool:
    """Return whether a type is an array, or contains arrays."""
    if get_origin(hint) is np.ndarray:
        return True
    if isinstance(hint, type) and REGISTRY.get(hint.__name__) is hint:
        return _holds_arrays(hint)
    return any(_names_array(one) for one in get_args(hint))
