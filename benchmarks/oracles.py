"""Measure the strength of weak learners in the three norms of Shen et al. 2022, by the way they are fitted.

    python benchmarks/oracles.py      # about two minutes; writes docs/results/oracles.md

Smooth queries in one, two and five dimensions; a network of 32 units with 100 epochs, and a tree. Beside the
oracles of the library: other ways to the least maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import page
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from consilience.core.learners import Learner, as_learner
from consilience.core.numerics.randomness import limited_threads
from consilience.methods.functional_boosting.lipschitz import LipschitzExtension
from consilience.methods.functional_boosting.weak_fits import (
    ORACLES,
    LeastMaximum,
    SobolevTraining,
    gamma_l2,
    gamma_l_infinity,
    gamma_lipschitz,
)

SEEDS, EPOCHS, MORE, RATE, BATCH = range(5), 100, 5, 1e-2, 32
SHAPES = {1: (60, 1), 2: (150, 2), 5: (200, 1)}
Array = np.ndarray
Fit = Callable[[Learner, Array, Array, np.random.Generator], None]


class Query:
    """φ_1 = sin 3x_1 + 0.3 (Σx)² + ½, φ_2 = cos 2x_1 + ½ at rows drawn evenly from [−1, 1]ᵈ."""

    def __init__(self, dimensions: int, seed: int) -> None:
        rows, self.outputs = SHAPES[dimensions]
        self.X = np.random.default_rng(seed).uniform(-1, 1, (rows, dimensions))
        both = [
            np.sin(3 * self.X[:, 0]) + 0.3 * self.X.sum(axis=1) ** 2,
            np.cos(2 * self.X[:, 0]),
        ]
        self.values = np.stack(both, axis=1)[:, : self.outputs] + 0.5

    def gradient(self, points: Array) -> Array:
        found = np.zeros((len(points), 2, points.shape[1]))
        found[:, 0] = 0.6 * points.sum(axis=1, keepdims=True)
        found[:, 0, 0] += 3 * np.cos(3 * points[:, 0])
        found[:, 1, 0] = -2 * np.sin(2 * points[:, 0])
        return found[:, : self.outputs]


def network(epochs: int = EPOCHS) -> Learner:
    def made(shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 32), nn.Tanh(), nn.Linear(32, n_outputs))

    recipe = {"learning_rate": RATE, "batch_size": BATCH, "first_epochs": epochs, "epochs": MORE}
    return as_learner(made, kind="regression", recipe=recipe)


def tree() -> Learner:
    return as_learner(DecisionTreeRegressor(max_depth=4))


def smooth_maximum(
    sharpness: float,
) -> Callable[[Learner, Array, Array, np.random.Generator], None]:
    """(1/p) log Σ exp(p ‖e_i‖²) of a batch, for as many epochs as the least maximum has."""

    def fit(learner: Any, X: Array, targets: Array, rng: np.random.Generator) -> None:
        learner.bind(targets.shape[1])
        learner.start(X, rng=rng)
        x, y = torch.tensor(X).float(), torch.tensor(targets).float()
        optimizer = torch.optim.Adam(learner.module.parameters(), RATE)
        for _ in range(EPOCHS + MORE * (LeastMaximum().fits - 1)):
            for rows in torch.from_numpy(rng.permutation(len(x))).split(BATCH):
                errors = (learner.module(x[rows]) - y[rows]).square().sum(dim=1)
                optimizer.zero_grad()
                (torch.logsumexp(sharpness * errors, 0) / sharpness).backward()
                optimizer.step()

    return fit


def lawson(learner: Any, X: Array, targets: Array, rng: np.random.Generator) -> None:
    """w ← w ‖e‖, the last of as many fits as the least maximum has, or before all weights are 0."""
    weights = np.ones(len(X))
    for fit in range(LeastMaximum().fits):
        phase = "private" if fit and learner.abilities.incremental else "first"
        learner.fit(X, targets, rng=rng, weights=weights, phase=phase)
        weights = weights * np.linalg.norm(learner.predict(X) - targets, axis=1)
        if not weights.any():
            return
        weights /= weights.mean()


def row(name: str, make: Callable[[], Learner], fit_of: Callable[[Query], Fit]) -> str:
    gammas, seconds = {d: [] for d in SHAPES}, 0.0
    for d in SHAPES:
        for seed in SEEDS:
            query, learner = Query(d, seed), make()
            fit = fit_of(query)
            started = perf_counter()
            fit(learner, query.X, query.values, np.random.default_rng(seed))
            seconds += perf_counter() - started
            h = learner.predict(query.X)
            gammas[d].append(
                (
                    gamma_l2(h, query.values),
                    gamma_l_infinity(h, query.values),
                    gamma_lipschitz(query.X, h, query.values),
                )
            )
    cells = []
    for norm in range(3):
        values = [np.array(gammas[d])[:, norm] for d in SHAPES]
        cells.append(", ".join(f"{v.mean():.2f} ± {v.std(ddof=1):.2f}" for v in values))
    print(name, *cells, flush=True)
    return f"| {name} | {' | '.join(cells)} | {seconds / (len(SHAPES) * len(SEEDS)):.2f} |"


def main() -> None:
    ORACLES["sobolev"](
        network(1), Query(2, 0).X, Query(2, 0).values, np.random.default_rng(0)
    )  # warm
    rows = [
        row("network, `l2`", network, lambda q: ORACLES["l2"]),
        row(
            "network, `l2`, as many epochs as `l_infinity`",
            lambda: network(EPOCHS + MORE * (LeastMaximum().fits - 1)),
            lambda q: ORACLES["l2"],
        ),
        row("network, `l_infinity`", network, lambda q: ORACLES["l_infinity"]),
        row("network, weights w‖e‖ (Lawson)", network, lambda q: lawson),
        row("network, smooth maximum, p = 2", network, lambda q: smooth_maximum(2.0)),
        row("network, smooth maximum, p = 8", network, lambda q: smooth_maximum(8.0)),
        row("network, `sobolev`", network, lambda q: ORACLES["sobolev"]),
        row("network, `sobolev` with ∇φ", network, lambda q: SobolevTraining(q.gradient)),
        row(
            "network, `sobolev` with ∇u, u the Lipschitz extension",
            network,
            lambda q: SobolevTraining(LipschitzExtension(q.X, q.values).gradient),
        ),
        row("tree of depth 4, `l2`", tree, lambda q: ORACLES["l2"]),
        row("tree of depth 4, `l_infinity`", tree, lambda q: ORACLES["l_infinity"]),
        row("tree of depth 4, weights w‖e‖ (Lawson)", tree, lambda q: lawson),
    ]
    sizes = "; ".join(
        f"{n} rows, {c} output{'s' if c > 1 else ''} in {d}" for d, (n, c) in SHAPES.items()
    )
    lines = [
        "γ of a network of 32 tanh units (Adam, rate 0.01, batches of 32, 100 epochs; `l_infinity` goes on "
        "for 19 times 5 more) and of a tree, fitted to smooth queries in one, two and five dimensions "
        f"({sizes}): 1 is exact, 0 is no better than 0. Mean ± standard deviation over seeds, dimension by "
        "dimension; seconds a fit.",
        "",
        "| | γ in L², eq. 5 | γ in L∞, eq. 10 | γ Lipschitz, eqs. 14 and 15 | seconds |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "`l_infinity` keeps the best of its fits; Lawson's and the smooth maxima are as they end. Much of "
        "what `l_infinity` gains with the network it gains by its epochs. Where queries are as smooth as "
        "these, nothing is stronger than `sobolev`, with secants or with ∇φ, in any norm; gradients of "
        "losses at noisy labels are not smooth. The extension u is as steep as its constant everywhere, and "
        "its gradient a poor stand-in for that of a smooth φ.",
    ]
    page.write(__file__, lines, about=f"seeds {', '.join(map(str, SEEDS))}")


if __name__ == "__main__":
    with limited_threads(1):
        main()
