"""Park's rounds on three points, followed with pencil and paper, and on more against dense algebra.

The line: h(x) = s x is the function of the linear kernel with ‖h‖ = |s|. Party a has the point (1, 2),
party b the point (2, 4), λ = 1, α = 1/m = 1/2, and x = 1 is public, so that K_pp = (1), N_p λ = 1, and
de-regularisation doubles. A party that is sent w minimises ½ (s x − y)² + ½ (s − w)² + s²:

    a: (½ + ½ + 1) s = ½ 2 + ½ w,  s = (2 + w) / 4      b: (2 + ½ + 1) s = ½ 8 + ½ w,  s = (8 + w) / 7
"""

from __future__ import annotations

import numpy as np
import pytest

from consilience import (
    Deregularization,
    Federation,
    Party,
    anderson,
    avg,
    damped,
    iterative_distillation,
    median,
)
from consilience.core.checks import classifiers, regressors
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.numerics.kernels import wendland
from consilience.models.kernel_ridge import KernelRidge

DOUBLED = Deregularization("linear", 1.0, jitter=0)


def line(**more) -> Federation:
    model = KernelRidge(regularization=1.0, kernel="linear")
    points = {"a": (1.0, 2.0), "b": (2.0, 4.0)}
    parties = [
        Party(n, model, [[x]], [y], calibration=0, purpose="taught") for n, (x, y) in points.items()
    ]
    return Federation(parties, np.array([[1.0]]), **more)


def slopes(federation: Federation) -> list[float]:
    return [float(model.predict([[1.0]])[0, 0]) for model in federation.network.models().values()]


def test_one_shot_distillation_is_two_exchanges():
    """What the parties predict, and the teacher; before it they trained alone, each at its own pace."""
    made = Federation(*regressors(), strict=False)
    rounds = made.rounds(iterative_distillation(rounds=1))
    next(rounds)
    made.network.deliveries.clear()
    list(rounds)
    asked = [delivery.tasks for delivery in made.network.deliveries if delivery.party == "ash"]
    assert asked == ["PredictPublic", "Distill"]


def test_two_rounds_by_hand():
    """Alone s = y x / (x² + 1): 1 and 8/5, whose mean 13/10 is sent as 13/5.

    Round 1: (2 + 13/5) / 4 = 23/20 and (8 + 13/5) / 7 = 53/35. Round 2, the last: their mean 373/280 is
    sent as it is, and s = (2 + 373/280) / 4 = 933/1120 and (8 + 373/280) / 7 = 2613/1960.
    """
    made = line()
    rounds = made.rounds(iterative_distillation(rounds=2, deregularize=DOUBLED))
    start = next(rounds)
    assert (start.number, start.teacher, start.state.consensus) == (0, None, None)
    np.testing.assert_allclose(slopes(made), [1, 8 / 5], rtol=1e-14)
    first = next(rounds)
    np.testing.assert_allclose(first.state.consensus, [[13 / 10]], rtol=1e-14)
    np.testing.assert_allclose(first.teacher.values, [[13 / 5]], rtol=1e-14)
    np.testing.assert_allclose(slopes(made), [23 / 20, 53 / 35], rtol=1e-14)
    last = next(rounds)
    np.testing.assert_allclose(last.state.consensus, [[373 / 280]], rtol=1e-14)
    np.testing.assert_allclose(last.teacher.values, [[373 / 280]], rtol=1e-14)
    np.testing.assert_allclose(slopes(made), [933 / 1120, 2613 / 1960], rtol=1e-14)
    assert list(rounds) == []


def test_one_shot_is_never_deregularised():
    """s = (2 + 13/10) / 4 = 33/40 and (8 + 13/10) / 7 = 93/70."""
    made = line()
    list(made.rounds(iterative_distillation(rounds=1, deregularize=DOUBLED)))
    np.testing.assert_allclose(slopes(made), [33 / 40, 93 / 70], rtol=1e-14)


def test_without_deregularisation_what_is_sent_is_the_consensus():
    """Round 2: the mean of 33/40 and 93/70, 603/560."""
    *_, last = line().rounds(iterative_distillation(rounds=2))
    np.testing.assert_allclose(last.teacher.values, [[603 / 560]], rtol=1e-14)


def test_damping_remembers_what_it_was_before_deregularisation():
    """Algorithm 3, lines 8 and 9, γ_2 = 1/2: (13/10 + 373/280) / 2 = 737/560, and not from 13/5."""
    protocol = iterative_distillation(rounds=3, deregularize=DOUBLED, consensus=damped(0.5))
    rounds = list(line().rounds(protocol))
    np.testing.assert_allclose(rounds[2].state.consensus, [[737 / 560]], rtol=1e-14)
    np.testing.assert_allclose(rounds[2].teacher.values, [[737 / 280]], rtol=1e-14)


def test_anderson_solves_the_line_in_three_rounds():
    """v = ½ (2 + 2 v) / 4 + ½ (8 + 2 v) / 7 holds for v = 23/17; one dimension, and two rounds more."""
    protocol = iterative_distillation(rounds=4, deregularize=DOUBLED, consensus=anderson())
    rounds = list(line().rounds(protocol))
    np.testing.assert_allclose(rounds[3].state.consensus, [[23 / 17]], rtol=1e-9)


def test_probabilities_weigh_the_limit():
    """Theorem C.16 with one party a round and p = (1/4, 3/4): v = ¼ (2 + 2 v) / 4 + ¾ (8 + 2 v) / 7.

    That is v = 55/37 = 1.486, where parties drawn alike would agree on 23/17 = 1.353. Steps of t^-0.75
    leave noise of some 0.01 after 600 rounds.
    """
    protocol = iterative_distillation(
        rounds=600,
        deregularize=DOUBLED,
        consensus=damped(exponent=0.75),
        participation=1,
        probabilities={"a": 1, "b": 3},
    )
    *_, last = line().rounds(protocol)
    assert last.state.consensus == pytest.approx(55 / 37, abs=0.04)


# --- Dataset 3, a small part of it ------------------------------------------------------------------


RNG = np.random.default_rng(0)
X, PUBLIC = RNG.random((4, 5, 3)), RNG.random((15, 3))
Y = RNG.normal(size=(4, 5, 2))
PENALTY = 1e-2


def federation() -> Federation:
    model = KernelRidge(regularization=PENALTY, kernel="wendland")
    parties = [Party(f"p{j}", model, X[j], Y[j], calibration=0, purpose="taught") for j in range(4)]
    return Federation(parties, PUBLIC)


def refitted(j: int, targets) -> np.ndarray:
    """What client j answers on the public rows after line 14, or after line 3 if it was sent nothing."""
    if targets is None:
        K = wendland(X[j], X[j]) + 5 * PENALTY * np.eye(5)
        return wendland(PUBLIC, X[j]) @ np.linalg.solve(K, Y[j])
    both = np.concatenate([X[j], PUBLIC])
    K = wendland(both, both) + PENALTY * np.diag([5 / 0.25] * 5 + [15 / 0.75] * 15)
    return wendland(PUBLIC, both) @ np.linalg.solve(K, np.concatenate([Y[j], targets]))


@pytest.mark.parametrize("lifts", [True, False], ids=["Algorithm 2", "Algorithm 1"])
def test_rounds_are_those_of_dense_refits(lifts):
    chosen = Deregularization("wendland", PENALTY, jitter=0) if lifts else None
    K = wendland(PUBLIC, PUBLIC)
    sent = None
    for round in federation().rounds(iterative_distillation(rounds=6, deregularize=chosen)):
        if round.number == 0:
            continue
        consensus = np.mean([refitted(j, sent) for j in range(4)], axis=0)
        np.testing.assert_allclose(round.state.consensus, consensus, rtol=1e-9, atol=1e-11)
        more = 15 * PENALTY * np.linalg.solve(K, consensus)
        sent = consensus + more if lifts and round.number < 6 else consensus
        np.testing.assert_allclose(round.teacher.values, sent, rtol=1e-9, atol=1e-11)


def test_the_accelerated_consensus_is_where_another_round_changes_nothing():
    chosen = Deregularization("wendland", PENALTY)
    protocol = iterative_distillation(rounds=40, deregularize=chosen, consensus=anderson())
    *_, last = federation().rounds(protocol)
    limit = last.state.consensus
    sent = chosen.of(PUBLIC)(limit)
    again = np.mean([refitted(j, sent) for j in range(4)], axis=0)
    assert np.linalg.norm(again - limit) < 1e-8 * np.linalg.norm(limit)


def test_only_chosen_parties_are_asked_and_taught():
    made = federation()
    protocol = iterative_distillation(rounds=8, participation=2)
    chosen = [round.teacher.parties for round in list(made.rounds(protocol))[1:]]
    assert {len(parties) for parties in chosen} == {2} and len(set(chosen)) > 1
    for t, parties in enumerate(chosen, start=1):
        books = [d for d in made.network.deliveries if d.round == t]
        for task in ("PredictPublic", "Distill"):
            assert {d.party for d in books if task in d.tasks} == set(parties)


# --- the contract -----------------------------------------------------------------------------------


LAPLACIAN = Deregularization("laplacian", 1e-2, gamma=1.0)


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"participation": 5}, "participation is 5"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"alpha": 0.0}, "alpha is 0"),
        ({"probabilities": {"p0": 1}}, "there is none for p1, p2, p3"),
        (
            {"probabilities": {"p0": 3, "p1": 1, "p2": 1, "p3": 1}, "participation": 3},
            "'p0' would take",
        ),
        ({"aggregate": avg()}, "'avg' is for classification"),
        ({"aggregate": median}, "not an aggregator"),
        ({"consensus": anderson}, "not a consensus step"),
        ({"deregularize": {"kernel": "rbf", "regularization": 1}}, "not a Deregularization"),
        (
            {"deregularize": Deregularization("linear", 1e-2, jitter=0)},
            "kernel matrix of the public rows cannot be inverted",
        ),
        ({"deregularize": Deregularization("sigmoid", 1e-2, coef0=-1)}, "positive semi-definite"),
    ],
)
def test_options_are_checked_before_any_training(options, why):
    made = federation()
    with pytest.raises(InvalidInput, match=why):
        next(made.rounds(iterative_distillation(**{"rounds": 1} | options)))
    assert {d.tasks for d in made.network.deliveries} == {"Describe", "Join"}


def test_public_rows_are_there_once():
    model = KernelRidge(kernel="wendland")
    parties = [Party(f"p{j}", model, X[j], Y[j], calibration=0, purpose="taught") for j in range(2)]
    made = Federation(parties, PUBLIC[[0, 1, 2, 1]])
    with pytest.raises(InvalidInput, match="public rows 1 and 3 are the same"):
        next(made.rounds(iterative_distillation(rounds=2, deregularize=LAPLACIAN)))


def test_one_party_needs_an_alpha():
    made = Federation(
        [Party("a", KernelRidge(), X[0], Y[0], calibration=0, purpose="taught")], PUBLIC
    )
    with pytest.raises(InvalidInput, match="two parties or more"):
        next(made.rounds(iterative_distillation(rounds=1)))
    assert len(list(made.rounds(iterative_distillation(rounds=1, alpha=0.5)))) == 2


def test_it_is_for_regression():
    parties, public = classifiers()
    for options, why in (
        ({"aggregate": avg()}, "ensemble_distillation"),
        ({}, "'mean' is for regr"),
    ):
        with pytest.raises(InvalidInput, match=why):
            next(Federation(parties, public).rounds(iterative_distillation(rounds=1, **options)))


def test_a_consensus_that_blows_up_ends_the_run():
    """λ0 ten times the parties' own: every round makes small components larger than it found them."""
    model = KernelRidge(1e-3, kernel="laplacian")
    parties = [Party(f"p{j}", model, X[j], Y[j], calibration=0, purpose="taught") for j in range(3)]
    wrong = Deregularization("laplacian", 1e-2)
    with pytest.raises(RunFailed, match="the consensus diverges: its largest value is"):
        list(
            Federation(parties, PUBLIC).rounds(
                iterative_distillation(rounds=500, deregularize=wrong)
            )
        )


def test_a_first_consensus_of_zero_is_no_yardstick():
    """One party a round, and the first one that is asked knows nothing but zeros."""
    parties = [
        Party(f"p{j}", KernelRidge(1e-3), X[j], Y[j] * (j > 0), calibration=0, purpose="taught")
        for j in range(3)
    ]
    chances = {"p0": 1.0, "p1": 1e-9, "p2": 1e-9}
    protocol = iterative_distillation(rounds=9, participation=1, probabilities=chances)
    assert len(list(Federation(parties, PUBLIC).rounds(protocol))) == 10
    # And where the others come later:
    last = list(
        Federation(parties, PUBLIC, seed=5).rounds(
            iterative_distillation(rounds=12, participation=1)
        )
    )
    assert last[-1].number == 12


def test_a_kernel_that_cannot_take_the_rows_is_refused_before_any_training():
    rows = np.random.default_rng(0).random((10, 5))
    parties = [
        Party(n, KernelRidge(kernel="wendland"), rows, rows[:, 0], purpose="taught")
        for n in ("a", "b")
    ]
    with pytest.raises(InvalidInput, match="inputs have 5 columns"):
        Federation(parties, rows[:4]).form()
