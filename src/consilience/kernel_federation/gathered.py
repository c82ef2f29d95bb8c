"""What no regularisation changes: the clients' rows, the public rows, and the kernel between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInput
from consilience.kernel_federation.basis import Basis, Exact, Nystrom
from consilience.kernels import Kernel, check_definite, check_distinct, gram, kernel_of

Array = NDArray[Any]
T = TypeVar("T")

_NUMBERS_AT_ONCE = 4_000_000
"""Of a block of clients: 32 MB a matrix."""


class Blocks(Generic[T]):
    """What is computed for a block of clients at a time; kept if it fits, else computed anew each time.

    Args:
        compute: from a slice of the clients.
        slices: the blocks.
        keep: whether all of them fit into memory.
    """

    def __init__(self, compute: Callable[[slice], T], slices: Sequence[slice], keep: bool) -> None:
        self._compute, self._slices = compute, slices
        self._kept: dict[int, T] | None = {} if keep else None

    def __iter__(self) -> Iterator[tuple[slice, T]]:
        return ((block, self[block]) for block in self._slices)

    def __getitem__(self, block: slice) -> T:
        if self._kept is None:
            return self._compute(block)
        if block.start not in self._kept:
            self._kept[block.start] = self._compute(block)
        return self._kept[block.start]


class Gathered:
    """The rows of m clients, filled up to one shape, and the basis that the public rows give.

    Args:
        kernel, clients, public, landmarks, memory: as the ``KernelFederation`` takes them.

    Attributes:
        kernel: k.
        X: shape ``(m, n, d)``, n the most rows that a client has; those that are filled up count for nothing.
        y: shape ``(m, n, k)``, 0 where filled up.
        sizes: N_j, shape ``(m,)``.
        public: X_p, shape ``(N_p, d)``.
        basis: of K_pp.
        couplings: by block, ``K_XX`` and ``P = K_Xp Q``, shapes ``(b, n, n)`` and ``(b, n, r)``.
    """

    def __init__(
        self,
        kernel: str | Kernel,
        clients: Sequence[tuple[Array, Array]],
        public: Array,
        *,
        landmarks: int | None,
        memory: float,
    ) -> None:
        self.public = _inputs(public, "public rows")
        check_distinct(self.public, where="kernel federation")
        data = [_client(X, y, j, self.public.shape[1]) for j, (X, y) in enumerate(clients)]
        if not data:
            raise InvalidInput("there are no clients", where="kernel federation")
        widths = {y.shape[1] for _, y in data}
        if len(widths) > 1:
            raise InvalidInput(
                f"clients have different numbers of targets: {sorted(widths)}",
                where="kernel federation",
                mend="Give every client the same columns of y.",
            )
        self.kernel = kernel_of(kernel)
        check_definite(self.kernel, self.public)
        self.basis: Basis = (
            Exact(self.kernel, self.public)
            if landmarks is None
            else Nystrom(self.kernel, self.public, landmarks)
        )
        self.sizes = np.array([len(X) for X, _ in data])
        n = int(self.sizes.max())
        self.X = np.stack([np.concatenate([X, X[:1].repeat(n - len(X), axis=0)]) for X, _ in data])
        self.y = np.stack([np.pad(y, ((0, n - len(y)), (0, 0))) for _, y in data])
        self._real = np.arange(n) < self.sizes[:, None]
        self._memory = memory
        self.couplings = self.blocks(self._coupling, len(self.basis.eigenvalues))

    def __len__(self) -> int:
        return len(self.X)

    def blocks(self, compute: Callable[[slice], T], columns: int) -> Blocks[T]:
        """Blocks of something that takes ``columns`` numbers for every row of a client."""
        m, n = self.X.shape[:2]
        step = max(1, _NUMBERS_AT_ONCE // (n * columns))
        slices = [slice(start, min(start + step, m)) for start in range(0, m, step)]
        return Blocks(compute, slices, keep=8.0 * m * n * columns <= self._memory)

    def _coupling(self, block: slice) -> tuple[Array, Array]:
        X, real = self.X[block], self._real[block]
        own = np.stack([gram(self.kernel, rows) for rows in X])
        shared = self.basis.coordinates(X.reshape(-1, X.shape[2])).reshape(*X.shape[:2], -1)
        if not real.all():
            own *= real[:, :, None] & real[:, None, :]
            shared *= real[:, :, None]
        return own, shared

    def points(self, X: Array) -> Points:
        """Rows to predict at, shape ``(n, d)``, with their kernel values."""
        X = _inputs(X, "rows to predict")

        def between(block: slice) -> Array:
            own = self.X[block]
            values = gram(self.kernel, X, own.reshape(-1, own.shape[2]))
            return values.reshape(len(X), *own.shape[:2]).transpose(1, 0, 2)

        return Points(len(X), self.basis.coordinates(X), self.blocks(between, len(X)))


@dataclass(frozen=True)
class Points:
    """Rows to predict at.

    Attributes:
        count: n.
        coordinates: ``k(X, X_p) Q``, shape ``(n, r)``.
        between: by block, ``k(X, X_j)``, shape ``(b, n, N)``.
    """

    count: int
    coordinates: Array
    between: Blocks[Array]


def _inputs(X: Array, what: str) -> Array:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or len(X) == 0 or not np.isfinite(X).all():
        raise InvalidInput(
            f"{what} have shape {X.shape}"
            if X.ndim != 2 or len(X) == 0
            else f"{what} hold NaN or infinite values",
            where="kernel federation",
            mend="Give finite numbers of shape (rows, columns), at least one row.",
        )
    return X


def _client(X: Array, y: Array, j: int, columns: int) -> tuple[Array, Array]:
    X = _inputs(X, f"rows of client {j}")
    y = np.asarray(y, dtype=np.float64)
    where = f"kernel federation, client {j}"
    if X.shape[1] != columns:
        raise InvalidInput(
            f"its rows have {X.shape[1]} columns, public rows {columns}", where=where
        )
    if y.ndim not in (1, 2) or len(y) != len(X):
        raise InvalidInput(f"{len(X)} rows of inputs, targets of shape {y.shape}", where=where)
    if not np.isfinite(y).all():
        raise InvalidInput(
            "targets hold NaN or infinite values", where=where, mend="Drop or impute these rows."
        )
    return X, y.reshape(len(y), -1)
