"""Density ratios that are made to leave a party: from few and rounded counts of its rows."""

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
"""What a rounding error costs against what counts say, chosen by the accuracy of ratios on digits, MNIST,
Fashion-MNIST and TREC; between half and twice it little changes."""


@dataclass(frozen=True)
class Coarseness:
    """Limits on what :func:`coarse_ratios` reveal of a party's rows: its own choice, never a coordinator's.

    Rebuilding was measured to fail with the least that can be set (``docs/results/rebuilding.md``).

    Attributes:
        rows: the fewest distinct rows of a class that anything is said of, at least 20.
        directions: principal directions of the space in which rows are compared, 1 to 30.
        unit: counts are rounded to multiples of it, and smaller ones are 0; at least 2.
        sets: number of sets of public rows that it answers for in all its life; a changed row of its own, or
            a changed setting, makes another set of one. It holds at a site alone.

    Raises:
        InvalidInput: a setting below or above these.
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
    """Rounded counts of a party's rows of each group near some public rows: all that it reveals of them.

    Attributes:
        landmarks: coordinates of these public rows, shape ``(n_landmarks, k)``.
        width: h of the kernel ``exp(-|x - z|² / h)`` that they are counted with.
        values: multiples of the party's unit, shape ``(n_landmarks, n_groups)``.
    """

    landmarks: Array
    width: float
    values: Array

    @classmethod
    def of(cls, own: Array, groups: Array, public: Array, coarseness: Coarseness) -> Counts:
        """Count the rows of each group near up to :data:`LANDMARKS` public rows, each row by its kernel.

        The kernel is at least as wide as the median distance of the party's own rows, so that public rows
        that lie close together single nobody out. Rows that are the same count once. A group has zeros if
        it has fewer distinct rows than ``coarseness.rows``, or if their coordinates are less than two for
        each count: rows always have more unknowns than there are numbers.

        Args:
            own: coordinates of the party's rows, shape ``(n, k)``.
            groups: 1 where a row belongs to a group, else 0, shape ``(n, n_groups)``.
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

    Computed of the :class:`Counts` c and of public rows alone, by unconstrained least-squares importance
    fitting: with ``P = k(public, landmarks)``

        r = max(0, P (PᵀP + ridge I)⁻¹ c),      ridge ~ unit / max c,

    so that whoever sees r knows the counts at best.

    Args:
        own: coordinates of the party's rows along principal directions
            (:func:`consilience.core.numerics.feature_space.principal_directions`), shape ``(n, k)``.
        groups: 1 where a row belongs to a group, else 0, shape ``(n, n_groups)``.
        public: coordinates of the public rows, shape ``(N, k)``.
        coarseness: the party's settings; the first of its ``directions`` are looked at.

    Returns:
        Shape ``(N, n_groups)``, from 0 to the largest count of the group.

    Source:
        Kanamori, Hido & Sugiyama 2009 (the fit). To round counts and leave out small ones is the practice of
        statistical offices (Hundepool et al. 2012, "Statistical Disclosure Control").
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
