"""FedDyn: against numpy, against FedPD, at the minimum, and by the contract of every protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience import Federation, LocalNetwork
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.methods.checks import networks
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.tasks import TrainDynamically
from helpers.quadratic_losses import (
    RATE,
    SIZES,
    STEPS,
    Quadratic,
    minimum,
    quadratic_parties,
    quadratics,
    share,
)

pytest.importorskip("torch")

W0 = np.array([0.5, -1.0])
START = {"weight": W0[None]}
ALPHA = 0.8


class InNumpy:
    """Algorithm 1 with the names of the paper, on the losses (m n_k / n) L_k where parties count by rows."""

    def __init__(self, weights: str) -> None:
        self.losses = quadratics()
        self.factor = {name: 3 * p for name, p in share(weights).items()}
        self.theta, self.h = W0, np.zeros(2)
        self.gradients = {name: np.zeros(2) for name in self.losses}

    def local(self, k: str) -> np.ndarray:
        """Gradient steps on line 3, of a rate that is the recipe's for L_k itself."""
        w, factor = self.theta, self.factor[k]
        for _ in range(STEPS):
            slope = factor * self.losses[k].gradient(w) - self.gradients[k]
            w = w - RATE / factor * (slope + ALPHA * (w - self.theta))
        return w

    def round(self, P: tuple[str, ...]) -> None:
        thetas = {k: self.local(k) for k in P}
        for k in P:
            self.gradients[k] = self.gradients[k] - ALPHA * (thetas[k] - self.theta)
        self.h = self.h - ALPHA / 3 * sum(thetas[k] - self.theta for k in P)
        self.theta = sum(thetas.values()) / len(P) - self.h / ALPHA


@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize("participation", [3, 2])
def test_rounds_in_numpy(weights: str, participation: int) -> None:
    expected = InNumpy(weights)
    chosen = federated_dynamics(
        rounds=8, strength=ALPHA, participation=participation, weights=weights, initial=START
    )
    for round in Federation(quadratic_parties(), seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            expected.round(round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(expected.theta, rel=1e-9)
        assert round.state.memory["tilt"] == pytest.approx(expected.h, rel=1e-9, abs=1e-12)


def test_it_is_fedpd() -> None:
    """Zhang et al. 2020, Algorithm 1 with p = 0, η = 1/α.

    x_i ≈ argmin f_i + ⟨λ_i, x − x_0⟩ + ‖x − x_0‖²/(2η); λ_i += (x_i − x_0)/η; x_0 = mean(x_i + η λ_i).
    """

    def solve(loss: Quadratic, dual: np.ndarray, x0: np.ndarray, eta: float) -> np.ndarray:
        x = x0
        for _ in range(STEPS):
            x = x - RATE * (loss.gradient(x) + dual + (x - x0) / eta)
        return x

    eta, x0 = 1 / ALPHA, W0
    duals = {name: np.zeros(2) for name in SIZES}
    for round in Federation(quadratic_parties()).rounds(
        federated_dynamics(rounds=8, strength=ALPHA, initial=START)
    ):
        if round.number:
            x = {i: solve(f, duals[i], x0, eta) for i, f in quadratics().items()}
            duals = {i: duals[i] + (x[i] - x0) / eta for i in x}
            x0 = np.mean([x[i] + eta * duals[i] for i in x], axis=0)
        assert round.state.memory["parameters"] == pytest.approx(x0, rel=1e-9)


@pytest.mark.parametrize(("weights", "participation"), [("rows", 3), ("uniform", 2)])
def test_it_reaches_the_minimum(weights: str, participation: int) -> None:
    """With clients left out too; each party's state is then its gradient there, and their mean 0."""
    parties = quadratic_parties()
    chosen = federated_dynamics(
        rounds=240, strength=ALPHA, participation=participation, weights=weights
    )
    *_, last = Federation(parties).rounds(chosen)
    w = minimum(weights)
    assert last.state.memory["parameters"] == pytest.approx(w, abs=1e-6)
    assert last.state.memory["tilt"] == pytest.approx(0, abs=1e-5)
    for party in parties:
        gradient = 3 * share(weights)[party.name] * quadratics()[party.name].gradient(w)
        assert party.trainer.memory["proposed"] == pytest.approx(gradient, abs=1e-5)


class Lossy(LocalNetwork):
    """What ``b`` answers to training in rounds 2 and 3 is lost."""

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        arrivals = dict(super().exchange(tasks, to, request))
        if isinstance(tasks[0], TrainDynamically) and tasks[0].round in (2, 3):
            failure = Failure(party="b", reason="no line", kind="late")
            arrivals["b"] = arrivals["b"]._replace(outcome=failure)
        return arrivals


def test_a_lost_answer_is_taken_back() -> None:
    expected = InNumpy("uniform")
    federation = federation_over(Lossy(quadratic_parties(), Public.none()), Public.none())
    for round in federation.rounds(federated_dynamics(rounds=6, strength=ALPHA, initial=START)):
        if round.number:
            assert round.replies is not None
            assert ("b" in round.replies.missing) == (round.number in (2, 3))
            expected.round(round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(expected.theta, rel=1e-9)


def test_it_sends_what_fedavg_sends() -> None:
    def sent(protocol: Any) -> int:
        parties, public = networks()
        history = Federation(parties, public=public).run(protocol)
        return history.bytes_up

    assert sent(federated_dynamics(rounds=3)) == sent(federated_averaging(rounds=3))
