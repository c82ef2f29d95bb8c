"""Conjugate distillation where its theory does not hold: two kernels, networks, forests.

:mod:`consilience.methods.model_exchange.conjugate_distillation` refuses such agents. Here its steps are
carried out all the same, with what a fit leaves of its labels, ``t − g(X)``, in the place of coefficients:
for kernel ridge regression it is c times them, and that factor cancels in every step length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from consilience.core.numerics.kernels import kernel_of
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.methods.kernel_federations.agents import KernelAgents
from consilience_papers.afonin2022 import problems
from consilience_papers.afonin2022.problems import Setting, Size

Predict = Callable[[Array], Array]
Fit = Callable[[Sequence[Array]], Sequence[Predict]]
"""From every agent's labels, shape ``(N_a, k)`` each, to every agent's model."""


def conjugate(X: Sequence[Array], y: Sequence[Array], fit: Fit) -> Iterator[Predict]:
    """The sum of the agents' models after rounds 0, 1, 2, …

    A column whose step length would not be positive stays as it is for that round; with one kernel none does.

    Args:
        X: every agent's inputs, shape ``(N_a, ...)``.
        y: their targets, shape ``(N_a, k)``.
        fit: trains a new model at every agent.
    """

    def others(models: Sequence[Predict]) -> list[Array]:
        """Sum of the other agents' models at every agent's rows."""
        return [
            sum((g(rows) for b, g in enumerate(models) if b != a), np.zeros_like(y[a]))
            for a, rows in enumerate(X)
        ]

    def left(targets: Sequence[Array]) -> list[Array]:
        models = fit(targets)
        return [t - g(rows) for t, g, rows in zip(targets, models, X, strict=True)]

    models = fit(y)
    yield _sum(models)
    s = list(y)
    r = [-values for values in others(models)]
    z = left(r)
    length = _dot(r, z)
    t, p = r, z
    while True:
        q = [one + other for one, other in zip(t, others(fit(t)), strict=True)]
        curvature = _dot(p, q)
        step = _ratio(length, curvature)
        s, r = _plus(s, step, t), _plus(r, -step, q)
        yield _sum(fit(s))
        z = left(r)
        before, length = length, _dot(r, z)
        keep = _ratio(length, before)
        t, p = _plus(r, keep, t), _plus(z, keep, p)


def _sum(models: Sequence[Predict]) -> Predict:
    return lambda rows: np.asarray(sum(g(rows) for g in models))


def _plus(ones: Sequence[Array], factor: Array, others: Sequence[Array]) -> list[Array]:
    return [one + factor * other for one, other in zip(ones, others, strict=True)]


def _dot(ones: Sequence[Array], others: Sequence[Array]) -> Array:
    """Dot product of every column, shape ``(k,)``."""
    return np.asarray(sum((a * b).sum(axis=0) for a, b in zip(ones, others, strict=True)))


def _ratio(above: Array, below: Array) -> Array:
    """0 where either is not above 0, which with one kernel means that the residual is at rounding."""
    sound = (above > 0) & (below > 0)
    return np.divide(above, below, out=np.zeros_like(above), where=sound)


# --- repetitions --------------------------------------------------------------------------------------


def two_kernels(*, regularization: float, rounds: int, repetition: int) -> Mapping[str, Any]:
    """The toy problem, linear and Gaussian kernel: mean squared error on fresh rows after every round."""
    data, (fresh, truth) = problems.toy(repetition, ordered=False)
    agents = KernelAgents(
        [kernel_of("linear"), kernel_of("rbf", gamma=0.5)], data, regularization=regularization
    )

    def fit(targets: Sequence[Array]) -> Sequence[Predict]:
        return [function.predict for function in agents.fit(tuple(targets))]

    def errors(functions: Iterator[Predict]) -> list[float]:
        return [float(np.square(f(fresh)[:, 0] - truth).mean()) for f in functions]

    series = (function.predict for function in agents.ensembled())
    return {
        "conjugate": errors(islice(conjugate(agents.X, agents.y, fit), rounds + 1)),
        "EKD": errors(islice(series, rounds + 1)),
    }


def learners(
    *, setting: Mapping[str, Any], size: Mapping[str, Any], rounds: int, repetition: int
) -> Mapping[str, Any]:
    """Networks and forests on images: test accuracy of the sum after every round."""
    where, how = Setting(**setting), Size(**size)
    given = problems.images(where.data, how, repetition)
    parties = problems.agents(where, how, given, repetition)
    fits = count()

    def fit(targets: Sequence[Array]) -> Sequence[Predict]:
        number = next(fits)
        models = [problems.learner(where, how, i) for i in range(len(parties))]
        for model, party, values in zip(models, parties, targets, strict=True):
            model.bind(values.shape[1])
            model.fit(party.rows.X, values, rng=stream(repetition, party.name, number, "conjugate"))
        return [model.predict for model in models]

    sums = conjugate([party.rows.X for party in parties], [party.rows.y for party in parties], fit)
    values = (f(given.X_test) for f in islice(sums, rounds + 1))
    return {"accuracy": [float((v.argmax(axis=1) == given.y_test).mean()) for v in values]}
