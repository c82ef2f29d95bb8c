"""Noise and its accountant: what is charged, refused, and released again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience import Party
from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.messages.base import Reply
from consilience.core.messages.message import message
from consilience.core.messages.replies import Failure, Predictions, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join
from consilience.core.tasks.outgoing import UNSAID, answer
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import PrivacyLoss, gaussian_mu
from consilience.privacy.accounting.mechanisms import GaussianNoise, Mechanism
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.privacy.accounting.stage import Accountant, BudgetExceeded
from consilience.tables.table import Table
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])
PREDICT = PredictPublic(round=1)
MU = gaussian_mu(0.25, 1e-5)


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
class Ask(Task, reply_type=Stated, exchanges="others", protocol=None, exposure="usual", limits=()):
    round: int

    def run(self, party: Party) -> Stated:
        return Stated(party=party.name, round=self.round)


def joined() -> Party:
    party = Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0)
    party.hold_public(Public(POINTS[:2]))
    party.join(negotiate([Describe().run(party)], party.public))
    answer(party, [FitPrivate(round=1)])
    return party


def named(question: str, loss: PrivacyLoss) -> Release:
    return Release.of("a", (question,), loss)


def draws(*numbers: float):
    return iter([np.array([number]) for number in numbers]).__next__


def test_losses_add_up_and_the_same_question_costs_nothing_more():
    accountant = Accountant()
    draw = draws(1.0, 2.0, 3.0)
    first = accountant.release(named("q", PrivacyLoss(0.3)), draw)
    again = accountant.release(named("q", PrivacyLoss(0.3)), draw)
    other = accountant.release(named("r", PrivacyLoss(0.4)), draw)
    assert (first, again, other) == (1.0, 1.0, 2.0)
    assert accountant.spent.mu == pytest.approx(0.5)  # 3² + 4² = 5²
    assert (accountant.count("a"), accountant.count("b")) == (2, 0)


def test_what_goes_beyond_the_budget_is_refused_before_it_is_drawn():
    accountant = Accountant()
    accountant.budget = Budget(1.0)
    half = PrivacyLoss(gaussian_mu(1.0, 1e-5) / np.sqrt(2))
    for question in ("q", "r", "q"):
        accountant.release(named(question, half), lambda: np.ones(1))
    with pytest.raises(BudgetExceeded, match=r"limits.epsilon: .* 1.25 in all, of 1"):
        accountant.release(named("s", half), draws())


def test_a_cost_for_a_replaced_row_is_none_for_an_added_one():
    accountant = Accountant()
    accountant.budget = Budget(1.0)
    with pytest.raises(BudgetExceeded, match=r"limits\.adjacency"):
        accountant.check([named("q", PrivacyLoss(0.1, adjacency="replace"))])
    with pytest.raises(BudgetExceeded, match="of one row is none under add-remove of one patient"):
        accountant.budget = Budget(1.0, unit="patient")
        accountant.check([named("q", PrivacyLoss(0.1))])
    accountant.budget = Budget(1.0, adjacency="replace")
    accountant.release(named("q", PrivacyLoss(0.1)), draws(1.0))
    assert accountant.spent == PrivacyLoss(0.2, adjacency="replace")


def test_releases_outlive_a_restart_and_stay_as_they_are():
    before, after = Accountant(), Accountant()
    before.release(named("q", PrivacyLoss(0.5)), draws(1.0))
    before.release(named("r", PrivacyLoss()), draws(2.0))
    after.release(named("q", PrivacyLoss(0.5)), draws(3.0))
    after.restore(before.arrays())
    assert after.release(named("q", PrivacyLoss(0.5)), draws()) == 3.0
    assert after.release(named("r", PrivacyLoss()), draws()) == 2.0
    assert after.spent == PrivacyLoss(0.5)
    whole = json.loads(named("q", PrivacyLoss(0.5)).to_json())
    parts = [{key: whole[key] for key in whole if key != name} for name in whole]
    for name in ("certainties 0.5", *map(json.dumps, parts)):
        with pytest.raises(ValueError, match="no record of a release"):
            after.restore({name: np.zeros(1)})


def test_noise_comes_from_nobody_and_has_its_scale():
    noise = GaussianNoise(0.5, 1e-5)
    one, two = (noise.add(np.zeros(4000), 0.1) for _ in range(2))
    assert not np.array_equal(one, two)
    assert np.std(one) == pytest.approx(noise.scale(0.1), rel=0.1)


def test_a_mechanism_acts_on_every_reply_of_its_kind_once():
    """A question that comes again gets its release, and nothing else does; all others are charged."""
    party = joined()
    task = PredictPublic(round=1, outputs="logits")
    (exact,) = answer(party, [task])
    privacy_of(party).use([NoisyLogits(0.25)])
    (one,) = answer(party, [task])
    party.trainer.fit_on_mixed_targets(1, np.array([[0.9, 0.1]] * 3), 0.0)
    (again,), (later,) = answer(party, [task]), answer(party, [replace(task, round=2)])
    assert (one.round, again.round, later.round) == (1, 1, 2)
    np.testing.assert_array_equal(one.values, again.values)
    assert not np.array_equal(one.values, exact.values)
    assert not np.array_equal(one.values, later.values)
    one.validate(party="a", task=task, agreement=party.agreement)
    assert privacy_of(party).accountant.spent.mu == pytest.approx(MU * 2**0.5)


@pytest.mark.parametrize("moved", [0.0, 1e-6, 1.0])
def test_neither_releases_nor_charges_tell_whether_two_replies_were_the_same(moved: float):
    """Two rounds draw twice and cost twice, whether one row moved between them or none did."""
    party = joined()
    privacy_of(party).use([NoisyLogits(0.25)])
    (reply,) = answer(party, [PredictPublic(round=1, outputs="logits")])
    exact = [reply, replace(reply, values=reply.values + np.float32(moved))]
    released = [
        privacy_of(party).outgoing(PredictPublic(round=t), party.agreement, lambda one=one: one)
        for t, one in enumerate(exact, start=2)
    ]
    assert not np.array_equal(released[0].values, released[1].values)
    assert privacy_of(party).accountant.spent.mu == pytest.approx(MU * 3**0.5)


def test_other_settings_of_a_mechanism_are_another_question():
    party, wide, narrow = joined(), NoisyLogits(0.25), NoisyLogits(0.25)
    wide.clip, narrow.clip = np.ones(2000), np.ones(2000)
    narrow.clip[1000] = 1e-3  # an array is told by all of its numbers
    said = []
    for mechanism in (wide, narrow, wide):
        privacy_of(party).use([mechanism])
        said.append(answer(party, [PredictPublic(round=1, outputs="logits")])[0].values)
    assert not np.array_equal(said[0], said[1])
    np.testing.assert_array_equal(said[0], said[2])
    assert privacy_of(party).accountant.spent.mu == pytest.approx(MU * 2**0.5)


class Limits:
    """A setting whose text tells nothing of it."""

    def __init__(self, bounds: np.ndarray) -> None:
        self.bounds = bounds

    def __repr__(self) -> str:
        return "Limits"


@pytest.mark.parametrize(
    "made",
    [
        lambda bounds: bounds,
        lambda bounds: Table({"low": bounds}),  # prints its shape
        lambda bounds: {"of": [Public(bounds[:, None])]},
        Limits,
    ],
)
def test_a_question_has_the_content_of_settings_and_not_their_text(made: Callable[..., Any]):
    def question(bounds: np.ndarray) -> str:
        mechanism = NoisyLogits(0.25)
        mechanism.clip = made(bounds)
        return mechanism.planned(PREDICT, None).question

    zeros, last = np.zeros(2000), np.zeros(2000)
    last[-1] = 1e-12
    assert question(zeros) == question(zeros.copy())
    assert question(zeros) != question(last)


def test_a_setting_without_a_digest_is_named():
    mechanism = NoisyLogits(0.25)
    mechanism.draw = lambda: 0.5
    with pytest.raises(InvalidInput, match="NoisyLogits: the setting 'draw' is a function"):
        mechanism.planned(PREDICT, None)


def test_a_budget_that_is_spent_is_a_refusal():
    party = joined()
    privacy_of(party).accountant.budget = Budget(0.3, adjacency="replace")
    privacy_of(party).use([NoisyLogits(0.25)])
    task = PredictPublic(round=1, outputs="logits")
    (first,) = answer(party, [task])
    failure = answer(party, [replace(task, round=2)])
    assert isinstance(failure, Failure) and failure.kind == "refused"
    assert "would have spent 0.3647 in all, of 0.3" in failure.reason
    np.testing.assert_array_equal(answer(party, [task])[0].values, first.values)


def certain(epsilon: float | None, *, round: int = 1, delta: float = 1e-5) -> ScoreCertainty:
    return ScoreCertainty(round=round, regularization=0.1, epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([certain(0.5)], "would have spent 0.5 in all, of 0.4"),
        ([certain(0.3), replace(certain(0.3), regularization=0.2)], "in all, of 0.4"),
        ([certain(None)], "Certainties would leave without noise"),
        ([certain(0.2), Ask(round=1)], "Stated states no privacy cost"),
        ([certain(0.35), PredictPublic(round=1, outputs="logits")], "in all, of 0.4"),
        ([PredictPublic(round=1), Evaluate(round=1)], "Metrics states no privacy cost"),
    ],
)
def test_all_that_a_request_costs_is_held_against_the_budget_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tasks: list[Task], why: str
):
    party = joined()
    privacy_of(party).use([NoisyLogits(0.25)])
    privacy_of(party).accountant.budget = Budget(0.4, adjacency="replace")
    trained = []
    monkeypatch.setattr(party.trainer, "fit_private", trained.append)
    failure = answer(party, [FitPrivate(round=1), *tasks])
    assert (failure.kind, failure.code) == ("refused", "budget") and why in failure.reason
    assert not trained and not privacy_of(party).accountant


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (np.inf, 1e-5), (0.5, 2.0), (0.5, 0.0), (0.5, np.nan)],
)
def test_noise_that_nothing_is_known_of_is_refused(epsilon: float, delta: float):
    with pytest.raises(InvalidInput, match="GaussianNoise"):
        GaussianNoise(epsilon, delta)


def test_numbers_that_are_no_loss_are_refused():
    for mu in (-0.1, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="PrivacyLoss"):
            PrivacyLoss(mu)
    with pytest.raises(InvalidInput, match="sensitivity"):
        GaussianNoise(0.5, 1e-5).scale(np.nan)
    refund = {'{"kind": "a", "question": "q", "epsilon": -5.0, "delta": 0.0}': np.zeros(1)}
    with pytest.raises(ValueError, match="no record of a release"):
        Accountant().restore(refund)


@message
class Counted(Reply, privacy="charged"):
    """An exact reply, for which nothing is charged."""

    rows: int


def test_a_release_at_no_cost_is_no_charge():
    party = joined()
    privacy_of(party).accountant.budget = Budget(0.1)

    def run() -> Counted:
        privacy_of(party).accountant.release(named("q", PrivacyLoss()), lambda: np.zeros(0))
        return Counted(party="a", round=1, rows=42)

    with pytest.raises(BudgetExceeded, match="Counted would leave without noise"):
        privacy_of(party).outgoing(PREDICT, party.agreement, run)


def test_a_party_with_a_budget_wants_every_cost_stated():
    party = joined()
    assert isinstance(answer(party, [Ask(round=1)])[0], Stated)
    privacy_of(party).accountant.budget = Budget(1.0, adjacency="replace")
    failure = answer(party, [Ask(round=1)])
    assert failure.kind == "refused" and "Stated states no privacy cost" in failure.reason
    assert "Certainties would leave without noise" in answer(party, [certain(None)]).reason
    (noisy,), (again,) = answer(party, [certain(0.5)]), answer(party, [certain(0.5)])
    np.testing.assert_array_equal(noisy.values, again.values)
    assert "Predictions states no privacy cost" in answer(party, [PREDICT]).reason


def test_what_a_party_with_a_budget_says_beside_tells_nothing_of_its_rows(monkeypatch):
    """Neither notes, nor that training failed, nor why it could not answer."""
    party = joined()
    privacy_of(party).accountant.budget = Budget(1.0)
    noted = Receipt(party="a", round=1, notes=("42 rows are ill",))
    said = privacy_of(party).outgoing(FitPrivate(round=1), party.agreement, lambda: noted)
    assert said.notes == ()

    def fails(*args):
        raise ValueError("row 7 is ill")

    monkeypatch.setattr(party.trainer, "fit_private", fails)
    assert encode(answer(party, [FitPrivate(round=1)])) == encode([Receipt(party="a", round=1)])
    assert party.outbox.withheld == "ValueError: row 7 is ill"
    monkeypatch.setattr(party, "join", fails)
    failure = answer(party, [Join(agreement=party.agreement)])
    assert encode([failure]) == encode([Failure(party="a", reason=UNSAID)])
    privacy_of(party).accountant.budget = None
    assert "row 7 is ill" in answer(party, [Join(agreement=party.agreement)]).reason
