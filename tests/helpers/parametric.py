"""Four parties with one small network, to hold the contract of protocols that exchange parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience import Party
from consilience.learners import as_learner
from consilience.messages.replies import Public


def network(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """Two layers with batch normalisation between them: weights, and means and variances."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, n_outputs)
    )


def networks() -> tuple[list[Party], Public]:
    rng = np.random.default_rng(0)
    recipe = {"optimizer": "sgd", "epochs": 1, "learning_rate": 0.05, "batch_size": 8}
    parties = []
    for name in "abcd":
        X = rng.normal(size=(20, 2))
        model = as_learner(network, recipe=recipe)
        parties.append(Party(name, model, X, (X[:, 0] > 0).astype(int)))
    return parties, Public(rng.normal(size=(6, 2)))
