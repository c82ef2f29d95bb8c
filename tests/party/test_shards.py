"""Subsample and aggregate: one unit moves one model of K, noise is as wide as the budget says, and once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from consilience import Federation, Party
from consilience.errors import InvalidInput, KnowledgeRefused, QuorumLost
from consilience.federation.forming import negotiate
from consilience.messages.replies import Failure
from consilience.messages.schema import Public
from consilience.numerics.class_sums import SCALE
from consilience.party.shards import (
    AnswersNoise,
    answers_of,
    labels_right,
    shards_of,
    teachers_needed,
)
from consilience.protocols import private_answers
from consilience.tasks.lifecycle import Describe
from consilience.tasks.outgoing import answer
from consilience.tasks.shards import PollShards
from consilience.transforms.accounting import PrivacyLoss, gaussian_mu
from consilience.transforms.budget import Budget
from helpers.stub_models import Says, Share

RNG = np.random.default_rng(0)
PUBLIC = Public(RNG.normal(size=(12, 2)))
X = RNG.normal(size=(40, 2))
Y = np.where(X[:, 0] > 0, "a", "b")
ROWS = np.arange(12)
UNIT = (0.0, 1.0)


def joined(model=None, rows=slice(None), *, y=Y, **more) -> Party:
    units = more.pop("privacy_units", None)
    more |= {} if units is None else {"privacy_units": units[rows]}
    if y.dtype.kind == "U":
        more["classes"] = ("a", "b")
    party = Party("p", model or DecisionTreeClassifier(), X[rows], y[rows], **more)
    party.public = PUBLIC
    party.join(negotiate([Describe().run(party)], PUBLIC))
    return party


def test_where_a_unit_goes_depends_on_no_other() -> None:
    places = shards_of(joined(), 5)
    assert set(places) == set(range(5))
    for rest in (np.arange(40) != 7, np.arange(40) % 3 > 0, np.arange(40)[::-1]):
        np.testing.assert_array_equal(shards_of(joined(rows=rest), 5), places[rest])
    units = np.array([f"patient {i // 4}" for i in range(40)])
    of_units = shards_of(joined(privacy_units=units), 5)
    assert all(len(set(of_units[i : i + 4])) == 1 for i in range(0, 40, 4))
    later = units != "patient 1"  # the others' numbers change, their names do not
    np.testing.assert_array_equal(
        shards_of(joined(rows=later, privacy_units=units), 5), of_units[later]
    )
    assert (shards_of(joined(secret=b"other"), 5) != places).any()


def test_a_text_goes_where_it_goes_however_long_the_others_are() -> None:
    party = joined()
    party.X = np.array(["one", "two", "three"])
    short = shards_of(party, 50)
    party.X = np.array(["one", "two", "three", "a much longer one"])
    np.testing.assert_array_equal(shards_of(party, 50)[:3], short)


@pytest.mark.parametrize("votes", [True, False])
@pytest.mark.parametrize("regression", [False, True])
def test_one_row_moves_the_answers_by_one_diameter_at_most(votes: bool, regression: bool) -> None:
    model = LinearRegression() if regression else DecisionTreeClassifier(max_depth=2)
    y = RNG.normal(size=40) if regression else RNG.permutation(Y)
    bounds = (-1.0, 1.0) if regression else UNIT
    whole, moved = answers_of(joined(model, y=y), ROWS, 4, votes=votes, bounds=bounds), []
    for row in range(0, 40, 5):
        party = joined(model, np.arange(40) != row, y=y)
        without = answers_of(party, ROWS, 4, votes=votes, bounds=bounds)
        moved.append(float(np.linalg.norm(whole - without)))
    assert 0 < max(moved) <= SCALE * np.sqrt((1 if regression else 2) * len(ROWS))
    assert whole.min() >= 0 and whole.max() <= 4 * SCALE


def test_a_shard_that_cannot_be_trained_says_nothing_and_nobody_hears_of_it() -> None:
    """Of one class, without rows, or with a model that raises: alike for both classes."""
    party = joined(Says())
    party.protect(Budget(3.0, 1e-3), noise=lambda: np.random.default_rng(7))
    task = PollShards(round=1, rows=ROWS, teachers=4, anyway=True)
    exact = answers_of(party, ROWS, 4, votes=True, bounds=UNIT)
    np.testing.assert_array_equal(exact, np.full((12, 2), 4 * SCALE // 2))
    (said,) = answer(party, [task])
    assert said.answered.all() and "half a pair" in party.trouble
    one_class = joined(rows=Y == "a")
    assert answers_of(one_class, ROWS, 2, votes=False, bounds=UNIT).tolist() == [[SCALE] * 2] * 12
    one_row = joined(rows=np.arange(40) == 3)
    assert answers_of(one_row, ROWS, 2, votes=True, bounds=UNIT).tolist() == [[SCALE] * 2] * 12


@pytest.mark.parametrize(
    ("rows", "epsilon", "votes"), [(50, 1, 37), (300, 1, 91), (300, 3, 34), (1000, 8, 27)]
)
def test_the_noise_in_votes(rows: int, epsilon: float, votes: float) -> None:
    noise = AnswersNoise(Budget(epsilon, 1e-5), np.random.default_rng, "classification")
    assert noise.sigmas(rows, 10)[0] / SCALE == pytest.approx(votes, abs=0.5)
    replaced = Budget(
        epsilon, 1e-5, adjacency="replace"
    )  # a unit leaves a shard, another joins one
    wider = AnswersNoise(replaced, np.random.default_rng, "classification")
    assert wider.sigmas(rows, 10)[0] == pytest.approx(2 * noise.sigmas(rows, 10)[0])
    values = AnswersNoise(Budget(epsilon, 1e-5), np.random.default_rng, "regression")
    assert values.sigmas(rows, 1)[0] * 2**0.5 == pytest.approx(noise.sigmas(rows, 10)[0])


def test_checks_and_answers_cost_what_the_budget_has_whatever_the_data_are() -> None:
    """μ² = asked / σ₁² + 2 answered / σ₂²; PATE's published run on MNIST costs 2.54 so."""
    noise = AnswersNoise(Budget(3.0, 1e-5), np.random.default_rng, "classification")
    wide, check = (one / SCALE for one in noise.sigmas(640, 10, confident=True))
    spent = 640 / check**2 + 2 * 320 / wide**2
    assert spent == pytest.approx(gaussian_mu(3.0, 1e-5) ** 2)
    published = PrivacyLoss((640 / 150**2 + 2 * 286 / 40**2) ** 0.5)
    assert published.epsilon(1e-5) == pytest.approx(2.54, abs=0.005)


def test_rows_that_models_do_not_agree_on_are_not_answered_and_half_at_most_are() -> None:
    party, asked = joined(), {"teachers": 2000, "anyway": True, "confident": 0.75}
    task = PollShards(round=1, rows=ROWS, votes=True, **asked)
    party.protect(Budget(8.0, 1e-3), noise=lambda: np.random.default_rng(7))
    noise = party.privacy._mechanisms[task.reply_type]
    agree = np.array([True, False] * 6)
    split = np.where(agree[:, None], [2000, 0], [1000, 1000]) * SCALE
    reply = replace(task.run(joined(Share())), values=split)
    said = noise.release(reply)
    np.testing.assert_array_equal(said.answered, agree)
    assert not said.values[~agree].any() and said.values[agree].argmax(axis=1).tolist() == [0] * 6
    everyone = noise.release(replace(reply, values=np.tile([[2000 * SCALE, 0]], (12, 1))))
    np.testing.assert_array_equal(everyone.answered, ROWS < 6)


def test_answers_leave_once_and_others_are_charged() -> None:
    party = joined()
    party.protect(Budget(3.0, 1e-3))
    task = PollShards(round=1, rows=ROWS[:4], teachers=5, anyway=True)
    (first,) = answer(party, [task])
    first.validate(party="p", task=task, agreement=party.agreement)
    assert first.sigma == pytest.approx(SCALE * 8**0.5 / gaussian_mu(3.0, 1e-3))
    assert party.privacy.accountant.spent.epsilon(1e-3) == pytest.approx(3.0)
    party.join(replace(party.agreement, seed=7))
    (again,) = answer(party, [replace(task, round=5, parties=9)])
    np.testing.assert_array_equal(again.values, first.values)
    failure = answer(party, [replace(task, teachers=6)])
    assert isinstance(failure, Failure) and failure.code == "budget"
    for wrong in ({"values": first.values + 10**9}, {"answered": np.ones(3, dtype=bool)}):
        with pytest.raises(KnowledgeRefused):
            replace(first, **wrong).validate(party="p", task=task, agreement=party.agreement)
    with pytest.raises(KnowledgeRefused, match="public rows that there are not"):
        replace(task, rows=ROWS + 5).run(party)
    for wrong in ({"rows": ROWS[::-1]}, {"teachers": 1}, {"low": 1.0}, {"confident": 2.0}):
        with pytest.raises(InvalidInput, match="PollShards"):
            replace(task, **wrong)


def test_what_noise_would_drown_is_refused_before_anything_is_spent() -> None:
    """As measured on MNIST, ten parties of 25 models, 300 rows: 0.57 at ε = 3, 0.19 at ε = 1."""
    assert labels_right(250, 34 * 10**0.5, 10) == pytest.approx(0.6, abs=0.02)
    assert labels_right(250, 91 * 10**0.5, 10) < 0.3
    assert labels_right(9, 0.0, 10) == 1.0
    assert teachers_needed(300, gaussian_mu(3.0, 1e-5), 1) == pytest.approx(133, abs=1)
    parties = [Party(n, DecisionTreeClassifier(), X, Y, classes=("a", "b")) for n in "pq"]
    for party in parties:
        party.protect(Budget(0.1, 1e-3))
    federation = Federation(parties, public=PUBLIC)
    with pytest.raises(QuorumLost, match="models in all would be right on some"):
        federation.run(private_answers(rounds=1, teachers=2), progress=False)
    assert not any(party.privacy.accountant for party in parties)


@pytest.mark.parametrize("output", ["votes", "mean"])
def test_without_noise_the_teacher_is_what_most_models_say(output: str) -> None:
    parties = [Party(n, DecisionTreeClassifier(), X, Y) for n in "pq"]
    protocol = private_answers(rounds=1, teachers=3, answers=8, output=output)
    teacher = Federation(parties, public=PUBLIC).run(protocol, progress=False).rounds[-1].teacher
    assert teacher.taught.sum() == 8
    right = PUBLIC.X[teacher.taught][:, 0] > 0
    told = teacher.values[teacher.taught].argmax(axis=1) == 0
    assert (told == right).mean() >= 7 / 8
    assert "left without noise" in teacher.notes[0]
    with pytest.raises(InvalidInput, match="classes have no bounds"):
        Federation(parties, public=PUBLIC).run(private_answers(rounds=1, bounds=(0, 1)))
