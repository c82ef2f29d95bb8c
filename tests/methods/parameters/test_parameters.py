"""What protocols that exchange parameters share, shown on FedAvg and on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from consilience import Federation, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Replies
from consilience.core.party.memory import Memory
from consilience.core.protocols import local_only
from consilience.methods.checks import networks
from consilience.methods.checks import normalised_network as network
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.methods.model_exchange.protocols import alternating_distillation
from consilience.methods.model_exchange.signed_ensemble import SignedEnsemble
from consilience.methods.parameters.exchange import average, named_parameters
from consilience.methods.parameters.federated_averaging import (
    federated_adagrad,
    federated_adam,
    federated_averaging,
    federated_proximal,
    federated_yogi,
)
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.flat_parameters import flatten, recall, remember
from consilience.methods.parameters.scaffold import scaffold
from consilience.methods.parameters.tasks import (
    Architecture,
    DescribeParameters,
    Parameters,
    check_line,
)
from consilience.models import make
from helpers.quadratic_losses import (
    RATE,
    SIZES,
    STEPS,
    line,
    mean,
    minimum,
    quadratic_parties,
    quadratics,
    share,
)

torch = pytest.importorskip("torch")
nn = torch.nn

ALL = [
    federated_adagrad,
    federated_adam,
    federated_averaging,
    federated_dynamics,
    federated_proximal,
    federated_yogi,
    scaffold,
]
W0 = np.array([0.5, -1.0])
START = {"weight": W0[None]}


@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize("participation", [3, 2])
def test_federated_averaging_in_numpy(weights: str, participation: int) -> None:
    losses, w = quadratics(), W0
    chosen = federated_averaging(
        rounds=6, participation=participation, weights=weights, initial=START
    )
    for round in Federation(quadratic_parties(), seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            w = mean({n: f.descend(w) for n, f in losses.items()}, weights, round.replies.parties)
        assert round.state.memory["parameters"] == pytest.approx(w, rel=1e-10)


def test_federated_averaging_stops_elsewhere_than_at_the_minimum() -> None:
    """w ↦ Σ p (b + M (w − b)), M = (I − η A)^K, stands still where Σ p (I − M) (w − b) = 0."""
    p = share("rows")
    steps = {
        n: np.eye(2) - np.linalg.matrix_power(np.eye(2) - RATE * f.A, STEPS)
        for n, f in quadratics().items()
    }
    still = np.linalg.solve(
        sum(p[n] * S for n, S in steps.items()),
        sum(p[n] * steps[n] @ f.b for n, f in quadratics().items()),
    )
    *_, last = Federation(quadratic_parties()).rounds(federated_averaging(rounds=150))
    found = last.state.memory["parameters"]
    assert found == pytest.approx(still, abs=1e-8)
    assert np.abs(found - minimum("rows")).max() > 0.01


# --- first parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ALL)
def test_any_of_them_starts_from_a_given_model(made: Any) -> None:
    first = next(Federation(quadratic_parties()).rounds(made(rounds=1, initial=START)))
    assert first.state.memory["parameters"].tolist() == W0.tolist()
    assert sorted(first.state.memory["holders"]) == sorted(SIZES)


def test_a_given_model_may_be_of_any_form(tmp_path: Path) -> None:
    def first(initial: Any) -> Any:
        parties, public = networks()
        start = federated_averaging(rounds=1, initial=initial)
        return next(Federation(parties, public=public).rounds(start)).state.memory["parameters"]

    parties, public = networks()
    model = Federation(parties, public=public).run(local_only(rounds=1)).models["cedar"]
    expected = first(model)
    assert expected.dtype == np.float32
    parts = model.learner.parameters()
    model.learner.save(tmp_path / "model.safetensors")
    forms = [
        model.learner,
        model.learner.module,
        model.learner.module.state_dict(),
        parts,
        {name: part.astype(np.float64) for name, part in parts.items()},
        str(tmp_path / "model.safetensors"),
        tmp_path / "model.safetensors",
    ]
    for form in forms:
        assert np.array_equal(first(form), expected)
    assert not np.array_equal(first(None), expected)
    trained = [parts[n].ravel() for n in ("0.bias", "0.weight", "1.bias", "1.weight", "3.bias")]
    assert np.array_equal(expected[: 4 + 8 + 4 + 4 + 2], np.concatenate(trained))
    buffers = [parts["1.running_mean"], parts["1.running_var"]]
    assert np.array_equal(expected[-8:], np.concatenate(buffers))


def test_a_boosted_sum_of_one_model_is_that_model(tmp_path: Path) -> None:
    """As FFGB-distill leaves it: itself, what a run keeps of it, and its file; a sum of several is none."""
    recipe = {"first_epochs": 2}
    boosted = make("boosted", weak={"name": "mlp", "hidden": [3], "recipe": recipe})
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    before = [Party(n, boosted, X[i::2], y[i::2]) for i, n in enumerate("ab")]

    def boost(distill: bool) -> Any:
        step = functional_gradient_boosting(rounds=1, distill=distill)
        return Federation(before, public=X).run(step).models["a"]

    def first(initial: Any) -> Any:
        model = make("mlp", hidden=[3], recipe=recipe)
        after = [Party(n, model, X[i::2], y[i::2]) for i, n in enumerate("ab")]
        start = federated_averaging(rounds=1, initial=initial)
        return next(Federation(after).rounds(start)).state.memory["parameters"]

    model = boost(distill=True)
    model.learner.save(tmp_path / "model.safetensors")
    expected = flatten(model.learner.student)
    for form in (model, model.learner, model.learner.student, tmp_path / "model.safetensors"):
        assert np.array_equal(first(form), expected)
    with pytest.raises(InvalidInput, match=r"weighted sum of 2 weak learners(.|\n)*Distil it"):
        first(boost(distill=False))


def test_an_ensemble_of_trees_warms_a_network_up() -> None:
    """Models of any kind teach a network of the parties' architecture, and FedAvg goes on from there."""
    parties, public = networks()
    trees = [
        Party(p.name, DecisionTreeClassifier(max_depth=3), p.rows.X, p.rows.y) for p in parties
    ]
    history = Federation(trees).run(alternating_distillation(rounds=1))
    ensemble = SignedEnsemble.of(round.replies for round in history.rounds[:1])
    recipe = {"first_epochs": 60, "learning_rate": 0.02}
    student = as_learner(network, recipe=recipe)
    student = ensemble.distilled(student, public.X, rng=np.random.default_rng(0))
    first = next(Federation(parties).rounds(federated_averaging(rounds=1, initial=student)))
    assert np.array_equal(first.state.memory["parameters"], flatten(student))
    assert np.array_equal(parties[2].trainer.learner.predict(public.X), student.predict(public.X))


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        ({"weight": np.zeros((1, 3))}, r"initial lacks weight \(1, 2\): 'a' has another"),
        ({"weight": W0[None], "bias": np.zeros(1)}, r"initial has beside bias \(1,\)"),
        ({"weight": np.array([[0, np.nan]])}, "initial holds NaN"),
        (RandomForestRegressor(), "of type RandomForestRegressor, which has no parameters"),
        (3, "of type int, which has no parameters"),
        ("nothing.safetensors", "nothing.safetensors cannot be read"),
        (as_learner(network), "has not been trained"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(initial: Any, said: str) -> None:
    federation = Federation(quadratic_parties())
    with pytest.raises(InvalidInput, match=said):
        next(federation.rounds(federated_averaging(rounds=1, initial=initial)))
    assert {d.tasks for d in federation.network.deliveries} <= {
        "Describe",
        "Join",
        "DescribeParameters",
    }


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"not this")
    with pytest.raises(InvalidInput, match="cannot be read"):
        named_parameters(path, where="here")


# --- what is refused before round 1 -----------------------------------------------------------------------


@pytest.mark.parametrize("made", ALL)
def test_other_architectures_and_options_are_refused(made: Any) -> None:
    """Nobody has trained by then."""
    X, y = np.eye(2), np.arange(2.0)

    def wide(input_shape: Any, n_outputs: int) -> Any:
        return nn.Linear(2, 1).double()

    recipe = {"optimizer": "sgd"}
    other = Party("z", as_learner(wide, kind="regression", recipe=recipe), X, y)
    forest = Party("z", RandomForestRegressor(n_estimators=2), X, y)
    for stranger, said in (
        (other, r"parameters differ: 'a' has nothing else; 'z' has bias \(1,\)"),
        (forest, "party 'z': its model has no parameters"),
    ):
        federation = Federation([*quadratic_parties(), stranger])
        with pytest.raises(InvalidInput, match=said):
            next(federation.rounds(made(rounds=1)))
        asked = {delivery.tasks for delivery in federation.network.deliveries}
        assert asked == {"Describe", "Join", "DescribeParameters"}
    for options, said in (
        ({"participation": 4}, "participation is 4"),
        ({"rounds": 0}, "rounds is 0"),
        ({"probabilities": {"a": 1.0}}, "there is none for b, c"),
    ):
        with pytest.raises(InvalidInput, match=said):
            next(Federation(quadratic_parties()).rounds(made(**{"rounds": 1, **options})))
    with pytest.raises(InvalidInput, match="weights is 'equal'"):
        made(rounds=1, weights="equal")


def test_other_precision_and_other_frozen_parts_are_refused() -> None:
    def single(input_shape: Any, n_outputs: int) -> Any:
        return nn.Linear(input_shape[0], n_outputs, bias=False)

    def frozen(input_shape: Any, n_outputs: int) -> Any:
        return single(input_shape, n_outputs).double().requires_grad_(False)

    def two(input_shape: Any, n_outputs: int) -> Any:
        return nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 1, bias=False))

    def half(input_shape: Any, n_outputs: int) -> Any:
        module = two(input_shape, n_outputs)
        module[0].requires_grad_(False)
        return module

    for here, there, said in (
        (
            line,
            single,
            "'a' has 2 trained numbers in float64; 'b' has 2 trained numbers in float32",
        ),
        (two, half, "'a' has 9 trained numbers in float32; 'b' has 3 trained numbers in float32"),
        (line, frozen, "party 'b': frozen: training would change nothing"),
    ):
        parties = [
            Party(name, as_learner(made, kind="regression"), np.eye(2), np.arange(2.0))
            for name, made in (("a", here), ("b", there))
        ]
        with pytest.raises(InvalidInput, match=said):
            next(Federation(parties).rounds(federated_averaging(rounds=1)))


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (federated_proximal, {"strength": -0.1}, "strength is -0.1.*at least 0"),
        (federated_proximal, {"strength": float("nan")}, "strength is nan"),
        (federated_dynamics, {"strength": 0.0}, "strength is 0.0.*above 0"),
        (federated_dynamics, {"strength": float("inf")}, "strength is inf"),
        (scaffold, {"server_rate": 0.0}, "server_rate is 0.0.*above 0"),
        (federated_adam, {"server_rate": -1.0}, "server_rate is -1.0"),
        (federated_adam, {"momentum": 1.0}, "momentum is 1.0.*at least 0 and below 1"),
        (federated_yogi, {"decay": 1.5}, "decay is 1.5"),
        (federated_adam, {"decay": -0.5}, "decay is -0.5"),
        (federated_adagrad, {"adaptivity": 0.0}, "adaptivity is 0.0.*above 0"),
    ],
)
def test_rates_and_strengths_out_of_range(made: Any, options: Any, said: str) -> None:
    federation = Federation(quadratic_parties())
    with pytest.raises(InvalidInput, match=f"(?s){said}"):
        next(federation.rounds(made(rounds=1, **options)))
    assert {d.tasks for d in federation.network.deliveries} == {"Describe", "Join"}


def test_what_diverges_is_named() -> None:
    """A step of that size is beyond what anybody could train from."""
    rounds = Federation(quadratic_parties()).rounds(scaffold(rounds=3, server_rate=1e300))
    assert next(rounds).number == 0
    said = "scaffold: the server's parameters are NaN, or beyond 1e\\+18, after round 1"
    with np.errstate(all="ignore"), pytest.raises(RunFailed, match=said):
        next(rounds)


# --- what is not trained, and what is shared --------------------------------------------------------------


@pytest.mark.parametrize(
    "protocol",
    [
        federated_adam(rounds=2, server_rate=0.5),
        federated_dynamics(rounds=2, strength=0.05),
        scaffold(rounds=2, server_rate=0.5),
    ],
    ids=lambda protocol: protocol.name,
)
def test_running_means_are_averaged(protocol: Any) -> None:
    """Servers that do more than average leave the means and variances of batch normalisation alone."""
    parties, public = networks()
    for round in Federation(parties, public=public).rounds(protocol):
        if round.number:
            assert round.replies is not None
            sent = np.stack([answers[0].values for answers in round.replies.answers.values()])
            now = round.state.memory["parameters"]
            assert now[-8:] == pytest.approx(sent[:, -8:].mean(axis=0), rel=1e-6)
            assert np.abs(now[:-8] - sent[:, :-8].mean(axis=0)).max() > 1e-4


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def test_shared_parameters_travel_once() -> None:
    learner = as_learner(Tied(), kind="regression", recipe={"epochs": 3, "learning_rate": 0.1})
    learner.bind(2)
    rng = np.random.default_rng(0)
    learner.start(np.eye(2), rng=rng)
    assert sorted(learner.parameters()) == ["first.bias", "first.weight", "second.bias"]
    X, y = rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    parties = [Party(name, learner, X, y) for name in "ab"]
    first, last = Federation(parties).rounds(federated_dynamics(rounds=1, initial=Tied()))
    assert len(first.state.memory["parameters"]) == 8
    assert not np.array_equal(first.state.memory["parameters"], last.state.memory["parameters"])


def test_what_was_said_of_public_rows_goes_with_the_model() -> None:
    parties, public = networks()
    rounds = Federation(parties, public=public).rounds(federated_averaging(rounds=1))
    next(rounds)
    before = parties[0].trainer.outputs("probabilities")
    next(rounds)
    after = parties[0].trainer.outputs("probabilities")
    assert np.array_equal(after, parties[0].trainer.learner.predict(public.X))
    assert not np.array_equal(after, before)


# --- a party's own state ----------------------------------------------------------------------------------


class Someone:
    name = "a"

    def __init__(self) -> None:
        self.trainer = SimpleNamespace(memory=Memory())


def test_only_what_counted_is_remembered() -> None:
    party, x = Someone(), np.ones(2)
    assert recall(party, {}, 2).tolist() == [0, 0]
    remember(party, {}, 1, np.zeros(2), x)
    assert recall(party, {}, 2).tolist() == [0, 0]  # the answer of round 1 got lost
    assert recall(party, {"a": 1}, 2).tolist() == [1, 1]
    remember(party, {"a": 1}, 4, x, 2 * x)
    assert recall(party, {"a": 1}, 2).tolist() == [1, 1]
    assert recall(party, {"a": 4}, 2).tolist() == [2, 2]
    with pytest.raises(RunFailed, match="does not remember round 3"):
        recall(party, {"a": 3}, 2)
    with pytest.raises(RunFailed, match="does not remember round 3"):
        recall(Someone(), {"a": 3}, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"party": "b"}, "party is .b., expected .a."),
        ({"trained": 4}, "counts that cannot be"),
        ({"rows": 0}, "a row count of 0"),
        ({"precision": "int8"}, "precision 'int8'"),
    ],
)
def test_architectures_are_checked_on_arrival(change: dict[str, Any], said: str) -> None:
    good = Architecture(party="a", round=0, parts=("w (3,)",), size=3, trained=3)
    good.validate(party="a", task=DescribeParameters(round=0), agreement=None)
    with pytest.raises(KnowledgeRefused, match=said):
        bad = replace(good, **change)
        bad.validate(party="a", task=DescribeParameters(round=0), agreement=None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.ones(2, dtype=np.float16), "float16"),
        (np.array([1.0, 1e300]), "beyond 1e\\+18"),
        (np.array([1.0, np.nan]), "NaN or infinite"),
        (np.ones(3), "shape"),
    ],
)
def test_parameters_that_would_ruin_the_mean_are_refused(values: Any, said: str) -> None:
    with pytest.raises(KnowledgeRefused, match=said):
        check_line("parameters", values, 2, where="a")


def test_no_party_decides_how_exact_the_mean_is() -> None:
    """The first by name least of all."""
    given = [
        Parameters(party=name, round=1, values=np.ones(2, dtype=kind), rows=1)
        for name, kind in (("a", np.float32), ("b", np.float64))
    ]
    for precision in (np.float32, np.float64):
        for ordered in (given, given[::-1]):
            replies = Replies({one.party: (one,) for one in ordered}, {})
            assert average(replies, "rows", precision).dtype == precision
