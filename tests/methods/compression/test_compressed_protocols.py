"""Compression of any protocol: of regressors, of parameters, of models; and what does not fit one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import LocalNetwork
from consilience.core.aggregation import Deregularization
from consilience.core.checks import PROTOCOL_CASES, check_protocol, regressors
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions, Receipt
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import decode, encode
from consilience.core.protocols import iterative_distillation, local_only
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.requests import open_request, sent_through, write_request
from consilience.methods.checks import model_senders as agents
from consilience.methods.checks import networks
from consilience.methods.compression.codec import chain, float16, quantized, zstd
from consilience.methods.compression.numbers import BLOCK, decode_numbers, encode_numbers
from consilience.methods.compression.stage import Compressed, Compression
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.scaffold import scaffold
from consilience.methods.parameters.tasks import AdoptParameters, Parameters, TrainParameters

LIFT = Deregularization("brownian", 0.25)
AGREED = Agreement(kind="classification", classes=("x", "y"), outputs=2, public="p", rows=2, seed=0)


def run(protocol, make):
    parties, public = make()
    network = LocalNetwork(parties, public)
    rounds = list(federation_over(network, public, strict=False).rounds(protocol))
    wrong = [delivery.detail for delivery in network.deliveries if delivery.status != "ok"]
    assert wrong == []
    return rounds, sum(d.bytes_up + d.bytes_down for d in network.deliveries if d.round)


# --- regression -------------------------------------------------------------------------------------


def test_regression_loses_nothing_unless_it_is_asked_for():
    protocol = iterative_distillation(rounds=4)
    plain, _ = run(protocol, regressors)
    coded, _ = run(protocol.compressed(zstd()), regressors)
    for one, other in zip(plain[1:], coded[1:], strict=True):
        assert one.teacher.values.tobytes() == other.teacher.values.tobytes()
        assert one.state.consensus.tobytes() == other.state.consensus.tobytes()


def test_the_contract_of_a_regression_with_compression():
    codec = chain(float16(), zstd())
    check_protocol(iterative_distillation(rounds=3, codec=codec), parties=regressors)


# --- parameters -------------------------------------------------------------------------------------


def test_parameters_come_back_near():
    pytest.importorskip("torch")
    for make in (federated_averaging, scaffold):
        plain, _ = run(make(rounds=3), networks)
        exact, _ = run(make(rounds=3).compressed(zstd()), networks)
        near, _ = run(make(rounds=3).compressed(chain(quantized(8), zstd())), networks)
        whole = plain[-1].state.memory["parameters"]
        np.testing.assert_array_equal(exact[-1].state.memory["parameters"], whole)
        off = np.abs(near[-1].state.memory["parameters"] - whole).max()
        assert 0 < off < 0.1 * np.abs(whole).max()


def test_the_contract_of_parameters_with_compression():
    pytest.importorskip("torch")
    protocol = federated_averaging(rounds=3, participation=2, codec=quantized(8))
    check_protocol(protocol, parties=networks)


@pytest.mark.parametrize("codec", [float16(), quantized(8), quantized(3), zstd()])
@pytest.mark.parametrize("small", [False, True])
def test_numbers_come_back_within_the_bound(codec, small):
    """Blocks of different scale have bounds of their own."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=3 * BLOCK + 5).astype(np.float32)
    values[:BLOCK] *= 1e-3
    if small:
        codec = chain(codec, zstd()) if codec.level == 0 else codec
    content = encode_numbers(codec, values)
    again = decode_numbers(codec, content, len(values), values.dtype)
    assert again.dtype == values.dtype
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK].astype(np.float64)
        bound = codec.number_error_bound(block.min(), block.max())
        room = 2**-22 * np.abs(block).max()
        assert np.abs(again[start : start + BLOCK] - block).max() <= bound + room


def test_numbers_by_hand():
    """With 2 bits −1 … 2 has steps of 1: 0.4 goes to 0, 0.6 to 1. Codes 0 1 2 3 are one byte."""
    content = encode_numbers(quantized(2), np.array([-1, 0.4, 0.6, 2.0], np.float32))
    assert content == np.array([-1, 1], "<f4").tobytes() + bytes([0b00011011])
    assert decode_numbers(quantized(2), content, 4, np.dtype("f4")).tolist() == [-1, 0, 1, 2]


def test_numbers_beyond_16_bits_are_said():
    with pytest.raises(InvalidInput, match=r"numbers of up to 1e\+05 do not fit 16 bits"):
        encode_numbers(float16(), np.array([1e5]))


# --- models -----------------------------------------------------------------------------------------


def test_models_are_compressed_without_loss():
    said, sizes = [], []
    for codec in (None, zstd()):
        parties, public = agents()
        network = LocalNetwork(parties, public)
        list(federation_over(network, public).rounds(averaged_distillation(rounds=2, codec=codec)))
        said.append(
            [model.learner.predict(parties[0].rows.X) for model in network.models().values()]
        )
        sizes.append(sum(d.bytes_up + d.bytes_down for d in network.deliveries if d.round))
    np.testing.assert_array_equal(*said)
    assert sizes[1] < sizes[0]


# --- what does not fit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "make", "what"),
    [
        (averaged_distillation(rounds=1, codec=quantized(8)), agents, "exchanges models"),
        (local_only(codec=zstd()), agents, "exchanges nothing"),
        (iterative_distillation(rounds=1, codec=quantized(8)), regressors, "is for probabilities"),
        (
            iterative_distillation(rounds=1, codec=float16(), deregularize=LIFT),
            regressors,
            "multiplies their errors",
        ),
    ],
)
def test_a_codec_that_does_not_fit_the_protocol_is_said(protocol, make, what):
    parties, public = make()
    network = LocalNetwork(parties, public)
    federation = federation_over(network, public, strict=False)
    federation.form()
    network.deliveries.clear()
    with pytest.raises(InvalidInput, match=what):
        next(federation.rounds(protocol))
    assert "Fit" not in "".join(delivery.tasks for delivery in network.deliveries)


# --- the messages -----------------------------------------------------------------------------------


def both_ways(codec, task, reply):
    """A task and its reply through bytes, there and back."""
    tasks = sent_through([Compression(codec)], (task,), AGREED)
    received = open_request(decode(write_request(tasks)))
    (level,) = received.opened(AGREED)
    sent = received.headers[0].seal(level, (reply,), party="a", agreement=AGREED)
    sent = decode(encode(sent))
    (arrived,) = tasks.received("a", sent, AGREED)
    (restored,) = level
    return restored, arrived, sent


def test_arrays_of_a_task_and_of_its_reply_come_back():
    values = np.linspace(-1, 1, 3000).astype(np.float32)
    task = TrainParameters(round=1, size=3000, values=values)
    reply = Parameters(party="a", round=1, values=values[::-1], rows=7)
    restored, arrived, _ = both_ways(zstd(), task, reply)
    np.testing.assert_array_equal(restored.values, values)
    np.testing.assert_array_equal(arrived.values, values[::-1])
    assert (restored.size, arrived.rows, arrived.party) == (3000, 7, "a")


@pytest.mark.parametrize(
    ("codec", "fewer"), [(float16(), 1.9), (quantized(8), 3.5), (quantized(4), 6)]
)
def test_parameters_are_fewer_bytes(codec, fewer):
    values = np.random.default_rng(0).normal(size=30_000).astype(np.float32)
    reply = Parameters(party="a", round=1, values=values, rows=7)
    _, arrived, sent = both_ways(codec, TrainParameters(round=1, size=30_000), reply)
    assert len(encode([reply])) > fewer * len(encode(sent))
    assert np.abs(arrived.values - values).max() < 0.4


def test_a_table_is_made_again_from_what_the_coordinator_knows():
    rows = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    reply = Predictions(
        party="a", round=1, kind="probabilities", classes=("x", "y"), public="p", values=rows
    )
    _, arrived, sent = both_ways(zstd(), PredictPublic(round=1), reply)
    assert len(sent) == 1 and isinstance(sent[0], Compressed)
    assert encode([arrived]) == encode([reply])


def test_what_compresses_too_well_is_sent_as_it_is():
    """A receiver would refuse a few bytes that become eight million."""
    reply = Parameters(party="a", round=1, values=np.zeros(1_000_000), rows=7)
    codec = chain(quantized(8), zstd())
    _, arrived, sent = both_ways(codec, TrainParameters(round=1, size=1_000_000), reply)
    np.testing.assert_array_equal(arrived.values, reply.values)
    assert len(sent[-1].data) == sent[-1].size


def test_where_nothing_is_to_be_compressed_nothing_changes():
    tasks = (FitPrivate(round=1),)
    assert sent_through([Compression(quantized(8))], tasks, AGREED) is tasks
    _, header = Compression(quantized(8)).send((TrainParameters(round=1, size=1),), AGREED)
    receipts = (Receipt(party="a", round=1),)
    adopt = AdoptParameters(round=1, values=np.ones(1))
    same = header.seal((adopt,), receipts, party="a", agreement=AGREED)
    assert same is receipts


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"shapes": ()}, "bytes|should have been compressed"),
        ({"shapes": ((10**15,),)}, "become arrays of"),
        ({"shapes": ((-1,),)}, "an array of shape"),
        ({"shapes": ((5,),)}, "an array of shape"),
        ({"shapes": ((4,), (4,))}, "1 arrays too many"),
        ({"size": 10**9}, "at most"),
        ({"data": np.zeros(3, np.uint8)}, "zstd"),
    ],
)
def test_requests_that_nobody_could_have_written_are_refused(change, what):
    task = AdoptParameters(round=1, values=np.arange(4.0))
    tasks, header = Compression(zstd()).send((task,), AGREED)
    forged = replace(header, arrays=replace(header.arrays, **change))
    with pytest.raises(KnowledgeRefused, match=what):
        forged.open(tasks, AGREED)


@pytest.mark.parametrize("settings", [{"bits": 9}, {"bits": "x"}, {"unknown": 1}])
def test_settings_that_are_none_are_refused(settings):
    task = AdoptParameters(round=1, values=np.arange(4.0))
    tasks, header = Compression(zstd()).send((task,), AGREED)
    with pytest.raises(KnowledgeRefused, match="no settings of a codec"):
        replace(header, codec=settings).open(tasks, AGREED)


def test_a_bool_is_true_or_false():
    assert decode_numbers(zstd(), b"\x00\x01", 2, np.dtype(bool)).tolist() == [False, True]
    with pytest.raises(KnowledgeRefused, match="neither true nor false"):
        decode_numbers(zstd(), b"\x00\x02", 2, np.dtype(bool))


def test_a_request_may_not_hide_nan():
    task = Distill(round=1, targets=np.full((2, 2), np.nan, np.float32), alpha=0.5)
    tasks, header = Compression(zstd()).send((task,), AGREED)
    with pytest.raises(KnowledgeRefused, match="targets holds NaN"):
        header.open(tasks, AGREED)


@pytest.mark.parametrize("name", [n for n in PROTOCOL_CASES if "," not in n and n != "local_only"])
def test_compression_without_loss_changes_nothing(name: str) -> None:
    """Of any protocol, also where a message cannot be without its arrays, such as a basis of class sums."""
    case = PROTOCOL_CASES[name]
    if case.parties is networks:
        pytest.importorskip("torch")
    assert replace(case, protocol=case.protocol.compressed(zstd())).run().equals(case.straight)
