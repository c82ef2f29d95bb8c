"""Compression at the coordinator: requests compressed, replies restored, and what was sent remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from consilience.errors import KnowledgeRefused
from consilience.messages.message import REGISTRY
from consilience.messages.schema import Agreement
from consilience.transforms.codec import Codec
from consilience.transforms.compressed_messages import (
    Compressed,
    CompressedRequest,
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
from consilience.transforms.row_coder import Memory, RowCoder
from consilience.validation.arrays import Array


class Compression:
    """The coordinator's end of a compressed exchange, over all rounds of a protocol.

    Args:
        codec: the settings.
        agreement: what the federation agreed on.
        state: what :meth:`state` gave after an earlier round; empty to begin.

    Attributes:
        taught: the last table that was sent, as the parties have it, shape ``(n_public, n_outputs)``.
    """

    def __init__(self, codec: Codec, agreement: Agreement, state: Mapping[str, Any]) -> None:
        self.codec, self._agreement = codec, agreement
        self.taught: Array | None = None
        self._heard: dict[str, dict[str, Memory]] = dict(state.get("heard", {}))
        self._sent: dict[str, Memory] = dict(state.get("sent", {}))
        self._told: dict[str, dict[str, int]] = dict(state.get("told", {}))
        self._due: Array | None = state.get("due")
        self._telling: dict[str, dict[str, int]] = {}
        self._round = 0

    def state(self) -> dict[str, Any]:
        """Give the memory to keep after a round: plain numbers and arrays."""
        state: dict[str, Any] = {}
        if self.codec.remembers:
            state = {
                "heard": dict(sorted(self._heard.items())),
                "sent": dict(self._sent),
                "told": {party: told for party, told in sorted(self._told.items()) if told},
            }
        return state if self._due is None else {**state, "due": self._due}

    def requests(self, asked: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        """Compress the tasks of parties, where there is something to compress in them or in the replies.

        Args:
            asked: party to its tasks; parties with the same tasks (the same tuple) are treated as one group.
        """
        alike: dict[int, list[str]] = {}
        for party, tasks in asked.items():
            alike.setdefault(id(tasks), []).append(party)
        made: dict[str, tuple[Any, ...]] = {}
        for group in alike.values():
            made.update(self._requests(asked[group[0]], group))
        return {party: made[party] for party in asked}

    def _requests(self, tasks: tuple[Any, ...], to: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        """Compressed requests of one group of parties.

        Of a table there are two versions at most: all rows for the parties that have none, and for the others
        what changed since the exchange that the one furthest behind has heard.
        """
        codec, agreement, round = self.codec, self._agreement, tasks[0].round
        self._round = round
        answered = [reply_table(codec, task, agreement) for task in tasks]
        keys = [t.reply_type.__name__ for t, c in zip(tasks, answered, strict=True) if c]
        tables = {i: t for i, task in enumerate(tasks) if (t := task_table(codec, task, agreement))}
        taught = {type(tasks[i]).__name__ for i in tables}
        number = self._number(round, keys, taught)
        left, content, shapes = take_arrays(codec, tasks)
        known: list[tuple[RowCoder, Memory]] = []
        for i, (name, coder) in tables.items():
            key = type(tasks[i]).__name__
            values = getattr(tasks[i], name)
            memory = coder.update(values, self._sent.get(key, {}), number)
            known.append((coder, memory))
            self.taught = coder.values(memory["rows"])
            if codec.remembers:
                self._sent[key] = memory
            empty = np.zeros((0, 0), dtype=values.dtype)
            left = (*left[:i], replace(left[i], **{name: empty}), *left[i + 1 :])
        self._telling.update(dict.fromkeys(to, dict.fromkeys(taught, number)))
        replied = any(_may_compress(codec, task.reply_type) for task in tasks)
        if not (tables or shapes or replied):
            return dict.fromkeys(to, tasks)
        heard = {party: self._last_heard(party, keys) for party in to}
        told = {party: self._last_told(party, taught) for party in to}
        groups = [[p for p in to if not told[p]], [p for p in to if told[p]]] if tables else [to]
        requests: dict[str, tuple[Any, ...]] = {}
        for group in filter(None, groups):
            since = min(told[party] for party in group) if tables else 0
            written = b"".join(coder.write(memory, since) for coder, memory in known)
            arrays = None
            if tables or shapes:
                whole = written + content
                data = write_content(codec, whole, left, shapes)
                arrays = Compressed(size=len(whole), data=data, since=since, shapes=shapes)
            late = {
                p: heard[p] for p in group if keys and codec.remembers and heard[p] != number - 1
            }
            compression = CompressedRequest(
                codec=codec.settings,
                heard=late,
                told={p: told[p] for p in group if tables and 0 < told[p] != number - 1},
                wanted=self._wanted() if keys else None,
                arrays=arrays,
                number=0 if number == round else number,
            )
            request = CompressedTasks(left, compression, tasks)
            requests.update(dict.fromkeys(group, request))
        for party in to:  # until it answers, nobody knows what it has
            kept = self._told.get(party, {})
            self._told[party] = {key: at for key, at in kept.items() if key not in taught}
        return requests

    def decompress(
        self, party: str, tasks: CompressedTasks, outcome: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Memory]]:
        """Put the arrays back into a party's replies.

        Args:
            party: name of the party.
            tasks: what it was asked.
            outcome: what it sent.

        Returns:
            A reply to each task, and what :meth:`accept` remembers once these are known to be right.

        Raises:
            KnowledgeRefused: the bytes cannot be read.
        """
        if not outcome or not isinstance(outcome[-1], Compressed):
            return outcome, {}
        *plain, given = outcome
        codec, agreement, number = self.codec, self._agreement, tasks.number
        asked = changes_since(tasks.compression.heard, party, number, codec)
        if given.since not in (0, asked):
            raise KnowledgeRefused(
                f"changes since exchange {given.since}, and those since {asked} were asked for"
            )
        coders = [reply_table(codec, task, agreement) for task in tasks]
        tables = [(task, coder) for task, coder in zip(tasks, coders, strict=True) if coder]
        beside = [task for task, coder in zip(tasks, coders, strict=True) if coder is None]
        if len(plain) != len(beside):
            raise KnowledgeRefused(f"{len(plain) + len(tables)} answers to {len(tasks)} tasks")
        most = [_most_numbers(task) for task in beside]
        content = read_content(codec, given, [coder for _, coder in tables], plain, most)
        known: dict[str, Memory] = {}
        made = []
        for task, coder in tables:
            key = task.reply_type.__name__
            arrived, content = coder.read(content, given.since)
            before = self._heard[party][key] if given.since else {}
            known[key] = coder.take(arrived, before, number)
            values = coder.values(known[key]["rows"])
            made.append(
                _table_reply(task, values, party=party, notes=given.notes, agreement=agreement)
            )
        others = iter(put_arrays(codec, plain, content, given.shapes))
        from_tables = iter(made)
        replies = [next(from_tables if coder else others) for coder in coders]
        return tuple(replies), known if codec.remembers else {}

    def accept(self, party: str, known: dict[str, Memory]) -> None:
        """Remember what a party sent, and that it was told, once its replies are accepted.

        Args:
            party: name of the party.
            known: what :meth:`decompress` gave.
        """
        if known:
            self._heard[party] = {**self._heard.get(party, {}), **known}
        if self.codec.remembers:
            self._told[party] = {**self._told.get(party, {}), **self._telling.get(party, {})}

    def _number(self, round: int, heard: Iterable[str], told: Iterable[str]) -> int:
        """Number of an exchange: larger than all in which tables of these kinds arrived or were sent."""
        if not self.codec.remembers:
            return round
        last = [
            int(kept[key]["round"]) for kept in self._heard.values() for key in heard if key in kept
        ]
        last += [int(self._sent[key]["round"]) for key in told if key in self._sent]
        return max([round, *(number + 1 for number in last)])

    def _last_heard(self, party: str, keys: Iterable[str]) -> int:
        """Last exchange of which all these tables of a party are known, 0 for none."""
        kept = self._heard.get(party, {})
        return min((int(kept[key]["round"]) if key in kept else 0 for key in keys), default=0)

    def _last_told(self, party: str, keys: Iterable[str]) -> int:
        """Exchange in which a party was last told all these tables, 0 where it was not, or one by one."""
        kept = self._told.get(party, {})
        numbers = {kept.get(key, 0) for key in keys}
        return numbers.pop() if len(numbers) == 1 else 0

    # --- rows that rest ---

    def _wanted(self) -> Array | None:
        """Bits of the rows that are asked for; ``None`` for all."""
        rests = self.resting()
        return None if rests is None else np.packbits(~rests)

    def resting(self) -> Array | None:
        """Give the mask of the rows that are not asked for in the round that goes on; ``None`` for no row."""
        if self._due is None or not (self._due > self._round).any():
            return None
        return np.asarray(self._due > self._round)

    def settle(self, round: int, before: Array | None, after: Array) -> None:
        """Decide which rows rest from now on: the ones whose consensus hardly moved when it was asked for.

        Args:
            round: the round that ends.
            before: consensus of the round before; ``None`` in the first.
            after: consensus of the round.
        """
        codec = self.codec
        if not codec.rest:
            return
        if before is None or self._due is None:
            self._due = np.full(len(after), round + 1)
            return
        quiet = np.abs(after - before).sum(axis=1) / 2 <= codec.still
        again = np.where(quiet, round + 1 + codec.rest, round + 1)
        self._due = np.where(self._due <= round, again, self._due)


def _table_reply(
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
        "absent": not values.any(),  # scores are 0 on every row of a party without rows alone
        "values": values[:, 0] if lossy_forms(task.reply_type)["values"] == "scores" else values,
        "notes": notes,
    }
    return task.reply_type(**{field.name: given[field.name] for field in fields(task.reply_type)})


def _most_numbers(task: Any) -> int | None:
    """Most numbers of an array in the reply to a task; ``None`` where it does not say how many it wants."""
    if "numbers" not in lossy_forms(task.reply_type).values():
        return None
    size = getattr(task, "size", None)
    return size if isinstance(size, int) else None


def _may_compress(codec: Codec, kind: type[Any]) -> bool:
    """Tell whether a codec has something to do in a kind of reply."""
    forms = lossy_forms(kind).values()
    return any(form != "numbers" or codec.bits for form in forms) or (
        codec.level > 0 and _holds_arrays(kind)
    )


def _holds_arrays(kind: Any) -> bool:
    """Tell whether a kind of message has fields with arrays, also within other messages."""
    return any(_names_array(hint) for hint in get_type_hints(kind).values())


def _names_array(hint: Any) -> bool:
    """Tell whether a type is an array, or holds arrays."""
    if get_origin(hint) is np.ndarray:
        return True
    if isinstance(hint, type) and REGISTRY.get(hint.__name__) is hint:
        return _holds_arrays(hint)
    return any(_names_array(one) for one in get_args(hint))
