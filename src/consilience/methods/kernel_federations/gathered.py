"""Quantities independent of the regularisation: clients' rows, public rows, and the kernel between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import (
    Kernel,
    check_definite,
    check_distinct,
    gram,
    kernel_of,
)
from consilience.core.validation.arrays import Array, unmasked
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.kernel_federations.basis import Basis, Exact, Nystrom

T = TypeVar("T")

_NUMBERS_AT_ONCE = 4_000_000
"""Numbers in a matrix for a block of clients: 32 MB."""


class Blocks(Generic[T]):
    """Results for blocks of clients, cached if they fit into memory and recomputed at each use otherwise.

    The class stores no reference to the computing function, because a reference cycle would keep large
    objects alive after their use.

    Args:
        slices: the blocks.
        keep: cache the results; set it if all of them fit into memory.
    """

    def __init__(self, slices: Sequence[slice], keep: bool) -> None:
        self._slices, self._keep = slices, keep
        self._cache: dict[int, T] = {}

    def each(self, compute: Callable[[slice], T]) -> Iterator[tuple[slice, T]]:
        """Yield every block with its result; ``compute`` must be the same function in every call."""
        return ((block, self.one(block, compute)) for block in self._slices)

    def one(self, block: slice, compute: Callable[[slice], T]) -> T:
        """Return the result for one block."""
        if block.start in self._cache:
            return self._cache[block.start]
        computed = compute(block)
        if self._keep:
            self._cache[block.start] = computed
        return computed


class Gathered:
    """The rows of m clients, padded to one shape, and the basis of the public rows.

    The arguments ``kernel``, ``clients``, ``public``, ``landmarks`` and ``memory`` are as in
    ``KernelFederation``.

    Attributes:
        kernel: k.
        X: shape ``(m, n, d)``, n the largest number of rows of a client; padded rows have no effect.
        y: shape ``(m, n, k)``, 0 for padded rows.
        sizes: N_j, shape ``(m,)``.
        public: X_p, shape ``(N_p, d)``.
        basis: eigenbasis of K_pp.
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
        self._couplings: Blocks[tuple[Array, Array]] = self.blocks(len(self.basis.eigenvalues))

    def __len__(self) -> int:
        return len(self.X)

    def blocks(self, columns: int) -> Blocks[Any]:
        """Make blocks for a result with ``columns`` numbers per row of a client."""
        m, n = self.X.shape[:2]
        step = max(1, _NUMBERS_AT_ONCE // (n * columns))
        slices = [slice(start, min(start + step, m)) for start in range(0, m, step)]
        return Blocks(slices, keep=8.0 * m * n * columns <= self._memory)

    def couplings(self) -> Iterator[tuple[slice, tuple[Array, Array]]]:
        """Yield, per block, ``K_XX`` and ``P = K_Xp Q``, shapes ``(b, n, n)`` and ``(b, n, r)``."""
        return self._couplings.each(self._coupling)

    def coupling(self, block: slice) -> tuple[Array, Array]:
        """Return ``K_XX`` and ``P`` of one block."""
        return self._couplings.one(block, self._coupling)

    def _coupling(self, block: slice) -> tuple[Array, Array]:
        X, real = self.X[block], self._real[block]
        own = np.stack([gram(self.kernel, rows) for rows in X])
        shared = self.basis.coordinates(X.reshape(-1, X.shape[2])).reshape(*X.shape[:2], -1)
        if not real.all():
            own *= real[:, :, None] & real[:, None, :]
            shared *= real[:, :, None]
        return own, shared

    def points(self, X: Array) -> Points:
        """Prepare rows to predict at, shape ``(n, d)``, with their kernel values."""
        X = _inputs(X, "rows to predict")
        return Points(X, self.basis.coordinates(X), self.blocks(len(X)))

    def between(self, points: Points) -> Iterator[tuple[slice, Array]]:
        """By block, ``k(X, X_j)`` for rows X to predict at, shape ``(b, n_rows, n)``."""

        def kernel_values(block: slice) -> Array:
            own = self.X[block]
            values = gram(self.kernel, points.X, own.reshape(-1, own.shape[2]))
            return values.reshape(len(points.X), *own.shape[:2]).transpose(1, 0, 2)

        return points.between.each(kernel_values)


@prints_no_rows
@dataclass(frozen=True)
class Points:
    """Rows to predict at.

    Attributes:
        X: shape ``(n, d)``.
        coordinates: ``k(X, X_p) Q``, shape ``(n, r)``.
        between: the kernel between them and the clients' rows, once it has been computed.
    """

    X: Array
    coordinates: Array
    between: Blocks[Array]


def _inputs(X: Array, what: str) -> Array:
    X = np.asarray(unmasked(X), dtype=np.float64)
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
    y = np.asarray(unmasked(y), dtype=np.float64)
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
