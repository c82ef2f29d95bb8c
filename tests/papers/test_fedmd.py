"""FedMD: one number a round, the same by the same seed, better than the clients alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.models import TorchRecipe
from consilience_papers.park2023.fedmd import (
    NETWORKS,
    NeuralNetwork,
    central_error,
    fedmd_errors,
)

pytest.importorskip("torch")

_SCHEDULE = {"learning_rate": 0.01, "first_epochs": 50, "batch_size": 64}
SMALL = NeuralNetwork(
    "mlp",
    parameters={"hidden": (16, 16)},
    central=TorchRecipe(**_SCHEDULE),
    federated=TorchRecipe(**_SCHEDULE, epochs=5, distill_epochs=40),
    rounds=4,
)


def waves(seed: int, clients: int = 6, rows: int = 10) -> dict[str, Any]:
    """Noisy sines in one variable; the clients see each a part of the axis, the public rows all."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-2, 2, (clients * rows, 1)), axis=0)
    y = np.sin(2 * X[:, 0]) + rng.normal(0, 0.2, len(X))
    dealt = [(X[j::clients], y[j::clients]) for j in range(clients)]
    test = np.linspace(-2, 2, 200)[:, None]
    return {
        "clients": dealt,
        "public": rng.uniform(-2, 2, (50, 1)),
        "test": (test, np.sin(2 * test[:, 0])),
    }


def pooled(sample: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    X, y = zip(*sample["clients"], strict=True)
    return np.concatenate(X), np.concatenate(y)


def test_one_error_a_round_better_than_alone_and_the_same_by_seed() -> None:
    sample = waves(0)
    errors = fedmd_errors(**sample, network=SMALL, seed=3)
    assert errors.shape == (SMALL.rounds + 1,)
    assert errors[-1] < 0.8 * errors[0]
    assert errors[-1] < np.square(sample["test"][1]).mean()  # what a network that says 0 has
    np.testing.assert_array_equal(errors, fedmd_errors(**sample, network=SMALL, seed=3))
    assert (errors != fedmd_errors(**sample, network=SMALL, seed=4)).all()


def test_a_shorter_run_is_the_start_of_a_longer_one() -> None:
    sample = waves(1, clients=3)
    long = fedmd_errors(**sample, network=SMALL, seed=0)
    short = fedmd_errors(**sample, network=replace(SMALL, rounds=2), seed=0)
    np.testing.assert_array_equal(short, long[:3])


def test_central_training_is_better_than_the_clients_alone() -> None:
    sample = waves(2)
    error = central_error(*pooled(sample), sample["test"], network=SMALL, seed=0)
    assert error == central_error(*pooled(sample), sample["test"], network=SMALL, seed=0)
    assert error < 0.5 * fedmd_errors(**sample, network=replace(SMALL, rounds=1), seed=0)[0]


def test_clients_that_do_not_train_have_the_error_of_their_first_networks() -> None:
    """Without a single step of training nothing moves: every round has the error of round 0."""
    still = TorchRecipe(first_epochs=0, epochs=0, distill_epochs=0)
    errors = fedmd_errors(**waves(0), network=replace(SMALL, federated=still), seed=0)
    assert (errors == errors[0]).all()


@pytest.mark.parametrize(("problem", "shape"), [("3", (3,)), ("mnist", (784,))])
def test_the_networks_of_figure_4_take_their_data(problem: str, shape: tuple[int, ...]) -> None:
    network = replace(NETWORKS[problem], rounds=1)
    rng = np.random.default_rng(0)
    X, public, test = (rng.normal(size=(n, *shape)) for n in (20, 10, 30))
    halves = [(half, half.mean(axis=1)) for half in np.split(X, 2)]
    truth = (test, test.mean(axis=1))
    errors = fedmd_errors(halves, public, truth, network=network, seed=0)
    assert errors.shape == (2,)
    central = central_error(X, X.mean(axis=1), truth, network=network, seed=0)
    assert np.isfinite([*errors, central]).all()


def test_bad_input() -> None:
    sample = waves(0, clients=2)
    (X, y), other = sample["clients"]
    with pytest.raises(InvalidInput, match="shape"):
        fedmd_errors(
            [(X, y[:, None]), other], sample["public"], sample["test"], network=SMALL, seed=0
        )
    with pytest.raises(InvalidInput, match="targets"):
        fedmd_errors([(X, y[1:]), other], sample["public"], sample["test"], network=SMALL, seed=0)
    with pytest.raises(InvalidInput, match="columns"):
        fedmd_errors([other], np.zeros((9, 2)), sample["test"], network=SMALL, seed=0)
    with pytest.raises(InvalidInput, match="no parties"):
        fedmd_errors([], sample["public"], sample["test"], network=SMALL, seed=0)
