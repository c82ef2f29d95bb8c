"""Rows as bytes and back: by hand, in general, and what a hostile sender could make of it."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.transforms.byte_coder import compress, decompress
from consilience.transforms.codec import (
    CODECS,
    Codec,
    cached_rows,
    chain,
    changed_rows,
    float16,
    quantized,
    top_k,
    zstd,
)
from consilience.transforms.row_coder import RowCoder, nearest_multiples

LOSSY = [
    float16(),
    quantized(1),
    quantized(4),
    quantized(8),
    top_k(1),
    top_k(2),
    chain(top_k(2), float16()),
    chain(top_k(2), quantized(3)),
    top_k(2, renormalize=True),
    chain(top_k(2, renormalize=True), quantized(3)),
]
TABLES = st.tuples(
    st.integers(2, 7), st.integers(1, 9), st.floats(0.05, 20), st.integers(0, 2**32)
).map(
    lambda drawn: (
        np.random.default_rng(drawn[3])
        .dirichlet([drawn[2]] * drawn[0], drawn[1])
        .astype(np.float32)
    )
)


def read(coder: RowCoder, data: np.ndarray, size: int, since: int):
    """One table, as it is read from a message that holds nothing else."""
    content = decompress(coder.codec, data, size, coder.most_bytes)
    arrived, rest = coder.read(content, since)
    if rest:
        raise KnowledgeRefused(f"{len(rest)} bytes too many")
    return arrived


def there_and_back(codec: Codec, values: np.ndarray, form="probabilities") -> np.ndarray:
    coder = coder_of(codec, values, form)
    memory = coder.update(values, {}, 1)
    return received(coder, coder.write(memory, 0), {}, since=0, round=1)[0]


def coder_of(codec: Codec, values: np.ndarray, form="probabilities") -> RowCoder:
    return RowCoder(codec, form, len(values), values.shape[1] if values.ndim == 2 else 1)


def received(coder: RowCoder, content: bytes, memory, *, since: int, round: int):
    data = compress(coder.codec, content)
    arrived = read(coder, data, len(content), since)
    memory = coder.take(arrived, memory, round)
    return coder.values(memory["rows"]), memory


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest total variation of a row."""
    return float(np.abs(one.astype(np.float64) - other).sum(axis=1).max() / 2)


# --- by hand ----------------------------------------------------------------------------------------


def test_multiples_of_a_third():
    """Two bits, N = 3: 3 (0.55, 0.3, 0.15) = (1.65, 0.9, 0.45), rounded down (1, 0, 0); the two that are
    missing go where the remainders 0.65, 0.9, 0.45 are largest."""
    assert nearest_multiples(np.array([[0.55, 0.3, 0.15]]), 3).tolist() == [[2, 1, 0]]
    back = there_and_back(quantized(2), np.array([[0.55, 0.3, 0.15]], np.float32))
    np.testing.assert_allclose(back, [[2 / 3, 1 / 3, 0]], rtol=1e-6)


def test_the_two_largest_of_four():
    """0.5 and 0.3 are kept, and the others have 0.1 each. Of equals the first counts as larger.
    Renormalised, with 0.8 for 1, they are 5/8 and 3/8."""
    row = np.array([[0.1, 0.5, 0.1, 0.3], [0.25, 0.25, 0.25, 0.25]], np.float32)
    np.testing.assert_allclose(there_and_back(top_k(2), row), row, rtol=1e-6)
    np.testing.assert_allclose(
        there_and_back(top_k(2, renormalize=True), row),
        [[0, 5 / 8, 0, 3 / 8], [0.5, 0.5, 0, 0]],
        rtol=1e-6,
    )


def test_what_is_left_is_shared_alike():
    """0.6 and 0.2 left, which the second and third have in halves: 0.1 each in place of 0.15 and 0.05."""
    back = there_and_back(top_k(2), np.array([[0.6, 0.15, 0.05, 0.2]], np.float32))
    np.testing.assert_allclose(back, [[0.6, 0.1, 0.1, 0.2]], rtol=1e-6)


def test_every_bit_of_a_message():
    """Classes 2 and 0 (of 3: two bits each) with 5/7 and 2/7 (three bits, the second not sent): 10 00 101.
    The other row is 1 and 0 with 4/7: 01 00 100. Fourteen bits and two to fill up."""
    rows = np.array([[2 / 7, 0, 5 / 7], [3 / 7, 4 / 7, 0]], np.float32)
    coder = coder_of(chain(top_k(2, renormalize=True), quantized(3)), rows)
    content = coder.write(coder.update(rows, {}, 1), 0)
    assert content == bytes([0b1000101_0, 0b100100_00])
    np.testing.assert_allclose(received(coder, content, {}, since=0, round=1)[0], rows, rtol=1e-6)


def test_one_bit_is_the_likeliest_class():
    rows = np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]], np.float32)
    assert there_and_back(quantized(1), rows).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_message_of_changes():
    """Nine rows of two classes; rows 0 and 8 change: marks 10000000 10000000, then 15 and 0 in four bits
    each."""
    rows = np.array([[0.2, 0.8]] * 9, np.float32)
    coder = coder_of(chain(quantized(4), changed_rows()), rows)
    first = coder.update(rows, {}, 1)
    there = coder.take(coder.read(coder.write(first, 0), 0)[0], {}, 1)
    rows[0], rows[8] = [1, 0], [0, 1]
    content = coder.write(coder.update(rows, first, 2), 1)
    assert content == bytes([0b10000000, 0b10000000, 0xF0])
    values, _ = received(coder, content, there, since=1, round=2)
    assert values[[0, 8]].tolist() == [[1, 0], [0, 1]]
    assert (values[1:8] == values[1]).all()


def test_scores_on_their_scale():
    """arsinh(0) = 0 is step 0; one step is 1/1900, so sinh(1/1900) comes back as it is, and half of it
    rounds."""
    step = np.sinh(1 / 1900)
    scores = np.array([0, step, -step, 0.4 * step, -1e9], np.float32)
    back = there_and_back(quantized(8), scores, "scores")[:, 0]
    np.testing.assert_allclose(back[:4], [0, step, -step, 0], rtol=1e-5)
    assert back[4] == np.float32(np.sinh(-32767 / 1900))  # as unlikely as can be said


def test_bits_per_row():
    """Ten classes: 320 bits become 160, 72 and 36; two classes and two shares at four bits each are 16
    bits."""
    used = {
        codec.name: sum(RowCoder(codec, "probabilities", 1, 10).widths)
        for codec in (Codec(), float16(), quantized(8), quantized(4), chain(top_k(2), quantized(4)))
    }
    assert list(used.values()) == [320, 160, 72, 36, 16]


# --- in general -------------------------------------------------------------------------------------


@given(TABLES, st.sampled_from(LOSSY))
def test_rows_come_back_within_the_bound_and_on_the_simplex(rows, codec):
    back = there_and_back(codec, rows)
    assert back.dtype == np.float32 and (back >= 0).all()
    np.testing.assert_allclose(back.sum(axis=1, dtype=np.float64), 1, atol=1e-6)
    assert apart(rows, back) <= codec.error_bound(rows.shape[1]) + 1e-6


@pytest.mark.parametrize(
    "codec", [top_k(2), top_k(2, renormalize=True), quantized(1), quantized(2)]
)
def test_the_bound_is_reached_or_nearly(codec):
    """Even rows lose most when few are kept; the worst rows of a lattice lie half-way between its points."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(4) * 8, 20_000)
    rows = np.concatenate([np.full((1, 4), 0.25), [[1 / 3, 1 / 3, 1 / 3, 0]], rows])
    assert apart(rows, there_and_back(codec, rows.astype(np.float32))) >= 0.8 * codec.error_bound(4)


@given(TABLES)
def test_nothing_is_nearer(rows):
    """Against all rows of whole numbers that sum to N."""
    rows = rows[:2, :3].astype(np.float64)
    rows, n = rows / rows.sum(axis=1, keepdims=True), 5
    grid = np.stack(np.meshgrid(*[np.arange(n + 1)] * rows.shape[1]), axis=-1)
    grid = grid.reshape(-1, rows.shape[1])
    grid = grid[grid.sum(axis=1) == n]
    found = np.abs(nearest_multiples(rows, n) / n - rows).sum(axis=1)
    best = np.abs(grid[None] / n - rows[:, None]).sum(axis=2).min(axis=1)
    np.testing.assert_allclose(found, best, atol=1e-9)


@given(
    st.lists(st.floats(-1.4e7, 1.4e7, width=32), min_size=1, max_size=9), st.sampled_from(LOSSY[:5])
)
def test_scores_come_back_within_their_bound(scores, codec):
    """Half a step d of arsinh moves x by at most √(1 + x²) (e^d − 1)."""
    x = np.array(scores, np.float32)
    back = there_and_back(codec, x, "scores")[:, 0].astype(np.float64)
    bound = np.sqrt(1 + x.astype(np.float64) ** 2) * np.expm1(0.5 / 1900)
    if codec.bits:
        assert (np.abs(back - x) <= bound * (1 + 1e-3)).all()
    else:
        assert back.tolist() == x.tolist()


@given(TABLES, st.sampled_from(["probabilities", "logits", "values", "scores"]))
def test_nothing_is_lost_unless_it_is_asked_for(rows, form):
    if form == "scores":
        rows = rows[:, 0]
    exact = rows.astype(np.float64) if form == "values" else rows
    for codec in (Codec(), zstd(), changed_rows(), chain(cached_rows(), zstd())):
        back = there_and_back(codec, exact, form).reshape(exact.shape)
        assert back.dtype == exact.dtype and back.tobytes() == exact.tobytes()


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1]), st.booleans(), st.booleans())
def test_whoever_misses_rounds_catches_up(seed, tolerance, small, compressed):
    """Two receivers of one sender; each hears a round or not. Who hears it has what the sender means it to
    have, and that is no further from the truth than is said."""
    rng = np.random.default_rng(seed)
    codec = chain(
        changed_rows(tolerance),
        quantized(4) if small else Codec(),
        zstd() if compressed else Codec(),
    )
    rows = rng.dirichlet(np.ones(3), 11).astype(np.float32)
    coder, memory = coder_of(codec, rows), {}
    there: list[tuple[int, dict]] = [(0, {}), (0, {})]
    for t in range(1, 8):
        some = rng.random(11) < 0.3
        rows[some] = rng.dirichlet(np.ones(3), int(some.sum())).astype(np.float32)
        rows = (0.97 * rows + 0.03 / 3).astype(np.float32)  # slow drift adds up
        memory = coder.update(rows, memory, t)
        for i in (0, 1):
            if rng.random() < 0.6:
                since, known = there[i]
                values, known = received(
                    coder, coder.write(memory, since), known, since=since, round=t
                )
                there[i] = (t, known)
                assert (known["rows"] == memory["rows"]).all()
                assert apart(rows, values) <= codec.error_bound(3) + tolerance + 1e-6


def test_an_unwanted_row_stays():
    rows = np.eye(3, dtype=np.float32)
    coder = coder_of(cached_rows(), rows)
    memory = coder.update(rows, {}, 1)
    memory = coder.update(rows[::-1], memory, 2, wanted=np.array([True, False, False]))
    assert coder.values(memory["rows"]).argmax(axis=1).tolist() == [2, 1, 2]
    assert memory["rounds"].tolist() == [2, 1, 1]


# --- putting codecs together ------------------------------------------------------------------------


def test_the_order_of_a_chain_does_not_matter():
    one, other = chain(zstd(), quantized(4), top_k(2)), chain(top_k(2), quantized(4), zstd())
    assert one.name == other.name == "top_k(2) + quantized(4) + zstd(19)"
    assert chain(cached_rows(0.05), changed_rows(0.1)).name == (
        "cached_rows(0.05, 5) + changed_rows(0.1)"
    )
    assert Codec().name == "as it is"


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_has_a_name_and_a_bound(name):
    codec = CODECS[name](**({"k": 2} if name == "top_k" else {}))
    assert codec.name.startswith(name)
    assert 0 <= codec.error_bound(10) <= 1


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: quantized(0), "bits is 0"),
        (lambda: quantized(9), "bits is 9"),
        (lambda: quantized(True), "bits is True"),
        (lambda: top_k(0), "k is 0"),
        (lambda: top_k(1.5), "k is 1.5"),
        (lambda: changed_rows(-0.1), "tolerance is -0.1"),
        (lambda: changed_rows(float("nan")), "tolerance is nan"),
        (lambda: cached_rows(2.0), "tolerance is 2.0"),
        (lambda: cached_rows(rounds=0), "rounds is 0"),
        (lambda: zstd(0), "level is 0"),
        (lambda: zstd(23), "level is 23"),
        (lambda: chain(), "nothing to chain"),
        (lambda: chain(zstd), "is not a codec"),
        (lambda: chain(quantized(4), float16()), "do not go together"),
        (lambda: chain(top_k(2), zstd(3), top_k(3)), "do not go together"),
        (lambda: Codec(rest=3), "rest"),
        (lambda: Codec(bits=9), "bits is 9"),
        (lambda: RowCoder(quantized(), "logits", 3, 2), "is for probabilities"),
        (lambda: RowCoder(top_k(1), "values", 3, 2), "is for probabilities"),
        (lambda: RowCoder(top_k(3), "probabilities", 3, 2), "of 2 classes"),
        (lambda: there_and_back(float16(), np.full((1, 1), 1e6), "values"), "do not fit 16 bits"),
    ],
)
def test_what_cannot_be_meant_is_said(make, what):
    with pytest.raises(InvalidInput, match=what):
        make()


# --- what a hostile sender could send ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "content", "since", "what"),
    [
        (chain(top_k(2), quantized(4)), b"\xff\xff\xff", 0, "of no class"),
        (chain(top_k(2), quantized(4)), b"\x00\x00\x00", 0, "two of the same"),
        (quantized(2), b"\xff\xff", 0, "negative"),
        (float16(), np.full(6, np.nan, "<f2").tobytes(), 0, "NaN"),
        (float16(), np.array([2, -1, 0, 1, 0, 0], "<f2").tobytes(), 0, "negative"),
        (float16(), np.zeros(6, "<f2").tobytes(), 0, "sum to 1"),
        (quantized(2), b"\x00\x00", 0, "too many"),
        (quantized(2), b"", 0, "0 bytes, expected 1"),
        (chain(quantized(2), changed_rows()), b"", 1, "which rows"),
        (chain(quantized(2), changed_rows()), b"\x01", 1, "which rows"),
        (chain(quantized(2), changed_rows()), b"\x80", 1, "0 bytes, expected 1"),
    ],
)
def test_rows_that_nobody_could_have_written_are_refused(codec, content, since, what):
    """Two rows of three classes."""
    coder = RowCoder(codec, "probabilities", 2, 3)
    with pytest.raises(KnowledgeRefused, match=what):
        read(coder, np.frombuffer(content, np.uint8), len(content), since)


@pytest.mark.parametrize("size", [-1, 7, 8, 10, 2**40])
def test_no_more_is_unpacked_than_was_asked_for(size):
    """Nine bytes that say they are another number of bytes, and at most 20 are expected."""
    data = compress(zstd(), bytes(9))
    with pytest.raises(KnowledgeRefused):
        decompress(zstd(), data, size, 20)
    assert decompress(zstd(), data, 9, 20) == bytes(9)


def test_a_small_message_that_would_fill_the_memory():
    bomb = np.frombuffer(pyarrow.Codec("zstd").compress(bytes(10**8), asbytes=True), dtype=np.uint8)
    assert len(bomb) < 10**5
    for size in (1000, 10**8):
        with pytest.raises(KnowledgeRefused):
            decompress(zstd(), bomb, size, 1000)


@given(st.binary(max_size=40), st.integers(0, 1), st.booleans())
def test_any_bytes_are_refused_or_rows(content, since, compressed):
    codec = chain(top_k(2), quantized(4), changed_rows(), zstd() if compressed else Codec())
    coder = RowCoder(codec, "probabilities", 5, 3)
    data = np.frombuffer(content, np.uint8)
    try:
        arrived = read(coder, data, len(content), since)
    except KnowledgeRefused:
        return
    values = coder.values(arrived.rows)
    np.testing.assert_allclose(values.sum(axis=1), np.ones(len(values)), atol=1e-6)


def test_changes_to_nothing_are_refused():
    coder = RowCoder(changed_rows(), "scores", 3, 1)
    arrived, _ = coder.read(b"\x00", 1)
    with pytest.raises(KnowledgeRefused, match="nothing is known"):
        coder.take(arrived, {}, 2)
