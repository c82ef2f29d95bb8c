"""A registered party that sends whatever it likes: nothing of it is taken, and nobody else notices."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from consilience import ensemble_distillation, uwa
from consilience.core.checks import classifiers
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure, Predictions, Replies
from consilience.core.messages.wire import encode
from consilience.core.networks import LocalNetwork
from consilience.core.networks.incoming import LONGEST_TEXT, Arrival, decode_reply, validated
from consilience.core.protocols import Round
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import reply_of
from consilience.core.tasks.scores import ScorePublic
from helpers.forged_messages import CHOICES, Choices, forged, legal

NAMES = ("ash", "birch", "cedar", "damson")
HOSTILE = "birch"
"""Neither first nor last by name."""

SECONDS = 2.0
"""Of the processor, that one message may take; a quarter of it is used on a slow machine."""


Answer = Callable[[bytes, Sequence[bytes]], bytes | None]
"""From the honest answer, and what was said before, to what is sent; ``None`` for nothing."""


class Hostile(LocalNetwork):
    """Parties in this process, one of which is registered and joins, and then sends what a test says."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(*classifiers(), wire=True, timeout=60.0)
        self.answer = answer
        self.slowest = 0.0
        self.overheard: list[bytes] = []
        """What it and another said in this round and the ones before."""

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        said = reply_of(self._members[name], tasks, encode)[1]
        if not isinstance(tasks[-1], ScorePublic):
            return decode_reply(name, said, 0.0)
        if name != HOSTILE:
            self.overheard = [*self.overheard[-8:], said]
            return decode_reply(name, said, 0.0)
        data = self.answer(said, self.overheard)
        self.overheard.append(said)
        if data is None:
            return Arrival(Failure(party=name, reason="silent", kind="late"), 0, 0.0)
        start = time.process_time()
        arrival = decode_reply(name, data, 0.0)
        validated(name, tasks, arrival, agreement=self.agreement, timeout=self.timeout)
        self.slowest = max(self.slowest, time.process_time() - start)
        return arrival


def started(answer: Answer, rounds: int) -> tuple[Hostile, Iterator[Round]]:
    network = Hostile(answer)
    federation = federation_over(network, network.public, strict=False)
    protocol = ensemble_distillation(aggregate=uwa(), rounds=rounds)
    return network, federation.rounds(protocol)


def accepted(replies: Replies, round: int) -> None:
    """Every answer that was taken is one that could be meant, looked at without ``validate``."""
    for party, (*_, predictions, scores) in replies.answers.items():
        assert isinstance(predictions, Predictions)
        for said in (predictions, scores):
            assert (said.party, said.round) == (party, round)
            assert np.isfinite(said.values).all() and said.values.dtype == np.float32
        assert predictions.values.shape == (20, 3) and predictions.classes == ("0", "1", "2")
        assert scores.values.shape == (20,) and scores.public == predictions.public
        np.testing.assert_allclose(predictions.values.sum(axis=1), 1, atol=1e-3)


def besieged(examples: int) -> tuple[Hostile, int]:
    """A run with one forgery in every round beside one where the party is silent; the same bits."""
    chosen: list[Choices] = []
    sent = [0]

    def forge(honest: bytes, before: Sequence[bytes]) -> bytes | None:
        if not chosen:
            return None
        made = forged(chosen[0], honest, before)
        if legal(made, honest):  # then it is an answer, whatever it was made by
            return None
        sent[0] += 1
        return made

    network, rounds = started(forge, rounds=10 * examples)
    silent, others = started(lambda honest, before: None, rounds=10 * examples)
    for _ in range(3):  # so that there is something to replay
        next(rounds), next(others)

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(CHOICES)
    def attack(choose: Choices) -> None:
        chosen[:] = [choose]
        del network.deliveries[:], silent.deliveries[:]
        one, other = next(rounds), next(others)
        assert one.replies is not None and one.teacher is not None and other.teacher is not None
        assert one.replies.parties == tuple(sorted({*NAMES} - {HOSTILE}))
        assert one.replies.missing[HOSTILE].party == HOSTILE
        accepted(one.replies, one.number)
        np.testing.assert_array_equal(one.teacher.values, other.teacher.values)
        for delivery in network.deliveries:
            assert len(delivery.detail) <= LONGEST_TEXT + 2 and delivery.detail.isprintable()
            assert len(delivery.left) <= 1_000

    attack()
    for name in {*NAMES} - {HOSTILE}:
        here, there = (made._members[name].trainer.learner for made in (network, silent))
        np.testing.assert_array_equal(here.weights, there.weights)
    return network, sent[0]


def test_nothing_forged_is_taken_and_nobody_else_notices() -> None:
    network, count = besieged(150)
    assert count >= 120
    assert network.slowest < SECONDS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_forgeries() -> None:
    besieged(50)  # what is imported and allocated once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    network, count = besieged(10_000)
    assert count >= 9_000
    assert network.slowest < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes
