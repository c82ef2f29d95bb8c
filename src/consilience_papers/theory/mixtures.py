"""Parties whose densities are known, and the best teacher that there is for them.

Party c has n_cy rows of class y from ``N(mean_cy, I)``. Pooled, the rows follow the sum over c and y of
``n_cy N(mean_cy, I)``, and of all teachers that see x alone their posterior

    p(y | x) = sum_c n_cy N(x; mean_cy) / sum_c sum_j n_cj N(x; mean_cj)
             = sum_c S_c(x) p_c(y | x) / sum_c S_c(x)

has the least expected log loss, where ``S_c(x)`` is in proportion to party c's rows at x and p_c its own
posterior: the distribution-weighted combination of Mansour, Mohri & Rostamizadeh 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianParties:
    """Parties with Gaussian classes of unit covariance.

    Attributes:
        means: shape ``(n_parties, n_classes, n_columns)``.
        counts: numbers of rows, shape ``(n_parties, n_classes)``; some above 0 in every party.
    """

    means: Array
    counts: Array

    def densities(self, X: Array) -> Array:
        """Compute ``n_cy N(x; mean_cy)`` of rows ``(n, n_columns)``: ``(n_parties, n_classes, n)``."""
        apart = X - self.means[:, :, None]
        scale = (2 * np.pi) ** (-X.shape[1] / 2)
        return np.asarray(self.counts[..., None] * scale * np.exp(-(apart**2).sum(axis=-1) / 2))

    def odds(self, X: Array) -> Array:
        """Compute ``S_c(x)``, each party's rows at x, shape ``(n_parties, n)``."""
        return np.asarray(self.densities(X).sum(axis=1))

    def bayes(self, X: Array) -> Array:
        """Compute the pooled rows' posterior, shape ``(n, n_classes)``."""
        found = self.densities(X).sum(axis=0).T
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def draw(self, rng: np.random.Generator, rows: int) -> tuple[Array, NDArray[np.int64]]:
        """Draw rows of the pooled distribution, shape ``(rows, n_columns)``, and their classes.

        Args:
            rng: the only source of randomness.
            rows: how many.
        """
        share = (self.counts / self.counts.sum()).ravel()
        held = rng.choice(len(share), size=rows, p=share)
        X = self.means.reshape(len(share), -1)[held] + rng.normal(size=(rows, self.means.shape[2]))
        return X, held % self.counts.shape[1]
