"""A hostile coordinator that subtracts secure sums learns no more of a party than one sum tells.

The attacks of ``tests/helpers/sum_differences.py``, against six sites with keys and a roster each; no party
colludes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sklearn.naive_bayes import GaussianNB

from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.predictions import PredictPublic
from consilience.methods.comparison_rules.tasks import TellApart
from consilience.methods.parameters.tasks import (
    FuseModels,
    SendParameters,
    TrainDynamically,
    TrainParameters,
)
from consilience.privacy.secure_aggregation.tasks import SumMasked, SumQuestion, SumTrained
from consilience.sites.party import EVERYTHING, PartySite
from helpers import sum_differences
from helpers.party_sites import without_rows

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


def question(*tasks: Any, form: str = "parameters") -> SumQuestion:
    """A question that no honest coordinator can make: it is changed after it was checked."""
    made = SumQuestion(tasks=(PredictPublic(round=1),), form=form, settings={})
    object.__setattr__(made, "tasks", tasks)
    return made


TRAINING = TrainParameters(round=1, size=4)
DYNAMIC = TrainDynamically(round=1, size=4, strength=1.0, counted={"f": 1})
FUSING = FuseModels(round=1, size=4, trained=(), weights="uniform")
ALIKE = {
    "counted": (SumTrained, question(DYNAMIC)),
    "as it is": (SumTrained, question(SendParameters(round=1, size=4))),
    "fused": (SumTrained, question(FUSING)),
    "another score": (
        SumMasked,
        question(PredictPublic(round=1), TellApart(round=1, reference="public"), form="mean"),
    ),
    "twice": (SumTrained, question(TRAINING, TRAINING)),
    "no task": (SumMasked, question()),
}


def refusal(kind: Any, asked: SumQuestion, home: Path) -> str:
    """The reason by which a site refuses bytes that carry a question."""
    made = SumMasked(
        round=1,
        shared=(),
        asked=SumQuestion(tasks=(PredictPublic(round=1),), form="mean", settings={}),
    )
    if kind is SumTrained:
        made = SumTrained(round=1, shared=(), asked=made.asked)
    object.__setattr__(made, "asked", asked)
    with PartySite(without_rows, home, limits=EVERYTHING) as site:
        (failure,) = decode(site.answer(encode([made])))
    return str(failure.reason)


@pytest.mark.parametrize("name", ALIKE)
def test_a_sum_is_of_the_tasks_of_protocols_and_of_no_others_of_their_replies(
    name: str, tmp_path: Path
) -> None:
    """A task that names parties has another effect at one of them, though all have one history."""
    assert "a sum is of predictions and scores" in refusal(*ALIKE[name], tmp_path)


def test_training_is_in_no_task_that_keeps_the_model(tmp_path: Path) -> None:
    """The site would not write the model, and go back to the one before with the history after it."""
    reason = refusal(SumMasked, question(TRAINING), tmp_path)
    assert "asked for by SumTrained alone" in reason
    assert "not joined" in refusal(SumTrained, question(TRAINING), tmp_path)  # it may be asked


@pytest.fixture(scope="module")
def attacks() -> Any:
    return sum_differences


@pytest.fixture(scope="module")
def one_sum(attacks: Any) -> Any:
    return attacks.run(naive_bayes, None, 0)[0]


@pytest.mark.parametrize("name", REFUSED)
def test_no_second_sum_tells_the_answers_of_one_party(
    name: str, attacks: Any, one_sum: Any
) -> None:
    attack = attacks.ATTACKS[name]
    if name == "drop-outs":  # every round after the first is refused alike
        attack = partial(attack, rounds=4)
    error, coordinator = attacks.run(naive_bayes, attack, 0)
    assert error.mean > 0.8 * one_sum.mean and error.most > 0.5 * one_sum.most
    assert error.same < one_sum.same + 0.1  # of 300 answers: a sum that told them would have all
    assert {tuple(weights) for weights, _ in coordinator.sums} == {(1.0,) * 6}
    assert any(REFUSED[name] in reason for reason in coordinator.refusals)


def test_an_engineer_who_changes_the_roster_consents_to_other_sums(attacks: Any) -> None:
    """A word behind a key is enough, at the parties that open the sum; the sixth has no say in it."""

    def attack(coordinator: Any) -> Any:
        assert not coordinator.sum(1, attacks.FIVE)
        for name in attacks.FIVE:
            party = coordinator.network.sites[name].party()
            party.features["sums"].roster = {
                other: f"{line} 2" for other, line in party.rules.keys.roster.items()
            }
        assert coordinator.sum(1, attacks.FIVE)
        return coordinator.estimate()

    error, _ = attacks.run(naive_bayes, attack, 0)
    assert error.most < 1e-6


@pytest.mark.parametrize("rounds", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_rounds_of_the_same_six_parties_are_opened_and_tell_no_party(
    rounds: int, attacks: Any, one_sum: Any
) -> None:
    attack = partial(attacks.ATTACKS["ten rounds"], rounds=rounds)
    error, coordinator = attacks.run(naive_bayes, attack, 0)
    assert len(coordinator.sums) == rounds and not coordinator.refusals
    squared, _ = attacks.run(naive_bayes, attacks.by_squares, 0)  # needs no second sum
    assert error.mean > 0.8 * squared.mean and error.same < one_sum.same + 0.05
