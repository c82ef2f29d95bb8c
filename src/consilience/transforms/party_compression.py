"""Compression at a party: tasks restored before they run, and replies compressed last before they leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.errors import KnowledgeRefused
from consilience.messages.schema import Agreement
from consilience.transforms.codec import read_codec
from consilience.transforms.compressed_messages import (
    Compressed,
    CompressedTasks,
    changes_since,
    lossy_forms,
    put_arrays,
    read_content,
    reply_table,
    take_arrays,
    task_table,
    write_content,
)
from consilience.transforms.row_coder import Memory
from consilience.validation.arrays import Array


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
    codec, number = read_codec(request.codec), tasks.number
    found = {
        i: table
        for i, task in enumerate(tasks)
        if (table := task_table(codec, task, agreement)) and not getattr(task, table[0]).size
    }
    content = read_content(codec, given, [coder for _, coder in found.values()], tasks)
    restored = list(tasks)
    keys = {i: f"told {type(tasks[i]).__name__}" for i in found}
    tables = {key: _recall(memory, key, ("rows", "round")) for key in keys.values()}
    supposed = request.told.get(party, number - 1)
    for known in tables.values():
        has = int(known["round"]) if known else 0
        if given.since and not (has == supposed >= given.since):
            raise KnowledgeRefused(
                f"changes of the teacher since exchange {supposed}, and it has that of {has or 'none'}"
            )
    for i, (name, coder) in found.items():
        key = keys[i]
        arrived, content = coder.read(content, given.since)
        known = tables[key] = coder.take(arrived, tables[key], number)
        if codec.remembers:
            _remember(memory, key, known)
        values = coder.values(known["rows"])
        if not np.isfinite(values).all():
            raise KnowledgeRefused(f"{name} holds NaN or infinite numbers")
        restored[i] = replace(tasks[i], **{name: values})
    return put_arrays(codec, restored, content, given.shapes)


def compress_replies(
    asked: CompressedTasks,
    tasks: Sequence[Any],
    replies: tuple[Any, ...],
    *,
    party: str,
    agreement: Agreement,
    memory: MutableMapping[str, Array],
) -> tuple[Any, ...]:
    """Take the arrays out of replies that the coordinator wants compressed.

    Args:
        asked: the tasks as they arrived, with the compression that the coordinator wants.
        tasks: the tasks, with their arrays.
        replies: a reply to each.
        party: name of the party.
        agreement: what the federation agreed on.
        memory: memory of the party, in which it keeps the tables that it sent.

    Returns:
        The replies that are no tables, and one :class:`.Compressed`; the replies as they are where there is
        nothing to compress.

    Raises:
        KnowledgeRefused: a reply would be refused on arrival.
        InvalidInput: a number is beyond the range of the codec.
    """
    request, number = asked.compression, asked.number
    codec = read_codec(request.codec)
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
    since = changes_since(request.heard, party, number, codec)
    kept = {key: _recall(memory, key, ("rows", "rounds", "round")) for key, _, _ in tables}
    if any(not known or known["round"] < since for known in kept.values()):
        since = 0
    written = b""
    for key, reply, coder in tables:
        known = coder.update(reply.values, kept[key] if since else {}, number, wanted)
        written += coder.write(known, since)
        if codec.remembers:
            _remember(memory, key, known)
    whole = written + content
    compressed = Compressed(
        size=len(whole),
        data=write_content(codec, whole, left, shapes),
        since=since if tables else 0,
        shapes=shapes,
        notes=tuple(note for _, reply, _ in tables for note in getattr(reply, "notes", ())),
    )
    return (*left, compressed)


def _recall(memory: Mapping[str, Array], key: str, names: Iterable[str]) -> Memory:
    """Memory of a table at a party, ``{}`` for none."""
    keys = {name: f"codec {key} {name}" for name in names}
    if not all(one in memory for one in keys.values()):
        return {}
    return {name: memory[one] for name, one in keys.items()}


def _remember(memory: MutableMapping[str, Array], key: str, known: Memory) -> None:
    """Keep the memory of a table at a party."""
    memory.update({f"codec {key} {name}": value for name, value in known.items()})
