"""Compare public rows with a party's private rows: certainty scores, log odds and subspace likeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse, vstack
from scipy.special import expit

from consilience.core.validation.arrays import Array

CERTAINTY_FLOOR = 1e-8
"""Added to every certainty, so that the certainties of a row cannot all be 0 (Sattler et al. 2021)."""


def certainties(
    private: Array,
    public: Array,
    *,
    regularization: float,
    noise: Callable[[Array, float], Array] | None = None,
) -> Array:
    """Estimate the probability that each public row is a private row, by logistic regression (FedAUX).

    ``s(x) = 1 / (1 + exp(-<w, h(x)>)) + 1e-8``, where w minimises

        ``(1/n) sum_i log(1 + exp(-y_i <w, h(x_i)>)) + (λ/2) |w|²``

    over the n private (y = 1) and public (y = −1) rows, and ``h(x) = (z, 1) / sqrt(2)`` with z the row
    divided by the largest norm of a public row and then clipped to norm 1. So ``|h| ≤ 1`` for all private
    rows, and the constant is regularised too. Therefore w moves by at most ``Δ = 2 / (n λ)`` when one private
    row is replaced by another (Chaudhuri et al. 2011, Corollary 8).

    Args:
        private: shape ``(n_private, k)``, coordinates of
            :func:`consilience.core.numerics.feature_space.principal_directions`.
        public: shape ``(n_public, k)``.
        regularization: λ > 0.
        noise: adds noise to w, given w and Δ, such as :meth:`.mechanisms.GaussianNoise.add`; none by default.

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
    """Clip rows to norm 1, append a constant and divide by sqrt(2): h of :func:`certainties`."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return np.asarray(np.hstack([rows / norms, np.ones((len(rows), 1))]) / np.sqrt(2))


STRENGTHS = (0.1, 1.0, 10.0)
"""Candidates of :func:`log_odds` for C, the weight of the losses relative to the regularisation."""


def log_odds(
    own: Any,
    codes: Array,
    reference: Any,
    rng: np.random.Generator,
    *,
    at: Array | None = None,
    held_out: tuple[Any, Array] | None = None,
    groups: int = 1,
    balanced: bool = False,
) -> Array:
    """Estimate log odds of each group of own rows against reference rows, by one logistic regression.

    The regression has one class per group and one class for the reference. If its probabilities are exact,
    ``P(y | x) / P(reference | x)`` equals ``n_y p_y(x) / (N p_reference(x))``: the expected number of the n_y
    rows per reference row at x.

    The reference is split into two halves. Each half is scored by a regression fitted on the other half,
    because a regression separates its own training rows too well. Features are divided by the reference rows'
    root mean squared length. The regularisation is the value of :data:`STRENGTHS` with the least log loss on
    the held-out rows and on one half of the reference, with equal weight for both. Without held-out rows, it
    is 1.

    Args:
        own: features of own rows, shape ``(n, d)``, dense or sparse.
        codes: group of each own row, from 0 to ``groups - 1``, shape ``(n,)``.
        reference: features of the reference, shape ``(N, d)``.
        rng: generator for the halves of the reference, with the same seed at every party.
        at: features of rows to score instead of the reference; the regression is then fitted on the whole
            reference.
        held_out: features and groups of own rows that select the regularisation; the final regression is
            fitted on them as well.
        groups: number of groups.
        balanced: give all classes equal weight in the loss, so that the odds are density ratios
            ``p_y(x) / p_reference(x)``.

    Returns:
        Shape ``(N, groups)``, or ``(len(at), groups)`` if ``at`` is given; ``-inf`` for a group without rows.
    """
    half = rng.permutation(reference.shape[0]) % 2
    length = _root_mean_square(reference)
    own, reference = own / length, reference / length

    def odds(strength: float, rows: Any, groups_of: Array, against: Any, judged: Any) -> Array:
        from sklearn.linear_model import LogisticRegression

        count = against.shape[0]
        model = LogisticRegression(
            C=strength, max_iter=2000, tol=1e-3, class_weight="balanced" if balanced else None
        ).fit(_stacked(rows, against), np.concatenate([groups_of, np.full(count, groups)]))
        found = np.full((judged.shape[0], groups), -np.inf)
        told = model.predict_log_proba(judged)
        share = 0.0 if balanced else np.log(count / reference.shape[0])
        found[:, model.classes_[:-1]] = told[:, :-1] - told[:, -1:] + share
        return found

    strength = 1.0
    if held_out is not None:
        others, theirs = held_out[0] / length, held_out[1]

        def loss(strength: float) -> float:
            judged = _stacked(others, reference[half == 1])
            found = odds(strength, own, codes, reference[half == 0], judged)
            rest = -np.logaddexp.reduce(np.hstack([found, np.zeros((len(found), 1))]), axis=1)
            told, known = rest[len(theirs) :], np.isin(theirs, codes)
            mine = (found[np.arange(len(theirs)), theirs] + rest[: len(theirs)])[known]
            return -float(told.mean()) - (float(mine.mean()) if known.any() else 0.0)

        strength = min(STRENGTHS, key=loss)
        own, codes = _stacked(own, others), np.concatenate([codes, theirs])
    if at is not None:
        return odds(strength, own, codes, reference, at / length)
    found = np.empty((reference.shape[0], groups))
    for side in (0, 1):
        against, judged = reference[half != side], reference[half == side]
        found[half == side] = odds(strength, own, codes, against, judged)
    return found


def rows_like(coordinates: Array, rng: np.random.Generator) -> Array:
    """Draw n synthetic rows from a Gaussian mixture fitted to n rows.

    Args:
        coordinates: the rows to fit, shape ``(n, k)``, in few dimensions.
        rng: generator that seeds the fit and the draws.

    Returns:
        The synthetic rows, shape ``(n, k)``.
    """
    from sklearn.mixture import GaussianMixture

    seed = int(rng.integers(2**31))
    parts = int(np.clip(len(coordinates) // 20, 1, 20))
    mixture = GaussianMixture(parts, covariance_type="diag", reg_covar=1e-3, random_state=seed)
    drawn, _ = mixture.fit(coordinates).sample(len(coordinates))
    return np.asarray(drawn)


def subspace_likeness(own: Any, public: Any, *, energy: float) -> Array:
    """Compute ``|P z|² / |z|²`` of each public row z, where P projects on the leading subspace of own rows.

    Args:
        own: shape ``(n, d)``, dense or sparse.
        public: shape ``(N, d)``.
        energy: share, in (0, 1], of the own rows' squared length that the smallest such subspace contains.

    Returns:
        Shape ``(N,)``, in [0, 1]; 0 of a row without length.
    """
    values, vectors = np.linalg.eigh(_dense(own @ own.T))
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    total = values.sum()
    if total == 0:
        return np.zeros(public.shape[0])
    needed = int(np.searchsorted(np.cumsum(values) / total, energy - 1e-12)) + 1
    kept = np.arange(len(values)) < min(needed, (values > 1e-10 * values[0]).sum())
    along = _dense(public @ own.T) @ vectors[:, kept] / np.sqrt(values[kept])
    squared = np.asarray((public.power(2) if issparse(public) else public**2).sum(axis=1)).ravel()
    return np.asarray((along**2).sum(axis=1) / np.where(squared > 0, squared, 1)).clip(0, 1)


def _stacked(first: Any, second: Any) -> Any:
    return vstack([first, second]).tocsr() if issparse(first) else np.concatenate([first, second])


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if issparse(rows) else rows)


def _root_mean_square(rows: Any) -> float:
    squared = rows.power(2) if issparse(rows) else rows**2
    return float(np.sqrt(squared.sum() / rows.shape[0])) or 1.0
