"""FFGB: by hand, against known minimisers and the paper's claims, on digits, over every network, misused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import Federation, LocalNetwork, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused, QuorumLost, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure, SharedModel
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import encode
from consilience.core.networks.incoming import Arrival
from consilience.core.party.rules import PartyRules
from consilience.core.protocols import local_only
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.methods.functional_boosting.losses import LOSSES
from consilience.methods.functional_boosting.protocol import function_of, step_sizes
from consilience.methods.functional_boosting.protocol import (
    functional_gradient_boosting as ffgb,
)
from consilience.methods.functional_boosting.tasks import (
    ChangeFunction,
    Descend,
    Objective,
    StartFunction,
    WeakLearners,
)
from consilience.methods.model_exchange import tasks as exchange_tasks
from consilience.methods.model_exchange.party import share
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.models import make
from consilience.models.files.transfer import pack

TWO = np.array([[0.0], [1.0]])
EXACT = "tree-regressor"


def half() -> Any:
    """Answers half of what it was taught: γ = 1/2."""
    return GradientBoostingRegressor(n_estimators=1, learning_rate=0.5, init="zero", max_depth=None)


def squares(name: str, X: Any, y: Any, weak: Any = EXACT, **options: Any) -> Party:
    return Party(name, Boosted(weak, loss="squared"), X, y, calibration=0, **options)


def by_hand(**options: Any) -> list[Party]:
    return [
        squares("a", TWO, np.array([2.0, 6.0]), **options),
        squares("b", TWO, np.array([4.0, 0.0]), **options),
    ]


def values(federation: Federation, X: Any = TWO) -> list[list[float]]:
    return [m.predict(X).ravel().tolist() for m in federation.network.models().values()]


def run(parties: Sequence[Party], **options: Any) -> Any:
    """The last round."""
    *_, last = Federation(parties, strict=False).rounds(ffgb(**options))
    return last


def test_two_rounds_by_hand() -> None:
    """η = 1/4, μ = 1, K = 2: a step takes g to g/2 + y/4, two take f to f/4 + 3y/8.

    The mean of y is 3 at both points: f¹ = 9/8 and f² = 9/32 + 9/8 = 45/32. Weights, for each of two parties:
    −(1/4)(3/4)/2 and −(1/4)/2, and in the next round (3/4)² of that. At f⁰ = 0 the objectives are
    (4 + 36)/4 = 10 and (16 + 0)/4 = 4, 7 in the mean.
    """
    federation = Federation(by_hand())
    protocol = ffgb(rounds=2, local_steps=2, step_size=0.25, ridge=1.0)
    rounds = []
    for round in federation.rounds(protocol):
        rounds.append(round)
        expected = [0, 9 / 8, 45 / 32][round.number]
        assert values(federation) == [[expected, expected]] * 2
    assert rounds[0].state.memory["objective"] == 7
    new = [-3 / 32, -1 / 8] * 2
    assert rounds[1].state.memory["weights"].tolist() == new
    assert rounds[2].state.memory["weights"].tolist() == [9 / 16 * w for w in new] + new
    f, y = 45 / 32, np.array([2, 6, 4, 0])
    assert rounds[2].state.memory["objective"] == pytest.approx(
        ((f - y) ** 2).mean() / 2 + f**2 / 2
    )
    assert function_of(rounds[2].state).predict(TWO).ravel().tolist() == [f, f]


def test_the_residual_by_hand() -> None:
    """γ = 1/2, η = 1/2: y = 4 goes to 9/4, or 7/4 without
    (``tests/methods/functional_boosting/test_boosted.py``)."""
    for residual, of_four in ((True, 9 / 4), (False, 7 / 4)):
        parties = [
            squares(name, TWO, np.full(2, y), half())
            for name, y in zip("ab", (4.0, 8.0), strict=True)
        ]
        last = run(parties, rounds=1, local_steps=2, step_size=0.5, residual=residual)
        assert function_of(last.state).predict(TWO)[0, 0] == pytest.approx(1.5 * of_four)


def test_schedules_by_hand() -> None:
    """μ = 1/2, K = 2, t = 1: tK + k + 1 = 4 and 5."""
    assert step_sizes("heterogeneous", 0.5, 1, 2) == (8 / 4, 8 / 5)
    assert step_sizes("homogeneous", 0.5, 1, 2) == (4 / 4, 4 / 5)
    assert step_sizes(0.3, 0.0, 7, 3) == (0.3, 0.3, 0.3)


def test_the_first_rounds_of_a_schedule_by_hand() -> None:
    """μ = 1, K = 1: η = 1, 2/3, 1/2, and f ← f − η (2f − 3) goes 0, 3, 1, 3/2, which is the minimiser."""
    federation = Federation(by_hand())
    protocol = ffgb(rounds=3, step_size="homogeneous", ridge=1.0)
    found = [values(federation)[0][0] for _ in federation.rounds(protocol)]
    assert found == pytest.approx([0, 3, 1, 1.5])


# --- known minimisers -----------------------------------------------------------------------------

POINTS = np.arange(6.0)[:, None]
SHARES = np.random.default_rng(1).dirichlet(np.ones(3), size=(3, 6))
"""Class shares of three parties at six points."""


def classified(weak: Any, ridge_of: float) -> tuple[list[Party], Any]:
    """Three parties with the same inputs and other labels, 20 rows a point; and the minimiser of the mean.

    At each point it minimises ``−Σ_c p_c log softmax(f)_c + μ/2 ‖f‖²``, p the mean of the parties' shares.
    """
    counts = np.round(SHARES * 20).astype(int)
    counts[..., 2] = 20 - counts[..., :2].sum(axis=2)
    parties = []
    for name, own in zip("abc", counts, strict=True):
        X = np.repeat(POINTS, 20, axis=0)
        y = np.concatenate([np.repeat(["r", "s", "t"], n) for n in own])
        parties.append(Party(name, Boosted(weak), X, y, calibration=0))
    loss = LOSSES["cross-entropy"]
    best = []
    for p in counts.mean(axis=0) / 20:
        found = minimize(
            lambda f, p=p: loss.value(f[None], p[None])[0] + ridge_of / 2 * f @ f,
            np.zeros(3),
            jac=lambda f, p=p: loss.gradient(f[None], p[None])[0] + ridge_of * f,
            options={"gtol": 1e-12},
        )
        best.append(found.x)
    return parties, np.array(best)


def errors(parties: list[Party], best: Any, points: Any = POINTS, **options: Any) -> list[float]:
    """``‖f^t − f*‖²_α`` after every round, all points alike."""
    federation = Federation(parties, strict=False)
    found = []
    for round in federation.rounds(ffgb(**options)):
        f = 0.0 if round.number == 0 else function_of(round.state).predict(points)
        found.append(float(np.square(f - best).sum(axis=1).mean()))
    return found


def slope(error: Any, since: int) -> float:
    """Of log error over log T, T ≥ ``since``."""
    T = np.arange(since, len(error))
    return float(np.polyfit(np.log(T), np.log(np.asarray(error)[since:]), 1)[0])


@pytest.mark.parametrize("schedule", ["heterogeneous", "homogeneous"])
def test_homogeneous_inputs_reach_the_minimiser_at_the_rate_of_the_theorems(schedule: Any) -> None:
    """Theorems 4.1 with ω_TV = 0 and 4.3, an exact oracle (γ = 1): at least O(log T / T), and no plateau."""
    parties, best = classified(EXACT, 1.0)
    error = errors(parties, best, rounds=12, local_steps=2, step_size=schedule, ridge=1.0)
    assert slope(error, 2) < -1
    assert all(later < earlier for earlier, later in pairwise(error[2:]))
    assert error[-1] < 1e-6 * error[0]


def test_the_residual_makes_up_for_weak_learners() -> None:
    """Stumps, 16 steps in all: K = 16 instead of 2 comes nearer by the term (1 − γ)/K; not without Δ.

    (At this μ one party would stall too, since stumps do not see μf; tests/theory tells the two apart.)
    """
    stump = {"name": EXACT, "max_depth": 1}
    left = {}
    for residual in (True, False):
        for K in (2, 16):
            parties, best = classified(stump, 1.0)
            left[residual, K] = errors(
                parties,
                best,
                rounds=16 // K,
                local_steps=K,
                step_size="homogeneous",
                ridge=1.0,
                residual=residual,
            )[-1]
    assert left[True, 16] < left[True, 2] / 5
    assert left[False, 16] > 0.9 * left[False, 2]
    assert left[True, 16] < left[False, 16] / 5


def apart(count: int) -> list[Party]:
    """Two parties on a line of 12 points, of which ``count`` are with one of them alone, in turns."""
    X, y = np.arange(12.0)[:, None], np.where(np.arange(12) // 2 % 2, 1.0, -1.0)
    own = np.arange(12) < count
    return [
        squares(name, X[rows], y[rows])
        for name, rows in (
            ("a", ~own | (np.arange(12) % 4 < 2)),
            ("b", ~own | (np.arange(12) % 4 >= 2)),
        )
    ]


def test_heterogeneous_inputs_leave_a_plateau_that_grows_with_what_is_apart() -> None:
    """Labels are a function of the inputs, so that f* = y / (1 + μ) whatever the parties hold.

    Of a party's 12, 10 and 8 points 0, 2 and 4 are with it alone: ω_TV is 0, 1/10 and 1/4.
    """
    plateaus = []
    for count in (0, 4, 8):
        parties = apart(count)
        X = np.concatenate([party.rows.X for party in parties])
        best = np.concatenate([party.rows.y for party in parties]) / 2
        error = errors(parties, best, X, rounds=16, step_size="heterogeneous", ridge=1.0)
        plateaus.append(error[-1])
        if count:  # a plateau: it does not fall any more
            assert error[-1] == pytest.approx(error[-5], rel=0.2)
    assert plateaus[0] < 1e-20 and 0.01 < plateaus[1] < plateaus[2] / 1.5


# --- on digits, and with networks -----------------------------------------------------------------


def digits(model: Any) -> list[Party]:
    """Four parties that lack four of the ten classes each, tested on all."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, (train, test) = X / 16, np.split(np.random.default_rng(0).permutation(len(X)), [1200])
    parties = []
    for i, name in enumerate("abcd"):
        rows = train[i::4]
        mine = rows[~np.isin(y[rows], (np.arange(4) + 2 * i) % 10)]
        parties.append(Party(name, model, X[mine], y[mine], test=(X[test], y[test])))
    return parties


def test_a_federation_of_forests_beats_its_parties_alone() -> None:
    weak = {"name": "random-forest-regressor", "n_estimators": 5}
    model = Boosted(weak, steps=5, step_size=4.0)
    alone = Federation(digits(model)).run(local_only(rounds=1)).metric()[-1]
    history = Federation(digits(model)).run(ffgb(rounds=5, step_size=4.0))
    together = history.metric()[-1]
    assert len(set(together)) == 1  # one model
    assert together[0] > alone.max() + 0.2


NETWORK = {
    "name": "mlp",
    "hidden": (8,),
    "recipe": {"first_epochs": 30, "distill_epochs": 30, "learning_rate": 0.02},
}


def waves(weak: Any) -> tuple[list[Party], Any]:
    """Two parties see every second point of a wave; public inputs lie all along it."""
    X = np.linspace(-1, 1, 40)[:, None]
    y = np.sin(3 * X[:, 0])
    parties = [
        squares("a", X[::2], y[::2], weak, test=(X, y)),
        squares("b", X[1::2], y[1::2], weak, test=(X, y)),
    ]
    return parties, X


def test_distillation_leaves_one_student_near_the_sum() -> None:
    """A tree without a limit says at the public rows what the sum said there: both go the same way."""
    parties, X = waves(EXACT)
    options: dict[str, Any] = {"rounds": 3, "step_size": 0.5, "ridge": 0.2}
    sums = [r.state for r in Federation(parties).rounds(ffgb(**options))]
    federation = Federation(waves(EXACT)[0], public=X)
    students = [r.state for r in federation.rounds(ffgb(distill=True, **options))]
    for plain, distilled in zip(sums[1:], students[1:], strict=True):
        assert function_of(distilled).predict(X) == pytest.approx(function_of(plain).predict(X))
        assert distilled.memory["weights"].tolist() == [1] and len(distilled.memory["models"]) == 1
    assert len(sums[-1].memory["models"]) == 6
    (party, _) = federation.network.models().values()
    student = party.learner.student  # type: ignore[attr-defined]
    assert np.array_equal(student.predict(X), function_of(students[-1]).predict(X))


def test_networks_are_distilled_and_go_on_from_the_last_student() -> None:
    results = {}
    for warm in (False, True):
        parties, X = waves(NETWORK)
        protocol = ffgb(rounds=3, step_size=0.7, distill=True, warm_start=warm)
        results[warm] = Federation(parties, public=X).run(protocol)
    for history in results.values():
        assert history.metric("mse")[-1].max() < 0.5 * history.metric("mse")[0].max()
    first, second = (results[warm].metric("mse")[:, 0] for warm in (False, True))
    assert first[1] == second[1] and first[2] != second[2]  # there is no student to begin with


def test_a_student_warms_federated_averaging_up() -> None:
    """Section 5: what FFGB-distill leaves is where the parameters of the same network start from."""
    parties, X = waves(NETWORK)
    boosted = Federation(parties, public=X).run(ffgb(rounds=2, step_size=1.0, distill=True))
    student = boosted.models["a"].learner.student  # type: ignore[attr-defined]
    network = make(**{**NETWORK, "kind": "regression"})  # type: ignore[arg-type]
    made = [
        Party(p.name, network, p.rows.X, p.rows.y, test=p.rows.test, calibration=0)
        for p in waves(EXACT)[0]
    ]
    averaged = Federation(made).run(federated_averaging(rounds=1, initial=student))
    assert averaged.metric("mse")[0] == pytest.approx(boosted.metric("mse")[-1])


def test_pruning_leaves_out_old_terms() -> None:
    """η μ = 1/2 halves the old weights in every round: the first of 7 makes up less than 1 %."""
    options: dict[str, Any] = {"rounds": 7, "step_size": 0.5, "ridge": 1.0}
    whole, pruned = run(by_hand(), **options), run(by_hand(), prune=0.01, **options)
    assert len(whole.state.memory["weights"]) == 14 and len(pruned.state.memory["weights"]) == 12
    f, less = (function_of(last.state).predict(TWO) for last in (whole, pruned))
    assert not np.array_equal(f, less) and less == pytest.approx(f, rel=0.02)
    exact = run(by_hand(), rounds=2, step_size=1.0, ridge=1.0)  # 1 − η μ = 0
    assert len(exact.state.memory["weights"]) == 2


# --- who takes part, and how it travels -----------------------------------------------------------


class Drops(LocalNetwork):
    """Loses what party b says in round 1 of the function that it was sent, and the function with it."""

    def exchange(self, tasks: Any, to: Any, request: Any) -> Any:
        lost = (tasks[0].round, type(tasks[0])) == (1, ChangeFunction)
        arrivals = dict(
            super().exchange(tasks, tuple(p for p in to if not lost or p != "b"), request)
        )
        if lost:
            arrivals["b"] = Arrival(Failure(party="b", reason="it was lost"), 0, 0.0)
        return arrivals


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize(
    ("chosen", "question"),
    [({}, "Descend"), ({"participation": 1, "probabilities": {"a": 1, "b": 0}}, "ChangeFunction")],
    ids=["chosen", "not chosen"],
)
def test_a_party_that_missed_the_function_is_sent_all_of_it_once(
    chosen: Any, question: str, wire: bool
) -> None:
    """The same numbers as without the loss; one question of round 2 is a larger one for b."""
    options: dict[str, Any] = {"rounds": 3, "step_size": 0.5, "ridge": 0.1, **chosen}
    expected = function_of(run(by_hand(), **options).state).predict(TWO)
    network = Drops(by_hand(), Public.none(), wire=wire)
    *rounds, last = federation_over(network, Public.none()).rounds(ffgb(**options))
    assert rounds[1].state.memory["holders"] == ("a",)
    assert last.state.memory["holders"] == ("a", "b")
    assert np.array_equal(function_of(last.state).predict(TWO), expected)
    assert all(np.array_equal(m.predict(TWO), expected) for m in network.models().values())
    later = [d for d in network.deliveries if d.round >= 2]
    assert all(d.status == "ok" for d in later)
    sizes = {(d.round, d.tasks, d.party): d.bytes_down for d in later}
    larger = [
        (round, task)
        for round, task, party in sizes
        if party == "b" and sizes[round, task, "b"] > sizes.get((round, task, "a"), 1e9) + 1000
    ]
    assert larger == [(2, question)]


def test_partial_participation() -> None:
    """With one party a round f is that party's g: towards its own labels."""
    federation = Federation(by_hand())
    before = np.zeros(2)
    seen = set()
    for round in federation.rounds(ffgb(rounds=6, step_size=0.5, participation=1)):
        if round.replies is None:
            continue
        (party,) = round.replies.parties
        y = {"a": [2.0, 6.0], "b": [4.0, 0.0]}[party]
        before = before + 0.5 * (np.array(y) - before)
        assert values(federation) == [pytest.approx(before)] * 2
        seen.add(party)
    assert seen == {"a", "b"}
    with pytest.raises(InvalidInput, match="participation is 3"):
        run(by_hand(), rounds=1, participation=3)


# --- misuse ---------------------------------------------------------------------------------------


def test_a_step_size_that_diverges_is_named_and_stops_the_run() -> None:
    """η = 3: f^t = 3 − 3 (−2)^t, and party a's objective about f²/2: 4.9e3 after round 5, then 1.8e4.

    At f = 0 the larger objective is 10, so that the limit is 10⁴.
    """
    said = r"round 6: .*diverges .*wild: the objective of party 'a' is .*(.|\n)*ridge\) = 2,"
    with pytest.raises(RunFailed, match=said):
        run(by_hand(), rounds=30, step_size=3.0)
    with pytest.raises(RunFailed, match=r"round 1: .*diverges"):
        run(by_hand(), rounds=1, local_steps=400, step_size=30.0)


def test_a_step_size_that_leads_astray_is_noted() -> None:
    """η = 2.2: f = 6.6 after round 1, where b's objective is 12.6, from 4 at f = 0."""
    history = Federation(by_hand(), strict=False).run(ffgb(rounds=2, step_size=2.2))
    notes = [d.detail for row in history.deliveries for d in row if d.tasks == "ChangeFunction"]
    assert any("at f = 0: take a smaller step_size" in note for note in notes)
    history = Federation(by_hand(), strict=False).run(ffgb(rounds=2, step_size=1.0))
    assert not any(d.detail for row in history.deliveries for d in row)


def labelled(name: str, model: Any, **options: Any) -> Party:
    X = np.arange(8.0)[:, None]
    return Party(name, model, X, np.repeat(["r", "s"], 4), **options)


@pytest.mark.parametrize(
    ("parties", "said"),
    [
        ([make("naive-bayes")] * 2, "its model is no sum of weak learners"),
        (
            [Boosted(EXACT), Boosted(EXACT, loss="logistic")],
            "a has the loss 'cross-entropy', b 'log",
        ),
        (
            [Boosted(KNeighborsRegressor(2))] * 2,
            "KNeighborsRegressor holds rows of its private data",
        ),
    ],
)
def test_parties_that_cannot_boost_are_refused(parties: Any, said: str) -> None:
    made = [labelled(name, model) for name, model in zip("ab", parties, strict=True)]
    with pytest.raises(InvalidInput, match=said):
        run(made, rounds=1)
    assert not any(
        isinstance(p.trainer.learner, Boosted) and p.trainer.learner.ensemble for p in made
    )


def test_protocols_that_exchange_whole_models_refuse_sums() -> None:
    parties = [labelled(name, Boosted(EXACT)) for name in "ab"]
    with pytest.raises(InvalidInput, match="a sum of weak learners is not sent as a whole"):
        next(Federation(parties).rounds(averaged_distillation(rounds=1)))


def test_weak_learners_that_are_not_trusted_are_refused_before_any_is_trained() -> None:
    parties = [
        labelled("a", Boosted(EXACT), rules=PartyRules(trusts=("sklearn",))),
        labelled(
            "b", Boosted("lightgbm-regressor"), rules=PartyRules(trusts=("sklearn", "lightgbm"))
        ),
    ]
    with pytest.raises(InvalidInput, match="'a': it would be sent weak learners of 'lightgbm'"):
        run(parties, rounds=1)
    parties = [
        labelled(n, Boosted(EXACT, trusts=()), rules=PartyRules(trusts=("sklearn", "xgboost")))
        for n in "ab"
    ]
    parties.append(
        labelled("c", Boosted("xgboost-regressor"), rules=PartyRules(trusts=("sklearn", "xgboost")))
    )
    with pytest.raises(InvalidInput, match="'a': it would be sent weak learners of 'xgboost'"):
        run(parties, rounds=1)
    allowed = labelled("a", Boosted(KNeighborsRegressor(2)), rules=PartyRules(sends_rows=True))
    assert run([allowed, labelled("b", Boosted(EXACT))], rounds=1).number == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"step_size": 0.0}, "step_size is 0"),
        ({"step_size": float("nan")}, "step_size is nan"),
        ({"step_size": "homogenous", "ridge": 1.0}, "step_size is 'homogenous'"),
        ({"step_size": "homogeneous"}, "divides by ridge, which is 0"),
        ({"ridge": -1.0}, "ridge is -1"),
        ({"prune": 1.0}, "prune is 1"),
        ({"step_size": float("inf")}, "Give a finite number"),
        ({"distill": True}, "no public rows to distil on"),
        ({"warm_start": True}, "nothing is distilled"),
        ({"residuals": False}, "unknown option 'residuals'"),
    ],
)
def test_bad_options(options: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        run(by_hand(), **{"rounds": 1, **options})


def test_trees_cannot_go_on_from_the_last_student() -> None:
    parties, X = waves(EXACT)
    with pytest.raises(InvalidInput, match="prune is for sums"):
        next(Federation(parties, public=X).rounds(ffgb(rounds=1, distill=True, prune=0.1)))
    with pytest.raises(InvalidInput, match="starts anew in every fit"):
        next(Federation(parties, public=X).rounds(ffgb(rounds=1, distill=True, warm_start=True)))


def test_what_parties_answer_is_checked() -> None:
    task = StartFunction(round=1, ridge=0.0)
    about = {"party": "a", "round": 1}
    fine: dict[str, Any] = {**about, "loss": "squared", "smoothness": 1.0, "packages": ()}
    Objective(**fine, value=1e300).validate(party="a", task=task, agreement=None)
    for wrong in (
        Objective(**fine, value=float("inf")),
        Objective(**fine, value=float("nan")),
        Objective(**{**fine, "round": 2}, value=1.0),
        Objective(**{**fine, "party": "b"}, value=1.0),
        WeakLearners(**about, models=(), value=float("nan")),
        WeakLearners(**about, models=(), value=float("inf")),
        WeakLearners(
            **about,
            value=1.0,
            models=(SharedModel(party="b", round=1, about="", data=np.ones(1, np.uint8)),),
        ),
    ):
        with pytest.raises(KnowledgeRefused):
            wrong.validate(party="a", task=task, agreement=AGREED)
    assert encode([Objective(**fine, value=float("inf"))])
    asked = Descend(
        round=1, step_sizes=(1.0, 1.0), ridge=0.0, residual=True, limit=10.0, packages=("sklearn",)
    )
    description, data = tree(1)
    mine = SharedModel(party="a", round=1, about=description, data=data)
    stopped = WeakLearners(**about, models=(mine,), value=11.0)
    stopped.validate(party="a", task=asked, agreement=AGREED)  # beyond the limit: the run will end
    WeakLearners(**about, models=(mine, mine), value=1.0).validate(
        party="a", task=asked, agreement=AGREED
    )
    with pytest.raises(KnowledgeRefused, match="1 weak learners of 2"):
        WeakLearners(**about, models=(mine,), value=1.0).validate(
            party="a", task=asked, agreement=AGREED
        )


AGREED = Agreement(kind="regression", classes=(), outputs=1, public="", rows=0, seed=0)


def tree(outputs: int, model: Any = EXACT, size: float = 1.0) -> tuple[str, Any]:
    """A packed weak learner."""
    learner = make(model) if isinstance(model, str) else as_learner(model)
    learner.bind(outputs)
    targets = size * np.tile([1.0, -1.0, 0.5, 0.25], 2)[:, None] * np.arange(1.0, outputs + 1)
    if learner.abilities.kind == "classification":
        targets = np.eye(outputs)[np.arange(8) % outputs]
    learner.fit(np.arange(8.0)[:, None], targets, rng=np.random.default_rng(0), phase="first")
    return pack(learner)


@pytest.fixture
def five(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], tuple[Federation, list[Party]]]:
    """Make five parties, of which d sends what ``send`` makes of what it would send."""

    def made(send: Any) -> tuple[Federation, list[Party]]:
        parties = [labelled(name, Boosted(EXACT), calibration=0) for name in "abcde"]

        def shared(party: Party, learner: Any = None) -> Any:
            honest = share(party, learner)
            return send(*honest) if party.name == "d" else honest

        monkeypatch.setattr(exchange_tasks, "share", shared)
        return _federation(parties)

    return made


def _federation(parties: list[Party]) -> tuple[Federation, list[Party]]:
    return Federation(parties, public=np.arange(8.0)[:, None], strict=False), parties


@pytest.mark.parametrize("distill", [False, True])
@pytest.mark.parametrize(
    ("send", "said"),
    [
        (lambda about, data: (about, np.arange(50, dtype=np.uint8)), "a model that cannot be used"),
        (lambda about, data: ("not JSON", data), "does not say what it is"),
        (lambda about, data: tree(7), "regression with 7 outputs, expected regression with 2"),
        (lambda about, data: tree(2, "decision-tree"), "classification with 2 outputs"),
        (lambda about, data: tree(2, Keeper()), "a model of 'tests', which was not agreed on"),
        (
            lambda about, data: (about, tree(7)[1]),
            "a model that cannot be used: the .* 7 outputs, expected 2",
        ),
    ],
    ids=["garbage", "no description", "outputs", "classifier", "package", "mislabelled"],
)
def test_weak_learners_that_cannot_be_used_leave_out_their_sender(
    five: Any, send: Any, said: str, distill: bool
) -> None:
    """The sum is that of the four others; as a student, only a's is asked for."""
    federation, _ = five(send)
    *_, last = federation.rounds(ffgb(rounds=1, distill=distill))
    wrong = [d for d in federation.network.deliveries if d.status != "ok"]
    assert [(d.party, d.tasks, d.status) for d in wrong] == [("d", "Descend", "refused")]
    assert re.search(said, wrong[0].detail)
    assert last.state.memory["holders"] == tuple("abcde")
    if not distill:
        assert last.state.memory["weights"].tolist() == [-1 / 4] * 4


def test_an_infinite_objective_leaves_out_its_party(five: Any) -> None:
    federation, parties = five(lambda about, data: (about, data))
    rounds = federation.rounds(ffgb(rounds=2))
    next(rounds)
    learner: Any = parties[3].trainer.learner
    learner.objective = lambda *args: float("inf")
    *_, last = rounds
    assert last.number == 2 and len(last.state.memory["weights"]) == 8
    assert last.state.memory["holders"] == tuple("abce")
    wrong = [d for d in federation.network.deliveries if d.status != "ok"]
    assert {(d.party, d.status, d.detail) for d in wrong} == {
        ("d", "refused", "its objective is inf")
    }
    assert [d.tasks for d in wrong] == ["Descend", "ChangeFunction"] * 2
    with pytest.raises(InvalidInput, match="the objective of f = 0 is infinite"):
        run([squares("a", TWO, np.array([1e200, 0.0])), by_hand()[1]], rounds=1)


def test_wild_weak_learners_stop_the_run_and_their_senders_are_named(five: Any) -> None:
    """They are sound; what they say of rows is known where they are used."""
    federation, _ = five(lambda about, data: tree(2, size=1e12))
    with pytest.raises(RunFailed, match=r"weak learners are wild(.|\n)*are of a, b, c, d, e\."):
        list(federation.rounds(ffgb(rounds=1)))
    federation, _ = five(lambda about, data: wide())
    with pytest.raises(QuorumLost, match=r"The weak learners of this round are of a, b, c, d, e\."):
        list(federation.rounds(ffgb(rounds=1)))


def wide() -> tuple[str, Any]:
    """A weak learner for rows of three columns."""
    learner = make(EXACT)
    learner.bind(2)
    learner.fit(np.eye(3), np.eye(3)[:, :2], rng=np.random.default_rng(0), phase="first")
    return pack(learner)


def test_packages_that_all_parties_trust_are_not_refused() -> None:
    """Not those of a part of a model either, which the coordinator does not build."""
    trusts = ("sklearn", "tests")
    for weak in (
        Shrunk(),
        make_pipeline(StandardScaler(), Shrunk()),
        BaggingRegressor(Shrunk(), 2),
    ):
        parties = [
            labelled(n, Boosted(weak), calibration=0, rules=PartyRules(trusts=trusts)) for n in "ab"
        ]
        federation = Federation(parties)
        assert list(federation.rounds(ffgb(rounds=1)))[-1].number == 1
        assert all(d.status == "ok" for d in federation.network.deliveries)


class Shrunk(Ridge):  # type: ignore[misc]
    """A weak learner of a package that nobody trusts by default."""


class Keeper(Ridge):  # type: ignore[misc]
    """A weak learner that keeps two of its rows in a list, for no good reason."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.kept_ = [np.array(X[:2])]
        return super().fit(X, y, sample_weight)


def test_rows_are_looked_for_in_weak_learners_too() -> None:
    X, y = np.random.default_rng(0).random((6, 3)), np.arange(6.0)
    trusts = ("sklearn", "tests")
    parties = [
        Party(
            n,
            Boosted(Keeper(), trusts=trusts),
            X,
            y,
            calibration=0,
            rules=PartyRules(trusts=trusts),
        )
        for n in "ab"
    ]
    steps = Federation(parties).rounds(ffgb(rounds=1, step_size=0.5))
    assert next(steps).number == 0
    with pytest.raises(QuorumLost, match="a trained Keeper holds rows of its private data"):
        next(steps)
