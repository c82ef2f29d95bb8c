"""Class shares that are read off answers."""

import numpy as np
import pytest

from consilience.privacy.attacks.class_shares import (
    divergence,
    shares_from_predictions,
    shares_from_sums,
)


def test_shares_are_those_of_a_party_whose_classes_are_weighed_by_them() -> None:
    """On public rows of known class, a party with shares 3 : 1 says one three times as often."""
    reference = np.array([[0.8, 0.2], [0.2, 0.8]])
    answers = reference * [1.5, 0.5]
    assert shares_from_predictions(answers, reference) == pytest.approx([0.75, 0.25])


def test_noise_alone_has_no_shares() -> None:
    assert shares_from_sums(np.array([-1.0, -2.0])).tolist() == [0.5, 0.5]


def test_a_class_that_is_missed_costs_a_finite_amount() -> None:
    assert divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == pytest.approx(2.76, abs=0.01)
    assert divergence(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx(0, abs=2e-3)
