"""Parties that join a run after its last round."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from consilience import (
    Federation,
    Frozen,
    Party,
    avg,
    density_ratio,
    ensemble_distillation,
    local_only,
)
from consilience.core.errors import InvalidInput
from consilience.core.networks import Population

POINTS = np.linspace(-1, 1, 20)[:, None]
NAMES = np.where(POINTS[:, 0] < 0, "below", "above")


def clinic(name, model=GaussianNB, y=NAMES) -> Party:
    return Party(name, model(), POINTS, y, test=(POINTS + 0.01, NAMES))


def protocol(rounds, rule=avg):
    return ensemble_distillation(aggregate=rule(), rounds=rounds)


def consensus(history):
    return [round.state.consensus for round in history.rounds[1:]]


@pytest.mark.parametrize("rule", [avg, density_ratio], ids=["avg", "density-ratio"])
def test_a_late_party_takes_part_from_the_next_round_on(rule):
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    first = federation.run(protocol(2, rule))
    before = [values.copy() for values in consensus(first)]
    late = clinic("b", LogisticRegression)
    whole = federation.resume(first, protocol(4, rule), join=[late])
    assert [round.number for round in whole.rounds] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(consensus(whole)[:2], before)
    assert [one.teacher.parties for one in whole.rounds[1:]] == [("a", "c")] * 2 + [
        ("a", "b", "c")
    ] * 2
    assert sorted(whole.models) == ["a", "b", "c"] and len(first.rounds) == 3
    assert np.isnan(whole.metric()[2, 1]) and whole.metric()[4, 1] > 0.8


def test_without_anyone_new_it_is_the_run_that_was_not_interrupted():
    whole = Federation([clinic("a"), clinic("c")], POINTS).run(protocol(4))
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    resumed = federation.resume(federation.run(protocol(2)), protocol(4))
    np.testing.assert_array_equal(consensus(resumed), consensus(whole))
    np.testing.assert_array_equal(resumed.metric(), whole.metric())


def test_late_parties_may_be_frozen_or_learn_only():
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    rule = Frozen(lambda X: np.where(X > 0, [[0.9, 0.1]], [[0.2, 0.8]]), classes=["above", "below"])
    learner = Party("z", LogisticRegression(), POINTS)
    whole = federation.resume(
        federation.run(protocol(1)), protocol(2), join=[Party("rule", rule), learner]
    )
    assert whole.rounds[2].teacher.parties == ("a", "c", "rule")
    assert "z" in whole.models and not whole.failures


@pytest.mark.parametrize(
    "late, why",
    [
        ([clinic("a")], "two parties are called 'a'"),
        (
            [clinic("b", y=np.where(NAMES == "below", "below", "new"))],
            "no other party has class 'new'",
        ),
        ([Party("b", GaussianNB(), POINTS[:, [0, 0]], NAMES)], "party 'b'"),
    ],
)
def test_one_that_does_not_fit_leaves_all_as_it_was(late, why):
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    history = federation.run(protocol(1))
    with pytest.raises(InvalidInput, match=why):
        federation.resume(history, protocol(2), join=late)
    assert federation.network.parties == ("a", "c")
    assert len(federation.resume(history, protocol(2)).rounds) == 3


def test_classes_are_fixed():
    federation = Federation([clinic("a"), clinic("c")], POINTS, strict=False)
    history = federation.run(protocol(1))
    with pytest.raises(InvalidInput, match="class 'new' is none of those that were agreed on"):
        federation.resume(
            history, protocol(2), join=[clinic("b", y=np.where(NAMES == "below", "below", "new"))]
        )


def test_only_the_last_run_goes_on():
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    first = federation.run(protocol(1))
    federation.run(protocol(1))
    with pytest.raises(InvalidInput, match="not as this run left them"):
        federation.resume(first, protocol(2))
    last = federation.run(protocol(2))
    with pytest.raises(InvalidInput, match="2 are done"):
        federation.resume(last, protocol(2))


def test_other_networks_say_so():
    population = Population(["a", "c"], clinic)
    federation = Federation(population, POINTS)
    history = federation.run(protocol(1))
    with pytest.raises(InvalidInput, match="takes in no further parties"):
        federation.resume(history, protocol(2), join=[clinic("b")])


def test_one_that_fits_leaves_again_if_another_does_not():
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    history = federation.run(protocol(1))
    fits, unfit = clinic("b"), Party("d", GaussianNB(), POINTS[:, [0, 0]], NAMES)
    with pytest.raises(InvalidInput, match="party 'd'"):
        federation.resume(history, protocol(2), join=[fits, unfit])
    assert fits.agreement is None


def test_another_protocol_does_not_resume_a_run():
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    history = federation.run(protocol(1))
    with pytest.raises(InvalidInput, match=r"ensemble_distillation.*local_only"):
        federation.resume(history, local_only())
