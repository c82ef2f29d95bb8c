"""Parties that are made when they are asked."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from consilience import (
    Federation,
    Party,
    Population,
    avg,
    density_ratio,
    ensemble_distillation,
    uwa,
)
from consilience.core.checks import check_network, classifiers
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.federation.history import History
from consilience.core.messages.replies import Predictions
from consilience.core.messages.schema import Public
from consilience.core.networks import PopulationNetwork
from consilience.core.protocols import Protocol
from consilience.core.tasks.lifecycle import Checkpoint, Restore
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.methods.parameters.federated_averaging import federated_averaging
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])


def of(parties: list[Party], *, live: int = 1) -> Population:
    """The same parties, each a copy of what it was when nobody had asked it anything."""
    untouched = {party.name: copy.deepcopy(party) for party in parties}
    return Population(untouched, lambda name: copy.deepcopy(untouched[name]), live=live)


def same(one: History, other: History) -> None:
    for mine, theirs in zip(one.rounds, other.rounds, strict=True):
        assert (mine.teacher is None) == (theirs.teacher is None)
        if mine.teacher is not None and theirs.teacher is not None:
            np.testing.assert_array_equal(mine.teacher.values, theirs.teacher.values)
        np.testing.assert_array_equal(
            mine.state.memory.get("parameters", 0), theirs.state.memory.get("parameters", 0)
        )
    assert one.metrics == other.metrics
    books = [
        [
            [(d.party, d.tasks, d.status, d.left, d.bytes_down, d.bytes_up) for d in row]
            for row in h.deliveries
        ]
        for h in (one, other)
    ]
    assert books[0] == books[1]


@pytest.mark.parametrize("wire", [False, True])
def test_the_contract(wire):
    """With one party in memory at a time."""
    check_network(lambda parties, public: PopulationNetwork(of(parties), public, wire=wire))


@pytest.mark.parametrize("live", [1, 3, 100])
@pytest.mark.parametrize(
    "protocol",
    [
        ensemble_distillation(aggregate=uwa(), rounds=3, participation=2),
        ensemble_distillation(aggregate=density_ratio(), rounds=2, participation=0.5),
    ],
    ids=["uwa", "density_ratio"],
)
def test_the_bits_are_those_of_parties_that_stay(protocol: Protocol, live: int):
    parties, public = classifiers()
    population = of(parties, live=live)
    there = Federation(parties, public, seed=3).run(protocol)
    federation = Federation(population, public, seed=3)
    for _ in range(2):  # a run starts anew
        here = federation.run(protocol)
        same(here, there)
    assert set(here.models) == set(there.models)
    for name, model in here.models.items():
        np.testing.assert_array_equal(
            model.predict_proba(public.X), there.models[name].predict_proba(public.X)
        )


def test_parameters_that_all_are_sent_reach_who_is_asked_later():
    pytest.importorskip("torch")
    from consilience.methods.checks import networks

    protocol = federated_averaging(rounds=3, participation=1)
    parties, public = networks()
    population = of(parties)
    there = Federation(parties, public).run(protocol)
    here = Federation(population, public).run(protocol)
    same(here, there)


def test_together_with_networks_that_train_as_one():
    pytest.importorskip("torch")
    from consilience.methods.checks import networks

    protocol = ensemble_distillation(aggregate=avg(), rounds=2, participation=2)
    parties, public = networks()
    population = of(parties)
    there = Federation(parties, public).run(protocol)
    network = PopulationNetwork(population, public)
    here = federation_over(network, public).run(protocol)
    for mine, theirs in zip(here.rounds[1:], there.rounds[1:], strict=True):
        np.testing.assert_array_equal(mine.teacher.values, theirs.teacher.values)


def fifty(**changes: int) -> tuple[Population, Counter[str]]:
    """Fifty parties, and how often each was made."""
    made: Counter[str] = Counter()

    def make(name: str) -> Party:
        made[name] += 1
        test = (POINTS, ["x", "x", "y"])
        return Party(name, Share(incremental=True), POINTS, ["x", "x", "y"], test=test)

    return Population((f"p{i:02d}" for i in range(50)), make, **changes), made


def test_who_takes_no_part_is_made_once_to_say_what_it_is():
    population, made = fifty(live=4)
    federation = Federation(population, POINTS)
    protocol = ensemble_distillation(aggregate=avg(), rounds=3, participation=2)
    history = federation.run(protocol, evaluate="participants")
    parts = [round.replies.parties for round in history.rounds[1:] if round.replies is not None]
    assert len(parts) == 3
    taken = {name for part in parts for name in part}
    assert {name for name, times in made.items() if times > 1} == taken
    assert [tuple(row) for row in history.metrics] == [(), *parts]
    assert len(federation.network._cache._live) == 4
    assert len(history.models["p00"].predict(POINTS)) == 3


def test_states_go_with_the_network():
    population, _ = fifty(live=1)
    network = PopulationNetwork(population, Public(POINTS))
    federation_over(network, network.public).form()
    network.ask(FitPrivate(round=1))
    network.ask(PredictPublic(round=1), to=["p00", "p01", "p02"])
    folder = network._cache._folder
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]  # p02 is in memory
    network.close()
    network.close()  # twice is once
    assert not folder.exists()
    federation_over(network, network.public).form()  # and a new beginning
    network.ask(FitPrivate(round=1))
    assert len(network.ask(PredictPublic(round=1), to=["p00", "p01", "p02"])) == 3
    network.close()


def test_what_was_put_off_is_forgotten_where_all_begin_anew():
    population, _ = fifty()
    network = PopulationNetwork(population, Public(POINTS))
    for _ in range(2):
        federation_over(network, network.public).form()
        network.ask(FitPrivate(round=1))
    network.ask(PredictPublic(round=1), to=["p07"])
    assert [phase for phase, *_ in network._cache.acquire("p07").trainer.learner.fits] == ["first"]
    assert len(network._cache.deferred("p08")) == 2  # join and train


def test_states_go_with_the_population():
    population, _ = fifty(live=1)
    network = PopulationNetwork(population, Public(POINTS))
    federation_over(network, network.public).form()
    network.ask(FitPrivate(round=1), PredictPublic(round=1), to=["p00", "p01"])
    folder = network._cache._folder
    assert folder.exists()
    del network
    assert not folder.exists()


def test_checkpoints_are_written_at_once_and_taken_up(tmp_path: Path):
    parties, public = classifiers()
    homes = {party.name: party for party in parties}

    def make(name: str) -> Party:
        party = copy.deepcopy(homes[name])
        party.keep_states_in(tmp_path / name)
        return party

    network = PopulationNetwork(Population(homes, make, live=1), public)
    federation_over(network, public).form()
    network.ask(FitPrivate(round=1))
    network.require(Checkpoint(round=0))
    assert len(list(tmp_path.glob("*/round-00000/model.*"))) == len(parties)
    before = network.ask(PredictPublic(round=1))
    network.ask(FitPrivate(round=2))
    changed = network.ask(PredictPublic(round=2))
    network.require(Restore(round=0))
    after = network.ask(PredictPublic(round=3))
    values = [
        [said.values for said in replies.of(Predictions)] for replies in (before, changed, after)
    ]
    assert not np.array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])


class Weak(Share):
    """Cannot be trained in the first round."""

    def fit(self, X, targets, *, rng, weights=None, validation=None, phase="private"):
        if phase == "first" and not self.fits:
            self.fits.append(None)
            raise RuntimeError("too weak")
        super().fit(X, targets, rng=rng, weights=weights, validation=validation, phase=phase)


def test_what_is_put_off_and_fails_is_in_the_books():
    parties = [Party("a", Weak(incremental=True), POINTS, ["x", "x", "y"]), *fifty()[0]]
    network = PopulationNetwork(of(parties, live=100), Public(POINTS))
    federation_over(network, network.public).form()
    assert len(network.ask(FitPrivate(round=1))) == 51
    network.deliveries.clear()
    network.ask(FitPrivate(round=2), PredictPublic(round=2), to=["a"])
    told = [(d.round, d.tasks, d.status, d.detail) for d in network.deliveries]
    assert told == [
        (1, "FitPrivate", "failed", "RuntimeError: too weak"),
        (2, "FitPrivate+PredictPublic", "ok", ""),
    ]


def test_who_cannot_join_says_so_whenever_it_is_asked():
    """b's test rows hold a class that nobody has."""
    parties = [
        Party("a", Share(), POINTS, ["x", "x", "y"]),
        Party("b", Share(), POINTS, ["x", "x", "y"], test=(POINTS, ["x", "z", "y"])),
    ]
    network = PopulationNetwork(of(parties), Public(POINTS))
    federation_over(network, network.public).form()
    network.ask(FitPrivate(round=1))
    for number in (1, 2):
        replies = network.ask(PredictPublic(round=number))
        assert replies.parties == ("a",)
        assert "labels of classes that were not agreed on: ['z']" in replies.missing["b"].reason
    assert set(network.models()) == {"a"}
    with pytest.raises(KeyError):
        network.models()["nobody"]


def test_who_cannot_be_made_is_left_out():
    gone = False

    def make(name: str) -> Party:
        if gone and name == "b":
            raise FileNotFoundError("b.npz")
        return Party(name, Share(), POINTS, ["x", "x", "y"])

    network = PopulationNetwork(Population(["a", "b"], make, live=1), Public(POINTS))
    federation_over(network, network.public).form()
    network.ask(FitPrivate(round=1))
    gone = True
    network.ask(PredictPublic(round=1), to=["a"])  # b goes
    replies = network.ask(PredictPublic(round=1))
    assert replies.missing["b"].reason == "it cannot be had (FileNotFoundError: b.npz)"
    wrong = Population(["a", "b"], lambda name: Party("c", Share(), POINTS, ["x", "x", "y"]))
    with pytest.raises(RunFailed, match="asked for 'a', it makes 'c'"):
        Federation(wrong, POINTS).form()


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch):
    population, _ = fifty(live=1)
    network = PopulationNetwork(population, Public(POINTS))
    federation_over(network, network.public).form()

    def full(path, mean):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    network.ask(FitPrivate(round=1))
    with pytest.raises(RunFailed, match=r"state of 'p00' cannot be written.*No space left"):
        network.ask(PredictPublic(round=1))


@pytest.mark.parametrize(
    ("names", "live", "why"),
    [
        ((), 1, "there are no parties"),
        (("a", "b", "a"), 1, "two parties are called 'a'"),
        (("a", "b"), 0, "live is 0"),
    ],
    ids=["nobody", "twice", "live"],
)
def test_what_cannot_be_a_population(names, live, why):
    with pytest.raises(InvalidInput, match=why):
        Population(names, lambda name: Party(name, Share(), POINTS, ["x", "x", "y"]), live=live)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"names": "abc"}, "the names are one text, 'abc'"),
        ({"make": 5}, "make is 5"),
        ({"live": 1.5}, "live is 1.5"),
        ({"live": "all"}, "live is 'all'"),
    ],
    ids=str,
)
def test_what_is_no_population_is_said_at_once(changes, said):
    given = {"names": ["a", "b"], "make": print, **changes}
    with pytest.raises(InvalidInput, match=said):
        Population(given.pop("names"), given.pop("make"), **given)


def test_what_makes_no_party_is_named():
    with pytest.raises(InvalidInput, match="asked for 'a', it makes NoneType"):
        Population(["a", "b"], lambda name: None).made("a")


def test_whom_to_evaluate_and_how_many_must_answer():
    population, _ = fifty()
    with pytest.raises(InvalidInput, match="evaluate is 'participant'"):
        Federation(population, POINTS).run(None, evaluate="participant")
    with pytest.raises(InvalidInput, match="quorum is 51, and there are 50 parties"):
        federation_over(PopulationNetwork(population, Public(POINTS), quorum=51), Public(POINTS))
