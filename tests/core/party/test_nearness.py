"""Public rows that are copies or a crowd, and own rows that are among them; honest ones are neither."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from consilience.core.messages.columns import Column, Schema
from consilience.core.messages.schema import Public
from consilience.core.party.nearness import CHANCE, Nearness, PublicComparison

RNG = np.random.default_rng(0)
DIGITS = load_digits()
WORDS = np.array([f"w{number}" for number in range(500)])


def texts(count: int, words: int = 30) -> np.ndarray:
    return np.array([" ".join(RNG.choice(WORDS, words)) for _ in range(count)], dtype=object)


def changed(text: str, count: int) -> np.ndarray:
    """The same text, each time with another word in a place."""
    copies = []
    for _ in range(count):
        words = text.split()
        words[RNG.integers(len(words))] = RNG.choice(WORDS)
        copies.append(" ".join(words))
    return np.array(copies, dtype=object)


def table(count: int) -> np.ndarray:
    """Patients: measures on scales of their own, and yes or no."""
    measured = RNG.normal([60, 130, 240, 150], [9, 18, 50, 25], (count, 4)).round()
    return np.column_stack([measured, RNG.random((count, 5)) < 0.3])


HONEST = {
    "patients": (table(200), table(300)),
    "few patients": (table(30), table(400)),
    "few public rows": (table(300), table(12)),
    "two of them": (table(300), table(2)),
    "another hospital": (table(200), table(200) + np.array([8, 5, -30, 0, 0, 0, 0, 0, 0])),
    "yes or no": (RNG.random((200, 8)) < 0.3, RNG.random((300, 8)) < 0.4),
    "two columns of yes or no": (RNG.random((200, 2)) < 0.3, RNG.random((300, 2)) < 0.6),
    "one column": (RNG.normal(size=(50, 1)), RNG.normal(size=(1000, 1))),
    "digits": (DIGITS.data[:200], DIGITS.data[200:900]),
    "digits of one class": (DIGITS.data[:200], DIGITS.data[200:][DIGITS.target[200:] == 1]),
    "pictures": (DIGITS.images[:200], DIGITS.images[1000:]),
    "texts": (texts(100), texts(200)),
    "more than are looked at": (RNG.normal(size=(3000, 3)), RNG.normal(size=(2500, 3))),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_public_rows_are_no_crowd(name: str) -> None:
    own, public = HONEST[name]
    assert Nearness(own).crowded(public) is False


def ball(row: np.ndarray, count: int, radius: float) -> np.ndarray:
    return row + radius * table(2000).std(axis=0) * RNG.normal(size=(count, row.size))


MIXED = table(130)
HOSTILE = {
    "copies of one": np.repeat(table(1), 200, axis=0),
    "two copies each": np.repeat(table(100), 2, axis=0),
    "close copies of many": np.concatenate([ball(row, 5, 0.01) for row in table(40)]),
    "a ball": ball(table(1)[0], 200, 0.1),
    "a wider ball": ball(table(1)[0], 200, 0.3),
    "mostly copies": np.concatenate([np.repeat(table(1), 170, axis=0), MIXED]),
    "mostly a ball": np.concatenate([ball(table(1)[0], 170, 0.2), MIXED]),
    "mostly close copies": np.concatenate([*(ball(row, 5, 0.01) for row in table(34)), MIXED]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_copies_and_crowds_are_told_on_any_scale(name: str) -> None:
    own, public = table(200), HOSTILE[name]
    scale = 10.0 ** np.arange(-4, 5)
    assert Nearness(own).crowded(public) is Nearness(own * scale).crowded(public * scale) is True


NOISE = DIGITS.images.std(axis=0) * RNG.normal(size=(300, 8, 8))


@pytest.mark.parametrize(
    ("own", "public"),
    [
        (DIGITS.images[:200], np.repeat(DIGITS.images[300:320], 10, axis=0)),
        (DIGITS.images[:200], DIGITS.images[300] + 0.1 * NOISE),
        (texts(100), changed(texts(1)[0], 200)),
        (texts(100), np.concatenate([changed(texts(1)[0], 120), texts(80)])),
        (RNG.random((200, 8)) < 0.3, np.zeros((300, 8), dtype=bool)),
        (RNG.normal(size=(3000, 3)), np.repeat(RNG.normal(size=(1500, 3)), 2, axis=0)),
    ],
    ids=["digits", "noisy digits", "texts", "most texts", "yes or no", "more than are looked at"],
)
def test_copies_and_crowds_of_other_kinds(own: np.ndarray, public: np.ndarray) -> None:
    assert Nearness(own).crowded(public) is True


def test_own_rows_among_public_ones_are_told() -> None:
    """As they are, and where nobody would see a difference; of the others a few by chance."""
    own, others = table(200), table(100)
    for asked in (own[:20], own[:20] + 0.01 * table(2000).std(axis=0)):
        found = Nearness(own).among(own, np.concatenate([others, asked]))
        assert found[:20].all() and found[20:].mean() <= 3 * CHANCE
    assert Nearness(own).among(own[:0], others).tolist() == []


@pytest.mark.parametrize("name", sorted(set(HONEST) - {"one column", "few patients"}))
def test_few_own_rows_are_among_honest_ones(name: str) -> None:
    own, public = HONEST[name]
    assert Nearness(own).among(own, public).mean() <= 3 * CHANCE


def test_in_a_table_of_few_values_nobody_is_told_apart() -> None:
    own = RNG.random((200, 4)) < 0.5
    assert not Nearness(own).among(own, own[:50]).any()


def test_who_has_a_twin_is_not_told_apart() -> None:
    own = table(200)
    own[1] = own[0]
    found = Nearness(own).among(own, own[:3])
    assert found[:4].tolist() == [False, False, True, False]


def test_texts_among_public_ones() -> None:
    own = texts(100)
    public = np.concatenate([texts(50), own[:5], changed(own[7], 1)])
    assert np.flatnonzero(Nearness(own).among(own, public)).tolist() == [0, 1, 2, 3, 4, 7]


@pytest.mark.parametrize("columns", [3, 10])
def test_rows_of_few_columns_are_not_copies_of_many_others(columns: int) -> None:
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        own, public = rng.normal(size=(60, columns)), rng.normal(size=(4000, columns))
        found.append(Nearness(own).among(own, public).mean())
    assert np.mean(found) < 0.05 and max(found) < 0.1


def test_scales_that_a_sender_invents_hide_no_copy() -> None:
    """Scaled by 1e300 every column would be constant, and no row like another."""
    own = RNG.normal(size=(200, 2))
    kinds = tuple(Column(name, "number", gaps=True) for name in ("age", "pressure"))
    forged = Schema(tuple(replace(kind, mean=1e300, spread=1e300) for kind in kinds))
    public = Public(np.concatenate([own[:3], RNG.normal(size=(40, 2))]), forged)
    honest = forged.measured(public.X)
    told, expected = (
        PublicComparison(own, own[:0], schema).private_among(public) for schema in (forged, honest)
    )
    assert told[:3].all() and told.sum() < 20 and told.tolist() == expected.tolist()
