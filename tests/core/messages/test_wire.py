"""Bytes and back; and whatever else the bytes may be."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import save

from consilience.core import (
    networks,  # noqa: F401 (every message is registered)
    protocols,  # noqa: F401 (every message is registered)
)
from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.message import REGISTRY, fields
from consilience.core.messages.replies import Failure, Metrics, Predictions, Receipt, SharedModel
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import LONGEST_HEADER, decode, encode, size
from consilience.core.protocols import RoundState
from consilience.core.tasks.lifecycle import Join
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.privacy.class_sums.sums import PublicBasis

AGREEMENT = Agreement(
    kind="classification", classes=("a", "ü"), outputs=2, public="k", rows=3, seed=2**62
)
ROWS = np.array([[0.25, 0.75]] * 3, dtype=np.float32)
MODEL = SharedModel(party="a", round=1, about="{}", data=np.arange(3, dtype=np.uint8))
SOME = {
    "party": "a",
    "round": 2,
    "kind": "classification",
    "classes": ("a", "ü"),
    "outputs": 2,
    "public": "0123",
    "rows": 3,
    "seed": 7,
    "soft_targets": "yes",
    "fewest_classes": 1,
    "tested": True,
    "row": "(2,)",
    "about": "{}",
    "data": np.arange(5, dtype=np.uint8),
    "models": (MODEL, MODEL),
    "share": 0.5,
    "own": 0.0,
    "labels": 0.5,
    "notes": ("one", ""),
    "reason": "why",
    "mend": "how",
    "alpha": 0.1,
    "targets": ROWS,
    "agreement": AGREEMENT,
    "previous": 1,
    "folder": "f",
    "consensus": ROWS,
    "memory": {"t": 1, "rows": ROWS, "deep": {"x": (1, None, 2.5)}},
}
KEY = np.arange(32, dtype=np.uint8)
BASIS = PublicBasis(
    "directions", np.arange(2), ROWS[:1], 0.5, np.zeros((0, 0, 2), dtype=np.float32)
)
SPECIAL = {
    ("SumClasses", "kind"): BASIS.kind,
    ("SumClasses", "trees"): BASIS.trees,
    ("SumClasses", "bounds"): np.array([[0.0, 1.0]]),
    ("SumClasses", "landmarks"): BASIS.landmarks,
    ("SumClasses", "matrix"): BASIS.matrix,
    ("SumClasses", "width"): BASIS.width,
    ("SumClasses", "digest"): BASIS.digest,
    ("Description", "public"): ("0123", "4567"),
    ("Predictions", "kind"): "logits",
    ("Predictions", "values"): ROWS,
    ("LogDensities", "values"): ROWS[:, 0],
    ("Certainties", "values"): ROWS[:, 0],
    ("Selection", "values"): ROWS[:, 0] > 0.5,
    ("SelectPublic", "reference"): "uniform",
    ("Distill", "taught"): ROWS[:, 0] > 0,
    ("Metrics", "values"): {"accuracy": 0.5},
    ("Failure", "kind"): "late",
    ("Failure", "code"): "not-joined",
    ("PredictPublic", "outputs"): "logits",
    ("FuseModels", "weights"): "uniform",
    ("Codec", "bits"): 4,
    ("Codec", "still"): 0.5,
    ("SumQuestion", "tasks"): (PredictPublic(round=2),),
    ("SumQuestion", "settings"): {"temperature": 0.5},
    **{("SumKeys", name): KEY for name in ("sealing", "masking", "commitment")},
    ("SumKeys", "signature"): KEY[:0],
}
# Those of the secure relay hold numbers that must fit one another: tests/papers/test_relay.py sends them.
PACKAGE = sorted(
    name
    for name, cls in REGISTRY.items()
    if cls.__module__.startswith("consilience.") and ".secure_relay." not in cls.__module__
)


def sample(name: str) -> Any:
    names = [field.name for field in dataclasses.fields(REGISTRY[name])]
    hints = get_type_hints(REGISTRY[name])
    return REGISTRY[name](
        **{f: SPECIAL.get((name, f), SOME.get(f, by_type(hints[f]))) for f in names}
    )


def by_type(hint: Any) -> Any:
    """A value of a field that no list above names."""
    usual = {str: "x", int: 3, float: 0.5, bool: True, tuple[str, ...]: ("a", "b")}
    if hint in usual:
        return usual[hint]
    if get_origin(hint) in (Union, UnionType):
        return by_type(next(one for one in get_args(hint) if one is not NoneType))
    if get_origin(hint) is Literal:
        return get_args(hint)[-1]
    if get_origin(hint) is tuple:
        return (by_type(get_args(hint)[0]),) * 2
    if get_origin(hint) is Mapping:
        return {"a": by_type(get_args(hint)[1])}
    return sample(hint.__name__) if hint in REGISTRY.values() else ROWS


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if type(one) in REGISTRY.values():
        return type(one) is type(other) and equal(dict(fields(one)), dict(fields(other)))
    return type(one) is type(other) and one == other


def forged(document: Any, **arrays: np.ndarray) -> bytes:
    """Bytes that a sender who does not use our encoder could send."""
    return save(arrays, metadata={"consilience": json.dumps(document)})


def refused(data: bytes) -> str:
    with pytest.raises(KnowledgeRefused) as refusal:
        decode(data)
    return refusal.value.what


@pytest.mark.parametrize("name", PACKAGE)
def test_every_message_comes_back(name):
    given_ = sample(name)
    (back,) = decode(encode([given_]))
    assert equal(given_, back)


@pytest.mark.parametrize("name", PACKAGE)
def test_the_size_is_that_of_the_bytes(name):
    given_ = sample(name)
    assert size([given_]) == size([given_]) == len(encode([given_]))


@given(
    st.lists(
        st.builds(
            Receipt,
            party=st.text(max_size=3),
            round=st.sampled_from([0, 9, 10, 99, 100, -1, 10**9]),
            notes=st.lists(st.text(alphabet='aé"\\\n', max_size=3), max_size=2).map(tuple),
        )
        | st.builds(
            RoundState,
            round=st.integers(0, 1000),
            memory=st.dictionaries(
                st.text(max_size=2),
                st.booleans()
                | st.integers(-1, 1)
                | st.sampled_from([0.0, -0.0, 1.0, 0.1, np.float32(0.1), np.int64(7)])
                | st.just(np.zeros(3))
                | st.just(np.zeros((3, 1), dtype=np.float32)),
                max_size=3,
            ),
        ),
        max_size=3,
    )
)
def test_a_remembered_size_is_never_that_of_another(messages):
    assert size(messages) == len(encode(messages))


def test_several_messages_keep_their_order():
    sent = (
        FitPrivate(round=1),
        sample("Predictions"),
        sample("LogDensities"),
        Receipt(party="a", round=1),
    )
    assert equal(decode(encode(sent)), sent)
    assert decode(encode([])) == ()


@given(
    arrays_of.arrays(
        arrays_of.boolean_dtypes()
        | arrays_of.integer_dtypes(endianness="<")
        | arrays_of.unsigned_integer_dtypes(endianness="<")
        | arrays_of.floating_dtypes(endianness="<", sizes=(16, 32, 64)),
        arrays_of.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)
def test_arrays_come_back_bit_for_bit(values):
    (back,) = decode(encode([RoundState(round=1, memory={"values": values})]))
    assert equal(back.memory["values"], values)


@pytest.mark.parametrize(
    "values",
    [np.arange(12.0).reshape(3, 4).T, np.arange(12.0)[::-2], np.asfortranarray(np.ones((2, 3)))],
    ids=["transposed", "strided", "fortran"],
)
def test_layout_does_not_matter(values):
    (back,) = decode(encode([RoundState(round=1, memory={"values": values})]))
    np.testing.assert_array_equal(back.memory["values"], values)


def test_byte_order_does_not_matter():
    """Big-endian numbers arrive as the same numbers in this machine's order."""
    values = np.array([1.5, -2.0], dtype=">f8")
    (back,) = decode(encode([RoundState(round=1, memory={"values": values})]))
    np.testing.assert_array_equal(back.memory["values"], values)


@given(
    st.floats(allow_nan=True)
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.none()
    | st.booleans()
)
def test_plain_values_come_back(value):
    try:
        given_ = RoundState(round=1, memory={"value": (value,)})
        data = encode([given_])
    except UnicodeEncodeError:
        assert isinstance(value, str)
        return
    (back,) = decode(data)
    assert repr(back.memory["value"]) == repr((value,))


def test_numpy_scalars_travel_as_numbers():
    values = {"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.str_("x")}
    (back,) = decode(encode([RoundState(round=1, memory=values)]))
    assert {k: (type(v), v) for k, v in back.memory.items()} == {
        "a": (float, 0.5),
        "b": (int, 3),
        "c": (bool, True),
        "d": (str, "x"),
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["text"]), np.array([None]), 1j])
def test_nothing_else_can_be_sent(value):
    with pytest.raises(TypeError, match="cannot cross the wire"):
        encode([RoundState(round=1, memory={"value": value})])


def test_the_same_messages_give_the_same_bytes():
    def sent() -> bytes:
        return encode([sample(name) for name in PACKAGE])

    assert sent() == sent()


def test_predictions_cost_their_own_size():
    """1000 rows, 10 classes, float32: 40 000 bytes, and 2 % for everything else."""
    values = np.full((1000, 10), 0.1, dtype=np.float32)
    classes = tuple(map(str, range(10)))
    said = Predictions(
        party="a", round=1, kind="probabilities", classes=classes, public="0" * 16, values=values
    )
    for message in (said, Distill(round=1, targets=values, alpha=0.5)):
        assert 40_000 < len(encode([message])) < 40_800


# --- what is not a message --------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    refused(data)


def test_every_truncation_is_refused():
    data = encode([sample("Predictions")])
    for length in range(len(data)):
        refused(data[:length])
    refused(data + b"\0")


def test_damage_is_refused_or_harmless():
    """A flipped bit in an array cannot be seen here; nothing but a refusal may come of the rest."""
    good = encode([sample("Predictions"), sample("Metrics"), sample("Join")])
    rng, harmless = np.random.default_rng(0), 0
    for _ in range(1_000):
        data = bytearray(good)
        for place in rng.integers(len(good), size=rng.integers(1, 5)):
            data[place] = rng.integers(256)
        with suppress(KnowledgeRefused):
            assert isinstance(decode(bytes(data)), tuple)
            harmless += 1
    assert 0 < harmless < 1_000


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40, 10**8])
def test_a_huge_header_length_is_refused(size):
    refused(size.to_bytes(8, "little") + b"{}")


WORDS = ["array", "map", "party", "round", "values", "notes", "", "ü", "\ud800", "0", "1", *PACKAGE]
LEAVES = [None, True, False, 0, -1, 7, 2**64, 0.5, np.nan, np.inf, *WORDS]


def document(rng: np.random.Generator, depth: int = 4) -> Any:
    """Anything that JSON can say, of words that mean something here."""
    kind = rng.integers(3) if depth else 0
    if kind == 0:
        return LEAVES[rng.integers(len(LEAVES))]
    inner = [document(rng, depth - 1) for _ in range(rng.integers(4))]
    return inner if kind == 1 else {WORDS[rng.integers(len(WORDS))]: one for one in inner}


def test_any_document_is_refused_or_a_tuple():
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        with suppress(KnowledgeRefused):
            assert isinstance(decode(forged(document(rng), **{"0": ROWS})), tuple)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([{"Nobody": {}}], "no message is called 'Nobody'"),
        ([{"Receipt": {"party": "a"}}], "missing 1 required"),
        ([{"Receipt": {"party": "a", "round": 1, "more": 1}}], "unexpected keyword"),
        ([{"Receipt": {}, "Failure": {}}], "too many values"),
        ([{"Receipt": []}], "no attribute 'items'"),
        ([{"Receipt": {"party": "a", "round": "1"}}], "Receipt.round should be int, not str"),
        ([{"Receipt": {"party": "a", "round": True}}], "Receipt.round should be int, not bool"),
        ([{"Receipt": {"party": "a", "round": 2**63}}], "Receipt.round should be int"),
        ([{"Receipt": {"party": ["a"], "round": 1}}], "Receipt.party should be str, not tuple"),
        ([{"Receipt": {"party": "\ud800", "round": 1}}], "Receipt.party should be str"),
        ([{"Receipt": {"party": "a", "round": 1, "notes": "x"}}], "Receipt.notes should be tuple"),
        ([{"Receipt": {"party": "a", "round": 1, "notes": [1]}}], "Receipt.notes should be tuple"),
        ([{"Failure": {"party": "a", "reason": "r", "kind": "x"}}], "Failure.kind should be Lit"),
        (
            [{"Distill": {"round": 1, "targets": [1.0], "alpha": 0.5}}],
            "should be an array of numbers",
        ),
        (
            [{"Metrics": {"party": "a", "round": 1, "rows": 1, "values": {"map": {"x": "y"}}}}],
            "Mapping",
        ),
        ([{"Join": {"agreement": {"Receipt": {"party": "a", "round": 1}}}}], "should be Agreement"),
        ([{"array": "7"}], "'7'"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(document, why):
    assert why in refused(forged(document, **{"0": ROWS}))


def test_a_header_that_would_fill_the_memory_is_refused_unread():
    text = "[" + "[]," * (LONGEST_HEADER // 3) + "[]]"
    data = save({}, metadata={"consilience": text})
    tracemalloc.start()
    assert "a header of 8," in refused(data)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_bool_is_true_or_false():
    """NumPy counts and copies by other bytes as it likes."""
    good = encode([RoundState(round=1, memory={"rows": np.array([True, False])})])
    assert "neither true nor false" in refused(good[:-2] + b"\x02\x00")


def test_deep_nesting_is_refused():
    depth = 100_000
    text = '[{"map":' + '{"map":{"a":' * depth + "1" + "}}" * depth + "}]"
    refused(save({}, metadata={"consilience": text}))


def test_nothing_but_our_metadata_is_read():
    refused(save({"0": ROWS}, metadata={"other": "[]"}))
    refused(save({"0": ROWS}))


def test_a_failure_says_who_and_why():
    (back,) = decode(encode([Failure(party="a", reason="naïve", kind="invalid")]))
    assert (back.party, back.reason, back.mend, back.kind) == ("a", "naïve", "", "invalid")


def test_a_mapping_may_use_the_names_of_messages():
    (back,) = decode(
        encode([Metrics(party="a", round=1, rows=1, values={"array": 1.0, "map": 2.0})])
    )
    assert back.values == {"array": 1.0, "map": 2.0}


def test_join_carries_the_agreement():
    (back,) = decode(encode([Join(agreement=AGREEMENT)]))
    assert equal(back.agreement, AGREEMENT)
