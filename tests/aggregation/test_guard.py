"""The guard before a rule: caps, secret labels, and answers at odds with all others', by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.aggregation import avg, density_ratio, selective_mean
from consilience.aggregation.guard import Guard, SecretLabels
from consilience.errors import RunFailed
from consilience.messages.scores import DensityRatios, LogDensities, RowCount
from helpers.replies import replies

EIGHT = np.tile(np.eye(2), (4, 1))
"""Right answers to eight rows of two classes."""


def guarded(*outputs, memory=None, guard=None, **further):
    guard = guard or Guard()
    return guard(replies(*outputs, **further), memory or {})


def test_nothing_changes_where_nothing_is_found():
    given = replies(EIGHT, 0.9 * EIGHT + 0.05, 0.8 * EIGHT + 0.1)
    heard, left_out, memory = Guard()(given, {})
    assert heard is given
    assert not left_out
    assert not memory


def test_a_constant_model_is_left_out_of_the_mean_and_named():
    constant = np.tile([1.0, 0.0], (8, 1))
    rule = replace(avg(), screen=Guard())
    teacher = rule(replies(EIGHT, constant, EIGHT, EIGHT))
    np.testing.assert_array_equal(teacher.values, EIGHT)
    assert teacher.notes == ("b says the same of every public row: its model tells nothing apart",)
    np.testing.assert_allclose(teacher.weights[:, 0], [1 / 3, 0, 1 / 3, 1 / 3])


def test_of_a_constant_model_the_rows_count_where_they_are_told():
    rows = np.tile(EIGHT, (8, 1))
    constant = np.tile([0.6, 0.4], (64, 1))
    left_out = guarded(rows, constant, rows, rows, ratios=[rows, rows, rows, rows])[1]
    assert left_out == {}
    assert list(guarded(rows, constant, rows, rows)[1]) == ["b"]


def test_a_party_of_one_class_has_one_answer_and_says_for_which_rows():
    """Under ``selective`` its yes to some rows is what it knows; a yes to all of them is nothing."""
    others, one = np.ones(8), np.tile([0.0, 1.0], (8, 1))
    for some, found in ((EIGHT[:, 1], []), (others, ["b"])):
        marks = [others, some, others, others]
        assert list(guarded(EIGHT, one, EIGHT, EIGHT, selected=marks)[1]) == found
    rule = replace(selective_mean(), screen=Guard())
    given = replies(EIGHT, one, EIGHT, EIGHT, selected=[1 - EIGHT[:, 1]] + [EIGHT[:, 1]] * 3)
    assert rule(given).notes == ()


def test_copies_of_a_party_with_its_rows_count_once():
    """Where models alone are the same, as one that is frozen at two places, nobody is left out."""
    rows = np.tile(EIGHT, (8, 1))
    ratios = [rows, 2 * rows, rows, rows + 1, 3 * rows]
    left_out = guarded(rows, rows, rows, rows, rows, ratios=ratios)[1]
    assert left_out == {"c": "c sends to the last digit what a does"}
    assert guarded(rows, rows, rows)[1] == {}


def test_whose_answers_vary_against_all_others_is_left_out():
    """One of five correlates with nobody; two of four that say the opposite are half, and not named."""
    unrelated = np.repeat(np.eye(2), 4, axis=0)
    _, left_out, _ = guarded(EIGHT, EIGHT, EIGHT, EIGHT, unrelated)
    assert list(left_out) == ["e"]
    assert "correlate by 0.00" in left_out["e"]
    nothing = [np.zeros((8, 2))] * 5  # coarse ratios of classes that have too few rows
    assert guarded(EIGHT, EIGHT, EIGHT, EIGHT, unrelated, ratios=nothing)[1] == left_out
    assert guarded(EIGHT, EIGHT, EIGHT[:, ::-1], EIGHT[:, ::-1])[1] == {}


def test_specialists_that_do_not_agree_are_not_judged():
    """Each of three tells one class of three from the rest, at random else: nobody agrees with anybody."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=300)
    said = []
    for own in range(3):
        guess = rng.integers(2, size=300)
        other = np.where(guess == 0, own, (own + 1) % 3)
        said.append(np.eye(3)[np.where(true == own, own, other)])
    assert guarded(*said)[1] == {}


def test_the_only_one_who_knows_some_classes_is_no_liar():
    """Two know the first two classes of four and one the others: it goes with nobody, and has to be heard."""
    first = np.eye(4)[np.arange(40) % 2]
    assert guarded(first, first, np.roll(first, 2, axis=1))[1] == {}
    assert list(guarded(first, first, first, first[:, [1, 0, 2, 3]])[1]) == ["d"]


def test_density_ratios_are_capped_at_the_median_claim_and_a_half():
    """Claims of 16, 16 and 160 rows: the last may claim 24."""
    ratios = [np.ones((8, 2)), np.ones((8, 2)), np.full((8, 2), 10.0)]
    heard, left_out, _ = guarded(
        EIGHT, EIGHT, EIGHT, ratios=ratios, guard=Guard(most_rows="median", watch=False)
    )
    assert [float(one.values.sum()) for one in heard.of(DensityRatios)] == [16, 16, 24]
    assert not left_out


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
    """A liar with one row claimed at each of four: right 0, wrong 4, and -4 < -½ √4."""
    ratios = [np.ones((8, 2))] * 4
    guard = Guard(secret=SECRET, watch=False)
    liar = EIGHT[:, ::-1]
    _, left_out, memory = guarded(EIGHT, EIGHT, EIGHT, liar, ratios=ratios, guard=guard)
    said = (
        "d is left out since round 1: on 4 secret rows its votes are right by 0.0 and wrong by 4.0"
    )
    assert left_out == {"d": said}
    later = guarded(EIGHT, EIGHT, EIGHT, EIGHT, ratios=ratios, guard=guard, memory=memory)
    assert later[1] == {"d": said}
    let_in = replace(guard, let_in=("d",))
    assert not guarded(EIGHT, EIGHT, EIGHT, EIGHT, guard=let_in, memory=memory)[1]


def test_silence_on_secret_rows_is_not_punished():
    """A specialist that is wrong where it claims a tenth of a row in all stays."""
    silent = np.full((8, 2), 0.025)
    ratios = [np.ones((8, 2)), np.ones((8, 2)), silent]
    guard = Guard(secret=SECRET, watch=False)
    assert not guarded(EIGHT, EIGHT, EIGHT[:, ::-1], ratios=ratios, guard=guard)[1]


def test_without_ratios_a_specialist_is_judged_by_what_it_tells_apart():
    """One that knows class 0 alone and says it of everything but one row of class 1 is right by 0.5."""
    specialist = np.tile([1.0, 0.0], (8, 1))
    specialist[1] = [0.4, 0.6]
    guard = Guard(secret=SECRET, watch=False)
    assert not guarded(EIGHT, EIGHT, specialist, guard=guard)[1]
    _, left_out, _ = guarded(EIGHT, EIGHT, EIGHT[:, ::-1], guard=guard)
    nothing = [np.zeros((8, 2))] * 3
    assert guarded(EIGHT, EIGHT, EIGHT[:, ::-1], guard=guard, ratios=nothing)[1] == left_out
    assert left_out == {
        "c": "c is left out since round 1: on 4 secret rows its votes are right by -2.0 and wrong by 2.0"
    }


def test_a_liar_with_ratios_loses_its_voice():
    ratios = [np.ones((8, 2))] * 3 + [np.full((8, 2), 1e6)]
    given = replies(EIGHT, EIGHT, EIGHT, EIGHT[:, ::-1], ratios=ratios)
    assert density_ratio()(given).values[0, 0] < 0.01
    rule = replace(density_ratio(), screen=Guard(secret=SECRET))
    assert rule(given).values[0, 0] > 0.99


def test_somebody_must_be_left():
    guard = Guard(leave_out=("a", "b", "c"))
    with pytest.raises(RunFailed, match="every party's answers"):
        guarded(EIGHT, EIGHT, EIGHT, guard=guard)
