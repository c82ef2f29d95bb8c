from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InvalidInput
from consilience.lab.data import take_public

labels = st.lists(st.integers(0, 4), min_size=2, max_size=80).map(np.array)


@given(y=labels, seed=st.integers(0, 99), data=st.data(), stratified=st.booleans())
def test_both_sides_together_are_all_rows(y, seed, data, stratified) -> None:
    count = data.draw(st.integers(1, len(y) - 1))
    stay, public = take_public(y, count, np.random.default_rng(seed), stratified=stratified)
    assert len(public) == count
    assert sorted([*stay, *public]) == list(range(len(y)))
    again = take_public(y, count, np.random.default_rng(seed), stratified=stratified)
    assert np.array_equal(again[1], public)


@given(y=labels, seed=st.integers(0, 99))
def test_no_class_leaves_altogether_where_rows_suffice(y, seed) -> None:
    n_classes = len(np.unique(y))
    count = len(y) - n_classes
    if count:
        stay, _ = take_public(y, count, np.random.default_rng(seed))
        assert len(stay) == len(np.unique(y[stay])) == n_classes


def test_every_class_gives_its_share() -> None:
    """A tenth of 100, 50 and 10 rows is 10, 5 and 1."""
    y = np.repeat([0, 1, 2], [100, 50, 10])
    for seed in range(20):
        _, public = take_public(y, 0.1, np.random.default_rng(seed))
        assert np.abs(np.bincount(y[public], minlength=3) - [10, 5, 1]).max() <= 1


def test_every_row_of_a_class_has_the_same_chance() -> None:
    """Half of ten rows of one class in 4,000 draws: each 2,000 times, sd about 32."""
    y = np.repeat([0, 1], 10)
    rng = np.random.default_rng(0)
    times = sum(np.bincount(take_public(y, 0.5, rng)[1], minlength=20) for _ in range(4000))
    assert np.abs(times - 2000).max() < 5 * 32


def test_values_of_a_regression_are_taken_along_their_range() -> None:
    """Every tenth of the sorted values 0..99: one from each ten, whatever the random start."""
    y = np.random.default_rng(0).permutation(100) / 10
    _, public = take_public(y, 10, np.random.default_rng(1))
    assert sorted(y[public].astype(int)) == list(range(10))


def test_each_group_gives_its_share() -> None:
    group = np.repeat(["a", "b"], [100, 20])
    y = np.tile([0, 1], 60)
    _, public = take_public(y, 0.1, np.random.default_rng(0), group=group)
    assert dict(zip(*np.unique(group[public], return_counts=True), strict=True)) == {
        "a": 10,
        "b": 2,
    }


def test_a_number_is_shared_among_groups_by_their_sizes() -> None:
    """13 of 100, 20 and 10 rows: 10, 2 and 1; of one row and three none of the one is taken."""
    group = np.repeat(["a", "b", "c"], [100, 20, 10])
    _, public = take_public(np.arange(130) % 2, 13, np.random.default_rng(0), group=group)
    assert np.unique(group[public], return_counts=True)[1].tolist() == [10, 2, 1]
    few = np.array(["a", "b", "b", "b"])
    assert take_public(np.zeros(4), 2, np.random.default_rng(0), group=few)[0].tolist()[0] == 0
    with pytest.raises(InvalidInput, match=r"0.1 of 1 rows of group 'a'.*\n.*leave the group out"):
        take_public(np.zeros(4), 0.1, np.random.default_rng(0), group=few)


@pytest.mark.parametrize("amount", [0, 4, 5, -1, 0.0, 1.0, 1.5, 0.01, float("nan")])
def test_an_impossible_amount_is_refused(amount) -> None:
    with pytest.raises(InvalidInput, match="of 4 rows"):
        take_public(np.array([0, 1, 0, 1]), amount, np.random.default_rng(0))


def test_a_rare_class_has_its_chance() -> None:
    """Class 1 has two rows, one of which stays; the other is one of 11 of which 3 are taken.

    In 1,100 draws that is 300 times, sd about 15.
    """
    y = np.repeat([0, 1], [11, 2])
    rng = np.random.default_rng(0)
    times = sum(int(y[take_public(y, 3, rng)[1]].sum()) for _ in range(1100))
    assert abs(times - 300) < 5 * 15
