"""Certainty that a public row is of a party's own kind, from inputs alone, with or without noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from consilience.validation.arrays import Array

CERTAINTY_FLOOR = 1e-8
"""Added to every certainty, so that the certainties of a row cannot all be 0 (Sattler et al. 2021)."""


def certainties(
    private: Array,
    public: Array,
    *,
    regularization: float,
    noise: Callable[[Array, float], Array] | None = None,
) -> Array:
    """Estimate how surely each public row is a private one, by a logistic regression that tells them apart.

    ``s(x) = 1 / (1 + exp(-<w, h(x)>)) + 1e-8``, where w minimises

        ``(1/n) sum_i log(1 + exp(-y_i <w, h(x_i)>)) + (λ/2) |w|²``

    over the n private (y = 1) and public (y = −1) rows, and ``h(x) = (z, 1) / sqrt(2)`` with z the row
    divided by the largest norm of a public row, and pulled back to norm 1 where it is longer. So ``|h| ≤ 1``
    whatever the private rows are, and the constant is regularised too: w then moves by at most
    ``Δ = 2 / (n λ)`` when one private row is replaced by another (Chaudhuri et al. 2011, Corollary 8).

    Args:
        private: shape ``(n_private, k)``, coordinates of
            :func:`consilience.numerics.feature_space.principal_directions`.
        public: shape ``(n_public, k)``.
        regularization: λ > 0.
        noise: adds noise to w, given w and Δ, such as :meth:`.privacy.GaussianNoise.add`; none by default.

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
    if noise is not None:
        weights = noise(weights, 2 / (len(rows) * regularization))
    return np.asarray(np.minimum(expit(theirs @ weights) + CERTAINTY_FLOOR, 1.0))


def _in_the_ball(rows: Array) -> Array:
    """Rows of norm 1 at most, with a constant, divided by sqrt(2): h of :func:`certainties`."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return np.asarray(np.hstack([rows / norms, np.ones((len(rows), 1))]) / np.sqrt(2))
