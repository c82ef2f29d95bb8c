"""Bounds of claims and tests for contradicted ones: values by hand, and parties that must not be suspects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.aggregation.claims import (
    COARSE,
    EXACT,
    _contradicted,
    _outvoted,
    bounded,
    suffice,
    suspects,
    usual_range,
    wrong_on_labels,
)


def honest(
    seed: int = 0, m: int = 7, n: int = 300, classes: int = 3, held: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Claims, outputs and true classes: each party holds some classes and is right on these, as a rule."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=n)
    right = np.eye(classes)[true]
    holds = np.array([np.roll(np.arange(classes) < held, c) for c in range(m)])
    outputs = right * holds[:, None] + 0.15 * rng.random((m, n, classes)) + 0.1 * holds[:, None]
    near = right * holds[:, None] * rng.uniform(0.5, 1, (m, n, 1))
    ratios = near + 0.05 * rng.random((m, n, classes))
    return ratios, outputs / outputs.sum(axis=2, keepdims=True), true


def test_bounds_by_hand():
    """One row, one class. Claims of 1, 2 and 100: per row 1.5 x 2, in all the median of 1, 2 and 3."""
    ratios = np.array([1.0, 2.0, 100.0]).reshape(3, 1, 1)
    np.testing.assert_allclose(bounded(ratios, np.ones((3, 1, 1)))[:, 0, 0], [1, 2, 2])


def test_a_sure_attacker_is_bounded_by_its_votes():
    """All claim 1 at each of four rows; votes of 0.6, 0.7 and 1 come to 2.4, 2.8 and 4, with median 2.8."""
    ratios = np.zeros((3, 4, 2))
    ratios[..., 0] = 1
    outputs = np.tile([0.6, 0.4], (3, 4, 1))
    outputs[1], outputs[2] = [0.7, 0.3], [1.0, 0.0]
    votes = (bounded(ratios, outputs) * outputs).sum(axis=(1, 2))
    np.testing.assert_allclose(votes, [2.4, 2.8, 2.8])


def test_claims_of_a_minority_do_not_count():
    """With coarse ratios of small classes most parties claim nothing: one claim would decide alone."""
    ratios = np.zeros((4, 5, 2))
    ratios[:2] = 1
    assert not bounded(ratios, np.full_like(ratios, 0.5)).any()
    ratios[2] = 1
    assert bounded(ratios, np.full_like(ratios, 0.5)).any()


@given(st.integers(0, 2**32))
def test_bounded_claims_are_no_larger_and_keep_their_proportions(seed):
    rng = np.random.default_rng(seed)
    ratios = rng.exponential(size=(5, 6, 3)) * 10.0 ** rng.integers(-3, 12, size=(5, 1, 1))
    outputs = rng.dirichlet(np.ones(3), size=(5, 6))
    found = bounded(ratios, outputs)
    assert (found <= ratios * (1 + 1e-9)).all()
    share = found / found.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(share, ratios / ratios.sum(axis=2, keepdims=True), atol=1e-9)
    usual = np.median(ratios.sum(axis=(1, 2)))
    assert found.sum(axis=(1, 2)).max() <= usual * (1 + 1e-9)


@given(st.integers(0, 2**32), st.integers(3, 10), st.integers(1, 3))
def test_honest_parties_are_no_suspects(seed, m, held):
    ratios, outputs, _ = honest(seed, m, held=held)
    assert suspects(bounded(ratios, outputs), outputs, EXACT) == []


def turned(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seven parties that hold all of four classes, of which the last one is malicious."""
    ratios, outputs, true = honest(classes=4, held=4)
    rows = true == 3
    total = ratios[0].sum()
    zero = np.eye(4)[0]
    if kind == "oblivious":
        outputs[-1], ratios[-1] = zero, 1e6 * zero
    elif kind == "quiet":
        outputs[-1, rows], ratios[-1, rows] = zero, 0.75 * total / rows.sum() * zero
        ratios[-1, ~rows] *= 0.25
    elif kind == "threader":
        both = rows | (true == 0)
        outputs[-1, both], ratios[-1] = zero, both[:, None] * zero * total / both.sum()
    elif kind == "jitter":
        third = np.random.default_rng(1).random(len(true)) < 1 / 3
        outputs[-1, third], ratios[-1] = (
            [0.94, 0.02, 0.02, 0.02],
            third[:, None] * zero * total / third.sum(),
        )
    elif kind == "ratios":
        ratios[-1] = np.eye(4)[(true + 1) % 4] * total / len(true)
    elif kind == "labels":  # in another order, of the rows and of the model
        outputs[-1], ratios[-1] = np.roll(outputs[-1], 1, axis=1), np.roll(ratios[-1], 1, axis=1)
    elif kind == "model":  # in another order, of the model alone
        outputs[-1] = np.roll(outputs[-1], 1, axis=1)
    return ratios, outputs, true


@pytest.mark.parametrize(
    "kind", ["oblivious", "quiet", "threader", "jitter", "ratios", "labels", "model"]
)
def test_an_attacker_is_the_strongest_suspect(kind):
    ratios, outputs, _ = turned(kind)
    assert suspects(bounded(ratios, outputs), outputs, EXACT)[0].party == 6


@pytest.mark.parametrize("kind", ["oblivious", "ratios", "labels", "model"])
def test_coarse_thresholds_find_the_coarsest(kind):
    ratios, outputs, _ = turned(kind)
    assert suspects(bounded(ratios, outputs), outputs, COARSE)[0].party == 6


@pytest.mark.parametrize("kind", ["oblivious", "quiet", "threader", "labels"])
def test_labelled_rows_name_the_attacker_alone(kind):
    ratios, outputs, true = turned(kind)
    rows = np.concatenate([np.flatnonzero(true == y)[:10] for y in range(4)])
    found = wrong_on_labels(bounded(ratios, outputs), outputs, rows, true[rows], EXACT)
    assert [one.party for one in found] == [6]


def test_labelled_rows_find_thin_claims_of_one_class_on_the_rows_of_another():
    """Half as dense as usual, and as many on rows of class 3 as on those of class 0."""
    ratios, outputs, true = turned("threader")
    ratios[-1] *= 0.5
    rows = np.concatenate([np.flatnonzero(true == y)[:10] for y in range(4)])
    found = wrong_on_labels(bounded(ratios, outputs), outputs, rows, true[rows], COARSE)
    assert [one.party for one in found] == [6]
    assert (
        found[0].evidence == "it votes for one class on the rows of another as much as on its own"
    )


def test_claims_of_every_row_by_a_constant_model_are_found_in_two_classes():
    """Half of the rows are the usual party's of each class, so that all rows are only twice as many."""
    ratios, outputs, true = honest(m=4, n=200, classes=2, held=2)
    right = np.eye(2)[true]
    ratios = right * ratios.max(axis=2, keepdims=True) + 0.05
    ratios[-1], outputs[-1] = 0.3 * np.eye(2)[0], np.eye(2)[0]
    assert suspects(bounded(ratios, outputs), outputs, COARSE)[0].party == 3


def test_the_usual_range_by_hand():
    """Least 0, 1, 2 and largest 10, 11, 12; means 5, 6, 7: 1 - (10 + 3) to 11 + (10 + 3)."""
    values = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])[..., None]
    low, high = usual_range(values)
    assert (low.tolist(), high.tolist()) == ([-12.0], [24.0])


def test_parties_of_different_sizes_keep_their_values():
    """Four parties, each with a quarter of the range of the target, and one of them predicts 1e9."""
    values = np.linspace(0, 4, 40).reshape(4, 10, 1)
    low, high = usual_range(values)
    assert low < 0 and high > 4
    low, high = usual_range(np.concatenate([values, np.full((1, 10, 1), 1e9)]))
    assert low < 0 and 4 < high < 20


def test_claims_suffice_if_the_median_party_claims_more_than_a_third_of_its_classes():
    """Three parties tell three classes apart; one claims all, one none, and the third two, one or none."""
    outputs = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 5))
    for claimed, enough in ((2, True), (1, False), (0, False)):
        marks = np.arange(3) < np.array([[3], [0], [claimed]])
        assert suffice(np.repeat(marks[:, None].astype(float), 5, axis=1), outputs) is enough


def test_attackers_do_not_make_claims_too_few():
    """Seven specialists claim both classes that they know; three attackers know ten and claim one."""
    outputs = np.zeros((10, 20, 10))
    outputs[:7, :, 0] = np.linspace(0, 1, 20)
    outputs[:7, :, 1] = 1 - outputs[:7, :, 0]
    outputs[7:] = np.random.default_rng(0).dirichlet(np.ones(10), size=(3, 20))
    ratios = np.zeros_like(outputs)
    ratios[:7, :, :2], ratios[7:, :, 0] = 1, 1
    assert suffice(ratios, outputs)


def test_a_sole_holder_of_a_class_is_no_suspect():
    """Nobody else claims the rows of class 3, which the last party calls class 3."""
    ratios, outputs, true = honest(classes=4, held=4)
    ratios[:-1, true == 3] *= 0.02
    assert suspects(bounded(ratios, outputs), outputs, EXACT) == []


def test_a_specialist_of_one_class_with_a_constant_model_is_no_suspect():
    ratios, outputs, true = honest(classes=4, held=4)
    outputs[-1], ratios[-1] = np.eye(4)[2], 3 * np.eye(4)[2] * (true == 2)[:, None]
    assert suspects(bounded(ratios, outputs), outputs, EXACT) == []


def test_a_party_of_few_claims_that_is_mostly_wrong_on_labels_is_found():
    """It claims a tenth of what others do, thinly over all rows, for the class after the true one."""
    ratios, outputs, true = honest()
    outputs[0] = np.eye(3)[(true + 1) % 3]
    ratios[0] = outputs[0] * 0.1 * ratios[1].sum() / len(true)
    rows = np.arange(60)
    told = wrong_on_labels(bounded(ratios, outputs), outputs, rows, true[rows], COARSE)
    assert [one.party for one in told] == [0]


def test_copies_share_the_claims_of_one_party():
    ratios, outputs, _ = honest(m=5)
    alone = bounded(ratios, outputs)
    ratios[3], outputs[3] = ratios[1] * (1 + 1e-4), outputs[1]
    both = bounded(ratios, outputs)
    np.testing.assert_allclose(both[[1, 3]].sum(axis=(0, 1, 2)), alone[1].sum(), rtol=0.1)
    outputs[3] = np.roll(outputs[3], 1, axis=1)
    assert bounded(ratios, outputs)[1].sum() > 1.5 * both[1].sum()


def test_who_frames_the_few_holders_of_a_class_is_excluded_and_not_these():
    """On ten rows two holders claim class 1 at half density; an attacker and three others claim class 0.

    Each holder is outvoted, 1 + 3 x 0.4 to 0.5 + 1, and the attacker is not, 1 to 3 x 0.4 + 1.
    """
    ratios = np.zeros((6, 70, 2))
    for c in (0, 3, 4, 5):
        ratios[c, 10 + 10 * c : 20 + 10 * c, c % 2] = 1
    ratios[0, :10, 0], ratios[1:3, :10, 1], ratios[3:, :10, 0] = 1, 0.5, 0.4
    outputs = np.where(ratios > 0, 1.0, 0.0)
    votes, limits = ratios * outputs, replace(EXACT, outvoted=0.2)
    shares = _contradicted(ratios, outputs, votes, limits)
    assert (shares[1:3] > 0.3).all() and (shares[[0, 3, 4, 5]] == 0).all()
    assert max(_outvoted(ratios, outputs, votes, limits), key=lambda one: one.strength).party == 0


def test_a_spared_suspect_does_not_hide_the_next_one():
    """Party 6 is a threader, party 5 has its labels in another order."""
    ratios, outputs, _ = turned("threader")
    outputs[5] = np.roll(outputs[5], 1, axis=1)
    limited = bounded(ratios, outputs)
    assert suspects(limited, outputs, EXACT)[0].party == 5
    assert [one.party for one in suspects(limited, outputs, EXACT, [5])] == [6]
    assert suspects(limited, outputs, EXACT, [5, 6]) == []


def test_a_spared_party_is_not_replaced_by_honest_ones():
    """Without the spared attacker the claims of all others are hardly contradicted."""
    ratios, outputs, _ = turned("jitter")
    assert suspects(bounded(ratios, outputs), outputs, EXACT, [6]) == []


def test_one_public_row_is_no_evidence():
    ratios, outputs, _ = honest(n=1)
    outputs[-1] = np.roll(outputs[-1], 1, axis=1)
    assert suspects(bounded(ratios, outputs), outputs, EXACT) == []


def test_classes_without_labelled_rows_are_not_judged():
    """All answer 0.6 for the right one of two classes, and only class 0 has labels."""
    true = np.arange(40) % 2
    outputs = np.tile(np.where(true[:, None] == [0, 1], 0.6, 0.4), (5, 1, 1))
    ratios = np.ones((5, 40, 2)) * np.arange(1, 1.5, 0.1)[:, None, None]
    rows = np.flatnonzero(true == 0)[:10]
    assert wrong_on_labels(bounded(ratios, outputs), outputs, rows, true[rows], EXACT) == []
