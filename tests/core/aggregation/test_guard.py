"""The guard before a rule: bounds, secret labels and exclusions, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.core.aggregation import density_ratio
from consilience.core.aggregation.guard import Guard, SecretLabels
from consilience.core.errors import RunFailed
from consilience.core.messages.scores import (
    CalibrationSums,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from helpers.replies import replies

EIGHT = np.tile(np.eye(2), (4, 1))
"""Right answers to eight rows of two classes."""


def guarded(*outputs, memory=None, guard=None, **further):
    guard = guard or Guard()
    return guard(replies(*outputs, **further), memory or {})[:3]


ROWS = np.tile(EIGHT, (8, 1))
"""Right answers to 64 rows of two classes."""


def test_nothing_changes_if_nothing_is_found():
    given = replies(EIGHT, 0.9 * EIGHT + 0.05, 0.8 * EIGHT + 0.1)
    heard, excluded, memory, labelled = Guard()(given, {})
    assert heard is given
    assert not excluded
    assert not memory
    assert labelled is None


def test_answers_alone_exclude_no_party():
    """A constant model may be an honest specialist of one class, and so may one that agrees with no other."""
    constant, unrelated = np.tile([1.0, 0.0], (8, 1)), np.repeat(np.eye(2), 4, axis=0)
    for odd in (constant, unrelated, EIGHT[:, ::-1]):
        assert guarded(EIGHT, EIGHT, EIGHT, EIGHT, odd)[1] == {}


def test_the_rows_of_a_constant_model_count():
    constant = np.tile([0.6, 0.4], (64, 1))
    ratios = [ROWS, 2 * ROWS, 3 * ROWS, 4 * ROWS]
    heard, excluded, _ = guarded(ROWS, constant, ROWS, ROWS, ratios=ratios)
    assert excluded == {}
    assert heard.of(DensityRatios)[1].values.sum() > 64


def test_a_copy_of_a_party_with_its_claims_counts_once_and_excludes_none():
    """The party whose name comes later may be the one that was copied."""
    ratios = [ROWS, 2 * ROWS, ROWS, ROWS + 1, ROWS * [[1, 2]]]
    heard, excluded, _ = guarded(ROWS, ROWS, ROWS, ROWS, ROWS, ratios=ratios)
    assert excluded == {}
    claims = [one.values.sum() for one in heard.of(DensityRatios)]
    assert claims[0] == claims[2] == 64 / 3  # a, b and c are alike
    assert guarded(ROWS, ROWS, ROWS)[1] == {}


def test_a_party_is_excluded_from_then_on_until_it_is_let_in():
    """Its model says the opposite of its own claims."""
    ratios = [(1 + 0.1 * c) * ROWS for c in range(4)]
    said = "d is excluded since round 1: its model agrees with 0% of its own claims, "
    said += "the usual party's with 100%"
    _, excluded, memory = guarded(ROWS, ROWS, ROWS, ROWS[:, ::-1], ratios=ratios)
    assert excluded == {"d": said}
    assert guarded(ROWS, ROWS, ROWS, ROWS, ratios=ratios, memory=memory)[1] == {"d": said}
    let_in = Guard(let_in=("d",))
    assert guarded(ROWS, ROWS, ROWS, ROWS[:, ::-1], ratios=ratios, guard=let_in)[1] == {}
    assert guarded(ROWS, ROWS, ROWS, ROWS, ratios=ratios, guard=let_in, memory=memory)[1] == {}


def test_watching_can_be_switched_off_and_bounds_stay():
    """One that claims a million rows, and says the opposite of these, counts for no more than the others."""
    ratios = [ROWS, ROWS * [1.3, 0.9], ROWS * [1, 1.4], 1e6 * ROWS * [0.8, 1.2]]
    guard = Guard(watch=False)
    heard, excluded, _ = guarded(ROWS, ROWS, ROWS, ROWS[:, ::-1], ratios=ratios, guard=guard)
    assert excluded == {}
    sums = [one.values.sum() for one in heard.of(DensityRatios)]
    assert sums[:2] == [64, pytest.approx(70.4)]
    assert sums[3] == pytest.approx(1.5 * 73.6)  # one and a half times the median in all


def test_two_parties_are_not_judged():
    assert guarded(ROWS, ROWS[:, ::-1], ratios=[ROWS, ROWS])[1] == {}


def test_calibration_rows_count_at_the_median():
    sums = [EIGHT, 2 * EIGHT, 1e4 * EIGHT]
    heard, _, _ = guarded(EIGHT, EIGHT, EIGHT, ratios=[EIGHT, 1.1 * EIGHT, 1.2 * EIGHT], sums=sums)
    assert [one.values.sum() for one in heard.of(CalibrationSums)] == [8, 16, 16]


def test_density_ratios_are_capped_at_a_number():
    """Claims of 16, 16 and 160 rows, of which each party may claim 8."""
    ratios = [np.ones((8, 2)), np.ones((8, 2)), np.full((8, 2), 10.0)]
    guard = Guard(most_rows=8, watch=False)
    heard, excluded, _ = guarded(EIGHT, EIGHT, EIGHT, ratios=ratios, guard=guard)
    assert [float(one.values.sum()) for one in heard.of(DensityRatios)] == pytest.approx([8, 8, 8])
    assert not excluded


def test_counts_and_log_densities_are_capped():
    heard, _, _ = guarded(
        EIGHT,
        EIGHT,
        EIGHT,
        rows=[10, 20, 10**9],
        log_density=[np.zeros(8), np.full(8, -1.0), np.full(8, 1e6)],
        guard=Guard(most_rows=50),
    )
    assert [one.rows for one in heard.of(RowCount)] == [10, 20, 50]
    assert [float(one.values.max()) for one in heard.of(LogDensities)] == [0, -1, 0]


SECRET = SecretLabels(np.arange(4), ("class 0", "class 1", "class 0", "class 1"))


def test_wrong_votes_on_secret_rows():
    """An attacker with one row claimed at each of four: all its votes there are wrong."""
    ratios = [(1 + 0.1 * c) * np.ones((8, 2)) for c in range(4)]
    guard = Guard(secret=SECRET, watch=False)
    wrong = EIGHT[:, ::-1]
    _, excluded, memory = guarded(EIGHT, EIGHT, EIGHT, wrong, ratios=ratios, guard=guard)
    said = "d is excluded since round 1: on secret rows of one class its votes are wrong (1.00 of 1.00)"
    assert excluded == {"d": said}
    later = guarded(EIGHT, EIGHT, EIGHT, EIGHT, ratios=ratios, guard=guard, memory=memory)
    assert later[1] == {"d": said}
    let_in = replace(guard, let_in=("d",))
    assert not guarded(EIGHT, EIGHT, EIGHT, EIGHT, guard=let_in, memory=memory)[1]


def test_wrong_votes_of_one_class_are_not_netted_with_right_ones_of_others():
    """Three classes; the attacker is right on two of them, and turns the third with all its density."""
    true = np.eye(3)[np.arange(60) % 3]
    turned = true.copy()
    turned[2::3] = np.eye(3)[0]
    labels = tuple(f"class {y}" for y in np.arange(30) % 3)
    guard = Guard(secret=SecretLabels(np.arange(30), labels), watch=False)
    outputs, ratios = [true] * 4 + [turned], [true, 1.1 * true, 1.2 * true, true, turned]
    _, excluded, _ = guarded(*outputs, ratios=ratios, guard=guard)
    assert excluded == {
        "e": "e is excluded since round 1: on secret rows of one class its votes are wrong (1.00 of 1.00)"
    }


def test_silence_on_secret_rows_is_not_punished():
    """A specialist that is wrong where it claims next to nothing stays."""
    silent = np.where(np.arange(8)[:, None] < 4, 0.01, 1.0) * np.ones((8, 2))
    guard = Guard(secret=SECRET, watch=False)
    for claims in (silent, 0 * silent):
        ratios = [np.ones((8, 2)), 1.1 * np.ones((8, 2)), claims]
        assert not guarded(EIGHT, EIGHT, EIGHT[:, ::-1], ratios=ratios, guard=guard)[1]


def test_labels_of_no_class_that_is_agreed_on_judge_nobody():
    guard = Guard(secret=SecretLabels(np.arange(2), ("other", "other")), watch=False)
    assert not guarded(EIGHT, EIGHT, EIGHT[:, ::-1], guard=guard)[1]


@pytest.mark.parametrize(("known", "found"), [(2, {"d"}), (12, set())])
def test_coarse_claims_of_few_classes_exclude_nobody(known, found):
    """Four parties claim one class; they tell two apart, or twelve: then the rule is of answers alone."""
    said = np.random.default_rng(0).dirichlet(np.ones(12), size=(4, 8)) if known == 12 else 0
    outputs = 0.5 * np.pad(EIGHT, ((0, 0), (0, 10))) + 0.5 * said
    outputs = np.broadcast_to(outputs, (4, 8, 12)) / outputs.sum(axis=-1, keepdims=True)
    claims = np.zeros((4, 8, 12))
    claims[:3, ::2, 0], claims[3, :, 5] = 1, 1e6  # its model never says class 5
    told = replies(*outputs, ratios=list(claims * np.array([1, 1.1, 1.2, 1])[:, None, None]))
    coarse = {
        party: tuple(one for one in given if not isinstance(one, (DensityRatios, InputRatios)))
        for party, given in told.answers.items()
    }
    assert set(Guard()(replace(told, answers=coarse), {})[1]) == found


def test_without_ratios_a_specialist_is_judged_by_what_it_tells_apart():
    """One that knows class 0 alone and says it of everything but one row of class 1 is right by 0.5."""
    specialist = np.tile([1.0, 0.0], (8, 1))
    specialist[1] = [0.4, 0.6]
    guard = Guard(secret=SECRET, watch=False)
    assert not guarded(EIGHT, EIGHT, specialist, guard=guard)[1]
    _, left_out, _ = guarded(EIGHT, EIGHT, EIGHT[:, ::-1], guard=guard)
    assert left_out == {
        "c": "c is excluded since round 1: on 4 secret rows its votes are right by -2.0 and wrong by 2.0"
    }


def test_an_attacker_with_ratios_does_not_count():
    ratios = [(1 + 0.1 * c) * np.ones((8, 2)) for c in range(3)] + [np.full((8, 2), 1e6)]
    given = replies(EIGHT, EIGHT, EIGHT, EIGHT[:, ::-1], ratios=ratios)
    assert density_ratio()(given).values[0, 0] < 0.01
    rule = replace(density_ratio(), screen=Guard(secret=SECRET))
    assert rule(given).values[0, 0] > 0.99


def test_somebody_must_be_left():
    guard = Guard(leave_out=("a", "b", "c"))
    with pytest.raises(RunFailed, match="every party's answers"):
        guarded(EIGHT, EIGHT, EIGHT, guard=guard)


def test_over_rounds_fewer_than_half_of_the_parties_are_excluded_for_their_unit():
    """Of five, a was excluded before; d and e are two of four, and three of all."""
    own = np.linspace(1.0, 2.0, 40)[:, None]
    given = replies(own, own, own, own, 1000 * own, kind="values")
    assert set(Guard()(given, {"a": "a was excluded"})[1]) == {"a", "e"}
    more = replies(own, own, own, 1000 * own, 1000 * own, kind="values")
    assert set(Guard()(more, {})[1]) == {"d", "e"}
    with pytest.raises(RunFailed, match="different units"):
        Guard()(more, {"a": "a was excluded"})
