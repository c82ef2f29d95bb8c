"""Federated functional gradient boosting where functions are tables: finitely many inputs, known minimisers.

With inputs x_1 … x_n a function into ℝᶜ is an array of shape ``(n, c)``, a client is a distribution over the
n points with a distribution of labels at each, and Algorithms 1 and 2 of Shen et al. 2022 are a few lines:

    g ← f^t, Δ ← 0
    for k = 1 … K:   q = Δ + ∇R_i[g];   h = Q(q);   g ← g − η (h + μ g);   Δ ← q − h
    f^{t+1} = mean of the clients' g

It is what :mod:`consilience_papers.theory.boosting` is held against. Clients go in lockstep: arrays have
shape ``(N, n, c)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from scipy.special import softmax

from consilience_papers.theory.expansion import Array, positive, rows

Oracle = Callable[[Array, Array], Array]
"""Weak learners of all clients, ``h(queries, held)``: queries ``(N, n, c)`` are 0 where the client has no
input, ``held``, ``(N, n)``, says which it has, and the answers ``(N, n, c)`` are defined at every input."""

Loss = Literal["cross-entropy", "squared"]


@dataclass(frozen=True)
class FiniteProblem:
    """Clients over finitely many inputs; :func:`finite_problem` checks it.

    Attributes:
        inputs: α_i, shape ``(N, n)``, every row a distribution; every input is some client's.
        labels: E_{y∼β_i^x}[y] with classes as unit vectors, shape ``(N, n, c)``; not read where α_i is 0.
        ridge: μ > 0.
        loss: cross-entropy of softmax(f(x)), or ½ ‖f(x) − y‖².
    """

    inputs: Array
    labels: Array
    ridge: float
    loss: Loss

    @cached_property
    def held(self) -> Array:
        """Mask of the inputs that each client has, shape ``(N, n)``."""
        return np.asarray(self.inputs > 0)

    @cached_property
    def mean(self) -> Array:
        """α, shape ``(n,)``."""
        return np.asarray(self.inputs.mean(axis=0))

    @property
    def omega(self) -> float:
        """ω_TV = 1/N Σ TV(α, α_i) (eq. 12)."""
        return float(np.abs(self.inputs - self.mean).sum(axis=1).mean() / 2)

    def gradients(self, g: Array) -> Array:
        """∇R_i[g_i] at the inputs of each client, 0 elsewhere; ``g`` has shape ``(N, n, c)``."""
        values = softmax(g, axis=2) if self.loss == "cross-entropy" else g
        return np.where(self.held[:, :, None], values - self.labels, 0.0)

    @cached_property
    def minimizer(self) -> Array:
        """f*, shape ``(n, c)``.

        At every x it minimises the loss of the mean label ȳ(x) = Σ α_i(x) y_i(x) / Σ α_i(x), plus μ/2 ‖f‖²:
        ȳ/(1 + μ) for squared loss; for cross-entropy the root of softmax(f) + μf = ȳ, by Newton's method.
        """
        labels = np.where(self.held[:, :, None], self.labels, 0.0)
        target = (self.inputs[:, :, None] * labels).sum(axis=0) / self.inputs.sum(axis=0)[:, None]
        if self.loss == "squared":
            return np.asarray(target / (1 + self.ridge))
        return np.array([_cross_entropy_minimizer(row, self.ridge) for row in target])

    def distance(self, f: Array) -> Array:
        """‖f − f*‖²_α, for ``f`` of shape ``(…, n, c)``."""
        return np.asarray(((f - self.minimizer) ** 2).sum(axis=-1) @ self.mean)


def finite_problem(
    inputs: ArrayLike, labels: ArrayLike, *, ridge: float, loss: Loss = "cross-entropy"
) -> FiniteProblem:
    """Clients over finitely many inputs.

    Args:
        inputs: α_i, shape ``(N, n)``.
        labels: shape ``(N, n, c)``; distributions over c classes, or mean values for squared loss.
        ridge: μ > 0.
        loss: ``"cross-entropy"`` or ``"squared"``.

    Raises:
        ValueError: shapes that do not go together, rows that are no distributions, an input that nobody has.
    """
    alpha = np.asarray(inputs, dtype=np.float64)
    y = np.asarray(labels, dtype=np.float64)
    if alpha.ndim != 2 or y.ndim != 3 or y.shape[:2] != alpha.shape:
        raise ValueError(
            f"inputs have shape {alpha.shape}, labels {y.shape}; give (N, n), (N, n, c)"
        )
    if loss not in ("cross-entropy", "squared"):
        raise ValueError(f"loss is {loss!r}; it must be 'cross-entropy' or 'squared'")
    if not _distributions(alpha) or not (alpha > 0).any(axis=0).all():
        raise ValueError("inputs must be distributions, and every input somebody's")
    here = y[alpha > 0]
    if not np.isfinite(here).all() or (loss == "cross-entropy" and not _distributions(here)):
        raise ValueError("labels must be finite, and distributions over classes for cross-entropy")
    positive(ridge, "ridge")
    return FiniteProblem(alpha, y, float(ridge), loss)


def functional_gradient_boosting(
    problem: FiniteProblem,
    steps: ArrayLike,
    oracle: Oracle,
    *,
    residual: bool = True,
    start: ArrayLike | None = None,
) -> Array:
    """Algorithms 1 and 2 with all clients: f⁰ … f^T.

    Args:
        problem: the clients.
        steps: η^{k,t}, shape ``(T, K)``.
        oracle: weak learners of all clients.
        residual: whether Δ is kept from step to step; without it, what the weak learners miss is lost.
        start: f⁰, shape ``(n, c)``; 0 by default.

    Returns:
        Shape ``(T + 1, n, c)``.

    Source:
        Shen et al. 2022, Algorithms 1 and 2.
    """
    n_clients, n, c = problem.labels.shape
    f = np.zeros((n, c)) if start is None else np.asarray(start, dtype=np.float64)
    found = [f]
    for row in np.asarray(steps, dtype=np.float64):
        g = np.repeat(f[None], n_clients, axis=0)
        missed = np.zeros_like(g)
        for eta in row:
            query = missed + problem.gradients(g)
            h = oracle(query, problem.held)
            g = g - eta * (h + problem.ridge * g)
            if residual:
                missed = np.where(problem.held[:, :, None], query - h, 0.0)
        f = g.mean(axis=0)
        found.append(f)
    return np.array(found)


def shrinking_oracle(gamma: float) -> Oracle:
    """The oracle h = γ q: it has the strength γ in every norm, exactly (eqs. 5, 10, 14, 15).

    Raises:
        ValueError: γ outside (0, 1].
    """
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma is {gamma}; it must lie in (0, 1]")
    return lambda queries, held: gamma * queries


def greedy_oracle(queries: Array, held: Array) -> Array:
    """Weak learners that answer at one input only: the client's own where most is asked for.

    With n inputs of equal weight γ = 1 − √(1 − 1/n), by the L² norm. Gradients that vanish at the optimum, as
    one client's do, are followed to it none the less; those of several clients, which do not, are not.
    """
    said = np.zeros_like(queries)
    client = np.arange(len(queries))
    largest = np.square(queries).sum(axis=2).argmax(axis=1)
    said[client, largest] = queries[client, largest]
    return said


def adversarial_oracle(queries: Array, held: Array) -> Array:
    """The weak learners of Theorem 4.2's proof, for clients that share no input.

    Each is exact at its own inputs, which is γ = 1 by eqs. 5 and 10, and says −q_j/(N−1) at those of another
    client j. The mean of all is 0 everywhere: what is learned cancels, whatever the labels are.

    Raises:
        ValueError: an input is not exactly one client's.
    """
    if not (held.sum(axis=0) == 1).all() or len(held) < 2:
        raise ValueError("every input must be that of one client out of two or more")
    owner = queries.sum(axis=0)  # queries are 0 off their clients' inputs
    return np.where(held[:, :, None], queries, -owner / (len(held) - 1))


def adversarial_problem(*, clients: int = 2, ridge: float = 0.1) -> FiniteProblem:
    """Theorem 4.2's instance: client i has the point i alone, with the class i, and cross-entropy.

    Gradients are √2 at most. With Algorithms 1 and 2 and :func:`adversarial_oracle`, f^t = 0 and
    ‖f^t − f*‖²_α = ‖f*‖²_α (eq. 22) for ever, for every K and all step sizes, with and without residual: at
    every step the other clients' g at a point are −1/(N−1) of its owner's.

    Args:
        clients: N ≥ 2. The paper has 2 and says ω_TV = 1; by its eq. 12, ω_TV = 1 − 1/N.
        ridge: μ > 0.

    Raises:
        ValueError: fewer than two clients, μ ≤ 0.

    Source:
        Shen et al. 2022, Theorem 4.2 and appendix C.
    """
    if clients < 2:
        raise ValueError(f"there are {clients} clients; it takes two or more")
    labels = np.zeros((clients, clients, clients))
    own = np.arange(clients)
    labels[own, own, own] = 1
    return finite_problem(np.eye(clients), labels, ridge=ridge)


def adversarial_answers(problem: FiniteProblem, steps: ArrayLike) -> Array:
    """Answers of each client's adversarial weak learners in a round that starts from f = 0.

    A client asks about its own point only; what the others ask follows from the deterministic algorithm, so
    this table is an oracle for each client by itself.

    Args:
        problem: :func:`adversarial_problem`.
        steps: η^{k,t} of the round, shape ``(K,)``.

    Returns:
        Shape ``(K, N, n, c)``: at step k, of client i, at every point.
    """
    said: list[Array] = []

    def recorded(queries: Array, held: Array) -> Array:
        said.append(adversarial_oracle(queries, held))
        return said[-1]

    functional_gradient_boosting(problem, np.atleast_2d(steps), recorded)
    return np.array(said)


def lipschitz_gradient_boosting(
    points: ArrayLike,
    held: ArrayLike,
    labels: ArrayLike,
    steps: ArrayLike,
    *,
    lipschitz: float,
    gamma: float,
) -> Array:
    """Algorithm 3 with all clients and the oracle h = γ q: f⁰ = 0 … f^T at all points.

    A client follows the L-Lipschitz extension of its own labels, u_i(x) = min_j (y_ij + L ‖x − x_ij‖)
    (eq. 13), at its own points and everywhere else: h = γ (u_i − Δ), g ← g − η (g − h), Δ ← Δ − u_i + h.

    Args:
        points: shape ``(n, d)``.
        held: which points each client has, with equal weight, shape ``(N, n)``.
        labels: shape ``(n,)``, L-Lipschitz.
        steps: η^{k,t}, shape ``(T, K)``.
        lipschitz: L.
        gamma: γ in (0, 1].

    Returns:
        Shape ``(T + 1, n)``.

    Raises:
        ValueError: labels that no L-Lipschitz function has.

    Source:
        Shen et al. 2022, Algorithm 3.
    """
    X, own, y = rows(points), np.asarray(held, dtype=bool), np.asarray(labels, dtype=np.float64)
    apart = cdist(X, X)
    if (np.abs(y[:, None] - y) > lipschitz * apart * (1 + 1e-12)).any():
        raise ValueError(f"the labels are not {lipschitz}-Lipschitz; take a larger constant")
    extended = np.array([(y[mine] + lipschitz * apart[:, mine]).min(axis=1) for mine in own])
    oracle = shrinking_oracle(gamma)
    found = [np.zeros(len(X))]
    for row in np.asarray(steps, dtype=np.float64):
        g, missed = np.repeat(found[-1][None], len(own), axis=0), np.zeros_like(extended)
        for eta in row:
            h = oracle(extended - missed, own)
            g = g - eta * (g - h)
            missed = missed - extended + h
        found.append(g.mean(axis=0))
    return np.array(found)


def _cross_entropy_minimizer(target: Array, ridge: float) -> Array:
    """The root of softmax(f) + μf = ȳ by Newton's method, steps halved until the residual falls."""
    f = np.zeros(len(target))
    left = softmax(f) - target
    for _ in range(200):
        if np.abs(left).max() < 1e-13:
            break
        shares = softmax(f)
        hessian = np.diag(shares + ridge) - np.outer(shares, shares)
        step = np.linalg.solve(hessian, left)
        for _ in range(60):
            trial = softmax(f - step) + ridge * (f - step) - target
            if np.linalg.norm(trial) < np.linalg.norm(left):
                f, left = f - step, trial
                break
            step = step / 2
        else:  # rounding errors are all that is left
            break
    return f


def _distributions(values: Array) -> bool:
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1))
