from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InvalidInput
from consilience.lab.data import PARTITIONS, partition, unequal
from consilience.lab.data.party_sizes import apportion


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def counts(y: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in parts])


# Ten classes of 20 rows in random order, and options that every number of parties can have.
Y = rng(9).permutation(np.repeat(np.arange(10), 20))
COVERING: list[tuple[str, Callable[[int], dict[str, Any]]]] = [
    ("iid", lambda p: {}),
    ("iid", lambda p: {"sizes": "power-law", "spread": 1.5}),
    ("iid", lambda p: {"sizes": list(range(1, p + 1))}),
    ("classes", lambda p: {"per_party": -(-10 // p)}),
    ("classes", lambda p: {"per_party": 10, "sizes": "lognormal"}),
    ("dirichlet", lambda p: {"alpha": 0.5}),
    ("shards", lambda p: {"share": 0.3}),
    ("mixing", lambda p: {"portion": 0.3}),
    ("group", lambda p: {"group": (np.arange(200) % p).astype(str)}),
    ("clusters", lambda p: {"X": rng(3).uniform(size=(200, 2)), "portion": 0.2}),
    ("sorted", lambda p: {"X": rng(3).uniform(size=(200, 2)), "column": 1, "portion": 0.2}),
]


@pytest.mark.parametrize(("name", "options"), COVERING)
@given(parties=st.integers(2, 10), seed=st.integers(0, 99))
def test_every_row_goes_to_exactly_one_party(name, options, parties, seed) -> None:
    parts = partition(name, Y, parties, rng(seed), **options(parties))
    assert len(parts) == parties
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(200))
    assert all(len(rows) and np.all(np.diff(rows) > 0) for rows in parts)
    again = partition(name, Y, parties, rng(seed), **options(parties))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [("classes", {"per_party": 3}), ("dirichlet", {"alpha": 0.3}), ("shards", {"share": 0.0})],
)
@given(seed=st.integers(0, 99))
def test_who_holds_what_does_not_depend_on_the_order_of_rows(name, options, seed) -> None:
    shuffled = Y[rng(seed + 1).permutation(len(Y))]
    parts = [partition(name, y, 5, rng(seed), **options) for y in (Y, shuffled)]
    assert np.array_equal(counts(Y, parts[0]), counts(shuffled, parts[1]))


def test_all_partitions_are_covered_above() -> None:
    assert {name for name, _ in COVERING} == set(PARTITIONS)


def test_iid_parts_differ_by_at_most_one_row() -> None:
    assert sorted(map(len, partition("iid", np.zeros(11), 4, rng()))) == [2, 3, 3, 3]


def test_iid_follows_the_shares_given() -> None:
    """Shares 3 : 1 : 1 of 10 rows are 6, 2 and 2."""
    assert list(map(len, partition("iid", np.zeros(10), 3, rng(), sizes=[3, 1, 1]))) == [6, 2, 2]


@given(
    n=st.integers(1, 300),
    weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30).map(np.array),
)
def test_apportion_sums_up_and_leaves_nobody_empty(n, weights) -> None:
    if n < len(weights):
        n = len(weights)
    got = apportion(n, weights / weights.sum())
    assert got.sum() == n
    assert got.min() >= 1


def test_power_law_shares() -> None:
    """1, 1/2 and 1/4 for spread 1 at ranks 1, 2, 4: twelfths of 1 + 1/2 + 1/3 + 1/4 = 25/12."""
    assert sorted(unequal("power-law", 4, rng(), 1.0)) == pytest.approx(
        [3 / 25, 4 / 25, 6 / 25, 12 / 25]
    )
    assert unequal("lognormal", 4, rng(), 0.0) == pytest.approx([0.25] * 4)


@given(parties=st.integers(1, 25), per_party=st.integers(1, 10), seed=st.integers(0, 99))
def test_classes_are_held_as_evenly_as_possible(parties, per_party, seed) -> None:
    if parties * per_party < 10:
        with pytest.raises(InvalidInput, match="without a holder"):
            partition("classes", Y, parties, rng(seed), per_party=per_party)
        return
    if parties * per_party > 200:  # more holders than rows of a class
        return
    held = counts(Y, partition("classes", Y, parties, rng(seed), per_party=per_party))
    assert np.all((held > 0).sum(axis=1) == per_party)
    holders = (held > 0).sum(axis=0)
    assert holders.min() >= 1 and np.ptp(holders) <= 1
    for c in range(10):  # and the rows of a class are divided evenly
        assert np.ptp(held[held[:, c] > 0, c]) <= 1


def test_classes_with_a_number_of_samples() -> None:
    """Two holders per class have 10 rows of it each; 7 samples of two classes are 4 and 3."""
    held = counts(Y, partition("classes", Y, 10, rng(), per_party=2, samples=7))
    assert all(sorted(row[row > 0]) == [3, 4] for row in held)


def test_classes_with_unequal_holders() -> None:
    """Both hold all ten classes; 3 : 1 of 20 rows are 15 and 5."""
    held = counts(Y, partition("classes", Y, 2, rng(), per_party=10, sizes=[3, 1]))
    assert held.tolist() == [[15] * 10, [5] * 10]


def test_class_codes_without_rows_are_left_out() -> None:
    y = np.array([0, 0, 5, 5, 9, 9])
    held = counts(y, partition("classes", y, 3, rng(), per_party=1))
    assert sorted(held.sum(axis=0)) == [0] * 7 + [2] * 3


def test_dirichlet_goes_from_single_classes_to_even() -> None:
    """Mean share of a party's largest class: near 1 for a small alpha, near 1/10 for a large."""
    y = np.repeat(np.arange(10), 500)

    def largest(alpha: float) -> float:
        held = counts(y, partition("dirichlet", y, 5, rng(), alpha=alpha))
        return float((held.max(axis=1) / held.sum(axis=1)).mean())

    assert largest(0.05) > 0.3 > 0.11 > largest(1e4)


def test_shards_by_hand() -> None:
    """Share 0 of labels 0 0 1 1 2 2 over three parties: one label each, in sequence."""
    y = np.array([2, 0, 1, 0, 1, 2])
    assert [list(r) for r in partition("shards", y, 3, rng(), share=0)] == [[1, 3], [2, 4], [0, 5]]


@given(n=st.integers(10, 60), parties=st.integers(1, 10), share=st.floats(0, 1))
def test_shards_parts_differ_by_at_most_one_row(n, parties, share) -> None:
    sizes = [
        len(rows) for rows in partition("shards", np.arange(n) % 3, parties, rng(), share=share)
    ]
    assert max(sizes) - min(sizes) <= 1


def test_shards_share() -> None:
    """20 % of 200 rows dealt evenly is 8 a party; at most 8 rows of others' labels a party."""
    held = counts(Y, partition("shards", Y, 5, rng(), share=0.2))
    assert held.sum(axis=1).tolist() == [40] * 5
    sorted_part = counts(Y, partition("shards", Y, 5, rng(), share=0))
    assert np.all((sorted_part > 0).sum(axis=1) == 2)
    own = [held[i, sorted_part[i] > 0].sum() for i in range(5)]
    assert min(own) >= 40 - 8 - 2


def test_mixing_blocks_of_two_and_five_agents() -> None:
    """Two agents: 0-4 and 5-9; five: 2(i-1) and 2i-1."""
    for parties in (2, 5):
        held = counts(Y, partition("mixing", Y, parties, rng(), portion=0)) > 0
        assert [list(np.flatnonzero(row)) for row in held] == [
            list(block) for block in np.split(np.arange(10), parties)
        ]


def test_mixing_portion() -> None:
    """Of 100 rows each, 10 % = 10 go into the pool of 20; 10 come back: at most 10 strangers."""
    held = counts(Y, partition("mixing", Y, 2, rng(), portion=0.1))
    assert held.sum(axis=1).tolist() == [100, 100]
    assert 0 < held[0, 5:].sum() <= 10
    assert held[0, 5:].sum() == held[1, :5].sum()
    even = counts(Y, partition("mixing", Y, 2, rng(), portion=1))
    assert even[0, :5].sum() == pytest.approx(50, abs=20)


def test_group_is_alphabetical() -> None:
    parts = partition("group", np.zeros(4), 2, rng(), group=["va", "bern", "va", "bern"])
    assert [list(rows) for rows in parts] == [[1, 3], [0, 2]]


@pytest.mark.parametrize(
    ("name", "parties", "options", "said"),
    [
        ("idd", 2, {}, "Did you mean 'iid'"),
        ("dirichlet", 2, {"alfa": 1}, "Did you mean 'alpha'"),
        ("dirichlet", 2, {}, "needs the option 'alpha'"),
        ("iid", 0, {}, "parties is 0"),
        ("iid", 201, {}, "200 rows cannot be dealt to 201 parties"),
        ("iid", 2, {"sizes": [1, 2, 3]}, "2 positive shares"),
        ("iid", 2, {"sizes": [1, 0]}, "2 positive shares"),
        ("iid", 2, {"sizes": "powerlaw"}, "Did you mean 'power-law'"),
        ("iid", 2, {"sizes": "lognormal", "spread": -1}, "spread is"),
        ("classes", 5, {"per_party": 11}, "11 classes per party, and there are 10"),
        ("classes", 5, {"per_party": 0}, "0 classes per party"),
        ("classes", 3, {"per_party": 2}, "Give each at least 4 classes"),
        ("classes", 50, {"per_party": 10}, "class 0 has 20 rows for 50 parties"),
        ("classes", 10, {"per_party": 2, "samples": 30}, "party 0 gets 10 of one"),
        ("classes", 10, {"per_party": 2, "samples": 1}, "1 samples per party"),
        ("classes", 10, {"per_party": 2, "samples": 4, "sizes": "lognormal"}, "only one"),
        ("dirichlet", 5, {"alpha": 0}, "alpha is"),
        ("dirichlet", 5, {"alpha": 1, "min_rows": 41}, "cannot give 5 parties 41"),
        ("dirichlet", 100, {"alpha": 0.001}, "1000 draws with alpha = 0.001"),
        ("shards", 5, {"share": 1.1}, "at least 0 and of at most 1"),
        ("shards", 5, {"share": float("nan")}, "share is"),
        ("mixing", 5, {"portion": -0.1}, "at least 0 and of at most 1"),
        ("mixing", 1, {"portion": 0.1}, "blocks for 2 to 10 parties"),
        ("mixing", 11, {"portion": 0.1}, "blocks for 2 to 10 parties"),
        ("group", 3, {"group": ["a", "b"] * 100}, "Set parties to 2"),
        ("group", 2, {"group": ["a", "b"]}, "200 rows and 2 groups"),
    ],
)
def test_impossible_requests_are_named(name, parties, options, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        partition(name, Y, parties, rng(), **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [("classes", {"per_party": 1}), ("dirichlet", {"alpha": 1}), ("mixing", {"portion": 0})],
)
def test_values_have_no_classes_to_deal_by(name, options) -> None:
    with pytest.raises(InvalidInput, match="needs class labels"):
        partition(name, np.linspace(0, 1, 10), 2, rng(), **options)


def test_labels_may_be_names() -> None:
    codes = np.repeat([0, 1, 2], 6)
    names = np.array(["ill", "so-so", "well"])[codes]
    for name, options in [
        ("mixing", {"portion": 0.5}),
        ("classes", {"per_party": 1}),
        ("shards", {"share": 0.1}),
    ]:
        by_code, by_name = (
            partition(name, y, 3, np.random.default_rng(0), **options) for y in (codes, names)
        )
        assert all(np.array_equal(one, other) for one, other in zip(by_code, by_name, strict=True))
