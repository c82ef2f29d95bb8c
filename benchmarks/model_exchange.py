"""Time a round of AvgKD between networks, over its training steps.

    python benchmarks/model_exchange.py      # about two minutes; writes docs/results/model-exchange.md

Two agents with 3,000 random images of 28×28 each train networks anew in every round, for ten epochs in
batches of 64, squared loss on ten columns. The same steps are written out in plain torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import page
import torch
from torch import nn

from consilience import Federation, Party
from consilience.core.learners import make
from consilience.core.numerics.randomness import limited_threads
from consilience.methods.model_exchange.protocols import averaged_distillation

ROWS, OUTPUTS, EPOCHS, BATCH, RATE, DECAY, ROUNDS = 3000, 10, 10, 64, 1e-3, 3e-4, 5
NETWORKS: dict[str, Mapping[str, Any]] = {
    "mlp": {"hidden": (200, 200)},
    "lenet5": {},
    "cnn": {"channels": (32, 64), "hidden": 128},
}
BAR = 1.05
Array = np.ndarray
Pairs = list[tuple[Array, Array]]


def images(seed: int = 0) -> Pairs:
    """Two agents' inputs and targets."""
    rng = np.random.default_rng(seed)
    shape = (ROWS, 28, 28)
    return [
        (rng.random(shape, dtype=np.float32), np.eye(OUTPUTS)[rng.integers(OUTPUTS, size=ROWS)])
        for _ in range(2)
    ]


def rounds_of(name: str, data: Pairs) -> tuple[Federation, Any]:
    """A federation, and its rounds: the next one is computed when it is asked for."""
    recipe = {
        "first_epochs": EPOCHS,
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "weight_decay": DECAY,
    }
    parties = [
        Party(
            f"agent-{i}",
            make(name, kind="regression", recipe=recipe, **NETWORKS[name]),
            X,
            y,
            calibration=0,
        )
        for i, (X, y) in enumerate(data, start=1)
    ]
    federation = Federation(parties)
    return federation, federation.rounds(averaged_distillation(rounds=ROUNDS + 1))


def trained(network: nn.Module, X: torch.Tensor, targets: torch.Tensor) -> None:
    """The steps of one fit."""
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(X)), BATCH):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(X[rows]), targets[rows])
            loss.backward()
            optimizer.step()


def said(network: nn.Module, X: torch.Tensor) -> torch.Tensor:
    """A network's values, computed a few rows at a time."""
    with torch.inference_mode():
        return torch.cat([network(rows) for rows in torch.split(X, 256)])


def figures(name: str, data: Pairs) -> tuple[float, float, float]:
    """Medians over rounds: seconds of a round, of its training steps, of its predictions."""
    federation, rounds = rounds_of(name, data)
    next(rounds)
    tensors = [(torch.from_numpy(X), torch.from_numpy(y.astype(np.float32))) for X, y in data]
    networks = [model.learner.module for model in federation.network.models().values()]
    times = []
    for _ in range(ROUNDS):
        begun = perf_counter()
        next(rounds)
        whole = perf_counter() - begun
        networks = [redrawn(network) for network in networks]
        begun = perf_counter()
        for network, (X, targets) in zip(networks, tensors, strict=True):
            trained(network, X, targets)
        steps = perf_counter() - begun
        begun = perf_counter()
        for network, (X, _) in zip(networks[::-1], tensors, strict=True):
            said(network, X)
        times.append((whole, steps, perf_counter() - begun))
    whole, steps, asked = np.median(times, axis=0)
    return float(whole), float(steps), float(asked)


def redrawn(network: nn.Module) -> nn.Module:
    """The network with new parameters."""
    for part in network.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.reset_parameters()
    return network


def lines() -> list[str]:
    data = images()
    rows, found = [], {}
    for name, parameters in NETWORKS.items():
        whole, steps, asked = figures(name, data)
        found[name] = whole / steps
        spelt = ", ".join([name, *(f"{key} {value}" for key, value in parameters.items())])
        rows.append(
            f"| {spelt} | {whole:.2f} | {steps:.2f} | {asked:.3f} | **{whole / steps:.3f}** | "
            f"{whole / (steps + asked):.3f} |"
        )
    ratios = ", ".join(
        f"{name} {'holds' if ratio <= BAR else 'does not hold'}" for name, ratio in found.items()
    )
    return [
        f"Two agents with {ROWS:,} images each, {EPOCHS} epochs in batches of {BATCH}; median of {ROUNDS} "
        "rounds after round 0, of each of which the same work in plain torch was timed directly after it.",
        "",
        "| network | a round, s | training steps, s | predictions, s | over training steps | over both |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        f"Wanted is at most {BAR} over training steps: {ratios}.",
        "",
        "A round is that of `averaged_distillation` in one process: every agent reads the other's model from "
        "its bytes, predicts its own rows with it, trains a new network, and packs it. Training steps are a "
        "plain torch loop over as many batches with the same optimiser; predictions are one forward pass of "
        "every network over the other agent's rows, which the method cannot do without: with M agents they "
        "are M − 1 passes, and with one epoch in place of ten they weigh ten times as much.",
    ]


def main() -> None:
    with limited_threads(1):
        page.write(__file__, lines())


if __name__ == "__main__":
    main()
