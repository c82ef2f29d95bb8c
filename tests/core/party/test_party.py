"""The private side: what is checked, what is held out, what is kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import Federation, Party, as_learner
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.forming import negotiate
from consilience.core.messages.schema import Public
from consilience.core.numerics.outcomes import Classes
from consilience.core.party.rules import Keys, PartyRules, PublicRules
from consilience.core.party.trainer import Teaching
from consilience.core.tasks.lifecycle import Describe
from consilience.models import KernelRidge
from helpers.stub_models import Share

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.arange(20) % 2


def joined(model=None, X=X, y=Y, public=None, **more) -> Party:
    party = Party("a", Share() if model is None else model, X, y, **more)
    party.hold_public(Public(X if public is None else public))
    party.join(negotiate([Describe().run(party)], party.public))
    return party


@pytest.mark.parametrize(
    ("X", "y", "more", "why"),
    [
        (X[:0], [], {}, "private data: there are no rows"),
        (np.array(1.0), [1], {}, "there are no rows"),
        (X, Y[:-1], {}, "20 rows of inputs and 19 of targets"),
        (np.where(X > 1, np.inf, X), Y, {}, "NaN or infinite"),
        (csr_matrix(X), Y, {}, r"a sparse matrix\n.*X.toarray\(\)"),
        ((X, Y), Y, {}, r"no rows of one shape.*\n.*labels are not among them"),
        (X.astype(str), Y, {}, r"strings has shape \(20, 2\)"),
        (X, [0, "a"] * 10, {}, "mixed type"),
        (X, np.linspace(0, 1, 20), {}, "continuous"),
        (X, Y, {"calibration": 1.0}, "calibration is 1.0"),
        (X, Y, {"calibration": -0.1}, "calibration is -0.1"),
        (X, Y, {"test": (X[:, :1], Y)}, r"private row has shape \(2,\), a test row \(1,\)"),
        (X, Y, {"test": (X[:0], Y[:0])}, "test data: there are no rows"),
        (X, Y, {"test": (X * np.inf, Y)}, "test data: 20 of 20 rows"),
        (X, Y, {"outcome": Classes(aliases={7: "seven"})}, "an alias is for '7'"),
    ],
)
def test_data_that_cannot_be_used(X, y, more, why):
    with np.errstate(invalid="ignore"), pytest.raises(InvalidInput, match=why):
        Party("a", GaussianNB(), X, y, **more)


@pytest.mark.parametrize(
    "more",
    [
        {"rules": {"sends_rows": True}},
        {"rules": PublicRules()},
        {"outcome": "regression"},
        {"outcome": ["no", "yes"]},
    ],
)
def test_what_is_of_another_type_is_named(more):
    with pytest.raises(InvalidInput, match=f"{next(iter(more))} is "):
        Party("a", GaussianNB(), X, Y, **more)


@pytest.mark.parametrize("name", ["", None, ["a"], 3])
def test_a_name_is_a_text(name):
    with pytest.raises(InvalidInput, match="a name is a text"):
        Party(name, GaussianNB(), X, Y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PartyRules(trusts="sklearn"),
        lambda: PartyRules(redact_errors="no"),
        lambda: PartyRules(least_alpha=2.0),
        lambda: PartyRules(keys=PublicRules()),
        lambda: PublicRules(most_bytes=-5),
        lambda: PublicRules(overlap=1),
        lambda: Keys(secret="abc"),
        lambda: Keys(roster=["b"]),
        lambda: Keys(roster={"b": "hello"}),
        lambda: Classes("ill"),
        lambda: Classes(["a", "a"]),
        lambda: Classes(aliases=[("a", "b")]),
    ],
)
def test_rules_and_classes_are_checked_when_they_are_made(make):
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize("y", [["low"] * 20, np.full(20, np.nan), [None] * 20])
def test_targets_that_are_no_numbers(y):
    with pytest.raises(InvalidInput, match="targets"):
        Party("a", LinearRegression(), X, y)


def test_tables_are_taken_as_they_are():
    party = Party("a", GaussianNB(), pd.DataFrame(X, columns=["u", "v"]), pd.Series(Y))
    np.testing.assert_array_equal(party.rows.X, X)
    assert party.rows.classes == ("0", "1")


def test_a_name_is_text():
    assert type(Party(np.str_("a"), GaussianNB(), X, Y).name) is str


def test_aliases_reach_test_labels_of_any_spelling():
    party = Party(
        "a",
        GaussianNB(),
        X,
        Y,
        test=(X, Y.astype(float)),
        outcome=Classes(aliases={0: "no", "1": "yes"}),
    )
    assert party.rows.classes == ("no", "yes")
    assert set(party.rows.test[1].tolist()) == {"no", "yes"}


@pytest.mark.parametrize(
    ("share", "counts", "held"),
    [
        (0.2, (10, 10), (2, 2)),
        (0.2, (7, 3), (1, 1)),
        (0.2, (18, 2), (4, 0)),
        (0.9, (18, 1), (16, 0)),
        (0.0, (10, 10), (0, 0)),
    ],
)
def test_calibration_rows_by_class(share, counts, held):
    """The rounded share of each class; the last row of a class is never taken from training."""
    y = np.repeat(["x", "y"], counts)
    party = joined(X=np.arange(len(y), dtype=float)[:, None], y=y, calibration=share)
    assert party.trainer.rows.held_out[1].sum(axis=0).tolist() == list(held)
    rows = np.concatenate([party.trainer.rows.train[0], party.trainer.rows.held_out[0]])
    assert sorted(rows[:, 0].tolist()) == list(range(len(y)))
    assert party.trainer.rows.train_rows == len(y) - sum(held)


def test_training_never_sees_calibration_rows():
    party = joined(calibration=0.5)
    party.trainer.fit_private(1)
    seen = {tuple(row) for _, rows, *_ in party.trainer.learner.fits for row in rows}
    assert not seen & {tuple(row) for row in party.trainer.rows.held_out[0]}


def test_a_model_is_copied_never_changed():
    model = GaussianNB()
    party = joined(model)
    party.trainer.fit_private(1)
    assert not hasattr(model, "classes_")
    first = party.trainer.learner
    party.join(party.agreement)
    assert not party.trainer.learner.fitted and first.fitted


def test_a_model_that_scales_in_place_cannot():
    """scikit-learn copies what it may not write to; without that every call would scale once more."""
    party = fitted(joined(make_pipeline(StandardScaler(copy=False), LogisticRegression())))
    first = party.trainer.outputs("probabilities").copy()
    party.trainer.model_changed()
    np.testing.assert_array_equal(party.trainer.outputs("probabilities"), first)
    np.testing.assert_array_equal(party.public.X, X)


def test_public_data_are_the_agreed_ones():
    party = joined()
    party.hold_public(Public(X[::-1]))
    with pytest.raises(InvalidInput, match="not the ones agreed on"):
        party.join(party.agreement)


def test_evaluation_by_hand():
    """Always (3/4, 1/4): of four test rows, three of the first class, 3/4 are right.

    Log-loss: -(3 ln 3/4 + ln 1/4) / 4 = 0.562335. All rows score alike, so AUC is 1/2. One class is always
    right, the other never. 3/4 are right of rows that are taken for right with probability 3/4. All rows are
    of own classes.
    """
    party = joined(y=[0, 0, 0, 1] * 5, test=(X[:4], [0, 0, 0, 1]), calibration=0)
    party.trainer.fit_private(1)
    rows, values = party.evaluate()
    assert rows == 4
    expected = {
        "accuracy": 0.75,
        "log_loss": 0.562335,
        "balanced_accuracy": 0.5,
        "ece": 0.0,
        "brier": 0.1875,
        "auc": 0.5,
        "average_precision": 0.5,
    }
    expected |= {f"{name}_own": value for name, value in expected.items()}
    assert values == pytest.approx(expected, abs=1e-6)


def test_evaluation_of_values_by_hand():
    """Always 1.5: errors 2.25, 0.25, 0.25, 2.25 against a variance of 1.25, so R² is 0."""
    party = joined(
        Share("regression"), y=np.arange(20) % 4, test=(X[:4], [0, 1, 2, 3]), calibration=0
    )
    party.trainer.fit_private(1)
    assert party.evaluate() == (4, {"mse": 1.25, "mse_own": 1.25, "r2": 0.0, "r2_own": 0.0})


def test_own_rows_are_weighted():
    """Rows are of classes 0, 0, 0, 1; the first is its own, and the last half so: right is 1 of 1.5."""
    party = joined(y=[0, 0, 0, 1] * 5, test=(X[:4], [0, 0, 0, 1], [1, 0, 0, 0.5]), calibration=0)
    party.trainer.fit_private(1)
    _, values = party.evaluate()
    assert values["accuracy"] == 0.75 and values["accuracy_own"] == pytest.approx(2 / 3)


def test_own_rows_are_by_default_those_of_its_classes():
    assert Party("a", Share(), X, Y, test=(X[:3], [1, 2, 0])).rows.own.tolist() == [1, 0, 1]
    assert Party("a", Share("regression"), X, X[:, 0], test=(X[:2], [1, 2])).rows.own.tolist() == [
        1,
        1,
    ]


@pytest.mark.parametrize("own", [[1, 0], [1, 0, -1], [1, 0, np.nan], [[1], [0], [1]], ["x"] * 3])
def test_own_rows_have_one_weight_each(own):
    with pytest.raises(InvalidInput, match="one finite number, 0 or more, for each of the 3 test"):
        Party("a", Share(), X, Y, test=(X[:3], [0, 1, 0], own))


def test_test_labels_nobody_knows():
    with pytest.raises(InvalidInput, match=r"classes that were not agreed on: \['2'\]"):
        joined(test=(X, np.arange(20) % 3))


def fitted(party: Party) -> Party:
    party.trainer.fit_private(1)
    return party


def test_state_is_kept_whole(tmp_path):
    party = fitted(joined(RandomForestClassifier(3)))
    party.keep_states_in(tmp_path)
    before = party.trainer.outputs("probabilities").copy()
    party.save("round-00001", keep="round-00001")
    party.save(
        "round-00001", keep="round-00001"
    )  # again, as after a crash between writing and noting it
    other = joined(RandomForestClassifier(3))
    other.keep_states_in(tmp_path)
    other.restore("round-00001")
    np.testing.assert_array_equal(other.trainer.outputs("probabilities"), before)


def test_keeping_deletes_states_and_nothing_else(tmp_path):
    party = fitted(joined())
    party.keep_states_in(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "letters").mkdir()
    for label in ("one", "two", "three"):
        party.save(label, keep="one")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "letters",
        "notes.txt",
        "one",
        "three",
    ]


def test_a_state_that_cannot_be_written_says_where(tmp_path):
    party = fitted(joined())
    (tmp_path / "file").write_text("")
    party.keep_states_in(tmp_path / "file")
    with pytest.raises(RunFailed, match="cannot be written") as error:
        party.save("x", keep="x")
    assert "then resume the run" in error.value.mend


def test_a_model_answers_in_class_names():
    model = fitted(
        joined(GaussianNB(), X=np.repeat([[-1.0], [1.0]], 10, axis=0), y=["no"] * 10 + ["yes"] * 10)
    ).trainer.model()
    assert model.classes == ("no", "yes")
    assert model.predict([[-1.0], [1.0]]).tolist() == ["no", "yes"]
    assert model.predict_proba([[-1.0]]).shape == (1, 2)


def test_a_regression_model_has_no_probabilities():
    model = fitted(joined(LinearRegression(), y=X[:, 0])).trainer.model()
    np.testing.assert_allclose(model.predict(X)[:, 0], X[:, 0], atol=1e-9)
    with pytest.raises(InvalidInput, match="no class probabilities"):
        model.predict_proba(X)


def test_a_party_that_could_not_be_trained_has_a_state_too(tmp_path):
    """A checkpoint of the federation must not fail on it; a model file that is lost must."""
    party = Party("a", GaussianNB(), np.arange(6.0)[:, None], list("xxxyyy"))
    public = Public(np.arange(3.0)[:, None])
    party.hold_public(public)
    party.keep_states_in(tmp_path)
    party.join(negotiate([Describe().run(party)], public))
    party.save("before", keep="before")
    party.restore("before")
    assert not party.trainer.learner.fitted
    party.trainer.fit_private(1)
    party.save("after", keep="after")
    (tmp_path / "after" / "model.skops").unlink()
    with pytest.raises(RunFailed, match="no such model file"):
        party.restore("after")


class Means:
    """A model of the user's own: neither a classifier nor a regressor by what it says."""

    def fit(self, X, y):
        self.answer = y[0]
        return self

    def predict(self, X):
        return np.repeat(self.answer, len(X))


def test_labels_say_what_a_model_does_not():
    rows = np.arange(4.0)[:, None]
    assert Party("a", Means(), rows, list("xyxy")).rows.kind == "classification"
    assert Party("a", Means(), rows, [1, 0, 1, 0]).rows.kind == "classification"
    assert Party("a", Means(), rows, [1.5, 0.0, 1.0, 0.5]).rows.kind == "regression"
    assert (
        Party("a", as_learner(Means(), kind="regression"), rows, [1, 0, 1, 0]).rows.kind
        == "regression"
    )


def test_test_data_are_a_pair():
    with pytest.raises(InvalidInput, match="test is not a pair"):
        Party("a", GaussianNB(), np.arange(4.0)[:, None], list("xyxy"), test=np.arange(4.0))


def test_test_rows_have_the_private_rows_targets():
    """Else errors would be broadcast over columns."""
    for own, tested in ((1, 2), (2, 1)):
        with pytest.raises(
            InvalidInput, match=f"private rows have {own} targets, test rows {tested}"
        ):
            Party("a", Ridge(), X, np.ones((len(X), own)), test=(X, np.ones((len(X), tested))))


def test_a_model_that_chooses_by_calibration_rows_needs_some():
    party = Party("a", KernelRidge("calibration"), X, X[:, 0], calibration=0)
    with pytest.raises(InvalidInput, match="chooses by calibration rows, and there are none"):
        Federation([party], X[:3]).form()


def test_rows_that_are_taught():
    """Only these are trained on: by a model that goes on, and by one that refits on private rows too."""
    teacher = np.tile([0.5, 0.5], (20, 1))
    taught = np.arange(20) < 3
    for incremental, rows in ((True, 3), (False, 23)):
        party = fitted(joined(Share(incremental=incremental), calibration=0))
        assert party.trainer.distill(Teaching(1, teacher, 0.5, taught)) == ()
        _, inputs, _, weights = party.trainer.learner.fits[-1]
        np.testing.assert_array_equal(inputs[-3:], X[:3])
        assert len(inputs) == rows
    np.testing.assert_allclose([weights[:20].sum(), weights[20:].sum()], 23 / 2)


def test_where_no_row_is_taught_the_model_stays():
    party = fitted(joined(calibration=0))
    (note,) = party.trainer.distill(
        Teaching(1, np.tile([0.5, 0.5], (20, 1)), 0.5, np.zeros(20, dtype=bool))
    )
    assert "stays as it is" in note and len(party.trainer.learner.fits) == 1


@pytest.mark.parametrize("taught", [np.ones(19, dtype=bool), np.ones(20), np.ones((20, 1), bool)])
def test_rows_that_are_taught_are_named_one_by_one(taught):
    with pytest.raises(InvalidInput, match="rows that are taught have shape"):
        fitted(joined()).trainer.distill(Teaching(1, np.tile([0.5, 0.5], (20, 1)), 0.5, taught))


# --- what a site has it keep to ---------------------------------------------------------------------

PEOPLE = RNG.normal(size=(60, 5))
ILL = RNG.choice(["no", "yes"], size=60)
OTHERS = RNG.normal(size=(40, 5))


def cautious(X, y, public, **more) -> Party:
    """One that leaves out own rows that are public rows too."""
    rules = PartyRules(public=PublicRules(overlap=False))
    party = Party("a", RandomForestClassifier(5), X, y, rules=rules, **more)
    party.hold_public(Public(public))
    party.join(negotiate([Describe().run(party)], party.public))
    return party


@pytest.mark.parametrize("moved", [0.0, 0.01])
def test_who_is_asked_about_might_as_well_not_be_there(moved):
    """Bit for bit, with their record among the public rows, or one that nobody could tell from it."""
    public = np.concatenate([OTHERS, PEOPLE[-2:] + moved])
    for teacher in (0, 1):
        said = []
        for rows in (slice(None), slice(-2)):
            party = fitted(cautious(PEOPLE[rows], ILL[rows], public))
            said.append(party.trainer.outputs("probabilities"))
            party.trainer.distill(Teaching(1, np.eye(2)[np.full(len(public), teacher)], 0.5))
            said.append(party.trainer.outputs("probabilities"))
        np.testing.assert_array_equal(said[0], said[2])
        np.testing.assert_array_equal(said[1], said[3])


def test_who_is_asked_about_still_counts_as_a_row():
    """Else their number would say who they are."""
    asked = cautious(PEOPLE, ILL, np.concatenate([OTHERS, PEOPLE[-2:]]))
    assert asked.trainer.rows.train_rows == cautious(PEOPLE, ILL, OTHERS).trainer.rows.train_rows
    assert (asked.trainer.rows.left_out, len(asked.trainer.rows.train[0])) == (
        2,
        asked.trainer.rows.train_rows - 2,
    )


def test_test_rows_that_are_asked_about_are_not_measured_on():
    test = (PEOPLE[:4], ["yes", "yes", "no", "no"])
    party = fitted(cautious(PEOPLE[4:], ILL[4:], np.concatenate([OTHERS, PEOPLE[:1]]), test=test))
    rows, values = party.evaluate()
    assert rows == 4 and values["accuracy"] * 3 == pytest.approx(round(values["accuracy"] * 3))
    only = fitted(cautious(PEOPLE[4:], ILL[4:], np.concatenate([OTHERS, PEOPLE[:4]]), test=test))
    with pytest.raises(InvalidInput, match="all its test rows are among the public rows"):
        only.evaluate()


def test_nobody_can_have_all_others_left_out():
    with pytest.raises(InvalidInput, match="more than 25% of its rows are among the public rows"):
        cautious(PEOPLE, ILL, np.concatenate([OTHERS, PEOPLE[1:]]))


def test_its_own_rows_have_a_least_weight():
    party = fitted(joined(Share(), calibration=0, rules=PartyRules(least_alpha=0.1)))
    teacher = np.tile([0.5, 0.5], (20, 1))
    (note,) = party.trainer.distill(Teaching(1, teacher, 1e-6))
    assert note == "private rows weigh 0.1, its least, and not 1e-06"
    weights = party.trainer.learner.fits[-1][-1]
    np.testing.assert_allclose([weights[:20].sum(), weights[20:].sum()], [4, 36])
    assert party.trainer.distill(Teaching(1, teacher, 0.1)) == ()


def test_targets_of_test_rows_are_found_by_name() -> None:
    X, y = np.arange(8.0)[:, None], pd.DataFrame({"p": np.arange(8.0), "q": np.ones(8)})
    party = Party("a", Ridge(), X, y, test=(X, y[["q", "p"]]))
    assert party.rows.test is not None and np.array_equal(party.rows.test[1], y.to_numpy())
    with pytest.raises(InvalidInput, match=r"test data: its targets are p, r, and those .* p, q"):
        Party("a", Ridge(), X, y, test=(X, y.rename(columns={"q": "r"})))
