"""Density ratios for release by a party, computed from few and rounded counts of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from consilience.core.numerics.density import median_distance, squared_distances
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows

LANDMARKS = 100
"""Public rows that rows are counted near, at most: as many whole numbers leave of a class."""

_CAUTION = 6.0
"""Coefficient of the ridge, relative to the rounding unit. Chosen by the accuracy of ratios on digits, MNIST,
Fashion-MNIST and TREC; values between half and twice this one give similar results."""


@dataclass(frozen=True)
class Coarseness:
    """Limits on the information in :func:`coarse_ratios` about a party's rows; only the party sets them.

    Reconstruction of rows failed in measurements with the lowest allowed settings
    (``docs/results/rebuilding.md``).

    Attributes:
        rows: minimum number of distinct rows of a class for non-zero counts, at least 20.
        directions: number of principal directions used to compare rows, 1 to 30.
        unit: counts are rounded to multiples of this unit, and smaller counts become 0; at least 2.
        sets: number of sets of public rows that the party answers for over its lifetime; after a change of
            its rows or settings, the same public rows count as another set. Enforced only at a site.

    Raises:
        InvalidInput: a setting out of range.
    """

    rows: int = 20
    directions: int = 20
    unit: int = 5
    sets: int = 1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rows", 20, None),
            ("directions", 1, 30),
            ("unit", 2, None),
            ("sets", 1, None),
        ):
            value = getattr(self, name)
            where = "density_ratios"
            check_number(name, value, at_least=least, at_most=most, whole=True, where=where)


@prints_no_rows
@dataclass(frozen=True)
class Counts:
    """Rounded counts of a party's rows of each group near some public rows: the only released information.

    Attributes:
        landmarks: coordinates of these public rows (landmarks), shape ``(n_landmarks, k)``.
        width: h of the counting kernel ``exp(-|x - z|² / h)``.
        values: multiples of the party's unit, shape ``(n_landmarks, n_groups)``.
    """

    landmarks: Array
    width: float
    values: Array

    @classmethod
    def of(cls, own: Array, groups: Array, public: Array, coarseness: Coarseness) -> Counts:
        """Count the rows of each group near up to :data:`LANDMARKS` public rows, weighted by the kernel.

        The kernel is at least as wide as the median distance of the party's own rows, so that dense public
        rows cannot isolate a single private row. Duplicate rows count once. The counts of a group are 0 if it
        has fewer distinct rows than ``coarseness.rows``, or fewer than two coordinates for each count. The
        unknown coordinates therefore always outnumber the released counts.

        Args:
            own: coordinates of the party's rows, shape ``(n, k)``.
            groups: 1 if a row belongs to a group, else 0, shape ``(n, n_groups)``.
            public: coordinates of the public rows, shape ``(N, k)``.
            coarseness: the party's settings.
        """
        own, public = own[:, : coarseness.directions], public[:, : coarseness.directions]
        chosen = np.sort(np.random.default_rng(0).permutation(len(public))[:LANDMARKS])
        landmarks = public[chosen]
        width = max(median_distance(landmarks), median_distance(own))
        fewest = max(coarseness.rows, 2 * len(landmarks) / public.shape[1])
        values = np.zeros((len(landmarks), groups.shape[1]))
        for group, belongs in enumerate(groups.T > 0):
            rows = np.unique(own[belongs].round(6), axis=0)
            if len(rows) >= fewest:
                values[:, group] = cls(landmarks, width, values).near(rows).sum(axis=0)
        values[values < coarseness.unit] = 0
        return cls(landmarks, width, np.rint(values / coarseness.unit) * coarseness.unit)

    def near(self, rows: Array) -> Array:
        """Kernel of each row and each landmark, shape ``(n, n_landmarks)``, in (0, 1]."""
        return np.asarray(np.exp(-squared_distances(rows, self.landmarks) / self.width))


def coarse_ratios(own: Array, groups: Array, public: Array, coarseness: Coarseness) -> Array:
    """Estimate density ratios of each group of rows to the public rows from few and rounded counts.

    The ratios r depend only on the :class:`Counts` c and the public rows. They are fitted by unconstrained
    least-squares importance fitting: with ``P = k(public, landmarks)``

        r = max(0, P (PᵀP + ridge I)⁻¹ c),      ridge ~ unit / max c,

    so that an observer of r learns at most the counts.

    Args:
        own: coordinates of the party's rows along principal directions
            (:func:`consilience.core.numerics.feature_space.principal_directions`), shape ``(n, k)``.
        groups: 1 if a row belongs to a group, else 0, shape ``(n, n_groups)``.
        public: coordinates of the public rows, shape ``(N, k)``.
        coarseness: the party's settings; only the first ``directions`` coordinates are used.

    Returns:
        Shape ``(N, n_groups)``, from 0 to the largest count of the group.

    Source:
        Kanamori, Hido & Sugiyama 2009 (the fit). Rounding counts and suppressing small ones is the practice
        of statistical offices (Hundepool et al. 2012, "Statistical Disclosure Control").
    """
    counts = Counts.of(own, groups, public, coarseness)
    near = counts.near(public[:, : coarseness.directions])
    products = near.T @ near
    found = np.zeros((len(public), groups.shape[1]))
    for group in np.flatnonzero(counts.values.any(axis=0)):
        values = counts.values[:, group]
        ridge = _CAUTION * coarseness.unit / values.max() * len(public) / len(values)
        system = products + ridge * np.eye(len(values))
        ratios = near @ cho_solve(cho_factor(system, overwrite_a=True), values)
        found[:, group] = ratios.clip(0, values.max())
    return found
