"""Metrics by hand: over all rows, and over own rows by weight."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.metrics.metrics import area_under_curve, metrics_of

SAID = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
TRUE = np.eye(2)[[0, 1, 1, 0]]


def test_all_rows_and_own_rows_by_hand() -> None:
    """Rows 0 and 2 are right. Of own rows, 0, 1 and 2 with weights 2, 1, 1, three quarters are.

    Each row lies in a bin of its own of 15 (0.9, 0.6, 0.7, 0.8 lie in 13, 9, 10, 12), with gaps 0.1, 0.6,
    0.3 and 0.8 between rightness and probability: their mean is 0.45, by weight
    (2·0.1 + 0.6 + 0.3)/4 = 0.275.
    Of rows of class 1, at 0.4 and 0.7, and class 0, at 0.1 and 0.8, two of four pairs are in order; of own
    rows, class 0 lies at 0.1 alone, below both.
    """
    found = metrics_of(SAID, TRUE, np.array([2.0, 1.0, 1.0, 0.0]))
    expected = {
        "accuracy": 0.5,
        "accuracy_own": 0.75,
        "log_loss": -np.log([0.9, 0.4, 0.7, 0.2]).mean(),
        "log_loss_own": -(2 * np.log(0.9) + np.log(0.4) + np.log(0.7)) / 4,
        "balanced_accuracy": 0.5,
        "balanced_accuracy_own": 0.75,  # all of class 0, half of class 1
        "ece": 0.45,
        "ece_own": 0.275,
        "brier": 0.275,  # (0.01 + 0.36 + 0.09 + 0.64) / 4
        "brier_own": 0.1175,  # (0.02 + 0.36 + 0.09) / 4
        "auc": 0.5,
        "auc_own": 1.0,
        "average_precision": 2 / 3,  # of class 1 (1/2 + 2/3) / 2, of class 0 (1 + 1/2) / 2
        "average_precision_own": 1.0,
    }
    assert found == pytest.approx(expected)


def test_rows_of_one_bin_make_up_for_one_another() -> None:
    """Four rows at 0.75, three of them right: accuracy is the mean probability, and the error is 0."""
    said = np.tile([0.75, 0.25], (4, 1))
    assert metrics_of(said, np.eye(2)[[0, 0, 0, 1]])["ece"] == pytest.approx(0)
    assert metrics_of(said, np.eye(2)[[1, 1, 1, 1]])["ece"] == pytest.approx(0.75)


def test_a_probability_of_one_has_a_bin() -> None:
    assert metrics_of(np.eye(2), np.eye(2))["ece"] == 0


def test_one_class_has_no_curve_and_no_own_rows_no_metrics() -> None:
    found = metrics_of(SAID[:1], TRUE[:1], np.zeros(1))
    assert set(found) == {"accuracy", "log_loss", "balanced_accuracy", "ece", "brier"}


def test_values_by_hand() -> None:
    """Errors 1 and 4; of own rows, 3 to 1, (3 + 4)/4. Targets 0 and 4 vary by 4; by weight by (3·1 + 9)/4."""
    found = metrics_of(
        np.array([[1.0], [2.0]]),
        np.array([[0.0], [4.0]]),
        np.array([3.0, 1.0]),
        kind="regression",
    )
    expected = {"mse": 2.5, "mse_own": 1.75, "r2": 1 - 2.5 / 4, "r2_own": 1 - 1.75 / 3}
    assert found == pytest.approx(expected)


def test_the_curve_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    scores, positive = rng.integers(5, size=40) / 4, rng.random(40) < 0.5
    weights = rng.random(40)
    assert area_under_curve(scores, positive, weights) == pytest.approx(
        roc_auc_score(positive, scores, sample_weight=weights)
    )


def test_of_more_classes_the_brier_score_is_the_whole_squared_distance() -> None:
    """(0.5, 0.3, 0.2) against the first class: 0.25 + 0.09 + 0.04."""
    found = metrics_of(np.array([[0.5, 0.3, 0.2]]), np.eye(3)[:1])
    assert found["brier"] == pytest.approx(0.38)


def test_rounding_takes_no_metric_out_of_its_range() -> None:
    targets = np.eye(3)[np.arange(300) % 3]
    for seed in range(200):
        weights = np.random.default_rng(seed).random(300)
        found = metrics_of(targets, targets, weights)
        assert 1 - 1e-9 < found["accuracy_own"] <= 1


def test_constant_targets_have_no_variance_to_explain():
    """0.1 has no exact sum in binary: its spread is of rounding size, and not 0."""
    targets = np.full((7, 1), 0.1)
    assert metrics_of(targets + 1, targets, kind="regression")["r2"] == 0
