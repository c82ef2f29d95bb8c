"""Limit of iterative ensemble distillation after infinitely many rounds.

The limit is the fixed point of a round's map (:class:`ConsensusMap`). Any way of moving the consensus that
converges has the same one: damped with random clients (Theorem C.16), or accelerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience_papers.theory.expansion import (
    Array,
    Kernel,
    KernelExpansion,
    gram,
    inside_unit,
    kernel_ridge,
    rows,
)
from consilience_papers.theory.rounds import Clients, check_invertible, consensus_map, distilled


def self_distillation_limit(
    kernel: Kernel, X: ArrayLike, y: ArrayLike, *, regularization: float, alpha: float
) -> KernelExpansion:
    """The limit of one client that teaches itself: kernel ridge regression with λ/α.

    It does not depend on the public rows: they only decide how many rounds it takes.

    Args:
        kernel: k.
        X: the client's rows, shape ``(N, d)``.
        y: shape ``(N,)`` or ``(N, n_outputs)``.
        regularization: λ > 0.
        alpha: weight of the private rows, in (0, 1).

    Raises:
        ValueError: as :func:`kernel_ridge`; alpha outside (0, 1).

    Source:
        Park et al. 2023, Theorem 5.2.
    """
    inside_unit(alpha, "alpha")
    return kernel_ridge(kernel, X, y, regularization / alpha)


def deregularized_self_distillation_limit(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    public: ArrayLike,
    *,
    regularization: float,
    alpha: float,
) -> KernelExpansion:
    """The limit of one client that teaches itself with de-regularisation, λ₀ = λ.

    The theorem's ``(L_X + λ I + (1−α)/α λ P⊥)⁻¹ Sᵀ y``, with P the orthogonal projection onto the span of the
    k(x_p, ·) and P⊥ = I − P, is the minimiser of

        1/N Σ (h(x_i) − y_i)² + λ (‖P h‖² + ‖P⊥ h‖² / α),

    since I + (1−α)/α P⊥ = P + P⊥/α. k is the sum of the kernels k_P of the range of P and k − k_P of that
    of P⊥, and a squared norm divided by α belongs to the kernel times α: under the new norm the space has
    the kernel k_P + α (k − k_P). So the limit is kernel ridge regression with λ and :func:`blended_kernel`.
    What public rows can express is regularised by λ, as if the client were alone, and the rest by λ/α; where
    the public rows include the private ones, it is the client's own kernel ridge regression.

    Args:
        kernel: k.
        X: the client's rows, shape ``(N, d)``.
        y: shape ``(N,)`` or ``(N, n_outputs)``.
        public: X_p, shape ``(N_p, d)``, no row twice.
        regularization: λ > 0.
        alpha: weight of the private rows, in (0, 1).

    Raises:
        ValueError: as :func:`kernel_ridge`; alpha outside (0, 1); K_pp cannot be inverted.

    Source:
        Park et al. 2023, Theorem 5.3.
    """
    inside_unit(alpha, "alpha")
    return kernel_ridge(blended_kernel(kernel, public, alpha), X, y, regularization)


def blended_kernel(kernel: Kernel, public: ArrayLike, alpha: float) -> Kernel:
    """``α k + (1−α) k_P`` with ``k_P(x, z) = k(x, X_p) K_pp⁻¹ k(X_p, z)``; see Theorem 5.3.

    Args:
        kernel: k.
        public: X_p, shape ``(N_p, d)``, no row twice.
        alpha: the weight of k, in (0, 1).

    Raises:
        ValueError: alpha outside (0, 1); K_pp cannot be inverted.
    """
    inside_unit(alpha, "alpha")
    public = rows(public)
    K = gram(kernel, public, public)
    check_invertible(K)

    def blended(X: Array, Z: Array) -> Array:
        projected = gram(kernel, X, public) @ np.linalg.solve(K, gram(kernel, public, Z))
        return np.asarray(alpha * gram(kernel, X, Z) + (1 - alpha) * projected)

    return blended


@dataclass(frozen=True)
class Limit:
    """Limit of infinitely many rounds.

    Attributes:
        consensus: v*, the mean prediction on the public rows; shape ``(N_p,)`` or ``(N_p, n_outputs)``.
        sent: S⁻¹ v*, what clients are sent in every round but the last; the same shape.
        intermediate: each client's function after a round of distillation from ``sent``; their mean on
            the public rows is ``consensus``, and with one client this is Theorem 5.2 or 5.3.
        final: each client's function after the last round, distilled from ``consensus``: what Algorithm 2
            puts out. Without de-regularisation the same as ``intermediate``.
        contraction: spectral radius of the round's map.
    """

    consensus: Array
    sent: Array
    intermediate: tuple[KernelExpansion, ...]
    final: tuple[KernelExpansion, ...]
    contraction: float


def distillation_limit(
    kernel: Kernel,
    clients: Clients,
    public: ArrayLike,
    *,
    regularization: float,
    alpha: float,
    deregularize: float = 0.0,
    jitter: float = 0.0,
    participation: Sequence[float] | None = None,
) -> Limit:
    """The limit of Algorithms 1, 2 and 3 for any number of clients.

    Args:
        kernel: k.
        clients: m pairs of rows and targets.
        public: X_p, shape ``(N_p, d)``.
        regularization: λ > 0.
        alpha: weight of the private rows, in (0, 1); the paper takes 1/m.
        deregularize: λ₀ ≥ 0; 0 for Algorithm 1, λ for Algorithm 2.
        jitter: as of :func:`smoothing`.
        participation: p_j > 0, how probable it is that client j takes part in a round, shape ``(m,)``;
            clients count as ω_j = p_j/Σp. Equal by default.

    Raises:
        ValueError: shapes that do not go together, values that are not finite or out of range, K_pp that
            cannot be inverted, rounds that do not converge.

    Source:
        Park et al. 2023, Theorems 5.2, 5.3, C.16, and Theorem 5.5's f̃ for ``final``.

    Example:
        >>> dot = lambda X, Z: X @ Z.T
        >>> clients = [([[1, 0, 0]], [1.0]), ([[1, 1, 0]], [2.0])]
        >>> limit = distillation_limit(dot, clients, np.eye(3), regularization=1 / 6, alpha=1 / 2)
        >>> np.round(277 * limit.consensus, 6).tolist()
        [234.0, 138.0, 0.0]
    """
    round_map = consensus_map(
        kernel,
        clients,
        public,
        regularization=regularization,
        alpha=alpha,
        deregularize=deregularize,
        jitter=jitter,
        participation=participation,
    )
    consensus, sent = round_map.fixed_point()

    def taught(values: Array) -> tuple[KernelExpansion, ...]:
        return tuple(
            distilled(kernel, X, y, public, values, regularization=regularization, alpha=alpha)
            for X, y in clients
        )

    return Limit(consensus, sent, taught(sent), taught(consensus), round_map.contraction)
