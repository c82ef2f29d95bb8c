"""The rule that chooses itself, against numbers worked out by hand, and in a federation.

Two parties, two classes. Witnesses: q of the ratios, p of the models weighted by them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

from consilience import Federation, Party, auto, ensemble_distillation, value_density_ratio
from consilience.core.aggregation.auto import Witnesses, _Choice, _evidence, shares_of
from consilience.core.aggregation.density_ratio import DOUBT
from consilience.core.aggregation.guard import Guard, SecretLabels
from consilience.core.messages.schema import Agreement
from consilience.core.messages.scores import CoarseRatios, DensityRatios
from helpers.replies import replies

AGREED = Agreement(kind="classification", classes=("x", "y"), outputs=2, public="", rows=1, seed=0)
A, B = [[0.9, 0.1]], [[0.4, 0.6]]


def form(kind: str, ratios: str):
    return auto().suited_to(replace(AGREED, kind=kind, ratios=ratios))


def test_without_calibration_rows_both_witnesses_count_once():
    """a has 2 rows of x and 1 of y near, b 1 of y: q = (1/2, 1/2), S = (3, 1)/4, so p = (3 · 0.9 + 0.4)/4.

    t ∝ q p = p = 0.775 of x.
    """
    teacher = auto()(replies(A, B, ratios=[[[2, 1]], [[0, 1]]]))
    np.testing.assert_allclose(teacher.values, [[0.775, 0.225]], atol=2 * DOUBT)
    np.testing.assert_allclose(teacher.weights, [[0.75], [0.25]], atol=2 * DOUBT)
    assert teacher.notes == (
        "auto: density ratios, models weighted by ratios, a = 1, b = 1, no calibration rows to choose by",
    )


def test_both_witnesses_by_hand():
    """a has 3 rows of x and 1 of y near, b none: q = (3, 1)/4, p = (9, 1)/10, q p ∝ 27 : 1."""
    teacher = auto()(replies(A, B, ratios=[[[3, 1]], [[0, -1]]]))
    np.testing.assert_allclose(teacher.values, [[27 / 28, 1 / 28]], atol=2 * DOUBT)


def test_where_nobody_knows_anything_it_is_the_mean():
    teacher = auto()(replies(A, B, ratios=[[[0, 0]], [[-1, 0]]]))
    np.testing.assert_allclose(teacher.values, [[0.65, 0.35]])


def test_models_that_are_right_by_calibration_are_sharpened():
    """On ten rows both say 0.7 of the class that all calibration rows have: the largest b there is."""
    said = np.where(np.arange(10)[:, None] % 2 == [0, 1], 0.7, 0.3)
    near = np.full((10, 2), 0.5)
    sums = 50.0 * (said > 0.5)
    teacher = auto()(replies(said, said, ratios=[near, near], sums=[sums, sums]))
    assert "b = 3" in teacher.notes[0] and "chosen by 1,000 calibration rows" in teacher.notes[0]
    sure = 0.7**3 / (0.7**3 + 0.3**3)
    np.testing.assert_allclose(teacher.values.max(axis=1), sure, atol=1e-3)


def test_few_rows_leave_several_teachers_their_share_by_the_root_of_their_likelihood():
    """Choices that say the same are as likely but for their doubt: b = 3 for one row, exp(-4/2/2) to 1."""
    said, near = np.full((2, 1, 2), 0.5), np.full((2, 1, 2), 0.5)
    shares = shares_of(Witnesses(said, near), np.array([[1.0, 0.0]]))
    by_name = {str(one): share for one, share in shares.items()}
    usual, far = (by_name[f"models weighted by ratios, a = 1, b = {b}"] for b in (1, 3))
    assert next(iter(shares.values())) == usual
    assert far / usual == pytest.approx(np.exp(-1))
    assert sum(shares.values()) == pytest.approx(1)


def test_ratios_that_are_right_where_models_are_not():
    """Models say 0.6 of the wrong class, ratios 0.8 of the right one: a is larger than b."""
    right = np.arange(10)[:, None] % 2 == [0, 1]
    said, near, sums = np.where(right, 0.4, 0.6), np.where(right, 0.8, 0.2), 20.0 * right
    teacher = auto()(replies(said, said, ratios=[near, near], sums=[sums, sums]))
    assert (teacher.values[right] > 0.9).all()


def test_a_rule_is_judged_by_rows_that_it_is_not_made_of():
    """Ratios of all rows are right, those of the training rows are wrong: ratios do not count."""
    right = np.arange(10)[:, None] % 2 == [0, 1]
    said, sums = np.where(right, 0.7, 0.3), 20.0 * right
    told = replies(said, said, ratios=[np.where(right, 0.2, 0.8)] * 2, sums=[sums, sums])
    whole = {
        party: tuple(
            replace(one, values=np.where(right, 0.8, 0.2).astype(np.float32))
            if isinstance(one, DensityRatios)
            else one
            for one in answers
        )
        for party, answers in told.answers.items()
    }
    assert "a = 0," in auto()(replace(told, answers=whole)).notes[0]


@given(st.integers(0, 2**32))
def test_a_share_of_labels_of_other_classes_changes_little(seed):
    """Of the labels next to a row a fifth are of any class: the teacher stays as sure as it was, nearly."""
    rng = np.random.default_rng(seed)
    truth = np.arange(200) % 2
    right = truth[:, None] == [0, 1]
    said, near = np.where(right, 0.95, 0.05), np.where(right, 0.9, 0.1)
    mislaid = np.where(rng.random(200) < 0.2, rng.integers(2, size=200), truth)
    labels = 1.0 * (mislaid[:, None] == [0, 1])
    teacher = auto()(replies(said, said, ratios=[near, near], sums=[labels, 0 * labels]))
    assert (teacher.values[right] > 0.9).all()


def test_a_constant_model_gives_its_ratios_and_not_its_answers():
    """It claims both classes where the other party does: with its answers class 1 would lose."""
    rows = np.tile(np.eye(2), (8, 1))
    outputs, ratios = 0.6 * rows + 0.2, 10.0 * rows
    constant = np.tile([1.0, 0.0], (16, 1))
    seen = Witnesses(np.stack([outputs, constant]), np.stack([ratios, 3 * ratios]))
    assert (seen.teacher(_Choice(a=0.0)).argmax(axis=1) == rows.argmax(axis=1)).all()
    one_class = 3 * ratios * [1, 0]
    heard = Witnesses(np.stack([outputs, constant]), np.stack([ratios, one_class]))
    assert heard.teacher(_Choice(a=0.0))[0, 0] > seen.teacher(_Choice(a=0.0))[0, 0]


def test_its_form_follows_what_leaves():
    told = replies(A, B, ratios=[[[2, 1]], [[0, 1]]])
    coarse, alone = form("classification", "coarse"), form("classification", "none")
    assert coarse.needs == (CoarseRatios,) and alone.needs == ()
    assert coarse.calibrated and alone.calibrated
    np.testing.assert_array_equal(coarse(told).values, auto()(told).values)
    np.testing.assert_allclose(alone(told).values, [[0.65, 0.35]])
    assert coarse(told).notes[0].startswith("auto: coarse density ratios, ")
    assert alone(told).notes[0].startswith("auto: mean of predictions")
    for ratios in ("none", "coarse"):
        values = replies([[1.0]], [[3.0]], kind="values")
        assert form("regression", ratios)(values).values.tolist() == [[2.0]]


def answers(seed: int, m: int = 10, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Answers of m parties that are right on three rows of four, and the true classes."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=300)
    said = np.where(rng.random((m, 300)) < 0.75, true, rng.integers(classes, size=(m, 300)))
    return 0.8 * np.eye(classes)[said] + 0.2 / classes, true


def right(rule, outputs: np.ndarray, true: np.ndarray) -> float:
    return float((rule(replies(*outputs)).values.argmax(axis=1) == true).mean())


def turn(outputs: np.ndarray, true: np.ndarray, kind: str) -> np.ndarray:
    """The last three parties are sure of class 0 on some rows, and honest elsewhere."""
    rng = np.random.default_rng(1)
    turned = outputs.copy()
    if kind == "tilt":  # half of the honest mean, half of class 0
        turned[-3:] = 0.5 * outputs[:-3].mean(axis=0) + 0.5 * np.eye(outputs.shape[2])[0]
        return turned
    if kind == "next":  # they agree with each other, and with nobody else
        turned[-3:] = np.eye(outputs.shape[2])[(true + 1) % outputs.shape[2]]
        return turned
    rows = {"quiet": true == 3, "jitter": rng.random(len(true)) < 1 / 3, "all": true > 0}[kind]
    turned[-3:, rows] = np.eye(outputs.shape[2])[0]
    return turned


@pytest.mark.parametrize("kind", ["quiet", "jitter", "all", "tilt", "next"])
def test_three_attackers_of_ten_do_not_turn_a_mean_of_answers(kind):
    """A point at most is lost against the honest seven, on the turned class too."""
    rule = form("classification", "none")
    outputs, true = answers(0)
    attacked = turn(outputs, true, kind)
    assert right(rule, outputs[:7], true) - right(rule, attacked, true) <= 0.0101
    mine = true == 3
    taught = rule(replies(*attacked)).values.argmax(axis=1)
    alone = rule(replies(*outputs[:7])).values.argmax(axis=1)
    assert (taught == true)[mine].mean() >= (alone == true)[mine].mean() - 0.03


@given(st.integers(0, 2**32))
def test_honest_answers_are_averaged_as_well_as_before(seed):
    outputs, true = answers(seed)
    plain = (outputs.mean(axis=0).argmax(axis=1) == true).mean()
    assert right(form("classification", "none"), outputs, true) >= plain - 0.02


def test_specialists_are_not_weighed_by_agreement():
    """Each of five parties tells two of five classes apart: who disagrees may be the one that knows."""
    true = np.arange(50) % 5
    outputs = np.zeros((5, 50, 5))
    for c in range(5):
        mine, next_one = c, (c + 1) % 5
        outputs[c, :, mine] = np.where(true == mine, 0.9, 0.3)
        outputs[c, :, next_one] = 1 - outputs[c, :, mine]
    teacher = form("classification", "none")(replies(*outputs))
    np.testing.assert_allclose(teacher.values, outputs.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(teacher.weights, 0.2)


def test_copies_of_answers_share_the_weight_of_one_party_unless_they_are_the_most():
    outputs, _ = answers(0, m=4)
    rule = form("classification", "none")
    copied = rule(replies(*outputs, outputs[3], outputs[3]))
    once = rule(replies(*outputs))
    assert (
        copied.weights[3:, 0].sum() < 1.6 * copied.weights[0, 0]
    )  # each counts, they have three times
    np.testing.assert_allclose(copied.values, once.values, atol=0.02)
    most = rule(replies(outputs[0], *[outputs[3]] * 4))
    assert most.weights[0, 0] <= 0.21


def labelled(names: tuple[str, ...], rows: np.ndarray):
    """The form of `auto` without ratios, with a root set whose rows exclude nobody."""
    guard = Guard(secret=SecretLabels(rows, names), let_in=tuple("abcdefghij"))
    return replace(form("classification", "none"), screen=guard)


def test_labelled_rows_weigh_answers_class_by_class():
    """Each knows three of ten classes, and three attackers turn class 3: labels tell who is right."""
    rng = np.random.default_rng(0)
    true = np.arange(400) % 10
    outputs = np.full((10, 400, 10), 0.02) + 0.01 * rng.random((10, 400, 10))
    for c in range(7):
        for y in ((c + k) % 10 for k in range(3)):
            outputs[c, true == y, y] += 0.9
    outputs[7:] = outputs[:3]
    outputs[7:, true == 3] = np.eye(10)[0]
    outputs /= outputs.sum(axis=2, keepdims=True)
    rows = np.arange(100)
    rule = labelled(tuple(f"class {y}" for y in true[rows]), rows)
    unseen, turned = np.arange(400) >= 100, true == 3

    def seen(rule):
        return rule(replies(*outputs)).values[unseen & turned].argmax(axis=1)

    assert (seen(form("classification", "none")) == 3).mean() < 0.6
    assert (seen(rule) == 3).all()


@given(st.integers(0, 2**32))
def test_few_labelled_rows_weigh_nobody(seed):
    """Seven rows of a class are no evidence, so that they leave the weights as they are."""
    outputs, true = answers(seed)
    rows = np.concatenate([np.flatnonzero(true == y)[:7] for y in range(4)])
    rule = labelled(tuple(f"class {y}" for y in true[rows]), rows)
    plain = form("classification", "none")(replies(*outputs))
    np.testing.assert_array_equal(rule(replies(*outputs)).values, plain.values)


def test_labels_that_no_party_fits_leave_the_weights():
    outputs, true = answers(0)
    rows = np.arange(100)
    wrong = tuple(f"class {(y + 1) % 4}" for y in true[rows])
    plain = form("classification", "none")(replies(*outputs))
    assert np.isfinite(labelled(wrong, rows)(replies(*outputs)).values).all()
    np.testing.assert_array_equal(labelled(wrong, rows)(replies(*outputs)).values, plain.values)


def test_few_coarse_claims_give_way_to_answers():
    """One party claims one class; both tell ten apart."""
    outputs = np.random.default_rng(0).dirichlet(np.ones(10), size=(3, 20))
    few, many = np.zeros((20, 10)), np.ones((20, 10))
    few[:, 0] = 1
    coarse = form("classification", "coarse")
    assert "few classes" in coarse(replies(*outputs, ratios=[few] * 3)).notes[0]
    assert coarse(replies(*outputs, ratios=[many] * 3)).notes[0].startswith("auto: coarse density")


# --- values -----------------------------------------------------------------------------------------


def test_one_party_of_four_does_not_destroy_values_without_ratios():
    rule, truth = form("regression", "none"), np.linspace(0, 1, 50)[:, None]
    honest = [truth + 0.01 * c for c in range(3)]
    teacher = rule(replies(*honest, np.full((50, 1), 1e9), kind="values"))
    assert np.abs(teacher.values - truth).max() <= 0.0151


def test_values_weighted_by_ratios():
    """a has 3 rows near, b 1: (3 · 2 + 6)/4 = 3; to the power 2 (9 · 2 + 6)/10."""
    told = replies([[2.0]], [[6.0]], kind="values", ratios=[[[3.0]], [[1.0]]], rows=[1, 1])
    teacher = value_density_ratio()(told)
    np.testing.assert_allclose(teacher.values, [[3.0]], atol=0.01)
    np.testing.assert_allclose(teacher.weights, [[0.75], [0.25]], atol=2 * DOUBT)
    np.testing.assert_allclose(value_density_ratio(power=2)(told).values, [[2.4]], atol=0.01)


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        (3.0, "weighted by density ratios to the power 1"),
        (2.4, "weighted by density ratios to the power 2"),
        (4.0, "mean"),
        (5.0, "mean by rows"),
        (-7.0, "weighted by density ratios to the power 2"),
    ],
)
def test_values_are_chosen_by_squared_error(target, chosen):
    """Teachers of 2 and 6: by ratios 3:1 3, 2.4 and 3.46, mean 4, by rows 1:3 5. The nearest one is taken."""
    sums = [[[4.0, 4 * target]], [[0.0, 0.0]]]
    told = replies(
        [[2.0]], [[6.0]], kind="values", ratios=[[[3.0]], [[1.0]]], rows=[1, 3], sums=sums
    )
    teacher = form("regression", "exact")(told)
    assert teacher.notes == (f"auto: values, {chosen}, chosen by 4 calibration rows",)


@given(st.integers(0, 2**32), st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_units_of_values_do_not_matter(seed, shift, scale):
    rng = np.random.default_rng(seed)
    outputs, near = rng.normal(size=(3, 5, 2)), rng.exponential(size=(3, 5, 2))
    counts = rng.integers(0, 3, size=(3, 5, 1)).astype(float)
    total = counts * rng.normal(size=(3, 5, 2))

    def note(outputs, total):
        sums = np.concatenate([counts, total], axis=2)
        told = replies(*outputs, kind="values", ratios=near, rows=[3, 4, 5], sums=sums)
        return form("regression", "exact")(told).notes

    moved = note(shift + scale * outputs, counts * shift + scale * total)
    assert moved == note(outputs, total)


# --- in a federation --------------------------------------------------------------------------------


def by_corner(model, targets) -> Federation:
    """Three parties with one cloud each, in two corners of a triangle, and public rows of all three."""
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 4.0], [-4.0, -4.0], [4.0, -4.0]])
    parties = []
    for i in range(3):
        codes = np.array([i, (i + 1) % 3]).repeat(20)
        rows = corners[codes] + rng.normal(size=(40, 2))
        parties.append(Party(f"party {i}", model, rows, targets(codes, rows)))
    return Federation(parties, corners[np.arange(30) % 3] + rng.normal(size=(30, 2)))


def test_it_is_the_default_and_says_what_it_chose():
    made = by_corner(LogisticRegression(), lambda codes, rows: codes)
    history = made.run(ensemble_distillation(rounds=2), progress=False)
    for round in history.rounds[1:]:
        np.testing.assert_array_equal(round.teacher.values.argmax(axis=1), np.arange(30) % 3)
        assert round.teacher.notes[0].endswith("chosen by 24 calibration rows")
    assert "round 2: auto: density ratios, " in str(history)


def test_it_learns_from_the_agreement_that_parties_do_regression():
    """|x| by straight lines: each is right in its own half, and the ratios know which half a row is in."""
    x = np.linspace(-3, 3, 120)[:, None]
    left = x[:, 0] < 0
    parties = [
        Party("left", LinearRegression(), x[left], np.abs(x[left, 0])),
        Party("right", LinearRegression(), x[~left], np.abs(x[~left, 0])),
    ]
    round = list(Federation(parties, x[::3]).rounds(ensemble_distillation(rounds=1)))[1]
    assert round.teacher.notes[0].startswith("auto: values, weighted by density ratios")
    assert (
        np.abs(round.teacher.values[:, 0] - np.abs(x[::3, 0])).mean() < 0.4
    )  # the mean is 1.5 off


def test_a_class_without_calibration_rows_leaves_the_choice_to_the_others() -> None:
    """Rows of the third class are nobody's calibration rows: the better teacher is chosen all the same."""
    sums = np.array([[3.0, 0, 0], [0, 3.0, 0]])
    right, wrong = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]), np.array([[0.1, 0.8, 0.1]] * 2)
    told = [_evidence(teacher, sums, _Choice()) for teacher in (right, wrong)]
    assert np.isfinite(told).all() and told[0] > told[1]
