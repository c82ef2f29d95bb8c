"""Conjugate gradients between parties: the exact ones' numbers, any network, and what it refuses."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from consilience import Federation, LocalNetwork, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.party.rules import PartyRules
from consilience.core.tasks.lifecycle import Checkpoint, Restore
from consilience.methods.kernel_federations.agents import KernelAgents
from consilience.methods.model_exchange.conjugate_distillation import conjugate_distillation
from consilience.methods.model_exchange.protocols import alternating_distillation
from consilience.methods.model_exchange.signed_ensemble import SignedEnsemble
from consilience.methods.model_exchange.tasks import Products, Residual
from consilience.models import KernelRidge

RIDGE = 0.4
SIZES = (4, 6, 5)


def data(outputs: int = 1) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(rng.random((n, 2)), rng.normal(size=(n, outputs))) for n in SIZES]


def federation(
    *, wire: bool = False, outputs: int = 1, home: Path | None = None, models: Any = None
) -> Federation:
    parties = []
    for i, (X, y) in enumerate(data(outputs)):
        model = KernelRidge(RIDGE / len(X), kernel="laplacian", gamma=1.0)
        model = model if models is None else models[i]
        parties.append(
            Party(f"agent-{i}", model, X, y, calibration=0, rules=PartyRules(sends_rows=True))
        )
        parties[-1].keep_states_in(None if home is None else home / parties[-1].name)
    return federation_over(LocalNetwork(parties, Public.none(), wire=wire), Public.none())


def kernel(X: Any, Z: Any) -> Any:
    return np.exp(-np.abs(X[:, None] - Z[None]).sum(axis=2))


@pytest.mark.parametrize("outputs", [1, 2])
def test_rounds_are_those_of_the_exact_agents(outputs: int) -> None:
    X = np.random.default_rng(1).random((5, 2))
    agents = KernelAgents(kernel, data(outputs), regularization=RIDGE / sum(SIZES))
    alone = next(federation(outputs=outputs).rounds(conjugate_distillation(rounds=1)))
    last = [
        list(federation(outputs=outputs).rounds(conjugate_distillation(rounds=t)))[-1]
        for t in (1, 2, 3, 4)
    ]
    for round, expected in zip([alone, *last], islice(agents.conjugate(), 5), strict=True):
        found = SignedEnsemble.of([round.replies]).predict(X)
        assert found == pytest.approx(expected.predict(X), rel=1e-8)


def test_a_round_sends_one_model_and_two_numbers() -> None:
    """And one model more in the last; EKD's round sends one model."""
    ours, series = federation(), federation()
    list(ours.rounds(conjugate_distillation(rounds=3)))
    list(series.rounds(alternating_distillation(rounds=3)))

    def sent(of: Federation, round: int) -> int:
        return sum(d.bytes_up for d in of.network.deliveries if d.round == round)

    assert 1 <= sent(ours, 2) / sent(series, 2) < 1.2
    assert 2 <= sent(ours, 3) / sent(series, 3) < 2.2


@pytest.mark.parametrize("spoilt", [np.array([np.nan]), np.array([np.inf]), np.ones(2)])
def test_products_are_finite_and_one_an_output(spoilt: Any) -> None:
    agreed = federation().form()
    products = Products(party="a", round=1, values=spoilt, ridge=1.0, kernel="k")
    with pytest.raises(KnowledgeRefused, match="one finite number an output"):
        products.validate(party="a", task=Residual(round=1, step=np.ones(1)), agreement=agreed)


def test_enough_rounds_are_central_training() -> None:
    X = np.random.default_rng(1).random((5, 2))
    agents = KernelAgents(kernel, data(), regularization=RIDGE / sum(SIZES))
    *_, last = federation().rounds(conjugate_distillation(rounds=20))
    central = agents.central(0).predict(X)
    assert SignedEnsemble.of([last.replies]).predict(X) == pytest.approx(central, rel=1e-6)


def test_the_wire_changes_nothing() -> None:
    X = np.random.default_rng(1).random((5, 2))
    plain, wired = (
        SignedEnsemble.of(
            [list(federation(wire=w).rounds(conjugate_distillation(rounds=3)))[-1].replies]
        )
        for w in (False, True)
    )
    assert np.array_equal(plain.predict(X), wired.predict(X))


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    X = np.random.default_rng(1).random((5, 2))
    protocol = conjugate_distillation(rounds=4)
    *_, straight = federation().rounds(protocol)
    first = federation(home=tmp_path)
    round = list(islice(first.rounds(protocol), 3))[-1]
    first.network.require(Checkpoint(round=round.number))
    (state,) = decode(encode([round.state]))
    second = federation(home=tmp_path)
    second.form()
    second.network.require(Restore(round=round.number))
    *_, resumed = second.rounds(protocol, state=state)
    assert np.array_equal(
        SignedEnsemble.of([straight.replies]).predict(X),
        SignedEnsemble.of([resumed.replies]).predict(X),
    )


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (
            [KernelRidge(0.1), KernelRidge(0.1), KernelRidge(0.1)],
            "regularization times rows is 0.4 at",
        ),
        (
            [KernelRidge(RIDGE / n * (1 + (n == 5) / 1000)) for n in SIZES],
            "regularization times rows is 0.4 at agent-0, 0.4004 at agent-2",
        ),
        (
            [
                KernelRidge(RIDGE / n, kernel=k)
                for n, k in zip(SIZES, ("rbf", "rbf", "laplacian"), strict=True)
            ],
            "agent-0 has kernel=rbf.*agent-2 kernel=laplacian",
        ),
        ([Ridge(), Ridge(), Ridge()], "its model is no consilience.KernelRidge"),
    ],
)
def test_what_has_no_common_system_is_refused(models: Any, said: str) -> None:
    with pytest.raises((InvalidInput, QuorumLost), match=said):
        list(federation(models=models).rounds(conjugate_distillation(rounds=1)))


def test_one_agent_is_refused() -> None:
    X, y = data()[0]
    with pytest.raises(InvalidInput, match="one agent only"):
        next(Federation([Party("a", KernelRidge(), X, y)]).rounds(conjugate_distillation(rounds=1)))
