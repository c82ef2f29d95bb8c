"""A round through a codec: followed by hand, with answers that are lost, and with parties that lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from consilience import (
    Federation,
    LocalNetwork,
    Party,
    avg,
    damped,
    ensemble_distillation,
    uwa,
)
from consilience.core.aggregation import AGGREGATORS, count_weighted, mean_logits
from consilience.core.checks import classifiers
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.networks.base import Network
from consilience.core.protocols import protocol
from consilience.core.protocols.rounds import Round, RoundState
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.methods.compression.codec import Codec, chain, quantized, zstd
from consilience.methods.compression.rows import nearest_multiples
from consilience.methods.compression.stage import Compressed
from consilience.methods.compression.zstd import compress
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])
PUBLIC = np.array([[0.5], [1.5]])


def rounds_of(codec, *, network=None, count: int = 5, aggregate=None, **options):
    parties, public = classifiers()
    network = network or LocalNetwork(parties, public)
    made = federation_over(network, network.public, strict=False)
    rule = uwa() if aggregate is None else aggregate
    return made, list(
        made.rounds(ensemble_distillation(aggregate=rule, rounds=count, codec=codec, **options))
    )


@pytest.mark.parametrize("participation", [1.0, 2])
def test_what_loses_nothing_changes_nothing(participation):
    """Bit for bit the same as without a codec, also where parties miss rounds."""
    for rule in (uwa(), mean_logits(), count_weighted()):
        _, plain = rounds_of(None, aggregate=rule, participation=participation)
        _, coded = rounds_of(zstd(), aggregate=rule, participation=participation)
        for one, other in zip(plain[1:], coded[1:], strict=True):
            assert one.teacher.values.tobytes() == other.teacher.values.tobytes()
            assert one.teacher.parties == other.teacher.parties
            assert one.state.consensus.tobytes() == other.state.consensus.tobytes()


def test_two_rounds_by_hand():
    """Predictions as in test_ensemble_distillation, in multiples of 1/3, α = 1/4. a says (2/3, 1/3), b says
    (0, 1), as they are; their mean (1/3, 2/3) too. a refits to 1/4 (2/3, 1/3) + 3/4 (1/3, 2/3) = (5/12,
    7/12), three times which is (1.25, 1.75): (1, 2) is sent. b refits to 1/4 (0, 1) + 3/4 (1/3, 2/3) =
    (1/4, 3/4), three times which is (0.75, 2.25): (1, 2) again. The mean is (1/3, 2/3)."""
    parties = [
        Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0),
        Party("b", Share(), POINTS, ["y", "y", "y"], calibration=0),
    ]
    made = Federation(parties, PUBLIC, strict=False)
    _, first, second = made.rounds(
        ensemble_distillation(aggregate=avg(), rounds=2, codec=quantized(2), alpha=0.25)
    )
    for round, said in (
        (first, [[2 / 3, 1 / 3], [0, 1]]),
        (second, [[1 / 3, 2 / 3], [1 / 3, 2 / 3]]),
    ):
        for given, row in zip(round.replies.answers.values(), said, strict=True):
            np.testing.assert_allclose(given[-1].values, [row, row], rtol=1e-6)
        np.testing.assert_allclose(round.state.consensus, [[1 / 3, 2 / 3]] * 2, rtol=1e-6)
        np.testing.assert_allclose(round.teacher.values, [[1 / 3, 2 / 3]] * 2, rtol=1e-6)


def test_the_consensus_is_what_the_teacher_was_made_of():
    """So that a damped consensus can move by less than a step of the codec."""
    for round in rounds_of(quantized(2), consensus=damped(0.1))[1][1:]:
        taught = nearest_multiples(round.state.consensus.astype(np.float64), 3) / 3
        np.testing.assert_allclose(round.teacher.values, taught, atol=1e-6)
        assert np.abs(round.state.consensus - taught).max() > 0.01


def test_the_books_hold_what_was_sent():
    """Bytes are those of the encoded messages, and fewer than without."""
    made, _ = rounds_of(None)
    plain = [(d.bytes_up, d.bytes_down) for d in made.network.deliveries]
    parties, public = classifiers()
    wired = LocalNetwork(parties, public, wire=True)
    made, _ = rounds_of(chain(quantized(8), zstd()))
    through, _ = rounds_of(chain(quantized(8), zstd()), network=wired)
    coded = [(d.bytes_up, d.bytes_down) for d in made.network.deliveries]
    assert coded == [(d.bytes_up, d.bytes_down) for d in through.network.deliveries]
    assert sum(up for up, _ in coded) != sum(up for up, _ in plain)
    said = Compressed(size=9, data=np.zeros(1000, np.uint8))
    assert 1000 < len(encode([said])) < 1200


class Deaf(LocalNetwork):
    """The answers of some parties are lost: these do their part, and the coordinator hears nothing."""

    exchange_each = Network.exchange_each

    def __init__(self, *args, lost=(), **options):
        super().__init__(*args, **options)
        self.lost = set(lost)

    def exchange(self, tasks, to, request):
        arrivals = dict(super().exchange(tasks, to, request))
        for name in to:
            if any((name, task.round, type(task)) in self.lost for task in tasks):
                arrivals[name] = arrivals[name]._replace(
                    outcome=Failure(party=name, reason="the line was cut")
                )
        return arrivals


@pytest.mark.parametrize("lost", [PredictPublic, Distill])
def test_after_a_lost_answer_the_rounds_are_those_without_a_codec(lost):
    """Ash's answer of round 2 is lost, to the question or to the teacher: bit for bit as without a codec."""
    found = []
    for codec in (None, zstd()):
        parties, public = classifiers()
        network = Deaf(parties, public, lost=[("ash", 2, lost)])
        found.append(rounds_of(codec, network=network, count=4)[1][1:])
    for one, other in zip(*found, strict=True):
        assert one.teacher.parties == other.teacher.parties
        assert one.teacher.values.tobytes() == other.teacher.values.tobytes()
    assert ("ash" in found[1][1].teacher.parties) == (lost is Distill)


# --- what parties may not say -----------------------------------------------------------------------


class Lying(LocalNetwork):
    """One party's encoded answers are changed on their way, from round 2 on."""

    exchange_each = Network.exchange_each

    lie = staticmethod(lambda said: {})

    def exchange(self, tasks, to, request):
        arrivals = dict(super().exchange(tasks, to, request))
        if "ash" in arrivals and tasks[-1].round > 1:
            outcome = arrivals["ash"].outcome
            told = tuple(
                replace(one, **self.lie(one)) if isinstance(one, Compressed) else one
                for one in outcome
            )
            arrivals["ash"] = arrivals["ash"]._replace(outcome=told)
        return arrivals


def raw(*tables):
    """Bytes of tables before zstd, as (rows, columns, the one number in all places): shares, then scores."""
    content = b"".join(
        np.full((rows, columns), v, "<f4").view(np.uint8).T.tobytes() for rows, columns, v in tables
    )
    return {"size": len(content), "data": compress(Codec(), content)}


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        (lambda said: {"size": said.size + 1}, "bytes"),
        (lambda said: {"data": said.data[:-1]}, "bytes"),
        (lambda said: {"data": said.data.astype(np.int16)}, "no row of bytes"),
        (lambda said: raw((20, 3, 0.9), (20, 1, 0.0)), "do not sum to 1"),
        (lambda said: raw((20, 3, np.nan), (20, 1, 0.0)), "NaN or infinite"),
        (lambda said: raw((20, 3, 1 / 3), (20, 1, -np.inf)), "NaN or infinite"),
        (lambda said: raw((20, 3, 1 / 3), (21, 1, 0.0)), "too many|at most"),
    ],
)
def test_a_party_that_lies_is_left_out(lie, what):
    parties, public = classifiers()
    network = Lying(parties, public, quorum=0.5)
    network.lie = lie
    _, rounds = rounds_of(zstd(1), network=network, count=3)
    assert all("ash" not in round.teacher.parties for round in rounds[2:])
    wrong = [d for d in network.deliveries if d.status != "ok"]
    assert [(d.party, d.status) for d in wrong] == [("ash", "refused")] * 2
    assert what in wrong[0].detail or any(part in wrong[0].detail for part in what.split("|"))


def test_a_model_that_says_nan_is_left_out_before_it_is_written():
    class Undefined(Share):
        def predict(self, X):
            return np.full((len(X), 2), np.nan)

    parties = [
        Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0),
        Party("b", Undefined(), POINTS, ["y", "x", "y"], calibration=0),
    ]
    network = LocalNetwork(parties, Public(PUBLIC), quorum=1)
    made = federation_over(network, network.public, strict=False)
    _, round = made.rounds(ensemble_distillation(aggregate=avg(), rounds=1, codec=quantized(4)))
    assert round.teacher.parties == ("a",)
    assert "NaN" in round.replies.missing["b"].reason


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "aggregate", "what"),
    [
        (quantized(4), AGGREGATORS["mean-logits"](), "is for probabilities"),
        (quantized, avg(), "not a codec"),
        ("zstd", avg(), "codec is 'zstd'"),
    ],
)
def test_a_codec_that_does_not_fit_is_said_before_any_training(codec, aggregate, what):
    with pytest.raises(InvalidInput) as raised:
        rounds_of(codec, aggregate=aggregate)
    assert what in str(raised.value)


def test_a_lost_quorum_is_lost_with_a_codec_too():
    parties, public = classifiers()
    network = Deaf(parties, public, lost=[("ash", 2, Distill)], quorum=1.0)
    with pytest.raises(QuorumLost, match="ash"):
        rounds_of(zstd(), network=network)


# --- several exchanges in a round -------------------------------------------------------------------


@protocol(exchanges="predictions", needs_public=True)
def taught_twice(network, public, state, *, rounds: int, each: bool):
    """Two teachers in every round: the mean of all, or for each party the mean of the others."""
    if state is None:
        network.ask(FitPrivate(round=1))
        yield Round(0, state := RoundState(round=0))
    for t in range(state.round + 1, rounds + 1):
        for _ in range(2):
            said = network.ask(PredictPublic(round=t))
            given = {party: reply[-1].values for party, reply in said.answers.items()}
            tasks = {}
            for party in given:
                others = [v for p, v in given.items() if p != party or not each]
                mean = np.mean(others, axis=0)
                mean = (mean / mean.sum(axis=1, keepdims=True)).astype(np.float32)
                tasks[party] = Distill(round=t, targets=mean, alpha=0.5)
            if each:
                network.ask_each(tasks)
            else:
                network.ask(next(iter(tasks.values())))
        yield Round(t, RoundState(round=t, consensus=mean))


def models_after(codec, *, each: bool, stop: int = 0):
    """What all models say after three rounds, resumed in other rounds after ``stop``."""
    parties, public = classifiers()
    network = LocalNetwork(parties, public)
    made = federation_over(network, public, strict=False)
    taught = taught_twice(rounds=3, each=each)
    taught = taught if codec is None else taught.compressed(codec)
    *_, last = islice(made.rounds(taught), stop + 1 if stop else None)
    if stop:
        list(taught(network, public, last.state))
    assert {delivery.status for delivery in network.deliveries} == {"ok"}
    said = network.ask(PredictPublic(round=3)).answers.values()
    return np.stack([reply[-1].values for reply in said])


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("stop", [0, 1])
def test_teachers_of_one_round_are_not_mistaken_for_one_another(each, stop):
    """A second teacher in a round, and one for each party: every party learns from the one it is sent."""
    plain = models_after(None, each=each)
    np.testing.assert_array_equal(models_after(zstd(), each=each, stop=stop), plain)
