"""Every rule against numbers worked out by hand.

Two parties, two public rows, two classes, unless a test says otherwise:

        row 1        row 2
    a   0.9  0.1     0.2  0.8
    b   0.5  0.5     0.6  0.4
"""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, Party, ensemble_distillation
from consilience.core.aggregation import (
    avg,
    coordinate_median,
    count_weighted,
    entropy_weighted,
    majority_vote,
    mean_logits,
    power_sharpened_mean,
    sharpened_mean,
    suwa,
    trimmed_mean,
    uwa,
)
from consilience.core.checks import check_aggregator
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.lab.experiments.oracles import class_holders, true_labels
from helpers.replies import replies

A = [[0.9, 0.1], [0.2, 0.8]]
B = [[0.5, 0.5], [0.6, 0.4]]


def close(teacher, values, weights=None) -> None:
    np.testing.assert_allclose(teacher.values, values, rtol=1e-6)
    if weights is not None:
        np.testing.assert_allclose(teacher.weights, weights, rtol=1e-6)


def test_avg():
    """(0.9 + 0.5)/2 = 0.7 and (0.2 + 0.6)/2 = 0.4."""
    close(avg()(replies(A, B)), [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]])


def test_mean_logits():
    """Row 1: mean of (ln 4, 0) and (0, 0) is (ln 2, 0), so 2 : 1. Row 2: (0, ln 3), so 1 : 3."""
    logits = replies([[log(4), 0], [0, 0]], [[0, 0], [0, 2 * log(3)]], kind="logits")
    close(mean_logits()(logits), [[2 / 3, 1 / 3], [1 / 4, 3 / 4]])


def test_uwa():
    """Row 1: densities 3 : 1, so 3/4 0.9 + 1/4 0.5 = 0.8. Row 2: 1 : 4, so 0.2/5 + 4/5 0.6 = 0.52."""
    told = replies(A, B, log_density=[[log(3), 0], [0, log(4)]])
    close(uwa()(told), [[0.8, 0.2], [0.52, 0.48]], [[0.75, 0.2], [0.25, 0.8]])


def test_uwa_far_from_everything():
    """Only differences count: as above with 900 less, where both densities are 0 in floating point.

    float32 has steps of 6e-5 at 900, hence the tolerance.
    """
    told = replies(A, B, log_density=[[log(3) - 900, -900], [-900, log(4) - 900]])
    np.testing.assert_allclose(uwa()(told).values, [[0.8, 0.2], [0.52, 0.48]], rtol=1e-4)


def test_suwa():
    """At T = 1/2 log-densities 2 ln 3 and 2 ln 4 apart weigh as ln 3 and ln 4 do in UWA."""
    told = replies(A, B, log_density=[[2 * log(3), 0], [0, 2 * log(4)]])
    close(suwa(temperature=0.5)(told), [[0.8, 0.2], [0.52, 0.48]], [[0.75, 0.2], [0.25, 0.8]])


def test_suwa_with_its_default_temperature():
    """T = 0.1: 10 ln 3 apart weigh 3 : 1."""
    told = replies(A, B, log_density=[[10 * log(3), 0], [0, 0]])
    close(suwa()(told), [[0.8, 0.2], [0.4, 0.6]])


@pytest.mark.parametrize(("near", "expected"), [([1, 0], [0.9, 0.1]), ([0, 1], [0.7, 0.3])])
def test_suwa_chooses_its_temperature(near, expected):
    """Row 1, of which a seems the better judge by far.

    If calibration rows near it are of class 0, the more of a the better, and T = 1 takes a alone; if they are
    of class 1, the less of it the better, and T = 0 takes the mean.
    """
    told = replies(A[:1], B[:1], log_density=[[40.0], [0.0]], ratios=[[near], [near]])
    close(suwa("auto")(told), [expected])


def test_suwa_that_chooses_keeps_the_contract():
    check_aggregator(suwa("auto"))


def test_suwa_that_chooses_needs_calibration_rows():
    X, y = np.arange(8.0)[:, None], ["x", "y"] * 4
    parties = [Party(name, GaussianNB(), X, y, calibration=0) for name in "ab"]
    with pytest.raises(QuorumLost, match="no calibration rows to choose by") as caught:
        Federation(parties, X).run(
            ensemble_distillation(aggregate=suwa("auto"), rounds=1), progress=False
        )
    assert "calibration share" in str(caught.value)


def test_entropy_weighted():
    """A sure row has H = 0, an even one H = ln 2. T = 1: weights 1 : 1/2. T = 1/2: 1 : 1/4.

    2/3 1 + 1/3 1/2 = 5/6 and 4/5 1 + 1/5 1/2 = 9/10; where both are even they weigh the same.
    """
    told = replies([[1, 0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])
    close(entropy_weighted()(told), [[5 / 6, 1 / 6], [0.5, 0.5]], [[2 / 3, 0.5], [1 / 3, 0.5]])
    close(entropy_weighted(temperature=0.5)(told), [[0.9, 0.1], [0.5, 0.5]])


def test_sharpened_mean():
    """Two classes d apart in the mean come out logistic(d / T): T = 0.1, d = 0.4 and -0.2.

    With T = 0.4 / ln 3 row 1 is 3 : 1 and row 2, half as far apart, 1 : sqrt 3.
    """
    first, second = 1 / (1 + exp(-4)), 1 / (1 + exp(2))
    close(sharpened_mean()(replies(A, B)), [[first, 1 - first], [second, 1 - second]])
    root = 3**0.5
    gentle = sharpened_mean(temperature=0.4 / log(3))(replies(A, B))
    close(gentle, [[3 / 4, 1 / 4], [1 / (1 + root), root / (1 + root)]])


def test_power_sharpened_mean():
    """The means 0.7, 0.3 and 0.4, 0.6 squared: 49 : 9 and 16 : 36; their roots are flatter."""
    told = replies(A, B)
    close(power_sharpened_mean()(told), [[49 / 58, 9 / 58], [16 / 52, 36 / 52]])
    close(power_sharpened_mean(exponent=1)(told), avg()(told).values)
    root = 1.5**0.5
    flatter = power_sharpened_mean(exponent=0.5)(told).values
    np.testing.assert_allclose(flatter[1], [1 / (1 + root), root / (1 + root)], rtol=1e-6)


def test_no_power_is_too_large():
    """0.7 to the 2000th is 0 in floating point; the likeliest class is left, and ties stay ties."""
    told = replies([[0.7, 0.3, 0], [0.4, 0.2, 0.4]])
    close(power_sharpened_mean(exponent=2000)(told), [[1, 0, 0], [0.5, 0, 0.5]])


def test_majority_vote_splits_ties_evenly():
    """Row 1: two votes for class 0, and one split over 1 and 2: 2/3, 1/6, 1/6.

    Row 2: one vote split in three, two for class 2: 1/9, 1/9, 1/9 + 2/3.
    """
    third = [1 / 3, 1 / 3, 1 / 3]
    told = replies(
        [[0.5, 0.3, 0.2], third],
        [[0.4, 0.3, 0.3], [0.1, 0.1, 0.8]],
        [[0.2, 0.4, 0.4], [0.3, 0.3, 0.4]],
    )
    close(majority_vote()(told), [[2 / 3, 1 / 6, 1 / 6], [1 / 9, 1 / 9, 7 / 9]])


def test_coordinate_median():
    """Medians 0.5, 0.2, 0.4 sum to 1.1; parties sure of different classes have medians 0: the mean."""
    told = replies(
        [[0.6, 0.3, 0.1], [1, 0, 0]],
        [[0.5, 0.1, 0.4], [0, 1, 0]],
        [[0.2, 0.2, 0.6], [0, 0, 1]],
    )
    teacher = coordinate_median()(told)
    close(teacher, [[5 / 11, 2 / 11, 4 / 11], [1 / 3, 1 / 3, 1 / 3]])
    assert teacher.weights is None


def test_trimmed_mean():
    """A quarter of four parties is one at each end: means of the middle two are 0.55, 0.2, 0.1, of 0.85."""
    told = replies([[1, 0, 0]], [[0.6, 0.4, 0]], [[0.5, 0.3, 0.2]], [[0.1, 0.1, 0.8]])
    close(trimmed_mean(share=0.25)(told), [[11 / 17, 4 / 17, 2 / 17]])


def test_trimmed_mean_with_nothing_left():
    """Four parties sure of four classes: without its largest each class is 0, so the row keeps the mean."""
    told = replies(*np.eye(4)[:, None])
    close(trimmed_mean(share=0.25)(told), [[0.25, 0.25, 0.25, 0.25]])


def test_trimmed_mean_cuts_whole_parties():
    """A fifth of four parties is less than one: nothing is cut, and 0.8, 0.2 is the mean."""
    told = replies([[1, 0]], [[1, 0]], [[1, 0]], [[0.2, 0.8]])
    close(trimmed_mean()(told), [[0.8, 0.2]])


def test_count_weighted():
    """30 and 10 rows weigh 3/4 and 1/4: 0.8 and 3/4 0.2 + 1/4 0.6 = 0.3."""
    teacher = count_weighted()(replies(A, B, rows=[30, 10]))
    close(teacher, [[0.8, 0.2], [0.3, 0.7]], [[0.75, 0.75], [0.25, 0.25]])


def test_class_holders():
    """Row 1 is of class 0, which a alone holds; row 2 of class 2, which nobody does: the mean."""
    teacher = class_holders(np.array([0, 2]), {"a": [0], "b": [1]})(replies(A, B))
    close(teacher, [[0.9, 0.1], [0.4, 0.6]], [[1, 0.5], [0, 0.5]])


def test_true_labels():
    """Row 1 is of class 1; row 2 of a class that has no column, and is not taught."""
    teacher = true_labels(np.array(["b", "z"]), ["a", "b"])(replies(A, B))
    close(teacher, [[0, 1], [0.5, 0.5]], [[0.5, 0], [0.5, 0]])
    assert teacher.taught.tolist() == [True, False]


def test_a_temperature_is_a_number_or_auto():
    with pytest.raises(InvalidInput, match="'automatic'"):
        suwa("automatic")


@pytest.mark.parametrize("rule", [suwa, entropy_weighted, sharpened_mean])
@pytest.mark.parametrize("temperature", [0, -1, float("nan")])
def test_a_temperature_is_positive(rule, temperature):
    with pytest.raises(InvalidInput, match="temperature is"):
        rule(temperature=temperature)


@pytest.mark.parametrize("exponent", [0, -1, float("nan"), float("inf")])
def test_an_exponent_is_positive(exponent):
    with pytest.raises(InvalidInput, match="exponent is"):
        power_sharpened_mean(exponent=exponent)


@pytest.mark.parametrize("share", [-0.1, 0.5, float("nan")])
def test_less_than_half_is_cut(share):
    with pytest.raises(InvalidInput, match="share is"):
        trimmed_mean(share=share)
