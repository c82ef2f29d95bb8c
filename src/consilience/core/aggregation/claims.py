"""Bounds on the density ratios that parties claim, and tests for claims that the other parties contradict.

m parties, n public rows, K classes; ``s_c(x, y)`` is the density ratio that party c claims, ``p_c(x, y)`` its
probability, and ``v_c = s_c p_c`` its vote. The size of a party's claims at a row is ``S_c(x) = sum_y s_c``.
Only :func:`wrong_on_labels` uses labels. ``docs/theory/robustness.md`` proves the limits of such tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from consilience.core.validation.arrays import Array

ABOVE_USUAL = 1.5
"""Maximum of a party's claims at a row, as a multiple of the usual density."""

SAME = 1e-3
"""Range, or standard deviation over rows, below which a probability counts as constant."""

_LEAST = 1e-12
"""Least divisor; a sum of claims below it counts as 0."""

_APART_MEANS = 3.0
"""Extension of the usual range at either end, in median distances of the parties' mean values."""

_COPY = 1e-4
"""One minus the cosine between two parties' claims, and between their outputs, below which they are copies.
"""

_MEASURES: tuple[Callable[[Array, Array], Array], ...] = (
    lambda ratios, outputs: ratios.sum(axis=2),
    lambda ratios, outputs: ratios.max(axis=2),
    lambda ratios, outputs: (ratios * outputs).sum(axis=2),
)
"""Measures of the size of claims at a row: all classes together, the largest class, and the vote. Each is the
weight of a party in one choice of ``auto``."""


def bounded(ratios: Array, outputs: Array, whole: float = 1.0) -> Array:
    """Scale down duplicated claims, and claims above the usual party's.

    Parties whose claims and outputs are both proportional to about one percent count as one party: their
    claims are divided by their number.

    At a row a party may claim :data:`ABOVE_USUAL` times the usual density, and over all rows ``whole``
    times as much as the median party. Both bounds apply to each of three measures. The usual density is the
    median over parties of their mean density on their claimed rows, ``sum_x size² / sum_x size``. Both
    medians exclude parties without claims. All claims are set to 0 if half of the parties or more have
    none, as with coarse ratios of small classes.

    Args:
        ratios: claims, shape ``(m, n, K)``; below 0 is 0.
        outputs: probabilities, of the same shape.
        whole: limit of a party's claims over all rows, as a multiple of the median party's.

    Returns:
        Bounded claims, of the same shape, float64, 0 or more.
    """
    bound: Array = np.maximum(ratios, 0, dtype=np.float64)
    if 2 * (bound.sum(axis=(1, 2)) > 0).sum() <= len(bound):
        return np.zeros_like(bound)  # the few that claim something would decide alone
    alike = (alike_pairs(bound) & alike_pairs(outputs)).sum(axis=1)
    bound *= (alike.min() / alike)[:, None, None]  # if all are alike, all count as they are
    for measure in _MEASURES:
        size = measure(bound, outputs)
        claims = size.sum(axis=1) > 0
        if not claims.any():
            break
        most = ABOVE_USUAL * np.median(_usual(size)[claims])
        scale = np.minimum(1, most / np.maximum(size, _LEAST))
        total = (size * scale).sum(axis=1)
        in_all = whole * np.median(total[claims])
        bound = (
            bound * (scale * np.minimum(1, in_all / np.maximum(total, _LEAST))[:, None])[..., None]
        )
    return bound


def usual_range(values: Array) -> tuple[Array, Array]:
    """Compute the least and the largest value that a party may predict, for each target.

    The range starts from the medians over parties of their least and largest values. Each end is extended
    by the width of this range plus three times the median distance of a party's mean from the median mean.
    If half of the parties or more predict values of another size than the median party, the range covers
    all parties; a single outlying party is clipped.

    Args:
        values: shape ``(m, n, K)``.

    Returns:
        Two limits of shape ``(K,)``.
    """
    low, high = np.median(values.min(axis=1), axis=0), np.median(values.max(axis=1), axis=0)
    mean = values.mean(axis=1)
    apart = np.median(np.abs(mean - np.median(mean, axis=0)), axis=0)
    reach = high - low + _APART_MEANS * apart
    return np.asarray(low - reach), np.asarray(high + reach)


def suffice(ratios: Array, outputs: Array) -> bool:
    """Return whether parties claim enough of their predicted classes for a rule to use the claims.

    A coarse density ratio is 0 for a class with few rows at the party. A rule that used such claims would
    neglect these classes. A class counts as known to a party if the party claims it or if its probability
    varies over rows.

    Args:
        ratios: claims, shape ``(m, n, K)``.
        outputs: probabilities, of the same shape.

    Returns:
        Whether the median party claims more than a third of its known classes.
    """
    claimed = (ratios > 0).any(axis=1)
    known = (claimed | (outputs.std(axis=1) > SAME)).sum(axis=1)
    share = claimed.sum(axis=1)[known > 0] / known[known > 0]
    return bool(len(share) and 3 * np.median(share) > 1)


def alike_pairs(values: Array) -> Array:
    """Mark the pairs of parties whose values, shape ``(m, n, K)``, are proportional to about one percent.

    Returns:
        Shape ``(m, m)``, bool, true on the diagonal.
    """
    flat = values.reshape(len(values), -1)
    flat = flat / np.maximum(np.sqrt((flat**2).sum(axis=1, keepdims=True)), _LEAST)
    alike = flat @ flat.T > 1 - _COPY
    alike[np.diag_indices(len(flat))] = True
    return np.asarray(alike)


def same_for_all_rows(outputs: Array) -> Array:
    """Mark the parties with a constant answer over several rows.

    Args:
        outputs: probabilities, shape ``(m, n, K)``.

    Returns:
        Shape ``(m,)``, bool; false for all parties if there is one row.
    """
    if outputs.shape[1] == 1:
        return np.zeros(len(outputs), dtype=bool)
    return np.asarray(np.ptp(outputs, axis=1).max(axis=1) < SAME)


class Suspect(NamedTuple):
    """A party whose claims the others contradict.

    Attributes:
        party: its place among the m parties.
        strength: distance beyond the threshold of its test, 1 at the threshold.
        evidence: a clause with the evidence.
    """

    party: int
    strength: float
    evidence: str


@dataclass(frozen=True)
class Thresholds:
    """Limits of the tests, above which a party is a suspect.

    Attributes:
        misplaced: position of a party's likeness to another class: 0 for the usual party, and 1 for a party
            whose claims lie where the usual party's own class does; smaller for a party of few votes.
        spread: times the usual number of rows over which the votes for a class are spread.
        leading: lead of the likeness to another class over that to its own, times the size of its votes.
        outvoted: share of its squared votes that more parties contradict than confirm.
        wrong_class: density-weighted wrong votes less right ones on the labelled rows of one class.
        sure: whether a vote counts as one voice, however unsure the model; else as its probabilities.
    """

    misplaced: float
    spread: float
    leading: float
    outvoted: float
    wrong_class: float
    sure: bool


EXACT = Thresholds(
    misplaced=0.45, spread=3.0, leading=0.3, outvoted=0.35, wrong_class=0.8, sure=True
)
COARSE = Thresholds(
    misplaced=np.inf,
    spread=3.0,
    leading=0.4,
    outvoted=0.66,
    wrong_class=0.88,
    sure=False,
)
"""Thresholds for exact and coarse density ratios.

Chosen on seeds 0 to 5 of digits and heart disease, with and without attackers, between the largest honest
party and the smallest attacker. Coarse claims overlap more, so that their thresholds spare more parties and
find fewer attackers."""

LEAST_ROWS = 8
"""Minimum number of public rows for agreement on them to be evidence."""

_SMALL = 0.7
"""Votes relative to the median party's, below which likeness counts as weaker evidence."""

_APART = 0.1
"""Least difference between the median likeness to the same class and to another class. Below it the parties
share no class, and likeness is no evidence."""

_WRONG = 0.45
"""Share of wrong squared votes on labelled rows above which a party is excluded.

Honest parties had at most 0.22 with exact ratios, and 0.43 with coarse ones."""

_MOSTLY_WRONG = 0.7
"""The same share, from which a party with few claims is tested like one with many."""

_ASTRAY = 0.7
"""Votes for a class on labelled rows of another: between the largest honest party and most attackers."""

_EVERYWHERE, _WIDER, _WIDE = 0.9, 1.8, 3.8
"""Thresholds on the number of rows over which a party's claims of a class are spread.

They are the share of all public rows from which the claims are everywhere; the ratio to the other claimants'
number of rows needed in addition; and the ratio from which little contradiction suffices."""

_CONSISTENT = 0.4
"""Minimum agreement between a party's model and claims, relative to the usual party's; honest parties had at
least 0.57."""

_MORE_PARTIES = 0.2
"""Exponent of the number of parties over ten, by which the threshold of outvoted claims rises.

Of fifty honest parties with 28 rows each, the largest share was 0.45."""

_SOME_OUTVOTED, _MOST_OUTVOTED = 0.18, 0.4
"""Minimum share of outvoted votes, weighted by density, for a spread of claims to be evidence.

The first applies to claims on far more rows than those of the class's other claimants, the second to all
others."""


def suspects(
    ratios: Array, outputs: Array, limits: Thresholds, spared: Collection[int] = ()
) -> list[Suspect]:
    """Find the parties whose claims the others contradict, by five tests.

    The first test with a suspect decides: inconsistent, misplaced, spread, leading, outvoted. To exclude
    several parties, a caller excludes the strongest suspect and repeats the tests without it, because an
    attacker changes the figures of all others.

    Args:
        ratios: bounded claims, shape ``(m, n, K)``, of three parties or more.
        outputs: probabilities, of the same shape.
        limits: thresholds for this kind of ratio.
        spared: places of the parties that must not become suspects.

    Returns:
        Suspects of one test, the strongest first; empty if no test finds any, or if there are fewer than
        :data:`LEAST_ROWS` public rows.
    """
    if ratios.shape[1] < LEAST_ROWS:
        return []
    votes = ratios * outputs
    for test in (_inconsistent, _misplaced, _spread, _leading, _outvoted):
        found = sorted(test(ratios, outputs, votes, limits), key=lambda one: -one.strength)
        if test is _outvoted and found and found[0].party in spared:
            continue  # the others are suspects only by comparison with this one
        if found := [one for one in found if one.party not in spared]:
            return found
    return []


def _inconsistent(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> list[Suspect]:
    """Find claims that contradict the party's model, as with another table or labels in another order."""
    claimed = ratios.sum(axis=(1, 2))
    kept = votes.sum(axis=(1, 2)) / np.maximum(claimed, _LEAST)
    usual = float(np.median(kept[claimed > 0])) if claimed.any() else 0.0
    return [
        Suspect(
            int(c),
            float(_CONSISTENT * usual / max(kept[c], _LEAST)),
            f"its model agrees with {kept[c]:.0%} of its own claims, the usual party's with {usual:.0%}",
        )
        for c in np.flatnonzero((claimed > 0) & (kept < _CONSISTENT * usual))
    ]


def _misplaced(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> list[Suspect]:
    """Find claims at rows that the others claim for another class."""
    same, other = _likeness(votes)
    low, high = np.median(other), np.median(same)
    if high - low < _APART:
        return []
    small = np.minimum(1, _weight(votes) / _SMALL) ** 2  # of few votes likeness is little evidence
    place = (other - low) / (high - low) * small
    return [
        Suspect(
            int(c),
            float(place[c] / limits.misplaced),
            f"its claims lie where others claim another class (likeness {other[c]:.2f}, to its own class "
            f"{same[c]:.2f}; the usual party has {low:.2f} and {high:.2f})",
        )
        for c in np.flatnonzero(place > limits.misplaced)
    ]


def _likeness(votes: Array, judged: Array | None = None) -> tuple[Array, Array]:
    """Cosine of each party's votes for a class with the other parties' votes.

    Args:
        votes: shape ``(m, n, K)``.
        judged: classes of each party that count, shape ``(m, K)``, bool; all by default.

    Returns:
        For the same class, and the largest for another class, each the mean over the party's classes weighted
        by its votes, shape ``(m,)``.
    """
    length = np.sqrt((votes**2).sum(axis=1))
    whole, mass = votes.sum(axis=0), votes.sum(axis=1) * (1 if judged is None else judged)
    same, other = np.zeros(len(votes)), np.zeros(len(votes))
    for c, vote in enumerate(votes):
        rest = whole - vote
        lengths = np.sqrt(np.maximum((rest**2).sum(axis=0), 0))
        cosine = vote.T @ rest / np.maximum(length[c][:, None] * lengths, _LEAST)
        share = mass[c] / max(mass[c].sum(), _LEAST)
        same[c] = share @ np.diag(cosine)
        np.fill_diagonal(cosine, -1)
        other[c] = share @ cosine.max(axis=1)
    return same, other


def _leading(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> list[Suspect]:
    """Find parties whose claims resemble the others' claims of another class far more than of the same class.

    Unlike :func:`_misplaced`, the threshold does not depend on the usual party.
    """
    mass = votes.sum(axis=1)
    witnessed = (
        mass.sum(axis=0) - mass > 1
    )  # somebody else claims the class, so that it can be like its own
    same, other = _likeness(votes, witnessed)
    lead = (
        (other - same)
        * _weight(votes)
        * (mass * witnessed).sum(axis=1)
        / mass.sum(axis=1).clip(_LEAST)
    )
    return [
        Suspect(
            int(c),
            float(lead[c] / limits.leading),
            f"its claims are like the others' of another class ({other[c]:.2f}), not of its own "
            f"({same[c]:.2f})",
        )
        for c in np.flatnonzero(lead > limits.leading)
    ]


def _weight(claims: Array) -> Array:
    """Claims or votes of each party over those of the median party with some, 1 at most, shape ``(m,)``."""
    return relative_size(claims.sum(axis=(1, 2)))


def relative_size(mass: Array) -> Array:
    """Divide sizes by that of the median party with some, 1 at most.

    Args:
        mass: size of each party's claims or votes, shape ``(m,)``, at least 0.

    Returns:
        Shape ``(m,)``; 0 for all if no party has any.
    """
    usual = np.median(mass[mass > 0]) if mass.any() else 1.0
    return np.asarray(np.minimum(1, mass / max(usual, _LEAST)))


def _spread(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> list[Suspect]:
    """Find claims of a class on far more rows than usual, if others contradict them or claim fewer rows."""
    mass = votes.sum(axis=1)
    rows = mass**2 / np.maximum((votes**2).sum(axis=1), _LEAST)
    holds = mass > 1
    if not holds.any():
        return []
    usual = float(np.median(rows[holds]))
    contradicted = _shares(ratios, outputs, votes, limits.sure, own=density(ratios))
    everywhere = _EVERYWHERE * votes.shape[1]
    found = []
    for c, y in np.argwhere(holds & (rows > min(limits.spread * usual, everywhere))):
        others = np.sort(np.delete(rows[:, y], c)[np.delete(holds[:, y], c)])
        times = rows[c, y] / others[(len(others) - 1) // 3] if len(others) else 0.0
        everywhere_alone = rows[c, y] > everywhere and times > _WIDER
        wide_alone = min(times, rows[c, y] / usual) > _WIDE and contradicted[c] > _SOME_OUTVOTED
        if contradicted[c] > _MOST_OUTVOTED or everywhere_alone or wide_alone:
            evidence = (
                f"its claims of one class are spread over {rows[c, y]:.0f} rows, the usual party's "
            )
            found.append(Suspect(int(c), float(rows[c, y] / usual), f"{evidence}over {usual:.0f}"))
    return found


def _outvoted(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> list[Suspect]:
    """Find claims on rows at which more parties claim another class.

    An attacker that claims another class at the rows of few honest holders can make them look outvoted
    instead of itself. The strongest suspect is therefore the party without which the fewest votes of all
    others are outvoted.
    """
    share = _contradicted(ratios, outputs, votes, limits)
    # The largest share of so many honest parties grows with their number; limits are for ten.
    if share.max() <= limits.outvoted * max(1, len(share) / 10) ** _MORE_PARTIES:
        return []
    found = []
    for c in range(len(votes)):
        others = np.arange(len(votes)) != c
        left = _contradicted(ratios[others], outputs[others], votes[others], limits)
        evidence = f"more parties claim another class on {share[c]:.0%} of what it votes for, and without it "
        evidence += (
            f"{left.sum():.2f} of all others' votes are contradicted, with it {share.sum():.2f}"
        )
        found.append(Suspect(c, float(share.sum() / max(left.sum(), _LEAST)), evidence))
    return found


def _contradicted(ratios: Array, outputs: Array, votes: Array, limits: Thresholds) -> Array:
    """Share of each party's squared votes that more parties contradict, times the size of its votes."""
    share = _shares(ratios, outputs, votes, limits.sure, own=np.ones(ratios.shape[:2]))
    return share * _weight(votes)


def wrong_on_labels(
    ratios: Array, outputs: Array, rows: Array, labels: Array, limits: Thresholds
) -> list[Suspect]:
    """Find the parties whose votes on labelled rows are wrong, in total or in one class.

    In total: the share of a party's squared votes for another class than the label is above 0.45, and above
    chance by two standard errors for the effective number of rows of its votes. The share of a party with few
    claims counts less, unless it is above 0.7 on eight rows. In one class: its mean wrong vote
    less its right one, each weighted by its squared density, is near the most that there can be. Or it votes
    for one labelled class on the rows of another as much as on its own: the ratio of its votes, 2 at most,
    times its mean share of votes there, weighted by density, is above 0.7; honest parties had 0.48 with
    exact ratios, and 0.66. A party without votes there is not judged.

    Args:
        ratios: bounded claims, shape ``(m, n, K)``.
        outputs: probabilities, of the same shape.
        rows: places of the labelled rows, shape ``(R,)``.
        labels: their classes, shape ``(R,)``.
        limits: thresholds for this kind of ratio.

    Returns:
        Suspects, each with its share.
    """
    if not len(rows):
        return []
    votes = ratios * outputs
    weight = _weight(ratios)
    dense = density(ratios)[:, rows]
    near = dense**2
    votes = votes[:, rows]
    right = votes / np.maximum(votes.sum(axis=2, keepdims=True), _LEAST)
    right = right[:, np.arange(len(rows)), labels]
    near = near * (votes.sum(axis=2) > 0)
    squares = (votes**2).sum(axis=2)
    total = np.maximum(squares.sum(axis=1), _LEAST)
    share = 1 - (votes[:, np.arange(len(rows)), labels] ** 2).sum(axis=1) / total
    spread_over = total**2 / np.maximum((squares**2).sum(axis=1), _LEAST)
    chance = 1 / outputs.shape[2] + 1 / np.sqrt(spread_over)
    found = []
    for c in range(len(votes)):
        by_class = {
            y: float((near[c] * (1 - 2 * right[c]))[labels == y].mean()) for y in set(labels)
        }
        worst = max(by_class, key=lambda y: by_class[y])
        mostly = share[c] > _MOSTLY_WRONG and spread_over[c] >= LEAST_ROWS
        judged = share[c] * (1 if mostly else weight[c])
        if judged > max(_WRONG, chance[c]) and squares[c].any():
            evidence = f"{share[c]:.0%} of its votes are wrong"
            found.append(Suspect(c, float(share[c] / _WRONG), evidence))
        elif by_class[worst] > limits.wrong_class:
            evidence = f"of one class its votes are wrong ({by_class[worst]:.2f} of 1.00)"
            found.append(Suspect(c, by_class[worst] / limits.wrong_class, evidence))
        elif (astray := _astray(votes[c], dense[c], labels)) > _ASTRAY:
            evidence = "it votes for one class on the rows of another as much as on its own"
            found.append(Suspect(c, astray / _ASTRAY, evidence))
    return found


def _astray(votes: Array, dense: Array, labels: Array) -> float:
    """Measure how far a party votes for a class on labelled rows of another class.

    Args:
        votes: shape ``(R, K)``.
        dense: its densities there, shape ``(R,)``.
        labels: classes of the rows, shape ``(R,)``.

    Returns:
        The maximum over pairs of labelled classes of a product. Its first factor is the mean vote on rows
        of the other class over the mean vote on rows of the voted class, 2 at most. Its second factor is
        the mean, on rows of the other class, of density times share of votes.
    """
    labelled, codes = np.unique(labels, return_inverse=True)
    of = np.eye(len(labelled))[codes]
    mean = of.T / of.sum(axis=0)[:, None]
    share = dense[:, None] * votes / np.maximum(votes.sum(axis=1, keepdims=True), _LEAST)
    there = mean @ votes[:, labelled]
    ratio = np.minimum(2, there / np.maximum(np.diag(there), _LEAST))
    ratio *= mean @ share[:, labelled]
    np.fill_diagonal(ratio, 0)
    return float(ratio.max())


def _shares(ratios: Array, outputs: Array, votes: Array, sure: bool, *, own: Array) -> Array:
    """Share of each party's squared votes at which more voices of others are for another class.

    A voice at a row is a party's density there over the usual density, 1 at most: parties are counted, not
    their claims. The square gives most weight to the rows at which a party claims most.

    Args:
        ratios: claims, shape ``(m, n, K)``.
        outputs: probabilities, of the same shape.
        votes: products of both.
        sure: whether a voice is divided by votes; else by probabilities.
        own: voices that a party's own vote counts for, shape ``(m, n)``.

    Returns:
        Shape ``(m,)``.
    """
    voice = density(ratios)[:, :, None]
    said = votes / np.maximum(votes.sum(axis=2, keepdims=True), _LEAST) if sure else outputs
    heard = (voice * said).sum(axis=0)
    found = np.zeros(len(votes))
    for c, vote in enumerate(votes):
        others = heard - voice[c] * said[c]
        outvoted = others.max(axis=1, keepdims=True) > others + own[c][:, None]
        weight = vote**2
        found[c] = (weight * outvoted).sum() / max(weight.sum(), _LEAST)
    return found


def density(ratios: Array) -> Array:
    """Size of claims over the usual density, 1 at most, shape ``(m, n)``."""
    size = ratios.sum(axis=2)
    claims = size.sum(axis=1) > 0
    usual = np.median(_usual(size)[claims]) if claims.any() else 1.0
    return np.asarray(np.minimum(1, size / max(usual, _LEAST)))


def _usual(size: Array) -> Array:
    """Mean size of each party's claims, weighted by size, shape ``(m,)``."""
    return np.asarray((size**2).sum(axis=1) / np.maximum(size.sum(axis=1), _LEAST))
