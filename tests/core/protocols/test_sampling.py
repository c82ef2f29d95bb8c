"""Who takes part in a round, and how often."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.protocols.sampling import inclusion, participants, party_count

NAMES = ("a", "b", "c", "d")


def network(seed: int = 0, parties=NAMES):
    return SimpleNamespace(parties=parties, agreed=SimpleNamespace(seed=seed, answering=tuple))


def test_inclusion_is_proportional():
    """C q_j / Σ q = 2 (1, 2, 3, 4) / 10."""
    shares = inclusion({"d": 4, "c": 3, "b": 2, "a": 1}, NAMES, 2)
    np.testing.assert_allclose(shares, [0.2, 0.4, 0.6, 0.8])


@pytest.mark.parametrize(
    ("given", "count"),
    [((1, 2, 3, 4), 1), ((1, 2, 3, 4), 2), ((1, 1, 1, 1), 3), ((0, 1, 2, 3), 2), ((1, 1, 0, 0), 2)],
    ids=["one at a time", "two", "alike", "never and always", "always the same"],
)
def test_parties_take_part_as_often_as_they_should(given, count):
    """Within four standard deviations over 4000 rounds; a probability of 0 or 1 is kept exactly."""
    probabilities, rounds = dict(zip(NAMES, given, strict=True)), 4000
    drawn = [
        participants(network(), count, round=t, probabilities=probabilities)
        for t in range(1, rounds + 1)
    ]
    assert {len(set(chosen)) for chosen in drawn} == {count}
    assert all(chosen == tuple(sorted(chosen)) for chosen in drawn)
    seen = np.array([sum(name in chosen for chosen in drawn) for name in NAMES]) / rounds
    expected = inclusion(probabilities, NAMES, count)
    deviation = np.sqrt(expected * (1 - expected) / rounds)
    assert (np.abs(seen - expected) <= 4 * deviation + 1e-12).all()


def test_every_pair_can_meet():
    """The order is random, so that neighbours on the line are not always apart."""
    probabilities = dict.fromkeys(NAMES, 1.0)
    drawn = {participants(network(), 2, round=t, probabilities=probabilities) for t in range(200)}
    assert len(drawn) == 6


def test_draws_are_keyed_by_seed_and_round():
    probabilities = dict(zip(NAMES, (1, 2, 3, 4), strict=True))

    def drawn(seed: int) -> list[tuple[str, ...]]:
        asked = network(seed)
        return [participants(asked, 2, round=t, probabilities=probabilities) for t in range(20)]

    assert drawn(0) == drawn(0) != drawn(1)


def test_all_are_all():
    assert participants(network(), 1.0, round=1, probabilities=dict.fromkeys(NAMES, 3)) == NAMES
    assert participants(network(), 4, round=1) == NAMES


@pytest.mark.parametrize(
    ("participation", "of", "count"), [(3, 10, 3), (0.25, 10, 3), (0.24, 10, 2), (0.01, 10, 1)]
)
def test_a_share_is_rounded_half_up_and_at_least_one(participation, of, count):
    assert party_count(participation, of) == count


@pytest.mark.parametrize(
    ("probabilities", "count", "what", "mend"),
    [
        ({"a": 1, "b": 1, "c": 1, "e": 1}, 1, "no party is called 'e'", "Known: a, b, c, d"),
        ({"a": 1, "b": 1}, 1, "there is none for c, d", "0 for a party"),
        ({"a": 1, "b": -1, "c": 1, "d": 1}, 1, "that of 'b' is -1", "0 or more"),
        ({"a": 1, "b": float("nan"), "c": 1, "d": 1}, 1, "that of 'b' is nan", "0 or more"),
        ({"a": 0, "b": 0, "c": 0, "d": 0}, 1, "all are 0", "more than 0"),
        ({"a": 1, "b": 1, "c": 1, "d": 3}, 3, "'d' would take part with probability 1.5", "most 2"),
        ({"a": 0, "b": 1, "c": 1, "d": 1}, 4, "with 4 parties a round, 'b'", "at most 3"),
    ],
)
def test_probabilities_that_cannot_be(probabilities, count, what, mend):
    with pytest.raises(InvalidInput) as raised:
        inclusion(probabilities, NAMES, count)
    assert what in str(raised.value) and mend in str(raised.value)


def test_a_number_of_numpy_counts_parties():
    assert party_count(np.int64(1), 4) == 1
