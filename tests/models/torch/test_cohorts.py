"""Alike parties of a local network train as one: every protocol's bits are those of one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import Federation, Party, ensemble_distillation, suwa
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.networks import LocalNetwork
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.scaffold import scaffold
from consilience.models import make

pytest.importorskip("torch")

from consilience.models.torch.batched.stack import Stack

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
def test_protocols_do_not_know(protocol: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = protocol.name == "ensemble_distillation"

    def history(**options: Any) -> Any:
        network = LocalNetwork(parties(model, mixed), Public(X[60:]), **options)
        return federation_over(network, network.public, strict=False).run(protocol)

    sizes = []
    trained = Stack.trained
    monkeypatch.setattr(Stack, "trained", lambda s: sizes.append(len(s.jobs)) or trained(s))
    together = history()
    assert max(sizes) == (3 if mixed else 4)
    sizes.clear()
    alone = history(at_a_time=1)
    assert max(sizes) == 1
    for name, one in alone.models.items():
        other = together.models[name].learner.predict(X)
        assert np.array_equal(one.learner.predict(X), other)
    sent = [[d.bytes_up for d in h.deliveries[-1]] for h in (alone, together)]
    assert sent[0] == sent[1]


def test_who_fails_does_not_take_others_along() -> None:
    """One party's rows have a width that no longer fits the public ones."""
    given = parties(make("mlp", hidden=(8,), recipe=SGD))
    with pytest.raises(InvalidInput, match="p3"):
        Federation(
            [*given[:3], Party("p3", make("mlp", recipe=SGD), X[:20, :5], Y[:20])],
            public=X[60:], strict=False,
        ).run(ensemble_distillation(rounds=1, aggregate=suwa()))  # fmt: skip
