"""Ratios of the densities of rows.

Rows can be rebuilt from exact ratios (:class:`PublicRatio`), which are for parties that trust whoever asks;
:func:`coarse_ratios` are made to leave a party.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import issparse

from consilience.validation.arrays import Array
from consilience.validation.numbers import check_number

MOST_LANDMARKS = 1000
"""Public rows that a density ratio is made of, at most, since its cost is cubic in them."""


class PublicRatio:
    """Ratio of the density of any rows to that of the public rows, at each public row.

    With the kernel ``k(x, z) = exp(-|x - z|² / h)``, h the median squared distance of public rows, the
    function r of least

        (1/2) sum_public r(x)² - sum_rows r(z) + (ridge/2) |r|²

    estimates ``(n / N) p_rows(x) / p_public(x)``: how many of the n rows come on one of the N public rows
    at x. On the public rows it is

        r = (K + ridge I)⁻¹ k(public, rows) 1,      K = k(public, public):

    the rows' kernel sums, freed of how dense the public rows themselves lie. It is linear in the rows:
    classes, or parties, add up. Nothing in it but the last factor depends on the rows, so that ratios of
    different parties can be compared.

    **It gives rows away.** Whoever knows the public rows solves for the kernel sums, and from these for the
    rows of a class that has few (``benchmarks/rebuilding.py``): for simulations, and for nobody else.

    Args:
        public: features of the public rows, shape ``(N, d)``, dense or sparse.
        rng: draws the landmarks; the same at every party.
        ridge: above 0; added to the count of one that a public row has by itself.
        most_landmarks: public rows that r is made of, where there are more (Nyström); the cost is cubic in
            them.

    Source:
        Kanamori, Suzuki & Sugiyama 2012 (kernel unconstrained least-squares importance fitting), with
        the public rows as the denominator.

    >>> ratio = PublicRatio(np.array([[0.0], [9.0]]), np.random.default_rng(0), ridge=0.5)
    >>> ratio(np.array([[0.0], [0.0], [0.0]]), np.ones((3, 1))).round(1).tolist()
    [[1.9], [0.3]]
    """

    def __init__(
        self,
        public: Any,
        rng: np.random.Generator,
        *,
        ridge: float,
        most_landmarks: int = MOST_LANDMARKS,
    ) -> None:
        count = public.shape[0]
        chosen = np.sort(rng.permutation(count)[:most_landmarks])
        self._landmarks, self._features = public[chosen], public
        apart = _squared_distances(self._landmarks, self._landmarks)
        self._width = _median_of(apart)
        self._near = np.exp(-_squared_distances(public, self._landmarks) / self._width)
        self._products = self._near.T @ self._near
        self._penalty = np.exp(-apart / self._width)
        self._solve(ridge)

    def _solve(self, ridge: float) -> None:
        system = self._products + ridge * self._penalty
        # Public rows that occur twice leave it singular, and rounding may then make it indefinite.
        system[np.diag_indices_from(system)] += _JITTER * np.trace(system)
        self._factor = cho_factor(system, overwrite_a=True)

    def with_ridge(self, ridge: float) -> PublicRatio:
        """Make the ratio to the same public rows with another ridge, above 0."""
        other = copy(self)
        other._solve(ridge)
        return other

    @property
    def landmarks(self) -> int:
        """Number of public rows that it is made of."""
        return int(self._landmarks.shape[0])

    def _kernel(self, features: Any) -> Array:
        if features is self._features:
            return self._near
        return np.asarray(np.exp(-_squared_distances(features, self._landmarks) / self._width))

    def __call__(self, features: Any, groups: Array) -> Array:
        """Compute the ratio of each group of rows at each public row; below 0 where a fit overshoots.

        Args:
            features: of the rows, shape ``(n, d)``.
            groups: the share of each row that belongs to each group, shape ``(n, n_groups)``.

        Returns:
            Shape ``(N, n_groups)``.
        """
        return np.asarray(self._near @ self.coefficients(features, groups))

    def coefficients(self, features: Any, groups: Array) -> Array:
        """Compute what :meth:`at` makes the ratio of each group of rows from.

        Args:
            features: of the rows, shape ``(n, d)``.
            groups: the share of each row that belongs to each group, shape ``(n, n_groups)``.

        Returns:
            One number for each landmark and group, shape ``(n_landmarks, n_groups)``; linear in the rows.
        """
        return np.asarray(cho_solve(self._factor, self._kernel(features).T @ groups))

    def at(self, features: Any, coefficients: Array) -> Array:
        """Compute ratios at any rows, public or not.

        Args:
            features: of the rows at which the ratio is wanted, shape ``(n, d)``.
            coefficients: of :meth:`coefficients`, shape ``(n_landmarks, n_groups)``.

        Returns:
            Shape ``(n, n_groups)``; below 0 where a fit overshoots.
        """
        return np.asarray(self._kernel(features) @ coefficients)


def near_public(rows: Any, groups: Array, public: Any) -> Array:
    """Sum up, at each public row, the groups of the rows that it is the nearest public row of.

    Args:
        rows: features, shape ``(n, d)``, dense or sparse; a sparse row, a text's, that shares nothing with
            any public row is near none.
        groups: what is summed of each row, shape ``(n, n_groups)``.
        public: features of the public rows, shape ``(N, d)``; of those as near as one another the first
            counts.

    Returns:
        Shape ``(N, n_groups)``.
    """
    found = np.zeros((public.shape[0], groups.shape[1]))
    for start in range(0, len(groups), MOST_LANDMARKS):
        few = slice(start, start + MOST_LANDMARKS)
        if issparse(rows):
            alike = (rows[few] @ public.T).toarray()
            near = alike.max(axis=1) > 0
            np.add.at(found, alike.argmax(axis=1)[near], groups[few][near])
        else:
            np.add.at(found, _squared_distances(rows[few], public).argmin(axis=1), groups[few])
    return found


_JITTER = 1e-12
"""Relative to the sum of eigenvalues: far above rounding, far below what a ridge does."""


LANDMARKS = 100
"""Public rows that rows are counted near, at most: as many whole numbers leave of a class."""

_CAUTION = 6.0
"""What a rounding error costs against what counts say, chosen by the accuracy of ratios on digits, MNIST,
Fashion-MNIST and TREC; between half and twice it little changes."""


@dataclass(frozen=True)
class Coarseness:
    """Limits on what :func:`coarse_ratios` reveal of a party's rows: its own choice, never a coordinator's.

    Rebuilding was measured to fail with the least that can be set (``benchmarks/rebuilding.py``).

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
        width = max(_median_distance(landmarks), _median_distance(own))
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
        return np.asarray(np.exp(-_squared_distances(rows, self.landmarks) / self.width))


def coarse_ratios(own: Array, groups: Array, public: Array, coarseness: Coarseness) -> Array:
    """Estimate density ratios of each group of rows to the public rows from few and rounded counts.

    Computed of the :class:`Counts` c and of public rows alone, by unconstrained least-squares importance
    fitting: with ``P = k(public, landmarks)``

        r = max(0, P (PᵀP + ridge I)⁻¹ c),      ridge ~ unit / max c,

    so that whoever sees r knows the counts at best.

    Args:
        own: coordinates of the party's rows along principal directions
            (:func:`consilience.numerics.feature_space.principal_directions`), shape ``(n, k)``.
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


class DensityRatio:
    """Kernel unconstrained least-squares importance fitting (KuLSIF) of ``p / q``.

    With y_1 … y_m drawn from p, x_1 … x_n from q, and the Gaussian kernel ``k(u, v) = exp(-|u - v|² / 2σ²)``,

        ``r(z) = sum_i a_i k(z, x_i) + (1 / (m λ)) sum_j k(z, y_j)``,
        ``(K_xx / n + λ I) a = -K_xy 1 / (n m λ)``.

    It may come out below 0 where p is small.

    Args:
        known: y, shape ``(m, k)``.
        reference: x, shape ``(n, k)``.
        width: σ > 0, in the units of the rows.
        regularization: λ > 0; ``min(m, n)^-0.9`` by default, as Kanamori et al. take it.

    Source:
        Kanamori, Suzuki & Sugiyama 2012.
    """

    def __init__(
        self, known: Array, reference: Array, *, width: float, regularization: float | None = None
    ) -> None:
        m, n = len(known), len(reference)
        self.known, self.reference, self.width = known, reference, width
        self.regularization = min(m, n) ** -0.9 if regularization is None else regularization
        right = -self._kernel(reference, known).sum(axis=1) / (n * m * self.regularization)
        left = self._kernel(reference, reference) / n
        left[np.diag_indices(n)] += self.regularization
        self.coefficients = cho_solve(cho_factor(left), right)

    def _kernel(self, rows: Array, others: Array) -> Array:
        return np.asarray(np.exp(_squared_distances(rows, others) / (-2 * self.width**2)))

    def __call__(self, rows: Array) -> Array:
        """Compute the ratio at each row, shape ``(n_rows,)``."""
        against = self._kernel(rows, self.reference) @ self.coefficients
        near = self._kernel(rows, self.known).mean(axis=1)
        return np.asarray(against + near / self.regularization)


def selection(
    known: Array,
    held_out: Array,
    public: Array,
    *,
    reference: str,
    quantile: float,
    rng: np.random.Generator,
    judged: Array | None = None,
) -> Array:
    """Select the public rows that are as likely as a party's own.

    Their density ratio is not below the ``quantile`` of what the party's held-out rows have. The
    kernel's width is the median distance between public rows.

    Args:
        known: private rows the ratio is fitted to, shape ``(n, k)``, coordinates of
            :func:`consilience.numerics.feature_space.principal_directions`.
        held_out: private rows that it was not fitted to, shape ``(n_held_out, k)``, at least one.
        public: shape ``(n_public, k)``.
        reference: q of the ratio: ``"uniform"`` over the box that the public rows fill, or the
            ``"public"`` rows themselves.
        quantile: the share of its own rows in [0, 1) that a party may take for foreign.
        rng: draws the uniform rows.
        judged: the public rows to select among, shape ``(n, k)``; by default ``public``. At rows that a
            ratio was fitted to as its denominator it is smaller than at others like them.

    Returns:
        True for selected rows, shape ``(n,)``.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors.
    """
    few = _thinned(public)
    width = float(np.sqrt(_median_distance(public)))
    if reference == "uniform":
        low, high = public.min(axis=0), public.max(axis=0)
        against = rng.uniform(low, high, size=(min(len(public), MOST_LANDMARKS), len(low)))
    else:
        against = few
    ratio = DensityRatio(known, against, width=width)
    rows = public if judged is None else judged
    return np.asarray(ratio(rows) >= np.quantile(ratio(held_out), quantile))


def _squared_distances(rows: Any, others: Any) -> Array:
    if issparse(rows):
        from sklearn.metrics.pairwise import euclidean_distances

        return np.asarray(euclidean_distances(rows, others, squared=True))
    # The same bits, without importing scikit-learn: a second that a run of networks is spared.
    apart = -2 * (rows @ others.T)
    apart += np.einsum("ij,ij->i", rows, rows)[:, None]
    apart += np.einsum("ij,ij->i", others, others)
    np.maximum(apart, 0, out=apart)
    if rows is others:
        np.fill_diagonal(apart, 0)
    return np.asarray(apart)


def _thinned(rows: Array) -> Array:
    """Up to :data:`MOST_LANDMARKS` of the rows, evenly spread."""
    return rows[:: -(-len(rows) // MOST_LANDMARKS)]


def _median_distance(rows: Array) -> float:
    few = _thinned(rows)
    return _median_of(_squared_distances(few, few))


def _median_of(apart: Array) -> float:
    """Median squared distance of all pairs; 1 where it is 0, as most rows are the same."""
    median = np.median(apart[np.triu_indices(len(apart), 1)]) if len(apart) > 1 else 0.0
    return float(median) or 1.0
