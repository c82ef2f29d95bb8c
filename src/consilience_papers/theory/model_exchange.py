"""Agents that teach each other with their models, with kernel ridge regression, by dense linear algebra.

Agent a of M has rows X_a, labels y_a and a kernel k_a; all take the same c. With N rows in all and
L_ab = k_b(X_a, X_b)/N, an agent that is given labels ŷ for its rows learns, and predicts at those of agent b,

    g_a(x) = k_a(x, X_a)/N (cI + L_aa)⁻¹ ŷ,        g_a(X_b) = T_ba ŷ,   T_ba = L_ba (cI + L_aa)⁻¹.

All protocols of Afonin & Karimireddy 2022 are, with the agents' labels in one column of N entries, a map
ŷ ← S ŷ + b of which S is made of blocks of T; their models follow from ŷ. Blocks on or off the diagonal go
into it, or those of the ring alone, T_ba with b after a in 1 → 2 → … → M → 1; two agents are a ring.

This is the truth that protocols are held against: it forms every matrix and takes no short cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from consilience_papers.theory.expansion import (
    Array,
    Kernel,
    KernelExpansion,
    gram,
    positive,
    rows,
    targets,
)
from consilience_papers.theory.rounds import Clients

SLOWEST = 1 - 1e-10
"""The spectral radius above which rounds count as not converging: none could wait for 10¹⁰ of them."""


@dataclass(frozen=True)
class ModelExchange:
    """Rows and kernels of agents that exchange models; :func:`exchange_of` makes and checks it.

    Attributes:
        kernels: k_a of each agent.
        inputs: X_a of each agent, shape ``(N_a, d)``.
        labels: y of all agents, one after the other, shape ``(N,)`` or ``(N, n_outputs)``.
        regularization: c ≥ 0; with 0 every inverse is a pseudo-inverse, and models have the least norm.
    """

    kernels: tuple[Kernel, ...]
    inputs: tuple[Array, ...]
    labels: Array
    regularization: float

    @cached_property
    def owner(self) -> Array:
        """Number of the agent that has each of the N rows, counted from 0."""
        return np.repeat(np.arange(len(self.inputs)), [len(X) for X in self.inputs])

    @cached_property
    def similarities(self) -> Array:
        """Matrix of all L_ab, shape ``(N, N)``; symmetric where all agents have one kernel."""
        everyone = np.concatenate(self.inputs)
        columns = [gram(k, everyone, X) for k, X in zip(self.kernels, self.inputs, strict=True)]
        return np.concatenate(columns, axis=1) / len(everyone)

    @cached_property
    def transfer(self) -> Array:
        """T, shape ``(N, N)``: what models predict at every row, for the labels that they were taught."""
        return self.similarities @ self.local_power(-1)

    @property
    def one_kernel(self) -> bool:
        """True if all agents have the same kernel."""
        return all(kernel is self.kernels[0] for kernel in self.kernels)

    def local_power(self, exponent: float) -> Array:
        """The powers of all cI + L_aa on the diagonal of one matrix, shape ``(N, N)``."""
        own = [np.flatnonzero(self.owner == agent) for agent in range(len(self.inputs))]
        L, c = self.similarities, self.regularization
        return np.asarray(
            block_diag(*(regularized_power(L[np.ix_(i, i)], c, exponent) for i in own))
        )

    def models(self, labels: Array) -> tuple[KernelExpansion, ...]:
        """The agents' models when taught these labels, shape ``(N,)`` or ``(N, n_outputs)``."""
        coefficients = self.local_power(-1) @ labels / len(self.owner)
        return tuple(
            KernelExpansion(kernel, X, coefficients[self.owner == agent])
            for agent, (kernel, X) in enumerate(zip(self.kernels, self.inputs, strict=True))
        )

    def ensemble(self, labels: Array) -> Callable[[ArrayLike], Array]:
        """The sum of the agents' models when taught these labels."""
        models = self.models(labels)
        return lambda X: np.sum([model(X) for model in models], axis=0)

    def central(self, agent: int = 0) -> KernelExpansion:
        """Model that the agent would learn from all rows: ``g*(x) = k(x, X)/N (cI + K/N)⁻¹ y``.

        It minimises ``1/N Σ (g(x_n) − y_n)² + c ‖g‖²`` over all N rows; with c = 0, of the functions with the
        least error it is that of the least norm.

        Source:
            Afonin & Karimireddy 2022, Proposition I and eq. 5.
        """
        kernel, everyone = self.kernels[agent], np.concatenate(self.inputs)
        K = gram(kernel, everyone, everyone) / len(everyone)
        inverse = regularized_power(K, self.regularization, -1)
        return KernelExpansion(kernel, everyone, inverse @ self.labels / len(everyone))


def exchange_of(
    kernel: Kernel | Sequence[Kernel], agents: Clients, *, regularization: float
) -> ModelExchange:
    """Agents that exchange models.

    Args:
        kernel: the kernel of all agents, or one for each; what holds for one kernel holds where these are
            all the same object.
        agents: M ≥ 2 pairs of rows and labels, ``(N_a, d)`` and ``(N_a,)`` or ``(N_a, n_outputs)``.
        regularization: c ≥ 0, the same for all; 0 for models of the least norm (appendix C).

    Raises:
        ValueError: shapes that do not go together, values that are not finite, c < 0, a kernel that is
            not positive semi-definite on an agent's rows.

    Example:
        >>> dot = lambda X, Z: X @ Z.T
        >>> agents = [([[1.0, 0.0]], [2.0]), ([[1.0, 1.0]], [0.0])]
        >>> exchange = exchange_of(dot, agents, regularization=0.5)
        >>> alternating_distillation(exchange).targets(2).round(3).tolist()
        [0.333, 0.0]
    """
    if len(agents) < 2:
        raise ValueError(f"there are {len(agents)} agents; an exchange takes two or more")
    inputs = tuple(rows(X) for X, _ in agents)
    labels = [targets(y, len(X)) for X, (_, y) in zip(inputs, agents, strict=True)]
    kernels = tuple(kernel) if isinstance(kernel, Sequence) else (kernel,) * len(agents)
    if len(kernels) != len(agents):
        raise ValueError(
            f"there are {len(kernels)} kernels for {len(agents)} agents; give one each"
        )
    if len({X.shape[1] for X in inputs}) > 1:
        widths = ", ".join(str(X.shape[1]) for X in inputs)
        raise ValueError(f"agents' rows have {widths} columns; all must have the same")
    if len({y.shape[1:] for y in labels}) > 1:
        raise ValueError("agents have different outputs; give every agent the same columns of y")
    if regularization != 0:
        positive(regularization, "regularization")
    exchange = ModelExchange(kernels, inputs, np.concatenate(labels), float(regularization))
    exchange.local_power(-1)  # refuses a kernel before anything is computed with it
    return exchange


@dataclass(frozen=True)
class Relabelling:
    """Effect of a round on the agents' labels, ``ŷ ← S ŷ + b``, and the labels of the first round.

    Attributes:
        matrix: S, shape ``(N, N)``.
        offset: b, of the shape of the labels.
        start: ŷ in round 0, of the shape of the labels.
    """

    matrix: Array
    offset: Array
    start: Array

    def targets(self, round: int) -> Array:
        """``ŷ_t = Sᵗ ŷ_0 + Σ_{i<t} Sⁱ b`` in closed form; ``exchange.models`` of it are round t's models."""
        n = len(self.start)
        offset = self.offset.reshape(n, -1)
        q = offset.shape[1]
        # [S b; 0 I] takes (ŷ, 1) to (S ŷ + b, 1): the t-th power has Sᵗ and the sum, I − S singular or not.
        step = np.block([[self.matrix, offset], [np.zeros((q, n)), np.eye(q)]])
        power = np.linalg.matrix_power(step, round)
        return np.asarray(power[:n, :n] @ self.start + power[:n, n:].reshape(self.offset.shape))

    @cached_property
    def rate(self) -> float:
        """The spectral radius of S: in the long run, the share of the distance that a round leaves."""
        return float(np.abs(np.linalg.eigvals(self.matrix)).max())

    def limit(self) -> Array:
        """The labels after infinitely many rounds, ``(I − S)⁻¹ b``.

        Raises:
            ValueError: the rounds do not converge: the spectral radius is 1 or more.
        """
        if not self.rate < SLOWEST:
            raise ValueError(
                f"the rounds do not converge: the spectral radius is {self.rate:.6g}; take one kernel "
                "for all agents, and a larger regularization"
            )
        return np.asarray(np.linalg.solve(np.eye(len(self.start)) - self.matrix, self.offset))


def alternating_distillation(exchange: ModelExchange, *, first: int = 0) -> Relabelling:
    """AKD: one model goes round the ring and is refitted to its predecessor's predictions everywhere.

    The labels ŷ_t are those of the one agent that fits in step t, (first + t) mod M, and 0 elsewhere; so
    after t trips

        ŷ = (T_1M … T_32 T_21)ᵗ y_1,    M = 2:   g_2t(x) = k_1(x, X_1)/N (cI + L_11)⁻¹ (T_12 T_21)ᵗ y_1.

    ``rate`` is that of one step; of a trip it is the M-th power. With one kernel a step multiplies the model
    by a self-adjoint operator of the kernel's space with norm λ_max(L_aa)/(c + λ_max(L_aa)) < 1, so models
    go to 0 for any number of agents. *With different kernels they need not*, against Proposition II: where
    k_1 extrapolates to values that k_2 takes back as they are, models grow without end. With c = 0 see
    :func:`common_parts`.

    Args:
        exchange: the agents.
        first: the agent whose labels travel.

    Raises:
        ValueError: no such agent.

    Source:
        Afonin & Karimireddy 2022, Proposition II, section 4 and appendix G.
    """
    if not 0 <= first < len(exchange.inputs):
        raise ValueError(
            f"first is {first}; agents are counted from 0 to {len(exchange.inputs) - 1}"
        )
    # Transposed, so that the agents' mask multiplies rows whatever the outputs are.
    start = np.where(exchange.owner == first, exchange.labels.T, 0).T
    return Relabelling(_ring(exchange), np.zeros_like(exchange.labels), start)


def averaged_distillation(exchange: ModelExchange) -> Relabelling:
    """AvgKD: ``ŷ_a ← (y_a + Σ_{b≠a} g_b(X_a)) / M``, from ŷ = y.

    With one kernel it converges for every c and M, its rate at most (M−1)/M. For two agents the limit is

        ŷ_1 = ½ (I − T_12 T_21/4)⁻¹ (y_1 + ½ T_12 y_2)

    and the mirror, so that g_1 = k_1(·, X_1) β_1/(2N) and g_2 = −k_2(·, X_2) β_2/(2N) with

        (cI + L_11) β_1 + ½ L_12 β_2 = y_1,      ½ L_21 β_1 + (cI + L_22) β_2 = −y_2:

    the system of :func:`ensembled_distillation` with halved coupling and a label's sign changed, which is
    what keeps the limit from the optimum. The finite sums of Proposition V hold but for their last term.

    Args:
        exchange: the agents.

    Source:
        Afonin & Karimireddy 2022, Propositions V, VI, appendices D and G.
    """
    m = len(exchange.inputs)
    return Relabelling(_others(exchange) / m, exchange.labels / m, exchange.labels)


def parallel_distillation(exchange: ModelExchange) -> Relabelling:
    """PKD: ``ŷ_a ← Σ_b g_b(X_a) / M``, from ŷ = y: as AvgKD, its own prediction in place of its labels.

    With one kernel it degrades to 0 for every c > 0, as the mean of M contractions. Appendix G repeats
    AvgKD's line for M agents; this is the extension of appendix E's two.

    Args:
        exchange: the agents.

    Source:
        Afonin & Karimireddy 2022, appendices E and G.
    """
    matrix = exchange.transfer / len(exchange.inputs)
    return Relabelling(matrix, np.zeros_like(exchange.labels), exchange.labels)


def ensembled_distillation(exchange: ModelExchange) -> Relabelling:
    """EKD: ``f_t(x) = Σ_{s≤t} (−1)ˢ Σ_a g_sᵃ(x)``, the signed sum of M runs of AKD, one from every agent.

    A fit is linear in its labels, so the models that one agent has fitted by step t add up to a single one,
    taught the signed sum ŷ of what they were taught: ``exchange.ensemble(ŷ_t)`` is f_t, and

        ŷ_a ← y_a − g_{a−1}(X_a),   from ŷ = y.

    The limit has the coefficients β/N with (cI + L_aa) β_a + L_{a,a−1} β_{a−1} = y_a. Hence

    - *Two agents, one kernel*: (cI + L) β = y; f is the central model everywhere, and for every c > 0 the
      series converges (this is block-Jacobi), the slower the smaller c.
    - *Two agents, two kernels*: f is a sum of functions of both kernels, f = y − cβ on the agents' rows. It
      is not the central model of either; only with c = 0, where the series converges and the kernels are
      definite, do all take the values y there. Whether the series converges is as for AKD.
    - *More agents*: the ring leaves out every block but its own. Even with one kernel f is not the central
      model, in whatever order agents stand, unless they have nothing to tell each other (all L_ab = 0);
      :func:`residual_distillation` is the extension that reaches it.
    - *c = 0*: where agents with one kernel have functions in common (:func:`common_parts`) the spectral
      radius is 1 and the series has no limit. For two agents whose labels some function fits exactly, f_t
      ends up going to and fro about the central model: the mean of two successive f_t converges to it.

    Args:
        exchange: the agents.

    Source:
        Afonin & Karimireddy 2022, eq. 9, Proposition VII, appendices F and G (eq. 32).
    """
    return Relabelling(-_ring(exchange), exchange.labels, exchange.labels)


def residual_distillation(exchange: ModelExchange, *, step: float | None = None) -> Relabelling:
    """EKD for any number of agents: ``ŷ_a ← (1−ω) ŷ_a + ω (y_a − Σ_{b≠a} g_b(X_a))``, from ŷ = y.

    Every agent fits what the others leave over; ``exchange.ensemble`` of the labels is the prediction. The
    fixed point is (cI + L) β = y. With one kernel and c > 0 the matrix of which this is the iteration,
    I + T without its diagonal, has its spectrum in (0, M), so ω = 2/M always converges to the central model;
    for two agents that is ω = 1 and EKD. ω = 1 does not converge when three agents have similar rows.

    Args:
        exchange: the agents.
        step: ω > 0; 2/M by default.

    Raises:
        ValueError: ω ≤ 0.

    Source:
        Damped block-Jacobi; for two agents Afonin & Karimireddy 2022, eq. 9.
    """
    step = 2 / len(exchange.inputs) if step is None else step
    positive(step, "step")
    matrix = (1 - step) * np.eye(len(exchange.owner)) - step * _others(exchange)
    return Relabelling(matrix, step * exchange.labels, exchange.labels)


def regularized_power(L: Array, regularization: float, exponent: float) -> Array:
    """``(cI + L)ᵖ`` of a symmetric L without negative eigenvalues; with c = 0, 0 where L is 0.

    Raises:
        ValueError: L has a negative eigenvalue.
    """
    values, vectors = np.linalg.eigh((L + L.T) / 2)
    top = max(values[-1], 0)
    if values[0] < -1e-8 * max(top, np.abs(L).max()):
        raise ValueError(
            f"the kernel is not positive semi-definite: on these rows it has the eigenvalue "
            f"{values[0]:.3g}; take another one"
        )
    values = np.maximum(values, 0)
    kept = values > (len(L) * np.finfo(float).eps * top if regularization == 0 else -1)
    powers = np.power(values + regularization, exponent, out=np.zeros_like(values), where=kept)
    return np.asarray((vectors * powers) @ vectors.T)


def _ring(exchange: ModelExchange) -> Array:
    """T where the row's agent comes after the column's, 0 elsewhere."""
    after = (exchange.owner + 1) % len(exchange.inputs)
    return np.where(exchange.owner[:, None] == after, exchange.transfer, 0)


def _others(exchange: ModelExchange) -> Array:
    """T without the blocks on its diagonal."""
    return np.where(exchange.owner[:, None] != exchange.owner, exchange.transfer, 0)
