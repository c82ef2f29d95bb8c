"""How surely a party takes public rows for its own, told by inputs alone and, if asked, with privacy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from consilience.validation.arrays import Array

CERTAINTY_FLOOR = 1e-8
"""Added to every certainty, so that those of a row cannot all be 0 (Sattler et al. 2021)."""


@dataclass(frozen=True)
class Privacy:
    """Gaussian noise on the weights of a logistic regression: (ε, δ)-differential privacy.

    For one private row replaced by another. The scale is ``sqrt(2 ln(1.25 / δ)) Δ / ε`` with the
    sensitivity ``Δ = 2 / (n λ)``; it holds for ε below 1.

    Attributes:
        epsilon: ε in (0, 1).
        delta: δ in (0, 1).

    Source:
        Sattler et al. 2021 (FedAUX); Chaudhuri et al. 2011, Corollary 8 (sensitivity); Dwork & Roth 2014,
        Theorem 3.22 (scale).
    """

    epsilon: float
    delta: float

    def scale(self, rows: int, regularization: float) -> float:
        """Standard deviation of the noise on each weight, for n ``rows`` and λ ``regularization``."""
        sensitivity = 2 / (rows * regularization)
        return float(np.sqrt(2 * np.log(1.25 / self.delta)) * sensitivity / self.epsilon)


def certainties(
    private: Array,
    public: Array,
    *,
    regularization: float,
    privacy: Privacy | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """How surely each public row is taken for a private one: a logistic regression that tells them apart.

    ``s(x) = 1 / (1 + exp(-<w, h(x)>)) + 1e-8``, where w minimises

        ``(1/n) sum_i log(1 + exp(-y_i <w, h(x_i)>)) + (λ/2) |w|²``

    over the n private (y = 1) and public (y = −1) rows, and ``h(x) = (z, 1) / sqrt(2)`` with z the row
    divided by the largest norm of a public row, and pulled back to norm 1 where it is longer. So ``|h| ≤ 1``
    whatever the private rows are, and the constant is regularised too: the sensitivity of
    :class:`Privacy` needs both.

    Args:
        private: shape ``(n_private, k)``, coordinates of
            :func:`consilience.numerics.feature_space.principal_directions`.
        public: shape ``(n_public, k)``.
        regularization: λ > 0.
        privacy: noise on w; none by default.
        rng: where the noise comes from; nobody else may know its seed.

    Returns:
        shape ``(n_public,)``, in (0, 1].

    Source:
        Sattler et al. 2021 (FedAUX), certainty scores.
    """
    from sklearn.linear_model import LogisticRegression

    radius = float(np.linalg.norm(public, axis=1).max()) or 1.0
    ours, theirs = _in_the_ball(private / radius), _in_the_ball(public / radius)
    rows = np.concatenate([ours, theirs])
    own = np.repeat([1, 0], [len(ours), len(theirs)])
    # Its C multiplies the sum of the losses and stands against |w|²/2.
    model = LogisticRegression(
        C=1 / (len(rows) * regularization),
        fit_intercept=False,
        solver="newton-cholesky",
        tol=1e-8,
    ).fit(rows, own)
    weights = model.coef_[0]
    if privacy is not None:
        assert rng is not None
        weights = weights + rng.normal(
            scale=privacy.scale(len(rows), regularization), size=weights.shape
        )
    return np.asarray(np.minimum(expit(theirs @ weights) + CERTAINTY_FLOOR, 1.0))


def _in_the_ball(rows: Array) -> Array:
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return np.asarray(np.hstack([rows / norms, np.ones((len(rows), 1))]) / np.sqrt(2))
