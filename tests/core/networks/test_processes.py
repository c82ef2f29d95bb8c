"""Parties in worker processes. Starting these takes seconds, so a few tests look at many things."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from consilience import Federation, Party, ProcessNetwork, ensemble_distillation, uwa
from consilience.core.checks import check_network, classifiers
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions
from consilience.core.messages.schema import Public
from consilience.core.networks.shared_arrays import MappedRows, take_up
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from helpers.stub_models import Dies, Memory, Share, Threads

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
        federation = federation_over(network, public)
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


def test_large_messages_both_ways_and_a_party_that_stalls_and_then_dies(tmp_path):
    """A megabyte to and from five parties over two workers does not choke the pipes.

    Then worker 1 is stopped with SIGSTOP: its parties are late, the others are not held up; woken, its
    late answer is dropped and the next question is answered by all. At last its first party ends the process,
    before the second is asked: those of worker 0 answer.
    """
    X = np.zeros((120_000, 1))  # all alike, so that no density is estimated
    models = [Share(), Dies(once=tmp_path / "end"), Share(), Share(), Share()]
    parties = [
        Party(f"p{i}", model, POINTS, ["x", "x", "y"], calibration=0)
        for i, model in enumerate(models)
    ]
    public = Public(X)
    network = ProcessNetwork(parties, public)
    try:
        federation_over(network, public).form()
        network.ask(FitPrivate(round=1))
        from consilience.core.tasks.predictions import Distill

        teacher = np.full((len(X), 2), 0.5, dtype=np.float32)
        task = Distill(round=1, targets=teacher, alpha=0.5)
        replies = network.ask(task, PredictPublic(round=1))
        assert len(replies) == 5

        pid = network._workers[1].process.pid
        os.kill(pid, signal.SIGSTOP)
        network.quorum, network.timeout = 1, 1.0
        start = time.perf_counter()
        late = network.ask(PredictPublic(round=2))
        assert late.parties == ("p0", "p2", "p4")
        assert time.perf_counter() - start < 10
        assert {f.kind for f in late.missing.values()} == {"late"}
        assert late.missing["p1"].reason == "no answer within 1 s"
        os.kill(pid, signal.SIGCONT)
        network.timeout = None
        after = network.ask(PredictPublic(round=3))
        assert after.parties == network.parties
        assert {p.round for p in after.of(Predictions)} == {3}

        (tmp_path / "end").touch()
        task = Distill(round=4, targets=teacher, alpha=0.5)
        dead = network.ask(task, PredictPublic(round=4))
        assert dead.parties == ("p0", "p2", "p4")
        assert {f.reason for f in dead.missing.values()} == {"its process has ended"}
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


@pytest.mark.parametrize("what", ["processes", "threads"])
def test_at_least_one(what):
    parties, public = classifiers()
    with pytest.raises(InvalidInput, match=f"0 {what}"):
        ProcessNetwork(parties, public, **{what: 0})


def answered(
    model: Share, X: np.ndarray, *, workers: int, threads: int = 1, given: int | None = None
) -> list[float]:
    """What two parties with a regression say of the first public row, in that many workers."""
    parties = [Party(n, model, X[:3], [0.0, 1.0, 2.0], calibration=0) for n in "ab"]
    network = ProcessNetwork(parties, Public(X), processes=given, threads=threads)
    try:
        assert len(network._workers) == workers
        federation_over(network, network.public).form()
        network.ask(FitPrivate(round=1))
        replies = network.ask(PredictPublic(round=1, outputs="values"))
        return [float(said.values[0, 0]) for said in replies.of(Predictions)]
    finally:
        network.close()


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_workers_keep_the_cores_busy_and_every_library_has_its_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int
):
    """LOKY_MAX_CPU_COUNT limits the cores as an affinity or a container does: here to one worker's."""
    pytest.importorskip("torch")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", str(threads))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    answer = answered(Threads("regression"), POINTS, workers=1, threads=threads)
    assert answer == [threads, threads]


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="no such figures")
def test_public_rows_are_in_memory_once():
    """With 64 MB more of public rows a worker's own memory is as before; both read all of them."""
    model = Memory("regression")
    little = max(answered(model, np.ones((1_000, 8)), workers=1, given=1))
    much = max(answered(model, np.ones((1_000, 8_000)), workers=2, given=2))
    assert much - little < 16_000


def test_arrays_come_back_as_they_were():
    """In C's order and in Fortran's, texts too; what is small or may be written to is a process's own."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 100))
    given = [rows, rows.T, rows[::2], rows.astype("U8"), np.arange(3.0), rows.copy()]
    for array in given[:-1]:
        array.flags.writeable = False
    shelf = MappedRows()
    packed = shelf.packed([*given, rows])
    again = shelf.packed(rows)
    assert len(packed) < rows.nbytes * 1.1
    assert len(again) < 1_000
    taken = take_up(os.dup(shelf._file.fileno()), packed)
    shelf.close()
    for mine, theirs in zip(taken, [*given, rows], strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
        assert mine.flags.f_contiguous == np.array(theirs, order="K").flags.f_contiguous
    assert [array.flags.writeable for array in taken] == [False] * 4 + [True, True, False]


def test_no_file_is_left_by_who_is_killed(tmp_path):
    """The coordinator is killed while its worker lives: nothing is in the temporary folder."""
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, numpy as np\n"
        "from consilience import Party, ProcessNetwork\n"
        "from consilience.core.messages.schema import Public\n"
        "from sklearn.naive_bayes import GaussianNB\n"
        "if __name__ == '__main__':\n"
        "    X = np.ones((1000, 1000))\n"
        "    party = Party('a', GaussianNB(), X[:4], [0, 0, 1, 1])\n"
        "    network = ProcessNetwork([party], Public(X))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    ended = subprocess.run([sys.executable, str(script)], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(folder.iterdir()) == []
