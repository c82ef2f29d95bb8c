"""The round of Kovalchuk et al. on three points a party, followed with pencil and paper.

The model answers with the mean of its targets, so predictions, teachers and refits are fractions.
Party a has labels x, x, y, so it says (2/3, 1/3); party b has y, y, y, so it says (0, 1).
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, LocalNetwork, Party, avg, ensemble_distillation, uwa
from consilience.core.aggregation import (
    Aggregator,
    ConsensusUpdate,
    count_weighted,
    damped,
    mean,
    power_sharpened_mean,
)
from consilience.core.aggregation.base import Combined
from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.protocols import RoundState
from consilience.methods.comparison_rules.reliability import (
    certainty_weighted,
    selective_mean,
    variance_weighted,
)
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])
PUBLIC = np.array([[0.5], [1.5]])


def federation(*models: Share, more: list[Party] | None = None, seed: int = 0) -> Federation:
    a, b = models or (Share(), Share())
    parties = [
        Party("a", a, POINTS, ["x", "x", "y"], calibration=0),
        Party("b", b, POINTS, ["y", "y", "y"], calibration=0),
        *(more or []),
    ]
    return Federation(parties, PUBLIC, seed=seed, strict=False)


def learners(network: LocalNetwork) -> list[Share]:
    return [network._members[name].trainer.learner for name in network.parties]


def near(values, expected) -> None:
    np.testing.assert_allclose(values, np.broadcast_to(expected, np.shape(values)), rtol=1e-6)


def test_two_rounds_of_models_that_refit():
    """α = 1/m = 1/2.

    Round 0: a says (2/3, 1/3), b says (0, 1). Round 1: the teacher is their mean (1/3, 2/3); a refits
    to 1/2 (2/3, 1/3) + 1/2 (1/3, 2/3) = (1/2, 1/2), b to 1/2 (0, 1) + 1/2 (1/3, 2/3) = (1/6, 5/6).
    Round 2: the mean is (1/3, 2/3) again, and the refits come out the same.
    """
    made = federation()
    rounds = made.rounds(ensemble_distillation(aggregate=avg(), rounds=2))
    start = next(rounds)
    a, b = learners(made.network)
    assert (start.number, start.teacher) == (0, None)
    near(a.mean, [2 / 3, 1 / 3])
    near(b.mean, [0, 1])
    for number, round in enumerate(rounds, start=1):
        assert round.number == round.state.round == number
        near(round.teacher.values, [1 / 3, 2 / 3])
        near(a.mean, [1 / 2, 1 / 2])
        near(b.mean, [1 / 6, 5 / 6])
    assert number == 2
    assert [phase for phase, *_ in a.fits] == ["first", "distill"]  # the teacher stands still


def test_the_weights_of_park():
    """α/N = 1/12 a private row and (1 - α)/N_p = 3/8 a public one at α = 1/4, times the 5 rows."""
    made = federation()
    list(made.rounds(ensemble_distillation(aggregate=avg(), rounds=1, alpha=0.25)))
    _, X, targets, weights = learners(made.network)[0].fits[-1]
    np.testing.assert_allclose(weights, [5 / 12] * 3 + [15 / 8] * 2)
    np.testing.assert_array_equal(X, np.concatenate([POINTS, PUBLIC]))
    near(targets[:3], [[1, 0], [1, 0], [0, 1]])
    near(targets[3:], [1 / 3, 2 / 3])
    near(learners(made.network)[0].mean, [1 / 4 * 2 / 3 + 3 / 4 / 3, 1 / 4 / 3 + 3 / 4 * 2 / 3])


def test_a_model_without_weights_counts_rows_alike_and_says_so():
    """a: (2 + 2/3, 1 + 4/3) / 5 = (8/15, 7/15)."""
    made = federation(Share(sample_weight=False), Share())
    list(made.rounds(ensemble_distillation(aggregate=avg(), rounds=1)))
    near(learners(made.network)[0].mean, [8 / 15, 7 / 15])
    (noted,) = [d for d in made.network.deliveries if d.detail]
    assert (noted.party, noted.tasks) == ("a", "Distill")
    assert "private and public rows count alike" in noted.detail


def test_incremental_models_see_public_rows_alone_and_then_private_ones():
    """Each lands on the teacher; in the next round's line 2 it is trained on its own rows again."""
    made = federation(Share(incremental=True), Share(incremental=True))
    rounds = list(made.rounds(ensemble_distillation(aggregate=avg(), rounds=2)))
    a, b = learners(made.network)
    near(rounds[2].teacher.values, [1 / 3, 2 / 3])
    near(a.mean, [1 / 3, 2 / 3])
    near(b.mean, [1 / 3, 2 / 3])
    assert [phase for phase, *_ in a.fits] == ["first", "distill", "private", "distill"]
    np.testing.assert_array_equal(a.fits[1][1], PUBLIC)


def test_counts_weigh_parties():
    """A third party with six rows of x: (3 (2/3, 1/3) + 3 (0, 1) + 6 (1, 0)) / 12 = (2/3, 1/3)."""
    third = Party("c", Share(), np.arange(6.0)[:, None], ["x"] * 6, calibration=0)
    made = federation(more=[third])
    rounds = list(made.rounds(ensemble_distillation(aggregate=count_weighted(), rounds=1)))
    near(rounds[1].teacher.values, [2 / 3, 1 / 3])
    near(rounds[1].teacher.weights, [[1 / 4], [1 / 4], [1 / 2]])


def test_densities_decide_whom_to_trust():
    """Each party's logits are constant, so its own public rows are as typical for it as for the other.

    a: logits ln(2/3, 1/3) are its mean, so both components of its mixture, of the floor's variance v,
    sit there: ln p = -ln(2 pi v). b has one class, the same density: UWA weighs both by one half.
    """
    rounds = list(federation().rounds(ensemble_distillation(aggregate=uwa(), rounds=1)))
    near(rounds[1].teacher.weights, 1 / 2)
    near(rounds[1].teacher.values, [1 / 3, 2 / 3])


def test_the_consensus_is_damped():
    """With incremental parties round 1 teaches (1/3, 2/3), and so would every round; with b gone in
    round 2 the proposal is a's (2/3, 1/3), and half of the way there is (1/2, 1/2)."""
    made = federation(Share(incremental=True), Share(incremental=True))
    protocol = ensemble_distillation(aggregate=avg(), rounds=2, consensus=damped(0.5))
    rounds = made.rounds(protocol)
    next(rounds), next(rounds)
    learners(made.network)[1].fit = None  # not callable: b fails from now on
    last = next(rounds)
    assert last.teacher.parties == ("a",)
    near(last.teacher.values, [1 / 2, 1 / 2])
    near(learners(made.network)[0].mean, [1 / 2, 1 / 2])


def test_a_step_that_leaves_the_simplex_is_put_back():
    """One that goes on from (1/3, 2/3) by (-1, 1/3) is at (-2/3, 1): (0, 1) is sent, remembered and next."""
    given = []

    def update(proposal, previous, memory):
        given.append(previous)
        return proposal + np.array([-1, 1 / 3]), memory

    made = federation()
    step = ConsensusUpdate("astray", dict, update)
    for round in made.rounds(ensemble_distillation(aggregate=avg(), rounds=2, consensus=step)):
        if round.number:
            assert round.teacher.values.dtype == np.float32
            np.testing.assert_array_equal(round.teacher.values, [[0, 1], [0, 1]])
            np.testing.assert_array_equal(round.state.consensus, [[0, 1], [0, 1]])
    assert given[0] is None
    np.testing.assert_array_equal(given[1], [[0, 1], [0, 1]])
    near(learners(made.network)[0].mean, [1 / 2 * 2 / 3, 1 / 2 / 3 + 1 / 2])


def test_regression():
    """Means 1 and 4 of three values each; the teacher is 2.5, refits 1.75 and 3.25."""
    parties = [
        Party("a", Share("regression"), POINTS, [0, 1, 2], calibration=0),
        Party("b", Share("regression"), POINTS, [3, 4, 5], calibration=0),
    ]
    made = Federation(parties, PUBLIC)
    rounds = list(made.rounds(ensemble_distillation(aggregate=mean(), rounds=1)))
    near(rounds[1].teacher.values, 2.5)
    near(learners(made.network)[0].mean, 1.75)
    near(learners(made.network)[1].mean, 3.25)


@pytest.mark.parametrize(
    ("participation", "expected"),
    [(1, 1), (3, 3), (10, 10), (0.25, 3), (0.24, 2), (0.01, 1), (1.0, 10)],
)
def test_participation(participation, expected):
    """A number, or a share rounded half up and at least one: 2.5 of ten are three."""
    parties = [Party(f"p{i}", Share(), POINTS, ["x", "x", "y"], calibration=0) for i in range(10)]
    made = Federation(parties, PUBLIC)
    protocol = ensemble_distillation(aggregate=avg(), rounds=4, participation=participation)
    rounds = list(made.rounds(protocol))[1:]
    assert {len(round.teacher.parties) for round in rounds} == {expected}
    taught = {d.party for d in made.network.deliveries if (d.tasks, d.round) == ("Distill", 4)}
    assert taught == set(rounds[-1].teacher.parties)
    if expected < 10:
        assert len({round.teacher.parties for round in rounds}) > 1
    again = list(Federation(parties, PUBLIC).rounds(protocol))[1:]
    assert [r.teacher.parties for r in again] == [r.teacher.parties for r in rounds]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"participation": 0}, "participation is 0"),
        ({"participation": 3}, "participation is 3"),
        ({"participation": 1.5}, "participation is 1.5"),
        ({"participation": -0.5}, "participation is -0.5"),
        ({"probabilities": {"a": 1}}, "there is none for b"),
        ({"consensus": damped}, "not a consensus step"),
        ({"alpha": 0.0}, "alpha is 0"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"aggregate": mean()}, "'mean' is for regression"),
    ],
)
def test_options_are_checked_before_any_training(options, why):
    made = federation()
    protocol = ensemble_distillation(**{"aggregate": avg(), "rounds": 1} | options)
    with pytest.raises(InvalidInput, match=why):
        next(made.rounds(protocol))
    assert all(not learner.fits for learner in learners(made.network))


def test_unknown_options_are_refused_at_once():
    with pytest.raises(InvalidInput, match="Did you mean 'rounds'"):
        ensemble_distillation(aggregate=avg(), round=1)
    with pytest.raises(InvalidInput, match="needs the option 'rounds'"):
        ensemble_distillation(aggregate=avg())
    with pytest.raises(InvalidInput, match="options by name, and was given Federation"):
        ensemble_distillation(federation(), rounds=1)


def test_after_the_last_round_there_is_nothing_left():
    made = federation()
    made.form()
    state = RoundState(round=2)
    protocol = ensemble_distillation(aggregate=avg(), rounds=2)
    assert list(made.rounds(protocol, state=state)) == []


def test_what_the_parties_were_given_stays_as_it_was():
    model = GaussianNB()
    X, y = np.repeat(POINTS, 4, axis=0), np.array(["x", "x", "y"] * 4)
    before = X.copy(), y.copy(), PUBLIC.copy()
    parties = [Party("a", model, X, y), Party("b", model, X, y)]
    Federation(parties, Public(PUBLIC)).run(ensemble_distillation(aggregate=avg(), rounds=2))
    assert not hasattr(model, "classes_")
    for now, then in zip((X, y, PUBLIC), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_row_for_which_nobody_counts_is_not_taught():
    """Only the first row: a refits on three private rows and that one, as it would on both."""

    def rule(stack):
        values, weights = stack.outputs.mean(axis=0), np.full((2, 2), 0.5)
        weights[:, 1] = 0
        return Combined(values, weights)

    made = federation()
    *_, last = made.rounds(ensemble_distillation(aggregate=Aggregator("half", rule), rounds=1))
    assert last.teacher.taught.tolist() == [True, False]
    _, X, targets, weights = learners(made.network)[0].fits[-1]
    np.testing.assert_array_equal(X, np.concatenate([POINTS, PUBLIC[:1]]))
    near(targets[3:], [1 / 3, 2 / 3])
    np.testing.assert_allclose(weights, [4 / 6] * 3 + [4 / 2])


@pytest.fixture(scope="module")
def digits():
    """Five parties with four of ten digits each, as pictures, and what the public rows are."""
    from consilience.lab.data import load

    data = load("digits")
    X, y = data.X.reshape(-1, 8, 8), data.y
    parties = {}
    for i in range(5):
        rows = 200 + np.flatnonzero(np.isin(y[200:], [(2 * i + j) % 10 for j in range(4)]))
        parties[f"p{i}"] = X[rows[:80]], y[rows[:80]]
    return parties, X[:200], y[:200]


def right(digits, rule) -> tuple[float, float]:
    """Share of the taught rows that round 1's teacher names rightly, and share of rows that are taught."""
    private, public, y = digits
    parties = [Party(name, "naive-bayes", *rows) for name, rows in private.items()]
    made = Federation(parties, public, seed=0)
    *_, last = made.rounds(ensemble_distillation(aggregate=rule, rounds=1))
    taught = np.ones(200, dtype=bool) if last.teacher.taught is None else last.teacher.taught
    named = np.array([int(made.network.agreed.classes[k]) for k in last.teacher.values.argmax(1)])
    return float((named == y)[taught].mean()), float(taught.mean())


def test_digits(digits):
    """Whom inputs show to know a digit is believed on it: these teachers beat the mean. Sharpening changes
    no class."""
    plain, _ = right(digits, avg())
    assert right(digits, power_sharpened_mean()) == (plain, 1)
    assert right(digits, variance_weighted())[1] == 1
    assert right(digits, certainty_weighted())[0] > plain + 0.02
    selected, taught = right(digits, selective_mean())
    assert selected > plain + 0.1 and 0.25 < taught < 1
