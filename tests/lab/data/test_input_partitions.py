"""Partitions by inputs: what each party gets, and that test rows are dealt alike."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data import partition
from consilience.tables.dataset import as_texts


def dealt(name: str, X: np.ndarray, parties: int, **options: object) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [
        rows.tolist() for rows in partition(name, np.zeros(len(X)), parties, rng, X=X, **options)
    ]


def test_blocks_of_a_column_and_the_test_rows_between_them() -> None:
    """Private rows 0 to 5 in the order 1, 2, 3 | 7, 8, 9; of test rows 0 and 4 lie in the first block."""
    column = np.array([7, 1, 8, 2, 9, 3, 0, 4, 8.5, 99])[:, None]
    X = np.hstack([np.ones_like(column), column])
    assert dealt("sorted", X, 2, column=1, fitted=6) == [[1, 3, 5, 6], [0, 2, 4, 7, 8, 9]]


def test_rows_of_one_value_are_dealt_to_every_block_that_holds_it() -> None:
    """Of 1,000 private zeros each of two parties has 500, and of as many test rows about half."""
    first, second = dealt("sorted", np.zeros((2000, 1)), 2, column=0, fitted=1000)
    assert sum(row < 1000 for row in first) == sum(row < 1000 for row in second) == 500
    assert 440 < sum(row >= 1000 for row in first) < 560


def test_a_test_row_between_two_blocks_goes_to_the_upper() -> None:
    """4 lies between 3, the last of the first block, and 7: five private values stand below it."""
    X = np.array([1.0, 2, 3, 7, 8, 9, 4])[:, None]
    assert dealt("sorted", X, 2, column=0, fitted=6)[1] == [3, 4, 5, 6]


def test_clusters_hold_their_neighbours_and_test_rows_go_to_the_nearest() -> None:
    rng = np.random.default_rng(1)
    centres = np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)
    private = centres + rng.normal(size=(60, 2))
    X = np.concatenate([private, [[1, 1], [8, 1], [1, 8]]])
    parts = dealt("clusters", X, 3, fitted=60)
    found = sorted(sorted(part) for part in parts)
    assert found == [[*range(20 * i, 20 * (i + 1)), 60 + i] for i in range(3)]


def test_a_portion_is_dealt_at_random() -> None:
    """With portion 0.4 of two blocks 0.8 of a party's rows are of its own block; with 1 it is half."""
    X = np.arange(4000.0)[:, None]
    for portion, share in ((0.0, 1.0), (0.4, 0.8), (1.0, 0.5)):
        first, _ = dealt("sorted", X, 2, column=0, portion=portion)
        assert np.mean(np.array(first) < 2000) == pytest.approx(share, abs=0.04)


def test_texts_of_two_topics_are_two_clusters() -> None:
    rng = np.random.default_rng(2)
    topics = (["goal match team league", "flour oven sugar butter"] * 20)[:40]
    X = as_texts([" ".join(rng.permutation(topic.split())) for topic in topics])
    assert sorted(dealt("clusters", X, 2)) == [list(range(0, 40, 2)), list(range(1, 40, 2))]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("sorted", {"column": 2}, "column is 2"),
        ("sorted", {"portion": 1.5}, "portion is 1.5"),
        ("clusters", {"parties": 9}, "8 rows cannot be dealt to 9 parties"),
    ],
)
def test_what_cannot_be_dealt(name: str, options: dict[str, object], why: str) -> None:
    X = np.random.default_rng(0).normal(size=(8, 2))
    with pytest.raises(InvalidInput, match=why):
        dealt(name, X, options.pop("parties", 2), **options)


def test_a_lonely_outlier_is_no_party() -> None:
    X = np.concatenate([np.zeros((50, 1)), np.full((50, 1), 0.001), [[1e6]]])
    with pytest.raises(InvalidInput, match="left a party with less than 10% of an equal share"):
        dealt("clusters", X, 2)
