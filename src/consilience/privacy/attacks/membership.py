"""Membership inference: score rows so that members (training rows) of a party score higher.

All three attacks use shadow parties: parties with the same learner and the same requests, each with a random
half of the candidate rows. The answers of the shadows reveal how a member row changes the answers::

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
"""Ridge penalty of the row effects, as a number of shadows."""

SHRINKAGE = 32.0
"""Weight of the variance over all rows against a row's variance, as a number of shadows."""

FEWEST_SHADOWS = 8
"""Minimum number of shadows; with fewer, the effect of a row cannot be distinguished from chance."""


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
    """Compute the true-positive rate at a given false-positive rate.

    Args:
        scores: any shape.
        members: of the same shape, true for members.
        false_positives: largest share of non-members that score as members, such as 0.01.

    >>> true_positives(np.array([4, 3, 2, 1]), np.array([True, False, True, False]))
    0.5
    """
    inside, scores = np.asarray(members, dtype=bool).ravel(), np.ravel(scores)
    others = np.sort(scores[~inside])[::-1]
    return float((scores[inside] > others[int(false_positives * len(others))]).mean())


def highest_area(loss: PrivacyLoss) -> float:
    """Compute an upper bound of the area under the ROC curve of any membership attack on the releases.

    For Gaussian releases it is Φ(μ/√2). For other releases, an attack with false-positive rate α misses at
    least ``max over ε of 1 − δ(ε) − e^ε α and e^−ε (1 − δ(ε) − α)`` of the members, and the area is 1 minus
    the integral of that over α.

    Args:
        loss: privacy loss of the releases, for adding or removing a row.

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
    """Score rows by a Gaussian likelihood ratio of all answers of each attacked party.

    Along principal directions of the shadows' answers, ``z``, a member row moves the answers by an effect
    ``E``, estimated by ridge regression; the score is ``zᵀ Σ⁻¹ E``, with the answers' covariance ``Σ``. The
    answers are centred at the mean over shadows, which have every row with probability ½, so the ratio has no
    other term.

    Args:
        shadows: answers of the shadows, shape ``(n_shadows, n_answers)``.
        members: membership of each row in each shadow, shape ``(n_shadows, n_rows)``.
        targets: answers of the attacked parties, shape ``(n_targets, n_answers)``.
        directions: candidate numbers of directions. The attack uses the number with which three quarters of
            the shadows best predict membership in the last quarter.

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
    """Score rows by the attacked party's answer on the row itself (LiRA, with shadows in and out).

    Shadows with and without the row each give a Gaussian of ``φ = ln(p / (1 − p))``, the log odds of the
    row's class. Variances are shrunk towards the variance over all rows, which dominates if there are few
    shadows.

    Args:
        shadows: probability of each row's class at each shadow, shape ``(n_shadows, n_rows)``.
        members: membership of each row in each shadow, of the same shape.
        targets: probabilities of the attacked parties, shape ``(n_targets, n_rows)``.

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
    """Score rows by the share of other rows with a lower likelihood ratio (RMIA, with shadows in and out).

    The likelihood ratio of a row is its probability at the attacked party divided by its mean probability at
    the shadows; shadows with and without the row have equal weight.

    Args:
        shadows: probability of each row's class at each shadow, shape ``(n_shadows, n_rows)``.
        members: membership of each row in each shadow, of the same shape.
        targets: probabilities of the attacked parties, shape ``(n_targets, n_rows)``.
        elsewhere: the shadows' probabilities for rows outside of all parties, shape ``(n_shadows,
            n_others)``.
        targets_elsewhere: those of the attacked parties, shape ``(n_targets, n_others)``.
        margin: γ, the factor by which a row's ratio has to exceed that of another row.

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
