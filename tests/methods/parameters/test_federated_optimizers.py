"""Adaptive server optimisers: against Reddi et al.'s Algorithm 2 in numpy, and by the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience import Federation
from consilience.methods.parameters.federated_averaging import (
    federated_adagrad,
    federated_adam,
    federated_yogi,
)
from helpers.quadratic_losses import mean, quadratic_parties, quadratics

pytest.importorskip("torch")

W0 = np.array([0.5, -1.0])
START = {"weight": W0[None]}


@pytest.mark.parametrize("participation", [3, 2])
@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize(
    ("made", "settings"),
    [
        (federated_adagrad, {"server_rate": 0.2}),
        (federated_adagrad, {"server_rate": 0.2, "momentum": 0.5}),
        (federated_adam, {"server_rate": 0.05, "momentum": 0.8, "decay": 0.9}),
        (federated_adam, {"adaptivity": 0.1}),
        (federated_yogi, {"server_rate": 0.05, "momentum": 0.8, "decay": 0.9}),
        (federated_yogi, {"adaptivity": 0.1}),
    ],
)
def test_rounds_in_numpy(
    made: Any, settings: dict[str, float], weights: str, participation: int
) -> None:
    usual = {"server_rate": 0.01, "momentum": 0.0 if made is federated_adagrad else 0.9}
    given = {**usual, "decay": 0.99, "adaptivity": 1e-3, **settings}
    eta, beta1, beta2, tau = (given[k] for k in ("server_rate", "momentum", "decay", "adaptivity"))
    losses, x, m, v = quadratics(), W0, np.zeros(2), np.full(2, tau**2)
    fell = False
    chosen = made(rounds=8, participation=participation, weights=weights, initial=START, **settings)
    for round in Federation(quadratic_parties(), seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            Delta = (
                mean({n: f.descend(x) for n, f in losses.items()}, weights, round.replies.parties)
                - x
            )
            m = beta1 * m + (1 - beta1) * Delta
            before = v
            if made is federated_adagrad:
                v = v + Delta * Delta
            elif made is federated_yogi:
                v = np.where(
                    v > Delta * Delta,
                    v - (1 - beta2) * Delta * Delta,
                    v + (1 - beta2) * Delta * Delta,
                )
            else:
                v = beta2 * v + (1 - beta2) * Delta * Delta
            fell |= bool((v < before).any())
            x = x + eta * m / (np.sqrt(v) + tau)
        assert round.state.memory["parameters"] == pytest.approx(x, rel=1e-9)
        assert round.state.memory["second"] == pytest.approx(v, rel=1e-9)
    if "adaptivity" in settings:  # both branches of Yogi's sign are walked through
        assert fell


def test_one_round_by_hand() -> None:
    """Δ = (0.1, −0.2) with β₁ = 0.5, β₂ = 0.75, τ = 0.1, η = 1 from x = 0.

    m = (0.05, −0.1). Squares are 0.01 and 0.04, v_{−1} = 0.01.
    Adam: v = 0.0075 + (0.0025, 0.01) = (0.01, 0.0175). Yogi: v = (0.01, 0.01 + 0.01 = 0.02), its sign being
    0 and −1. Adagrad: v = (0.02, 0.05).
    """
    from consilience import Party
    from consilience.core.learners import as_learner
    from helpers.quadratic_losses import Quadratic, line

    # Two rows, X = diag(1, 1): f = ½ ‖w − y‖², one step of rate 0.1 from 0 goes to 0.1 y.
    loss = Quadratic(np.eye(2), np.array([1.0, -2.0]))
    assert loss.A.tolist() == np.eye(2).tolist()
    recipe = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 9, "epochs": 1}
    model = as_learner(line, kind="regression", recipe=recipe)
    moments = {
        federated_adam: (0.01, 0.0175),
        federated_yogi: (0.01, 0.02),
        federated_adagrad: (0.02, 0.05),
    }
    for made, v in moments.items():
        more = {} if made is federated_adagrad else {"decay": 0.75}
        protocol = made(rounds=1, server_rate=1.0, momentum=0.5, adaptivity=0.1, **more)
        parties = [Party(name, model, loss.X, loss.y, calibration=0) for name in "ab"]
        *_, last = Federation(parties).rounds(protocol)
        assert last.state.memory["second"] == pytest.approx(v, rel=1e-9)
        expected = np.array([0.05, -0.1]) / (np.sqrt(v) + 0.1)
        assert last.state.memory["parameters"] == pytest.approx(expected, rel=1e-9)
