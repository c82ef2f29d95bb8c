"""Three parties, two public rows, one target: a says 1 and 0, b says 2 and 0, c says 9 and 6."""

from __future__ import annotations

import numpy as np

from consilience.core.aggregation import mean, median, weighted_mean
from consilience.lab.experiments.oracles import true_labels
from helpers.replies import replies

SAID = ([[1], [0]], [[2], [0]], [[9], [6]])


def test_mean():
    """12/3 and 6/3."""
    teacher = mean()(replies(*SAID, kind="values"))
    np.testing.assert_allclose(teacher.values, [[4], [2]])
    np.testing.assert_allclose(teacher.weights, np.full((3, 2), 1 / 3))


def test_weighted_mean():
    """Rows 10, 30 and 60 of 100: 0.1 + 0.6 + 5.4 = 6.1, and 3.6."""
    teacher = weighted_mean()(replies(*SAID, kind="values", rows=[10, 30, 60]))
    np.testing.assert_allclose(teacher.values, [[6.1], [3.6]], rtol=1e-6)
    np.testing.assert_allclose(teacher.weights, [[0.1, 0.1], [0.3, 0.3], [0.6, 0.6]])


def test_median_is_not_moved_by_one_party():
    teacher = median()(replies(*SAID, kind="values"))
    np.testing.assert_allclose(teacher.values, [[2], [0]])
    assert teacher.weights is None


def test_true_labels_are_values():
    teacher = true_labels(np.array([5.0, 7.0]), None)(replies(*SAID, kind="values"))
    np.testing.assert_array_equal(teacher.values, [[5], [7]])
