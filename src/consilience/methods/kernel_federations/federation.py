"""Kernel ridge regressions that teach one another: Park et al. 2023, Algorithms 1, 2, 3 and their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

import numpy as np
import scipy.linalg

from consilience.core.aggregation import ConsensusUpdate, replace
from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import Kernel
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.kernel_federations.gathered import Gathered, Points
from consilience.methods.kernel_federations.models import Models

JITTER = 1e-10


class KernelFederation:
    """Simulate ensemble distillation between clients with kernel ridge regressions over public rows.

    Args:
        kernel: a name or a function, as :func:`consilience.core.numerics.kernels.kernel_of` takes it.
        clients: m pairs ``(X_j, y_j)`` of shapes ``(N_j, d)`` and ``(N_j,)`` or ``(N_j, k)``.
        public: X_p, shape ``(N_p, d)``, without duplicate rows.
        regularization: λ > 0.
        alpha: weight of a client's own rows in (0, 1); 1/m by default, as in the paper.
        jitter: ε divided by the mean of K_pp's diagonal; added to K_pp before inversion.
        landmarks: number of landmarks of a Nyström approximation, taken evenly spaced from the public rows;
            ``None`` uses the exact kernel.
        memory: limit, in bytes, for stored kernel matrices between clients and public rows. Larger matrices
            are recomputed at each use, except in rounds with partial participation, which always store them.

    Raises:
        InvalidInput: shapes do not match, values are NaN, clients have different numbers of targets, public
            rows are equal, the kernel is not positive semi-definite, λ ≤ 0, or α is outside (0, 1).

    Source:
        Park, Hong & Hwang 2023, "Towards Understanding Ensemble Distillation in Federated Learning".

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.random((60, 1)); y = np.minimum(X, 1 - X)[:, 0] + rng.normal(0, 0.2, 60)
        >>> clients = [(X[:10], y[:10]), (X[10:20], y[10:20])]
        >>> federation = KernelFederation("brownian", clients, X[20:], regularization=0.01)
        >>> truth = np.minimum(X, 1 - X)[:, 0]
        >>> taught = federation.after(20, deregularization=0.01)
        >>> bool(taught.mse(X, truth).mean() < federation.alone().mse(X, truth).mean())
        True
    """

    def __init__(
        self,
        kernel: str | Kernel,
        clients: Sequence[tuple[Array, Array]],
        public: Array,
        *,
        regularization: float,
        alpha: float | None = None,
        jitter: float = JITTER,
        landmarks: int | None = None,
        memory: float = 5e8,
    ) -> None:
        gathered = Gathered(kernel, clients, public, landmarks=landmarks, memory=memory)
        self._set(gathered, regularization, alpha, jitter)

    def _set(
        self, gathered: Gathered, regularization: float, alpha: float | None, jitter: float
    ) -> None:
        alpha = 1 / len(gathered) if alpha is None else alpha
        check_number(
            "alpha",
            alpha,
            above=0,
            below=1,
            where="kernel federation",
            mend="It lies in (0, 1); a single client needs it said, such as alpha=0.5.",
        )
        check_number("regularization", regularization, above=0, where="kernel federation")
        check_number("jitter", jitter, at_least=0, where="kernel federation")
        self.gathered, self.regularization, self.alpha = gathered, regularization, alpha
        self._jitter, self._values = jitter, gathered.basis.eigenvalues
        self._spread = regularization * len(gathered.public) / (1 - alpha)  # c
        self._solved_blocks = gathered.blocks(len(self._values))
        self._round: tuple[Array, Array] | None = None

    def varied(
        self, *, regularization: float | None = None, alpha: float | None = None
    ) -> KernelFederation:
        """Return a copy with another λ or α, which shares all matrices that do not depend on λ and α."""
        other = KernelFederation.__new__(KernelFederation)
        other._set(
            self.gathered,
            self.regularization if regularization is None else regularization,
            self.alpha if alpha is None else alpha,
            self._jitter,
        )
        return other

    def __len__(self) -> int:
        return len(self.gathered)

    def points(self, X: Array) -> Points:
        """Prepare rows ``(n, d)`` for prediction; reuse the result for predictions with several models."""
        return self.gathered.points(X)

    # --- what clients do ------------------------------------------------------------------------

    def alone(self) -> Models:
        """Train the clients on their own rows only (Algorithm 1, line 3)."""
        own: Array = np.zeros(self.gathered.y.shape)
        for block, (K, _) in self.gathered.couplings():
            ridge = self.regularization * self.gathered.sizes[block]
            own[block] = np.linalg.solve(_lifted(K, ridge), self.gathered.y[block])
        return Models(self.gathered, own, np.zeros((1, len(self._values), own.shape[2])))

    def taught(self, targets: Array) -> Models:
        """Distil values on the public rows into the clients (Algorithm 1, line 9).

        Args:
            targets: w on the public rows, shape ``(N_p, k)``, the same for every client.
        """
        return self._taught(self.gathered.basis.of(np.asarray(targets)))

    def _taught(self, targets: Array) -> Models:
        """Distil targets in coordinates: ``(r, k)``, or ``(m, r, k)`` with separate targets per client."""
        own: Array = np.zeros(self.gathered.y.shape)
        shared: Array = np.zeros((len(self), len(self._values), own.shape[2]))
        each = np.broadcast_to(targets, shared.shape)
        for block, (L, T, z) in self._systems():
            s = z - T @ each[block]
            own[block] = np.linalg.solve(L.transpose(0, 2, 1), s)
            shared[block] = each[block] / (self._values + self._spread)[:, None]
            shared[block] -= T.transpose(0, 2, 1) @ s
        return Models(self.gathered, own, shared)

    def _systems(self) -> Iterator[tuple[slice, tuple[Array, Array, Array]]]:
        return self._solved_blocks.each(self._system)

    def _system(self, block: slice) -> tuple[Array, Array, Array]:
        """L, T and z of some clients, shapes ``(b, n, n)``, ``(b, n, r)`` and ``(b, n, k)``."""
        K, P = self.gathered.coupling(block)
        scaled = P / (self._values + self._spread)
        ridge = self.regularization * self.gathered.sizes[block] / self.alpha
        L = np.linalg.cholesky(_lifted(K - scaled @ P.transpose(0, 2, 1), ridge))
        return L, np.linalg.solve(L, scaled), np.linalg.solve(L, self.gathered.y[block])

    # --- rounds ---------------------------------------------------------------------------------

    def iterate(
        self,
        *,
        deregularization: float = 0.0,
        consensus: ConsensusUpdate | None = None,
        participants: Iterable[Sequence[int] | Array] | None = None,
    ) -> Iterator[Iteration]:
        """Yield the rounds in order: endlessly, or one for each item of ``participants``.

        Args:
            deregularization: λ₀ ≥ 0: 0 for Algorithm 1; the paper takes λ for Algorithms 2 and 3.
            consensus: update rule of the consensus; ``damped()`` is line 8 of Algorithm 3. It works on
                coordinates in the eigenbasis, which have the same lengths and angles as the predictions.
            participants: positions of each round's clients; all clients by default.

        Raises:
            InvalidInput: λ₀ is negative or above λ/(1 − α), K_pp cannot be inverted, or a round has no
                clients.
        """
        step = replace() if consensus is None else consensus
        raised = self._raised(deregularization)
        if participants is None:
            return self._together(step, raised)
        return self._in_turn(step, raised, participants)

    def _together(self, step: ConsensusUpdate, raised: Array) -> Iterator[Iteration]:
        proposal = self.alone().coordinates().mean(axis=0)
        previous: Array | None = None
        memory = step.init()
        for number in count(1):
            previous, memory = step.update(proposal, previous, memory)
            yield Iteration(number, previous, self.gathered, partial(self._taught, previous))
            A, b = self._mean_map()
            proposal = A @ (raised * previous) + b

    def _in_turn(
        self, step: ConsensusUpdate, raised: Array, participants: Iterable[Sequence[int] | Array]
    ) -> Iterator[Iteration]:
        """Clients predict with the model they have, which is as old as their last turn."""
        alone = self.alone()
        predicted = alone.coordinates()
        T = np.concatenate([T for _, (_, T, _) in self._systems()])
        z = np.concatenate([z for _, (_, _, z) in self._systems()])
        shrink = (self._values / (self._values + self._spread))[:, None]
        taught, asked = np.zeros(predicted.shape), np.zeros(len(self), dtype=bool)
        previous: Array | None = None
        memory = step.init()
        now = 0

        def models(asked_of: int) -> Models:
            if asked_of != now:
                raise InvalidInput(
                    f"round {now} has begun, and models of round {asked_of} are gone",
                    where="kernel federation",
                    mend="Ask a round for its models before going on to the next.",
                )
            last = self._taught(taught)
            last.own[~asked], last.shared[~asked] = alone.own[~asked], 0.0
            return last

        for number, chosen in enumerate(participants, start=1):
            j = _positions(chosen, len(self), number)
            now = number
            previous, memory = step.update(predicted[j].mean(axis=0), previous, memory)
            taught[j], asked[j] = previous, True
            yield Iteration(number, previous, self.gathered, partial(models, number))
            taught[j] = sent = raised * previous
            s = z[j] - T[j] @ sent
            predicted[j] = shrink * sent + self._spread * (T[j].transpose(0, 2, 1) @ s)

    def after(
        self,
        rounds: int,
        *,
        deregularization: float = 0.0,
        consensus: ConsensusUpdate | None = None,
    ) -> Models:
        """Return the clients after some rounds with all of them, the last one not de-regularised.

        Args:
            rounds: their number, at least 1.
            deregularization: λ₀; 0 for none.
            consensus: the step from round to round; by default the plain mean.

        Raises:
            InvalidInput: an argument out of its range.
        """
        check_number("rounds", rounds, at_least=1, whole=True, where="kernel federation")
        steps = self.iterate(deregularization=deregularization, consensus=consensus)
        return next(islice(steps, rounds - 1, None)).models()

    # --- infinitely many rounds -----------------------------------------------------------------

    def limit(
        self, *, deregularization: float = 0.0, probabilities: Array | None = None
    ) -> Iteration:
        """Compute the consensus and the regressors after infinitely many rounds, by one solve.

        Args:
            deregularization: λ₀, as for :meth:`iterate`.
            probabilities: how often each client takes part, shape ``(m,)``; only their ratios count. The
                limit of Algorithm 3 weights clients by them (Theorem C.16); equal by default.

        Returns:
            The fixed point, as a round with number -1.
        """
        A, b = self._mean_map(probabilities)
        # v = A d v + b in its symmetric form, whose eigenvalues lie below 1.
        root = np.sqrt(self._raised(deregularization))
        system = np.eye(len(A)) - root * A * root.T
        values = scipy.linalg.solve(system, b * root, assume_a="pos") / root
        return Iteration(-1, values, self.gathered, partial(self._taught, values))

    def contraction(self, *, deregularization: float = 0.0) -> float:
        """Compute the asymptotic convergence rate, in [0, 1), of plain rounds with all clients."""
        A, _ = self._mean_map()
        root = np.sqrt(self._raised(deregularization))
        return float(scipy.linalg.eigvalsh(root * A * root.T)[-1])

    def _raised(self, deregularization: float) -> Array:
        """``1 + N_p λ₀ / (μ + ε)``: what de-regularisation multiplies coordinates with, shape ``(r, 1)``."""
        values, n_public = self._values, len(self.gathered.public)
        most = self.regularization / (1 - self.alpha)
        if not 0 <= deregularization <= most:
            raise InvalidInput(
                f"deregularization is {deregularization}",
                where="kernel federation",
                mend=f"It lies between 0 and λ/(1−α) = {most:.3g}, above which rounds diverge; the paper "
                "takes the regularisation itself.",
            )
        if deregularization == 0:
            return np.ones((len(values), 1))
        lifted = values + self._jitter * values.sum() / n_public  # their sum is the trace of K_pp
        if lifted.min() <= len(values) * float(np.finfo(float).eps) * values.max():
            raise InvalidInput(
                f"K_pp cannot be inverted: its eigenvalues go from {values.min():.3g} to "
                f"{values.max():.3g}",
                where="de-regularisation",
                mend="Give jitter=1e-10 or more, drop public rows that nearly coincide, or take a "
                "rougher kernel, such as 'laplacian'.",
            )
        return np.asarray((1 + n_public * deregularization / lifted)[:, None])

    def _mean_map(self, probabilities: Array | None = None) -> tuple[Array, Array]:
        """A and b of a round with all clients."""
        if probabilities is None and self._round is not None:
            return self._round
        shares = np.ones(len(self)) if probabilities is None else np.asarray(probabilities)
        if shares.shape != (len(self),) or shares.min() < 0 or not shares.sum() > 0:
            raise InvalidInput(
                f"probabilities have shape {shares.shape} or are negative",
                where="kernel federation",
                mend=f"Give {len(self)} numbers, 0 or more, not all 0.",
            )
        shares = np.sqrt(self._spread * shares / shares.sum())[:, None, None]
        A = np.diag(self._values / (self._values + self._spread))
        b = np.zeros((len(A), self.gathered.y.shape[2]))
        for block, (_, T, z) in self._systems():
            rows = (T * shares[block]).reshape(-1, len(A))
            A -= rows.T @ rows
            b += rows.T @ (z * shares[block]).reshape(len(rows), -1)
        if probabilities is None:
            self._round = A, b
        return A, b


@prints_no_rows
@dataclass(frozen=True)
class Iteration:
    """State after a round.

    Attributes:
        number: number of the round, from 1; -1 for the limit of infinitely many rounds.
        coordinates: the consensus before de-regularisation, in the eigenbasis, shape ``(r, k)``.
        gathered: the clients' rows and the basis.
        models: function that returns the clients' models if this round is the last; call it before the next
            round.
    """

    number: int
    coordinates: Array
    gathered: Gathered
    models: Callable[[], Models]

    @property
    def consensus(self) -> Array:
        """The consensus on the public rows before de-regularisation, shape ``(N_p, k)``."""
        return self.gathered.basis.predictions(self.coordinates)


def _positions(chosen: Sequence[int] | Array, of: int, number: int) -> Array:
    positions = np.asarray(chosen)
    known = positions.ndim == 1 and len(positions) > 0 and positions.dtype.kind in "iu"
    if not known or positions.min() < 0 or positions.max() >= of:
        raise InvalidInput(
            f"participants of round {number} are {chosen!r}",
            where="kernel federation",
            mend=f"Name at least one client, by its position from 0 to {of - 1}.",
        )
    return positions


def _lifted(matrices: Array, ridge: Array) -> Array:
    """``matrices[j] + ridge[j] I``."""
    return np.asarray(matrices + ridge[:, None, None] * np.eye(matrices.shape[1]))
