"""What a party says of each public row beside its predictions: whether it knows rows like this one.

By its model's logits, anew in every round; or by inputs alone, which says the same in every round and is
computed once. Inputs are compared in one space, made of the public rows, which parties in one process share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from consilience.errors import InvalidInput
from consilience.messages.replies import Agreement, Public
from consilience.numerics.density import (
    ClassGaussians,
    Coarseness,
    PublicRatio,
    coarse_ratios,
    selection,
)
from consilience.numerics.feature_space import principal_directions, shared_space
from consilience.numerics.membership import Privacy, certainties
from consilience.numerics.randomness import stream
from consilience.validation.arrays import Array

Rows = tuple[Array, Array]
"""Inputs ``(n, ...)`` and targets ``(n, n_outputs)``."""
V = TypeVar("V")


@dataclass(frozen=True)
class Scores:
    """What one party says of the public rows.

    Attributes:
        party: its name.
        agreement: what the federation agreed on.
        public: the public rows.
        rows: all its private rows.
        train: those that are trained on.
        held_out: those for calibration; there may be none.
        secret: what the party's random streams are mixed with.
    """

    party: str
    agreement: Agreement
    public: Public
    rows: Rows
    train: Rows
    held_out: Rows
    secret: bytes = field(repr=False)
    _said: dict[str, Array] = field(default_factory=dict, init=False)

    def log_density(
        self, logits: Callable[[Array], Array], public: Array
    ) -> tuple[Array, tuple[str, ...]]:
        """How typical each public row's logits are, shape ``(n_public,)``, and notes for the ledger.

        The density (:class:`~consilience.numerics.density.ClassGaussians`) is fitted to the logits of the
        calibration rows. Where a class has fewer than two of these, its component has no width of its
        own, and the density is fitted to the training rows instead, whose logits are surer than they
        should be.

        Args:
            logits: inputs to the model's logits.
            public: those of the public rows, shape ``(n_public, n_classes)``.
        """
        X, targets = self.held_out
        notes: tuple[str, ...] = ()
        counts = targets.sum(axis=0)[self.train[1].any(axis=0)]
        if len(X) == 0 or counts.min() < 2:
            short = int((counts < 2).sum())
            notes = (
                f"fewer than two calibration rows for {short} of {len(counts)} classes: "
                "the density is fitted to the training rows",
            )
            X, targets = self.train
        density = ClassGaussians.fit(logits(X), targets.argmax(axis=1))
        return density.log_density(public), notes

    def certainties(
        self,
        regularization: float,
        epsilon: float | None,
        delta: float,
        *,
        drawn: dict[str, Array],
    ) -> Array:
        """How surely each public row is of the party's own kind, shape ``(n_public,)``, in (0, 1].

        Those with noise are drawn once for each question, that is rows, public rows, seed and settings, and
        kept for good: noise that was drawn anew could be averaged away. It does not come from the seed,
        which the coordinator knows. What all questions spend, :func:`spent` says.

        Args:
            regularization: λ of :func:`~consilience.numerics.membership.certainties`.
            epsilon: ε of :class:`~consilience.numerics.membership.Privacy`; ``None`` for no noise.
            delta: δ of it.
            drawn: where those with noise are kept.
        """

        def computed() -> Array:
            return certainties(
                self._common.coordinates(self.train[0]),
                self._common.public,
                regularization=regularization,
                privacy=None if epsilon is None else Privacy(epsilon, delta),
                rng=np.random.default_rng(),
            )

        name = f"certainties {epsilon!r} {delta!r} {regularization!r}"
        if epsilon is None:
            return _once(self._said, name, computed)
        name += f" {self.agreement.seed} {self.agreement.public} {Public(self.train[0]).key}"
        if name not in drawn:
            drawn[name] = computed()
        return drawn[name]

    def selection(self, quantile: float, reference: str) -> tuple[Array, tuple[str, ...]]:
        """Which public rows are as likely as the party's own, ``(n_public,)``, and notes for the ledger.

        The density ratio is fitted to the training rows, and its threshold is set by the calibration
        rows; where there are none, by the training rows, which seem likelier than others of their kind.

        Args:
            quantile: as in :func:`~consilience.numerics.density.selection`.
            reference: as there.
        """
        held_out = self.held_out[0]
        notes: tuple[str, ...] = ()
        if not len(held_out):
            held_out = self.train[0]
            notes = ("no calibration rows: the training rows set what is selected",)

        def computed() -> Array:
            return selection(
                self._common.coordinates(self.train[0]),
                self._common.coordinates(held_out),
                self._common.public,
                reference=reference,
                quantile=quantile,
                rng=stream(self.agreement.seed, self.party, 0, "selection", secret=self.secret),
            )

        return _once(self._said, f"selection {quantile!r} {reference}", computed), notes

    def density_ratios(self, ridge: float, *, calibration: bool = False) -> Array:
        """How much denser the private rows of each class lie than the public ones, at each public row.

        Of all private rows, those held out too.

        Args:
            ridge: of :class:`~consilience.numerics.density.PublicRatio`, above 0.
            calibration: of the rows held out alone.

        Returns:
            Shape ``(n_public, n_classes)``.

        Raises:
            InvalidInput: the party does regression, holds out no rows, or no two public rows differ.
        """
        self._check_classes()
        X, targets = self.held_out if calibration else self.rows
        if not len(X):
            raise InvalidInput(
                "it has no calibration rows to choose by",
                where=f"party {self.party!r}",
                mend="Give a calibration share above 0, such as 0.2.",
            )

        def computed() -> Array:
            return self._common.ratio(ridge)(self._common.space(X), targets)

        return _once(self._said, f"density ratios {ridge!r} {calibration}", computed)

    def coarse_ratios(self, coarseness: Coarseness, *, drawn: dict[str, Array]) -> Array:
        """Density ratios by round counts near few public rows (:func:`.density.coarse_ratios`).

        It depends on no seed: a coordinator that begins anew with another one is told nothing new.

        Args:
            coarseness: the party's settings.
            drawn: where it is put down for good that something was said of these public rows.

        Returns:
            Shape ``(n_public, n_classes)``.

        Raises:
            InvalidInput: the party does regression, or no two public rows differ.
        """
        self._check_classes()

        X, targets = self.rows

        def computed() -> Array:
            own = self._fixed.coordinates(X)
            return coarse_ratios(own, targets, self._fixed.public, coarseness)

        said = _once(self._said, f"{_SETS} {coarseness!r}", computed)
        drawn[f"{_SETS} {self.agreement.public} {Public(X).key} {coarseness!r}"] = np.zeros(0)
        return said

    def _check_classes(self) -> None:
        """Raise ``InvalidInput`` where there are no classes to compare by."""
        if self.agreement.kind == "regression":
            raise InvalidInput(
                "density ratios are of classes, it has none", where=f"party {self.party!r}"
            )

    @property
    def _common(self) -> _Common:
        return _common(self.public, self.agreement.seed)

    @property
    def _fixed(self) -> _Common:
        """The space that no coordinator's seed can change."""
        return _common(self.public, 0)


_SETS = "coarse ratios"


def spent(drawn: Iterable[str]) -> tuple[float, float]:
    """ε and δ of all certainties with noise that were drawn, by their names: privacy losses add up."""
    each = [tuple(map(float, name.split()[1:3])) for name in drawn if not name.startswith(_SETS)]
    return sum(epsilon for epsilon, _ in each), sum(delta for _, delta in each)


def compared_sets(drawn: Iterable[str]) -> int:
    """Of how many sets of public rows coarse ratios were said, by the names of what was put down."""
    return sum(name.startswith(_SETS) for name in drawn)


class _Common:
    """What is the same for all parties: the space of the public rows, and where these lie in it."""

    def __init__(self, public: Array, seed: int) -> None:
        self.space = shared_space(public, stream(seed, "coordinator", 0, "patches"))
        self._seed = seed
        self._ratios: dict[float, PublicRatio] = {}

    def coordinates(self, X: Array) -> Array:
        return self._directions(self.space(X))

    @cached_property
    def public(self) -> Array:
        return self._directions(self.space.public)

    @cached_property
    def _directions(self) -> Callable[[Any], Array]:
        return principal_directions(self.space.public)

    def ratio(self, ridge: float) -> PublicRatio:
        rng = stream(self._seed, "coordinator", 0, "landmarks")
        return _once(self._ratios, ridge, lambda: PublicRatio(self.space.public, rng, ridge=ridge))


def _common(public: Public, seed: int) -> _Common:
    return _once(_COMMON.setdefault(public, {}), seed, lambda: _Common(public.X, seed))


_MOST_KEPT = 16
"""Answers to different questions that are kept; whoever asks on has the first computed anew."""

_COMMON: WeakKeyDictionary[Public, dict[int, _Common]] = WeakKeyDictionary()
"""By the public rows and the seed: made once for all parties in this process."""


def _once(kept: dict[Any, V], key: Any, compute: Callable[[], V]) -> V:
    if key not in kept:
        value = compute()
        while len(kept) >= _MOST_KEPT:
            del kept[next(iter(kept))]
        kept[key] = value
    return kept[key]
