"""Parties that talk over a network arrive where the exact federation says."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from consilience import as_learner
from consilience.core.aggregation import Deregularization, anderson, damped
from consilience.core.federation.federation import Federation
from consilience.core.party.party import Party
from consilience.core.protocols import iterative_distillation
from consilience.methods.kernel_federations import KernelFederation
from consilience.models import KernelRidge

LAMBDA = 1e-2


def sample() -> Any:
    rng = np.random.default_rng(3)
    clients = [(rng.random((8, 2)), rng.normal(size=8)) for _ in range(4)]
    return clients, rng.random((20, 2)), rng.random((5, 2))


def parties(clients: Any) -> list[Party]:
    model = KernelRidge(LAMBDA, kernel="laplacian", gamma=1.0)
    return [
        Party(
            f"client-{j}",
            as_learner(model, kind="regression"),
            X,
            y,
            calibration=0,
            purpose="taught",
        )
        for j, (X, y) in enumerate(clients)
    ]


def exact(clients: Any, public: Any) -> KernelFederation:
    def kernel(X: Any, Z: Any) -> Any:
        return np.exp(-np.abs(X[:, None] - Z[None]).sum(axis=2))

    return KernelFederation(kernel, clients, public, regularization=LAMBDA)


@pytest.mark.parametrize("strength", [0.0, LAMBDA])
@pytest.mark.parametrize("step", [None, damped(), anderson(5)])
def test_rounds_agree(strength: float, step: Any) -> None:
    clients, public, X = sample()
    protocol = iterative_distillation(
        rounds=6,
        consensus=step,
        deregularize=Deregularization("laplacian", strength, gamma=1.0),
    )
    history = Federation(parties(clients), public).run(protocol, progress=False)
    found = np.stack([history.models[f"client-{j}"].predict(X) for j in range(4)])
    expected = exact(clients, public).after(6, deregularization=strength, consensus=step)
    assert found == pytest.approx(expected.predict(X), rel=1e-8)


def test_the_protocol_comes_to_the_closed_form_limit() -> None:
    clients, public, _ = sample()
    protocol = iterative_distillation(
        rounds=40,
        consensus=anderson(),
        deregularize=Deregularization("laplacian", LAMBDA, gamma=1.0),
    )
    rounds = Federation(parties(clients), public).rounds(protocol)
    last = next(islice(rounds, 40, None))
    assert last.teacher is not None
    limit = exact(clients, public).limit(deregularization=LAMBDA).consensus
    # The teacher of the last round is the consensus itself, not de-regularised.
    assert np.abs(last.teacher.values - limit).max() < 1e-8 * np.abs(limit).max()
