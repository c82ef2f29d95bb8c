"""A coordinator that sends rows to find out where a party's own lie: what it learns has an end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import Party
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.lifecycle import TakePublic
from consilience.sites.party import Limits, PartySite

MEAN, SPREAD = 63.2, 9.1


def patients(rows: int = 200, mean: float = MEAN) -> Party:
    """A party with two columns; the attacker looks for the mean of the first."""
    rng = np.random.default_rng(1)
    X = rng.normal([mean, 128.7], [SPREAD, 17.0], (200, 2))[:rows]
    return Party("north", LogisticRegression(), X, np.where(np.arange(rows) % 2, "a", "b"))


class Oracle:
    """Sends sets of rows and notes what is said of each: taken, on another scale, or no more."""

    def __init__(self, home: Path, **limits: int | None) -> None:
        self.home, self.limits = home, Limits(rounds=1, requests=1, **limits)
        self.said: list[str] = []

    def asks(self, mean: float, spread: float, party: Party, federation: str = "heart") -> str:
        """Two rows whose first column has this mean and spread; the site is opened anew for each."""
        rows = np.array([[mean - spread, 0.0], [mean + spread, 0.0]])
        with PartySite(lambda: party, self.home, limits=self.limits) as site:
            request = encode([TakePublic.of(Public(rows))])
            (reply,) = decode(site.answer(request, federation=federation))
        self.said.append(reply.reason if isinstance(reply, Failure) else "taken")
        return self.said[-1]

    def bisects(self, party: Party, steps: int) -> float:
        """The mean of the column: it is taken where it lies less than four spreads off."""
        spread, low, high = 2 * SPREAD, MEAN, MEAN + 200 * SPREAD
        for _ in range(steps):
            middle = (low + high) / 2
            taken = self.asks(middle, spread, party) == "taken"
            low, high = (middle, high) if taken else (low, middle)
        return low - 4 * spread


def test_without_the_limit_it_finds_the_mean_of_a_column(tmp_path: Path) -> None:
    """So that the attack is one."""
    party = patients()
    found = Oracle(tmp_path, public_sets=None).bisects(party, 50)
    assert found == pytest.approx(party.rows.X[:, 0].mean(), abs=1e-9)


def test_after_the_last_set_nothing_more_is_learned(tmp_path: Path) -> None:
    party, oracle = patients(), Oracle(tmp_path)
    found = oracle.bisects(party, 50)
    last = oracle.said.index("taken")
    assert last <= 10 and set(oracle.said[last + 1 :]) == {oracle.said[-1]}
    assert "limits.public_sets: it has taken 1 set" in oracle.said[-1]
    assert abs(found - party.rows.X[:, 0].mean()) > 0.01


def test_parties_that_said_the_same_cannot_be_told_apart_any_more(tmp_path: Path) -> None:
    """Their means differ by a tenth of a spread, and fifty more sets say nothing of it."""
    said = []
    for name, mean in (("one", MEAN), ("other", MEAN + 0.1 * SPREAD)):
        oracle, party = Oracle(tmp_path / name, public_sets=10), patients(mean=mean)
        for number in range(10):
            oracle.asks(MEAN + number, SPREAD, party)
        edge = MEAN + 8.05 * SPREAD  # between the edges of the two
        for number in range(50):
            oracle.asks(edge + 0.01 * number, 2 * SPREAD, party, federation=f"f{number}")
        said.append(oracle.said)
    assert said[0] == said[1] and set(said[0][:10]) == {"taken"}


def test_a_set_that_comes_again_says_nothing_of_new_rows(tmp_path: Path) -> None:
    """The same set before and after a row was added: the two answers would say on which side it lies."""
    oracle = Oracle(tmp_path)
    few, more = patients(100), patients(200)
    means = [party.rows.X[:, 0].mean() for party in (few, more)]
    spread = 2 * SPREAD
    between = sum(means) / 2 + 4 * spread  # taken by one of the two alone
    fresh = [
        Oracle(tmp_path / str(party.rows.X.shape[0])).asks(between, spread, party)
        for party in (few, more)
    ]
    assert fresh[0] != fresh[1]
    assert oracle.asks(between, spread, few) == oracle.asks(between, spread, more) == fresh[0]
