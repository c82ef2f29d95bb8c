"""A round through a codec: followed by hand, with parties that miss rounds, and with parties that lie."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import islice, pairwise

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
from consilience.aggregation import AGGREGATORS, Stack, count_weighted, mean_logits
from consilience.aggregation.base import Aggregator, plain_mean
from consilience.checks import classifiers
from consilience.errors import InvalidInput, KnowledgeRefused, QuorumLost
from consilience.messages.replies import Failure, Predictions, Receipt
from consilience.messages.schema import Agreement, Public
from consilience.messages.wire import encode
from consilience.networks.base import Network
from consilience.protocols import protocol
from consilience.protocols.rounds import Round, RoundState
from consilience.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.transforms.byte_coder import compress
from consilience.transforms.codec import (
    Codec,
    cached_rows,
    chain,
    changed_rows,
    quantized,
    top_k,
    zstd,
)
from consilience.transforms.compressed_messages import Compressed, CompressedTasks
from consilience.transforms.coordinator_compression import Compression
from consilience.transforms.party_compression import compress_replies, restore_tasks
from consilience.transforms.row_coder import nearest_multiples
from helpers.stub_models import Share

EVERYTHING = chain(top_k(2), quantized(4), cached_rows(0.02, rounds=2), changed_rows(0.01), zstd())
POINTS = np.array([[0.0], [1.0], [2.0]])
PUBLIC = np.array([[0.5], [1.5]])


def rounds_of(codec, *, network=None, count: int = 5, aggregate=None, **options):
    parties, public = classifiers()
    network = network or LocalNetwork(parties, public)
    made = Federation.over(network, network.public, strict=False)
    rule = uwa() if aggregate is None else aggregate
    return made, list(
        made.rounds(ensemble_distillation(aggregate=rule, rounds=count, codec=codec, **options))
    )


@pytest.mark.parametrize("participation", [1.0, 2])
def test_what_loses_nothing_changes_nothing(participation):
    """Bit for bit the same as without a codec, also where parties miss rounds."""
    for rule in (uwa(), mean_logits(), count_weighted()):
        _, plain = rounds_of(None, aggregate=rule, participation=participation)
        for codec in (zstd(), changed_rows(), chain(changed_rows(), zstd())):
            _, coded = rounds_of(codec, aggregate=rule, participation=participation)
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


class Quiet(LocalNetwork):
    """Notes what is asked and answered; a party may be deaf in a round: it does its part, and its answer is
    lost."""

    exchange_each = Network.exchange_each

    def __init__(self, *args, lost=(), **options):
        super().__init__(*args, **options)
        self.lost, self.asked, self.answered = set(lost), [], []

    def exchange(self, tasks, to, request):
        arrivals = dict(super().exchange(tasks, to, request))
        for name in to:
            self.asked.append((name, tasks))
            if any((name, task.round, type(task)) in self.lost for task in tasks):
                arrivals[name] = arrivals[name]._replace(
                    outcome=Failure(party=name, reason="the line was cut")
                )
            elif not isinstance(arrivals[name].outcome, Failure):
                self.answered.append((name, tasks[0].round, arrivals[name].outcome[-1]))
        return arrivals

    def tasks_of(self, kind):
        """Compressed tasks of a kind that were asked: party, round, and how they were compressed."""
        for name, tasks in self.asked:
            if isinstance(tasks, CompressedTasks) and isinstance(tasks[-1], kind):
                yield name, tasks[0].round, tasks.compression


def test_a_party_whose_answer_was_lost_sends_what_it_missed_and_no_more():
    parties, public = classifiers()
    network = Quiet(parties, public, lost=[("ash", 3, PredictPublic)])
    _, rounds = rounds_of(changed_rows(), network=network, count=5)
    since = {
        (name, round): said.since
        for name, round, said in network.answered
        if isinstance(said, Compressed)
    }
    assert [since.get(("ash", t)) for t in range(1, 6)] == [0, 1, None, 2, 4]
    assert [since.get(("birch", t)) for t in range(1, 6)] == [0, 1, 2, 3, 4]
    parties, public = classifiers()
    network = Quiet(parties, public, lost=[("ash", 3, PredictPublic)])
    _, plain = rounds_of(None, network=network, count=5)
    assert [r.teacher.parties for r in plain[1:]] == [r.teacher.parties for r in rounds[1:]]


def test_a_party_that_may_not_have_the_teacher_is_sent_all_of_it():
    """Ash's receipt of round 2 is lost: it has that teacher, and nobody knows."""
    parties, public = classifiers()
    network = Quiet(parties, public, lost=[("ash", 2, Distill)])
    rounds_of(changed_rows(), network=network, count=4)
    taught = {
        (name, round): request.arrays.since for name, round, request in network.tasks_of(Distill)
    }
    assert [taught["ash", t] for t in range(1, 5)] == [0, 1, 0, 3]
    assert [taught["birch", t] for t in range(1, 5)] == [0, 1, 2, 3]


def test_a_party_that_forgot_says_everything_and_refuses_changes():
    """As after a crash: its memory is gone, its model is not."""
    parties, public = classifiers()
    network = LocalNetwork(parties, public, quorum=0.5)
    made = Federation.over(network, public, strict=False)
    steps = made.rounds(ensemble_distillation(aggregate=uwa(), rounds=4, codec=changed_rows()))
    for _ in range(3):
        next(steps)
    network._members["ash"].memory.clear()
    third = next(steps)
    assert "ash" in third.replies.parties  # it sent all rows
    refused = [d for d in network.deliveries if d.status != "ok"]
    assert [(d.party, d.round, d.tasks) for d in refused] == [("ash", 3, "Distill")]
    assert "it has that of none" in refused[0].detail
    next(steps)
    assert [d for d in network.deliveries if d.status != "ok"] == refused


def test_a_party_behind_is_not_told_more_than_it_needs():
    """Half of the parties a round: what changed since the last round that the one furthest behind has
    heard."""
    parties, public = classifiers()
    network = Quiet(parties, public)
    rounds_of(changed_rows(), network=network, count=6, participation=2)
    heard: dict[str, int] = {}
    for name, round, request in network.tasks_of(Distill):
        since = request.arrays.since
        assert since <= heard.get(name, 0) and (since == 0) == (name not in heard)
        heard[name] = round
    assert len(heard) == 4


# --- rows that rest ---------------------------------------------------------------------------------


def frozen(values):
    """A rule whose teacher is always the same."""

    def rule(stack: Stack):
        return np.tile(values, (stack.outputs.shape[1], 1)), plain_mean(stack)[1]

    return Aggregator("frozen", rule)


def test_resting_rows_are_asked_for_again_when_it_is_time():
    """The teacher does not move: seen in round 2, so rows rest in 3 and 4, are asked for in 5 and rest in 6
    and 7."""
    parties, public = classifiers()
    network = Quiet(parties, public)
    rounds_of(
        cached_rows(0.0, rounds=2), network=network, count=8, aggregate=frozen([0.5, 0.25, 0.25])
    )
    asked = {}
    for name, round, request in network.tasks_of(PredictPublic):
        if name == "ash":
            wanted = request.wanted
            asked[round] = 20 if wanted is None else int(np.unpackbits(wanted, count=20).sum())
    assert list(asked.values()) == [20, 20, 0, 0, 20, 0, 0, 20]


def test_a_resting_row_keeps_its_teacher_and_the_others_move():
    _, rounds = rounds_of(cached_rows(0.05, rounds=3), count=6, participation=2)
    rested = moved = 0
    for before, after in pairwise(rounds[1:]):
        rests = before.state.coding["due"] > after.number
        rested += int(rests.sum())
        assert (after.state.consensus[rests] == before.state.consensus[rests]).all()
        moved += int((after.state.consensus[~rests] != before.state.consensus[~rests]).sum())
    assert rested > 20 and moved > 20


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


def raw(*numbers):
    """What float32 numbers of 20 rows would be: three shares and a score, all the same."""
    content = b"".join(np.full(n, v, "<f4").tobytes() for n, v in numbers)
    return {"since": 0, "size": len(content), "data": compress(Codec(), content)}


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        (lambda said: {"since": 7}, "changes since exchange 7"),
        (lambda said: {"size": said.size + 1}, "bytes"),
        (lambda said: {"data": said.data[:-1]}, "bytes"),
        (lambda said: {"data": said.data.astype(np.int16)}, "no row of bytes"),
        (lambda said: raw((60, 0.9), (20, 0.0)), "do not sum to 1"),
        (lambda said: raw((60, np.nan), (20, 0.0)), "NaN or infinite"),
        (lambda said: raw((60, 1 / 3), (20, -np.inf)), "NaN or infinite"),
        (lambda said: raw((60, 1 / 3), (21, 0.0)), "too many|at most"),
    ],
)
def test_a_party_that_lies_is_left_out(lie, what):
    parties, public = classifiers()
    network = Lying(parties, public, quorum=0.5)
    network.lie = lie
    _, rounds = rounds_of(changed_rows(), network=network, count=3)
    assert all("ash" not in round.teacher.parties for round in rounds[2:])
    wrong = [d for d in network.deliveries if d.status != "ok"]
    assert [(d.party, d.status) for d in wrong] == [("ash", "refused")] * 2
    assert what in wrong[0].detail or any(part in wrong[0].detail for part in what.split("|"))


def test_changes_that_were_not_asked_for_are_refused():
    """A codec that remembers nothing has nothing to put changes beside."""
    parties, public = classifiers()
    network = Lying(parties, public, quorum=0.5)
    network.lie = lambda said: {"since": 1}
    rounds_of(quantized(4), network=network, count=2)
    assert [d.detail for d in network.deliveries if d.status == "refused"] == [
        "changes since exchange 1, and those since 0 were asked for"
    ]


def test_a_model_that_says_nan_is_left_out_before_it_is_written():
    class Undefined(Share):
        def predict(self, X):
            return np.full((len(X), 2), np.nan)

    parties = [
        Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0),
        Party("b", Undefined(), POINTS, ["y", "x", "y"], calibration=0),
    ]
    network = LocalNetwork(parties, Public(PUBLIC), quorum=1)
    made = Federation.over(network, network.public, strict=False)
    _, round = made.rounds(ensemble_distillation(aggregate=avg(), rounds=1, codec=quantized(4)))
    assert round.teacher.parties == ("a",)
    assert "NaN" in round.replies.missing["b"].reason


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "aggregate", "what"),
    [
        (quantized(4), AGGREGATORS["mean-logits"](), "is for probabilities"),
        (top_k(4), avg(), "of 3 classes"),
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
    network = Quiet(parties, public, lost=[("ash", 2, Distill)], quorum=1.0)
    with pytest.raises(QuorumLost, match="ash"):
        rounds_of(changed_rows(), network=network)


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
    made = Federation.over(network, public, strict=False)
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
    for codec in (changed_rows(), chain(changed_rows(), zstd())):
        np.testing.assert_array_equal(models_after(codec, each=each, stop=stop), plain)


AGREED = Agreement(kind="classification", classes=("x", "y"), outputs=2, public="p", rows=5, seed=0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_either_end_has_what_was_sent_or_says_so(seed):
    """Many exchanges a round, in groups or one for each; requests and replies are lost; one end is set
    back to an earlier state. What is accepted is what was sent, and what is refused was set back before."""
    rng = np.random.default_rng(seed)
    coordinator, memories = Compression(changed_rows(), AGREED, {}), {"a": {}, "b": {}, "c": {}}
    kept = deepcopy((coordinator.state(), memories))
    rows, back, partial = {p: table(rng) for p in "abc*"}, set(), 0
    for t in range(1, 9):
        for _ in range(rng.integers(1, 4)):
            for one in rows.values():
                one[rng.random(5) < 0.3] = table(rng)[0]
            whole = (
                Distill(round=t, targets=rows["*"].copy(), alpha=0.5),
                PredictPublic(round=t),
            )
            some = whole[int(rng.integers(0, 2)) :][: int(rng.integers(1, 3))]
            asked = {p: some for p in "abc" if rng.random() < 0.8}
            if rng.random() < 0.4:
                asked = {
                    p: (Distill(round=t, targets=rows[p].copy(), alpha=0.5), PredictPublic(round=t))
                    for p in asked
                }
            for party, tasks in coordinator.requests(asked).items():
                ends = {"party": party, "agreement": AGREED, "memory": memories[party]}
                if rng.random() < 0.2:
                    continue  # the request is lost
                try:
                    restored = restore_tasks(tasks, **ends)
                except KnowledgeRefused:
                    assert party in back
                    back.discard(party)
                    continue
                for had, sent in zip(restored, asked[party], strict=True):
                    if isinstance(sent, Distill):
                        np.testing.assert_array_equal(had.targets, sent.targets)
                replies = tuple(reply(task, party, rows[party].copy()) for task in restored)
                answer = compress_replies(tasks, restored, replies, **ends)
                if rng.random() < 0.2:
                    continue  # the reply is lost
                arrived, known = coordinator.decompress(party, tasks, answer)
                partial += any(getattr(one, "since", 0) > 0 for one in answer)
                assert encode(arrived) == encode(replies)
                coordinator.accept(party, known)
        if seed % 2 and rng.random() < 0.3:
            memories, back = deepcopy(kept[1]), set("abc")
        if not seed % 2 and rng.random() < 0.3:
            coordinator = Compression(changed_rows(), AGREED, deepcopy(kept[0]))
            back = set("abc")
        if rng.random() < 0.5:
            kept = deepcopy((coordinator.state(), memories))
    assert partial


def table(rng):
    """Five rows of two shares."""
    return rng.dirichlet(np.ones(2), 5).astype(np.float32)


def reply(task, party, values):
    """What a party answers to a task."""
    if isinstance(task, Distill):
        return Receipt(party=party, round=task.round)
    return Predictions(
        party=party,
        round=task.round,
        kind="probabilities",
        classes=("x", "y"),
        public="p",
        values=values,
    )
