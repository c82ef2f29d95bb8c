"""Alternating distillation as alternating projections: how fast it forgets, and what it keeps.

The geometry of Afonin & Karimireddy 2022, section 4.2 and appendices B and C, with what Propositions IV and
VIII say once they are made precise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from consilience_papers.theory.expansion import Array, KernelExpansion, gram
from consilience_papers.theory.model_exchange import SLOWEST, ModelExchange, regularized_power


@dataclass(frozen=True)
class ObliqueProjections:
    """Two agents' rows as orthonormal vectors, and their fits as projections on them.

    With K = VᵀDV, V orthogonal, for K the values of both kernels at all rows over N, (L 0; 0 M), the columns
    of V = (V_1 V_2 Ṽ_1 Ṽ_2) stand for the rows as k_1 and as k_2 see them. With one kernel K = L and Ṽ = V.

    Attributes:
        spectrum: D, shape ``(n,)`` with n = 2N, or N with one kernel.
        frames: V_1 and Ṽ_2, the agents' rows under their own kernel, shapes ``(n, N_1)`` and ``(n, N_2)``.
        others: V_2 and Ṽ_1, the other's rows under the kernel of agent 1 and of agent 2.
        labels: y_1, shape ``(N_1,)`` or ``(N_1, n_outputs)``.
        regularization: c.
    """

    spectrum: Array
    frames: tuple[Array, Array]
    others: tuple[Array, Array]
    labels: Array
    regularization: float

    @cached_property
    def projections(self) -> tuple[Array, Array]:
        """``P = V (Vᵀ(cI + D)V)⁻¹ Vᵀ(cI + D)`` for V_1 and Ṽ_2: orthogonal in the norm of cI + D."""
        weight = self.spectrum + self.regularization

        def projection(V: Array) -> Array:
            return np.asarray(V @ regularized_power((V.T * weight) @ V, 0, -1) @ (V.T * weight))

        return projection(self.frames[0]), projection(self.frames[1])

    @cached_property
    def contractions(self) -> tuple[Array, Array]:
        """``C_1 = V_1 Ṽ_1ᵀ`` and ``C_2 = Ṽ_2 V_2ᵀ``: what one kernel's rows say, said in the other's.

        They shrink nothing that they do not drop: all singular values are 0 and 1. With one kernel they are
        projections; with two, nilpotent: all *eigenvalues* are 0, so that "smaller eigenvalues of C_1", which
        Proposition VIII has for a reason to degrade, says nothing. Nor are they contractions in the
        norm of cI + D, in which the P are, and with two kernels the product can grow.
        """
        V1, V2 = self.frames
        seen2, seen1 = self.others
        return V1 @ seen1.T, V2 @ seen2.T

    def predictions(self, trips: int) -> Array:
        """``g_2t(X_2) = V_2ᵀ P_1ᵀ (C_1 P̃_2ᵀ C_2 P_1ᵀ)ᵗ V_1 y_1``, after t trips from agent 1.

        Source:
            Afonin & Karimireddy 2022, Proposition III and eq. 12.
        """
        (P1, P2), (C1, C2) = self.projections, self.contractions
        trip = C1 @ P2.T @ C2 @ P1.T
        lifted = self.frames[0] @ self.labels
        return np.asarray(self.others[0].T @ P1.T @ np.linalg.matrix_power(trip, trips) @ lifted)


def oblique_projections(exchange: ModelExchange) -> ObliqueProjections:
    """Proposition III for two agents, of whom the first one starts.

    Args:
        exchange: two agents, with one kernel or two.

    Raises:
        ValueError: more than two agents.

    Source:
        Afonin & Karimireddy 2022, Proposition III and appendix B.
    """
    if len(exchange.inputs) != 2:
        raise ValueError(f"there are {len(exchange.inputs)} agents; these projections are for two")
    everyone = np.concatenate(exchange.inputs)
    first = exchange.owner == 0
    kernels = exchange.kernels[:1] if exchange.one_kernel else exchange.kernels
    parts = [np.linalg.eigh(gram(kernel, everyone, everyone) / len(everyone)) for kernel in kernels]
    V = block_diag(*(vectors.T for _, vectors in parts))
    seen1, seen2 = V[:, : len(everyone)], V[:, -len(everyone) :]
    return ObliqueProjections(
        np.maximum(np.concatenate([values for values, _ in parts]), 0),
        (seen1[:, first], seen2[:, ~first]),
        (seen1[:, ~first], seen2[:, first]),
        exchange.labels[first],
        exchange.regularization,
    )


def principal_cosines(exchange: ModelExchange, first: int = 0, second: int = 1) -> Array:
    """Cosines of the principal angles between two agents: the singular values of

        (cI + L_11)^{−½} L_12 (cI + L_22)^{−½}.

    These are the cosines between the spans of V_1 and V_2 in the norm of cI + D; with c = 0 between the spans
    of both agents' rows in the kernel's space. The largest, cos φ, is the speed of degradation exactly: in
    the norm (ŷᵀ(cI + L_aa)⁻¹ŷ)^½, whose square is N/c times the least ``1/N Σ (g(x) − ŷ)² + c ‖g‖²`` of agent
    a, a step from one agent to the other leaves at most cos φ of the labels, a trip has the eigenvalues
    cos² φ_i, and no smaller factor will do. cos φ never grows with c
    (with two kernels, forgetting may slow with it), and

        cos² φ ≤ s_1 s_2 cos² φ₀ ≤ s_1 s_2,    s_a = λ_max(L_aa) / (c + λ_max(L_aa)),

    with φ₀ that of c = 0: regularisation and different data each have a factor. Proposition VIII's "smaller
    absolute values of L_12" holds as cos φ ≤ ‖L_12‖ / √((c + λ_min(L_11)) (c + λ_min(L_22))).

    Args:
        exchange: agents with one kernel.
        first: an agent, counted from 0.
        second: another one.

    Returns:
        Shape ``(min(N_1, N_2),)``, largest first, in [0, 1].

    Raises:
        ValueError: different kernels, for which no such bound holds; no such agents.

    Source:
        Afonin & Karimireddy 2022, Propositions IV, VIII and appendix B.
    """
    _one_kernel(exchange)
    m = len(exchange.inputs)
    if not (0 <= first < m and 0 <= second < m and first != second):
        raise ValueError(f"agents {first} and {second} are not two of 0 to {m - 1}")
    half = exchange.local_power(-0.5)
    between = half @ exchange.similarities @ half
    cosines = np.linalg.svd(
        between[np.ix_(exchange.owner == first, exchange.owner == second)], compute_uv=False
    )
    return np.asarray(np.minimum(cosines, 1))


def degradation_bound(exchange: ModelExchange) -> float:
    """Largest share of the labels that a trip round the ring leaves: ``Π_a cos φ_{a,a+1}``.

    The norm is that of :func:`principal_cosines`. The M-th power of ``alternating_distillation(...).rate`` is
    at most this, and equal to it for two agents.

    Args:
        exchange: agents with one kernel.

    Raises:
        ValueError: different kernels.
    """
    m = len(exchange.inputs)
    return float(np.prod([principal_cosines(exchange, a, (a + 1) % m)[0] for a in range(m)]))


def common_parts(exchange: ModelExchange) -> tuple[KernelExpansion, ...]:
    """Parts of each agent's own model that distillation without regularisation leaves.

    With c = 0 and one kernel a fit is the orthogonal projection on the span H_a of the k(x, ·), x in X_a, so
    a model that goes round any ring again and again ends up as its projection on the functions that all have,
    ∩ H_a. Entry a is the limit of AKD from agent a; the mean of the entries is that of PKD, at every agent.
    Where L is regular, as with different rows and a kernel that is strictly definite, all are 0; where all
    agents have the same rows, nothing is lost.

    Args:
        exchange: agents with one kernel and c = 0.

    Raises:
        ValueError: different kernels; c > 0, with which nothing is left.

    Source:
        Afonin & Karimireddy 2022, appendix C.
    """
    _one_kernel(exchange)
    if exchange.regularization != 0:
        raise ValueError(
            f"regularization is {exchange.regularization}: models then go to 0; "
            "what is common is left for regularization=0 only"
        )
    n = len(exchange.owner)
    everyone = np.concatenate(exchange.inputs)
    values, vectors = np.linalg.eigh(exchange.similarities)
    kept = values > n * np.finfo(float).eps * values[-1]
    # L = ΦΦᵀ, and functions are vectors w with the values Φw. A row of Φ_a is one of k(x, ·), x in X_a.
    values, features = values[kept], vectors[:, kept] * np.sqrt(values[kept])
    own = [exchange.owner == agent for agent in range(len(exchange.inputs))]
    inverses = [np.linalg.pinv(features[rows], rcond=1e-10) for rows in own]
    projections = [inverse @ features[rows] for inverse, rows in zip(inverses, own, strict=True)]
    shared, directions = np.linalg.eigh(np.mean(projections, axis=0))
    common = directions[:, shared > SLOWEST]
    # w has the coefficients Φ (ΦᵀΦ)⁻¹ w / N, and ΦᵀΦ is diagonal.
    project = features / values @ common @ common.T / n
    return tuple(
        KernelExpansion(exchange.kernels[0], everyone, project @ inverse @ exchange.labels[rows])
        for inverse, rows in zip(inverses, own, strict=True)
    )


def _one_kernel(exchange: ModelExchange) -> None:
    if not exchange.one_kernel:
        raise ValueError(
            "agents have different kernels, and then no angle bounds what is lost or left; "
            "give all agents the same kernel"
        )
