"""Noise and its accountant: what is charged, refused, and released again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import Party
from consilience.federation.forming import negotiate
from consilience.messages.base import Reply
from consilience.messages.message import message
from consilience.messages.replies import Failure, Predictions, Receipt
from consilience.messages.schema import Public
from consilience.tasks.base import Task
from consilience.tasks.lifecycle import Describe
from consilience.tasks.outgoing import answer
from consilience.tasks.predictions import FitPrivate, PredictPublic
from consilience.tasks.scores import ScoreCertainty
from consilience.transforms.privacy import (
    Accountant,
    BudgetExceeded,
    GaussianNoise,
    Mechanism,
    PrivacyLoss,
)
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])
PREDICT = PredictPublic(round=1)


class NoisyLogits(Mechanism):
    """Noise on logits clipped to [−1, 1]: one row moves one number by 2 at most."""

    reply_type = Predictions

    def __init__(self, epsilon: float) -> None:
        self.noise = GaussianNoise(epsilon, 1e-5)
        self.loss = self.noise.loss

    def release(self, reply: Predictions) -> Predictions:
        values = self.noise.add(np.clip(reply.values, -1, 1), 2 * np.sqrt(reply.values.size))
        return replace(reply, values=values.astype(reply.values.dtype))


@message
class Stated(Reply):
    """A reply whose author states no cost."""


@message
class Ask(Task, reply_type=Stated, exchanges="others", protocol=None):
    round: int

    def run(self, party: Party) -> Stated:
        return Stated(party=party.name, round=self.round)


def joined() -> Party:
    party = Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0)
    party.public = Public(POINTS[:2])
    party.join(negotiate([Describe().run(party)], party.public, strict=False))
    answer(party, [FitPrivate(round=1)])
    return party


def draws(*numbers: float):
    return iter([np.array([number]) for number in numbers]).__next__


def test_losses_add_up_and_the_same_question_costs_nothing_more():
    accountant = Accountant()
    draw = draws(1.0, 2.0, 3.0)
    first = accountant.release("a", ("q",), PrivacyLoss(0.5, 1e-5), draw)
    again = accountant.release("a", ("q",), PrivacyLoss(0.5, 1e-5), draw)
    other = accountant.release("a", ("r",), PrivacyLoss(0.25, 1e-5), draw)
    assert (first, again, other) == (1.0, 1.0, 2.0)
    assert accountant.spent == PrivacyLoss(0.75, 2e-5)
    assert (accountant.count("a"), accountant.count("b")) == (2, 0)


@pytest.mark.parametrize(
    ("budget", "what"),
    [(PrivacyLoss(0.7, 1.0), "limits.epsilon"), (PrivacyLoss(1.0, 1.5e-5), "limits.delta")],
)
def test_what_goes_beyond_the_budget_is_refused_before_it_is_drawn(budget, what):
    accountant = Accountant()
    accountant.budget = budget
    accountant.release("a", ("q",), PrivacyLoss(0.4, 1e-5), draws(1.0))
    with pytest.raises(BudgetExceeded, match=what):
        accountant.release("a", ("r",), PrivacyLoss(0.4, 1e-5), draws())
    assert accountant.release("a", ("q",), PrivacyLoss(0.4, 1e-5), draws()) == 1.0


def test_releases_outlive_a_restart_and_stay_as_they_are():
    before, after = Accountant(), Accountant()
    before.release("a", ("q",), PrivacyLoss(0.5, 1e-5), draws(1.0))
    before.release("a", ("r",), PrivacyLoss(), draws(2.0))
    after.release("a", ("q",), PrivacyLoss(0.5, 1e-5), draws(3.0))
    after.restore(before.arrays())
    assert after.release("a", ("q",), PrivacyLoss(0.5, 1e-5), draws()) == 3.0
    assert after.release("a", ("r",), PrivacyLoss(), draws()) == 2.0
    assert after.spent == PrivacyLoss(0.5, 1e-5)
    with pytest.raises(ValueError, match="no record of a release"):
        after.restore({"certainties 0.5": np.zeros(1)})


def test_noise_comes_from_nobody_and_has_its_scale():
    noise = GaussianNoise(0.5, 1e-5)
    one, two = (noise.add(np.zeros(4000), 0.1) for _ in range(2))
    assert not np.array_equal(one, two)
    assert np.std(one) == pytest.approx(noise.scale(0.1), rel=0.1)


def test_a_mechanism_acts_on_every_reply_of_its_kind_once():
    """A repeated question has the same noise; another answer another, and both are charged for."""
    party = joined()
    task = PredictPublic(round=1, outputs="logits")
    (exact,) = answer(party, [task])
    party.privacy.use([NoisyLogits(0.25)])
    (one,), (two,) = answer(party, [task]), answer(party, [replace(task, round=2)])
    assert (one.round, two.round) == (1, 2)
    np.testing.assert_array_equal(one.values, two.values)
    assert not np.array_equal(one.values, exact.values)
    one.validate(party="a", task=task, agreement=party.agreement)
    assert party.privacy.accountant.spent == PrivacyLoss(0.25, 1e-5)
    party.fit_on_mixed_targets(1, np.array([[0.9, 0.1]] * 3), 0.0)
    (three,) = answer(party, [task])
    assert not np.array_equal(three.values, one.values)
    assert party.privacy.accountant.spent == PrivacyLoss(0.5, 2e-5)


def test_a_budget_that_is_spent_is_a_refusal():
    party = joined()
    party.privacy.accountant.budget = PrivacyLoss(0.3, 1e-4)
    party.privacy.use([NoisyLogits(0.25)])
    task = PredictPublic(round=1, outputs="logits")
    assert isinstance(answer(party, [task])[0], Predictions)
    party.fit_on_mixed_targets(1, np.array([[0.9, 0.1]] * 3), 0.0)
    failure = answer(party, [task])
    assert isinstance(failure, Failure) and failure.kind == "refused"
    assert "would have spent 0.5 in all, of 0.3" in failure.reason


def test_a_party_with_a_budget_wants_every_cost_stated():
    party = joined()
    assert isinstance(answer(party, [Ask(round=1)])[0], Stated)
    party.privacy.accountant.budget = PrivacyLoss(1.0, 1e-4)
    failure = answer(party, [Ask(round=1)])
    assert failure.kind == "refused" and "Stated states no privacy cost" in failure.reason
    certain = ScoreCertainty(round=1, regularization=0.1, epsilon=None, delta=1e-5)
    assert "Certainties would leave without noise" in answer(party, [certain]).reason
    (noisy,) = answer(party, [replace(certain, epsilon=0.5)])
    (again,) = answer(party, [replace(certain, epsilon=0.5)])
    np.testing.assert_array_equal(noisy.values, again.values)
    receipt, said = answer(party, [FitPrivate(round=2), PREDICT])
    assert isinstance(receipt, Receipt) and isinstance(said, Predictions)
