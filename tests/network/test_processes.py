"""Parties in worker processes. Starting these takes seconds, so a few tests look at many things."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from consilience import Federation, Party, ProcessNetwork, ensemble_distillation, uwa
from consilience.checks import check_network, classifiers
from consilience.errors import InvalidInput, QuorumLost
from consilience.knowledge import Predictions, Public
from consilience.tasks import FitPrivate, PredictPublic
from stubs import Dies, Share

POINTS = np.array([[0.0], [1.0], [2.0]])


@pytest.mark.slow
def test_the_contract():
    check_network(ProcessNetwork)


def test_same_bits_then_a_killed_worker_then_the_end():
    """ash and cedar live in worker 0, birch and damson in worker 1, which is killed."""
    protocol = ensemble_distillation(aggregate=uwa(), rounds=2)
    parties, public = classifiers()
    local = Federation(parties, public).run(protocol)

    before = multiprocessing.active_children()  # another test's pool may still be there
    parties, public = classifiers()
    network = ProcessNetwork(parties, public)
    try:
        federation = Federation.over(network, public)
        first, second = federation.run(protocol), federation.run(protocol)
        for history in (first, second):  # a run starts anew
            for mine, theirs in zip(history.rounds[1:], local.rounds[1:], strict=True):
                np.testing.assert_array_equal(mine.teacher.values, theirs.teacher.values)
            np.testing.assert_array_equal(history.metric(), local.metric())
            for name, model in history.models.items():
                theirs = local.models[name].predict_proba(public.X)
                np.testing.assert_array_equal(model.predict_proba(public.X), theirs)
            assert history.bytes_up == local.bytes_up

        os.kill(network._workers[1].process.pid, signal.SIGKILL)
        replies = network.ask(PredictPublic(round=9))
        assert replies.parties == ("ash", "cedar")
        assert {f.reason for f in replies.missing.values()} == {"its process has ended"}
        again = network.ask(PredictPublic(round=10))
        assert again.parties == ("ash", "cedar")
        assert set(network.models()) == {"ash", "cedar"}
    finally:
        network.close()
    assert not any(worker.process.is_alive() for worker in network._workers)
    assert set(multiprocessing.active_children()) <= set(before)
    with pytest.raises(QuorumLost, match="its process has ended"):
        network.ask(PredictPublic(round=11))
    network.close()  # twice is once


def test_large_messages_both_ways_and_a_party_that_stalls():
    """A megabyte to and from five parties over two workers does not choke the pipes.

    Then worker 1 is stopped with SIGSTOP: its parties are late, the others are not held up; woken, its
    late answer is dropped and the next question is answered by all.
    """
    X = np.zeros((120_000, 1))
    X[::2] = 1
    parties = [Party(f"p{i}", Share(), POINTS, ["x", "x", "y"], calibration=0) for i in range(5)]
    public = Public(X)
    network = ProcessNetwork(parties, public)
    try:
        Federation.over(network, public).form()
        network.ask(FitPrivate(round=1))
        from consilience.tasks import Distill

        teacher = np.full((len(X), 2), 0.5, dtype=np.float32)
        task = Distill(round=1, targets=teacher, alpha=0.5)
        replies = network.ask(task, PredictPublic(round=1))
        assert len(replies) == 5

        pid = network._workers[1].process.pid
        os.kill(pid, signal.SIGSTOP)
        network.quorum, network.timeout = 1, 2.0
        start = time.perf_counter()
        late = network.ask(PredictPublic(round=2))
        assert late.parties == ("p0", "p2", "p4")
        assert time.perf_counter() - start < 10
        assert {f.kind for f in late.missing.values()} == {"late"}
        assert late.missing["p1"].reason == "no answer within 2 s"
        os.kill(pid, signal.SIGCONT)
        network.timeout = None
        after = network.ask(PredictPublic(round=3))
        assert after.parties == network.parties
        assert {p.round for p in after.of(Predictions)} == {3}
    finally:
        network.close()


def test_a_model_that_dies_takes_its_worker_and_nobody_else():
    """b's worker is gone before d is asked; a and c, in the other one, answer."""
    models = {"a": Share(), "b": Dies(), "c": Share(), "d": Share()}
    parties = [Party(n, m, POINTS, ["x", "x", "y"], calibration=0) for n, m in models.items()]
    public = Public(POINTS)
    network = ProcessNetwork(parties, public)
    try:
        Federation.over(network, public).form()
        network.ask(FitPrivate(round=1))
        replies = network.ask(PredictPublic(round=1))
        assert replies.parties == ("a", "c")
        assert {f.reason for f in replies.missing.values()} == {"its process has ended"}
    finally:
        network.close()


def test_what_cannot_be_sent_to_a_process_is_said_at_once():
    class Local(Share):
        pass

    before = multiprocessing.active_children()
    parties = [Party("a", Local(), POINTS, ["x", "x", "y"])]
    with pytest.raises(InvalidInput, match="model of a cannot be sent to another process"):
        ProcessNetwork(parties, Public(POINTS))
    assert set(multiprocessing.active_children()) <= set(before)


def test_at_least_one_process():
    parties, public = classifiers()
    with pytest.raises(InvalidInput, match="0 processes"):
        ProcessNetwork(parties, public, processes=0)
