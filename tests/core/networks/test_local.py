"""Parties in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from consilience import LocalNetwork, Party
from consilience.core.aggregation import avg
from consilience.core.checks import check_network, classifiers
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.messages.message import REGISTRY, message
from consilience.core.messages.replies import Predictions
from consilience.core.messages.schema import Public
from consilience.core.protocols import ensemble_distillation
from consilience.core.tasks.base import Task
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.methods.checks import networks
from consilience.methods.compression.codec import chain, quantized, zstd
from consilience.methods.compression.stage import Compressed
from consilience.methods.parameters.federated_averaging import federated_averaging
from helpers.stub_models import Says, Share, Writes

POINTS = np.array([[0.0], [1.0], [2.0]])


def joined(*models: Share, wire: bool = False) -> LocalNetwork:
    parties = [
        Party(name, model, POINTS, ["x", "x", "y"], calibration=0)
        for name, model in zip("ab", models, strict=False)
    ]
    network = LocalNetwork(parties, Public(POINTS.copy()), wire=wire, quorum=1)
    federation_over(network, network.public).form()
    network.ask(FitPrivate(round=1))
    return network


@pytest.mark.parametrize("wire", [False, True])
def test_the_contract(wire):
    check_network(partial(LocalNetwork, wire=wire))


def test_bytes_are_the_same_with_and_without_the_wire():
    def books(wire: bool) -> list[tuple[int, int]]:
        network = joined(Share(), Share(), wire=wire)
        network.ask(PredictPublic(round=1))
        return [(d.bytes_down, d.bytes_up) for d in network.deliveries]

    assert books(False) == books(True)


def test_one_party_cannot_change_what_another_is_taught():
    class Greedy(Share):
        def fit(self, X, targets, **rest):
            super().fit(X, targets, **rest)
            targets[:] = 0

    network = joined(Greedy(incremental=True), Share(incremental=True))
    targets = np.array([[0.5, 0.5]] * 3)
    network.ask(Distill(round=1, targets=targets, alpha=0.5))
    assert (targets == 0.5).all()
    np.testing.assert_allclose(network._members["b"].trainer.learner.mean, [0.5, 0.5])


@pytest.mark.parametrize("wire", [False, True])
def test_a_model_that_writes_into_its_inputs_is_left_out(wire):
    network = joined(Writes(), Share(), wire=wire)
    replies = network.ask(PredictPublic(round=1))
    assert replies.parties == ("b",)
    assert "read-only" in replies.missing["a"].reason
    np.testing.assert_array_equal(network.public.X, POINTS)


@pytest.mark.parametrize("wire", [False, True])
def test_whatever_a_model_raises_can_be_written_down(wire):
    reason = joined(Says(), Share(), wire=wire).ask(PredictPublic(round=1)).missing["a"].reason
    assert reason == "RuntimeError: half a pair: ?"


@pytest.mark.parametrize("wire", [False, True])
def test_an_answer_that_cannot_be_sent_is_a_failure(wire):
    @message
    class Secret(
        Task, reply_type=object, exchanges="others", protocol=None, exposure="usual", limits=()
    ):
        round: int

        def run(self, party):
            return object()

    try:
        replies = joined(Share(), Share(), wire=wire)._ask((Secret(round=1),), None)
    finally:
        REGISTRY.pop("Secret")
    assert replies.missing["a"].reason == "its answer cannot be sent: object cannot cross the wire"


def test_models_of_those_who_were_trained():
    class Lame(Share):
        def fit(self, X, targets, **rest):
            raise RuntimeError("no")

    assert set(joined(Lame(), Share()).models()) == {"b"}


@pytest.mark.parametrize(
    ("names", "why"),
    [([], "there are no parties"), (["b", "a", "b"], "two parties are called 'b'")],
)
def test_names_are_unique(names, why):
    parties = [Party(name, Share(), POINTS, ["x", "x", "y"]) for name in names]
    with pytest.raises(InvalidInput, match=why):
        LocalNetwork(parties, Public(POINTS))


def test_predictions_are_rounded_once():
    parties, public = classifiers()
    network = LocalNetwork(parties, public)
    federation_over(network, public).form()
    network.ask(FitPrivate(round=1))
    (first, *_) = network.ask(PredictPublic(round=1)).of(Predictions)
    own = network._members["ash"].trainer.learner.predict(public.X)
    np.testing.assert_array_equal(first.values, own.astype(np.float32))


class Altered(LocalNetwork):
    """What two parties send compressed is of another round, or cannot be read."""

    def exchange(self, tasks, to, request):
        arrivals = dict(super().exchange(tasks, to, request))
        for name in {"birch", "cedar"} & set(to):
            *plain, last = arrivals[name].outcome
            if isinstance(last, Compressed):
                late = (replace(plain[0], round=9), last)
                sent = late if name == "birch" else (*plain, last, last)
                arrivals[name] = arrivals[name]._replace(outcome=sent)
        return arrivals


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize(
    ("protocol", "parties"),
    [
        (federated_averaging, networks),
        (partial(ensemble_distillation, aggregate=avg()), classifiers),
    ],
)
def test_compressed_replies_are_booked_as_they_were_before(protocol, parties, wire):
    booked = []
    for asked in (protocol(rounds=1), protocol(rounds=1).compressed(chain(quantized(8), zstd()))):
        network = LocalNetwork(*parties(), wire=wire)
        list(federation_over(network, network.public, strict=False).rounds(asked))
        booked.append([(one.party, one.tasks, one.left) for one in network.deliveries])
    assert booked[0] == booked[1]
    assert not any("Compressed" in left or "(0)" in left for _, _, left in booked[1])


def test_what_is_refused_is_booked_as_it_was_before_too():
    network = Altered(*networks())
    asked = federated_averaging(rounds=1).compressed(zstd())
    list(federation_over(network, network.public, strict=False).rounds(asked))
    said = [one for one in network.deliveries if one.tasks == "TrainParameters"]
    assert [(one.status, one.left) for one in said] == [
        ("ok", "Parameters(38)"),
        ("refused", "Parameters(38)"),
        ("refused", "Parameters(0), 2 more"),
        ("ok", "Parameters(38)"),
    ]
    assert said[1].detail == "round is 9, expected 1"


@pytest.mark.parametrize("members", ["ab", [1, 2], [None]])
def test_what_is_no_party_is_refused(members: list[object]) -> None:
    with pytest.raises(InvalidInput, match="is no party"):
        LocalNetwork(members, Public(np.zeros((2, 1))))


def test_one_party_is_no_list_of_parties() -> None:
    party = Party("a", Share(), np.zeros((4, 1)), ["x", "y"] * 2)
    with pytest.raises(InvalidInput, match="this is one party"):
        LocalNetwork(party, Public(np.zeros((2, 1))))  # type: ignore[arg-type]
