"""Run a protocol with compressed messages, and report the teacher after compression."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from consilience.core.aggregation import Aggregator, Teacher
from consilience.core.errors import InvalidInput
from consilience.core.messages.message import TaskGroup
from consilience.core.messages.schema import Agreement, Public
from consilience.core.protocols.rounds import Round, Rounds, RoundState
from consilience.core.protocols.wrapping import WrappedProtocol, Wrapping
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.arrays import Array
from consilience.methods.compression.codec import Codec
from consilience.methods.compression.rows import RowCoder
from consilience.methods.compression.stage import Compression


def compressed_rounds(
    protocol: WrappedProtocol,
    function: Callable[..., Rounds],
    codec: Codec,
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    **options: Any,
) -> Rounds:
    """Run a protocol with compression.

    A round's teacher is the decoded teacher that the parties receive; its consensus is the value before
    compression.

    Args:
        protocol: the protocol.
        function: generator function of the protocol's rounds.
        codec: the settings.
        network: the parties.
        public: the public rows.
        state: state of the previous round; ``None`` to begin.
        options: options of the protocol.

    Raises:
        InvalidInput: the codec does not support the protocol's messages; raised before any training.
    """
    check_codec(codec, exchanges=protocol.exchanges, agreed=network.agreed, options=options)
    stage = Compression(codec)
    for round in function(network.wrap(stage), public, state, **options):
        yield dataclasses.replace(round, teacher=_as_taught(round, stage.taught))


def check_codec(
    codec: Codec, *, exchanges: TaskGroup | None, agreed: Agreement, options: Mapping[str, Any]
) -> None:
    """Raise ``InvalidInput`` unless the codec supports the protocol's messages.

    Args:
        codec: the settings.
        exchanges: group of messages that the protocol exchanges.
        agreed: the federation's agreement.
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
    """The teacher of a round as the parties decode it."""
    teacher = round.teacher
    if teacher is None or taught is None or taught.shape != teacher.values.shape:
        return teacher
    return Teacher(taught, teacher.weights, teacher.parties)


WRAPPING = Wrapping(
    kind=Codec,
    what="a codec",
    example="quantized(8)",
    check=lambda protocol, codec, options: (
        None
    ),  # what it must fit is known once the parties have joined
    around=compressed_rounds,
)
"""The option ``codec`` of every protocol."""
