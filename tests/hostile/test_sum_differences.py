"""A hostile coordinator that subtracts secure sums learns no more of a party than one sum tells.

The attacks of ``benchmarks/sum_differences.py``, against six sites with keys and a roster each; no party
colludes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.naive_bayes import GaussianNB

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

SETS = "its sums are over a, b, c, d, e, f"
REFUSED = {
    "alpha": SETS,
    "drop-outs": SETS,
    "per-party alpha": "was not asked the same as it since they joined",
    "per-party teacher": "was not asked the same as it since they joined",
    "restore": SETS,
    "new run": SETS,
    "question": SETS,
    "temperatures": "its sums are of another rule",
    "between steps": "it was asked for more since it gave its keys",
}


def naive_bayes(name: str) -> Any:
    return GaussianNB(var_smoothing=1e-2)


@pytest.fixture(scope="module")
def attacks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import sum_differences

        yield sum_differences


@pytest.fixture(scope="module")
def one_sum(attacks: Any) -> Any:
    return attacks.run(naive_bayes, None, 0)[0]


@pytest.mark.parametrize("name", REFUSED)
def test_no_second_sum_tells_the_answers_of_one_party(
    name: str, attacks: Any, one_sum: Any
) -> None:
    error, coordinator = attacks.run(naive_bayes, attacks.ATTACKS[name], 0)
    assert error.mean > 0.8 * one_sum.mean and error.most > 0.5 * one_sum.most
    assert error.same < one_sum.same + 0.05
    assert {tuple(weights) for weights, _ in coordinator.sums} == {(1.0,) * 6}
    assert any(REFUSED[name] in reason for reason in coordinator.refusals)


def test_an_engineer_who_changes_the_roster_consents_to_other_sums(attacks: Any) -> None:
    """A word behind a key is enough, at the parties that open the sum; the sixth has no say in it."""

    def attack(coordinator: Any) -> Any:
        assert not coordinator.sum(1, attacks.FIVE)
        for name in attacks.FIVE:
            party = coordinator.network.sites[name].party()
            party.sums.roster = {other: f"{line} 2" for other, line in party.roster.items()}
        assert coordinator.sum(1, attacks.FIVE)
        return coordinator.estimate()

    error, _ = attacks.run(naive_bayes, attack, 0)
    assert error.most < 1e-6


def test_ten_rounds_of_the_same_six_parties_are_opened_and_tell_no_party(
    attacks: Any, one_sum: Any
) -> None:
    error, coordinator = attacks.run(naive_bayes, attacks.ATTACKS["ten rounds"], 0)
    assert len(coordinator.sums) == 10 and not coordinator.refusals
    squared, _ = attacks.run(naive_bayes, attacks.by_squares, 0)  # needs no second sum
    assert error.mean > 0.8 * squared.mean and error.same < one_sum.same + 0.05
