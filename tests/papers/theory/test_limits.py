"""The limits by hand, against each other, and against rounds gone through one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel

from consilience_papers.theory import (
    blended_kernel,
    deregularized_self_distillation_limit,
    distillation_limit,
    kernel_ridge,
    self_distillation_limit,
)


def dot(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return X @ Z.T


def brownian(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return 1 + np.minimum(X, Z.T)


def data(*sizes: int, columns: int = 1, outputs: int | None = None, seed: int = 0):
    """Clients of these sizes, the last number being that of public rows."""
    rng = np.random.default_rng(seed)
    width = () if outputs is None else (outputs,)
    *own, public = sizes
    clients = [(rng.random((n, columns)), rng.normal(size=(n, *width))) for n in own]
    return clients, rng.random((public, columns))


def fitted(kernel, X, y, regularization, share):
    """Kernel ridge regression by scikit-learn, as a function."""
    model = KernelRidge(alpha=regularization, kernel="precomputed")
    model.fit(kernel(X, X), y, sample_weight=share)
    return lambda new: model.predict(kernel(new, X))


def refit(kernel, X, y, public, taught, *, regularization, alpha):
    """Algorithm 1, line 9."""
    share = np.repeat([alpha / len(X), (1 - alpha) / len(public)], [len(X), len(public)])
    both = np.concatenate([X, public]), np.concatenate([y, taught])
    return fitted(kernel, *both, regularization, share)


def iterated(kernel, clients, public, *, regularization, alpha, lift, rounds, weights=None):
    """Algorithm 2 as the paper has it; the last consensus and the clients' functions."""
    given = {"regularization": regularization, "alpha": alpha}
    functions = [fitted(kernel, X, y, regularization, 1 / len(X)) for X, y in clients]
    for number in range(1, rounds + 1):
        consensus = np.average([f(public) for f in functions], axis=0, weights=weights)
        taught = lift(consensus) if number < rounds else consensus
        functions = [refit(kernel, X, y, public, taught, **given) for X, y in clients]
    return consensus, functions


def lifted(kernel, public, regularization):
    """Eq. 7 the other way round: w is what kernel ridge regression smooths to v."""
    K, N = kernel(public, public), len(public)
    smoothing = K @ np.linalg.inv(K + N * regularization * np.eye(N))
    return lambda v: np.linalg.solve(smoothing, v)


TWO = [([[1, 0, 0]], [1.0]), ([[1, 1, 0]], [2.0])]
"""Two clients with a row each; with the dot product and public rows e₁, e₂, e₃, functions are vectors θ
and predictions on the public rows are θ itself. With α = 1/2 and λ = 1/6 a client's loss is
½(xᵀθ − y)² + ⅙‖θ − w‖² + ⅙‖θ‖², least at

    θ = (2I + 3xxᵀ)⁻¹ (3yx + w):   θ₁ = ((3 + w₁)/5, w₂/2, w₃/2),   θ₂ = w/2 + s (1, 1, 0)

with s = 3/8 · 2 − 3/16 (w₁ + w₂), by (2I + 3xxᵀ)⁻¹ = ½ (I − 3/8 xxᵀ) for x = (1, 1, 0)."""


def test_two_clients_by_hand():
    """Without de-regularisation w = v = (θ₁ + θ₂)/2, so

    2v₂ = v₂ + s, v₂ = s, and s = 3/4 − 3/16 (v₁ + s) gives s = (12 − 3v₁)/19;
    2v₁ = 3/5 + 7/10 v₁ + s gives 277 v₁ = 234, then 277 s = 138; and v₃ = v₃/2 = 0.

    θ₁ = ((3 + v₁)/5, v₂/2, 0) = (213, 69, 0)/277. The map leaves e₃ at a half, and no direction at more.
    """
    limit = distillation_limit(dot, TWO, np.eye(3), regularization=1 / 6, alpha=1 / 2)
    np.testing.assert_allclose(277 * limit.consensus, [234, 138, 0], atol=1e-12)
    np.testing.assert_allclose(limit.sent, limit.consensus)
    for models in (limit.final, limit.intermediate):
        np.testing.assert_allclose(277 * models[0](np.eye(3)), [213, 69, 0], atol=1e-12)
        np.testing.assert_allclose(277 * models[1](np.eye(3)), [255, 207, 0], atol=1e-12)
    assert limit.contraction == pytest.approx(1 / 2)


def test_two_clients_by_hand_deregularized():
    """K_pp = I, so v = w / (1 + 3 · 1/6) = 2w/3; 2v = θ₁ + θ₂ reads

    4/3 w₂ = w₂ + s, w₂ = 3s, and s = 3/4 − 3/16 (w₁ + 3s) gives s = (12 − 3w₁)/25;
    4/3 w₁ = 3/5 + 7/10 w₁ + s gives 113 w₁ = 162, then 565 s = 174, w = (810, 522, 0)/565,
    v = (540, 348, 0)/565. The last round distils v: θ₁ = ((3 + v₁)/5, v₂/2, 0) = (447, 174, 0)/565,
    s = 3/4 − 3/16 · 888/565 = 257.25/565, θ₂ = (527.25, 431.25, 0)/565. The map leaves e₃ at 3/4.
    """
    limit = distillation_limit(
        dot, TWO, np.eye(3), regularization=1 / 6, alpha=1 / 2, deregularize=1 / 6
    )
    np.testing.assert_allclose(565 * limit.consensus, [540, 348, 0], atol=1e-12)
    np.testing.assert_allclose(565 * limit.sent, [810, 522, 0], atol=1e-12)
    np.testing.assert_allclose(565 * limit.final[0](np.eye(3)), [447, 174, 0], atol=1e-12)
    np.testing.assert_allclose(565 * limit.final[1](np.eye(3)), [527.25, 431.25, 0], atol=1e-12)
    mean = (limit.intermediate[0](np.eye(3)) + limit.intermediate[1](np.eye(3))) / 2
    np.testing.assert_allclose(mean, limit.consensus, atol=1e-14)
    assert limit.contraction == pytest.approx(3 / 4)


def test_theorem_5_3_by_hand():
    """Private row (1, 1) with y = 4, public row (1, 0), α = λ = 1/2: P is the first coordinate, and

    (θ₁ + θ₂ − 4)² + ½ (θ₁² + 2θ₂²) is least at θ₂ = θ₁/2 and 3/2 θ₁ − 4 = −θ₁/2: θ = (2, 1).
    """
    f = deregularized_self_distillation_limit(
        dot, [[1, 1]], [4.0], [[1, 0]], regularization=1 / 2, alpha=1 / 2
    )
    np.testing.assert_allclose(f(np.eye(2)), [2, 1])


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("deregularize", [0.0, 0.05])
@pytest.mark.parametrize("sizes", [(4, 9), (4, 6, 2, 9)])
def test_rounds_one_by_one_end_there(sizes, deregularize, outputs):
    """One client and three, of unequal size: the consensus, and each function after the last round."""
    clients, public = data(*sizes, outputs=outputs)
    given = {"regularization": 0.05, "alpha": 0.4}
    lift = lifted(brownian, public, deregularize) if deregularize else lambda v: v
    consensus, functions = iterated(brownian, clients, public, **given, lift=lift, rounds=150)
    limit = distillation_limit(brownian, clients, public, **given, deregularize=deregularize)
    new = np.linspace(0, 1, 7)[:, None]
    np.testing.assert_allclose(limit.consensus, consensus, rtol=1e-8, atol=1e-8)
    for function, final in zip(functions, limit.final, strict=True):
        np.testing.assert_allclose(final(new), function(new), rtol=1e-8, atol=1e-8)


def test_clients_count_as_often_as_they_take_part():
    """Theorem C.16: p = (1/2, 1/4, 1/4) of one client a round weights their predictions by p."""
    clients, public = data(4, 4, 4, 9)
    given = {"regularization": 0.05, "alpha": 0.4}
    limit = distillation_limit(
        brownian, clients, public, **given, deregularize=0.05, participation=[0.5, 0.25, 0.25]
    )
    consensus, _ = iterated(
        brownian,
        clients,
        public,
        **given,
        lift=lifted(brownian, public, 0.05),
        rounds=150,
        weights=[2, 1, 1],
    )
    np.testing.assert_allclose(limit.consensus, consensus, rtol=1e-8)
    uniform = distillation_limit(brownian, clients, public, **given, deregularize=0.05)
    assert np.abs(uniform.consensus - consensus).max() > 1e-3


def test_random_clients_end_there():
    """Theorem C.16: v ← (1 − γ_t) v + γ_t · mean of the drawn clients' answers, γ_t = 1/t, ends at the limit.

    Two of three clients a round, so that p = (0.9, 0.7, 0.4) sums to 2: pairs 12, 13, 23 with probabilities
    0.6, 0.3, 0.1. After 20,000 rounds noise has an order of 1/√20000 = 0.007.
    """
    clients, public = data(4, 4, 4, 6)
    given = {"regularization": 0.2, "alpha": 0.6}
    lift = lifted(brownian, public, 0.2)
    limit, uniform = (
        distillation_limit(
            brownian, clients, public, **given, deregularize=0.2, participation=p
        ).consensus
        for p in ([0.9, 0.7, 0.4], None)
    )
    # An answer is affine in the consensus: known from those to 0 and to the unit vectors.
    consensuses = np.eye(6, 7)
    answers = []
    for X, y in clients:
        repeated = y[:, None].repeat(7, 1)
        answers.append(refit(brownian, X, repeated, public, lift(consensuses), **given)(public))
    pairs = [(answers[i] + answers[j]) / 2 for i, j in ((0, 1), (0, 2), (1, 2))]
    v = np.zeros(6)
    drawn = np.random.default_rng(0).choice(3, p=[0.6, 0.3, 0.1], size=20_000)
    for t, pair in enumerate(drawn, start=1):
        zero = pairs[pair][:, 6]
        v += (zero + (pairs[pair][:, :6] - zero[:, None]) @ v - v) / t
    np.testing.assert_allclose(v, limit, atol=0.01)
    assert np.abs(uniform - limit).max() > 0.04


@pytest.mark.parametrize("columns", [1, 2])
def test_theorems_5_2_and_5_3_are_the_case_of_one_client(columns: int):
    clients, public = data(6, 8, columns=columns, outputs=2)
    given = {"regularization": 0.03, "alpha": 0.3}
    new = np.random.default_rng(1).random((5, columns))
    plain = distillation_limit(laplacian_kernel, clients, public, **given)
    theorem = self_distillation_limit(laplacian_kernel, *clients[0], **given)
    np.testing.assert_allclose(plain.final[0](new), theorem(new), rtol=1e-10)
    lifted_limit = distillation_limit(
        laplacian_kernel, clients, public, **given, deregularize=given["regularization"]
    )
    theorem = deregularized_self_distillation_limit(laplacian_kernel, *clients[0], public, **given)
    np.testing.assert_allclose(lifted_limit.intermediate[0](new), theorem(new), rtol=1e-10)


def test_public_rows_that_include_the_private_ones_cost_nothing():
    """P⊥ k(x_i, ·) = 0 for every private x_i: the limit is the client's own regression, α or no α."""
    [(X, y)], public = data(5, 4)
    f = deregularized_self_distillation_limit(
        brownian, X, y, np.concatenate([public, X]), regularization=0.01, alpha=0.1
    )
    new = np.linspace(0, 1, 7)[:, None]
    np.testing.assert_allclose(f(new), kernel_ridge(brownian, X, y, 0.01)(new), rtol=1e-10)


def test_more_public_rows_come_nearer_to_the_regression_alone():
    """Theorem 5.4: between public rows 1/n apart k − k_P, a Brownian bridge's variance, is at most 1/(4n)."""
    [(X, y)], _ = data(5, 1)
    alone = kernel_ridge(brownian, X, y, 0.01)(X)
    distances = []
    for n in (4, 16, 64, 256):
        public = (np.arange(n)[:, None] + 0.5) / n
        f = deregularized_self_distillation_limit(
            brownian, X, y, public, regularization=0.01, alpha=0.2
        )
        distances.append(np.abs(f(X) - alone).max())
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0] / 40


def test_the_projected_part_is_the_kernel_itself_on_public_rows():
    """k_P(x_p, z) = k(x_p, z), so blending changes nothing there, and only lowers k(x, x) elsewhere."""
    _, public = data(6)
    blended = blended_kernel(brownian, public, 0.3)
    new = np.linspace(0, 1, 9)[:, None]
    np.testing.assert_allclose(blended(public, new), brownian(public, new), rtol=1e-10)
    assert (np.diag(blended(new, new)) <= np.diag(brownian(new, new)) + 1e-12).all()
    assert np.diag(blended(new, new)).min() < 0.99 * np.diag(brownian(new, new)).max()


def test_nearly_dependent_public_rows_cost_few_digits():
    """Public rows span the plane, so P⊥ = 0 and the limit is the client's own regression.

    K_pp has the condition 10⁸; a solve for v with the inverse of K_pp is right to 1e-8.
    """
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    public = turn @ np.diag([1, 1e-4]) @ turn.T
    clients = [(np.array([[1.0, 0.5], [0.2, 2.0]]), np.array([1.0, -1.0]))]
    given = {"regularization": 0.1, "alpha": 0.5, "deregularize": 0.1}
    limit = distillation_limit(dot, clients, public, **given)
    alone = kernel_ridge(dot, *clients[0], 0.1)
    np.testing.assert_allclose(limit.consensus, alone(public), rtol=2e-9)
