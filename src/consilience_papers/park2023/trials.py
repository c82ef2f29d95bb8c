"""Single repetitions of each experiment: fresh data, exact computation, plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from consilience.core.aggregation import anderson, damped
from consilience.core.numerics.kernels import Kernel, gram
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.methods.kernel_federations import KernelFederation
from consilience_papers.park2023.problems import PROBLEMS, Sample
from consilience_papers.theory import prescribed_regularization

Numbers = dict[str, Any]


def drawn(problem: str, clients: int, rows: int, public: int, repetition: int) -> Sample:
    """The data of a repetition; the same for whatever is computed with it."""
    rng = stream(repetition, f"park2023/{problem}", 0, f"{clients}x{rows}+{public}")
    return PROBLEMS[problem].sample(rng, clients, rows, public)


def federated(
    problem: str, clients: int, rows: int, public: int, repetition: int, *, regularization: float
) -> tuple[Sample, KernelFederation]:
    """The data of a repetition, and the clients that hold them."""
    sample = drawn(problem, clients, rows, public, repetition)
    kernel = PROBLEMS[problem].kernel
    federation = KernelFederation(
        kernel, sample.clients, sample.public, regularization=regularization
    )
    return sample, federation


def central(kernel: Kernel, X: Array, y: Array, grid: Sequence[float], X_test: Array) -> Array:
    """Kernel ridge regression on all rows for every λ of a grid: values at ``X_test``, ``(L, n)``."""
    values, vectors = np.linalg.eigh(gram(kernel, X))
    across, along = gram(kernel, X_test, X) @ vectors, vectors.T @ y
    shares = [along / (np.maximum(values, 0) + len(X) * regularization) for regularization in grid]
    return np.asarray(np.stack(shares) @ across.T)


def standalone(*, problem: str, rows: int, grid: Sequence[float], repetition: int) -> Numbers:
    """Table 1: one client alone; its squared error for every λ."""
    sample = drawn(problem, 1, rows, 0, repetition)
    predicted = central(PROBLEMS[problem].kernel, *sample.pooled, grid, sample.X)
    return {"standalone": np.square(predicted - sample.truth).mean(axis=1)}


def compare(
    *,
    problem: str,
    clients: int,
    rows: int,
    public: int,
    rounds: int,
    grid: Sequence[float],
    repetition: int,
) -> Numbers:
    """Figures 2, 3 and 5: every method's squared error, averaged over clients, for every λ."""
    sample, federation = federated(
        problem, clients, rows, public, repetition, regularization=grid[0]
    )
    points = federation.points(sample.X)
    errors: dict[str, list[float]] = {}
    for regularization in grid:
        one = federation.varied(regularization=regularization)
        models = {
            "standalone": one.alone(),
            "one-shot": one.after(1),
            "iterated": one.after(rounds),
            "de-regularised": one.after(rounds, deregularization=regularization),
        }
        for method, found in models.items():
            errors.setdefault(method, []).append(float(found.mse(points, sample.truth).mean()))
    together = central(PROBLEMS[problem].kernel, *sample.pooled, grid, sample.X)
    return {**errors, "central": np.square(together - sample.truth).mean(axis=1)}


def deregularised(
    *,
    problem: str,
    clients: int,
    rows: int,
    public: int,
    rounds: int,
    grid: Sequence[float],
    repetition: int,
) -> Numbers:
    """Table 2: iterated distillation with de-regularisation alone, for every λ."""
    sample, federation = federated(
        problem, clients, rows, public, repetition, regularization=grid[0]
    )
    points = federation.points(sample.X)
    errors = []
    for regularization in grid:
        one = federation.varied(regularization=regularization)
        models = one.after(rounds, deregularization=regularization)
        errors.append(models.mse(points, sample.truth).mean())
    return {"de-regularised": errors}


def regressors(
    *, rounds: Sequence[int], regularization: float, points: int, repetition: int
) -> Numbers:
    """Figure 1: the first client's regressor on Data set 1 after so many rounds, with and without."""
    _, federation = federated("1", 20, 20, 380, repetition, regularization=regularization)
    at = federation.points(np.linspace(0, 1, points)[:, None])
    return {
        f"{name} {count}": federation.after(count, deregularization=strength).predict(at)[0, :, 0]
        for name, strength in (("without", 0.0), ("with", regularization))
        for count in rounds
    }


def uniformly(rng: np.random.Generator, of: int, count: int) -> Iterator[Array]:
    """``count`` different clients of ``of``, drawn uniformly, without end."""
    while True:
        yield rng.choice(of, count, replace=False)


def approach(
    *,
    count: int,
    exponent: float,
    regularization: float,
    rounds: int,
    every: int,
    repetition: int,
) -> Numbers:
    """Figure 6: squared distance of Algorithm 3's consensus to the limit of Algorithm 2.

    Data set 3, m = 50, N = 10, ``count`` = C clients a round and steps ``t ** -exponent``.
    """
    _, federation = federated("3", 50, 10, 490, repetition, regularization=regularization)
    limit = federation.limit(deregularization=regularization).coordinates
    rng = stream(repetition, "park2023/participants", 0, f"{count}")
    steps = federation.iterate(
        deregularization=regularization,
        consensus=damped(exponent=exponent),
        participants=uniformly(rng, 50, count),
    )
    seen = (step for step in islice(steps, rounds) if step.number % every == 0)
    distances = [float(np.square(step.coordinates - limit).sum()) for step in seen]
    return {"distance": distances, "limit": float(np.square(limit).sum())}


def selected(
    *, problem: str, grid: Sequence[float], rounds: Sequence[int], repetition: int
) -> Numbers:
    """Figure 7: Algorithm 3 with C = 10, q = 0.501 after so many rounds, and Algorithm 2 after 200.

    For every λ of a grid: errors of shape ``(rounds, L)`` and ``(L,)``.
    """
    sample, federation = federated(problem, 50, 10, 490, repetition, regularization=grid[0])
    points = federation.points(sample.X)
    some, everybody = [], []
    for regularization in grid:
        one = federation.varied(regularization=regularization)
        steps = one.iterate(
            deregularization=regularization,
            consensus=damped(exponent=0.501),
            participants=uniformly(stream(repetition, "park2023/participants", 0, "10"), 50, 10),
        )
        some.append(
            [
                step.models().mse(points, sample.truth).mean()
                for step in islice(steps, max(rounds))
                if step.number in rounds
            ]
        )
        whole = one.after(200, deregularization=regularization)
        everybody.append(whole.mse(points, sample.truth).mean())
    return {"some": np.transpose(some), "all": everybody}


def networks(*, problem: str, clients: int, recipe: Mapping[str, Any], repetition: int) -> Numbers:
    """Figure 4: FedMD's squared error after every round, and that of the same network on all rows.

    ``recipe`` is what ``fedmd.recipe_of`` says of the problem: results of another one are kept apart.
    """
    from consilience_papers.park2023.fedmd import NETWORKS, central_error, fedmd_errors, recipe_of

    assert recipe == recipe_of(problem)
    sample = drawn(problem, clients, 10, (clients - 1) * 10, repetition)
    network = NETWORKS[problem]

    def shaped(X: Array) -> Array:
        return X.reshape(-1, 28, 28) if problem == "mnist" else X

    parts = [(shaped(X), y) for X, y in sample.clients]
    X, y = sample.pooled
    test = shaped(sample.X), sample.truth
    return {
        "fedmd": fedmd_errors(parts, shaped(sample.public), test, network=network, seed=repetition),
        "central": central_error(shaped(X), y, test, network=network, seed=repetition),
    }


def acceleration(
    *,
    problem: str,
    clients: int,
    public: int,
    regularization: float,
    window: int,
    tolerances: Sequence[float],
    most: int,
    repetition: int,
) -> Numbers:
    """Rounds until the consensus is within a share of its limit, plain and with Anderson acceleration."""
    _, federation = federated(
        problem, clients, 10, public, repetition, regularization=regularization
    )
    limit = federation.limit(deregularization=regularization).coordinates
    found: Numbers = {}
    for name, step in (("plain", None), ("anderson", anderson(window))):
        rounds = federation.iterate(deregularization=regularization, consensus=step)
        found[name] = _within(rounds, limit, tolerances, most)
    return found


def _within(rounds: Any, limit: Array, tolerances: Sequence[float], most: int) -> list[float]:
    """The first round at each tolerance; infinite where ``most`` rounds are not enough."""
    firsts = [np.inf] * len(tolerances)
    length = np.linalg.norm(limit)
    for step in islice(rounds, most):
        distance = np.linalg.norm(step.coordinates - limit) / length
        for i, tolerance in enumerate(tolerances):
            if np.isinf(firsts[i]) and distance <= tolerance:
                firsts[i] = step.number
        if np.isfinite(firsts).all():
            break
    return firsts


def rate(
    *,
    problem: str,
    smoothness: float,
    factors: Sequence[float],
    clients: int,
    public: int,
    repetition: int,
) -> Numbers:
    """Theorems 5.1 and 5.5: squared errors with λ = factor (mN)^(−1/(2r+2)) and N = 10, ``(factors,)``."""
    sample, federation = federated(problem, clients, 10, public, repetition, regularization=1.0)
    points = federation.points(sample.X)
    errors: dict[str, list[float]] = {"one-shot": [], "limit": []}
    for factor in factors:
        regularization = factor * prescribed_regularization(clients * 10, smoothness)
        one = federation.varied(regularization=regularization)
        limit = one.limit(deregularization=regularization).models()
        for name, models in (("one-shot", one.after(1)), ("limit", limit)):
            errors[name].append(float(models.mse(points, sample.truth).mean()))
    return errors
