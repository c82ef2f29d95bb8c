"""The contract of protocols, as checks that run one with example parties."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.checks.example_parties import classifiers
from consilience.core.checks.expectations import expect
from consilience.core.checks.protocol_case import MakeParties, ProtocolCase
from consilience.core.errors import QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import LocalNetwork, Network, ProcessNetwork
from consilience.core.networks.incoming import Arrival, task_names
from consilience.core.protocols import Protocol
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Checkpoint, Restore


def check_protocol(
    protocol: Protocol,
    *,
    parties: MakeParties = classifiers,
    all_needed: bool = False,
    processes: bool = False,
) -> None:
    """Check that a protocol keeps the contract.

    Args:
        protocol: bound to options with two rounds or more, such as
            ``ensemble_distillation(aggregate=uwa(), rounds=3)``.
        parties: makes parties that the protocol can work with, and public data, such as
            :func:`~consilience.core.checks.classifiers`, :func:`~consilience.core.checks.regressors`, or
            :func:`consilience.methods.checks.model_senders`, who exchange models and have no public data.
        all_needed: whether no party may be missing, as in a ring: one that drops out then has to end the run.
        processes: also run over worker processes, which takes seconds; needs models that can be sent
            to another process and, in a script, ``if __name__ == "__main__":``.

    Raises:
        AssertionError: at the first check that does not hold.
    """
    check_case(ProtocolCase(protocol, parties, all_needed), processes=processes)


def check_case(case: ProtocolCase, *, processes: bool = False) -> None:
    """Check a protocol as :func:`check_protocol` does, with all settings of a :class:`ProtocolCase`."""
    for check in PROTOCOL_CHECKS:
        check(case)
    if processes:
        processes_give_the_same_bits(case)


def rounds_are_numbered(case: ProtocolCase) -> None:
    """Round 0 is the parties alone, without a teacher; then 1, 2, … with states of those numbers."""
    rounds = case.straight.rounds
    numbers = [round.number for round in rounds]
    expect(len(rounds) > 2, "give the protocol at least two rounds to be checked with")
    expect(numbers == list(range(len(rounds))), f"rounds are numbered {numbers}")
    expect([round.state.round for round in rounds] == numbers, "a state is of another round")
    expect(rounds[0].teacher is None, "round 0 has a teacher")


def same_seed_same_result(case: ProtocolCase) -> None:
    """The same seed gives the same bits, and another seed another run."""
    first = case.straight
    expect(first.equals(case.run()), "the same seed gave another result")
    expect(not first.equals(case.run(seed=1)), "another seed gave the same result")


def order_of_parties_does_not_matter(case: ProtocolCase) -> None:
    """Results do not depend on the order in which parties are named, or answer."""
    parties, public = case.parties()
    turned = LocalNetwork(parties[::-1], public)
    expect(case.straight.equals(case.run(turned)), "parties in another order gave another result")


def wire_gives_the_same_bits(case: ProtocolCase) -> None:
    """Every message may pass through bytes and back."""
    parties, public = case.parties()
    wired = LocalNetwork(parties, public, wire=True)
    expect(case.straight.equals(case.run(wired)), "through the wire the result is another")


def processes_give_the_same_bits(case: ProtocolCase) -> None:
    """Parties may live in other processes."""
    parties, public = case.parties()
    network = ProcessNetwork(parties, public)
    try:
        expect(case.straight.equals(case.run(network)), "over processes the result is another")
    finally:
        network.close()


def resumed_equals_straight(case: ProtocolCase) -> None:
    """Stop after any round, write states down, start from the files: the rest is the same."""
    straight = case.straight
    for stop in range(len(straight.rounds) - 1):
        with tempfile.TemporaryDirectory() as folder:
            first, public = _at_home(case, folder)
            started = federation_over(first, public, strict=False).rounds(case.protocol)
            before = [next(started) for _ in range(stop + 1)]
            first.require(Checkpoint(round=stop))
            (state,) = decode(encode([before[-1].state]))

            second, public = _at_home(case, folder)
            federation = federation_over(second, public, strict=False)
            federation.form()
            second.require(Restore(round=stop))
            after = list(federation.rounds(case.protocol, state=state))
            resumed = case.result([*before, *after], second)
        expect(straight.equals(resumed), f"resumed after round {stop} the result is another")


def a_party_that_drops_out_is_left_out(case: ProtocolCase) -> None:
    """A fault at one party is recorded under its name, and the run continues without this party.

    If the protocol needs all parties, the run ends instead, and the error names the missing party.
    """
    expected = len(case.straight.rounds)
    for fault in _FAULTS:
        network, public = _faulty(case, fault, quorum=0.5)
        try:
            rounds = list(federation_over(network, public, strict=False).rounds(case.protocol))
        except QuorumLost as error:
            expect(case.all_needed, f"a party {fault}: the run ended with {error}")
            expect(network.victim in str(error), f"it does not name {network.victim}: {error}")
            continue
        wronged = case.all_needed and network.tampered
        expect(not wronged, f"a party {fault}: all were needed, and the run went on")
        expect(
            len(rounds) == expected, f"a party {fault}: the run ended after {len(rounds)} rounds"
        )
        for delivery in network.deliveries:
            wrong = (delivery.party, delivery.round, delivery.tasks) in network.tampered
            named = delivery.status != "ok" and delivery.detail != ""
            expect(
                named if wrong else delivery.status == "ok",
                f"a party {fault}: {delivery.party} is recorded as {delivery.status!r} "
                f"in round {delivery.round} ({delivery.detail})",
            )
        out = {(party, round) for party, round, _ in network.tampered}
        for round in rounds:
            taught = round.teacher.parties if round.teacher else ()
            expect(
                not any((party, round.number) in out for party in taught),
                f"a party {fault}: it still counts in the teacher of round {round.number}",
            )


def a_lost_quorum_ends_the_run(case: ProtocolCase) -> None:
    """The run stops and names the party if every one is needed and one fails."""
    network, public = _faulty(case, "fails", quorum=1.0)
    try:
        list(federation_over(network, public, strict=False).rounds(case.protocol))
    except QuorumLost as error:
        expect(network.victim in str(error), f"QuorumLost does not name {network.victim}: {error}")
        return
    raise AssertionError("a party failed, all were needed, and the run went on")


PROTOCOL_CHECKS: tuple[Callable[[ProtocolCase], None], ...] = (
    rounds_are_numbered,
    same_seed_same_result,
    order_of_parties_does_not_matter,
    wire_gives_the_same_bits,
    resumed_equals_straight,
    a_party_that_drops_out_is_left_out,
    a_lost_quorum_ends_the_run,
)


def _at_home(case: ProtocolCase, folder: str) -> tuple[LocalNetwork, Any]:
    parties, public = case.parties()
    for party in parties:
        party.keep_states_in(Path(folder) / party.name)
    return LocalNetwork(parties, public), public


_Change = Callable[[Any], dict[str, Any]]
_FAULTS: dict[str, _Change | None] = {
    "fails": None,
    "is late": None,
    "answers NaN": lambda values: (
        {"values": np.full_like(values, np.nan)} if values.dtype.kind == "f" else {}
    ),
    "answers another shape": lambda values: {"values": values[1:]},
    "answers for other public data": lambda values: {"public": "another"},
}


@dataclass
class _Faulty(LocalNetwork):
    """A network on which one party goes wrong from round 2 on."""

    exchange_each = Network.exchange_each  # through exchange, whatever is asked
    fault: str = field(default="", kw_only=True)
    tampered: set[tuple[str, int, str]] = field(default_factory=set, init=False)

    @property
    def victim(self) -> str:
        """The party that goes wrong."""
        return self.parties[0]

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        arrivals = dict(super().exchange(tasks, to, request))
        if self.victim in arrivals and tasks[0].round > 1:
            spoilt = self._spoilt(arrivals[self.victim])
            if spoilt is not None:
                arrivals[self.victim] = spoilt
                names = task_names(tasks)
                self.tampered.add((self.victim, tasks[0].round, names))
        return arrivals

    def _spoilt(self, arrival: Arrival) -> Arrival | None:
        if self.fault == "fails":
            return arrival._replace(outcome=Failure(party=self.victim, reason="it failed"))
        if self.fault == "is late":
            return arrival._replace(seconds=2e9)
        change = _FAULTS[self.fault]
        assert change is not None and not isinstance(arrival.outcome, Failure)
        answers = []
        for given in arrival.outcome:
            names = {f.name for f in fields(given)}
            values = getattr(given, "values", None)
            spoils = change(values) if isinstance(values, np.ndarray) else {}
            answers.append(replace(given, **{n: v for n, v in spoils.items() if n in names}))
        changed = any(
            a is not b and encode([a]) != encode([b])
            for a, b in zip(answers, arrival.outcome, strict=True)
        )
        return arrival._replace(outcome=tuple(answers)) if changed else None


def _faulty(case: ProtocolCase, fault: str, *, quorum: float) -> tuple[_Faulty, Any]:
    parties, public = case.parties()
    return _Faulty(parties, public, fault=fault, timeout=1e9, quorum=quorum), public
