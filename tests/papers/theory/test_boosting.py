"""Functional gradient boosting on finitely many inputs: by hand, against its bounds, against an adversary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import wasserstein_distance

from consilience_papers.theory import (
    adversarial_answers,
    adversarial_oracle,
    adversarial_problem,
    best_local_steps,
    boosting_steps,
    decay_exponent,
    error_bound,
    finite_problem,
    functional_gradient_boosting,
    general_rate,
    greedy_oracle,
    homogeneous_rate,
    lipschitz_error_bound,
    lipschitz_gradient_boosting,
    lipschitz_rate,
    shrinking_oracle,
)

G = 2**0.5
"""The largest gradient of cross-entropy: ‖softmax − one-hot‖."""


def shares(rng: np.random.Generator, *shape: int, classes: int = 3) -> np.ndarray:
    return rng.dirichlet(np.full(classes, 0.2), size=shape)


def homogeneous(seed: int = 0, *, clients: int = 3, points: int = 5, ridge: float = 0.3):
    rng = np.random.default_rng(seed)
    inputs = np.repeat(rng.dirichlet(np.ones(points))[None], clients, axis=0)
    return finite_problem(inputs, shares(rng, clients, points), ridge=ridge)


def heterogeneous(apart: float, seed: int = 0, *, clients: int = 4, ridge: float = 0.3):
    """A share ``apart`` of each client's inputs is at two points of its own, the rest everywhere."""
    rng = np.random.default_rng(seed)
    own = np.kron(np.eye(clients), np.full(2, 0.5))
    inputs = apart * own + (1 - apart) / (2 * clients)
    return finite_problem(inputs, shares(rng, clients, 2 * clients), ridge=ridge)


def drawn_oracle(problem, gamma: float, seed: int, *, largest: bool):
    """Off by exactly (1−γ) of the query's norm, in L²(α) or L∞(α_i), in a direction drawn anew each time."""
    rng = np.random.default_rng(seed)

    def norms(values: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(values, axis=2)
        if largest:
            return lengths.max(axis=1)[:, None, None]
        return np.sqrt((problem.inputs * lengths**2).sum(axis=1))[:, None, None]

    def oracle(queries: np.ndarray, held: np.ndarray) -> np.ndarray:
        off = np.where(held[:, :, None], rng.normal(size=queries.shape), 0.0)
        return queries - (1 - gamma) * norms(queries) / norms(off) * off

    return oracle


def test_steps_by_hand():
    """T = 2, K = 2, μ = 2: tK + k + 1 is 2, 3, 4, 5."""
    np.testing.assert_allclose(boosting_steps(2, 2, 2.0), [[1, 2 / 3], [1 / 2, 2 / 5]])
    np.testing.assert_allclose(
        boosting_steps(2, 2, 2.0, homogeneous=True), [[1 / 2, 1 / 3], [1 / 4, 1 / 5]]
    )
    assert [best_local_steps(T) for T in (1, 2, 4, 5, 1000)] == [1, 2, 2, 3, 32]


def test_rates_by_hand():
    """T = 100, K = 10, G = 2, μ = ½, γ = ½: (G/μγ)² = 64, log KT = 3 log 10."""
    logs = 3 * np.log(10)
    given: dict[str, Any] = {"gradient": 2.0, "ridge": 0.5, "gamma": 0.5, "distance": 3.0}
    rate = homogeneous_rate(100, 10, **given, clients=11, sampled=6)
    assert rate.start == pytest.approx(9 / 1000)
    assert rate.drift == pytest.approx(6.4 * logs)
    assert rate.oracle == pytest.approx(3.2)
    assert rate.steps == pytest.approx(0.016 * logs)
    assert rate.radius == 0
    assert rate.sampling == pytest.approx(0.5 * 64 * np.log(100) / 600)
    parts = (rate.start, rate.drift, rate.oracle, rate.steps, rate.sampling)
    assert rate.total == pytest.approx(sum(parts))
    rate = general_rate(100, 10, **given, omega=0.25)
    assert (rate.start, rate.radius, rate.sampling) == (pytest.approx(9 / 1000), 16, 0)
    assert (rate.drift, rate.oracle) == (pytest.approx(6.4 * logs), pytest.approx(1.6))
    # L(LD+B)ω/γ² = 2·(2·3 + 1)·¼·4 = 14; G² = 2·4·½ + 2 = 6, in units of γ² 24; (½·1/½)²/10.
    rate = lipschitz_rate(
        100,
        10,
        lipschitz=2,
        labels=1,
        apart=3,
        gamma=0.5,
        distance=3,
        omega=0.25,
        squared_transport=0.5,
    )
    assert (rate.radius, rate.oracle) == (pytest.approx(14), pytest.approx(0.1))
    assert rate.drift == pytest.approx(0.1 * 38 * logs)


def test_corollary_on_local_steps():
    """γ < 1: with K = √T the printed rate goes as 1/√T, up to its logarithm; K = 1 leaves a constant."""
    given: dict[str, Any] = {"gradient": 1.0, "ridge": 1.0, "gamma": 0.5, "distance": 1.0}
    rounds = 10.0 ** np.arange(10, 15)
    balanced = [homogeneous_rate(int(T), best_local_steps(int(T)), **given) for T in rounds]
    np.testing.assert_allclose(
        [rate.oracle * T**0.5 for rate, T in zip(balanced, rounds, strict=True)], 2, rtol=1e-4
    )
    drift = [rate.drift * T**0.5 / np.log(T**1.5) for rate, T in zip(balanced, rounds, strict=True)]
    np.testing.assert_allclose(drift, 4, rtol=1e-4)
    assert homogeneous_rate(10**12, 1, **given).total > 2


@pytest.mark.parametrize(
    ("steps", "given", "expected"),
    [
        # ‖h‖ ≤ 2 and the step is 1/μ: nothing is left of 9, and η‖h‖² = 4.
        ([[1.0]], {"gamma": 1.0}, 4),
        # ‖h‖ ≤ 4, ‖Δ‖ ≤ 1: 16, and 2 · 1 · ‖f* − g‖ = 6 for the residual that is discarded.
        ([[1.0]], {"gamma": 0.5}, 22),
        # A step of 2: 2 · (2 · 4 + gap), gap 4 · (‖g‖ + G/μ = 1) · 2 · ω = 4.
        ([[2.0]], {"gamma": 1.0, "omega": 0.5}, 24),
        # ‖g‖ = 0, 2; ‖h + g‖ = 2, 4; away 0, 2; ‖∇F‖ = 1, 3: ⅓·4 + ⅔·(⅔·16 + 2·7·2).
        ([[1.0, 2 / 3]], {"gamma": 1.0}, 244 / 9),
    ],
)
def test_bound_by_hand(steps: Any, given: Any, expected: float):
    """G = μ = 1, ‖f⁰ − f*‖ = 3, f⁰ = 0."""
    bound = error_bound(steps, gradient=1, ridge=1, distance=3, **given)
    np.testing.assert_allclose(bound, [9, expected])


def test_minimizers():
    """Squared loss by hand: weights ¼ and ¾ at the first point give ¼·1 + ¾·5 = 4, over 1 + μ = 2."""
    inputs = [[0.25, 0.75], [0.75, 0.25]]
    problem = finite_problem(inputs, [[[1.0], [0.0]], [[5.0], [8.0]]], ridge=1.0, loss="squared")
    np.testing.assert_allclose(problem.minimizer, [[2], [1]])
    assert problem.omega == pytest.approx(0.25)
    np.testing.assert_allclose(problem.distance(np.zeros((2, 1))), (4 + 1) / 2)


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 10])
def test_minimizers_of_cross_entropy_minimise_it(ridge: float):
    problem = heterogeneous(0.7, ridge=ridge)

    def risk(flat: np.ndarray) -> float:
        f = flat.reshape(8, 3)
        loss = (
            logsumexp(f, axis=1) - (problem.labels * f).sum(axis=2) + ridge / 2 * (f**2).sum(axis=1)
        )
        return float((problem.inputs * loss).sum(axis=1).mean())

    found = problem.minimizer
    best = minimize(risk, found.ravel())
    assert risk(found.ravel()) <= best.fun + 1e-12
    mean = (
        np.einsum("ix,ixc->xc", problem.inputs, problem.labels)
        / problem.inputs.sum(axis=0)[:, None]
    )
    e = np.exp(found - found.max(axis=1, keepdims=True))
    np.testing.assert_allclose(e / e.sum(axis=1, keepdims=True) + ridge * found, mean, atol=1e-11)


def algorithm_2(f, i, steps, gradient, weak, ridge, residual=True):
    """Client i's procedure as printed, line by line, with functions as tables."""
    missed, g = np.zeros_like(f), f
    for k, eta in enumerate(steps):
        asked = missed + gradient(i, g)
        h = weak(i, k, asked)
        missed = asked - h if residual else missed
        g = g - eta * (h + ridge * g)
    return g


def test_two_clients_by_hand():
    """Squared loss, one point, labels 0 and 4, μ = 1, steps ½, h = q/2.

    Client 1 stays at 0. Client 2: q = −4, h = −2, g = 0 + ½·2 = 1, Δ = −2; then q = −2 + 1 − 4 = −5,
    h = −2½, g = 1 − ½(−2½ + 1) = 1¾. The mean is ⅞; without the residual q = −3, h = −1½, g = 1¼, ⅝.
    """
    problem = finite_problem([[1], [1]], [[[0.0]], [[4.0]]], ridge=1.0, loss="squared")
    steps = [[0.5, 0.5]]
    found = functional_gradient_boosting(problem, steps, shrinking_oracle(0.5))
    np.testing.assert_allclose(found[:, 0, 0], [0, 7 / 8])
    found = functional_gradient_boosting(problem, steps, shrinking_oracle(0.5), residual=False)
    np.testing.assert_allclose(found[:, 0, 0], [0, 5 / 8])


@pytest.mark.parametrize("residual", [True, False])
def test_lockstep_is_the_algorithm_client_by_client(residual: bool):
    problem = heterogeneous(1.0)
    steps = boosting_steps(3, 4, problem.ridge)
    start = np.random.default_rng(1).normal(size=(8, 3))
    found = functional_gradient_boosting(
        problem, steps, shrinking_oracle(0.6), residual=residual, start=start
    )

    def gradient(i: int, g: np.ndarray) -> np.ndarray:
        e = np.exp(g)
        return (problem.inputs[i] > 0)[:, None] * (
            e / e.sum(axis=1, keepdims=True) - problem.labels[i]
        )

    f = start
    for t in range(3):
        rest = (gradient, lambda i, k, q: 0.6 * q, problem.ridge, residual)
        f = np.mean([algorithm_2(f, i, steps[t], *rest) for i in range(4)], axis=0)
        np.testing.assert_allclose(found[t + 1], f, atol=1e-12)


@pytest.mark.parametrize("clients", [2, 5])
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("residual", [True, False])
def test_theorem_4_2(clients: int, local_steps: int, residual: bool):
    """Weak learners that are exact where they are asked, and the iterate stays 0 for all that."""
    problem = adversarial_problem(clients=clients, ridge=0.2)
    assert problem.omega == pytest.approx(1 - 1 / clients)
    steps = boosting_steps(5, local_steps, problem.ridge)
    labels = np.eye(clients)

    def gradient(i: int, g: np.ndarray) -> np.ndarray:
        e = np.exp(g[i])
        found = np.zeros_like(g)
        found[i] = e / e.sum() - labels[i]
        assert np.linalg.norm(found[i]) <= G
        return found

    f = np.zeros((clients, clients))
    for t in range(5):
        answers = adversarial_answers(problem, steps[t])

        def weak(i: int, k: int, asked: np.ndarray, answers=answers) -> np.ndarray:
            np.testing.assert_allclose(answers[k, i, i], asked[i], atol=1e-14)  # γ = 1, measured
            return answers[k, i]

        returned = [
            algorithm_2(f, i, steps[t], gradient, weak, problem.ridge, residual)
            for i in range(clients)
        ]
        assert all(np.abs(g).max() > 0.1 for g in returned)  # each has learned something
        f = np.mean(returned, axis=0)
        np.testing.assert_allclose(f, 0, atol=1e-14)
    f = functional_gradient_boosting(problem, steps, adversarial_oracle, residual=residual)
    np.testing.assert_allclose(f, 0, atol=1e-14)
    size = (problem.minimizer**2).sum(axis=1).mean()
    np.testing.assert_allclose(problem.distance(f), size)
    assert size > 1
    # The lower bound lies below what Theorem 4.1 promises.
    assert (
        size
        <= error_bound(
            steps, gradient=G, ridge=0.2, gamma=1, distance=size**0.5, omega=problem.omega
        )[-1]
    )


def test_what_is_learned_without_an_adversary_is_not_zero():
    problem = adversarial_problem()
    steps = boosting_steps(50, 3, problem.ridge)
    errors = problem.distance(functional_gradient_boosting(problem, steps, shrinking_oracle(1.0)))
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("gamma", [1.0, 0.6, 0.2])
@pytest.mark.parametrize("local_steps", [1, 6])
def test_homogeneous_bound_holds(gamma: float, local_steps: int):
    for seed in range(5):
        problem = homogeneous(seed)
        start = np.random.default_rng(seed).normal(size=(5, 3))
        steps = boosting_steps(60, local_steps, problem.ridge, homogeneous=True)
        if seed == 4:
            steps = np.full_like(steps, 0.1 / problem.ridge)
        found = functional_gradient_boosting(
            problem, steps, drawn_oracle(problem, gamma, seed, largest=False), start=start
        )
        errors = problem.distance(found)
        bound = error_bound(
            steps,
            gradient=G,
            ridge=problem.ridge,
            gamma=gamma,
            distance=errors[0] ** 0.5,
            size=float(np.sqrt((start**2).sum(axis=1) @ problem.mean)),
        )
        assert (errors <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize("gamma", [1.0, 0.4])
@pytest.mark.parametrize("apart", [0.0, 0.4, 1.0])
def test_general_bound_holds(gamma: float, apart: float):
    for seed in range(4):
        problem = heterogeneous(apart, seed)
        steps = boosting_steps(40, 5, problem.ridge)
        found = functional_gradient_boosting(
            problem, steps, drawn_oracle(problem, gamma, seed, largest=True)
        )
        errors = problem.distance(found)
        given: dict[str, Any] = {"gradient": G, "ridge": problem.ridge, "gamma": gamma}
        given |= {"distance": errors[0] ** 0.5, "omega": problem.omega}
        assert (errors <= error_bound(steps, **given) * (1 + 1e-9)).all()
        assert errors[-1] <= general_rate(40, 5, **given).total


def test_homogeneous_inputs_lead_to_the_minimizer_at_the_predicted_rate():
    """Exact weak learners: no slower than 1/T. The bound itself goes as 1/T."""
    problem = homogeneous()
    steps = boosting_steps(600, 4, problem.ridge, homogeneous=True)
    errors = problem.distance(functional_gradient_boosting(problem, steps, shrinking_oracle(1.0)))
    assert decay_exponent(errors, since=20) < -1
    assert errors[-1] < 1e-8
    bound = error_bound(steps, gradient=G, ridge=problem.ridge, gamma=1, distance=errors[0] ** 0.5)
    assert decay_exponent(bound, since=50) == pytest.approx(-1, abs=0.1)


def test_residuals_leave_one_over_k_squared_and_root_t_steps_are_enough():
    """Where weak learners miss half, the error stops at a level that falls with K as K⁻², not as 1/K."""
    problem = homogeneous()

    def last(rounds: int, K: int) -> float:
        steps = boosting_steps(rounds, K, problem.ridge, homogeneous=True)
        found = functional_gradient_boosting(problem, steps, shrinking_oracle(0.5))
        return float(problem.distance(found[-1]))

    levels = [last(150, K) for K in (10, 20, 40)]
    assert np.polyfit(np.log([10, 20, 40]), np.log(levels), 1)[0] == pytest.approx(-2, abs=0.2)
    rounds = [16, 64, 256]
    together = [last(T, best_local_steps(T)) for T in rounds]
    # Corollary 4.1 promises −½; the bound of this module −1.
    assert np.polyfit(np.log(rounds), np.log(together), 1)[0] == pytest.approx(-1, abs=0.2)
    bounds = []
    for T in (1600, 6400):
        steps = boosting_steps(T, best_local_steps(T), problem.ridge, homogeneous=True)
        bounds.append(error_bound(steps, gradient=G, ridge=0.3, gamma=0.5, distance=0.4)[-1])
    assert np.log(bounds[1] / bounds[0]) / np.log(4) == pytest.approx(-1, abs=0.15)


def test_greedy_weak_learners_by_hand():
    """Of (1, 2) and (3, 0) at two inputs the second is larger; the other client asks nothing there."""
    queries = np.array([[[1.0, 2.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    said = greedy_oracle(queries, np.ones((2, 2), dtype=bool))
    assert said.tolist() == [[[0, 0], [3, 0]], [[0, 0], [0, 0]]]


def test_without_the_residual_clients_that_disagree_stall_and_one_alone_does_not():
    """Section 3: where gradients vanish at the optimum weak learners are enough."""
    labels = np.random.default_rng(0).normal(size=(3, 4, 1))
    steps = boosting_steps(150, 40, 1.0, homogeneous=True)

    def errors(count: int, residual: bool) -> np.ndarray:
        inputs = np.full((count, 4), 0.25)
        problem = finite_problem(inputs, labels[:count], ridge=0.001, loss="squared")
        return problem.distance(
            functional_gradient_boosting(problem, steps, greedy_oracle, residual=residual)
        )

    assert errors(3, False)[150] > 0.95 * errors(3, False)[50] > 100 * errors(3, True)[50]
    assert errors(1, False)[150] < 0.7 * errors(1, False)[50]


def test_heterogeneous_inputs_leave_a_plateau_that_grows_within_the_radius():
    levels, omegas = [], []
    for apart in (0.0, 0.1, 0.2, 0.4, 0.8):
        problem = heterogeneous(apart)
        steps = boosting_steps(120, 10, problem.ridge)
        errors = problem.distance(
            functional_gradient_boosting(problem, steps, shrinking_oracle(0.5))
        )
        levels.append(errors[-1])
        omegas.append(problem.omega)
        if apart:
            assert errors[-1] == pytest.approx(errors[60], rel=0.05)
            assert errors[-1] <= G**2 * problem.omega / (problem.ridge * 0.5) ** 2
    assert (np.diff(levels) > 0).all()
    assert levels[0] < 0.1 * levels[1]
    np.testing.assert_allclose(omegas, 0.75 * np.array([0.0, 0.1, 0.2, 0.4, 0.8]))


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_lipschitz_bound_holds_and_the_plateau_grows_with_the_distance(gamma: float):
    levels = []
    for shift in (0.0, 0.2, 1.0):
        rng = np.random.default_rng(0)
        X = np.concatenate([rng.random((8, 1)) + shift * i for i in range(3)])
        held = np.kron(np.eye(3), np.ones(8)) > 0
        y = np.sin(2 * X[:, 0]) / 2
        steps = boosting_steps(60, 8, 1.0)
        found = lipschitz_gradient_boosting(X, held, y, steps, lipschitz=1.0, gamma=gamma)
        errors = ((found - y) ** 2).mean(axis=1)
        gaps = np.abs(X - X[:, 0])
        bound = lipschitz_error_bound(
            steps,
            lipschitz=1.0,
            labels=float(np.abs(y).max()),
            apart=float(max(gaps[np.ix_(a, b)].min(axis=1).max() for a in held for b in held)),
            gamma=gamma,
            distance=errors[0] ** 0.5,
            omega=float(np.mean([wasserstein_distance(X[own, 0], X[:, 0]) for own in held])),
        )
        assert (errors <= bound * (1 + 1e-9)).all()
        levels.append(errors[-1])
    assert levels[0] < levels[1] < levels[2]


def test_lipschitz_step_by_hand():
    """Clients at 0 (y = 0) and at 2 (y = 1), L = 1: u is 0, 2 and 3, 1. With γ = ½ and a step of 1,

    h = u/2 = (0, 1), (1½, ½), and f = (¾, ¾). A second step of ½: Δ = −u/2, h = ½ · 1½ u = ¾ u,
    g = ½ (½ + ¾) u = ⅝ u, in the mean (15/16, 15/16).
    """
    given: dict[str, Any] = {"lipschitz": 1.0, "gamma": 0.5}
    points, held = [[0.0], [2.0]], [[True, False], [False, True]]
    found = lipschitz_gradient_boosting(points, held, [0.0, 1.0], [[1.0]], **given)
    np.testing.assert_allclose(found, [[0, 0], [3 / 4, 3 / 4]])
    found = lipschitz_gradient_boosting(points, held, [0.0, 1.0], [[1.0, 0.5]], **given)
    np.testing.assert_allclose(found[1], [15 / 16, 15 / 16])
    with pytest.raises(ValueError, match=r"not 0\.4-Lipschitz"):
        lipschitz_gradient_boosting(points, held, [0.0, 1.0], [[1.0]], lipschitz=0.4, gamma=1)


def test_lipschitz_bound_by_hand():
    """L = B = D = γ = 1, one step of 1, ω = ½, e_0 = 9: nothing is left of 9, no residual.

    ‖g − h‖ ≤ 4 on α, own 2; gap = 2 · ½ · ((1 + 1) · 4 + 2 · 1 · (2 + 1)) = 14; 4² + 14 = 30.
    """
    bound = lipschitz_error_bound(
        [[1.0]], lipschitz=1, labels=1, apart=1, gamma=1, distance=3, omega=0.5
    )
    np.testing.assert_allclose(bound, [9, 30])


def test_exponents_of_exact_powers():
    t = np.arange(1, 2001)
    assert decay_exponent(np.append(7, 3.0 * t**-0.7)) == pytest.approx(-0.7)
    errors = np.append([1, 1], np.log(t[1:]) / t[1:])
    assert decay_exponent(errors, since=5, logarithms=1) == pytest.approx(-1)
    assert decay_exponent(errors, since=5) > -0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: boosting_steps(0, 1, 1.0), "rounds is 0"),
        (lambda: boosting_steps(1, 1.5, 1.0), "local_steps is 1.5"),  # type: ignore[arg-type]
        (lambda: boosting_steps(1, 1, 0.0), "ridge is 0"),
        (lambda: shrinking_oracle(0.0), "gamma is 0"),
        (lambda: decay_exponent([1.0, 0.5, 0.2]), "3 rounds"),
        (lambda: decay_exponent([1.0, 0.5, 0.2, 0.0]), "above 0"),
        (lambda: decay_exponent(np.ones(9), logarithms=1), "since is 1"),
        (lambda: adversarial_problem(clients=1), "two or more"),
        (lambda: adversarial_oracle(np.ones((2, 1, 1)), np.ones((2, 1), dtype=bool)), "one client"),
        (lambda: finite_problem([[1.0]], [[1.0]], ridge=1), "labels"),
        (lambda: finite_problem([[0.5]], [[[1.0]]], ridge=1), "inputs must be distributions"),
        (lambda: finite_problem([[1.0, 0.0]], [[[1.0], [1.0]]], ridge=1), "somebody's"),
        (lambda: finite_problem([[1.0]], [[[0.5]]], ridge=1), "labels must be"),
        (lambda: finite_problem([[1.0]], [[[1.0]]], ridge=1, loss="hinge"), "loss is 'hinge'"),  # type: ignore[arg-type]
        (lambda: error_bound([1.0], gradient=1, ridge=1, gamma=1, distance=1), "steps have shape"),
        (lambda: error_bound([[1.0]], gradient=1, ridge=1, gamma=2, distance=1), "gamma is 2"),
        (lambda: error_bound([[1.0]], gradient=1, ridge=1, gamma=1, distance=-1), "distance is -1"),
        (lambda: error_bound([[1]], gradient=0, ridge=1, gamma=1, distance=1), "gradient is 0"),
        (
            lambda: general_rate(1, 1, gradient=1, ridge=1, gamma=1, distance=1, omega=1.0),
            "omega is 1",
        ),
        (
            lambda: homogeneous_rate(
                1, 1, gradient=1, ridge=1, gamma=1, distance=1, clients=3, sampled=4
            ),
            "sampled is 4",
        ),
    ],
)
def test_bad_input(call: Any, message: str):
    with pytest.raises(ValueError, match=message):
        call()
