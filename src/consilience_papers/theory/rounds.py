"""A round of ensemble distillation as a linear map, by dense solves.

Client j has N_j rows (X_j, y_j); all share N_p public rows X_p. One round of Park et al. 2023, Algorithm 2:

    S w = v,   S = K_pp (K_pp + N_p λ₀ I)⁻¹                    line 9, de-regularise; S = I for λ₀ = 0
    f_j = argmin α/N_j Σ (h(x_i) − y_i)² + (1−α)/N_p Σ (h(x_p,i) − w_i)² + λ‖h‖²      line 12, distil
    v   ← Σ_j ω_j f_j(X_p)                                     lines 6 and 7, predict and average

A refit is linear in its targets, f_j(X_p) = M_j w + b_j, so a round is v ↦ M S⁻¹ v + b with M = Σ ω_j M_j and
b = Σ ω_j b_j, and the limit solves (S − M) w = b, v = S w. M_j is the public block of I − c (K_ZZ + Λ)⁻¹ with
c = λ N_p / (1 − α), hence symmetric; so M S⁻¹ is symmetric in the norm (vᵀ S⁻¹ v)^½, in which every round
brings the limit nearer by its spectral radius at least. That is below 1 whenever (1 − α) λ₀ < λ (Lemma C.7).

This is the truth that faster computations are held against: it forms every matrix and takes no short cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log
from sys import float_info

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from consilience_papers.theory.expansion import (
    Array,
    Kernel,
    KernelExpansion,
    gram,
    inside_unit,
    kernel_ridge,
    positive,
    rows,
    targets,
)

Clients = Sequence[tuple[ArrayLike, ArrayLike]]
"""For every client its rows and targets, ``(N_j, d)`` and ``(N_j,)`` or ``(N_j, n_outputs)``."""


def distilled(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    public: ArrayLike,
    taught: ArrayLike,
    *,
    regularization: float,
    alpha: float,
) -> KernelExpansion:
    """A client's refit on its own rows and the public ones (Algorithm 1, line 9).

    Minimises ``α/N Σ (h(x_i) − y_i)² + (1−α)/N_p Σ (h(x_p,i) − w_i)² + λ ‖h‖²``.

    Args:
        kernel: k.
        X: the client's rows, shape ``(N, d)``.
        y: shape ``(N,)`` or ``(N, n_outputs)``.
        public: X_p, shape ``(N_p, d)``.
        taught: w, shape ``(N_p,)`` or ``(N_p, n_outputs)``, as ``y``.
        regularization: λ > 0.
        alpha: α in (0, 1).

    Raises:
        ValueError: as :func:`kernel_ridge`; alpha outside (0, 1); other outputs in ``taught`` than in ``y``.
    """
    inside_unit(alpha, "alpha")
    X, public = rows(X), rows(public)
    y, taught = targets(y, len(X)), targets(taught, len(public))
    if X.shape[1] != public.shape[1]:
        raise ValueError(f"private rows have {X.shape[1]} columns, public ones {public.shape[1]}")
    if y.shape[1:] != taught.shape[1:]:
        raise ValueError(
            f"targets have shape {y.shape}, what is taught {taught.shape}; all clients and the "
            "consensus must have the same outputs"
        )
    weights = np.repeat([alpha / len(X), (1 - alpha) / len(public)], [len(X), len(public)])
    both = np.concatenate([X, public])
    return kernel_ridge(kernel, both, np.concatenate([y, taught]), regularization, weights=weights)


def smoothing(
    kernel: Kernel, public: ArrayLike, deregularize: float, *, jitter: float = 0.0
) -> Array:
    """The matrix S that de-regularisation inverts: what is sent is the w with ``S w = v``.

    ``S = K_pp (K_pp + N_p λ₀ I)⁻¹`` is kernel ridge regression with λ₀ on the public rows, as a map of its
    targets to its predictions.

    Args:
        kernel: k.
        public: X_p, shape ``(N_p, d)``, no row twice.
        deregularize: λ₀ ≥ 0.
        jitter: ε added to the diagonal of K_pp, over the mean of that diagonal; 0 in theory.

    Returns:
        Shape ``(N_p, N_p)``; the identity for λ₀ = 0.

    Raises:
        ValueError: λ₀ < 0; a jitter below 0; K_pp cannot be inverted.

    Source:
        Park et al. 2023, eq. 7.
    """
    public = rows(public)
    identity = np.eye(len(public))
    if deregularize == 0:
        return identity
    positive(deregularize, "deregularize")
    if not jitter >= 0:
        raise ValueError(f"jitter is {jitter}; it must be 0 or more")
    K = gram(kernel, public, public)
    K = K + jitter * np.diag(K).mean() * identity
    check_invertible(K)
    return np.linalg.solve(K + len(K) * deregularize * identity, K)


def check_invertible(K: Array) -> None:
    """Raise ``ValueError`` where rounding leaves nothing of ``K_pp⁻¹``."""
    values = np.linalg.eigvalsh(K)
    if values[0] <= len(K) * np.finfo(float).eps * values[-1]:
        raise ValueError(
            f"K_pp cannot be inverted: its eigenvalues go from {values[0]:.3g} to {values[-1]:.3g}; "
            "drop public rows that are equal or nearly so, or take a rougher kernel"
        )


@dataclass(frozen=True)
class ConsensusMap:
    """Effect of a round on the consensus, taken before it is de-regularised: ``v ↦ M S⁻¹ v + b``.

    Attributes:
        response: M, of the mean prediction to what is sent; symmetric, shape ``(N_p, N_p)``.
        offset: b, shape ``(N_p,)`` or ``(N_p, n_outputs)``.
        smoothing: S, as :func:`smoothing` gives it.
    """

    response: Array
    offset: Array
    smoothing: Array

    def __call__(self, consensus: Array) -> Array:
        """The consensus one round later."""
        return np.asarray(self.response @ np.linalg.solve(self.smoothing, consensus) + self.offset)

    @cached_property
    def contraction(self) -> float:
        """The spectral radius ρ of M S⁻¹: in the long run, the share of the distance that a round leaves."""
        return float(np.abs(eigh(self.response, self.smoothing, eigvals_only=True)).max())

    def rounds(self, tolerance: float) -> int:
        """The least t with ``ρᵗ ≤ tolerance``: rounds until that share of the distance to the limit is left.

        From any start so many suffice, with distance measured by (vᵀ S⁻¹ v)^½; they are needed from a start
        that differs from the limit along the slowest direction.

        Raises:
            ValueError: a tolerance outside (0, 1); the rounds do not converge.
        """
        inside_unit(tolerance, "tolerance")
        self._check_convergence()
        return ceil(log(tolerance) / log(max(self.contraction, float_info.min)))

    def fixed_point(self) -> tuple[Array, Array]:
        """The limit v* and what is then sent, S⁻¹ v*; each of the shape of ``offset``.

        Raises:
            ValueError: the rounds do not converge.
        """
        self._check_convergence()
        # For w = S⁻¹ v rather than v: that needs no inverse of S, which may be near singular.
        sent = np.linalg.solve(self.smoothing - self.response, self.offset)
        return np.asarray(self.smoothing @ sent), sent

    def _check_convergence(self) -> None:
        if not self.contraction < 1:
            raise ValueError(
                f"the rounds do not converge: the spectral radius is {self.contraction:.6g}; "
                "take deregularize below regularization / (1 - alpha), and a larger regularization"
            )


def consensus_map(
    kernel: Kernel,
    clients: Clients,
    public: ArrayLike,
    *,
    regularization: float,
    alpha: float,
    deregularize: float = 0.0,
    jitter: float = 0.0,
    participation: Sequence[float] | None = None,
) -> ConsensusMap:
    """A round of distillation as a map of the consensus; arguments as of :func:`distillation_limit`."""
    public = rows(public)
    weights = _shares(participation, len(clients))
    outputs = {np.shape(y)[1:] for _, y in clients}
    if len(outputs) > 1:
        raise ValueError("clients have different outputs; give every client the same columns of y")
    response, offset = 0.0, 0.0
    for weight, (X, y) in zip(weights, clients, strict=True):
        own = len(rows(X))
        # A refit is linear in its targets: fitted to the identity, its predictions are the matrix [B_j M_j].
        predictions = distilled(
            kernel,
            X,
            np.eye(own, own + len(public)),
            public,
            np.eye(len(public), own + len(public), own),
            regularization=regularization,
            alpha=alpha,
        )(public)
        response = response + weight * predictions[:, own:]
        offset = offset + weight * predictions[:, :own] @ targets(y, own)
    smooth = smoothing(kernel, public, deregularize, jitter=jitter)
    return ConsensusMap(np.asarray(response), np.asarray(offset), smooth)


def _shares(participation: Sequence[float] | None, m: int) -> Array:
    if not m:
        raise ValueError("there are no clients")
    p = np.ones(m) if participation is None else np.asarray(participation, dtype=np.float64)
    if p.shape != (m,) or not (np.isfinite(p) & (p > 0)).all():
        raise ValueError(f"participation must be {m} finite numbers above 0, one for each client")
    return np.asarray(p / p.sum())
