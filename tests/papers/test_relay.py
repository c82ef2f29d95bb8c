"""Encrypted questions and answers, with keys as long as the shortest that anyone may use."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from consilience.core.errors import InvalidInput, KnowledgeRefused, MissingExtra
from consilience.core.messages.wire import decode, encode, size
from consilience_papers.afonin2022.encrypted import (
    EncryptedAnswer,
    EncryptedQuestion,
    FixedPoint,
    LinearModel,
    Questioner,
    Relay,
    cost,
    linear_model,
)
from consilience_papers.afonin2022.encrypted.paillier import PrivateKey, PublicKey

KEY = 2048
ROWS = (KEY - 2 - 128) // 96  # that one ciphertext holds: 19
rng = np.random.default_rng(8)
X = rng.normal(size=(ROWS + 2, 3))
MODELS = [
    LinearModel(coefficients=rng.normal(size=(3, 2)), intercept=rng.normal(size=2))
    for _ in range(4)
]
ALPHA = np.array([0.5, -1.0, 0.25, 2.0])
RELAY = Relay(MODELS)


@pytest.fixture(scope="module")
def questioner() -> Questioner:
    return Questioner(key_length=KEY)


@pytest.fixture(scope="module")
def question(questioner: Questioner) -> EncryptedQuestion:
    return questioner.ask(X)


@pytest.fixture(scope="module")
def answer(question: EncryptedQuestion) -> EncryptedAnswer:
    return RELAY.answer(question, ALPHA)


def clear(alpha: np.ndarray = ALPHA) -> np.ndarray:
    """Σ_m α_m f_m(X) without encryption."""
    said = [X @ model.coefficients + model.intercept for model in MODELS]
    return np.asarray(np.tensordot(alpha, said, 1))


def stated(fixed: FixedPoint, alpha: np.ndarray = ALPHA) -> np.ndarray:
    """The bound of ``FixedPoint``'s docstring, for every row and output, shape ``(n, 2)``."""
    w = np.abs(np.tensordot(alpha, [model.coefficients for model in MODELS], 1)).sum(axis=0)
    x = np.abs(X).sum(axis=1, keepdims=True)
    half = 2.0 ** -(fixed.fraction + 1)
    return np.asarray(half * (w + x + 3 * half) + 2.0 ** -(2 * fixed.fraction + 1))


def test_answers_are_those_in_the_clear(
    questioner: Questioner, question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    values = questioner.read(answer, question)
    assert values.shape == (ROWS + 2, 2)
    assert len(question.ciphertexts) == 2
    assert (np.abs(values - clear()) <= stated(FixedPoint()) + 1e-15).all()
    mean = questioner.read(RELAY.answer(question), question)
    np.testing.assert_allclose(mean, clear(np.full(4, 1 / 4)), atol=1e-8)


def test_a_coarse_answer_is_as_precise_as_it_says_and_exact_on_its_grid() -> None:
    """With 8 bits after the point errors are seen, and stay within the bound, and repeat to the bit."""
    fixed = FixedPoint(fraction=8, inputs=4, answers=12)
    asker = Questioner(key_length=KEY, fixed_point=fixed)
    question = asker.ask(X)
    values = asker.read(RELAY.answer(question, ALPHA), question)
    error = np.abs(values - clear())
    assert (error <= stated(fixed) + 1e-15).all()
    assert error.max() > stated(fixed).max() / 50
    W = np.tensordot(ALPHA, [model.coefficients for model in MODELS], 1)
    b = np.tensordot(ALPHA, [model.intercept for model in MODELS], 1)
    rounded = np.rint(X * 2**8) @ np.rint(W * 2**8) + np.rint(b * 2**16)
    assert np.array_equal(values, rounded / 2**16)


def test_packing_by_hand() -> None:
    """slot = 2·8 + 7 + 1 = 24; −1 and 3 pack to 3·2²⁴ − 1; ½ is 2⁷ in 2⁻⁸, and 2.25·2⁸ = 576."""
    fixed = FixedPoint(fraction=8, inputs=3, answers=7)
    assert fixed.slot == 24
    assert fixed.pack([-1, 3]) == 3 * 2**24 - 1
    assert fixed.unpack(3 * 2**24 - 1, 2) == [-1, 3]
    assert fixed.whole([0.5, 2.25, -0.5]) == [128, 576, -128]
    assert fixed.real([2**16, -(2**15)]).tolist() == [1.0, -0.5]
    largest = 2**23 - 1
    assert fixed.unpack(fixed.pack([largest, -largest, 0]), 3) == [largest, -largest, 0]
    with pytest.raises(KnowledgeRefused, match="decrypts to no answer"):
        fixed.unpack(2**48, 2)


def test_the_question_and_the_answer_cross_the_wire(
    questioner: Questioner, question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    """Bytes: a key of 256, and 2 blocks of 3 or 2 ciphertexts of 512 each, besides the header."""
    sent = encode([question])
    (there,) = decode(sent)
    assert there.key == question.key
    (back,) = decode(encode([RELAY.answer(there, ALPHA)]))
    assert np.array_equal(questioner.read(back, question), questioner.read(answer, question))
    assert 0 < len(sent) - (256 + 2 * 3 * 512) < 600
    assert 0 < size([answer]) - 2 * 2 * 512 < 400
    assert b"pickle" not in sent
    for damaged in (sent[:-1], sent[: len(sent) // 2], b""):
        with pytest.raises(KnowledgeRefused):
            decode(damaged)


def test_nothing_is_encrypted_alike_twice(
    questioner: Questioner, question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    """Equal inputs have different ciphertexts, and so have equal answers, with models of zero too."""
    again = questioner.ask(X)
    assert not (question.ciphertexts == again.ciphertexts).all(axis=2).any()
    assert again.key != question.key
    repeated = RELAY.answer(question, ALPHA)
    assert not (answer.ciphertexts == repeated.ciphertexts).all(axis=2).any()
    nothing = LinearModel(coefficients=np.zeros((3, 1)), intercept=np.zeros(1))
    silent = [Relay([nothing]).answer(question).ciphertexts for _ in range(2)]
    assert not (silent[0] == silent[1]).all(axis=2).any()
    assert not (silent[0][..., :-1] == 0).all(axis=2).any()  # Enc(0) without randomness is 1


def test_another_key_is_refused(
    questioner: Questioner, question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    other = Questioner(key_length=KEY)
    with pytest.raises(InvalidInput, match="another key pair"):
        other.read(answer, question)
    elsewhere = RELAY.answer(other.ask(X), ALPHA)
    with pytest.raises(KnowledgeRefused, match="answers another question"):
        questioner.read(elsewhere, question)
    forged = dataclasses.replace(elsewhere, question=question.key)
    with pytest.raises(KnowledgeRefused, match=r"decrypts to no answer|not a ciphertext"):
        questioner.read(forged, question)


def test_damaged_answers_are_refused(
    questioner: Questioner, question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    flipped = answer.ciphertexts.copy()
    flipped[1, 0, 100] ^= 1
    with pytest.raises(KnowledgeRefused, match="decrypts to no answer"):
        questioner.read(dataclasses.replace(answer, ciphertexts=flipped), question)
    for value in (np.zeros(512, np.uint8), np.full(512, 255, np.uint8)):
        damaged = answer.ciphertexts.copy()
        damaged[0, 1] = value
        with pytest.raises(KnowledgeRefused, match="not a ciphertext of this key"):
            questioner.read(dataclasses.replace(answer, ciphertexts=damaged), question)
    for short in (
        answer.ciphertexts[:1],
        answer.ciphertexts[:, :, :-1],
        answer.ciphertexts[:, :0],
        answer.ciphertexts[0],
        answer.ciphertexts.astype(np.float64),
    ):
        with pytest.raises(KnowledgeRefused, match="ciphertexts"):
            questioner.read(dataclasses.replace(answer, ciphertexts=short), question)


def test_damaged_questions_are_refused(question: EncryptedQuestion) -> None:
    for change in (
        {"n_rows": 2 * ROWS + 1},
        {"n_rows": 0},
        {"n_rows": 2**62},
        {"fraction": 1},
        {"answers": 257, "fraction": 52},
        {"ciphertexts": question.ciphertexts[:, :, 1:]},
        {"modulus": question.modulus[:-1]},
        {"modulus": question.modulus[:0]},
        {"modulus": question.modulus[None]},
    ):
        with pytest.raises(KnowledgeRefused):
            dataclasses.replace(question, **change)
    even = question.modulus.copy()
    even[-1] &= 254
    beyond = question.ciphertexts.copy()
    beyond[0, 0] = 255
    for change in ({"modulus": even}, {"ciphertexts": beyond}):
        with pytest.raises(KnowledgeRefused):
            RELAY.answer(dataclasses.replace(question, **change))


def test_short_keys_are_neither_made_nor_answered() -> None:
    for length in (1024, 2056, 2048.0, 10**6):
        with pytest.raises(InvalidInput, match="key length"):
            Questioner(key_length=length)  # type: ignore[arg-type]
    short = np.full(128, 255, dtype=np.uint8)
    with pytest.raises(KnowledgeRefused, match="no public key of 2048"):
        PublicKey(short)
    assert FixedPoint(fraction=52, inputs=128, answers=256).rows(2048) >= 1


def test_the_private_key_stays(questioner: Questioner) -> None:
    for leave in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InvalidInput, match="does not leave its party"):
            leave(questioner)
    key = PrivateKey(KEY)
    assert str(key._key.p) not in repr(vars(key)) + repr(vars(questioner))


def test_overflow_is_an_error_before_any_work(
    questioner: Questioner, question: EncryptedQuestion
) -> None:
    """2¹⁵ inputs times ‖w‖₁ = 2¹⁶ are 2³¹, which is one too many; what fits is right at the limit."""
    X_large = X.copy()
    X_large[4, 1] = -(2.0**15)
    with pytest.raises(InvalidInput, match=r"column 1 holds values up to 3.28e\+04"):
        questioner.ask(X_large)
    large = LinearModel(coefficients=np.full((4, 1), 2.0**14), intercept=np.zeros(1))
    small = dataclasses.replace(large, coefficients=np.full((4, 1), 2.0**14 - 1))
    limit = np.full((2, 4), 2.0**15 - 2.0**-32)
    limit[1] *= -1
    at_limit = questioner.ask(limit)
    with pytest.raises(InvalidInput, match=r"reach 2\^32.*\n.*FixedPoint\(answers=32\)"):
        Relay([large]).answer(at_limit)
    values = questioner.read(Relay([small]).answer(at_limit), at_limit)
    expected = limit @ small.coefficients
    np.testing.assert_allclose(values, expected, rtol=1e-15)


def test_bad_calls(questioner: Questioner, question: EncryptedQuestion) -> None:
    for bad in (X[0], X[:0], X[:, :0], np.array([["a"]]), X * np.nan):
        with pytest.raises(InvalidInput):
            questioner.ask(bad)
    for weights in (ALPHA[:3], ALPHA * np.inf, ALPHA[None]):
        with pytest.raises(InvalidInput, match="weights are not 4 finite numbers"):
            RELAY.answer(question, weights)
    with pytest.raises(InvalidInput, match="there are no models"):
        Relay([])
    wider = LinearModel(coefficients=np.ones((4, 2)), intercept=np.ones(2))
    with pytest.raises(InvalidInput, match=r"models differ: shape \(3, 2\).*shape \(4, 2\)"):
        Relay([MODELS[0], wider])
    with pytest.raises(InvalidInput, match="asked with 3 columns of inputs"):
        Relay([wider]).answer(question)
    for bits in (
        {"fraction": 7},
        {"fraction": 53},
        {"inputs": 0},
        {"answers": 1.5},
        {"answers": True},
    ):
        with pytest.raises(InvalidInput, match="whole number of bits"):
            FixedPoint(**bits)  # type: ignore[arg-type]


def test_shared_features_end_to_end() -> None:
    """Two owners fit on their own rows; the party asks with features that it computes itself."""

    def features(seed: int) -> Any:
        return RBFSampler(gamma=0.2, n_components=12, random_state=seed)

    owners = [
        make_pipeline(features(1), Ridge()).fit(rows, np.sin(rows[:, 0]))
        for rows in (rng.normal(size=(30, 3)), rng.normal(size=(25, 3)))
    ]
    relay = Relay([linear_model(owner) for owner in owners])
    asker = Questioner(key_length=KEY, features=features(1).fit(X))
    question = asker.ask(X)
    values = asker.read(relay.answer(question), question)
    expected = np.mean([owner.predict(X) for owner in owners], axis=0)
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-8)

    stranger = Questioner(key_length=KEY, features=features(2).fit(X))
    with pytest.raises(InvalidInput, match="features that the models were fitted on"):
        relay.answer(stranger.ask(X[:1]))
    with pytest.raises(InvalidInput, match="is not known"):
        Questioner(key_length=KEY, features=RBFSampler().fit(X))


def test_without_phe_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phe", None)
    with pytest.raises(MissingExtra, match=r"pip install 'consilience\[secure\]'"):
        Questioner(key_length=KEY)


def test_a_round_of_two_agents_costs_what_its_messages_have(
    question: EncryptedQuestion, answer: EncryptedAnswer
) -> None:
    """Two models to the relay, and two questions with answers of one block; direct, one model each way."""
    found = cost.exchange(agents=2, repetition=0)
    model = LinearModel(coefficients=np.zeros((cost.COLUMNS, 1)), intercept=np.zeros(1))
    sent = size([model])
    assert found["direct"] == 2 * sent
    assert found["error"] < 1e-8
    exchanged = (
        found["relay"] - 2 * sent
    ) / 2  # a ciphertext a column, and one back: 512 bytes each
    assert 0 < exchanged - 512 * (cost.COLUMNS + 1) < 1_500


@pytest.mark.parametrize(("slow", "holds"), [(1.0, True), (2.0, False)])
def test_seconds_an_agent_that_grow_are_not_linear(slow: float, holds: bool) -> None:
    def cell(agents: int, seconds: float) -> dict[str, np.ndarray]:
        each = {"relay": 100, "direct": 10 * agents, "agents s": seconds, "relay s": seconds}
        return {name: np.full(3, value * agents) for name, value in each.items()}

    claims = cost._claims({2: cell(2, 1.0), 80: cell(80, slow)})
    assert [claim.holds for claim in claims] == [True, holds]
