"""Drive a run: draw round after round from a protocol, and have each measured, kept and written down.

Every kind of run is driven here: in Python, simulated, deployed, checked. How a round goes is the protocol's:
it yields one when it is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol as Structure

from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Metrics
from consilience.core.messages.schema import Agreement, Public
from consilience.core.networks import Network
from consilience.core.numerics.randomness import Threads
from consilience.core.protocols import Protocol, Round, RoundState
from consilience.core.protocols.rounds import SECURE
from consilience.core.registry import registered_names, registered_object


class Driven(Structure):
    """A federation as the driver sees it.

    Attributes:
        network: the parties.
        public: the public rows.
        threads: numerical threads of each step.
    """

    network: Network
    public: Public
    threads: int

    def form(self) -> Agreement:
        """Have the parties join, untrained."""

    @property
    def bound(self) -> str:
        """A remark on how many malicious parties each class bears; empty for none."""


@dataclass(frozen=True)
class CompletedRound:
    """A round with the work that followed it.

    Attributes:
        round: the round, as the protocol yielded it.
        metrics: party to its metrics; only measured parties appear.
        checkpoint: whether a run can resume from this round.
        seconds: wall time from the start of the run, checkpoint aside.
    """

    round: Round
    metrics: Mapping[str, Metrics] = field(default_factory=dict)
    checkpoint: bool = False
    seconds: float = 0.0


def drive(
    federation: Driven,
    protocol: Protocol,
    *,
    state: RoundState | None = None,
    seconds: float = 0.0,
    evaluate: Callable[[Round], Mapping[str, Metrics]] = lambda round: {},
    checkpoint: Callable[[Round, float], bool] = lambda round, seconds: False,
    record: Callable[[CompletedRound], None] = lambda done: None,
) -> Iterator[CompletedRound]:
    """Run a protocol's rounds; after each, call ``evaluate``, ``checkpoint`` and ``record``, in this order.

    A deployed run passes no ``evaluate``: its ``record`` requests metrics after writing the round to the
    ledger.

    Args:
        federation: the parties.
        protocol: bound to its options.
        state: state of the last completed round, when a run resumes; the parties must have the same state
            (:class:`~consilience.core.tasks.lifecycle.Restore`); by default untrained parties join first.
        seconds: wall time of the rounds before.
        evaluate: requests the parties' metrics after a round.
        checkpoint: saves a checkpoint if one is due, given the wall time in seconds; returns whether a run
            can resume from this round.
        record: records the round before it is yielded.

    Raises:
        InvalidInput: the parties or the protocol's options do not go together; before any training.
        QuorumLost: too few parties answered.
    """
    if state is None:
        federation.form()
    elif federation.network.agreement is None:
        raise InvalidInput(
            "the parties have not joined, and cannot go on after a round",
            where="federation",
            mend="Call form() and have the parties take up their own state: "
            "network.require(Restore(round=…)).",
        )
    begun = time.perf_counter() - seconds
    threads = Threads(federation.threads)
    steps = protocol(federation.network, federation.public, state)
    while True:
        with threads.limited():  # around each step alone: between them the thread is the caller's
            round = next(steps, None)
        if round is None:
            return
        if round.number == 1 and round.teacher is not None and SECURE not in protocol.options:
            round = replace(round, notes=(*round.notes, *filter(None, [federation.bound])))
        metrics = evaluate(round)
        now = time.perf_counter() - begun
        done = CompletedRound(round, metrics, checkpoint(round, now), now)
        record(done)
        yield done


def total_rounds(protocol: Protocol) -> int:
    """Return the number of rounds of a protocol, round 0 not counted.

    Raises:
        InvalidInput: ``protocol`` is not a protocol, or was not called with its options.
    """
    if not isinstance(protocol, Protocol):
        name = getattr(protocol, "name", None)
        raise InvalidInput(
            f"{name or repr(protocol)} is no protocol with its options",
            where="federation",
            mend=f"Call it: {name or 'ensemble_distillation'}(rounds=3).",
        )
    return int(protocol.options.get("rounds", 1))


def measured_rounds(times: int | None, rounds: int) -> frozenset[int]:
    """Choose the rounds after which to measure: the last, round 0, then evenly spaced ones.

    Args:
        times: number of measurements; ``None`` for after every round.
        rounds: number of rounds, round 0 not counted.

    >>> [sorted(measured_rounds(times, 10)) for times in (0, 1, 2, 3)]
    [[], [10], [0, 10], [0, 5, 10]]
    """
    if times is None or times > rounds:
        return frozenset(range(rounds + 1))
    if times < 2:
        return frozenset([rounds][:times])
    return frozenset(rounds - round(i * rounds / (times - 1)) for i in range(times))


def tracked(rounds: Iterator[CompletedRound], total: int, label: str) -> Iterator[CompletedRound]:
    """Show the progress of rounds on a terminal, with the registered ``consilience.progress`` functions.

    The functions are imported only if standard error is a terminal.

    Args:
        rounds: completed rounds, as :func:`drive` yields them.
        total: number of rounds, round 0 not counted.
        label: text next to the progress bar.

    Returns:
        The same rounds, as an iterator.
    """
    for name in registered_names("consilience.progress") if sys.stderr.isatty() else ():
        rounds = registered_object("consilience.progress", name)(rounds, total, label)
    return rounds
