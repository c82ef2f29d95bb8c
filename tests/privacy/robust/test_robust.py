"""Robust rules against numbers worked out by hand; two classes, of which class 0 is given."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from consilience.core.aggregation.base import Stack
from consilience.core.aggregation.guard import Guard, SecretLabels
from consilience.core.errors import InvalidInput
from consilience.core.messages.wire import decode, encode
from consilience.core.protocols import RoundState
from consilience.privacy.robust.rules import (
    centred_clipping,
    cronus,
    exp_guard,
    geometric_median,
    nearest_neighbours,
)
from helpers.replies import replies


def said(*first: float):
    """Replies of parties that give class 0 these probabilities on the one row."""
    return replies(*([[p, 1 - p]] for p in first))


def of_class_0(rule, *first: float, memory=None) -> float:
    return float(rule(said(*first), memory).values[0, 0])


def test_geometric_median_is_where_the_diagonals_cross():
    middle = np.full(3, 1 / 3)
    along, across = np.array([0.3, -0.3, 0.0]), np.array([0.1, 0.1, -0.2])
    corners = np.stack([middle + along, middle - along / 3, middle + across, middle - across / 2])
    values, weights, *_ = geometric_median().rule(Stack(tuple("abcd"), corners[:, None]))
    np.testing.assert_allclose(values[0], middle, atol=1e-6)
    np.testing.assert_allclose(weights.sum(axis=0), 1)


def test_cronus_by_hand():
    """Of five f = 2: mean 0.59, 0 is dropped; mean 0.7375, 0.5 is dropped; (0.9 + 0.8 + 0.75) / 3."""
    assert of_class_0(cronus(), 0.9, 0.8, 0.75, 0.5, 0.0) == pytest.approx(2.45 / 3)
    assert of_class_0(cronus(tolerates=0), 0.9, 0.0) == pytest.approx(0.45)


def test_nearest_neighbours_by_hand():
    """With f = 1 each is the mean of its nearest two: 0.85, 0.85, 0.4."""
    assert of_class_0(nearest_neighbours(), 0.9, 0.8, 0.0) == pytest.approx(0.85)
    assert of_class_0(nearest_neighbours("avg"), 0.9, 0.8, 0.0) == pytest.approx(0.7)


def test_centred_clipping_by_hand():
    """From 0.8 three steps of a third of the sum; the liar's is 0.5 / √2 long: 0.71548, 0.68731, 0.67792."""
    rule = centred_clipping()
    teacher = rule(said(0.9, 0.8, 0.0))
    assert teacher.values[0, 0] == pytest.approx(0.67792, abs=1e-5)
    assert teacher.memory["rule"]["centre"][0, 0] == pytest.approx(0.67792, abs=1e-5)
    assert of_class_0(rule, 0.9, 0.8, 0.0, memory=teacher.memory) < 0.677


def test_exp_guard_remembers():
    """The liar is 0.9 √2 from the median: exp(-2 · 1.27279) of the others' weight, then its square."""
    rule, weight = exp_guard(), np.exp(-1.8 * np.sqrt(2))
    first = rule(said(0.9, 0.9, 0.0))
    assert first.values[0, 0] == pytest.approx(1.8 / (2 + weight), abs=1e-5)
    again = of_class_0(rule, 0.9, 0.9, 0.0, memory=first.memory)
    assert again == pytest.approx(1.8 / (2 + weight**2), abs=1e-5)


def test_no_rule_bears_half():
    with pytest.raises(InvalidInput, match="2 wrong parties of 4"):
        cronus(tolerates=2)(said(0.9, 0.8, 0.1, 0.0))


def test_what_a_rule_and_its_guard_remember_survives_a_checkpoint():
    """Resumed after the first round they go on as if nothing had been: c has lost its voice, d stays out."""
    rows = np.tile(np.eye(2), (4, 1))
    secret = SecretLabels(np.arange(4), ("class 0", "class 1") * 2)
    rule = dataclasses.replace(exp_guard(), screen=Guard(secret=secret, watch=False))
    first = rule(replies(rows, rows, 0.5 * rows + 0.25, rows[:, ::-1]))
    (state,) = decode(encode([RoundState(round=1, trust=first.memory)]))
    later = replies(rows, rows, rows, rows)
    whole, resumed = rule(later, first.memory), rule(later, state.trust)
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert resumed.notes == whole.notes
    assert resumed.weights[2, 0] < resumed.weights[0, 0]
    assert not resumed.weights[3].any()
    assert rule(later).weights[3].all()
