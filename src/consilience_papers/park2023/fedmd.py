"""FedMD and central training of the same network, the comparators of Park et al. 2023, Figure 4.

Li & Wang 2019 (FedMD), with public data without labels as in Park et al. 2023, section E.3.

    1  every client: train its network on its private data
       for round t = 1, 2, …, T do
    2    every client: send its predictions on the public inputs
    3    server: the consensus is their mean; send it to the clients
    4    digest: every client trains towards the consensus on the public inputs
    5    revisit: every client trains on its private data for a few epochs

Lines 1-5 are :func:`consilience.ensemble_distillation` with ``aggregate=mean()``.

Legend: m clients with N rows each, N_p public rows; the error is the mean squared error on test rows,
averaged over the clients' networks.

Deviations
    - Errors are taken after line 4, before line 5. A client's few noisy rows pull its network away from
      the consensus in line 5 (Data set 3, m = 20: 0.05 before, 0.12 after), so this reading favours
      FedMD.
    - Line 1 has no training on labelled public data first: there are no such labels here.
    - The paper states neither widths, nor optimiser, nor epochs, nor rounds. Ours are
      :data:`NETWORKS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from consilience.core.aggregation import mean
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import Federation
from consilience.core.party.party import Party
from consilience.core.protocols import Protocol, ensemble_distillation, local_only
from consilience.core.validation.arrays import Array
from consilience.models.presets import make
from consilience.models.torch.recipe import TorchRecipe


@dataclass(frozen=True)
class NeuralNetwork:
    """A network with the ways to train it.

    Attributes:
        preset: its name among :data:`consilience.models.LEARNERS`.
        central: how it is trained on all rows at once, in its ``first_epochs``.
        federated: how a client trains it: ``first_epochs`` in line 1, ``distill_epochs`` in line 4,
            ``epochs`` in line 5.
        rounds: T.
        parameters: of the preset.
    """

    preset: str
    central: TorchRecipe
    federated: TorchRecipe
    rounds: int
    parameters: Mapping[str, Any] = field(default_factory=dict)


# Chosen on tuning repetitions, seeds from 10,000, by their mean test error with N = 10: centrally over 5 to
# 20 of them at m = 10, 30 and 50, in a federation over 1 to 4 at m = 20 and 50. The reported repetitions
# had no part in it. Rounds end where the error hardly falls any more; epochs of line 4, of which more are
# better, are as many as about a minute on one core allows at m = 50. On the CPU: the same bits everywhere.
NETWORKS: dict[str, NeuralNetwork] = {
    # Full batches. Weight decay helps centrally; in a federation it pulls every consensus towards 0.
    "3": NeuralNetwork(
        "mlp",
        parameters={"hidden": (64, 64, 64)},
        central=TorchRecipe(
            learning_rate=0.01, weight_decay=3e-3, first_epochs=50, batch_size=512, device="cpu"
        ),
        federated=TorchRecipe(
            learning_rate=0.01,
            first_epochs=20,
            epochs=5,
            distill_epochs=80,
            batch_size=512,
            device="cpu",
        ),
        rounds=10,
    ),
    # Small batches take the same number of steps in less time than large ones.
    "mnist": NeuralNetwork(
        "lenet5",
        central=TorchRecipe(
            learning_rate=2e-3, weight_decay=0.01, first_epochs=20, batch_size=32, device="cpu"
        ),
        federated=TorchRecipe(
            learning_rate=2e-3,
            first_epochs=20,
            epochs=10,
            distill_epochs=2,
            batch_size=16,
            device="cpu",
        ),
        rounds=5,
    ),
}
"""The networks of Figure 4, by the names of :data:`~consilience_papers.park2023.problems.PROBLEMS`."""


def recipe_of(problem: str) -> dict[str, Any]:
    """A network of :data:`NETWORKS` as plain values, by which its results are kept."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(NETWORKS[problem])))
    return plain


def fedmd_errors(
    clients: Sequence[tuple[Array, Array]],
    public: Array,
    test: tuple[Array, Array],
    *,
    network: NeuralNetwork,
    seed: int,
) -> Array:
    """The clients' mean test error after every round of FedMD.

    Args:
        clients: each client's inputs ``(N, ...)`` and values ``(N,)``.
        public: inputs without labels, shape ``(N_p, ...)``.
        test: inputs ``(n, ...)`` and noiseless values ``(n,)``.
        network: what every client trains, from parameters of its own.
        seed: everything random is keyed by it.

    Returns:
        Mean squared errors, shape ``(rounds + 1,)``: row 0 is the clients alone, before any exchange.

    Raises:
        InvalidInput: no clients, or arrays that do not go together.

    Source:
        Park et al. 2023, section E.3, Figure 4 (b) and (d); Li & Wang 2019.
    """
    protocol = ensemble_distillation(aggregate=mean(), rounds=network.rounds)
    return _errors(clients, public, test, network, network.federated, protocol, seed)


def central_error(
    X: Array, y: Array, test: tuple[Array, Array], *, network: NeuralNetwork, seed: int
) -> float:
    """The test error of one network trained on all rows at once.

    Args:
        X: inputs, shape ``(n, ...)``.
        y: values, shape ``(n,)``.
        test: inputs ``(n, ...)`` and noiseless values ``(n,)``.
        network: what is trained.
        seed: everything random is keyed by it.

    Returns:
        The mean squared error.

    Raises:
        InvalidInput: arrays that do not go together.

    Source:
        Park et al. 2023, section E.3, Figure 4.
    """
    alone = local_only(rounds=1)  # a federation of one asks nothing of its public rows
    return float(_errors([(X, y)], X, test, network, network.central, alone, seed)[-1])


def _errors(
    clients: Sequence[tuple[Array, Array]],
    public: Array,
    test: tuple[Array, Array],
    network: NeuralNetwork,
    recipe: TorchRecipe,
    protocol: Protocol,
    seed: int,
) -> Array:
    if any(np.ndim(y) != 1 for _, y in (*clients, test)):
        raise InvalidInput(
            "values are not one per row", where="fedmd", mend="Give y of shape (n,)."
        )
    learner = make(network.preset, kind="regression", recipe=recipe, **network.parameters)
    parties = [
        Party(f"client {number:04d}", learner, X, y, test=test, calibration=0, purpose="taught")
        for number, (X, y) in enumerate(clients)
    ]
    history = Federation(parties, public, seed=seed).run(protocol, progress=False)
    return np.asarray(history.metric("mse").mean(axis=1))
