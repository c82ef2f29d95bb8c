"""Public rows from the coordinator: sent once, kept whole, known by their digest, or refused."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from consilience import Federation, Party, PrivateTable, avg, ensemble_distillation
from consilience.core.checks import classifiers
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.federation import federation_over
from consilience.core.messages.columns import Column, Schema
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import LocalNetwork
from consilience.core.party.rules import Keys, PartyRules
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Join, Restore, TakePublic
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.sites.party import AUDIT, EVERYTHING, Limits, PartySite, kept_public, read_log
from consilience.sites.party.public_rows import FOLDER, SETS
from helpers.party_rules import set_public_rules
from helpers.party_sites import SiteNetwork, agreement, ask, one_party, without_rows
from helpers.stub_models import Share

ROWS = classifiers()[1]
SEVERAL = Limits(public_sets=9)
"""The rows of the federation: 20 of two columns."""

SENT = TakePublic.of(ROWS)
OTHERS = Public(ROWS.X[1:])
NAME = without_rows().name
THIRD = Public(ROWS.X[2:])


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with PartySite(without_rows, tmp_path, limits=EVERYTHING) as made:
        yield made


def done(site: PartySite, *tasks: Any, **carried: Any) -> None:
    """All of them must be."""
    replies = decode(site.answer(encode(tasks), **carried))
    assert all(isinstance(reply, Receipt) for reply in replies), replies


def statuses(home: Path) -> list[tuple[str, str]]:
    return [(entry["tasks"], entry["status"]) for entry in read_log(home / AUDIT).entries]


# --- sent, kept, known ------------------------------------------------------------------------------


def test_what_was_sent_is_known_by_its_digest_and_gives_the_same_bits(tmp_path: Path) -> None:
    """Every request in a process of its own, as over Flower."""
    home = tmp_path / "sent"

    def answer(*tasks: Any) -> Any:
        with PartySite(without_rows, home) as site:
            return ask(site, *tasks)

    said = answer(Describe())
    assert (said.public, said.takes_public) == ((), 1 << 30)
    assert "does not hold the public rows agreed on" in answer(Join(agreement=agreement())).reason
    assert isinstance(answer(SENT), Receipt)
    assert answer(Describe()).public == (ROWS.key,)
    assert isinstance(answer(Join(agreement=agreement())), Receipt)
    found = answer(FitPrivate(round=1), PredictPublic(round=1))[1]
    with PartySite(one_party, tmp_path / "own") as site:
        said = ask(site, Describe())
        assert (said.public, said.takes_public) == ((ROWS.key,), 0)
        done(site, Join(agreement=agreement()))
        expected = ask(site, FitPrivate(round=1), PredictPublic(round=1))[1]
    np.testing.assert_array_equal(found.values, expected.values)


def test_what_comes_again_is_not_written_again(site: PartySite) -> None:
    home = site._state.home
    done(site, SENT)
    (file,) = (home / FOLDER).iterdir()
    before = file.stat()
    done(site, SENT)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert statuses(home) == [("TakePublic", "ok"), ("TakePublic", "repeated")]
    last = read_log(home / AUDIT).entries[-1]
    assert last["detail"] == f"20 public rows came from the coordinator, digest {ROWS.key}"


def test_a_later_federation_with_the_same_rows_is_not_sent_them(tmp_path: Path) -> None:
    with PartySite(without_rows, tmp_path) as site:
        done(site, SENT, federation="heart")
        done(site, Join(agreement=agreement()), federation="heart")
    with PartySite(without_rows, tmp_path) as site:
        assert ask(site, Describe(), federation="lung").public == (ROWS.key,)
        done(site, Join(agreement=agreement(seed=1)), federation="lung")
        done(site, FitPrivate(round=1), federation="lung")


def test_rows_of_another_federation_do_not_replace_those_that_are_in_use(tmp_path: Path) -> None:
    home = tmp_path
    with PartySite(without_rows, home, limits=SEVERAL) as site:
        done(site, SENT)
        done(site, Join(agreement=agreement()))
        expected = ask(site, FitPrivate(round=1), PredictPublic(round=1))[1]
        done(site, Checkpoint(round=1))
        done(site, TakePublic.of(OTHERS))
        np.testing.assert_array_equal(ask(site, PredictPublic(round=2)).values, expected.values)
        done(site, TakePublic.of(THIRD))
        assert set(kept_public(home)) == {ROWS.key, THIRD.key}, "the others were never in use"
    with PartySite(without_rows, home, limits=SEVERAL) as site:
        done(site, Restore(round=1))
        np.testing.assert_array_equal(ask(site, PredictPublic(round=1)).values, expected.values)
        done(site, Join(agreement=replace(agreement(), public=THIRD.key, rows=len(THIRD))))
        assert len(ask(site, FitPrivate(round=1), PredictPublic(round=1))[1].values) == 18
        done(site, TakePublic.of(OTHERS))
        assert set(kept_public(home)) == {OTHERS.key, THIRD.key}


def test_in_a_federation_they_are_sent_once_and_to_whom_lacks_them_alone(tmp_path: Path) -> None:
    """The bytes that went down to that party are those of the request, in the first run and in no other."""

    def over_sites() -> tuple[SiteNetwork, Federation]:
        network = SiteNetwork(classifiers()[0], ROWS, tmp_path)
        network._members["birch"].public = None
        return network, federation_over(network, ROWS, strict=False)

    protocol = ensemble_distillation(aggregate=avg(), rounds=2)
    network, federation = over_sites()
    deliveries = [one for row in federation.run(protocol).deliveries for one in row]
    sent = [
        (one.party, one.status, one.bytes_down) for one in deliveries if one.tasks == "TakePublic"
    ]
    assert sent == [("birch", "ok", len(encode([SENT])))]
    local = LocalNetwork(classifiers()[0], ROWS)
    history = federation_over(local, ROWS, strict=False).run(protocol)
    assert not [one for row in history.deliveries for one in row if one.tasks == "TakePublic"]
    rows = np.concatenate([member.rows.X for member in classifiers()[0]])
    for name, model in history.models.items():
        np.testing.assert_array_equal(
            network.models()[name].predict_proba(rows), model.predict_proba(rows)
        )
    _, federation = over_sites()
    again = federation.run(protocol)
    assert not [one for row in again.deliveries for one in row if one.tasks == "TakePublic"]


def test_without_public_rows_nothing_is_sent(tmp_path: Path) -> None:
    none = Public.none()
    with PartySite(without_rows, tmp_path) as site:
        done(site, Join(agreement=replace(agreement(), public=none.key, rows=0)))
        done(site, FitPrivate(round=1))
        assert kept_public(tmp_path) == ()


def test_texts_come_as_they_were() -> None:
    texts = np.array(["one", "", "zwölf\n", "一"], dtype=object)
    (task,) = decode(encode([TakePublic.of(Public(texts))]))
    assert task.rows().X.tolist() == texts.tolist()
    assert task.nbytes == 3 + 7 + 3 + 4 * 8
    words = make_pipeline(CountVectorizer(), MultinomialNB())
    party = Party("a", words, ["good", "bad"] * 3, ["x", "y"] * 3)
    set_public_rules(party, most_bytes=1_000)
    assert isinstance(task.run(party), Receipt) and party.public.key == task.public
    with pytest.raises(KnowledgeRefused, match="one is text, the other numbers"):
        SENT.run(party)
    with pytest.raises(InvalidInput, match="texts have one a row"):
        Public(np.array([["one", "two"]], dtype=object))


def test_a_digest_pins_the_rows() -> None:
    """Also where one text ends and the next begins, and whatever characters they have."""

    def key(*texts: str) -> str:
        return Public(np.array(texts, dtype=object)).key

    keys = {
        key("a\0b", "c"),
        key("a", "b\0c"),
        key("ab", "c"),
        key("a", "bc"),
        key("a", "bc", ""),
        Public(np.array([1, 2])).key,
        Public(np.array([[1, 2]])).key,
        Public(np.array([1.0, 2.0])).key,
        Public(np.array([2, 1])).key,
    }
    assert len(keys) == 9 and all(re.fullmatch("[0-9a-f]{32}", one) for one in keys)


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "u1", "i8", "?"])
def test_numbers_of_every_kind_keep_their_digest(dtype: str) -> None:
    public = Public(np.arange(12).reshape(2, 2, 3).astype(dtype))
    (task,) = decode(encode([TakePublic.of(public)]))
    assert task.rows().key == public.key
    assert (task.rows().X == public.X).all()


# --- refused ----------------------------------------------------------------------------------------


def names(*columns: str) -> str:
    """The schema of columns of these names."""
    return Schema(tuple(map(Column, columns))).to_json()


def named(*columns: str) -> TakePublic:
    """The rows of the federation, sent as a table."""
    return TakePublic.of(Public(ROWS.X, Schema.from_json(names(*columns))))


def joining(task: TakePublic) -> Join:
    """The federation of these rows."""
    return Join(agreement=replace(agreement(), public=task.public))


def with_names(*columns: str) -> Party:
    """The party, its rows a table."""
    party = without_rows()
    tables = [dict(zip(columns, X.T, strict=True)) for X in (party.rows.X, party.rows.test[0])]
    return Party(
        party.name,
        party.prototype,
        tables[0],
        party.rows.y,
        test=(tables[1], party.rows.test[1]),
        rules=PartyRules(keys=Keys(secret=party.rules.keys.secret)),
    )


def claiming(values: Any, **fields: Any) -> TakePublic:
    """Whatever they are, under a digest that is theirs where they have one."""
    values = np.asarray(values)
    try:
        digest = Public(values).key
    except InvalidInput:
        digest = ROWS.key
    return TakePublic(**{"public": digest, "values": values} | fields)


def texts(values: bytes, *lengths: int, dtype: str = "int64") -> TakePublic:
    return TakePublic(
        public=Public(np.array(["ab"], dtype=object)).key,
        values=np.frombuffer(values, dtype=np.uint8),
        lengths=np.array(lengths, dtype=dtype),
    )


GARBAGE = {
    "another digest": (replace(SENT, public=OTHERS.key), "have the digest"),
    "another row": (replace(SENT, values=np.roll(ROWS.X, 1)), "have the digest"),
    "no digest": (replace(SENT, public="../../" * 100), "have the digest"),
    "NaN": (claiming(np.full((20, 2), np.nan)), "TakePublic.values holds NaN"),
    "infinite": (claiming(np.full((20, 2), -np.inf)), "TakePublic.values holds NaN"),
    "huge numbers": (claiming(np.full((20, 2), 1e300)), "public rows beyond 1e\\+18"),
    "another scale": (claiming(ROWS.X * 1e9), "on another scale"),
    "three columns": (claiming(np.zeros((20, 3))), r"a public row \(3,\)"),
    "pictures": (claiming(np.zeros((20, 2, 2))), r"a public row \(2, 2\)"),
    "no rows": (claiming(np.zeros((0, 2))), "there is no public data"),
    "one number": (claiming(np.float64(1.0)), "there is no public data"),
    "texts": (texts(b"ab", 2), "one is text, the other numbers"),
    "names of too many columns": (replace(SENT, schema=names("a", "b", "c")), "3 names of columns"),
    "no schema": (replace(SENT, schema='[{"name": 7}]'), "no schema of a table"),
    "bits of other gaps": (replace(SENT, gaps=np.zeros(3, np.uint8)), "bits of gaps do not fit"),
}


NO_TEXTS = {
    "lengths that do not fit": (texts(b"ab", 3), "lengths of the texts do not fit"),
    "negative lengths": (texts(b"ab", 3, -1), "lengths of the texts do not fit"),
    "lengths that wrap around": (texts(b"ab", 2**62, 2**62, 2**62, 2**62, 2), "do not fit"),
    "lengths of another type": (texts(b"ab", 2, dtype="int8"), "lengths of the texts do not fit"),
    "no UTF-8": (texts(b"\xff\xff", 2), "the texts are not UTF-8"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_and_nothing_is_written(site: PartySite, what: str) -> None:
    task, reason = GARBAGE[what]
    home = site._state.home
    failure = ask(site, task)
    assert isinstance(failure, Failure) and failure.kind in ("refused", "invalid")
    assert re.search(reason, failure.reason)
    assert not (home / FOLDER).exists()
    assert [status for _, status in statuses(home)] == [failure.kind]
    done(site, SENT)  # it is as well as before


@pytest.mark.parametrize("what", NO_TEXTS)
def test_bytes_that_are_no_texts_are_refused(what: str) -> None:
    task, reason = NO_TEXTS[what]
    with pytest.raises(KnowledgeRefused, match=reason):
        task.rows()


def test_a_refusal_does_not_say_where_private_rows_lie(site: PartySite) -> None:
    failure = ask(site, claiming(ROWS.X * 1e9))
    assert (
        failure.reason == f"party {NAME!r}: more than a fifth of the columns are on another scale"
    )
    assert failure.mend == ""


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    """Two columns that look alike could be taken for one another, and nobody would notice."""
    with PartySite(partial(with_names, "age", "pressure"), tmp_path) as site:
        other = ask(site, named("pressure", "weight"))
        assert "there is no input column 'weight', which the public rows have" in other.reason
        assert "age" not in other.reason + other.mend  # what else it holds is its own
        assert kept_public(tmp_path) == ()
        done(site, sent := named("pressure", "age"))
        done(site, joining(sent))
        assert site.party().rows.schema.names == ("pressure", "age")
        np.testing.assert_array_equal(site.party().rows.X[:, ::-1], without_rows().rows.X)
    with PartySite(partial(with_names, "age", "weight"), tmp_path) as site:
        failure = ask(site, joining(sent))  # the configuration was edited since
        assert "no input column 'pressure'" in failure.reason


def test_rows_in_use_do_not_come_again_with_other_medians(tmp_path: Path) -> None:
    """Their digest is the same, and the party would fill its gaps with other values than before."""
    with PartySite(partial(with_names, "age", "pressure"), tmp_path, limits=SEVERAL) as site:
        done(site, sent := named("age", "pressure"))
        rows = sent.rows()
        assert rows.schema is not None
        age, pressure = rows.schema.columns
        moved = Public(rows.X, Schema((replace(age, median=age.median + 1e9), pressure)))
        assert moved.key == rows.key
        done(site, TakePublic.of(moved))  # not in use yet
        done(site, sent)
        done(site, joining(sent))
        refusal = ask(site, TakePublic.of(moved))
        assert "in use with other columns" in refusal.reason
        done(site, sent)
        assert site.party().rows.schema.columns[0].median == age.median


def test_a_party_that_lacks_a_column_answers_through_the_others(tmp_path: Path) -> None:
    def lacking() -> Party:
        whole = with_names("age", "pressure")
        assert whole.rows.table is not None and whole.rows.table.tests is not None
        own, test = (
            table.only(["age"]) for table in (whole.rows.table.private, whole.rows.table.tests)
        )
        return Party(
            NAME,
            whole.prototype,
            PrivateTable(own, missing="allowed"),
            whole.rows.y,
            test=(test, whole.rows.test[1]),
        )

    with PartySite(lacking, tmp_path) as site:
        done(site, sent := named("age", "pressure"))
        done(site, joining(sent))
        answered = ask(site, FitPrivate(round=1), PredictPublic(round=1))[1]
        assert answered.values.shape == (20, 3) and site.party().rows.X.shape[1:] == (1,)
    with PartySite(lacking, tmp_path) as site:  # another process goes on with its state
        said = ask(site, PredictPublic(round=2))
        np.testing.assert_array_equal(said.values, answered.values)


def test_a_file_of_its_own_is_an_explicit_choice(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        for task in (SENT, TakePublic.of(OTHERS)):
            failure = ask(site, task)
            assert failure.kind == "invalid"
            assert "it has public rows of its own, and takes no others" in failure.reason
        assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (
            Limits(public_bytes=SENT.nbytes - 1),
            "limits.public_bytes: the public rows take 320 bytes",
        ),
        (Limits(public_bytes=0), "limits.public_bytes: it takes no public rows from a coordinator"),
        (Limits(allow=("Describe", "Join")), "limits.allow: it does not let 'TakePublic' be asked"),
        (Limits(federation="heart"), "limits.federation: it takes part in 'heart' alone"),
    ],
)
def test_beyond_the_limits(tmp_path: Path, limits: Limits, reason: str) -> None:
    with PartySite(without_rows, tmp_path, limits=limits) as site:
        failure = ask(site, SENT)
        assert failure.kind == "refused" and reason in failure.reason
        assert not (tmp_path / FOLDER).exists()
        said = ask(site, Describe(), federation="heart")
        takes = "heart" in reason or "320" in reason
        assert said.takes_public == limits.max_public_bytes and (said.takes_public > 0) is takes
        joined = ask(site, Join(agreement=agreement()), federation="heart")
        assert ("does not hold the public rows agreed on" in joined.reason) is takes
        assert ("it holds no public rows, and none may be sent" in joined.reason) is not takes


def test_within_the_limits(tmp_path: Path) -> None:
    with PartySite(without_rows, tmp_path, limits=Limits(public_bytes=SENT.nbytes)) as site:
        done(site, SENT)


def test_it_is_asked_for_alone(site: PartySite) -> None:
    failure = ask(site, SENT, Join(agreement=agreement()))
    assert "asked for alone" in failure.reason and not (site._state.home / FOLDER).exists()


PLACES = [
    "nothing",
    "a number",
    "the type",
    "a row less",
    "a column less",
    "names",
    "digest",
    "lengths",
]


@st.composite
def perturbed(draw: st.DrawFn) -> TakePublic:
    """Rows as they could be meant, but for one place."""
    place = draw(st.sampled_from(PLACES))
    values, fields = np.array(ROWS.X[: draw(st.integers(2, 20))]), {}
    if place == "a number":
        row, column = draw(st.integers(0, len(values) - 1)), draw(st.integers(0, 1))
        values[row, column] = draw(st.floats(width=64))
    elif place == "the type":
        kinds = ["float32", "float16", "int8", "bool", "uint8", "int64", ">f8"]
        values = values.astype(draw(st.sampled_from(kinds)))
    elif place == "a row less":
        values = values[draw(st.integers(1, 20)) :]
    elif place == "a column less":
        values = values[:, : draw(st.integers(0, 1))]
    elif place == "names":
        texts = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3, unique=True)
        fields["schema"] = draw(texts.map(lambda columns: names(*columns)) | st.text(max_size=9))
    elif place == "digest":
        fields["public"] = draw(st.text(max_size=40))
    elif place == "lengths":
        fields["lengths"] = draw(arrays_of.arrays("int64", st.integers(0, 4)))
    return claiming(values, **fields)


def test_whatever_is_sent_is_kept_whole_or_not_at_all(site: PartySite) -> None:
    home, accepted, refused = site._state.home, set(), 0

    @settings(max_examples=200, deadline=None, database=None)
    @given(perturbed())
    def send(task: TakePublic) -> None:
        nonlocal refused
        before = kept_public(home)
        if isinstance(ask(site, task), Failure):
            refused += 1
            assert kept_public(home) == before
            return
        accepted.add(task.public)
        assert kept_public(home) == (task.public,)
        (file,) = (home / FOLDER).iterdir()
        (kept,) = decode(file.read_bytes())
        assert kept.rows().key == task.public and kept.values.shape[1:] == (2,)
        assert kept.schema == task.schema

    send()
    assert len(accepted) > 5 and refused > 5


# --- counted ----------------------------------------------------------------------------------------


def several(count: int) -> list[TakePublic]:
    """Sets that a party takes."""
    return [TakePublic.of(Public(ROWS.X + 0.001 * number)) for number in range(count)]


def test_a_party_takes_so_many_sets_in_all_its_life(tmp_path: Path) -> None:
    """Over restarts and federations; what it refuses, what comes again and garbage do not count."""
    limits = Limits(public_sets=2)
    one, two, three = several(3)
    off = claiming(ROWS.X * 1e9)
    with PartySite(without_rows, tmp_path, limits=limits) as site:
        done(site, one, federation="heart")
        assert "on another scale" in ask(site, off, federation="heart").reason
        for what in ("another digest", "NaN", "huge numbers", "no rows", "texts"):
            assert isinstance(ask(site, GARBAGE[what][0]), Failure)
    with PartySite(without_rows, tmp_path, limits=limits) as site:
        done(site, two, federation="lung")
        for _ in range(3):
            failure = ask(site, three, federation="liver")
            assert failure.kind == "refused"
            assert "limits.public_sets: it has taken 2 sets" in failure.reason
        done(site, one)
        done(site, two)
        assert "on another scale" in ask(site, off).reason
    with PartySite(without_rows, tmp_path, limits=Limits(public_sets=3)) as site:
        done(site, three)


def test_copies_and_crowds_are_refused_and_count(tmp_path: Path) -> None:
    """Once for each set, with one sentence for all of them; a file of its own was looked at by somebody."""
    rng, row = np.random.default_rng(0), without_rows().rows.X[0]
    copies = np.repeat(ROWS.X[:5] + 0.1, 4, axis=0)
    ball = row + 0.01 * rng.normal(size=(20, 2)) + np.where(np.arange(20) < 2, 1.5, 0)[:, None]
    with PartySite(without_rows, tmp_path, limits=Limits()) as site:
        for public in (copies, ball, copies):
            failure = ask(site, claiming(public))
            assert failure.kind == "invalid" and failure.mend == ""
            assert failure.reason.endswith(
                "most public rows are copies of one another, or lie around one point"
            )
        assert kept_public(tmp_path) == ()
        for number in range(8):
            ask(site, claiming(ROWS.X * 10.0 ** (6 + number)))
        assert "has refused 10 sets" in ask(site, claiming(ROWS.X * 1e15)).reason

    def with_file() -> Party:
        party = without_rows()
        party.hold_public(Public(copies))
        return party

    with PartySite(with_file, tmp_path / "file") as site:
        joins = Join(agreement=replace(agreement(), public=Public(copies).key))
        assert isinstance(ask(site, joins), Receipt)


def test_a_changed_limit_on_shared_rows_has_a_set_looked_at_again(tmp_path: Path) -> None:
    """The refusal names the limit as its mend: once it is changed, the old answer does not hold."""

    def sharing() -> Party:
        party = without_rows()
        X = np.concatenate([ROWS.X, party.rows.X[: len(ROWS.X)]])
        return Party(NAME, Share(), X, ["x", "y"] * len(ROWS.X))

    for limits, accepted in ((Limits(), False), (Limits(), False), (Limits(overlap=True), True)):
        with PartySite(sharing, tmp_path, limits=limits) as site:
            (reply,) = decode(site.answer(encode([SENT])))
            assert isinstance(reply, Receipt) is accepted, reply


def test_what_comes_again_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its table has more rows by then: the difference of two answers would tell of them."""
    off = claiming(ROWS.X * 1e9)
    with PartySite(without_rows, tmp_path) as site:
        done(site, SENT)
        refused = ask(site, off)

    def looked(*_: Any) -> None:
        raise AssertionError("it was looked at again")

    monkeypatch.setattr(Party, "check_public", looked)
    with PartySite(without_rows, tmp_path) as site:
        assert encode([ask(site, off)]) == encode([refused])
        (tmp_path / FOLDER / f"{ROWS.key}.safetensors").unlink()
        done(site, SENT)
        assert kept_public(tmp_path) == (ROWS.key,)


def test_two_sets_do_not_show_by_their_difference_which_record_is_private(tmp_path: Path) -> None:
    """A record among the public rows is not trained on: one model with it and one without would tell."""
    target = without_rows().rows.X[:1]
    with PartySite(without_rows, tmp_path) as site:
        done(site, SENT)
        failure = ask(site, TakePublic.of(Public(np.concatenate([ROWS.X, target]))))
    assert failure.kind == "refused" and "limits.public_sets" in failure.reason


def test_a_set_is_put_down_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between costs one of the sets, and not the count of them."""

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    for task in several(2):
        with (
            monkeypatch.context() as patched,
            PartySite(without_rows, tmp_path, limits=Limits(public_sets=2)) as site,
        ):
            patched.setattr(Party, "check_public", crash)
            with pytest.raises(KeyboardInterrupt):
                ask(site, task)
    with PartySite(without_rows, tmp_path, limits=Limits(public_sets=2)) as site:
        assert "limits.public_sets" in ask(site, several(3)[2]).reason
        done(site, several(2)[1])  # its answer never left


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}'])
def test_without_its_record_a_party_looks_at_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / SETS).write_text(content)
    with PartySite(without_rows, tmp_path) as site:
        failure = ask(site, SENT)
    assert failure.kind == "failed" and "the record of the public rows" in failure.reason
    assert not (tmp_path / FOLDER).exists()


# --- on the disk ------------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the disk fail when it is forced to hold something for the given time, counted from 0."""
    flush = os.fsync

    def at(step: int, error: OSError) -> list[int]:
        forced: list[int] = []

        def failing(handle: int) -> None:
            if len(forced) <= step:  # what comes after it is the audit log's
                forced.append(handle)
                if len(forced) == step + 1:
                    raise error
            flush(handle)

        monkeypatch.setattr(os, "fsync", failing)
        return forced

    return at


RECORD = 4
"""Times that the record is forced to the disk: its file and its name, before and after the look."""


@pytest.mark.parametrize("step", range(RECORD + 3))
def test_a_disk_that_is_full_at_any_step_leaves_nothing(
    site: PartySite, full: Any, step: int
) -> None:
    """The record; then the folder, the file, its name: each may fail to be forced to the disk."""
    home = site._state.home
    forced = full(step, OSError(28, "No space left on device"))
    failure = ask(site, SENT)
    assert "cannot be written (No space left on device)" in failure.reason
    assert len(forced) == step + 1
    assert kept_public(home) == () and not list(home.glob(f"{FOLDER}/*"))
    assert ask(site, Describe()).public == ()
    assert ask(site, Join(agreement=agreement())).code == "lacks-public"  # nor are they in memory
    done(site, SENT)
    assert ask(site, Describe()).public == (ROWS.key,)
    done(site, Join(agreement=agreement()))
    done(site, FitPrivate(round=1))


def damage(home: Path) -> None:
    (file,) = (home / FOLDER).iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("lost", [damage, lambda home: shutil.rmtree(home / FOLDER)])
def test_rows_that_are_damaged_or_gone_are_sent_again(tmp_path: Path, lost: Any) -> None:
    with PartySite(without_rows, tmp_path) as site:
        done(site, SENT)
        done(site, Join(agreement=agreement()))
        done(site, FitPrivate(round=1))
        expected = ask(site, PredictPublic(round=1))
        lost(tmp_path)
    with PartySite(without_rows, tmp_path) as site:
        for task in (PredictPublic(round=2), Join(agreement=agreement())):
            assert ask(site, task).code == "lacks-public"
        assert ask(site, Describe()).public == ()
        done(site, SENT)
        np.testing.assert_array_equal(
            ask(site, PredictPublic(round=2)).values, expected.values
        )  # it goes on from its last answer


def test_the_same_rows_under_other_names_are_others(tmp_path: Path) -> None:
    """A coordinator that mended its header, and a party that holds an exchanged one."""
    wrong, right = named("age", "weight"), named("age", "pressure")
    assert len({wrong.public, right.public, named("pressure", "age").public, SENT.public}) == 4
    with PartySite(without_rows, tmp_path, limits=SEVERAL) as site:
        done(site, wrong)
    with PartySite(partial(with_names, "age", "pressure"), tmp_path, limits=SEVERAL) as site:
        assert "no input column 'weight'" in ask(site, joining(wrong)).reason
        done(site, right)
        assert "does not hold the public rows agreed on" in ask(site, joining(wrong)).reason
        done(site, joining(right))
    assert kept_public(tmp_path) == (right.public,)


def test_no_more_than_two_sets_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    replaced = os.replace

    def counting(part: Path, path: Path) -> None:
        replaced(part, path)
        seen.append(len(list((tmp_path / FOLDER).glob("*"))))

    monkeypatch.setattr("os.replace", counting)
    with PartySite(without_rows, tmp_path, limits=SEVERAL) as site:
        done(site, SENT)
        done(site, Join(agreement=agreement()))
        for task in several(4)[1:]:
            done(site, task)
    assert max(seen) == 2
