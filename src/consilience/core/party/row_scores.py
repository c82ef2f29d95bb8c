"""Scores of each public row in addition to predictions: how similar a party's own rows are to it.

Log-densities are computed from the model's logits in every round. The other scores depend on inputs and
labels alone, and are computed once. Rows are compared in one space, made of the public rows, which parties in
one process share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.numerics.class_gaussians import ClassGaussians
from consilience.core.numerics.coarse_ratios import coarse_ratios
from consilience.core.numerics.density import near_public, selection
from consilience.core.party.joined_rows import JoinedRows
from consilience.core.party.rules import PartyRules
from consilience.core.party.shared_space import SharedSpace, once, shared_space
from consilience.core.validation.arrays import Array

_RIDGE = 0.3
"""Ridge of the density ratio for importance weights of public rows."""

COMPARED_SETS = "coarse ratios"
"""Kind of question under which the outbox counts the public sets that own rows were compared with."""


class Scores:
    """Scores of the public rows by one party.

    Args:
        rows: rows of the party in its federation.
        rules: rules of the party, which set the precision of density ratios.
    """

    def __init__(self, rows: JoinedRows, rules: PartyRules) -> None:
        self.rows, self._coarseness = rows, rules.coarseness
        self._exact = rules.ratios == "exact"
        self._computed: dict[str, Array] = {}

    def log_density(
        self, logits: Callable[[Array], Array], public: Array
    ) -> tuple[Array, tuple[str, ...]]:
        """Compute the log-density of each public row's logits, and notes for the ledger.

        The density (:class:`~.class_gaussians.ClassGaussians`) is fitted to the logits of the calibration
        rows. If a class has fewer than two of these, its component has no width, and the density is fitted to
        the training rows instead. Their logits are overconfident. A party that gives no exact density ratios
        refuses this fallback, because such a density and the logits can reveal the features of the only row
        of a class.

        Args:
            logits: maps inputs to the model's logits.
            public: logits of the public rows, shape ``(n_public, n_classes)``.

        Returns:
            Log-densities, shape ``(n_public,)``, and the notes.

        Raises:
            InvalidInput: a class has fewer than two calibration rows, and the party gives no exact ratios.
        """
        X, targets = self.rows.held_out
        notes: tuple[str, ...] = ()
        counts = targets.sum(axis=0)[self.rows.train[1].any(axis=0)]
        if len(X) == 0 or counts.min() < 2:
            if not self._exact:
                raise InvalidInput(
                    "a class has fewer than two calibration rows, and a density of the training rows could "
                    "reveal one",
                    where=f"party {self.rows.party!r}",
                    mend="Set a larger calibration share, or take an aggregator of predictions alone: avg.",
                )
            short = int((counts < 2).sum())
            notes = (
                f"fewer than two calibration rows for {short} of {len(counts)} classes: "
                "the density is fitted to the training rows",
            )
            X, targets = self.rows.train
        density = ClassGaussians.fit(logits(X), targets.argmax(axis=1))
        return density.log_density(public), notes

    def selection(self, quantile: float, reference: str) -> tuple[Array, tuple[str, ...]]:
        """Select public rows as likely as the party's own rows, and give notes for the ledger.

        The density ratio is fitted to the training rows. The calibration rows set its threshold. Without
        calibration rows the training rows set it, although they look more likely than other rows of their
        kind. If the reference is ``"public"``, each half of the public rows is judged by a space and a
        density of the other half. Rows used in the fit would have smaller ratios and longer directions.

        Args:
            quantile: as in :func:`~consilience.core.numerics.density.selection`.
            reference: as in :func:`~consilience.core.numerics.density.selection`.

        Returns:
            Mark of the selected rows, shape ``(n_public,)``, bool, and the notes.
        """
        held_out = self.rows.held_out[0]
        notes: tuple[str, ...] = ()
        if not len(held_out):
            held_out = self.rows.train[0]
            notes = ("no calibration rows: the training rows set what is selected",)

        def computed() -> Array:
            space, found = self._common.space, np.zeros(len(self.rows.public), dtype=bool)
            rng = self.rows.stream(0, "selection")
            train, held = space(self.rows.train[0]), space(held_out)
            for judged, others, directions in self._common.parts(halved=reference == "public"):
                found[judged] = selection(
                    directions(train),
                    directions(held),
                    directions(space.public[others]),
                    reference=reference,
                    quantile=quantile,
                    rng=rng,
                    judged=directions(space.public[judged]),
                )
            return found

        return once(self._computed, f"selection {quantile!r} {reference}", computed), notes

    def density_ratios(self, ridge: float, *, calibration: bool = False) -> Array:
        """Compute the density of private rows of each class relative to public rows, at each public row.

        The ratio is estimated from the training rows and scaled to the number of all private rows.
        Calibration rows are excluded, because a teacher that uses their labels would perform better on them
        than on other rows.

        Args:
            ridge: ridge of :class:`~consilience.core.numerics.density.PublicRatio`, above 0.
            calibration: use the calibration rows instead, without scaling; the default is false.

        Returns:
            Shape ``(n_public, n_classes)``.

        Raises:
            InvalidInput: the party does regression, holds out no rows, or no two public rows differ.
        """
        self._check_classes()
        X, targets = self.rows.held_out if calibration else self.rows.train
        if not len(X):
            raise InvalidInput(
                "it has no calibration rows to choose by",
                where=f"party {self.rows.party!r}",
                mend="Give a calibration share above 0, such as 0.2.",
            )

        def computed() -> Array:
            counted = 1.0 if calibration else self._share
            return self._common.ratio(ridge)(self._common.features(X), targets * counted)

        return once(self._computed, f"density ratios {ridge!r} {calibration}", computed)

    def input_ratios(self, ridge: float) -> Array:
        """Compute the density of private rows relative to public rows, at each public row.

        The ratio is estimated from the training rows and scaled to the number of all private rows.

        Args:
            ridge: ridge of :class:`~consilience.core.numerics.density.PublicRatio`, above 0.

        Returns:
            Shape ``(n_public,)``.

        Raises:
            InvalidInput: no two public rows differ.
        """
        X = self.rows.train[0]

        def computed() -> Array:
            counts = np.full((len(X), 1), self._share)
            return self._common.ratio(ridge)(self._common.features(X), counts)[:, 0]

        return once(self._computed, f"input ratios {ridge!r}", computed)

    def importance(self) -> Array | None:
        """Weight public rows by their similarity to own rows, labelled or not: ``2 r / (r + 1)``.

        r is the density of own rows over that of the public rows. Each weight is below 2. Training with these
        weights focuses a model on the region where own rows and public rows both lie. The weights use no
        labels.

        Returns:
            Shape ``(n_public,)``; ``None`` if there are no own rows, or if no ratio can be fitted because all
            public rows are equal.

        Source:
            Yamada et al. 2013, "Relative density-ratio estimation for robust distribution comparison",
            equation 2 with α = 1/2.
        """
        X, n_public = self.rows.used[0], len(self.rows.public)
        if not len(X):
            return None

        def computed() -> Array:
            return self._common.ratio(_RIDGE)(self._common.space(X), np.ones((len(X), 1)))[:, 0]

        try:
            near = once(self._computed, "importance", computed)
        except InvalidInput:
            return None
        ratio = np.maximum(near, 0) * n_public / len(X)
        return np.asarray(2 * ratio / (ratio + 1))

    def calibration_sums(self) -> tuple[Array, tuple[str, ...]]:
        """Sum the targets of the calibration rows at their nearest public rows, and give notes.

        Returns:
            Shape ``(n_public, n_classes)``, and the notes. For values, shape ``(n_public, 1 + n_outputs)``,
            with the number of rows first.

        Raises:
            InvalidInput: no two public rows differ.
        """
        X, groups = self.rows.held_out
        if self.rows.agreement.kind == "regression":
            groups = np.hstack([np.ones((len(X), 1)), groups])
        if not len(X):
            note = "no calibration rows: it has no say in how others are weighed"
            return np.zeros((len(self.rows.public), groups.shape[1])), (note,)

        def computed() -> Array:
            return near_public(self._common.space(X), groups, self._common.space.public)

        return once(self._computed, "calibration sums", computed), ()

    def coarse_ratios(self) -> tuple[Array, tuple[str, ...]]:
        """Compute quantised density ratios from rounded counts near a few public rows.

        The ratios (:func:`~consilience.core.numerics.coarse_ratios.coarse_ratios`) use all rows and a fixed
        seed. A coordinator that restarts with another seed therefore gains no new information. Because
        calibration rows are included, an evaluation on them is slightly too favourable.

        Returns:
            Ratios, shape ``(n_public, n_classes)``, and the parts that identify the question, for the count
            of the party's outbox.

        Raises:
            InvalidInput: the party does regression, or no two public rows differ.
        """
        self._check_classes()
        X, targets = self.rows.used

        def computed() -> Array:
            own = self._fixed.coordinates(X)
            return coarse_ratios(own, targets, self._fixed.public, self._coarseness)

        ratios = once(self._computed, f"coarse ratios {self._coarseness!r}", computed)
        return ratios, (self.compared_with, Public(X).key, repr(self._coarseness))

    @property
    def _share(self) -> float:
        """Ratio of the number of used private rows to the number of training rows."""
        return len(self.rows.used[0]) / len(self.rows.train[0])

    def _check_classes(self) -> None:
        """Raise ``InvalidInput`` for a regression, which has no classes to compare."""
        if self.rows.agreement.kind == "regression":
            raise InvalidInput(
                "density ratios are of classes, it has none", where=f"party {self.rows.party!r}"
            )

    def once(self, question: str, compute: Callable[[], Array]) -> Array:
        """Return the cached answer to a question about the data, computed on the first call."""
        return once(self._computed, question, compute)

    @property
    def space(self) -> SharedSpace:
        """Space in which all parties compare rows."""
        return self._common

    @property
    def compared_with(self) -> str:
        """Digest of the public rows, and of the encoder if there is one."""
        return f"{self.rows.agreement.public} {self.rows.agreement.encoder}".rstrip()

    @property
    def _common(self) -> SharedSpace:
        return shared_space(self.rows.public, self.rows.agreement.seed)

    @property
    def _fixed(self) -> SharedSpace:
        """Common space with seed 0, which no coordinator can change."""
        return shared_space(self.rows.public, 0)
