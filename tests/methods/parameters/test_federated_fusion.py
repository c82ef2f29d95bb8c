"""FedDF: in numpy, where it is FedAvg, on parties of different classes, over every network, misused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from consilience import Federation, LocalNetwork, Party
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.methods.checks import networks
from consilience.methods.checks import normalised_network as network
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.federated_fusion import federated_fusion
from consilience.models import make
from helpers.quadratic_losses import RATE, SIZES, mean, quadratic_parties, quadratics

torch = pytest.importorskip("torch")
nn = torch.nn

DISTILLED = 3
"""Full-batch steps of distillation."""
PUBLIC = np.random.default_rng(7).normal(size=(5, 2))
W0 = np.array([0.5, -1.0])


# --- by numpy ---------------------------------------------------------------------------------------------


def layer(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """``W x`` in double precision."""
    return nn.Linear(input_shape[0], n_outputs, bias=False).double()


def bent(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """``V tanh(W x)`` in double precision."""
    return nn.Sequential(
        nn.Linear(input_shape[0], 3, bias=False), nn.Tanh(), nn.Linear(3, n_outputs, bias=False)
    ).double()


def softmax(z: np.ndarray) -> np.ndarray:
    shares = np.exp(z - z.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def entropy_gradient(W: np.ndarray, X: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Of ``−(1/n) Σ_i Σ_c p_ic log softmax(X Wᵀ)_ic`` by W, shape ``(n_classes, n_columns)``."""
    return (softmax(X @ W.T) - p).T @ X / len(X)


def classes_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(ord(name))
    y = np.arange(SIZES[name]) % 3
    return rng.normal(size=(len(y), 2)) + y[:, None], y


def classifiers(factory: Any = layer, **changes: Any) -> list[Party]:
    recipe = {"optimizer": "sgd", "learning_rate": RATE, "batch_size": 100, "epochs": 2}
    model = as_learner(factory, recipe={**recipe, "distill_epochs": DISTILLED, **changes})
    return [Party(name, model, *classes_of(name), calibration=0) for name in SIZES]


@pytest.mark.parametrize("weights", ["rows", "uniform"])
@pytest.mark.parametrize("participation", [3, 2])
def test_classification_in_numpy(weights: str, participation: int) -> None:
    """Two steps on the own rows; three from the average, of the cross-entropy to softmax(mean of logits)."""
    W = np.random.default_rng(3).normal(size=(3, 2))
    chosen = federated_fusion(
        rounds=3, participation=participation, weights=weights, initial={"weight": W}
    )
    for round in Federation(classifiers(), public=PUBLIC, seed=1).rounds(chosen):
        if round.number:
            assert round.replies is not None and len(round.replies) == participation
            own = {}
            for name in round.replies.parties:
                X, y = classes_of(name)
                own[name] = W
                for _ in range(2):
                    own[name] = own[name] - RATE * entropy_gradient(own[name], X, np.eye(3)[y])
            logits = sum(PUBLIC @ V.T for V in own.values()) / len(own)
            W = mean(own, weights, own)
            for _ in range(DISTILLED):
                W = W - RATE * entropy_gradient(W, PUBLIC, softmax(logits))
        found = round.state.memory["parameters"].reshape(3, 2)
        assert found == pytest.approx(W, rel=1e-10)


def test_regression_in_numpy() -> None:
    """The teacher is the mean of values, the average counts rows, and a step goes 2 Xᵀ(X w − teacher)/n."""
    losses, w = quadratics(), W0
    chosen = federated_fusion(rounds=3, initial={"weight": W0[None]})
    parties = quadratic_parties(distill_epochs=DISTILLED)
    for round in Federation(parties, public=PUBLIC).rounds(chosen):
        if round.number:
            own = {name: loss.descend(w) for name, loss in losses.items()}
            teacher = sum(PUBLIC @ v for v in own.values()) / 3
            w = mean(own, "rows", own)
            for _ in range(DISTILLED):
                w = w - RATE * 2 / len(PUBLIC) * PUBLIC.T @ (PUBLIC @ w - teacher)
        assert round.state.memory["parameters"] == pytest.approx(w, rel=1e-10)


@pytest.mark.parametrize(("factory", "same"), [(layer, True), (bent, False)])
def test_what_linear_models_say_together_their_average_says(factory: Any, same: bool) -> None:
    """(1/m) Σ W_k x = ((1/m) Σ W_k) x: with uniform weights the student starts as the teacher, and stays."""
    ends = []
    for made in (federated_averaging, federated_fusion):
        federation = Federation(classifiers(factory), public=PUBLIC)
        *_, last = federation.rounds(made(rounds=3, weights="uniform"))
        ends.append(last.state.memory["parameters"])
    assert (np.abs(ends[0] - ends[1]).max() < 1e-14) == same


# --- what it is for ---------------------------------------------------------------------------------------


def digits() -> tuple[list[Party], Any]:
    """Five parties: a fifth of the rows dealt evenly, the others sorted by digit; public rows of all."""
    X, y = load_digits(return_X_y=True)
    X, test = X / 16, (X[1200:] / 16, y[1200:])
    recipe = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 10, "distill_epochs": 40}
    learner = make("mlp", hidden=(32,), recipe=recipe)
    rows = np.arange(600)
    even, rest = rows[::5], rows[rows % 5 > 0]
    dealt = np.array_split(rest[np.argsort(y[rest], kind="stable")], 5)
    parties = []
    for i, part in enumerate(dealt):
        own = np.concatenate([even[i::5], part])
        parties.append(Party(f"party-{i}", learner, X[own], y[own], test=test))
    return parties, X[600:1200]


def test_fusion_beats_averaging_where_parties_hold_different_classes() -> None:
    """In every round, so that fewer of them are needed; and all hold one model."""
    for seed in (0, 1):
        accuracy = []
        for made in (federated_averaging, federated_fusion):
            parties, public = digits()
            history = Federation(parties, public=public, seed=seed).run(made(rounds=3))
            found = history.metric("accuracy")
            assert (found == found[:, :1]).all()
            accuracy.append(found[:, 0])
        averaged, fused = accuracy
        assert averaged[0] == fused[0]
        assert (fused[1:] > averaged[1:] + 0.03).all()


# --- what travels, and who does what ----------------------------------------------------------------------


def test_bytes() -> None:
    """A model up from the two chosen; both down to the first party and one back; one down to everybody."""
    parties, public = networks()
    history = Federation(parties, public=public).run(federated_fusion(rounds=2, participation=2))
    size, most = 4 * (2 * 4 + 4 + 4 * 4 + 4 * 2 + 2), 600
    by_task: dict[str, list[Any]] = {}
    for delivery in history.deliveries[2]:
        by_task.setdefault(delivery.tasks, []).append(delivery)
    trained, (fused,), adopted = (
        by_task[name] for name in ("TrainParameters", "FuseModels", "AdoptParameters")
    )
    assert len(trained) == 2 and len(adopted) == 4 and fused.party == "ash"
    for delivery in trained:
        assert size < delivery.bytes_up < size + most and delivery.bytes_down < most
    assert 2 * size < fused.bytes_down < 2 * size + 2 * most
    assert size < fused.bytes_up < size + most and "Parameters" in fused.left
    for delivery in adopted:
        assert size < delivery.bytes_down < size + most and delivery.bytes_up < most


class Deaf(LocalNetwork):
    """Some parties do not answer when they are to distil."""

    deaf: tuple[str, ...] = ()

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        lost = self.deaf if type(tasks[0]).__name__ == "FuseModels" else ()
        arrivals = dict(super().exchange(tasks, to, request))
        for party in set(lost) & set(to):
            failure = Failure(party=party, reason="no line", kind="late")
            arrivals[party] = arrivals[party]._replace(outcome=failure)
        return arrivals


def deaf(names: str) -> Iterator[Any]:
    there = Deaf(classifiers(), Public(PUBLIC))
    there.deaf = tuple(names)
    return federation_over(there, Public(PUBLIC)).rounds(federated_fusion(rounds=2))


def test_who_distils_need_not_be_the_first() -> None:
    """With full batches it makes no difference who does it; all hold x_t afterwards."""
    *_, first = deaf("")
    *_, second = deaf("ab")
    assert second.state.memory["parameters"] == pytest.approx(first.state.memory["parameters"])
    assert second.state.memory["holders"] == ("a", "b", "c")


def test_without_anybody_who_distils_the_run_ends() -> None:
    rounds = deaf("abc")
    assert next(rounds).number == 0
    with pytest.raises(QuorumLost, match=r"answered FuseModels"):
        next(rounds)


def test_it_starts_from_a_given_model() -> None:
    W = np.arange(6.0).reshape(3, 2)
    rounds = Federation(classifiers(), public=PUBLIC).rounds(
        federated_fusion(rounds=1, initial={"weight": W})
    )
    assert next(rounds).state.memory["parameters"].tolist() == W.ravel().tolist()


# --- what is refused --------------------------------------------------------------------------------------


def refused(parties: list[Party], said: str, public: Any = PUBLIC, **options: Any) -> None:
    """With that message, and before anything but questions was asked."""
    federation = Federation(parties, public=public)
    with pytest.raises(InvalidInput, match=said):
        next(federation.rounds(federated_fusion(**{"rounds": 1, **options})))
    asked = {delivery.tasks for delivery in federation.network.deliveries}
    assert asked <= {"Describe", "Join", "CheckFusion", "DescribeParameters"}


def test_no_public_rows() -> None:
    refused(classifiers(), "there are no public rows to distil on", public=None)


def test_another_architecture() -> None:
    other = Party("z", as_learner(network), *classes_of("a"))
    refused([*classifiers(), other], r"parameters differ: 'a' has weight \(3, 2\); 'z' has 0.bias")


def test_a_model_without_parameters() -> None:
    forest = Party("z", RandomForestClassifier(n_estimators=2), *classes_of("a"))
    refused([*classifiers(), forest], "party 'z': its model has no parameters")


def test_a_recipe_that_does_not_distil() -> None:
    refused(classifiers(distill_epochs=0), "party 'a': its recipe distils for 0 epochs")
    refused(classifiers(epochs=0), "party 'a': its recipe trains for 0 epochs in a round")


def test_a_model_that_starts_anew() -> None:
    learner = as_learner(layer)
    learner.abilities = replace(learner.abilities, incremental=False)
    parties = [Party(name, learner, *classes_of(name)) for name in SIZES]
    refused(parties, "party 'a': its model starts anew in every fit")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"participation": 4}, "participation is 4"),
        ({"weights": "equal"}, "weights is 'equal'"),
        ({"probabilities": {"a": 1.0}}, "there is none for b, c"),
        ({"initial": {"weight": np.zeros((2, 2))}}, "initial lacks weight"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    refused(classifiers(), said, **options)
