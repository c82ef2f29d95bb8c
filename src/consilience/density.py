"""How typical a row looks: Gaussians over a model's outputs, and densities relative to the public rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
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
"""Public rows that a density ratio is made of; more are drawn from, which bounds its cost."""


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
        apart = self._squared_distances(self._landmarks)
        different = apart[np.triu_indices(len(apart), 1)]
        median = float(np.median(different)) if len(different) else 0.0
        # 0 where half of the public rows, or more, are the same.
        self._width = median if median > 0 else 1.0
        self._public = np.exp(-self._squared_distances(public) / self._width)
        system = self._public.T @ self._public + ridge * np.exp(-apart / self._width)
        # Public rows that occur twice leave it singular, and rounding may then make it indefinite.
        system[np.diag_indices_from(system)] += _JITTER * np.trace(system)
        self._factor = cho_factor(system, overwrite_a=True)

    def _squared_distances(self, features: Any) -> Array:
        from sklearn.metrics.pairwise import euclidean_distances

        return np.asarray(euclidean_distances(features, self._landmarks, squared=True))

    def __call__(self, features: Any, groups: Array) -> Array:
        """The ratio of each group of rows at each public row; below 0 where a fit overshoots.

        Args:
            features: of the rows, shape ``(n, d)``.
            groups: how much of each row belongs to each group, shape ``(n, n_groups)``.

        Returns:
            Shape ``(N, n_groups)``.
        """
        near = np.exp(-self._squared_distances(features) / self._width)
        return np.asarray(self._public @ cho_solve(self._factor, near.T @ groups))


_JITTER = 1e-12
"""Relative to the sum of eigenvalues: far above rounding, far below what a ridge does."""
