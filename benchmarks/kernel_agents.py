"""Time 250 rounds of kernel agents, against refitting every model in every round.

    python benchmarks/kernel_agents.py       # seconds; writes docs/results/kernel-agents.md

The toy problem of Afonin & Karimireddy 2022, Figure 3: two agents with 90 and 60 rows, d = 100, a linear
kernel, c = 10⁻³.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise
from time import perf_counter
from typing import Any

import numpy as np
import page
from sklearn.kernel_ridge import KernelRidge

from consilience.core.numerics.randomness import limited_threads
from consilience.methods.kernel_federations.agents import KernelAgents

C, ROUNDS, ROWS, COLUMNS, SHARE = 1e-3, 250, 150, 100, 90
Array = np.ndarray


def toy(seed: int = 0) -> list[tuple[Array, Array]]:
    """Rows and targets b = A x* of the two agents."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(ROWS, COLUMNS)) / COLUMNS**0.5
    b = A @ rng.normal(size=COLUMNS)
    order = rng.permutation(ROWS)
    return [(A[rows], b[rows]) for rows in (order[:SHARE], order[SHARE:])]


def exact(protocol: str, data: list[tuple[Array, Array]]) -> tuple[Array, int]:
    """Predictions of the last models for all rows, and the number of rounds."""
    agents = KernelAgents("linear", data, regularization=C)
    X = np.concatenate(agents.X)
    steps = list(islice(getattr(agents, protocol)(), ROUNDS + 1))
    models = agents.fit(steps[-1]) if isinstance(steps[-1], tuple) else steps[-1:]
    return np.stack([model.predict(X)[:, 0] for model in models]), len(steps) - 1


class Refitted:
    """The protocols with every model fitted anew in every round; kernel matrices are computed once."""

    def __init__(self, data: list[tuple[Array, Array]]) -> None:
        self.y = [y for _, y in data]
        X = np.concatenate([X for X, _ in data])
        self.K = X @ X.T
        cut = np.cumsum([0, *map(len, self.y)])
        self.own = [slice(a, b) for a, b in pairwise(cut)]

    def fit(self, targets: list[Array]) -> list[KernelRidge]:
        return [
            KernelRidge(alpha=C * ROWS, kernel="precomputed").fit(self.K[rows, rows], t)
            for rows, t in zip(self.own, targets, strict=True)
        ]

    def said(self, models: list[KernelRidge]) -> list[Array]:
        """Every model's values at all rows."""
        return [
            model.predict(self.K[:, rows]) for model, rows in zip(models, self.own, strict=True)
        ]

    def alternating(self) -> Array:
        models = self.fit(self.y)
        for _ in range(ROUNDS):
            first, second = self._to_each_other(models)
            models = self.fit([second, first])
        return np.stack(self.said(models))

    def averaged(self) -> Array:
        models = self.fit(self.y)
        for _ in range(ROUNDS):
            first, second = self._to_each_other(models)
            models = self.fit([(self.y[0] + second) / 2, (self.y[1] + first) / 2])
        return np.stack(self.said(models))

    def ensembled(self) -> Array:
        models = self.fit(self.y)
        total = sum(self.said(models))
        for t in range(1, ROUNDS + 1):
            first, second = self._to_each_other(models)
            models = self.fit([second, first])
            total = total + (-1) ** t * sum(self.said(models))
        return np.asarray(total)[None]

    def conjugate(self, rounds: int) -> Array:
        """Conjugate gradients with a refit a round as preconditioner."""
        y = np.concatenate(self.y)
        L = self.K / ROWS
        beta = self._solved(y)
        r = y - C * beta - L @ beta
        p = z = self._solved(r)
        for _ in range(rounds):
            q = C * p + L @ p
            step = (r @ z) / (p @ q)
            beta = beta + step * p
            before = r @ z
            r = r - step * q
            z = self._solved(r)
            p = z + (r @ z) / before * p
        return (L @ beta)[None]

    def _to_each_other(self, models: list[KernelRidge]) -> tuple[Array, Array]:
        """Predictions of the first agent for the second's rows, and of the second for the first's."""
        first, second = self.own
        return models[0].predict(self.K[second, first]), models[1].predict(self.K[first, second])

    def _solved(self, targets: Array) -> Array:
        """``(c I + L_aa)⁻¹`` of every agent's part."""
        models = self.fit([targets[rows] for rows in self.own])
        return np.concatenate([model.dual_coef_ * ROWS for model in models])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = work()
    return perf_counter() - start, result


NAMES = {"alternating": "AKD", "averaged": "AvgKD", "ensembled": "EKD", "conjugate": "conjugate"}


def lines() -> list[str]:
    data = toy()
    largest = max(float(np.abs(y).max()) for _, y in data)
    rows, all_ours, all_theirs = [], 0.0, 0.0
    for protocol, name in NAMES.items():
        ours, count = exact(protocol, data)  # libraries are loaded
        refitted = Refitted(data)
        given = (count,) if protocol == "conjugate" else ()
        times = [timed(lambda: exact(protocol, data))[0] for _ in range(5)]  # noqa: B023
        slow, theirs = timed(lambda: getattr(refitted, protocol)(*given))  # noqa: B023
        times += [timed(lambda: exact(protocol, data))[0] for _ in range(5)]  # noqa: B023
        fast = float(np.median(times))
        apart = float(np.abs(ours - theirs).max()) / largest
        all_ours, all_theirs = all_ours + fast, all_theirs + slow
        rows.append(
            f"| {name} | {count} | {fast:.4f} | {slow:.2f} | {slow / fast:,.0f} | {apart:.0e} |"
        )
    return [
        "Two agents with 90 and 60 rows, 100 columns, linear kernel, c = 10⁻³; at most 250 rounds.",
        "",
        "| protocol | rounds | `KernelAgents`, s | refitting, s | ratio | apart |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        f"| all four | | **{all_ours:.3f}** | {all_theirs:.2f} | **{all_theirs / all_ours:,.0f}** | |",
        "",
        "Seconds of `KernelAgents` are the median of ten and include kernel matrices, factorisations and the "
        "last models' values at all rows. Refitting is `sklearn.kernel_ridge.KernelRidge` at every agent in "
        "every round, on kernel matrices that are computed once, timed in the middle of the ten. *Apart* is "
        "the largest difference of the last models' values at all rows, over the largest target.",
        "",
        "Conjugate gradients end where the residual is at rounding.",
    ]


def main() -> None:
    with limited_threads(1):
        page.write(__file__, lines())


if __name__ == "__main__":
    main()
