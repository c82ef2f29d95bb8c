"""The network whose alike parties train as one: every protocol's result, but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import Federation, Party, ensemble_distillation, suwa
from consilience.checks import check_network
from consilience.errors import InvalidInput
from consilience.learners import make
from consilience.network import CohortNetwork
from consilience.protocols import (
    federated_averaging,
    federated_dynamics,
    functional_gradient_boosting,
    scaffold,
)

pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 6)), RNG.integers(0, 3, 90)
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "first_epochs": 2, "epochs": 2}


def parties(model: Any, mixed: bool = False) -> list[Party]:
    """Four, of which one has another kind of model and another number of rows, if asked."""
    return [
        Party(
            f"p{i}",
            LogisticRegression() if mixed and i == 1 else model,
            X[i : 60 + i : 4 + (i == 2)],
            Y[i : 60 + i : 4 + (i == 2)],
            test=(X[60:], Y[60:]),
        )
        for i in range(4)
    ]


def test_the_contract_of_networks() -> None:
    check_network(CohortNetwork)


@pytest.mark.parametrize(
    ("protocol", "model"),
    [
        (ensemble_distillation(rounds=2, aggregate=suwa()), make("mlp", hidden=(8,), recipe=SGD)),
        (federated_averaging(rounds=2), make("mlp", hidden=(8,), recipe=SGD)),
        (federated_dynamics(rounds=2), make("mlp", hidden=(8,), recipe=SGD)),
        (scaffold(rounds=2), make("mlp", hidden=(8,), recipe=SGD)),
        (
            functional_gradient_boosting(rounds=2, local_steps=2),
            make("boosted", weak={"name": "mlp", "hidden": [8], "recipe": SGD}),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_protocols_do_not_know(protocol: Any, model: Any) -> None:
    mixed = protocol.name == "ensemble_distillation"
    alone, together = (
        Federation(parties(model, mixed), public=X[60:], strict=False, cohorts=c).run(protocol)
        for c in (False, True)
    )
    for name, one in alone.models.items():
        other = together.models[name].learner.predict(X)
        assert np.allclose(one.learner.predict(X), other, atol=1e-5)
    sent = [[d.bytes_up for d in h.deliveries[-1]] for h in (alone, together)]
    assert np.allclose(
        *sent, atol=16
    )  # numbers that are sent as text may have a digit more or less


def test_who_fails_does_not_take_others_along() -> None:
    """One party's rows have a width that no longer fits the public ones."""
    given = parties(make("mlp", hidden=(8,), recipe=SGD))
    with pytest.raises(InvalidInput, match="p3"):
        Federation(
            [*given[:3], Party("p3", make("mlp", recipe=SGD), X[:20, :5], Y[:20])],
            public=X[60:], strict=False, cohorts=True,
        ).run(ensemble_distillation(rounds=1, aggregate=suwa()))  # fmt: skip


def test_same_seed_same_bits() -> None:
    model = make("mlp", hidden=(8,), recipe=SGD)
    runs = [
        Federation(parties(model), public=X[60:], strict=False, cohorts=True).run(
            ensemble_distillation(rounds=2, aggregate=suwa())
        )
        for _ in range(2)
    ]
    one, other = (run.models["p0"].learner.predict(X) for run in runs)
    assert np.array_equal(one, other)
