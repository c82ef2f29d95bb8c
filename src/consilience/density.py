"""How typical a row looks: Gaussians over a model's outputs, and ratios of the densities of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import issparse
from scipy.special import logsumexp

Array = NDArray[Any]

VARIANCE_FLOOR = 1e-3
"""No component is narrower than this in any dimension: a logit that happens not to vary on the few
calibration rows of a class must not decide alone whether a public row is typical."""


@dataclass(frozen=True)
class ClassGaussians:
    """A Gaussian mixture with one component per class, equal weights and diagonal covariance.

    ``log p(z) = log( (1/C) sum_c N(z; mean_c, diag variance_c) )``; Kovalchuk et al. 2026, eq. 7.

    Attributes:
        means: shape ``(n_components, n_dimensions)``.
        variances: shape ``(n_components, n_dimensions)``, at least :data:`VARIANCE_FLOOR`.
    """

    means: Array
    variances: Array

    @classmethod
    def fit(cls, z: Array, labels: Array, *, floor: float = VARIANCE_FLOOR) -> ClassGaussians:
        """Fit one component to each class among ``labels``.

        A class with a single row has no variance of its own and takes the pooled within-class one.

        Args:
            z: shape ``(n, n_dimensions)``, n ≥ 1, for instance calibration logits.
            labels: shape ``(n,)``, any integers.
            floor: the smallest variance allowed.
        """
        classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        means = np.stack([z[codes == c].mean(axis=0) for c in range(len(classes))])
        centred = z - means[codes]
        pooled = (centred**2).sum(axis=0) / max(len(z) - len(classes), 1)
        variances = np.stack(
            [
                (centred[codes == c] ** 2).mean(axis=0) if counts[c] > 1 else pooled
                for c in range(len(classes))
            ]
        )
        return cls(means, np.maximum(variances, floor))

    def log_density(self, z: Array) -> Array:
        """The log-density of each row of ``z``, shape ``(n,)``, by log-sum-exp."""
        scores = np.empty((len(self.means), len(z)))
        for component, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            distance = ((z - mean) ** 2 / variance).sum(axis=1)
            scores[component] = -0.5 * (distance + np.log(2 * np.pi * variance).sum())
        return np.asarray(logsumexp(scores, axis=0) - np.log(len(self.means)))


MOST_LANDMARKS = 1000
"""Public rows that a density ratio is made of; of more some are taken, since its cost is cubic in them."""


class PublicRatio:
    """How much denser any rows lie than the public ones, at each public row.

    With the kernel ``k(x, z) = exp(-|x - z|² / h)``, h the median squared distance of public rows, the
    function r of least

        (1/2) sum_public r(x)² - sum_rows r(z) + (ridge/2) |r|²

    estimates ``(n / N) p_rows(x) / p_public(x)``: how many of the n rows come on one of the N public rows
    at x. On the public rows it is

        r = (K + ridge I)⁻¹ k(public, rows) 1,      K = k(public, public):

    the rows' kernel sums, freed of how dense the public rows themselves lie. It is linear in the rows:
    classes, or parties, add up. Nothing in it but the last factor depends on the rows, so that ratios of
    different parties can be compared.

    Args:
        public: features of the public rows, shape ``(N, d)``, dense or sparse.
        rng: which :data:`MOST_LANDMARKS` of more public rows r is made of (Nyström); the same at every party.
        ridge: above 0; what a public row that lies alone counts beside itself.

    Source:
        Kanamori, Suzuki & Sugiyama 2012 (kernel unconstrained least-squares importance fitting), with
        the public rows as the denominator.

    >>> ratio = PublicRatio(np.array([[0.0], [9.0]]), np.random.default_rng(0), ridge=0.5)
    >>> ratio(np.array([[0.0], [0.0], [0.0]]), np.ones((3, 1))).round(1).tolist()
    [[1.9], [0.3]]
    """

    def __init__(self, public: Any, rng: np.random.Generator, *, ridge: float) -> None:
        count = public.shape[0]
        chosen = np.sort(rng.permutation(count)[:MOST_LANDMARKS])
        self._landmarks = public[chosen]
        apart = _squared_distances(self._landmarks, self._landmarks)
        self._width = _median_of(apart)
        self._public = self._kernel(public)
        system = self._public.T @ self._public + ridge * np.exp(-apart / self._width)
        # Public rows that occur twice leave it singular, and rounding may then make it indefinite.
        system[np.diag_indices_from(system)] += _JITTER * np.trace(system)
        self._factor = cho_factor(system, overwrite_a=True)

    def _kernel(self, features: Any) -> Array:
        return np.asarray(np.exp(-_squared_distances(features, self._landmarks) / self._width))

    def __call__(self, features: Any, groups: Array) -> Array:
        """The ratio of each group of rows at each public row; below 0 where a fit overshoots.

        Args:
            features: of the rows, shape ``(n, d)``.
            groups: how much of each row belongs to each group, shape ``(n, n_groups)``.

        Returns:
            Shape ``(N, n_groups)``.
        """
        return np.asarray(self._public @ cho_solve(self._factor, self._kernel(features).T @ groups))


_JITTER = 1e-12
"""Relative to the sum of eigenvalues: far above rounding, far below what a ridge does."""


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
        """The ratio at each row, shape ``(n_rows,)``."""
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
) -> Array:
    """Which public rows are as likely as a party's own, shape ``(n_public,)``, bool.

    Those whose density ratio is not below the ``quantile`` of what the party's held-out rows have. The
    kernel's width is the median distance between public rows.

    Args:
        known: private rows the ratio is fitted to, shape ``(n, k)``, coordinates of
            :func:`consilience.spaces.principal_directions`.
        held_out: private rows that it was not fitted to, shape ``(n_held_out, k)``, at least one.
        public: shape ``(n_public, k)``.
        reference: q of the ratio: ``"uniform"`` over the box that the public rows fill, or the
            ``"public"`` rows themselves.
        quantile: the share of its own rows in [0, 1) that a party may take for foreign.
        rng: draws the uniform rows.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors.
    """
    few = public[:: -(-len(public) // MOST_LANDMARKS)]
    width = float(np.sqrt(_median_of(_squared_distances(few, few))))
    if reference == "uniform":
        low, high = public.min(axis=0), public.max(axis=0)
        against = rng.uniform(low, high, size=(min(len(public), MOST_LANDMARKS), len(low)))
    else:
        against = few
    ratio = DensityRatio(known, against, width=width)
    return np.asarray(ratio(public) >= np.quantile(ratio(held_out), quantile))


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


def _median_of(apart: Array) -> float:
    """The median of the squared distances of all pairs; 1 where it is 0: most rows are the same."""
    median = np.median(apart[np.triu_indices(len(apart), 1)]) if len(apart) > 1 else 0.0
    return float(median) or 1.0
