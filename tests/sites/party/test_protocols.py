"""Parties that are started anew for every request give the bits of parties that never stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from consilience import (
    Frozen,
    LocalNetwork,
    Party,
    certainty_weighted,
    ensemble_distillation,
    uwa,
)
from consilience.core.checks import (
    PROTOCOL_CASES,
    MakeParties,
    ProtocolCase,
    check_network,
    classifiers,
)
from consilience.core.checks.example_parties import NAMES
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Metrics, Predictions
from consilience.core.messages.schema import Public
from consilience.core.networks import Network
from consilience.core.tasks.lifecycle import Checkpoint, Restore
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.methods.checks import networks
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.sites.party import AUDIT, read_log
from helpers.party_rules import set_keys
from helpers.party_sites import SiteNetwork


@pytest.mark.parametrize(
    ("name", "stay"),
    [
        *((name, False) for name in PROTOCOL_CASES),
        *((n, True) for n in PROTOCOL_CASES if "," not in n),
    ],
)
def test_the_same_bits_as_in_process(name: str, stay: bool, tmp_path: Path) -> None:
    """Started for every request; or once, each protocol, and as in a simulation without secrets."""
    case = PROTOCOL_CASES[name]
    if case.parties is networks:
        pytest.importorskip("torch")
    if not stay:
        case = replace(case, parties=with_secrets(case.parties))
    network = SiteNetwork(*case.parties(), tmp_path, stay=stay)
    assert case.straight.equals(case.run(network))
    network.close()


def with_secrets(make: MakeParties) -> MakeParties:
    """The parties as they are deployed, each with a secret of its own."""

    def secretive() -> tuple[list[Party], Public]:
        parties, public = make()
        for party in parties:
            set_keys(party, secret=party.name.encode())
        return parties, public

    return secretive


def test_noise_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit the same where the noise is, though every request starts the party anew."""
    drawn = []

    def fixed() -> np.random.Generator:
        drawn.append(1)
        return np.random.default_rng(7)

    monkeypatch.setattr("consilience.privacy.accounting.mechanisms.SystemNoise", fixed)
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
        assert party is not None and privacy_of(party).accountant
        return [value.tobytes() for value in privacy_of(party).accountant.arrays().values()]


def test_measured_kept_and_resumed(tmp_path: Path) -> None:
    """Everything a run does between rounds; the coordinator is started anew after round 1."""
    protocol = ensemble_distillation(aggregate=uwa(), rounds=3)
    case = ProtocolCase(protocol, classifiers)
    straight = case.run()
    network = SiteNetwork(*classifiers(), tmp_path)
    federation = federation_over(network, network.public, strict=False)
    begun = []
    for round in federation.rounds(protocol):
        begun.append(round)
        assert all(isinstance(m, Metrics) for m in federation.evaluate(round.number).values())
        network.require(Checkpoint(round=round.number))
        if round.number == 1:
            break
    again = SiteNetwork(*classifiers(), tmp_path)
    federation = federation_over(again, again.public, strict=False)
    federation.form()
    again.require(Restore(round=1))
    rest = list(federation.rounds(protocol, state=begun[-1].state))
    assert straight.equals(case.result([*begun, *rest], again))


def test_a_question_that_is_asked_again_in_a_round_gets_a_new_reply(tmp_path: Path) -> None:
    """A coordinator that begins the round anew asks the same, and gets what it was given before."""
    members, public = classifiers()

    def trained_twice(network: Network) -> list[np.ndarray]:
        said = []
        for _ in range(2):
            network.ask(FitPrivate(round=1))
            said.append(network.ask(PredictPublic(round=1), to=NAMES))
        return [np.stack([one.values for one in replies.of(Predictions)]) for replies in said]

    local, sites, again = (
        LocalNetwork(classifiers()[0], public),
        SiteNetwork(members, public, tmp_path),
        SiteNetwork(members, public, tmp_path),
    )
    for network in (local, sites):
        federation_over(network, public, strict=False).form()
    again.agreement = sites.agreement
    once, anew = trained_twice(sites), trained_twice(again)
    assert not np.array_equal(once[0], once[1])
    np.testing.assert_array_equal(once, trained_twice(local))
    np.testing.assert_array_equal(once, anew)
    statuses = [entry["status"] for entry in read_log(tmp_path / "ash" / AUDIT).entries]
    assert statuses[-8:] == ["ok"] * 4 + ["repeated"] * 4


def test_the_contract_of_networks(tmp_path: Path) -> None:
    """Answers as in process; a party that raises, says NaN or is late is named and left out."""
    numbers = iter(range(9))
    check_network(
        lambda parties, public: SiteNetwork(parties, public, tmp_path / str(next(numbers)))
    )


def test_any_model_comes_back(tmp_path: Path) -> None:
    def made() -> tuple[list[Party], Public]:
        given, public = classifiers()
        models = [DecisionTreeClassifier(), GaussianNB(), "knn", RandomForestClassifier(3)]
        return [
            Party(p.name, m, p.rows.X, p.rows.y) for p, m in zip(given, models, strict=True)
        ], public

    case = ProtocolCase(ensemble_distillation(aggregate=uwa(), rounds=2), made)
    assert case.run(LocalNetwork(*made())).equals(case.run(SiteNetwork(*made(), tmp_path)))


def test_parties_of_other_kinds_give_the_same_bits(tmp_path: Path) -> None:
    """A frozen party without rows and one without labels, each anew from its folder for every request."""
    parties, public = classifiers()
    rule = Frozen(lambda X: np.eye(2)[(X[:, 0] > 0).astype(int)], classes=parties[0].rows.classes)
    found = []
    for network_of in (LocalNetwork, lambda *given: SiteNetwork(*given, tmp_path)):
        members, _ = classifiers()
        others = [Party("oracle", rule), Party("unlabelled", GaussianNB(), members[0].rows.X)]
        network = network_of([*members, *others], public)
        federation = federation_over(network, public, seed=3, strict=False)
        history = federation.run(ensemble_distillation(aggregate=uwa(), rounds=2))
        assert not history.failures
        found.append([history.models[n].predict_proba(public.X) for n in sorted(history.models)])
    np.testing.assert_array_equal(*found)
