"""Membership inference: scores of rows, higher for those that a party was trained on.

All three attacks know shadow parties: of the same learner, asked the same questions, with random halves of
the rows in question. What the shadows said tells how a row that is there shows in the answers of a party::

    public_row_likelihood   from answers on the public rows, or from sums: a Gaussian likelihood ratio
    confidence_likelihood   from the answer on the row itself: LiRA
    relative_likelihood     from the answer on the row itself, against those on other rows: RMIA

Sources:
    Carlini et al. 2022 (LiRA); Zarifzadeh, Liu & Shokri 2024 (RMIA); Dong, Roth & Su 2022, Propositions 2.5
    and 2.12 (errors that (ε, δ) and μ-GDP permit).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.losses import PrivacyLoss

RIDGE = 5.0
"""Shadows that the effect of a row is shrunk towards 0 by."""

SHRINKAGE = 32.0
"""Shadows that the variance common to all rows counts for, beside a row's own."""

FEWEST_SHADOWS = 8
"""Shadows without which no effect of a row can be told from chance."""


# --- how well an attack tells ------------------------------------------------------------------------


def area_under_curve(scores: Array, members: Array) -> float:
    """Compute the area under the ROC curve: how often a member scores above another row, ties half.

    Args:
        scores: any shape.
        members: of the same shape, true for members.

    >>> area_under_curve(np.array([3, 2, 2, 1]), np.array([True, True, False, False]))
    0.875
    """
    inside = np.asarray(members, dtype=bool).ravel()
    ranks = rankdata(np.ravel(scores))
    n = int(inside.sum())
    return float((ranks[inside].sum() - n * (n + 1) / 2) / (n * (len(ranks) - n)))


def true_positives(scores: Array, members: Array, *, false_positives: float = 0.01) -> float:
    """Compute the share of members found where no more than a share of the others is taken for members.

    Args:
        scores: any shape.
        members: of the same shape, true for members.
        false_positives: share of the others, such as 0.01.

    >>> true_positives(np.array([4, 3, 2, 1]), np.array([True, False, True, False]))
    0.5
    """
    inside, scores = np.asarray(members, dtype=bool).ravel(), np.ravel(scores)
    others = np.sort(scores[~inside])[::-1]
    return float((scores[inside] > others[int(false_positives * len(others))]).mean())


def highest_area(loss: PrivacyLoss) -> float:
    """Compute the area under the curve that no attack on releases exceeds.

    For Gaussian ones it is Φ(μ/√2). For others an attack that takes a share α of the others for members
    misses at least ``max over ε of 1 − δ(ε) − e^ε α and e^−ε (1 − δ(ε) − α)`` of the members, and the area is
    1 less the integral of that over α.

    Args:
        loss: privacy loss of the releases, for a row that is there or not.

    >>> round(highest_area(PrivacyLoss(0.719)), 3)
    0.694
    """
    if not loss.renyi:
        return float(ndtr(loss.mu / np.sqrt(2)))
    alarms = np.linspace(0, 1, 5001)[
        1:
    ]  # misses never grow with them: the sum is below the integral
    missed = np.zeros(len(alarms))
    for epsilon in np.linspace(0, 10, 201):
        left = 1 - loss.delta(float(epsilon))
        either = (left - np.exp(epsilon) * alarms, np.exp(-epsilon) * (left - alarms))
        missed = np.maximum(missed, np.maximum(*either))
    return float(1 - missed.mean())


# --- attacks -----------------------------------------------------------------------------------------


def public_row_likelihood(
    shadows: Array, members: Array, targets: Array, *, directions: Sequence[int] = (20, 60)
) -> Array:
    """Score rows at parties by a Gaussian likelihood ratio of all that these answered.

    Along principal directions of the shadows' answers, ``z``, a row that is there moves the answers by an
    effect ``E``, found by ridge regression; the score is ``zᵀ Σ⁻¹ E``, with the answers' covariance ``Σ``.
    Answers are centred where every row is there with probability ½: then the ratio has no other term.

    Args:
        shadows: answers of the shadows, shape ``(n_shadows, n_answers)``.
        members: which rows each shadow has, shape ``(n_shadows, n_rows)``.
        targets: answers of the parties under attack, shape ``(n_targets, n_answers)``.
        directions: numbers of directions; the one with which the last quarter of the shadows is told best by
            the others is taken.

    Returns:
        Scores, shape ``(n_targets, n_rows)``.

    Raises:
        InvalidInput: too few shadows.
    """
    inside = _checked(shadows, members)
    counts = sorted({min(count, len(shadows) - 1, shadows.shape[1]) for count in directions})
    known = len(shadows) * 3 // 4
    best = counts[0]
    if len(counts) > 1:
        tried = {
            count: area_under_curve(
                _ratios(shadows[:known], inside[:known], shadows[known:], count), inside[known:]
            )
            for count in counts
        }
        best = max(tried, key=lambda count: tried[count])
    return _ratios(shadows, inside, targets, best)


def _ratios(shadows: Array, inside: Array, targets: Array, count: int) -> Array:
    """Log likelihood ratios along so many principal directions."""
    centre = shadows.mean(axis=0)
    along = np.linalg.svd(shadows - centre, full_matrices=False)[2][:count].T
    seen, asked = (shadows - centre) @ along, (targets - centre) @ along
    there = inside - inside.mean(axis=0)
    gram = there.T @ there + RIDGE * np.eye(there.shape[1])
    effects = np.linalg.solve(gram, there.T @ seen)
    spread = np.cov(seen, rowvar=False).reshape(seen.shape[1], -1)
    spread += 1e-3 * np.trace(spread) / len(spread) * np.eye(len(spread))
    scores: Array = asked @ np.linalg.solve(spread, effects.T)
    return scores


def confidence_likelihood(shadows: Array, members: Array, targets: Array) -> Array:
    """Score rows at parties by the answer on the row itself: LiRA, with both kinds of shadows.

    Of ``φ = ln(p / (1 − p))``, the log odds of the row's class, shadows with and without the row give a
    Gaussian each. Variances are shrunk to that of all rows, which alone is left where shadows are few.

    Args:
        shadows: probability that each shadow gives the class of each row, shape ``(n_shadows, n_rows)``.
        members: which rows each shadow has, of the same shape.
        targets: probabilities of the parties under attack, shape ``(n_targets, n_rows)``.

    Returns:
        Scores, shape ``(n_targets, n_rows)``.

    Raises:
        InvalidInput: too few shadows.
    """
    inside = _checked(shadows, members)
    told, asked = _log_odds(shadows), _log_odds(targets)
    scores = np.zeros_like(asked)
    for sign, of in ((1, inside), (-1, ~inside)):
        n = np.maximum(of.sum(axis=0), 1)
        mean = (told * of).sum(axis=0) / n
        squares = ((told - mean) ** 2 * of).sum(axis=0)
        common = squares.sum() / max(of.sum(), 1)
        variance = (squares + SHRINKAGE * common) / (n + SHRINKAGE) + 1e-12
        scores -= sign * ((asked - mean) ** 2 / variance + np.log(variance)) / 2
    return scores


def relative_likelihood(
    shadows: Array,
    members: Array,
    targets: Array,
    *,
    elsewhere: Array,
    targets_elsewhere: Array,
    margin: float = 1.0,
) -> Array:
    """Score rows at parties by how many other rows they stand out against: RMIA, with both kinds of shadows.

    The likelihood of a row is its probability at the party over its mean one at the shadows, those with and
    without the row in equal parts; the score is the share of other rows whose likelihood is lower.

    Args:
        shadows: probability that each shadow gives the class of each row, shape ``(n_shadows, n_rows)``.
        members: which rows each shadow has, of the same shape.
        targets: probabilities of the parties under attack, shape ``(n_targets, n_rows)``.
        elsewhere: the shadows' probabilities for rows that are nobody's, shape ``(n_shadows, n_others)``.
        targets_elsewhere: those of the parties under attack, shape ``(n_targets, n_others)``.
        margin: γ, by which a row has to exceed another.

    Returns:
        Scores in [0, 1], shape ``(n_targets, n_rows)``.

    Raises:
        InvalidInput: too few shadows.
    """
    inside = _checked(shadows, members)
    n = np.maximum(inside.sum(axis=0), 1), np.maximum((~inside).sum(axis=0), 1)
    usual = (shadows * inside).sum(axis=0) / n[0] + (shadows * ~inside).sum(axis=0) / n[1]
    own = targets / np.maximum(usual / 2, 1e-6)
    others = np.sort(targets_elsewhere / np.maximum(elsewhere.mean(axis=0), 1e-6), axis=1)
    return np.stack(
        [
            np.searchsorted(row, here / margin) / len(row)
            for here, row in zip(own, others, strict=True)
        ]
    )


def _checked(shadows: Array, members: Array) -> Array:
    """Memberships as truth values."""
    if len(shadows) != len(members) or len(shadows) < FEWEST_SHADOWS:
        raise InvalidInput(
            f"{len(shadows)} shadows, and memberships of {len(members)}",
            where="attack",
            mend=f"Give at least {FEWEST_SHADOWS} shadows, and the memberships of each.",
        )
    return np.asarray(members, dtype=bool)


def _log_odds(p: Array) -> Array:
    """Log odds, of no more than 1 in 10⁶."""
    p = np.clip(np.asarray(p, dtype=np.float64), 1e-6, 1 - 1e-6)
    return np.log(p) - np.log1p(-p)
