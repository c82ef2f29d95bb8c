"""Parties whose models contradict all others are named, and honest ones of whatever classes are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.aggregation.base import Stack
from consilience.aggregation.contradiction import _kappa, contradicting

CLASSES = ("cat", "dog", "owl")


def honest(seed: int = 0, m: int = 5, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and ratios: each party has rows of two classes of three and is right on these, as a rule."""
    rng = np.random.default_rng(seed)
    right = np.eye(3)[rng.integers(3, size=n)]
    held = np.array([np.roll([1, 1, 0], c) for c in range(m)])
    sure = right * held[:, None] + 0.15 * rng.random((m, n, 3)) + 0.3 * held[:, None]
    near = right * held[:, None] + 0.1 * rng.normal(size=(m, n, 3))
    return sure / sure.sum(axis=2, keepdims=True), near


def named(outputs: np.ndarray, near: np.ndarray) -> list[str]:
    parties = tuple("abcdefgh"[: len(outputs)])
    return [said for _, said in contradicting(Stack(parties, outputs, {}, CLASSES), near)]


def test_agreement_beyond_chance_by_hand():
    """Of 10 rows 8 on the diagonal, marginals (6, 4) and (6, 4): (0.8 - 0.52) / 0.48."""
    assert _kappa(np.array([[5.0, 1.0], [1.0, 3.0]])) == pytest.approx(0.28 / 0.48)


@given(st.integers(0, 2**32), st.integers(3, 8))
def test_honest_parties_of_different_classes_are_not_named(seed, m):
    assert named(*honest(seed, m)) == []


def test_another_order_of_classes_is_named_and_mended():
    outputs, near = honest()
    outputs[1] = outputs[1][:, [0, 2, 1]]  # says dog for owl, and owl for dog
    assert named(outputs, near) == [
        "b contradicts all others on rows near its own, its classes may be in another order: "
        "it says 'owl' for 'dog', 'dog' for 'owl'"
    ]


def test_labels_in_another_order_are_named_too():
    """Its own rows say the same as its model; the others' rows do not."""
    outputs, near = honest(m=6)
    outputs[2], near[2] = outputs[2][:, [2, 0, 1]], near[2][:, [2, 0, 1]]
    (said,) = named(outputs, near)
    assert said.startswith("c contradicts all others")


@pytest.mark.parametrize("answer", [[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
def test_a_model_of_one_answer_is_named(answer):
    outputs, near = honest()
    outputs[4] = answer
    (said,) = named(outputs, near)
    assert said == "e says the same of every public row: its model tells nothing apart"


def test_a_party_of_one_class_is_not_named():
    """All rows near its own are cats, and it says so with a chance of 0.9: agreement is that of chance, 0."""
    outputs, near = honest()
    cats = near[0][:, 0] > 0.5
    outputs[4], near[4] = [0.9, 0.1, 0.0], 0.0
    outputs[4, ~cats] = [0.8, 0.1, 0.1]
    near[4, cats, 0], near[:, cats, 1:] = 1.0, 0.0
    assert named(outputs, near) == []


def test_who_agrees_with_everybodys_rows_is_not_named_for_the_few_of_others():
    """Owls near e are its own, which it knows; the few rows of others there are dogs, which it calls cats."""
    outputs, near = honest(m=6)
    right = near.sum(axis=0).argmax(axis=1)
    outputs[4], near[4] = np.eye(3)[[1, 0, 2]][right], 4 * np.eye(3)[right] * (right == 2)[:, None]
    near[4, :, :2] = 0.4 * np.eye(3)[[1, 0, 2]][right][:, :2]
    near[:4, right == 2], near[5, right == 2] = 0.0, 0.0
    assert named(outputs, near) == []


def test_who_cannot_be_judged_is_not():
    """Two accuse one another alike; and of few rows nothing is known."""
    outputs, near = honest()
    outputs[1] = outputs[1][:, [0, 2, 1]]
    assert named(outputs[:2], near[:2]) == []
    assert named(outputs, 0.01 * near) == []


def apart(near: np.ndarray) -> np.ndarray:
    """The rows, with those of the parties in different places."""
    alone = np.zeros_like(near)
    for c in range(len(near)):
        alone[c, c :: len(near)] = near[c, c :: len(near)]
    return alone


def test_where_nobody_else_has_rows_its_own_speak_for_a_party_or_against_it():
    outputs, near = honest()
    assert named(outputs, apart(near)) == []
    outputs[1] = outputs[1][:, [0, 2, 1]]
    (said,) = named(outputs, apart(near))
    assert said.startswith(
        "b contradicts all others on rows near its own: its answers and everybody's"
    )


def test_a_model_trained_on_shuffled_labels_is_named():
    """It goes with no rows, and its own have the shuffled labels."""
    outputs, near = honest()
    order = np.random.default_rng(0).permutation(len(outputs[2]))
    outputs[2] = outputs[2][order]
    (said,) = named(outputs, near)
    assert said.startswith("c contradicts all others")


def test_whoever_claims_to_know_everything_counts_for_no_more_than_the_others():
    """A million rows of all classes at every place accuse nobody; their sender is told by its answers."""
    outputs, near = honest()
    outputs[3], near[3] = np.roll(outputs[3], 1, axis=1), 1e6
    (said,) = named(outputs, near)
    assert said.startswith("d contradicts all others")
