"""FedProx: against numpy, at its fixed point, and by the contract of every protocol."""

from __future__ import annotations

import numpy as np
import pytest

from consilience import Federation
from consilience.methods.checks import networks
from consilience.methods.parameters.federated_averaging import (
    federated_averaging,
    federated_proximal,
)
from helpers.quadratic_losses import RATE, mean, minimum, quadratic_parties, quadratics, share

pytest.importorskip("torch")

W0 = np.array([0.5, -1.0])
START = {"weight": W0[None]}


@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize("participation", [3, 2])
def test_rounds_in_numpy(weights: str, participation: int) -> None:
    losses, w = quadratics(), W0
    chosen = federated_proximal(
        rounds=6, strength=0.7, participation=participation, weights=weights, initial=START
    )
    for round in Federation(quadratic_parties(), seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            trained = {n: f.descend(w, strength=0.7) for n, f in losses.items()}
            w = mean(trained, weights, round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(w, rel=1e-10)


def test_where_it_stops() -> None:
    """K steps on f + μ/2 ‖w_k − w‖² go the part (I − (I − η M)^K) M⁻¹ A of the way to b, M = A + μI."""
    p, mu, one = share("rows"), 2.0, np.eye(2)
    pulls = {}
    for name, f in quadratics().items():
        M = f.A + mu * one
        left = np.linalg.matrix_power(one - RATE * M, 8)
        pulls[name] = (one - left) @ np.linalg.solve(M, f.A)
    still = np.linalg.solve(
        sum(p[n] * G for n, G in pulls.items()),
        sum(p[n] * pulls[n] @ f.b for n, f in quadratics().items()),
    )
    *_, last = Federation(quadratic_parties(epochs=8)).rounds(
        federated_proximal(rounds=150, strength=mu)
    )
    found = last.state.memory["parameters"]
    assert found == pytest.approx(still, abs=1e-8)
    *_, plain = Federation(quadratic_parties(epochs=8)).rounds(federated_averaging(rounds=100))
    away = np.linalg.norm(plain.state.memory["parameters"] - minimum("rows"))
    assert 0.01 < np.linalg.norm(found - minimum("rows")) < away


def test_without_a_pull_it_is_fedavg() -> None:
    def states(protocol):
        parties, public = networks()
        rounds = Federation(parties, public=public).rounds(protocol)
        return [round.state.memory["parameters"].tobytes() for round in rounds]

    assert states(federated_proximal(rounds=2, strength=0)) == states(federated_averaging(rounds=2))
    assert states(federated_proximal(rounds=2, strength=1)) != states(federated_averaging(rounds=2))
