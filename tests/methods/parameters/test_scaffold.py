"""SCAFFOLD: against numpy, at the minimum, by its bytes, and by the contract of every protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience import Federation, LocalNetwork
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.scaffold import scaffold
from consilience.methods.parameters.tasks import ControlledParameters, TrainControlled
from helpers.quadratic_losses import (
    RATE,
    SIZES,
    STEPS,
    mean,
    minimum,
    quadratic_parties,
    quadratics,
    share,
)

pytest.importorskip("torch")

W0 = np.array([0.5, -1.0])
START = {"weight": W0[None]}


class InNumpy:
    """Algorithm 1, option II, with the names of the paper."""

    def __init__(self, weights: str, server_rate: float) -> None:
        self.losses, self.weights, self.rate = quadratics(), weights, server_rate
        self.x, self.c = W0, np.zeros(2)
        self.own = {name: np.zeros(2) for name in self.losses}

    def round(self, S: tuple[str, ...]) -> None:
        y, new = {}, {}
        for i in S:
            y[i] = self.losses[i].descend(self.x, correction=self.c - self.own[i])
            new[i] = self.own[i] - self.c + (self.x - y[i]) / (STEPS * RATE)
        self.x = self.x + self.rate * (mean(y, self.weights, S) - self.x)
        self.own |= new
        self.c = mean(self.own, self.weights, self.own)  # what line 6 keeps up


@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize("participation", [3, 2])
@pytest.mark.parametrize("server_rate", [1.0, 0.6])
def test_rounds_in_numpy(weights: str, participation: int, server_rate: float) -> None:
    expected = InNumpy(weights, server_rate)
    chosen = scaffold(
        rounds=8,
        server_rate=server_rate,
        participation=participation,
        weights=weights,
        initial=START,
    )
    for round in Federation(quadratic_parties(), seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            expected.round(round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(expected.x, rel=1e-9)
        assert round.state.memory["control"] == pytest.approx(expected.c, rel=1e-9, abs=1e-12)


class Lossy(LocalNetwork):
    """What ``b`` answers to training in rounds 2 and 3 is lost."""

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        arrivals = dict(super().exchange(tasks, to, request))
        if isinstance(tasks[0], TrainControlled) and tasks[0].round in (2, 3) and "b" in arrivals:
            failure = Failure(party="b", reason="no line", kind="late")
            arrivals["b"] = arrivals["b"]._replace(outcome=failure)
        return arrivals


def test_a_lost_answer_is_taken_back() -> None:
    """c stays the mean of the c_i that the parties go on with."""
    expected = InNumpy("uniform", 1.0)
    federation = federation_over(Lossy(quadratic_parties(), Public.none()), Public.none())
    for round in federation.rounds(scaffold(rounds=6, initial=START)):
        if round.number:
            assert round.replies is not None
            assert ("b" in round.replies.missing) == (round.number in (2, 3))
            expected.round(round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(expected.x, rel=1e-9)
        assert round.state.memory["control"] == pytest.approx(expected.c, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("weights", "participation"), [("rows", 3), ("uniform", 1)])
def test_it_reaches_the_minimum(weights: str, participation: int) -> None:
    """With clients left out too, and c is then every party's gradient there."""
    chosen = scaffold(rounds=240, participation=participation, weights=weights)
    *_, last = Federation(quadratic_parties()).rounds(chosen)
    w = minimum(weights)
    assert last.state.memory["parameters"] == pytest.approx(w, abs=1e-6)
    p = share(weights)
    total = sum(p[n] * f.gradient(w) for n, f in quadratics().items())
    assert last.state.memory["control"] == pytest.approx(total, abs=1e-5)


def test_it_sends_twice_what_fedavg_sends() -> None:
    """3000 numbers, next to which headers are small; down, c goes to those alone that take part."""

    def sent(protocol: Any) -> tuple[int, int]:
        rng = np.random.default_rng(0)
        parties = [
            type(party)(party.name, party.prototype, rng.normal(size=(5, 3000)), np.arange(5.0))
            for party in quadratic_parties(learning_rate=1e-5)
        ]
        history = Federation(parties).run(protocol)
        rounds = [d for row in history.deliveries[1:] for d in row]
        return sum(d.bytes_up for d in rounds), sum(d.bytes_down for d in rounds)

    (up, down), (twice_up, twice_down) = (
        sent(federated_averaging(rounds=3)),
        sent(scaffold(rounds=3)),
    )
    model = 8 * 3000 * 3 * len(SIZES)
    assert up == pytest.approx(model, rel=0.05) and down == pytest.approx(model, rel=0.05)
    assert twice_up == pytest.approx(2 * up, rel=0.03)
    assert twice_down == pytest.approx(2 * down, rel=0.03)
    # One of the cohort a round: x goes to all as in FedAvg, c to one.
    (up, down), (more_up, more_down) = (
        sent(federated_averaging(rounds=3, participation=1)),
        sent(scaffold(rounds=3, participation=1)),
    )
    assert more_up == pytest.approx(2 * up, rel=0.03)
    assert more_down == pytest.approx(down * (1 + 1 / len(SIZES)), rel=0.03)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"optimizer": "adam"}, "optimizer is 'adam'"),
        ({"momentum": 0.9}, "momentum is 0.9"),
        ({"weight_decay": 1e-4}, "weight_decay is 0.0001"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_other_steps_than_plain_ones_are_refused(recipe: dict[str, Any], said: str) -> None:
    federation = Federation(quadratic_parties(**recipe))
    with pytest.raises(InvalidInput, match=f"party 'a': line: {said} in its recipe, where plain"):
        next(federation.rounds(scaffold(rounds=1)))
    assert {d.tasks for d in federation.network.deliveries} == {
        "Describe", "Join", "DescribeParameters"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"party": "b"}, "party is .b., expected .a."),
        ({"values": np.zeros(2)}, r"parameters are float64 of shape \(2,\), expected \(3,\)"),
        ({"change": np.zeros(3)}, r"changes are float64 of shape \(3,\), expected \(2,\)"),
        ({"change": np.array([0, np.nan])}, "changes are NaN"),
        ({"rows": 0}, "a row count of 0"),
    ],
)
def test_answers_are_checked_on_arrival(change: dict[str, Any], said: str) -> None:
    task = TrainControlled(round=1, size=3, control=np.zeros(2), counted={})
    good = ControlledParameters(party="a", round=1, values=np.zeros(3), change=np.zeros(2), rows=1)
    good.validate(party="a", task=task, agreement=None)
    with pytest.raises(KnowledgeRefused, match=said):
        replace(good, **change).validate(party="a", task=task, agreement=None)
