"""Conjugate distillation: the central model from the messages of ensembled distillation, in fewer rounds.

Ensembled distillation solves (cI + L) β = y by block-Jacobi. Conjugate gradients with the same preconditioner
P = diag(cI + L_11, …, cI + L_MM) ask the same of agents, and two sums over all of them a round besides:

    z_a = (cI + L_aa)⁻¹ r_a                  a fits its residual
    (cI + L) p at X_a                        a is told what all models of p predict at its rows
    rᵀz, pᵀ(cI + L)p                         the sums

Here the iterates are computed by what defines them, not by the recurrence: after t rounds β_t is the nearest
to β in the norm (vᵀ (cI + L) v)^½ among the combinations of w, Aw, …, Aᵗ⁻¹w with A = P⁻¹(cI + L), w = P⁻¹y.
"""

from __future__ import annotations

import numpy as np

from consilience_papers.theory.expansion import Array, positive
from consilience_papers.theory.model_exchange import ModelExchange


def conjugate_distillation(exchange: ModelExchange, rounds: int) -> Array:
    """The labels that agents are taught in rounds 0 to ``rounds``, in exact arithmetic.

    ``exchange.ensemble(labels[t])`` is the prediction after t rounds: coefficients β_t/N, labels P β_t. Once
    the central model is reached, which two agents with n₁ and n₂ rows do in 2 min(n₁, n₂) + 1 rounds at most,
    it stays. Every output has steps of its own.

    Args:
        exchange: agents with one kernel and c > 0.
        rounds: 0 or more.

    Returns:
        Shape ``(rounds + 1, N)`` or ``(rounds + 1, N, n_outputs)``; 0 in round 0.

    Raises:
        ValueError: different kernels or c = 0, for which the system is not symmetric and definite.
    """
    A = _preconditioned(exchange)
    half, back = exchange.local_power(-0.5), exchange.local_power(0.5)
    y = half @ exchange.labels.reshape(len(A), -1)
    found = [back @ _nearest(A, column, rounds).T for column in y.T]
    return np.stack(found, axis=-1).transpose(1, 0, 2).reshape(-1, *exchange.labels.shape)


def conjugate_rate(exchange: ModelExchange) -> float:
    """``q = (√κ − 1)/(√κ + 1)``: after t rounds the error is at most ``2 qᵗ`` times that of β = 0.

    Errors are measured by (vᵀ (cI + L) v)^½; κ is the condition number of P^{−½}(cI + L)P^{−½}. For two
    agents its spectrum is symmetric about 1 and κ = (1+ρ)/(1−ρ), with ρ the rate of
    :func:`ensembled_distillation`, so that q = ρ / (1 + √(1 − ρ²)): rounds go with the square root of EKD's.

    Args:
        exchange: agents with one kernel and c > 0.

    Raises:
        ValueError: as :func:`conjugate_distillation`.

    Source:
        Saad, Iterative Methods for Sparse Linear Systems, 2003, eq. 6.128.
    """
    values = np.linalg.eigvalsh(_preconditioned(exchange))
    root = float(np.sqrt(values[-1] / values[0]))
    return (root - 1) / (root + 1)


def _preconditioned(exchange: ModelExchange) -> Array:
    """``P^{−½}(cI + L)P^{−½}``."""
    if not exchange.one_kernel:
        raise ValueError(
            "agents have different kernels, so cI + L is not symmetric and has no conjugate gradients; "
            "give all agents the same kernel"
        )
    positive(exchange.regularization, "regularization")
    half = exchange.local_power(-0.5)
    system = exchange.similarities + exchange.regularization * np.eye(len(half))
    return np.asarray(half @ system @ half)


def _nearest(A: Array, y: Array, rounds: int) -> Array:
    """Row t: the x in span(y, Ay, …, Aᵗ⁻¹y) with the least (x − A⁻¹y)ᵀ A (x − A⁻¹y)."""
    found = np.zeros((rounds + 1, len(y)))
    basis = np.empty((len(y), 0))
    direction, size = y, np.linalg.norm(y)
    for t in range(1, rounds + 1):
        for _ in range(2):  # once leaves rounding errors that grow; twice is enough
            direction = direction - basis @ (basis.T @ direction)
        length = np.linalg.norm(direction)
        if length <= 1e-10 * size:  # the space has stopped growing, and holds the solution
            found[t:] = found[t - 1]
            break
        basis = np.column_stack([basis, direction / length])
        found[t] = basis @ np.linalg.solve(basis.T @ A @ basis, basis.T @ y)
        direction = A @ basis[:, -1]
        size = np.linalg.norm(direction)
    return found
