"""Exact simulation of distillation between agents with kernel regressions (AKD, AvgKD, PKD, EKD).

Afonin & Karimireddy 2022. Agent a has N_a rows X^a with targets y^a and a kernel k_a; N = Σ N_a, and all
kernel matrices are divided by N. It fits targets ŷ by ``g(x) = (1/N) k_a(x, X^a) (c I + L_aa)⁻¹ ŷ`` with
``L_ab = k_a(X^a, X^b) / N``. Therefore its predictions for agent b's rows are a fixed matrix times ŷ. These
matrices are computed once, and a round of any protocol takes a few matrix-vector products.

    AKD        ŷ^{a+1} ← L_ab^⊤ (c I + L_aa)⁻¹ ŷ^a, round the ring
    AvgKD      ŷ^i ← (y^i + Σ_{j≠i} g^j(X^i)) / M
    PKD        ŷ^i ← (1/M) Σ_j g^j(X^i)
    EKD        Σ_t (−1)^t Σ_i g^i_t, the Neumann series of block Jacobi on (c I + L) β = y
    conjugate  the same system by conjugate gradients with the same blocks as preconditioner

Conjugate gradients need one kernel for all agents, since L must be symmetric. In a round, every agent sends
its function, as in EKD, and two numbers: r·z and p·q.

With c = 0 the fits have least norm (pseudo-inverses); the EKD series may then diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import Kernel, check_definite, gram, kernel_of
from consilience.core.validation.arrays import Array, unmasked
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows

Targets = tuple[Array, ...]
"""One array per agent, shape ``(N_a, k)``."""


@prints_no_rows
@dataclass(frozen=True)
class Expansion:
    """A function ``f(x) = (1/N) Σ_a k_a(x, X^a) s_a``.

    Attributes:
        agents: agents with the kernels k_a and rows X^a.
        coefficients: s, one array per agent, shape ``(N_a, k)``; ``None`` for agents without a term.
    """

    agents: KernelAgents
    coefficients: tuple[Array | None, ...]

    def predict(self, X: Array) -> Array:
        """Compute f at ``X``, shape ``(n, k)``.

        Args:
            X: inputs, shape ``(n, d)``.
        """
        X = np.asarray(unmasked(X), dtype=np.float64)
        columns = self.agents.X[0].shape[1]
        if X.ndim != 2 or X.shape[1] != columns:
            raise InvalidInput(
                f"inputs have shape {X.shape}, expected (n, {columns})", where="kernel agents"
            )
        parts = [
            gram(kernel, X, rows) @ s / self.agents.rows
            for kernel, rows, s in zip(
                self.agents.kernels, self.agents.X, self.coefficients, strict=True
            )
            if s is not None
        ]
        return np.asarray(sum(parts))


class KernelAgents:
    """Simulate the protocols of Afonin & Karimireddy 2022 for agents with kernel regressions.

    Args:
        kernels: one kernel for all agents, or one for each; names or functions, as
            :func:`consilience.core.numerics.kernels.kernel_of` takes them.
        data: M ≥ 2 pairs ``(X^a, y^a)`` of shapes ``(N_a, d)`` and ``(N_a,)`` or ``(N_a, k)``.
        regularization: c ≥ 0, on the scale of kernel matrices divided by N.

    Raises:
        InvalidInput: there are fewer than two agents, shapes do not match, values are NaN or infinite, c < 0,
            or a kernel is not positive semi-definite.

    Source:
        Afonin & Karimireddy 2022, sections 3 to 5.

    Example:
        >>> X, y = np.array([[1.0], [2.0]]), np.array([1.0, 2.0])
        >>> agents = KernelAgents("linear", [(X[:1], y[:1]), (X[1:], y[1:])], regularization=0.1)
        >>> *_, (consensus, _) = zip(agents.conjugate(), range(3), strict=False)
        >>> bool(np.allclose(consensus.predict(X), agents.central(0).predict(X)))
        True
    """

    def __init__(
        self,
        kernels: str | Kernel | Sequence[str | Kernel],
        data: Sequence[tuple[Array, Array]],
        *,
        regularization: float,
    ) -> None:
        if len(data) < 2:
            raise InvalidInput("there are fewer than two agents", where="kernel agents")
        check_number(
            "regularization",
            regularization,
            at_least=0,
            where="kernel agents",
            mend="Give a finite c of 0 or above; 0 takes the fits of least norm.",
        )
        given = [kernels] * len(data) if isinstance(kernels, str) or callable(kernels) else kernels
        if len(given) != len(data):
            raise InvalidInput(
                f"{len(given)} kernels for {len(data)} agents",
                where="kernel agents",
                mend="Give one for all, or one each.",
            )
        self._one_kernel = all(kernel is given[0] or kernel == given[0] for kernel in given)
        self.kernels = tuple(kernel_of(kernel) for kernel in given)
        self.X, self.y = _checked(data)
        for kernel, X in zip(self.kernels, self.X, strict=True):
            check_definite(kernel, X)
        self.regularization = float(regularization)
        self.rows = sum(map(len, self.X))
        everybody = range(len(self.X))
        self._blocks = [[self._L(a, b) for b in everybody] for a in everybody]
        self._solve = [self._solver(self._blocks[a][a]) for a in everybody]
        # _transfer[a][b]: from agent a's targets to what its model says of agent b's rows.
        self._transfer = [
            [self._solve[a](self._blocks[a][b]).T for b in everybody] for a in everybody
        ]

    def __len__(self) -> int:
        return len(self.X)

    def _L(self, a: int, b: int) -> Array:
        """``k_a(X^a, X^b) / N``."""
        return gram(self.kernels[a], self.X[a], self.X[b]) / self.rows

    def _solver(self, matrix: Array) -> Callable[[Array], Array]:
        """``v ↦ (c I + L)⁻¹ v``."""
        if self.regularization == 0:
            inverse = scipy.linalg.pinvh(matrix)
            return lambda values: np.asarray(inverse @ values)
        lifted = matrix + self.regularization * np.eye(len(matrix))
        try:
            factor = scipy.linalg.cho_factor(lifted, overwrite_a=True)
        except scipy.linalg.LinAlgError as error:
            raise InvalidInput(
                "a kernel matrix cannot be factored",
                where="kernel agents",
                mend="Raise regularization, or give 0 for the fits of least norm.",
            ) from error
        return lambda values: np.asarray(scipy.linalg.cho_solve(factor, values))

    def central(self, agent: int) -> Expansion:
        """Fit an agent's kernel to all rows (Proposition I).

        Args:
            agent: its position, from 0.

        Raises:
            InvalidInput: there is no such agent.
        """
        if not 0 <= agent < len(self):
            raise InvalidInput(f"there is no agent {agent} of {len(self)}", where="kernel agents")
        kernel, X = self.kernels[agent], np.concatenate(self.X)
        solution = self._solver(gram(kernel, X) / self.rows)(np.concatenate(self.y))
        parts = np.split(solution, np.cumsum([len(y) for y in self.y])[:-1])
        whole = KernelAgents.__new__(KernelAgents)
        whole.kernels, whole.X, whole.rows = (kernel,) * len(self), self.X, self.rows
        return Expansion(whole, tuple(parts))

    def fit(self, targets: Targets) -> tuple[Expansion, ...]:
        """Fit every agent's model to its own rows with these targets."""
        return tuple(
            Expansion(self, _only(a, solve(y), len(self)))
            for a, (solve, y) in enumerate(zip(self._solve, targets, strict=True))
        )

    # --- the targets of rounds 0, 1, 2, … ---------------------------------------------------------

    def alternating(self) -> Iterator[Targets]:
        """Yield the targets of rounds 0, 1, 2, … of AKD from every agent at once.

        In round t, agent a gets its targets from the chain that started at agent a − t.
        """
        targets = self.y
        while True:
            yield targets
            passed = [self._transfer[a][(a + 1) % len(self)] @ y for a, y in enumerate(targets)]
            targets = (passed[-1], *passed[:-1])

    def averaged(self) -> Iterator[Targets]:
        """Yield the targets of rounds 0, 1, 2, … of averaged knowledge distillation (AvgKD)."""
        return self._mixed(labels=True)

    def parallel(self) -> Iterator[Targets]:
        """Yield the targets of rounds 0, 1, 2, … of parallel knowledge distillation (PKD)."""
        return self._mixed(labels=False)

    def _mixed(self, *, labels: bool) -> Iterator[Targets]:
        targets, everybody = self.y, range(len(self))
        while True:
            yield targets
            sums = []
            for b, y in enumerate(self.y):
                others = [self._transfer[a][b] @ targets[a] for a in everybody if a != b]
                sums.append(sum(others, y if labels else self._transfer[b][b] @ targets[b]))
            targets = tuple(total / len(self) for total in sums)

    # --- models of all rows -----------------------------------------------------------------------

    def ensembled(self) -> Iterator[Expansion]:
        """Yield the signed sum of all models after rounds 0, 1, 2, … (EKD)."""
        total = [np.zeros(y.shape) for y in self.y]
        for t, targets in enumerate(self.alternating()):
            total = [
                s + (-1) ** t * solve(y)
                for s, solve, y in zip(total, self._solve, targets, strict=True)
            ]
            yield Expansion(self, tuple(total))

    def conjugate(self) -> Iterator[Expansion]:
        """Yield the function after rounds 0, 1, 2, … of preconditioned conjugate gradients.

        The system is ``(c I + L) β = y``. Round 0 is the same as in EKD: the sum of all agents' local models.
        Every output has separate step lengths. The iterator ends when the residual is at rounding error.

        Raises:
            InvalidInput: the agents have different kernels, or c is 0.
        """
        if not self._one_kernel or self.regularization == 0:
            raise InvalidInput(
                "conjugate gradients need one kernel for all agents, and a regularization above 0",
                where="kernel agents",
                mend="Take ensembled(), or give every agent the same kernel.",
            )
        beta = [solve(y) for solve, y in zip(self._solve, self.y, strict=True)]
        residual = _less(self.y, self._applied(beta))
        scale = _dot(self.y, self.y)
        direction: list[Array] | None = None
        before: Array | None = None
        while True:
            yield Expansion(self, tuple(beta))
            if (_dot(residual, residual) <= (1e-15**2) * scale).all():
                return
            z = [solve(r) for solve, r in zip(self._solve, residual, strict=True)]
            length = _dot(residual, z)  # one number an agent
            if direction is None or before is None:
                direction = z
            else:
                direction = [
                    part + p * (length / before) for part, p in zip(z, direction, strict=True)
                ]
            image = self._applied(direction)
            step = length / _dot(direction, image)  # one number an agent
            beta = [b + step * p for b, p in zip(beta, direction, strict=True)]
            residual = [r - step * q for r, q in zip(residual, image, strict=True)]
            before = length

    def _applied(self, coefficients: Sequence[Array]) -> list[Array]:
        """``(c I + L) β`` at each agent's rows."""
        return [
            self.regularization * coefficients[b]
            + sum(self._blocks[a][b].T @ s for a, s in enumerate(coefficients))
            for b in range(len(self))
        ]


def _only(agent: int, values: Array, of: int) -> tuple[Array | None, ...]:
    return tuple(values if a == agent else None for a in range(of))


def _less(ones: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    return [one - other for one, other in zip(ones, others, strict=True)]


def _dot(ones: Sequence[Array], others: Sequence[Array]) -> Array:
    """For every output, shape ``(k,)``."""
    return np.asarray(
        sum((one * other).sum(axis=0) for one, other in zip(ones, others, strict=True))
    )


def _checked(data: Sequence[tuple[Array, Array]]) -> tuple[Targets, Targets]:
    try:
        X: Targets = tuple(np.asarray(unmasked(rows), dtype=np.float64) for rows, _ in data)
        y: Targets = tuple(np.asarray(unmasked(values), dtype=np.float64) for _, values in data)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"data are not pairs of numbers ({error})",
            where="kernel agents",
            mend="Give (X, y) for every agent.",
        ) from error
    for a, (rows, values) in enumerate(zip(X, y, strict=True)):
        where = f"kernel agents, agent {a}"
        if rows.ndim != 2 or len(rows) == 0:
            raise InvalidInput(
                f"its inputs have shape {rows.shape}",
                where=where,
                mend="Give one row or more, shape (n, d).",
            )
        if rows.shape[1] != X[0].shape[1]:
            raise InvalidInput(
                f"its inputs have shape {rows.shape}, those of agent 0 {X[0].shape}",
                where=where,
                mend="Give every agent rows with the same columns.",
            )
        if (
            values.ndim not in (1, 2)
            or len(values) != len(rows)
            or values.shape[1:] != y[0].shape[1:]
        ):
            raise InvalidInput(f"{len(rows)} rows and targets of shape {values.shape}", where=where)
        if not (np.isfinite(rows).all() and np.isfinite(values).all()):
            raise InvalidInput("inputs or targets hold NaN or infinite values", where=where)
    return X, tuple(values.reshape(len(values), -1) for values in y)
