"""Compression of a protocol's messages: a network that compresses, and rounds that remember what was sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.aggregation import Aggregator, ConsensusUpdate, Teacher, replace
from consilience.errors import InvalidInput
from consilience.messages.replies import Replies
from consilience.messages.schema import Agreement, Public
from consilience.protocols.rounds import Round, Rounds, RoundState
from consilience.tasks.base import NetworkView, Task, TaskGroup
from consilience.transforms.codec import Codec
from consilience.transforms.coordinator_compression import Compression
from consilience.transforms.row_coder import RowCoder
from consilience.validation.arrays import Array


class CompressedNetwork:
    """Network as a protocol sees it, whose requests and replies are compressed.

    Args:
        network: the parties.
        compression: the coordinator's end of the exchange.
    """

    def __init__(self, network: NetworkView, compression: Compression) -> None:
        self._network, self._compression = network, compression

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""
        return self._network.agreed

    def ask(
        self,
        *tasks: Task,
        to: Sequence[str] | None = None,
        compression: Compression | None = None,
    ) -> Replies:
        """Have parties run tasks in one exchange, compressed."""
        return self._network.ask(*tasks, to=to, compression=compression or self._compression)

    def ask_each(
        self, tasks: Mapping[str, Task], *, compression: Compression | None = None
    ) -> Replies:
        """Have every party that is named run a task of its own, compressed."""
        return self._network.ask_each(tasks, compression=compression or self._compression)

    def require(self, *tasks: Task) -> Replies:
        """Ask like :meth:`ask`, where every party must answer; as it is."""
        return self._network.require(*tasks)


def compressed_rounds(
    function: Callable[..., Rounds],
    codec: Codec,
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    options: Mapping[str, Any],
) -> Rounds:
    """Run a protocol with compression.

    A round's teacher is then the one that the parties have, its consensus the one before compression, and
    its state holds what both ends know of what was sent.

    Args:
        function: the protocol's rounds.
        codec: the settings.
        network: the parties.
        public: the public rows.
        state: state of the round before; ``None`` to begin.
        options: options of the protocol.
    """
    coding = {} if state is None else state.coding
    compression = Compression(codec, network.agreed, coding)
    before = None if state is None else state.consensus
    if codec.rest:
        step = options.get("consensus") or replace()
        options = {**options, "consensus": _resting(step, compression)}
    view = CompressedNetwork(network, compression)
    for round in function(view, public, state, **options):
        after = round.state.consensus
        if after is not None:
            compression.settle(round.number, before, after)
            before = after
        yield dataclasses.replace(
            round,
            state=dataclasses.replace(round.state, coding=compression.state()),
            teacher=_as_taught(round, compression),
        )


def check_codec(
    codec: Codec, *, exchanges: TaskGroup | None, agreed: Agreement, options: Mapping[str, Any]
) -> None:
    """Raise ``InvalidInput`` unless a codec fits what a protocol exchanges, before anything is trained.

    Args:
        codec: the settings.
        exchanges: group of messages that the protocol exchanges.
        agreed: what the federation agreed on.
        options: options of the protocol.
    """
    if exchanges == "predictions" and agreed.rows:
        teacher: Any = "values" if agreed.kind == "regression" else "probabilities"
        aggregate = options.get("aggregate")
        replies: Any = aggregate.outputs if isinstance(aggregate, Aggregator) else teacher
        for form in (replies, teacher):
            RowCoder(codec, form, agreed.rows, agreed.outputs)
        if options.get("deregularize") is not None and (codec.bits or codec.tolerance):
            raise InvalidInput(
                f"{codec.name} rounds numbers, and de-regularisation multiplies their errors a millionfold",
                where="codec",
                mend="Take changed_rows() or zstd(), which lose nothing.",
            )
    elif exchanges in (None, "parameters", "models"):
        fits = {
            None: Codec(),
            "parameters": Codec(bits=codec.bits, level=codec.level),
            "models": Codec(level=codec.level),
        }[exchanges]
        mend = {
            None: "Leave it out: nothing is exchanged.",
            "parameters": "Take float16(), quantized(8) or zstd().",
            "models": "Take zstd(): models are compressed without loss.",
        }[exchanges]
        if codec.settings != fits.settings:
            raise InvalidInput(
                f"{codec.name} is not for a protocol that exchanges {exchanges or 'nothing'}",
                where="codec",
                mend=mend,
            )


def _resting(step: ConsensusUpdate, compression: Compression) -> ConsensusUpdate:
    """The step, but that rows which were not asked for stay as they are."""

    def update(
        proposal: Array, previous: Array | None, memory: Mapping[str, Any]
    ) -> tuple[Array, Mapping[str, Any]]:
        values, memory = step.update(proposal, previous, memory)
        rests = compression.resting()
        if previous is None or rests is None:
            return values, memory
        return np.where(rests[:, None], previous, values), memory

    return ConsensusUpdate(step.name, step.init, update)


def _as_taught(round: Round, compression: Compression) -> Teacher | None:
    """The teacher of a round as the parties have it."""
    taught, teacher = compression.taught, round.teacher
    if teacher is None or taught is None or taught.shape != teacher.values.shape:
        return teacher
    return Teacher(taught, teacher.weights, teacher.parties)
