"""Compression of a protocol's messages: a network that compresses, and the teacher as it arrives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consilience.core.aggregation import Aggregator, Teacher
from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import Agreement, Public
from consilience.core.protocols.rounds import Round, Rounds, RoundState
from consilience.core.tasks.base import NetworkView, Task, TaskGroup
from consilience.core.validation.arrays import Array
from consilience.methods.compression.codec import Codec
from consilience.methods.compression.rows import RowCoder
from consilience.methods.compression.stage import task_table


class CompressedNetwork:
    """Network as a protocol sees it, whose requests and replies are compressed.

    Args:
        network: the parties.
        codec: the settings.

    Attributes:
        taught: the last table that was sent, as the parties have it, shape ``(n_public, n_outputs)``.
    """

    def __init__(self, network: NetworkView, codec: Codec) -> None:
        self._network, self._codec = network, codec
        self.taught: Array | None = None

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""
        return self._network.agreed

    def ask(
        self, *tasks: Task, to: Sequence[str] | None = None, compression: Codec | None = None
    ) -> Replies:
        """Have parties run tasks in one exchange, compressed."""
        self._keep_taught(tasks)
        return self._network.ask(*tasks, to=to, compression=compression or self._codec)

    def ask_each(self, tasks: Mapping[str, Task], *, compression: Codec | None = None) -> Replies:
        """Have every party that is named run a task of its own, compressed."""
        self._keep_taught(tuple(tasks.values()))
        return self._network.ask_each(tasks, compression=compression or self._codec)

    def require(self, *tasks: Task) -> Replies:
        """Ask like :meth:`ask`, where every party must answer; as it is."""
        return self._network.require(*tasks)

    def _keep_taught(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if table := task_table(self._codec, task, self.agreed):
                name, coder = table
                self.taught, _ = coder.read(coder.write(getattr(task, name)))


def compressed_rounds(
    function: Callable[..., Rounds],
    codec: Codec,
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    options: Mapping[str, Any],
) -> Rounds:
    """Run a protocol with compression.

    A round's teacher is then the one that the parties have, its consensus the one before compression.

    Args:
        function: the protocol's rounds.
        codec: the settings.
        network: the parties.
        public: the public rows.
        state: state of the round before; ``None`` to begin.
        options: options of the protocol.
    """
    view = CompressedNetwork(network, codec)
    for round in function(view, public, state, **options):
        yield dataclasses.replace(round, teacher=_as_taught(round, view.taught))


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
        if options.get("deregularize") is not None and codec.bits:
            raise InvalidInput(
                f"{codec.name} rounds numbers, and de-regularisation multiplies their errors a millionfold",
                where="codec",
                mend="Take zstd(), which loses nothing.",
            )
    elif exchanges is None:
        raise InvalidInput(
            f"{codec.name} is not for a protocol that exchanges nothing",
            where="codec",
            mend="Leave it out: nothing is exchanged.",
        )
    elif exchanges == "models" and codec.bits:
        raise InvalidInput(
            f"{codec.name} is not for a protocol that exchanges models",
            where="codec",
            mend="Take zstd(): models are compressed without loss.",
        )


def _as_taught(round: Round, taught: Array | None) -> Teacher | None:
    """The teacher of a round as the parties have it."""
    teacher = round.teacher
    if teacher is None or taught is None or taught.shape != teacher.values.shape:
        return teacher
    return Teacher(taught, teacher.weights, teacher.parties)
