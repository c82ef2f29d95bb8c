"""A protocol with suitable parties, and the comparison of two runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from consilience.core.checks.expectations import same_bits
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.networks import LocalNetwork, Network
from consilience.core.party.party import Party
from consilience.core.protocols import Protocol, Round
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

MakeParties = Callable[[], tuple[list[Party], Public]]
"""Makes fresh parties and their public data, the same every time."""


@dataclass(frozen=True)
class ProtocolCase:
    """A protocol with suitable parties.

    Attributes:
        protocol: bound to its options.
        parties: creates new parties and the public data.
        all_needed: whether the protocol needs every party.
        comparable: maps a state's memory, and rows, to the part to compare between two runs; by default the
            whole memory.
    """

    protocol: Protocol
    parties: MakeParties
    all_needed: bool = False
    comparable: Callable[[Any, Any], Any] = lambda memory, X: memory

    @property
    def inputs(self) -> Array:
        """Rows that trained models are compared on: the public ones, or the first party's own."""
        parties, public = self.parties()
        return public.X if len(public) else parties[0].rows.X

    @cached_property
    def straight(self) -> ProtocolRun:
        """A run to the end in this process, done once."""
        return self.run()

    def run(self, network: Network | None = None, seed: int = 0) -> ProtocolRun:
        """Run to the end.

        Args:
            network: network with the parties; by default they are in this process.
            seed: random seed.
        """
        parties, public = self.parties()
        network = network or LocalNetwork(parties, public)
        federation = federation_over(network, public, seed=seed, strict=False)
        rounds = list(federation.rounds(self.protocol))
        return self.result(rounds, network)

    def result(self, rounds: list[Round], network: Network) -> ProtocolRun:
        """Collect the data to compare from a completed run on ``network``."""
        X = self.inputs
        models = {name: model.learner.predict(X) for name, model in network.models().items()}
        states = [
            encode([replace(r.state, memory=self.comparable(r.state.memory, X))]) for r in rounds
        ]
        return ProtocolRun(rounds, states, models)


@prints_no_rows
@dataclass(frozen=True)
class ProtocolRun:
    """A run of a protocol to its end, as far as two runs are compared.

    Attributes:
        rounds: all rounds.
        states: the state after each, as bytes.
        models: party to its model's predictions.
    """

    rounds: list[Round]
    states: list[bytes]
    models: Mapping[str, Any]

    def equals(self, other: ProtocolRun) -> bool:
        """Compare bit for bit: the teachers of all rounds, the states, the models' predictions."""
        return (
            self.states == other.states
            and all(map(_same_teacher, self.rounds, other.rounds))
            and self.models.keys() == other.models.keys()
            and all(same_bits(self.models[name], other.models[name]) for name in self.models)
        )


def _same_teacher(one: Round, other: Round) -> bool:
    """Tell whether two rounds taught the same, bit for bit."""
    if one.teacher is None or other.teacher is None:
        return one.teacher is other.teacher
    return one.teacher.parties == other.teacher.parties and same_bits(
        one.teacher.values, other.teacher.values
    )
