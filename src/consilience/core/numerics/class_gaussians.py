"""Density of a model's outputs: a Gaussian for each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

VARIANCE_FLOOR = 1e-3
"""No component is narrower than this in any dimension: a logit that happens not to vary on the few
calibration rows of a class must not decide alone whether a public row is typical."""


@prints_no_rows
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

        A class with a single row has no variance estimate and uses the pooled within-class variance.

        Args:
            z: shape ``(n, n_dimensions)``, n ≥ 1, for instance calibration logits.
            labels: shape ``(n,)``, any integers.
            floor: the smallest variance allowed.

        Returns:
            The fitted components, one for each class, in sorted order.
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
        """Compute the log-density of each row by log-sum-exp.

        Args:
            z: rows, shape ``(n, d)``.

        Returns:
            Shape ``(n,)``.
        """
        scores = np.empty((len(self.means), len(z)))
        for component, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            distance = ((z - mean) ** 2 / variance).sum(axis=1)
            scores[component] = -0.5 * (distance + np.log(2 * np.pi * variance).sum())
        return np.asarray(logsumexp(scores, axis=0) - np.log(len(self.means)))
