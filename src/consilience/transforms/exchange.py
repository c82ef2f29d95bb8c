"""Compression of an exchange: what either end does with its messages, and what it remembers of them.

    coordinator   :meth:`.Compression.requests`    takes arrays out of tasks, says how replies are wanted
    party         :func:`restore_tasks`            puts them back, before the tasks run
    party         :func:`compress_replies`         takes arrays out of replies, last before they leave
    coordinator   :meth:`.Compression.decompress`  puts them back, first when they arrive

The two in the middle are called in :mod:`consilience.tasks.outgoing` alone, the last in
:mod:`consilience.networks.incoming` alone: tasks, protocols and aggregators see messages without compression.

A *table* is an array with a row for each public row. Replies that are a table, and hold nothing else that
the coordinator does not know, are left out whole and made again from it. Of tables both ends remember what
was sent: the coordinator in ``RoundState.coding``, a party in its memory. A party that is late, fails or
misses a round stays behind, and is sent what it missed. Nothing is ever put beside rows that the receiver may
not have: a message says which round it goes on from, and where the two ends differ all rows are sent, or it
is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.schema import Agreement
from consilience.transforms.byte_coder import compress, decompress
from consilience.transforms.compressed import (
    Compressed,
    CompressedRequest,
    CompressedTasks,
    lossy_forms,
    put_arrays,
    take_arrays,
)
from consilience.transforms.compression import Codec
from consilience.transforms.row_coder import Memory, RowCoder
from consilience.validation.arrays import Array

_MOST_RATIO, _SMALL = 256, 1 << 20
"""Arrays beside tables may come to so many times the bytes that arrived, and this number more."""


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
    for field, form in lossy_forms(type(task)).items():
        if form == "rows":
            coder = RowCoder(codec, _outputs(agreement), agreement.rows, agreement.outputs)
            return field, coder
    return None


def _outputs(agreement: Agreement) -> Any:
    """Kind of a teacher's rows."""
    return "values" if agreement.kind == "regression" else "probabilities"


def changes_since(heard: Mapping[str, int], party: str, round: int, codec: Codec) -> int:
    """Give the round that changes can be changes since, 0 for none.

    Args:
        heard: party to the round that was last heard of it, where that is not the round before.
        party: name of the party.
        round: the round.
        codec: the settings.
    """
    last = heard.get(party, round - 1) if codec.remembers else 0
    return last if last < round else 0


def read_content(codec: Codec, given: Compressed, coders: Iterable[RowCoder]) -> bytes:
    """Decompress the bytes of a message, no more of them than there can be.

    Args:
        codec: the settings.
        given: the message.
        coders: coders of the tables in it.

    Raises:
        KnowledgeRefused: they cannot be read, or are too many.
    """
    tables = sum(coder.most_bytes for coder in coders)
    most = tables + _SMALL + _MOST_RATIO * len(given.data) if given.shapes else tables
    return decompress(codec, given.data, given.size, most)


def table_reply(
    task: Any, values: Array, *, party: str, notes: tuple[str, ...], agreement: Agreement
) -> Any:
    """Make the reply to a task from its table and from what the coordinator knows.

    Args:
        task: the task.
        values: rows of the table, shape ``(n_public, columns)``.
        party: name of the party.
        notes: notes for the ledger.
        agreement: what the federation agreed on.
    """
    given = {
        "party": party,
        "round": task.round,
        "public": agreement.public,
        "classes": agreement.classes,
        "kind": getattr(task, "outputs", None),
        "values": values[:, 0] if lossy_forms(task.reply_type)["values"] == "scores" else values,
        "notes": notes,
    }
    return task.reply_type(**{field.name: given[field.name] for field in fields(task.reply_type)})


# --- the party --------------------------------------------------------------------------------------


def restore_tasks(
    tasks: CompressedTasks, *, party: str, agreement: Agreement, memory: MutableMapping[str, Array]
) -> tuple[Any, ...]:
    """Put the arrays of a request back into its tasks.

    Args:
        tasks: the tasks, as they arrived.
        party: name of the party.
        agreement: what the federation agreed on.
        memory: memory of the party, in which it keeps the tables that it was sent.

    Raises:
        KnowledgeRefused: the request cannot be read, or holds changes to a table that is not there.
    """
    request, given = tasks.compression, tasks.compression.arrays
    if given is None:
        return tuple(tasks)
    codec, round = read_codec(request.codec), tasks[0].round
    found = {
        i: table
        for i, task in enumerate(tasks)
        if (table := task_table(codec, task, agreement)) and not getattr(task, table[0]).size
    }
    content = read_content(codec, given, [coder for _, coder in found.values()])
    restored = list(tasks)
    for i, (name, coder) in found.items():
        key = f"told {type(tasks[i]).__name__}"
        known = _recall(memory, key, ("rows", "round"))
        has = int(known["round"]) if known else 0
        supposed = request.told.get(party, round - 1)
        if given.since and not (has == supposed >= given.since):
            raise KnowledgeRefused(
                f"changes of the teacher since round {supposed}, and it has that of {has or 'none'}"
            )
        arrived, content = coder.read(content, given.since)
        known = coder.take(arrived, known, round)
        if codec.remembers:
            _remember(memory, key, known)
        values = coder.values(known["rows"])
        if not np.isfinite(values).all():
            raise KnowledgeRefused(f"{name} holds NaN or infinite numbers")
        restored[i] = replace(tasks[i], **{name: values})
    return put_arrays(codec, restored, content, given.shapes)


def compress_replies(
    request: CompressedRequest,
    tasks: Sequence[Any],
    replies: tuple[Any, ...],
    *,
    party: str,
    agreement: Agreement,
    memory: MutableMapping[str, Array],
) -> tuple[Any, ...]:
    """Take the arrays out of replies that the coordinator wants compressed.

    Args:
        request: the compression that the coordinator wants.
        tasks: the tasks, with their arrays.
        replies: a reply to each.
        party: name of the party.
        agreement: what the federation agreed on.
        memory: memory of the party, in which it keeps the tables that it sent.

    Returns:
        The replies that are no tables, and one :class:`~consilience.transforms.compressed.Compressed`; the
        replies as they are where there is nothing to compress.

    Raises:
        KnowledgeRefused: a reply would be refused on arrival.
        InvalidInput: a number is beyond the range of the codec.
    """
    codec, round = read_codec(request.codec), tasks[0].round
    coders = [reply_table(codec, task, agreement) for task in tasks]
    for task, reply in zip(tasks, replies, strict=True):
        # What would be refused on arrival is not even written: NaN has no bytes in most codecs.
        if lossy_forms(type(reply)):
            reply.validate(party=party, task=task, agreement=agreement)
    tables = [(f"said {type(r).__name__}", r, c) for r, c in zip(replies, coders, strict=True) if c]
    others = [reply for reply, coder in zip(replies, coders, strict=True) if coder is None]
    left, content, shapes = take_arrays(codec, others)
    if not tables and not shapes:
        return replies
    wanted = None
    if request.wanted is not None:
        wanted = np.unpackbits(request.wanted, count=agreement.rows).astype(bool)
    since = changes_since(request.heard, party, round, codec)
    kept = {key: _recall(memory, key, ("rows", "rounds", "round")) for key, _, _ in tables}
    if any(not known or known["round"] < since for known in kept.values()):
        since = 0
    written = b""
    for key, reply, coder in tables:
        known = coder.update(reply.values, kept[key] if since else {}, round, wanted)
        written += coder.write(known, since)
        if codec.remembers:
            _remember(memory, key, known)
    whole = written + content
    compressed = Compressed(
        size=len(whole),
        data=write_content(codec, whole, len(content)),
        since=since if tables else 0,
        shapes=shapes,
        notes=tuple(note for _, reply, _ in tables for note in getattr(reply, "notes", ())),
    )
    return (*left, compressed)


def read_codec(settings: Mapping[str, Any]) -> Codec:
    """Make the codec of a request's settings.

    Raises:
        KnowledgeRefused: these are none.
    """
    try:
        return Codec(**settings)
    except (TypeError, InvalidInput) as error:
        raise KnowledgeRefused(f"no settings of a codec ({error})") from error


def write_content(codec: Codec, content: bytes, beside_tables: int) -> Array:
    """Compress the bytes of a message, unless the receiver would not believe that they come to so many.

    Args:
        codec: the settings.
        content: the bytes.
        beside_tables: number of bytes that are not of tables.
    """
    data = compress(codec, content)
    if beside_tables > _SMALL + _MOST_RATIO * len(data):
        return np.frombuffer(content, dtype=np.uint8)
    return data


def _recall(memory: Mapping[str, Array], key: str, names: Iterable[str]) -> Memory:
    """Memory of a table at a party, ``{}`` for none."""
    keys = {name: f"codec {key} {name}" for name in names}
    if not all(one in memory for one in keys.values()):
        return {}
    return {name: memory[one] for name, one in keys.items()}


def _remember(memory: MutableMapping[str, Array], key: str, known: Memory) -> None:
    """Keep the memory of a table at a party."""
    memory.update({f"codec {key} {name}": value for name, value in known.items()})
