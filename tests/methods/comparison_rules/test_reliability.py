"""The rules that weigh or leave out parties row by row, against numbers worked out by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.methods.comparison_rules.reliability import (
    certainty_weighted,
    selective_mean,
    variance_weighted,
)
from consilience.methods.comparison_rules.scores import Certainties, Selection
from helpers.replies import replies


def close(teacher, values, weights=None) -> None:
    np.testing.assert_allclose(teacher.values, values, rtol=1e-6, atol=1e-9)
    if weights is not None:
        np.testing.assert_allclose(teacher.weights, weights, rtol=1e-6)


def test_variance_weighted():
    """Logits (2, 0) have variance 1 and (0, 4) variance 4: weights 1/5 and 4/5, consensus (2/5, 16/5).

    The label is class 1; the first disagrees, alone, and with λ = 1 its softmax e² : 1 has half a say. In
    row 2 all agree, and the label stands alone.
    """
    told = replies([[2, 0], [1, 0]], [[0, 4], [3, 0]], kind="logits")
    q = 1 / (1 + np.exp(-2))
    teacher = variance_weighted(diversity=1)(told)
    close(teacher, [[q / 2, (1 - q) / 2 + 1 / 2], [1, 0]], [[1 / 5, 1 / 10], [4 / 5, 9 / 10]])
    close(variance_weighted()(told), [[q / 21, (1 - q) / 21 + 20 / 21], [1, 0]])
    close(variance_weighted(diversity=0)(told), [[0, 1], [1, 0]])


def test_those_who_disagree_are_weighted_among_themselves():
    """Variances 9, 1 and 4: the consensus (9·6 + 0 + 0, 1·2 + 4·4) / 14 names class 0.

    The other two say (0, 2) and (0, 4), 1/5 and 4/5: logits (0, 18/5). λ = 1.
    """
    told = replies([[6, 0]], [[0, 2]], [[0, 4]], kind="logits")
    q = 1 / (1 + np.exp(-18 / 5))
    close(variance_weighted(diversity=1)(told), [[1 / 2 + (1 - q) / 2, q / 2]])


def test_where_nobody_prefers_a_class_none_is_named():
    """Variance 0 everywhere: equal weights, and the label is shared by all."""
    told = replies([[1, 1, 1]], [[-2, -2, -2]], kind="logits")
    close(variance_weighted()(told), [[1 / 3, 1 / 3, 1 / 3]], [[1 / 2], [1 / 2]])


def test_the_teacher_of_variance_weighting_is_its_papers_loss():
    """The gradient of CE(label) + λ KL(q ‖ p) at logits s is (1 + λ) times that of CE(teacher)."""
    told = replies([[2, 0, 1]], [[0, 4, 0]], kind="logits")
    s, diversity, step = np.array([0.3, -0.2, 0.5]), 0.7, 1e-6
    q = np.exp([2, 0, 1]) / np.exp([2, 0, 1]).sum()
    teacher = variance_weighted(diversity=diversity)(told).values[0].astype(float)

    def paper(s):
        p = np.exp(s) / np.exp(s).sum()
        return -np.log(p[1]) + diversity * (q * np.log(q / p)).sum()

    gradient = [(paper(s + step * e) - paper(s - step * e)) / (2 * step) for e in np.eye(3)]
    p = np.exp(s) / np.exp(s).sum()
    np.testing.assert_allclose(gradient, (1 + diversity) * (p - teacher), atol=1e-6)


def test_certainty_weighted():
    """Row 1: 0.6 and 0.2 weigh 3 : 1, logits 3/4 (ln 16, 0): 8 : 1. Row 2: evenly, (0, ln 3): 1 : 3."""
    told = replies(
        [[log(16), 0], [0, 0]],
        [[0, 0], [0, 2 * log(3)]],
        kind="logits",
        certainties=[[0.6, 1], [0.2, 1]],
    )
    teacher = certainty_weighted()(told)
    close(teacher, [[8 / 9, 1 / 9], [1 / 4, 3 / 4]], [[3 / 4, 1 / 2], [1 / 4, 1 / 2]])


def test_what_certainties_are_asked_with():
    noisy = certainty_weighted(regularization=0.1, epsilon=0.1).options[Certainties]
    assert noisy == {"regularization": 0.1, "epsilon": 0.1, "delta": 1e-5}


def test_selective_mean():
    """Row 1: a alone speaks. Row 2: both, their mean is (0.4, 0.6). Row 3: nobody, not taught; its row is
    the mean of all."""
    told = replies(
        [[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]],
        [[0.5, 0.5], [0.6, 0.4], [0.5, 0.5]],
        selected=[[1, 1, 0], [0, 1, 0]],
    )
    teacher = selective_mean()(told)
    weights = [[1, 1 / 2, 0], [0, 1 / 2, 0]]
    close(teacher, [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], weights)
    assert teacher.taught.tolist() == [True, True, False]


def test_an_ambiguous_teacher_is_not_taught():
    """2 (1 - 0.75) = 0.5 and 2 (1 - 0.5) = 1: the second row is out below 1."""
    told = replies([[0.75, 0.25], [0.5, 0.5]], selected=[[1, 1]])
    assert selective_mean(ambiguity=1)(told).taught is None
    assert selective_mean(ambiguity=0.9)(told).taught.tolist() == [True, False]
    close(selective_mean(ambiguity=0.9)(told), [[0.75, 0.25], [0.5, 0.5]], [[1, 0]])


def test_what_a_selection_is_asked_with():
    options = selective_mean(quantile=0.1, reference="uniform").options
    assert options == {Selection: {"quantile": 0.1, "reference": "uniform"}}


@pytest.mark.parametrize(
    ("rule", "options", "why"),
    [
        (variance_weighted, {"diversity": -0.1}, "diversity is -0.1"),
        (variance_weighted, {"diversity": float("inf")}, "diversity is inf"),
        (certainty_weighted, {"regularization": 0}, "regularization is 0"),
        (certainty_weighted, {"epsilon": 0}, "epsilon is 0"),
        (certainty_weighted, {"epsilon": 1}, "epsilon is 1"),
        (certainty_weighted, {"delta": float("nan")}, "delta is nan"),
        (selective_mean, {"quantile": 1}, "quantile is 1"),
        (selective_mean, {"ambiguity": 0}, "ambiguity is 0"),
        (selective_mean, {"ambiguity": 2.1}, "ambiguity is 2.1"),
        (selective_mean, {"reference": "private"}, "reference is 'private'"),
    ],
)
def test_options_out_of_range(rule, options, why):
    with pytest.raises(InvalidInput, match=why):
        rule(**options)
