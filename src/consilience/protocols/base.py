"""A protocol is a generator that yields rounds; bound to its options it is a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from consilience.aggregation import Aggregator, Teacher
from consilience.errors import InvalidInput
from consilience.knowledge import Public, Replies
from consilience.messages import message
from consilience.options import check_options as options_are_known
from consilience.randomness import stream
from consilience.tasks import PROVIDES, Network, PredictPublic, Task


@message
class RoundState:
    """All that a protocol needs, beside the parties' own state, to go on after a round.

    Attributes:
        round: the round that is complete.
        consensus: state of the consensus step.
    """

    round: int
    consensus: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """One round as it was.

    Attributes:
        number: 0 for the parties alone, before any exchange; then 1, 2, …
        state: what resuming after this round takes.
        teacher: what was taught, if anything.
        replies: what the parties had said.
    """

    number: int
    state: RoundState
    teacher: Teacher | None = None
    replies: Replies | None = None


Rounds = Iterator[Round]
P = ParamSpec("P")


@dataclass(frozen=True)
class Protocol:
    """A protocol with its options: call it with a network and public data to get its rounds.

    Attributes:
        name: of the function it was made by.
        options: as given.
    """

    name: str
    options: Mapping[str, Any]
    _rounds: Callable[[Network, Public, RoundState | None], Rounds]

    def __call__(self, network: Network, public: Public, state: RoundState | None = None) -> Rounds:
        """The rounds, from the first or after ``state``; nothing happens until they are asked for."""
        return self._rounds(network, public, state)


def protocol(
    function: Callable[Concatenate[Network, Public, RoundState | None, P], Rounds],
) -> Callable[P, Protocol]:
    """Turn ``f(network, public, state, *, options)`` into ``f(options) -> Protocol``."""

    @wraps(function)
    def bind(*args: P.args, **options: P.kwargs) -> Protocol:
        known = ("network", "public", "state")
        options_are_known(function, options, where=f"protocol {function.__name__}", given=known)

        def rounds(network: Network, public: Public, state: RoundState | None) -> Rounds:
            return function(network, public, state, *args, **options)

        return Protocol(function.__name__, options, rounds)

    return bind


def questions(aggregate: Aggregator, *, round: int) -> tuple[Task, ...]:
    """What to ask the parties so that ``aggregate`` can be computed from their replies."""
    return (
        PredictPublic(round=round, outputs=aggregate.outputs),
        *(PROVIDES[kind](round=round) for kind in aggregate.needs),
    )


def participants(network: Network, participation: int | float, *, round: int) -> tuple[str, ...]:
    """The parties of a round: ``participation`` of them, a number (int) or a share (float), uniformly."""
    parties = network.parties
    count = (
        participation
        if isinstance(participation, int)
        else round_half_up(participation, len(parties))
    )
    if count >= len(parties):
        return parties
    rng = stream(network.agreed.seed, "coordinator", round, "participation")
    return tuple(sorted(rng.choice(parties, size=count, replace=False).tolist()))


def round_half_up(share: float, of: int) -> int:
    """The whole number nearest to ``share * of``, at least 1."""
    return max(1, int(share * of + 0.5))


def check_options(
    network: Network,
    *,
    rounds: int,
    participation: int | float = 1.0,
    aggregate: Aggregator | None = None,
) -> None:
    """Raise ``InvalidInput`` on options that cannot work, before anything is trained."""
    if rounds < 1:
        raise InvalidInput(f"rounds is {rounds}", where="protocol", mend="Give at least 1.")
    most = len(network.parties) if isinstance(participation, int) else 1.0
    if isinstance(participation, bool) or not 0 < participation <= most:
        raise InvalidInput(
            f"participation is {participation}",
            where="protocol",
            mend=f"Give a number of parties from 1 to {len(network.parties)}, or a share in (0, 1].",
        )
    if aggregate is not None and not isinstance(aggregate, Aggregator):
        raise InvalidInput(
            f"aggregate is {aggregate!r}, not an aggregator",
            where="protocol",
            mend="Call its factory: aggregate=avg(), or wrap a rule of your own in Aggregator.",
        )
    if aggregate is not None and aggregate.kind != network.agreed.kind:
        raise InvalidInput(
            f"aggregator {aggregate.name!r} is for {aggregate.kind}, the parties do "
            f"{network.agreed.kind}",
            where="protocol",
            mend="Regression takes mean, weighted-mean or value-median; classification the others.",
        )
