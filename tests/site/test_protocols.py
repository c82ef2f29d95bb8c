"""Parties that are started anew for every request give the bits of parties that never stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from consilience import (
    Federation,
    KernelRidge,
    LocalNetwork,
    Party,
    certainty_weighted,
    coarse_density_ratio,
    density_ratio,
    ensemble_distillation,
    iterative_distillation,
    local_only,
    mean,
    selective_mean,
    suwa,
    uwa,
)
from consilience.checks import agents, check_network, classifiers, regressors
from consilience.checks.protocol import ProtocolCase
from consilience.learners.boosting.boosted import Boosted
from consilience.messages.replies import Metrics, Public
from consilience.protocols import (
    alternating_distillation,
    averaged_distillation,
    conjugate_distillation,
    federated_adam,
    federated_averaging,
    federated_dynamics,
    federated_fusion,
    federated_proximal,
    functional_gradient_boosting,
    parallel_distillation,
    scaffold,
)
from consilience.tasks.base import Checkpoint, Restore
from consilience.transforms.compression import (
    cached_rows,
    chain,
    changed_rows,
    quantized,
    top_k,
    zstd,
)
from helpers.parametric import networks
from helpers.sites import SiteNetwork

EVERYTHING = chain(top_k(2), quantized(4), cached_rows(0.02, rounds=2), changed_rows(0.01), zstd())


def boosters(public: bool) -> Callable[[], tuple[list[Party], Public]]:
    def cohort() -> tuple[list[Party], Public]:
        given, none = agents()
        weak = {"name": "sklearn.tree:DecisionTreeRegressor", "max_depth": 2}
        parties = [Party(p.name, Boosted(weak), p.X, p.y, test=p.test) for p in given]
        return parties, classifiers()[1] if public else none

    return cohort


def kernels() -> tuple[list[Party], Public]:
    given, _ = regressors()
    model = KernelRidge(regularization=1.0)
    return [Party(p.name, model, p.X, p.y, sends_rows=True) for p in given], Public.none()


CASES: dict[str, tuple[Any, Any]] = {
    "distillation": (ensemble_distillation(aggregate=uwa(), rounds=2), classifiers),
    "by density": (ensemble_distillation(aggregate=suwa(), rounds=2), classifiers),
    "selected": (ensemble_distillation(aggregate=selective_mean(), rounds=2), classifiers),
    "by ratio": (ensemble_distillation(aggregate=density_ratio(), rounds=2), classifiers),
    "by coarse ratio": (
        ensemble_distillation(aggregate=coarse_density_ratio(), rounds=2),
        classifiers,
    ),
    "codec, some": (
        ensemble_distillation(aggregate=uwa(), rounds=4, codec=EVERYTHING, participation=2),
        classifiers,
    ),
    "regression": (iterative_distillation(aggregate=mean(), rounds=3), regressors),
    "alone": (local_only(rounds=2), classifiers),
    "averaging": (federated_averaging(rounds=2), networks),
    "adam": (federated_adam(rounds=2, participation=3), networks),
    "proximal": (federated_proximal(rounds=2, strength=0.5), networks),
    "fusion": (federated_fusion(rounds=2), networks),
    "scaffold": (scaffold(rounds=4, participation=3), networks),
    "dynamics": (federated_dynamics(rounds=4, strength=1.0, participation=3), networks),
    "boosting": (
        functional_gradient_boosting(
            rounds=3, local_steps=2, step_size="heterogeneous", ridge=1.0, participation=0.5
        ),
        boosters(False),
    ),
    "boosting, distilled": (
        functional_gradient_boosting(rounds=2, distill=True, step_size=4.0),
        boosters(True),
    ),
    "agents": (averaged_distillation(rounds=2), agents),
    "in parallel": (parallel_distillation(rounds=2), agents),
    "in turn": (alternating_distillation(rounds=2), agents),
    "conjugate": (conjugate_distillation(rounds=3), kernels),
}


@pytest.mark.parametrize("stay", [False, True], ids=["anew", "stays"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_in_process(name: str, stay: bool, tmp_path: Path) -> None:
    """Whether a party is started for every request or once; with secrets or, as in a simulation, without."""
    protocol, cohort = CASES[name]
    if cohort is networks:
        pytest.importorskip("torch")
    if name == "in turn":
        cohort = two(cohort)
    if not stay:
        cohort = with_secrets(cohort)
    case = ProtocolCase(protocol, cohort)
    straight = case.run()
    network = SiteNetwork(*cohort(), tmp_path, stay=stay)
    assert straight.equals(case.run(network))
    network.close()


def two(cohort: Callable[[], tuple[list[Party], Public]]) -> Any:
    def smaller() -> tuple[list[Party], Public]:
        parties, public = cohort()
        return parties[:2], public

    return smaller


def with_secrets(cohort: Callable[[], tuple[list[Party], Public]]) -> Any:
    """The parties as they are deployed, each with a secret of its own."""

    def secretive() -> tuple[list[Party], Public]:
        parties, public = cohort()
        for party in parties:
            party.secret = party.name.encode()
        return parties, public

    return secretive


def test_noise_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit the same where the noise is, though every request starts the party anew."""
    from consilience.party import row_scores as scores

    compute, drawn = scores.certainties, []

    def fixed(*args: Any, **options: Any) -> Any:
        drawn.append(1)
        return compute(*args, **options | {"rng": np.random.default_rng(7)})

    monkeypatch.setattr(scores, "certainties", fixed)
    rule = certainty_weighted(regularization=0.5, epsilon=0.5)
    case = ProtocolCase(
        ensemble_distillation(aggregate=rule, rounds=3, participation=3), classifiers
    )
    straight = case.run()
    assert len(drawn) == 4
    network = SiteNetwork(*classifiers(), tmp_path)
    assert straight.equals(case.run(network))
    assert len(drawn) == 8
    before = {name: seen(network, name) for name in network.parties}
    network.ask(Checkpoint(round=3))
    assert {name: seen(network, name) for name in network.parties} == before


def seen(network: SiteNetwork, name: str) -> list[bytes]:
    with network.site(name) as site:
        party = site.party()
        assert party is not None and party.drawn
        return [value.tobytes() for value in party.drawn.values()]


def test_measured_kept_and_resumed(tmp_path: Path) -> None:
    """Everything a run does between rounds; the coordinator is started anew after round 1."""
    protocol = ensemble_distillation(aggregate=uwa(), rounds=3)
    case = ProtocolCase(protocol, classifiers)
    straight = case.run()
    network = SiteNetwork(*classifiers(), tmp_path)
    federation = Federation.over(network, network.public, strict=False)
    begun = []
    for round in federation.rounds(protocol):
        begun.append(round)
        assert all(isinstance(m, Metrics) for m in federation.evaluate(round.number).values())
        network.require(Checkpoint(round=round.number))
        if round.number == 1:
            break
    again = SiteNetwork(*classifiers(), tmp_path)
    federation = Federation.over(again, again.public, strict=False)
    federation.form()
    again.require(Restore(round=1))
    rest = list(federation.rounds(protocol, state=begun[-1].state))
    assert straight.equals(case.result([*begun, *rest], again))


def test_the_contract_of_networks(tmp_path: Path) -> None:
    """Answers as in process; a party that raises, says NaN or is late is named and left out."""
    numbers = iter(range(9))
    check_network(
        lambda parties, public: SiteNetwork(parties, public, tmp_path / str(next(numbers)))
    )


def test_any_model_comes_back(tmp_path: Path) -> None:
    def cohort() -> tuple[list[Party], Public]:
        given, public = classifiers()
        models = [DecisionTreeClassifier(), GaussianNB(), "knn", "random-forest"]
        return [Party(p.name, m, p.X, p.y) for p, m in zip(given, models, strict=True)], public

    case = ProtocolCase(ensemble_distillation(aggregate=uwa(), rounds=2), cohort)
    assert case.run(LocalNetwork(*cohort())).equals(case.run(SiteNetwork(*cohort(), tmp_path)))
