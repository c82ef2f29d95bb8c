"""How much of the public data the parties know: the figures by hand, and on data that fit or do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline

from consilience import Federation, LocalNetwork, Party, avg, ensemble_distillation
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.lab.data import load
from consilience.lab.diagnostics.coverage import (
    LITTLE,
    WELL,
    PublicCoverage,
    measure_coverage,
    suitability,
)
from consilience.methods.comparison_rules.scores import Selection
from consilience.methods.comparison_rules.tasks import SelectPublic
from helpers.stub_models import Share

XY = np.array(["x", "y"])


def said(party: str, *known: int, public: str = "p", notes: tuple[str, ...] = ()) -> Selection:
    values = np.array(known, dtype=bool)
    return Selection(party=party, round=0, public=public, values=values, notes=notes)


def judged(
    rows: Callable[[int], Any], public: Any, parties: int = 3, **more: Any
) -> PublicCoverage:
    """Of parties with 200 rows each, ``rows(n)``."""
    made = [Party(f"p{i}", Share(), rows(200), np.resize(XY, 200), **more) for i in range(parties)]
    return suitability(Federation(made, public))


# --- the figures ------------------------------------------------------------------------------------


def test_four_rows_and_two_parties():
    """b knows row 1 alone, a rows 0 and 1: half of the rows, 3 answers of yes over 4 rows."""
    found = PublicCoverage.of([said("b", 0, 1, 0, 0, notes=("few rows",)), said("a", 1, 1, 0, 0)])
    assert found.parties == ("a", "b") and found.shares == {"a": 0.5, "b": 0.25}
    assert (found.share, found.parties_a_row, found.words) == (0.5, 0.75, "known in part")
    assert found.sentence == "Your parties know 50% of the 4 public rows: known in part"
    assert "known to 0.8 of 2 parties on average" in found.meaning and "95%" in found.meaning
    assert found.warnings == found.remarks == ("b: few rows",) and found.advice == ""
    lines = str(found).splitlines()
    assert lines[1:4] == ["  a   50%", "  b   25%", "b: few rows"]
    data = found.as_data()
    assert data["known"] == 0.5 and data["parties"] == {"a": 0.5, "b": 0.25}
    assert data["rows"] == data["rows_looked_at"] == 4 and data["own_rows_known"] == 0.95
    assert data["notes"] == {"b": "few rows"} and data["warnings"] == ["b: few rows"]


@pytest.mark.parametrize(
    ("known", "words"),
    [(3, "little known"), (5, "known in part"), (7, "known in part"), (8, "well known")],
)
def test_words_have_bounds(known, words):
    assert (LITTLE, WELL) == (0.5, 0.8)
    found = PublicCoverage.of([said("a", *[1] * known, *[0] * (10 - known))])
    assert found.words == words
    assert [*map(bool, found.warnings)] == [True] * (words == "little known")
    assert found.sentence.startswith(f"Your party knows {known}0% of the 10 public rows: ")


def test_who_does_not_answer_is_named():
    found = PublicCoverage.of([said("a", 1, 1)], missing={"gone": "late"})
    assert found.warnings == ("gone cannot say which public rows it knows: late",)
    assert found.warnings[0] in str(found).splitlines()


@pytest.mark.parametrize(
    ("selections", "why"),
    [
        ([], "no party answered"),
        ([said("a", 1), said("a", 0)], "party 'a': it answered twice"),
        ([said("a", 1), said("b", 1, 0)], "party 'b': it answered about other public data"),
        ([said("a", 1), said("b", 1, public="q")], "other public data than 'a'"),
        ([said("a")], "yes or no a row"),
        ([Selection(party="a", round=0, public="p", values=np.ones(3))], "float64"),
        ([Selection(party="a", round=0, public="p", values=np.ones((1, 2), bool))], "shape"),
    ],
)
def test_what_is_no_answer(selections, why):
    with pytest.raises(InvalidInput, match=why):
        PublicCoverage.of(selections)


# --- asked of parties -------------------------------------------------------------------------------


def test_95_percent_of_rows_drawn_alike_are_known():
    """One party, threshold set on 200 held-out rows: 2,000 public rows leave 95% ± 4%."""
    rng = np.random.default_rng(0)
    party = Party("a", Share(), rng.normal(size=(1000, 2)), np.resize(XY, 1000))
    found = suitability(Federation([party], rng.normal(size=(2000, 2))))
    assert found.share == pytest.approx(0.95, abs=0.04)


def test_half_of_the_rows_are_foreign():
    rng = np.random.default_rng(0)
    ours, others = rng.normal(size=(100, 2)), rng.normal(6, 1, size=(100, 2))
    known = judged(lambda n: rng.normal(size=(n, 2)), np.concatenate([ours, others])).known
    assert known[:, :100].any(axis=0).mean() > 0.9
    assert known[:, 100:].any(axis=0).mean() < 0.1


def test_texts():
    """Questions of cats and shares for parties that write of them, and recipes."""
    rng = np.random.default_rng(0)
    words = {
        "ours": ["cat", "dog", "share", "price", "fell", "rose"],
        "theirs": ["stir", "bake", "cup", "flour"],
    }

    def texts(of: str, n: int) -> np.ndarray:
        return np.array([" ".join(rng.choice(words[of], 5)) for _ in range(n)])

    def found(public: np.ndarray) -> PublicCoverage:
        model = make_pipeline(CountVectorizer(), MultinomialNB())
        made = [Party(n, model, texts("ours", 100), np.resize(XY, 100)) for n in "ab"]
        return suitability(Federation(made, public))

    assert found(texts("ours", 60)).share > WELL
    mixed = found(np.concatenate([texts("ours", 10), texts("theirs", 50)]))
    assert mixed.share < LITTLE and mixed.warnings


@pytest.mark.parametrize("kind", ["table", "texts", "pictures"])
def test_rows_of_one_table_split_at_random_are_known(kind):
    """To one party alone; half of the texts' words occur once in all of them, as in real collections."""
    rng = np.random.default_rng(0)
    if kind == "table":
        rows = rng.gamma(2, size=(260, 12))
    elif kind == "pictures":
        rows = rng.random((260, 16, 16)).cumsum(axis=1)
    else:
        common, rare = rng.zipf(1.3, (260, 9)) % 60, np.arange(260 * 9).reshape(260, 9)
        rows = np.array([" ".join([*map("w{}".format, c), *map("r{}".format, r)])
                         for c, r in zip(common, rare, strict=True)], dtype=object)  # fmt: skip
    party = Party("a", Share(), rows[:160], np.resize(XY, 160))
    assert suitability(Federation([party], rows[160:])).share > 0.8


def test_values():
    rng = np.random.default_rng(0)
    made = [
        Party(name, LinearRegression(), rng.normal(size=(100, 2)), rng.normal(size=100))
        for name in "ab"
    ]
    assert suitability(Federation(made, rng.normal(size=(100, 2)))).share > WELL


@pytest.mark.needs_data("mnist", "fashion-mnist")
def test_digits_know_digits_and_no_clothes():
    """Ten parties with two digits each: together they know public digits, and hardly any clothes."""
    rng = np.random.default_rng(0)
    mnist, fashion = load("mnist"), load("fashion-mnist")

    def found(public: np.ndarray) -> PublicCoverage:
        made = []
        for i in range(10):
            mine = np.flatnonzero(np.isin(mnist.y, [i, (i + 1) % 10]))
            rows = rng.choice(mine, 200, replace=False)
            made.append(Party(f"p{i}", Share(), mnist.X[rows], mnist.y[rows].astype(str)))
        return suitability(Federation(made, public[:400]))

    digits, clothes = found(mnist.X_test), found(fashion.X_test)
    assert digits.share > 0.9 and digits.words == "well known"
    assert clothes.share < 0.2 and clothes.words == "little known"
    assert max(clothes.shares.values()) < min(digits.shares.values())


def test_the_same_over_the_wire_and_models_stay_as_they_are():
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(3, 60, 2)), rng.normal(size=(50, 2))

    def parties() -> list[Party]:
        return [Party(n, GaussianNB(), x, np.resize(XY, 60)) for n, x in zip("abc", X, strict=True)]

    protocol = ensemble_distillation(aggregate=avg(), rounds=2)
    plain, asked = Federation(parties(), public), Federation(parties(), public)
    before = suitability(asked)
    plain, after = plain.run(protocol), asked.run(protocol)
    for name in "abc":
        expected = plain.models[name].predict_proba(public)
        np.testing.assert_array_equal(after.models[name].predict_proba(public), expected)
    assert not [d for row in after.deliveries for d in row if "SelectPublic" in d.tasks]
    models = {n: m.predict_proba(public) for n, m in asked.network.models().items()}
    np.testing.assert_array_equal(suitability(asked).known, before.known)
    for name, model in asked.network.models().items():
        np.testing.assert_array_equal(model.predict_proba(public), models[name])

    shared = Public(public)
    wire = federation_over(LocalNetwork(parties(), shared, wire=True), shared)
    np.testing.assert_array_equal(suitability(wire).known, before.known)
    (left,) = {d.left for d in wire.network.deliveries if d.tasks == "SelectPublic"}
    assert left == "Selection(50)"


def test_without_calibration_rows_it_says_so():
    rng = np.random.default_rng(0)
    found = judged(
        lambda n: rng.normal(size=(n, 2)), rng.normal(size=(50, 2)), parties=1, calibration=0
    )
    assert "no calibration rows" in found.notes["p0"] and "no calibration rows" in str(found)


# --- what cannot be asked ---------------------------------------------------------------------------


def test_without_public_data():
    rng = np.random.default_rng(0)
    made = [Party(n, GaussianNB(), rng.normal(size=(20, 2)), np.resize(XY, 20)) for n in "ab"]
    with pytest.raises(InvalidInput, match="suitability: there is no public data"):
        suitability(Federation(made))


def test_parties_that_have_not_joined():
    network = LocalNetwork([Party("a", Share(), np.eye(2), XY)], Public(np.eye(2)))
    with pytest.raises(InvalidInput, match="have not joined"):
        measure_coverage(network)


def test_a_party_that_cannot_say(monkeypatch: pytest.MonkeyPatch):
    """One of three is named and left out; where two cannot, nobody speaks for the parties."""
    rng = np.random.default_rng(0)
    whole = SelectPublic.run

    def broken(*names: str) -> Callable[..., Any]:
        def run(task: SelectPublic, party: Party) -> Selection:
            if party.name in names:
                raise RuntimeError("out of memory")
            return whole(task, party)

        return run

    monkeypatch.setattr(SelectPublic, "run", broken("p1"))
    found = judged(lambda n: rng.normal(size=(n, 2)), rng.normal(size=(50, 2)))
    assert found.parties == ("p0", "p2") and "out of memory" in found.missing["p1"]
    assert "p1 cannot say" in found.warnings[-1]
    monkeypatch.setattr(SelectPublic, "run", broken("p0", "p1"))
    with pytest.raises(QuorumLost, match="out of memory"):
        judged(lambda n: rng.normal(size=(n, 2)), rng.normal(size=(50, 2)))
