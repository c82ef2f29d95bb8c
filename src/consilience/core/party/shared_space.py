"""Space in which parties compare rows with public ones: fitted to the public rows alone, equal for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import issparse

from consilience.core.messages.schema import Public
from consilience.core.numerics.density import PublicRatio
from consilience.core.numerics.encoder import Encoder
from consilience.core.numerics.feature_space import (
    FeatureSpace,
    common_columns,
    principal_directions,
    public_feature_space,
    single_words,
)
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array, same_view

V = TypeVar("V")


class SharedSpace:
    """Space of the public rows and their places in it, the same for all parties.

    A pickled space contains only the public rows, the encoder and the seed; unpickling computes it again.

    Attributes:
        seed: seed of the federation, or 0.
    """

    def __init__(self, public: Public, seed: int) -> None:
        rng = stream(seed, "coordinator", 0, "patches")
        self.space = public_feature_space(public.X, rng, public.encoder)
        self._made_of, self.seed = (public.X, public.encoder), seed
        self._computed: dict[str, Array] = {}
        self._ratios: dict[float, PublicRatio] = {}
        self._last: tuple[Array, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (*self._made_of, self.seed)

    def features(self, X: Array) -> Any:
        """Compute the features of rows; those of public rows and of the latest other rows are cached."""
        if same_view(self._made_of[0], X):
            return self.space.public
        last = self._last  # read once: parties may run side by side
        if last is None or not same_view(last[0], X):
            self._last = last = X, self.space(X)
        return last[1]

    def coordinates(self, X: Array) -> Array:
        """Compute the coordinates of rows along the principal directions, shape ``(n, k)``."""
        return self._directions(self.space(X))

    @cached_property
    def public(self) -> Array:
        """Coordinates of the public rows."""
        return self._directions(self.space.public)

    @cached_property
    def words(self) -> Callable[[Array], Any]:
        """Function from rows to features; for texts, only the words that occur in two public texts."""
        public = self.space.public
        kept = common_columns(public) if issparse(public) else np.asarray
        return lambda X: kept(self.space(X))

    @cached_property
    def public_words(self) -> Any:
        """Features of the public rows by the function :attr:`words`."""
        public = self.space.public
        return common_columns(public)(public) if issparse(public) else public

    @cached_property
    def of_sums(self) -> FeatureSpace:
        """Space for class sums; for texts without an encoder, the space of their single words."""
        rows, encoder = self._made_of
        return single_words(rows) if encoder is None and rows.dtype.kind in "UO" else self.space

    def once(self, question: str, compute: Callable[[], Array]) -> Array:
        """Return the cached value of a question about public rows and seed, computed on the first call."""
        return once(self._computed, question, compute)

    def dense_features(self, X: Array) -> Array:
        """Compute dense features and a constant: those of the space, or coordinates if it is sparse."""
        sparse = issparse(self.space.public)
        told = self.coordinates(X) if sparse else np.asarray(self.space(X), dtype=np.float64)
        return np.hstack([told, np.ones((len(told), 1))])

    @cached_property
    def _directions(self) -> Callable[[Any], Array]:
        return principal_directions(self.space.public)

    def parts(self, *, halved: bool) -> list[tuple[Array, Array, Callable[[Any], Array]]]:
        """Split the public rows for a judgement by held-out rows.

        Args:
            halved: whether each half is judged by the other half; fewer than 20 rows are not halved.

        Returns:
            For each part, the indices of the judged rows, the indices of the judging rows, and the principal
            directions of the judging rows.
        """
        count = self.space.public.shape[0]
        everything = np.arange(count)
        if not halved or count < _FEWEST_HALVED:
            return [(everything, everything, self._directions)]
        return self._halves

    @cached_property
    def _halves(self) -> list[tuple[Array, Array, Callable[[Any], Array]]]:
        count = self.space.public.shape[0]
        rows = stream(self.seed, "coordinator", 0, "halves").permutation(count)
        one, other = np.sort(rows[: count // 2]), np.sort(rows[count // 2 :])
        return [
            (judged, others, principal_directions(self.space.public[others]))
            for judged, others in ((one, other), (other, one))
        ]

    def ratio(self, ridge: float) -> PublicRatio:
        """Make the density ratio to the public rows with this ridge, once."""

        def made() -> PublicRatio:
            if self._ratios:
                return next(iter(self._ratios.values())).with_ridge(ridge)
            rng = stream(self.seed, "coordinator", 0, "landmarks")
            return PublicRatio(self.space.public, rng, ridge=ridge)

        return once(self._ratios, ridge, made)


def public_features(public: Public, seed: int) -> Array:
    """Compute the features of public rows; parties sum the second moments of such features of private rows.

    Args:
        public: the public rows.
        seed: seed of the federation.

    Returns:
        Shape ``(n_public, n_features)``.
    """
    return shared_space(public, seed).dense_features(public.X)


_FEWEST_HALVED = 20
"""Least number of public rows for a judgement of each half by the other half."""


def shared_space(public: Public, seed: int) -> SharedSpace:
    """Return the space of public rows and a seed, made once for all parties in this process."""
    return once(_COMMON.setdefault(public, {}), seed, lambda: SharedSpace(public, seed))


def _made_again(X: Array, encoder: Encoder | None, seed: int) -> SharedSpace:
    return shared_space(Public(X).with_encoder(encoder), seed)


_MOST_KEPT = 16
"""Largest number of cached answers; the oldest is dropped first, and computed again on demand."""

_COMMON: WeakKeyDictionary[Public, dict[int, SharedSpace]] = WeakKeyDictionary()
"""Spaces by public rows and seed, made once for all parties in this process."""


def once(kept: dict[Any, V], key: Any, compute: Callable[[], V]) -> V:
    """Return the cached value of a key, computed on the first call.

    Args:
        kept: values by key; the oldest of more than 16 is dropped.
        key: key of the value.
        compute: makes the value.

    Returns:
        The value.
    """
    if key not in kept:
        value = compute()
        while len(kept) >= _MOST_KEPT:
            del kept[next(iter(kept))]
        kept[key] = value
    return kept[key]
