"""What a stranger asks for grows no faster than what was agreed on, and has an end that the party chose."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from consilience import Party
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.forming import incompatible_parties
from consilience.core.messages.columns import Column, Schema
from consilience.core.messages.replies import Description, Failure, Receipt
from consilience.core.messages.schema import VERSION, Agreement, Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.incoming import Request, decode_reply, receive
from consilience.core.numerics.feature_space import public_feature_space
from consilience.core.tasks.lifecycle import Evaluate, Join, TakePublic
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.requests import sent_through, write_request
from consilience.methods.compression.codec import chain, quantized, zstd
from consilience.methods.compression.numbers import decode_numbers, encode_numbers
from consilience.methods.compression.stage import Compressed, CompressedRequest, Compression
from consilience.methods.model_exchange.party import predict_private_with
from consilience.methods.parameters.tasks import AdoptParameters, Parameters, TrainParameters
from consilience.models.files.transfer import pack
from consilience.sites.party import GROUPS, Limits, PartySite
from consilience.sites.party.requests import read_request
from helpers.party_sites import ask

X = np.random.default_rng(0).normal(size=(200, 3))
PUBLIC = Public(X[:50])


def patients() -> Party:
    y = np.where(np.arange(200) % 2, "ill", "well")
    party = Party("north", LogisticRegression(), X, y, test=(X, y))
    party.hold_public(PUBLIC)
    return party


def on(classes: int, **changes: Any) -> Agreement:
    names = ("ill", "well", *(f"z{number}" for number in range(classes - 2)))
    given = {"outputs": classes, "public": PUBLIC.key, "rows": len(PUBLIC), **changes}
    return Agreement(kind="classification", classes=names, seed=0, **given)


@pytest.fixture
def peak() -> Iterator[Any]:
    """Gives the most bytes that were taken since it was last asked."""
    tracemalloc.start()

    def most() -> int:
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        return found

    yield most
    tracemalloc.stop()


def test_more_classes_than_a_party_takes_are_refused(tmp_path: Path, peak: Any) -> None:
    with PartySite(patients, tmp_path) as site:
        failure = ask(site, Join(agreement=on(30_000)))
        assert failure.kind == "refused"
        assert (
            "limits.classes: the agreement is on 30,000 classes, and it takes 1,000"
            in failure.reason
        )
        assert failure.mend == "The party's engineer may raise classes."
        assert isinstance(ask(site, Join(agreement=on(1_000))), Receipt)
    assert peak() < 40_000_000


def test_classes_cost_what_they_are(tmp_path: Path, peak: Any) -> None:
    """Twice the classes, about twice the memory; their square would be 800 MB for 10,000."""
    taken = []
    for classes in (5_000, 10_000):
        with PartySite(patients, tmp_path / str(classes), limits=Limits(classes=None)) as site:
            peak()
            for task in (Join(agreement=on(classes)), FitPrivate(round=1), PredictPublic(round=1)):
                assert not isinstance(ask(site, task), Failure)
            assert not isinstance(ask(site, Evaluate(round=1)), Failure)
        taken.append(peak())
    assert taken[1] < 2.3 * taken[0] and taken[1] < 150_000_000


def test_what_would_not_fit_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**7)
    with PartySite(patients, tmp_path, limits=Limits(classes=None)) as site:
        reason = ask(site, Join(agreement=on(20_000))).reason
    assert (
        "party 'north': 20,000 outputs for each of its rows and of 50 public ones would take"
        in reason
    )


def test_a_party_with_more_classes_than_it_takes_is_told_before_it_joins(tmp_path: Path) -> None:
    from consilience.sites.party import read_party

    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},c{i % 50}\n" for i in range(500)))
    (tmp_path / "party.toml").write_text(
        'name = "a"\n[data]\npath = "t.csv"\ntarget = "y"\n[model]\nname = "naive-bayes"\n'
        "[limits]\nclasses = 20\n"
    )
    with pytest.raises(InvalidInput, match=r"limits\.classes: its own rows are of 50 classes.*20"):
        read_party(tmp_path / "party.toml").party()


def test_a_teacher_of_another_shape_is_not_converted(peak: Any) -> None:
    party = patients()
    party.join(on(2))
    peak()
    with pytest.raises(InvalidInput, match="the teacher has shape"):
        Distill(round=1, targets=np.zeros((5_000_000, 2), bool), alpha=0.5).run(party)
    assert peak() < 20_000_000


def test_a_model_of_other_outputs_is_not_asked() -> None:
    party, other = patients(), Party("b", GaussianNB(), X, np.arange(200) % 5)
    for member, agreed in ((party, on(2)), (other, None)):
        other.hold_public(PUBLIC)
        if agreed is None:
            names = tuple("01234")
            agreed = Agreement(kind="classification", classes=names, outputs=5, public=PUBLIC.key,
                               rows=len(PUBLIC), seed=0)  # fmt: skip
        member.join(agreed)
    other.trainer.fit_private(1)
    with pytest.raises(Exception, match="a model of 5 outputs, not 2"):
        predict_private_with(party, *pack(other.trainer.learner))


@pytest.mark.parametrize("dtype", ["bool", "u1", "f4", "f8"])
def test_public_rows_count_as_what_they_become(tmp_path: Path, dtype: str) -> None:
    """A byte or eight of them on the wire, a number is eight in memory."""
    party = patients()
    party.hold_public(None)
    sent = TakePublic.of(Public((X[:40] > 0).astype(dtype)))
    assert sent.unpacked == 40 * 3 * 8
    with PartySite(lambda: party, tmp_path, limits=Limits(public_bytes=40 * 3 * 8 - 1)) as site:
        assert "the public rows take 960 bytes, and it takes 959" in ask(site, sent).reason


def test_texts_count_as_what_they_become() -> None:
    few = TakePublic.of(Public(np.array(["x" * 1000], dtype=object)))
    many = TakePublic.of(Public(np.array([""] * 1000, dtype=object)))
    assert (few.unpacked, many.unpacked) == (4 * 1000 + 80, 80 * 1000)


def test_categories_count_as_what_rows_are_compared_by(tmp_path: Path, peak: Any) -> None:
    """26,000 rows of one code each and 10,000 names are 500 kB, and would become 2 GB."""
    column = Column("place", "category", tuple(f"p{number}" for number in range(10_000)))
    rows = Public(np.zeros((26_000, 1), np.uint8), Schema((column,)))
    sent = TakePublic.of(rows)
    assert sent.nbytes < 600_000 and sent.unpacked == 16 * 26_000 * 10_000 + 10 * len(sent.schema)
    party = patients()
    party.hold_public(None)
    peak()
    with PartySite(lambda: party, tmp_path, limits=Limits()) as site:
        reason = ask(site, sent).reason
    assert "limits.public_bytes: the public rows take 4,16" in reason
    assert peak() < 100_000_000


@pytest.mark.parametrize(
    ("shape", "schema", "numbers"),
    [
        ((30, 12, 12), None, 2 * 400),  # a picture's features
        ((30, 64, 64), None, 64 * 64),
        ((30, 4), None, 4),
        ((30, 2), Schema((Column("x"), Column("y"))), 2),
        ((30, 2), Schema((Column("x"), Column("y", gaps=True))), 2 * 3),
    ],
)
def test_rows_count_as_what_they_are_compared_by(
    shape: tuple[int, ...], schema: Schema | None, numbers: int
) -> None:
    sent = TakePublic.of(Public(np.ones(shape), schema))
    assert sent.unpacked == 8 * 30 * numbers + 10 * len(sent.schema)
    features = public_feature_space(
        np.random.default_rng(0).random(shape), np.random.default_rng(0), sent.rows().encoder
    ).public
    assert 8 * features.size <= sent.unpacked


def test_rows_are_scaled_in_two_copies(peak: Any) -> None:
    X = np.random.default_rng(0).random((20_000, 50))
    peak()
    space = public_feature_space(X, np.random.default_rng(0))
    assert peak() < 3.2 * X.nbytes
    np.testing.assert_array_equal(space.public, np.clip((X - X.mean(0)) / X.std(0), -3, 3))


def test_a_space_that_would_not_fit_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**7)
    pictures = np.zeros((30_000, 12, 12), bool)
    with pytest.raises(
        InvalidInput, match=r"public data: the space of public rows of shape \(30000, "
    ):
        public_feature_space(pictures, np.random.default_rng(0))


@pytest.mark.timeout(30)
def test_a_party_that_says_it_has_any_number_of_classes_keeps_nobody_busy() -> None:
    def described(party: str, classes: tuple[str, ...]) -> Description:
        return Description(party=party, kind="classification", classes=classes, outputs=0, row="(3,)",
                           soft_targets="", fewest_classes=2, tested=True, version=VERSION)  # fmt: skip

    names = tuple(f"{number:x<200}" for number in range(60_000))
    said = [described("a", ("ill", "well")), described("b", ("ill", "well")), described("c", names)]
    odd = incompatible_parties(said, PUBLIC)
    assert list(odd) == ["c"] and len(str(odd["c"])) < 1_000


def test_a_few_parties_that_invent_classes_together_do_not_keep_the_others_out() -> None:
    """Others take 1,000 classes by default, and would all refuse to join."""

    def described(party: str, *classes: str) -> Description:
        return Description(party=party, kind="classification", classes=classes, outputs=0, row="(3,)",
                           soft_targets="", fewest_classes=2, tested=True, version=VERSION)  # fmt: skip

    real = ("ill", "well", "dead")
    honest = [described(name, *real) for name in "abc"]
    for made in (
        [described(name, *real, *map(str, range(20_000))) for name in "de"],
        # Not the same, and fewer than they may each; all of them invented.
        [described("d", *real, *map(str, range(700))), described("e", *map(str, range(1_400)))],
    ):
        odd = incompatible_parties([*honest, *made], PUBLIC)
        assert set(odd) == {"d", "e"}
        assert all(len(str(error)) < 1_000 for error in odd.values())
    alone = incompatible_parties([*honest, *made[:1]], PUBLIC)
    assert "no other party has class" in str(alone["d"])
    few = [described(name, *real, *map(str, range(1_000))) for name in "de"]
    many = [described(name, *real, *map(str, range(1_001))) for name in "de"]
    assert not incompatible_parties([*honest, *few], PUBLIC)
    odd = incompatible_parties([*honest, *many], PUBLIC)
    assert "1,001 of its classes are known to half of the parties or fewer" in str(odd["d"])
    assert not incompatible_parties([*honest, *many], PUBLIC, strict=False)
    # Most know them: they are many classes, and nobody's invention.
    assert not incompatible_parties([*many, described("f", *many[0].classes), honest[0]], PUBLIC)


# --- compressed messages that become large ---------------------------------------------------------

SMALL = chain(quantized(8), zstd())


def bomb(numbers: int) -> Compressed:
    """So many quantised zeros in as few bytes as may have been them, in a frame that zstd skips."""
    size = 8 * -(-numbers // 1024) + numbers
    data = pyarrow.Codec("zstd").compress(bytes(size), asbytes=True)
    padding = max(0, size // 256 - len(data))
    data += (0x184D2A50).to_bytes(4, "little") + padding.to_bytes(4, "little") + bytes(padding)
    return Compressed(size=size, data=np.frombuffer(data, np.uint8), shapes=((numbers,),))


@pytest.mark.parametrize(
    ("size", "what"), [(10, "at most 10 numbers were asked for"), (10**7, "become arrays of")]
)
def test_a_reply_of_few_bytes_does_not_fill_the_coordinator(
    peak: Any, size: int, what: str
) -> None:
    """What the task asks for is known; and where it is much, it takes more than a few bytes to say it."""
    asked = sent_through([Compression(SMALL)], (TrainParameters(round=1, size=size),), on(2))
    wire = encode([Parameters(party="a", round=1, values=np.zeros(0), rows=3), bomb(10**7)])
    assert len(wire) < 50_000
    peak()
    replies, _ = receive(
        {"a": Request(asked, b"")},
        {"a": decode_reply("a", wire, 0.0)},
        agreement=on(2),
        timeout=None,
    )
    failure = replies.missing["a"]
    assert failure.kind == "refused" and what in failure.reason
    assert peak() < 1_000_000


def test_a_request_of_few_bytes_does_not_fill_a_party(peak: Any) -> None:
    party = patients()
    party.join(on(2))
    request = CompressedRequest(codec=SMALL.settings, arrays=bomb(10**7))
    wire = encode([AdoptParameters(round=1, values=np.zeros(0)), request])
    peak()
    failure = answer(party, read_request(wire, GROUPS))
    assert isinstance(failure, Failure) and "become arrays of 80,000,000 bytes" in failure.reason
    assert peak() < 1_000_000


def test_a_request_has_few_headers() -> None:
    header = CompressedRequest(codec={})
    task = AdoptParameters(round=1, values=np.zeros(1))
    assert len(read_request(encode([task, *[header] * 8]), GROUPS).headers) == 8
    with pytest.raises(KnowledgeRefused, match="9 headers"):
        read_request(encode([task, *[header] * 9]), GROUPS)


def test_arrays_that_would_not_fit_are_refused_at_either_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes that are as many as their numbers need, where there is no memory for these."""
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**7)
    values = np.random.default_rng(0).normal(size=9_000_000)
    task = AdoptParameters(round=1, values=values)
    tasks, header = Compression(quantized(8)).send((task,), on(2))
    with pytest.raises(KnowledgeRefused, match=r"its arrays would take 0\.1 GB of memory"):
        header.open(tasks, on(2))


@pytest.mark.parametrize("bits", [1, 8])
def test_quantised_numbers_take_no_more_than_themselves(peak: Any, bits: int) -> None:
    content = encode_numbers(quantized(bits), np.zeros(4_000_000))
    peak()
    decode_numbers(quantized(bits), content, 4_000_000, np.dtype(float))
    assert peak() < 1.5 * (8 * 4_000_000 + len(content))


def test_public_rows_hide_from_no_limit_by_compression(tmp_path: Path) -> None:
    """The limit looks at arrays, and these would be elsewhere."""
    party = patients()
    party.hold_public(None)
    with PartySite(lambda: party, tmp_path, limits=Limits(public_bytes=100)) as site:
        sent = TakePublic.of(PUBLIC)
        hidden = sent_through([Compression(zstd())], (sent,), on(2))
        (failure,) = decode(site.answer(write_request(hidden)))
    assert "asked for alone" in failure.reason
