"""Problems whose minimiser is known, drawn once, and the distance at which FFGB ends from it.

Inputs are finitely many, so that functions are tables (:mod:`consilience_papers.theory.boosting_problems`),
and weak learners say γ times what they are asked: they have the strength γ in every norm. The loss is
cross-entropy with μ = 0.3, for Theorem 4.4 and the ablation the squared loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

from consilience.core.validation.arrays import Array
from consilience_papers.theory import (
    FiniteProblem,
    adversarial_oracle,
    adversarial_problem,
    best_local_steps,
    boosting_steps,
    finite_problem,
    functional_gradient_boosting,
    greedy_oracle,
    lipschitz_error_bound,
    lipschitz_gradient_boosting,
    shrinking_oracle,
)

Numbers = dict[str, Any]

RIDGE = 0.3
"""μ."""

GRADIENT = 2**0.5
"""G, the largest gradient of cross-entropy."""

ROUNDS = (16, 32, 64, 128, 256)
"""T where slopes in T are taken."""

LOCAL_STEPS = (5, 10, 20, 40)
"""K where levels in K are taken."""

APART = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Shares of a client's inputs that are its own; ω_TV is ¾ of it for four clients."""

SHIFTS = (0.0, 0.2, 0.5, 1.0)
"""How far the inputs of a client lie from the next one's, for Theorem 4.4."""

GAMMA = 0.5
"""γ of weak learners that are not exact."""

ABLATION = ("three clients", "one client")
"""Who boosts where the residual is left out."""


def homogeneous_problem(repetition: int) -> FiniteProblem:
    """Three clients with one distribution of five inputs and labels of three classes of their own."""
    rng = np.random.default_rng(repetition)
    inputs = np.repeat(rng.dirichlet(np.ones(5))[None], 3, axis=0)
    return finite_problem(inputs, rng.dirichlet(np.full(3, 0.2), size=(3, 5)), ridge=RIDGE)


def heterogeneous_problem(repetition: int, apart: float) -> FiniteProblem:
    """Four clients: a share ``apart`` of each one's inputs is at two points of its own."""
    rng = np.random.default_rng(repetition)
    inputs = apart * np.kron(np.eye(4), np.full(2, 0.5)) + (1 - apart) / 8
    return finite_problem(inputs, rng.dirichlet(np.full(3, 0.2), size=(4, 8)), ridge=RIDGE)


def homogeneous(*, repetition: int) -> Numbers:
    """Theorem 4.3 and Corollary 4.1: ‖f^T − f*‖²_α by T, by K, and by both."""
    problem = homogeneous_problem(repetition)

    def errors(rounds: int, K: int, gamma: float) -> Array:
        steps = boosting_steps(rounds, K, RIDGE, homogeneous=True)
        return problem.distance(
            functional_gradient_boosting(problem, steps, shrinking_oracle(gamma))
        )

    exact = errors(ROUNDS[-1], 4, 1.0)
    return {
        "exact": exact[list(ROUNDS)],
        "by K": [errors(150, K, GAMMA)[-1] for K in LOCAL_STEPS],
        "together": [errors(T, best_local_steps(T), GAMMA)[-1] for T in ROUNDS],
    }


def ablation(*, repetition: int) -> Numbers:
    """Section 3's argument for the residual: ‖f^T − f*‖²_α by T, with and without, for three clients and one.

    Squared loss, so that all is strongly convex with next to no ridge (μ = 0.001: what a weak learner does
    not see of μf would make one client stall too), steps 2/(tK + k + 1), K = 40. Weak learners answer at one
    of five inputs of nearly equal weight, labels are the clients' own.
    """
    rng = np.random.default_rng(repetition)
    inputs, labels = rng.dirichlet(np.full(5, 50.0)), rng.dirichlet(np.full(3, 0.2), size=(3, 5))
    steps = boosting_steps(150, 40, 1.0, homogeneous=True)
    found = {}
    for who, count in zip(ABLATION, (3, 1), strict=True):
        problem = finite_problem(
            np.repeat(inputs[None], count, axis=0), labels[:count], ridge=0.001, loss="squared"
        )
        for residual in (True, False):
            f = functional_gradient_boosting(problem, steps, greedy_oracle, residual=residual)
            name = f"{who}, {'with' if residual else 'without'}"
            found[name] = problem.distance(f)[1:]
    return found


def heterogeneous(*, repetition: int) -> Numbers:
    """Theorem 4.1: ‖f^T − f*‖²_α after T/2 and T rounds for every ω_TV, and the radius."""
    omegas, half, last = [], [], []
    for apart in APART:
        problem = heterogeneous_problem(repetition, apart)
        found = functional_gradient_boosting(
            problem, boosting_steps(120, 10, RIDGE), shrinking_oracle(GAMMA)
        )
        distances = problem.distance(found)
        omegas.append(problem.omega)
        half.append(distances[60])
        last.append(distances[120])
    radius = (GRADIENT / (RIDGE * GAMMA)) ** 2 * np.array(omegas)
    return {"omega": omegas, "half": half, "last": last, "radius": radius}


def lipschitz(*, repetition: int) -> Numbers:
    """Theorem 4.4: ‖f^T − f*‖²_α for every ω_W1, and the bound on it.

    Three clients have eight inputs each in intervals of length 1, one after another; labels are sin(2x)/2.
    """
    omegas, last, bounds = [], [], []
    places = np.random.default_rng(repetition).random((3, 8))
    held = np.kron(np.eye(3), np.ones(8)) > 0
    for shift in SHIFTS:
        x = (places + shift * np.arange(3)[:, None]).ravel()
        y = np.sin(2 * x) / 2
        steps = boosting_steps(60, 8, 1.0)
        found = lipschitz_gradient_boosting(x[:, None], held, y, steps, lipschitz=1.0, gamma=GAMMA)
        distances = np.square(found - y).mean(axis=1)
        gaps = np.abs(x[:, None] - x)
        omegas.append(np.mean([wasserstein_distance(x[own], x) for own in held]))
        last.append(distances[-1])
        bounds.append(
            lipschitz_error_bound(
                steps,
                lipschitz=1.0,
                labels=float(np.abs(y).max()),
                apart=float(max(gaps[np.ix_(a, b)].min(axis=1).max() for a in held for b in held)),
                gamma=GAMMA,
                distance=float(distances[0] ** 0.5),
                omega=float(omegas[-1]),
            )[-1]
        )
    return {"omega": omegas, "last": last, "bound": bounds}


def adversarial(*, repetition: int) -> Numbers:
    """Theorem 4.2: how large f gets in 20 rounds, which is 0, and the distance ‖f* − 0‖²_α that stays.

    Args:
        repetition: there are two clients more than that.
    """
    problem = adversarial_problem(clients=2 + repetition, ridge=RIDGE)
    found = functional_gradient_boosting(problem, boosting_steps(20, 5, RIDGE), adversarial_oracle)
    return {
        "largest": float(np.abs(found).max()),
        "distance": float(problem.distance(found[-1])),
        "omega": problem.omega,
    }
