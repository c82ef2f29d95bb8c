"""Rows as bytes and back: by hand, in general, and what a hostile sender could make of it."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.methods.compression.codec import CODECS, Codec, chain, float16, quantized, zstd
from consilience.methods.compression.rows import RowCoder, nearest_multiples
from consilience.methods.compression.zstd import compress, decompress

LOSSY = [float16(), quantized(1), quantized(4), quantized(8)]
TABLES = st.tuples(
    st.integers(2, 7), st.integers(1, 9), st.floats(0.05, 20), st.integers(0, 2**32)
).map(
    lambda drawn: (
        np.random.default_rng(drawn[3])
        .dirichlet([drawn[2]] * drawn[0], drawn[1])
        .astype(np.float32)
    )
)


def read(coder: RowCoder, data: np.ndarray, size: int) -> np.ndarray:
    """One table, as it is read from a message that holds nothing else."""
    values, rest = coder.read(decompress(coder.codec, data, size, coder.length))
    if rest:
        raise KnowledgeRefused(f"{len(rest)} bytes too many")
    return values


def there_and_back(codec: Codec, values: np.ndarray, form="probabilities") -> np.ndarray:
    coder = coder_of(codec, values, form)
    content = coder.write(values)
    return read(coder, compress(codec, content), len(content))


def coder_of(codec: Codec, values: np.ndarray, form="probabilities") -> RowCoder:
    return RowCoder(codec, form, len(values), values.shape[1] if values.ndim == 2 else 1)


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


def test_every_bit_of_a_message():
    """With three bits, N = 7, of (2/7, 5/7, 0) is sent 2 and 5, and 0 follows: 010 101. The other row is 3
    and 4: 011 100. Twelve bits and four to fill up."""
    rows = np.array([[2 / 7, 5 / 7, 0], [3 / 7, 4 / 7, 0]], np.float32)
    coder = coder_of(quantized(3), rows)
    content = coder.write(rows)
    assert content == bytes([0b010101_01, 0b1100_0000])
    np.testing.assert_allclose(coder.read(content)[0], rows, rtol=1e-6)


def test_one_bit_is_the_likeliest_class():
    rows = np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]], np.float32)
    assert there_and_back(quantized(1), rows).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_scores_on_their_scale():
    """arsinh(0) = 0 is step 0; one step is 1/1900, so sinh(1/1900) comes back as it is, and half of it
    rounds."""
    step = np.sinh(1 / 1900)
    scores = np.array([0, step, -step, 0.4 * step, -1e9], np.float32)
    back = there_and_back(quantized(8), scores, "scores")[:, 0]
    np.testing.assert_allclose(back[:4], [0, step, -step, 0], rtol=1e-5)
    assert back[4] == np.float32(np.sinh(-32767 / 1900))  # as unlikely as can be said


def test_bytes_of_eight_rows():
    """Ten classes: 320 bits a row become 160, 72 and 36; eight rows take as many bytes."""
    codecs = (Codec(), float16(), quantized(8), quantized(4))
    assert [RowCoder(c, "probabilities", 8, 10).length for c in codecs] == [320, 160, 72, 36]


# --- in general -------------------------------------------------------------------------------------


@given(TABLES, st.sampled_from(LOSSY))
def test_rows_come_back_within_the_bound_and_on_the_simplex(rows, codec):
    back = there_and_back(codec, rows)
    assert back.dtype == np.float32 and (back >= 0).all()
    np.testing.assert_allclose(back.sum(axis=1, dtype=np.float64), 1, atol=1e-6)
    assert apart(rows, back) <= codec.error_bound(rows.shape[1]) + 1e-6


@pytest.mark.parametrize("codec", [quantized(1), quantized(2)])
def test_the_bound_is_reached_or_nearly(codec):
    """The worst rows of a lattice lie half-way between its points."""
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
    st.lists(st.floats(-1.4e7, 1.4e7, width=32), min_size=1, max_size=9),
    st.sampled_from([Codec(), *LOSSY]),
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
    for codec in (Codec(), zstd()):
        back = there_and_back(codec, exact, form).reshape(exact.shape)
        assert back.dtype == exact.dtype and back.tobytes() == exact.tobytes()


# --- putting codecs together ------------------------------------------------------------------------


def test_the_order_of_a_chain_does_not_matter():
    one, other = chain(zstd(), quantized(4)), chain(quantized(4), zstd())
    assert one.name == other.name == "quantized(4) + zstd(19)"
    assert Codec().name == "as it is"


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_has_a_name_and_a_bound(name):
    codec = CODECS[name]()
    assert codec.name.startswith(name)
    assert 0 <= codec.error_bound(10) <= 1


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: quantized(0), "bits is 0"),
        (lambda: quantized(9), "bits is 9"),
        (lambda: quantized(True), "bits is True"),
        (lambda: zstd(0), "level is 0"),
        (lambda: zstd(23), "level is 23"),
        (lambda: chain(), "nothing to chain"),
        (lambda: chain(zstd), "is not a codec"),
        (lambda: chain(quantized(4), float16()), "do not go together"),
        (lambda: chain(quantized(2), zstd(3), quantized(3)), "do not go together"),
        (lambda: Codec(bits=9), "bits is 9"),
        (lambda: RowCoder(quantized(), "logits", 3, 2), "is for probabilities"),
        (lambda: there_and_back(float16(), np.full((1, 1), 1e6), "values"), "do not fit 16 bits"),
    ],
)
def test_what_cannot_be_meant_is_said(make, what):
    with pytest.raises(InvalidInput, match=what):
        make()


# --- what a hostile sender could send ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "content", "what"),
    [
        (quantized(2), b"\xff\xff", "negative|bytes"),
        (quantized(2), b"\xff", "negative"),
        (float16(), np.full(6, np.nan, "<f2").tobytes(), "NaN"),
        (float16(), np.array([2, -1, 0, 1, 0, 0], "<f2").tobytes(), "negative"),
        (float16(), np.zeros(6, "<f2").tobytes(), "sum to 1"),
        (quantized(2), b"", "0 bytes, expected 1"),
    ],
)
def test_rows_that_nobody_could_have_written_are_refused(codec, content, what):
    """Two rows of three classes."""
    coder = RowCoder(codec, "probabilities", 2, 3)
    with pytest.raises(KnowledgeRefused, match=what):
        read(coder, np.frombuffer(content, np.uint8), len(content))


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


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_refused_or_rows(content, compressed):
    coder = RowCoder(chain(quantized(4), *[zstd()] * compressed), "probabilities", 5, 3)
    try:
        values = read(coder, np.frombuffer(content, np.uint8), len(content))
    except KnowledgeRefused:
        return
    np.testing.assert_allclose(values.sum(axis=1), np.ones(len(values)), atol=1e-6)
