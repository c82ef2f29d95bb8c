"""FedAvg: against gradient descent on all rows, by hand, and by the contract of every protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from consilience import Federation, LocalNetwork, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.federation import federation_over
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.protocols.sampling import participants
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.tasks import Architecture, Parameters, SendParameters
from consilience.models import make

torch = pytest.importorskip("torch")
nn = torch.nn

STEP = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 100, "epochs": 1}
"""One step on all rows a round."""


def line(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """``w x`` in double precision, from w = 0."""
    layer = nn.Linear(input_shape[0], n_outputs, bias=False).double()
    nn.init.zeros_(layer.weight)
    return layer


def regressor(factory: Any = line, **changes: Any) -> Any:
    return as_learner(factory, kind="regression", recipe={**STEP, **changes})


def by_hand(names: str = "ab") -> list[Party]:
    """One row x = 1, y = 2 at the first; three rows x = 1, y = 6 at the others."""
    return [
        Party(name, regressor(), np.ones((count, 1)), np.full(count, y), calibration=0)
        for name, count, y in zip(names, (1, 3, 3), (2.0, 6.0, 6.0), strict=False)
    ]


def weights(federation: Federation) -> list[float]:
    return [
        float(model.predict(np.ones((1, 1)))[0, 0])
        for model in federation.network.models().values()
    ]


def test_two_rounds_by_hand() -> None:
    """The gradient of (w − y)² is 2 (w − y). From 0: 0.4 and 1.2, (0.4 + 3.6)/4 = 1; then 1.2 and 2: 1.8."""
    federation = Federation(by_hand())
    found = [weights(federation) for _ in federation.rounds(federated_averaging(rounds=2))]
    assert found == [pytest.approx([w, w]) for w in (0.0, 1.0, 1.8)]


def test_one_step_a_round_is_gradient_descent_on_all_rows() -> None:
    """Σ_k (n_k/n) (w − η ∇F_k) = w − η ∇F with F the mean over all rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(14, 3)), rng.normal(size=(14, 2))
    rows = {"a": slice(0, 5), "b": slice(5, 14)}
    parties = [Party(n, regressor(), X[r], y[r], calibration=0) for n, r in rows.items()]
    W = np.zeros((3, 2))
    for round in Federation(parties).rounds(federated_averaging(rounds=6)):
        assert round.state.memory["parameters"].reshape(2, 3) == pytest.approx(W.T, rel=1e-12)
        # Mean squared error is over rows and outputs.
        W = W - 0.1 * 2 / (14 * 2) * X.T @ (X @ W - y)


def digits(*, test: bool = False) -> list[Party]:
    """Three unequal parties with one small network, batch normalisation in it."""
    from sklearn.datasets import load_digits

    X, y = load_digits(n_class=3, return_X_y=True)
    X = X / 16
    network = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    learner = as_learner(network, recipe={"epochs": 2, "learning_rate": 0.01})
    held = (X[300:400], y[300:400]) if test else None
    rows = {"a": slice(0, 60), "b": slice(60, 200), "c": slice(200, 300)}
    return [Party(name, learner, X[part], y[part], test=held) for name, part in rows.items()]


def test_all_parties_hold_the_average_and_it_learns() -> None:
    history = Federation(digits(test=True)).run(federated_averaging(rounds=4))
    accuracy = history.metric("accuracy")
    assert (accuracy == accuracy[:, :1]).all()
    assert accuracy[0, 0] < 0.8 < 0.93 < accuracy[-1, 0]
    X = np.random.default_rng(0).random((5, 64))
    answers = [model.predict_proba(X) for model in history.models.values()]
    assert all(np.array_equal(one, answers[0]) for one in answers)


def test_bytes_are_the_parameters_once_each_way() -> None:
    parties = digits()
    history = Federation(parties).run(federated_averaging(rounds=2))
    size = 4 * (64 * 16 + 16 + 4 * 16 + 16 * 3 + 3)  # with means and variances
    sent = [d for d in history.deliveries[1] if d.tasks == "TrainParameters"]
    adopted = [d for d in history.deliveries[1] if d.tasks == "AdoptParameters"]
    assert len(sent) == len(adopted) == 3
    for train, adopt in zip(sent, adopted, strict=True):
        assert size < train.bytes_up < size + 600 and train.bytes_down < 600
        assert size < adopt.bytes_down < size + 600 and adopt.bytes_up < 600
    assert "Parameters" in sent[0].left


def test_clients_are_drawn() -> None:
    federation = Federation(by_hand("abc"), seed=3)
    drawn = set()
    for round in federation.rounds(federated_averaging(rounds=6, participation=1)):
        if round.number:
            assert round.replies is not None
            chosen = round.replies.parties
            assert chosen == participants(federation.network, 1, round=round.number)
            drawn.add(chosen)
            assert weights(federation) == pytest.approx([weights(federation)[0]] * 3)
    assert len(drawn) > 1


def test_who_missed_the_average_is_sent_it_again() -> None:
    class Forgetful(LocalNetwork):
        """``b`` does not get the average of round 1."""

        def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
            lost = type(tasks[0]).__name__ == "AdoptParameters" and tasks[0].round == 1
            arrivals = dict(
                super().exchange(tasks, [p for p in to if not lost or p != "b"], request)
            )
            if lost:
                failure = Failure(party="b", reason="no line", kind="late")
                arrivals["b"] = arrivals["a"]._replace(outcome=failure)
            return arrivals

    network = Forgetful(by_hand(), Public.none())
    federation = federation_over(network, Public.none())
    *_, last = federation.rounds(federated_averaging(rounds=2))
    assert last.state.memory["parameters"] == pytest.approx([1.8])
    down = [d.bytes_down for d in network.deliveries if d.tasks == "TrainParameters"]
    assert min(down[2:]) > max(down[:2])
    assert last.state.memory["holders"] == ("a", "b")


def narrow(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.Linear(4, n_outputs))


def wide(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    return nn.Sequential(nn.Linear(input_shape[0], 5), nn.Linear(5, n_outputs, bias=False))


def test_other_architectures_are_refused_by_name() -> None:
    X, y = np.eye(4), np.arange(4.0)
    parties = [Party(n, regressor(f), X, y) for n, f in (("a", narrow), ("b", wide))]
    with pytest.raises(InvalidInput) as refused:
        next(Federation(parties).rounds(federated_averaging(rounds=1)))
    assert refused.value.what == (
        "parameters differ: 'a' has 0.bias (4,), 0.weight (4, 4), 1.bias (1,); "
        "'b' has 0.bias (5,), 0.weight (5, 4), 1.weight (1, 5)"
    )


def test_a_recipe_that_never_trains_is_refused() -> None:
    X, y = np.eye(4), np.arange(4.0)
    recipe = {"first_epochs": 30, "epochs": 0}
    parties = [
        Party(name, make("mlp", kind="regression", recipe=recipe), X, y) for name in ("a", "b")
    ]
    with pytest.raises(InvalidInput, match="party 'a': its recipe trains for 0 epochs in a round"):
        next(Federation(parties).rounds(federated_averaging(rounds=1)))


def test_models_without_parameters_are_refused() -> None:
    X, y = np.eye(4), np.arange(4.0)
    parties = [
        Party("net", regressor(), X, y),
        Party("forest", RandomForestRegressor(n_estimators=2), X, y),
    ]
    with pytest.raises(InvalidInput, match="party 'forest': its model has no parameters"):
        next(Federation(parties).rounds(federated_averaging(rounds=1)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"party": "b"}, "party is .b., expected .a."),
        ({"round": 2}, "round is 2, expected 1"),
        ({"values": np.zeros(2)}, r"of shape \(2,\), expected \(3,\)"),
        ({"values": np.zeros(3, dtype=np.int64)}, "parameters are int64"),
        ({"values": np.array([0, np.inf, 0])}, "NaN or infinite"),
        ({"rows": 0}, "a row count of 0"),
    ],
)
def test_parameters_are_checked_on_arrival(change: dict[str, Any], said: str) -> None:
    good = Parameters(party="a", round=1, values=np.zeros(3), rows=1)
    task = SendParameters(round=1, size=3)
    good.validate(party="a", task=task, agreement=None)
    with pytest.raises(KnowledgeRefused, match=said):
        replace(good, **change).validate(party="a", task=task, agreement=None)
    nothing = Architecture(party="a", round=1, parts=(), size=0)
    with pytest.raises(KnowledgeRefused, match="has no parameters"):
        nothing.validate(party="a", task=task, agreement=None)


def test_states_cross_the_wire() -> None:
    *_, last = Federation(by_hand()).rounds(federated_averaging(rounds=1))
    assert encode([last.state])


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput, match="rounds is 0"):
        next(Federation(by_hand()).rounds(federated_averaging(rounds=0)))
    with pytest.raises(InvalidInput, match="participation is 4"):
        next(Federation(by_hand()).rounds(federated_averaging(rounds=1, participation=4)))


def test_parameters_of_a_learner() -> None:
    learner = regressor(narrow)
    with pytest.raises(InvalidInput, match="not been trained"):
        learner.parameters()
    learner.bind(1)
    learner.start(np.eye(4), rng=np.random.default_rng(0))
    assert learner.fitted
    parts = learner.parameters()
    assert {name: part.shape for name, part in parts.items()} == {
        "0.weight": (4, 4), "0.bias": (4,), "1.weight": (1, 4), "1.bias": (1,)
    }  # fmt: skip
    learner.set_parameters({name: np.ones_like(part) for name, part in parts.items()})
    assert learner.predict(np.zeros((1, 4))).tolist() == [[5.0]]
    assert not (parts["0.weight"] == 1).any()
    with pytest.raises(InvalidInput, match=r"parameter '0\.bias' has shape None"):
        learner.set_parameters({k: v for k, v in parts.items() if k != "0.bias"})
