"""The two exchanges of a round through a codec: what the parties say, and what they are taught.

    ask      coordinator: for every public row, should the parties say it?        wanted
             every party: predict, and send the rows that the coordinator does not have yet
             coordinator: put them beside the rows that it has                    replies
    teach    coordinator: send the rows of the teacher that a party does not have yet
             every party: put them beside the rows that it has, and distil

Both do without where there is no codec, and then are one line of a protocol. What the ends remember of one
another is part of their state: the coordinator's is ``RoundState.coding``, a party's lies in its memory.

Who is late, fails or misses a round stays behind, and is sent what it missed. Nothing is ever put beside
rows that the receiver may not have: a message says which round it goes on from, the coordinator says which
round it knows of, and where the two differ all rows are sent, or the message is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from consilience.aggregation import Aggregator
from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.message import message
from consilience.messages.replies import Predictions, Receipt, Replies
from consilience.messages.schema import Agreement
from consilience.messages.scores import LogDensities
from consilience.protocols.base import RoundState, check_made
from consilience.tasks.base import Network, Task
from consilience.tasks.predictions import Distill
from consilience.transforms.compression import Codec, Coder, Form, Memory, compress, sections
from consilience.validation.arrays import Array

Coding = Mapping[str, Any]

_CODED = (Predictions, LogDensities)
"""Knowledge whose ``values`` go through a codec; all else is sent as it is."""


def _coder(codec: Codec, task: Any, agreement: Agreement) -> Coder:
    """Of what the task is answered with."""
    if task.reply_type is Predictions:
        return Coder(codec, task.outputs, agreement.rows, agreement.outputs)
    return Coder(codec, "scores", agreement.rows, 1)


def _teacher_coder(codec: Codec, agreement: Agreement) -> Coder:
    form: Form = "values" if agreement.kind == "regression" else "probabilities"
    return Coder(codec, form, agreement.rows, agreement.outputs)


def check_codec(codec: Codec | None, aggregate: Aggregator, network: Network) -> None:
    """Raise ``InvalidInput`` unless the codec fits what is sent, before anything is trained."""
    check_made("codec", codec, Codec, "a codec", "quantized(8)")
    if codec is not None:
        agreed = network.agreed
        Coder(codec, aggregate.outputs, agreed.rows, agreed.outputs)
        _teacher_coder(codec, agreed)


# --- what parties say -------------------------------------------------------------------------------


@message
class Encoded:
    """What a party says of the public rows, as a codec wrote it.

    Attributes:
        party: its name.
        round: the round of the task.
        since: the round that the rows are changes since; 0 where all rows are there.
        size: bytes before compression.
        data: the bytes, shape ``(n_bytes,)``, uint8.
        notes: warnings for the ledger.
    """

    party: str
    round: int
    since: int
    size: int
    data: Array
    notes: tuple[str, ...] = ()

    def validate(self, *, party: str, task: Any, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless it can be read and what it holds could be sent without a
        codec."""
        assert agreement is not None
        if self.party != party or self.round != task.round:
            raise KnowledgeRefused(f"it speaks for {self.party!r} in round {self.round}")
        if self.since not in (0, task.since_of(party)):
            raise KnowledgeRefused(
                f"changes since round {self.since}, and those since {task.since_of(party)} were asked for"
            )
        coders = [_coder(task.codec, inner, agreement) for inner in task.tasks]
        arrived = sections(task.codec, coders, self.data, self.size, self.since)
        for inner, coder, one in zip(task.tasks, coders, arrived, strict=True):
            if len(one.rows):
                part = replace(agreement, rows=len(one.rows))
                said = _answer(inner, coder.values(one.rows), party, self.notes, part)
                said.validate(party=party, task=inner, agreement=part)


def _answer(
    task: Any, values: Array, party: str, notes: tuple[str, ...], agreement: Agreement
) -> Any:
    """The knowledge that a task is answered with, as it would have come without a codec."""
    given = {
        "party": party,
        "round": task.round,
        "public": agreement.public,
        "classes": agreement.classes,
        "kind": getattr(task, "outputs", None),
        "values": values if task.reply_type is Predictions else values[:, 0],
        "notes": notes,
    }
    return task.reply_type(**{field.name: given[field.name] for field in fields(task.reply_type)})


@message
class SendEncoded(Task, reply_type=Encoded, exchanges="predictions", protocol=None):
    """Do some tasks and send what they say of the public rows through a codec.

    Attributes:
        tasks: such as :class:`~consilience.tasks.predictions.PredictPublic`.
        codec: what is done.
        wanted: which rows are asked for, a bit each, shape ``(n_bytes,)``, uint8; empty for all.
        since: party to the round of it that was last heard, where that is not the round before.
    """

    round: int
    tasks: tuple[Any, ...]
    codec: Codec
    wanted: Array
    since: Mapping[str, int]

    def since_of(self, party: str) -> int:
        """The round of the party that was last heard, 0 for none."""
        return self.since.get(party, self.round - 1) if self.codec.remembers else 0

    def run(self, party: Any) -> Encoded:
        """What the coordinator does not have yet; all rows, where the party does not know what that is."""
        agreement, names = party.agreement, ("rows", "rounds", "round")
        since = self.since_of(party.name)
        answers = [task.run(party) for task in self.tasks]
        wanted = None
        if len(self.wanted):
            wanted = np.unpackbits(self.wanted, count=agreement.rows).astype(bool)
        kept: list[Memory] = [_recalled(party, f"said {i}", names) for i in range(len(answers))]
        if any(not memory or memory["round"] < since for memory in kept):
            since = 0
        content = b""
        notes: tuple[str, ...] = ()
        for i, (task, said) in enumerate(zip(self.tasks, answers, strict=True)):
            # What would be refused on arrival is not even written: NaN has no bytes in most codecs.
            said.validate(party=party.name, task=task, agreement=agreement)
            coder = _coder(self.codec, task, agreement)
            memory = coder.update(said.values, kept[i] if since else {}, self.round, wanted)
            content += coder.write(memory, since)
            notes += getattr(said, "notes", ())
            if self.codec.remembers:
                _remember(party, f"said {i}", memory)
        return Encoded(
            party=party.name,
            round=self.round,
            since=since,
            size=len(content),
            data=compress(self.codec, content),
            notes=notes,
        )


def ask(
    network: Network,
    codec: Codec | None,
    state: RoundState,
    *tasks: Task,
    to: Iterable[str],
) -> tuple[Replies, Coding]:
    """Like ``network.ask``, through the codec if there is one.

    Args:
        network: the parties.
        codec: what is done to predictions and log-densities; other answers are sent as they are.
        state: of the round before.
        tasks: what is asked.
        to: whom.

    Returns:
        Replies as without a codec, and the coordinator's memory to go on with.
    """
    chosen = tuple(to)
    if codec is None:
        return network.ask(*tasks, to=chosen), state.coding
    round, agreed = state.round + 1, network.agreed
    inner = tuple(task for task in tasks if task.reply_type in _CODED)
    heard = dict(state.coding.get("heard", {}))
    last = {party: int(heard[party]["0"]["round"]) if party in heard else 0 for party in chosen}
    behind = {party: at for party, at in last.items() if at != round - 1}
    rests = _resting(state)
    request = SendEncoded(
        round=round,
        tasks=inner,
        codec=codec,
        wanted=np.packbits(~rests) if rests.any() else np.zeros(0, np.uint8),
        since=behind if codec.remembers else {},
    )
    others = [task for task in tasks if task.reply_type not in _CODED]
    # Models train before they predict; row counts and the like do not mind when they are asked for.
    replies = network.ask(*others, request, to=chosen)
    answers: dict[str, tuple[Any, ...]] = {}
    for party, given in replies.answers.items():
        (said,) = [one for one in given if isinstance(one, Encoded)]
        coders = [_coder(codec, task, agreed) for task in inner]
        arrived = sections(codec, coders, said.data, said.size, said.since)
        known: dict[str, Memory] = {}
        decoded = []
        for i, (task, coder, one) in enumerate(zip(inner, coders, arrived, strict=True)):
            before = heard[party][str(i)] if said.since else {}
            known[str(i)] = coder.take(one, before, round)
            values = coder.values(known[str(i)]["rows"])
            decoded.append(_answer(task, values, party, said.notes, agreed))
        heard[party] = known
        answers[party] = (*(one for one in given if one is not said), *decoded)
    coding = {**state.coding, "heard": heard} if codec.remembers else state.coding
    return Replies(answers, replies.missing), coding


# --- rows that rest ---------------------------------------------------------------------------------


def _resting(state: RoundState) -> Array:
    """Which rows are not asked for in the next round, shape ``(n_public,)``; empty for none."""
    return np.asarray(state.coding.get("due", np.zeros(0)) > state.round + 1)


def settle(
    codec: Codec | None, state: RoundState, values: Array, coding: Coding
) -> tuple[Array, Coding]:
    """The consensus with the rows that were not asked for as they were, and which rows rest from now on.

    Args:
        codec: which rows rest, and for how long.
        state: of the round before.
        values: the new consensus, shape ``(n_public, n_outputs)``.
        coding: the coordinator's memory.
    """
    if codec is None or not codec.rest:
        return values, coding
    round, before = state.round + 1, state.consensus
    if before is None:
        return values, {**coding, "due": np.full(len(values), round + 1)}
    asked = np.asarray(state.coding["due"] <= round)
    values = np.where(asked[:, None], values, before)
    quiet = np.abs(values - before).sum(axis=1) / 2 <= codec.still
    due = np.where(asked, np.where(quiet, round + 1 + codec.rest, round + 1), state.coding["due"])
    return values, {**coding, "due": due}


# --- what parties are taught ------------------------------------------------------------------------


@message
class DistillEncoded(Task, reply_type=Receipt, exchanges="predictions", protocol=None):
    """Train towards the teacher on the public rows; the teacher as a codec wrote it.

    Attributes:
        alpha: the weight of the private rows, for learners that refit on both.
        codec: what was done.
        since: the round that the rows are changes since; 0 where all rows are there.
        heard: party to the round of the teacher that it last heard, where that is not the round before.
        size: bytes before compression.
        data: the bytes, shape ``(n_bytes,)``, uint8.
        taught: which public rows to train on, shape ``(n_public,)``, bool; ``None`` for all.
    """

    round: int
    alpha: float
    codec: Codec
    since: int
    heard: Mapping[str, int]
    size: int
    data: Array
    taught: Array | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InvalidInput(f"alpha is {self.alpha}", mend="It lies in [0, 1].")

    def run(self, party: Any) -> Receipt:
        """Stage 2 of the round.

        Raises:
            KnowledgeRefused: the rows are changes to a teacher that the party does not have.
        """
        coder = _teacher_coder(self.codec, party.agreement)
        memory = _recalled(party, "taught", ("rows", "round"))
        has = int(memory["round"]) if memory else 0
        supposed = self.heard.get(party.name, self.round - 1)
        if self.since and not (has == supposed >= self.since):
            raise KnowledgeRefused(
                f"changes of the teacher since round {supposed}, and it has that of {has or 'none'}"
            )
        (arrived,) = sections(self.codec, [coder], self.data, self.size, self.since)
        memory = coder.take(arrived, memory, self.round)
        if self.codec.remembers:
            _remember(party, "taught", memory)
        values = coder.values(memory["rows"])
        notes = party.distill(self.round, values, self.alpha, self.taught)
        return Receipt(party=party.name, round=self.round, notes=notes)


def teach(
    network: Network,
    codec: Codec | None,
    coding: Coding,
    *,
    round: int,
    values: Array,
    alpha: float,
    rows: Array | None = None,
    to: tuple[str, ...],
) -> tuple[Array, Coding]:
    """Have the parties distil, through the codec if there is one.

    Two messages at most: all rows for those who have none, and for the others what changed since the one of
    them that is furthest behind.

    Returns:
        The teacher as the parties have it, and the coordinator's memory.
    """
    if codec is None:
        network.ask(Distill(round=round, targets=values, alpha=alpha, taught=rows), to=to)
        return values, coding
    coder = _teacher_coder(codec, network.agreed)
    sent = coder.update(values, coding.get("teacher", {}), round)
    has = dict(coding.get("taught", {}))
    last = {party: has.get(party, 0) for party in to}
    new = [party for party in to if not last[party]]
    old = [party for party in to if last[party]]
    tasks: dict[str, Task] = {}
    for receivers in filter(None, (new, old)):
        since = min(last[party] for party in receivers)
        named = {party: last[party] for party in receivers if 0 < last[party] != round - 1}
        content = coder.write(sent, since)
        task = DistillEncoded(
            round=round,
            alpha=alpha,
            codec=codec,
            since=since,
            heard=named,
            size=len(content),
            data=compress(codec, content),
            taught=rows,
        )
        tasks.update(dict.fromkeys(receivers, task))
    replies = network.ask_each(tasks)
    taught = coder.values(sent["rows"])
    if not codec.remembers:
        return taught, coding
    has = {party: at for party, at in has.items() if party not in to}
    has |= {party: round for party in replies.parties}
    return taught, {**coding, "teacher": sent, "taught": has}


# --- a party's memory -------------------------------------------------------------------------------


def _recalled(party: Any, what: str, names: Iterable[str]) -> Memory:
    """What a party remembers, ``{}`` for nothing."""
    found = {name: party.memory.get(f"codec {what} {name}") for name in names}
    return {} if any(value is None for value in found.values()) else found


def _remember(party: Any, what: str, memory: Memory) -> None:
    party.memory.update({f"codec {what} {name}": value for name, value in memory.items()})
