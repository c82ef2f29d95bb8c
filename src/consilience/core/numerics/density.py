"""Exact density ratios of rows, from which an observer can reconstruct rows (:class:`PublicRatio`).

They are for parties that trust the recipient. For release to others, use
:func:`consilience.core.numerics.coarse_ratios.coarse_ratios`.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import issparse

from consilience.core.validation.arrays import Array

MOST_LANDMARKS = 1000
"""Public rows that a density ratio is made of, at most, since its cost is cubic in them."""


class PublicRatio:
    """Ratio of the density of any rows to that of the public rows, at each public row.

    With the kernel ``k(x, z) = exp(-|x - z|² / h)``, h the median squared distance of public rows, the
    function r of least

        (1/2) sum_public r(x)² - sum_rows r(z) + (ridge/2) |r|²

    estimates ``(n / N) p_rows(x) / p_public(x)``: the number of the n rows per public row at x. On the public
    rows it is

        r = (K + ridge I)⁻¹ k(public, rows) 1,      K = k(public, public):

    the rows' kernel sums, corrected for the density of the public rows. The estimate is linear in the rows,
    so that ratios of classes or parties can be added. Only the last factor depends on the rows, so that
    ratios of different parties can be compared.

    **Rows can be reconstructed from it.** With the public rows, an attacker can solve for the kernel sums,
    and from these for the rows of a small class (``docs/results/rebuilding.md``). Use it in simulations only.

    Args:
        public: features of the public rows, shape ``(N, d)``, dense or sparse.
        rng: draws the landmarks; must be the same at every party.
        ridge: ridge coefficient, above 0; added to the unit diagonal of K.
        most_landmarks: maximum number of public rows used as landmarks (Nyström approximation); the cost is
            cubic in this number.

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
        self._last: list[tuple[Any, Array]] = [(public, np.zeros(0))]  # shared with other ridges
        apart = squared_distances(self._landmarks, self._landmarks)
        self._width = median_of(apart)
        self._penalty = self._near = np.exp(-apart / self._width)
        if count > most_landmarks:
            self._near = np.exp(-squared_distances(public, self._landmarks) / self._width)
        self._products = self._near.T @ self._near
        self._solve(ridge)

    def _solve(self, ridge: float) -> None:
        system = self._products + ridge * self._penalty
        # Public rows that occur twice leave it singular, and rounding may then make it indefinite.
        system[np.diag_indices_from(system)] += _JITTER * np.trace(system)
        self._factor = cho_factor(system, overwrite_a=True, check_finite=False)

    def with_ridge(self, ridge: float) -> PublicRatio:
        """Make the ratio to the same public rows with another ridge, above 0."""
        other = copy(self)
        other._solve(ridge)
        return other

    @property
    def landmarks(self) -> int:
        """Number of public rows used as landmarks."""
        return int(self._landmarks.shape[0])

    def _kernel(self, features: Any) -> Array:
        if features is self._features:
            return self._near
        of, near = self._last[0]  # read once: parties may run side by side
        if of is not features:
            near = np.exp(-squared_distances(features, self._landmarks) / self._width)
            self._last[0] = features, near
        return near

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
        sums = np.asarray_chkfinite(self._kernel(features).T @ groups)
        return np.asarray(cho_solve(self._factor, sums, check_finite=False))

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
    """Add up the groups of rows at each row's nearest public row.

    Args:
        rows: features, shape ``(n, d)``, dense or sparse; a sparse row (a text) without any feature in common
            with a public row is not counted.
        groups: values to add up for each row, shape ``(n, n_groups)``.
        public: features of the public rows, shape ``(N, d)``; the first of equally near public rows counts.

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
            np.add.at(found, squared_distances(rows[few], public).argmin(axis=1), groups[few])
    return found


_JITTER = 1e-12
"""Relative to the sum of eigenvalues: far above rounding errors, far below the effect of a ridge."""


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
        return np.asarray(np.exp(squared_distances(rows, others) / (-2 * self.width**2)))

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
    """Select the public rows that resemble a party's own rows.

    A public row is selected if its density ratio is at least the ``quantile`` of the ratios of the party's
    held-out rows. The kernel's width is the median distance between public rows.

    Args:
        known: private rows for fitting the ratio, shape ``(n, k)``, coordinates of
            :func:`consilience.core.numerics.feature_space.principal_directions`.
        held_out: private rows outside the fit, shape ``(n_held_out, k)``, at least one.
        public: shape ``(n_public, k)``.
        reference: q of the ratio: ``"uniform"`` over the box that the public rows fill, or the
            ``"public"`` rows themselves.
        quantile: share in [0, 1) of the party's own rows that would not be selected.
        rng: draws the uniform rows.
        judged: the public rows to select among, shape ``(n, k)``; by default ``public``. The ratio is biased
            downwards at the rows of its denominator.

    Returns:
        True for selected rows, shape ``(n,)``.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors.
    """
    few = _thinned(public)
    width = float(np.sqrt(median_distance(public)))
    if reference == "uniform":
        low, high = public.min(axis=0), public.max(axis=0)
        against = rng.uniform(low, high, size=(min(len(public), MOST_LANDMARKS), len(low)))
    else:
        against = few
    ratio = DensityRatio(known, against, width=width)
    rows = public if judged is None else judged
    return np.asarray(ratio(rows) >= np.quantile(ratio(held_out), quantile))


def squared_distances(rows: Any, others: Any) -> Array:
    """Compute the squared distances of rows, dense or sparse, to others, shape ``(n, n_others)``."""
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


def median_distance(rows: Array) -> float:
    """Compute the median squared distance of rows, of at most :data:`MOST_LANDMARKS` of them; 1 for 0."""
    few = _thinned(rows)
    return median_of(squared_distances(few, few))


def median_of(apart: Array) -> float:
    """Median squared distance of all pairs; 1 where it is 0, as most rows are the same."""
    above = ~np.tri(len(apart), dtype=bool)
    median = np.median(apart[above]) if len(apart) > 1 else 0.0
    return float(median) or 1.0
