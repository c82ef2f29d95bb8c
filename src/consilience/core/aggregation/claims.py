"""Bounds on the density ratios that parties claim, and tests for claims that the other parties contradict.

m parties, n public rows, K classes; ``s_c(x, y)`` is the density ratio that party c claims, ``p_c(x, y)`` its
probability, and ``v_c = s_c p_c`` its vote. The size of a party's claims at a row is ``S_c(x) = sum_y s_c``.
Nothing here reads a label. ``docs/theory/robustness.md`` proves what such tests can and cannot find.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from consilience.core.validation.arrays import Array

ABOVE_USUAL = 1.5
"""Times the usual density at a row that one party may claim there."""

SAME = 1e-3
"""Range, or standard deviation over rows, of a probability that is the same for all rows."""

_LEAST = 1e-12
"""Least divisor; a sum of claims below it is none."""

_APART_MEANS = 3.0
"""Median distances of the parties' mean values by which the usual range is wider at either end."""

_COPY = 1e-4
"""One less the cosine of the claims, and of the outputs, of two parties above which one is a copy."""

_MEASURES: tuple[Callable[[Array, Array], Array], ...] = (
    lambda ratios, outputs: ratios.sum(axis=2),
    lambda ratios, outputs: ratios.max(axis=2),
    lambda ratios, outputs: (ratios * outputs).sum(axis=2),
)
"""Sizes of claims at a row, each of which one choice of ``auto`` weighs parties by: all classes together, the
largest class, and the vote."""


def bounded(ratios: Array, outputs: Array, whole: float = 1.0) -> Array:
    """Scale down claims that are larger than those of the usual party, and those of copies.

    Parties with claims and outputs that are alike to about one percent count as one: their claims are
    divided by their number.

    At a row a party may claim :data:`ABOVE_USUAL` times the usual density, and over all rows as much as the
    median party; both by each of three measures. The usual density is the median over parties of their mean
    density at the rows that they claim, ``sum_x size² / sum_x size``. Parties without claims count in
    neither. If half of the parties or more claim nothing, as with coarse ratios of small classes, no claims
    count.

    Args:
        ratios: claims, shape ``(m, n, K)``; below 0 is 0.
        outputs: probabilities, of the same shape.
        whole: times the median party's claims that one party may claim over all rows.

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
    """Give the least and the largest value that a party may predict, for each target.

    These are the medians over parties of their least and largest values, and at either end as much again and
    three times the median distance of a party's mean from the median one. If half of the parties or more
    predict other sizes than the median party, all keep theirs; a single one that is far off does not.

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
    """Tell whether parties claim enough of the classes that they predict for a rule to use their claims.

    A coarse density ratio is 0 for a class of which a party has few rows. If the median party claims only a
    third of the classes that it tells from row to row, claims are of the other classes alone, and a rule that
    used them would miss the rest.

    Args:
        ratios: claims, shape ``(m, n, K)``.
        outputs: probabilities, of the same shape.
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
    """Mark the parties whose answers, shape ``(m, n, K)``, are the same for every row of several."""
    if outputs.shape[1] == 1:
        return np.zeros(len(outputs), dtype=bool)
    return np.asarray(np.ptp(outputs, axis=1).max(axis=1) < SAME)


class Suspect(NamedTuple):
    """A party whose claims the others contradict.

    Attributes:
        party: its place among the m parties.
        strength: how far it is beyond the threshold of its test, 1 at the threshold.
        evidence: a clause on what was found.
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
"""Thresholds for exact and coarse density ratios. Chosen on seeds 0 to 5 of digits, heart disease with nobody
malicious and under attack, between the largest honest party and the smallest attacker; coarse claims overlap
more, so that their thresholds spare more parties and find fewer attackers."""

LEAST_ROWS = 8
"""Public rows below which agreement on them is no evidence."""

_SMALL = 0.7
"""Votes over the median party's below which a party has few."""

_APART = 0.1
"""Least difference of the median likeness to the own and to another class; below it no two parties share a
class, and likeness is no evidence."""

_WRONG = 0.45
"""Share of squared votes on labelled rows that are wrong; honest parties had 0.22 with exact ratios, and
0.43."""

_MOSTLY_WRONG = 0.7
"""The same share, from which on a party of few claims is judged as one of many."""

_ASTRAY = 0.7
"""Votes for a class on labelled rows of another: between the largest honest party and most attackers."""

_EVERYWHERE, _WIDER, _WIDE = 0.9, 1.8, 3.8
"""Share of all public rows over which claims of a class are everywhere; times the rows of others that claim
the class that are needed for it; and times their rows from which little contradiction is needed."""

_CONSISTENT = 0.4
"""Share of the usual party's agreement between model and claims that a party must have; honest ones had
0.57."""

_MORE_PARTIES = 0.2
"""Exponent by which the threshold of the test of outvoted claims rises with the parties beyond ten: of fifty
honest ones with 28 rows each the largest share was 0.45."""

_SOME_OUTVOTED, _MOST_OUTVOTED = 0.18, 0.4
"""Share of votes, by its own density, that must be outvoted for a spread of claims to be evidence: if the
claims are also on far more rows than those of the class's other holders, and otherwise."""


def suspects(
    ratios: Array, outputs: Array, limits: Thresholds, spared: Collection[int] = ()
) -> list[Suspect]:
    """Find the parties whose claims the others contradict, by five tests.

    The first test that finds a party decides: inconsistent, misplaced, spread, leading, outvoted. A caller
    that excludes parties takes the strongest, and asks again without it, because an attacker changes the
    figures of all others.

    Args:
        ratios: bounded claims, shape ``(m, n, K)``, of three parties or more.
        outputs: probabilities, of the same shape.
        limits: thresholds for this kind of ratio.
        spared: places of parties that are no suspects, whatever they claim.

    Returns:
        Suspects of one test, the strongest first; empty if no test finds any, or if there are fewer public
        rows than are evidence.
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
    """Claims that the party's own model contradicts, as of another table or with labels in another order."""
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
    """Claims that lie where the others claim another class."""
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
    """Claims that are far more like the others' claims of another class, whatever the usual party's are."""
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
    """Claims of a class on far more rows than is usual, which others contradict or claim on fewer rows."""
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
    """Claims on rows at which more parties claim another class.

    An attacker that claims another class at the rows of few honest holders can have them outvoted instead of
    itself. So the party to exclude is the one without which the least is outvoted of all others' claims.
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
    """Find the parties whose votes on labelled rows are wrong, in all or in one class.

    In all: the share of a party's squared votes for another class than the label is above 0.45, and above
    chance by two standard errors of as many rows as its votes lie on. The share of a party of few claims
    counts less, unless it is above 0.7 on eight rows. In one class: its mean wrong vote
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
    """How far a party's votes for a class lie on labelled rows of another.

    Args:
        votes: shape ``(R, K)``.
        dense: its densities there, shape ``(R,)``.
        labels: classes of the rows, shape ``(R,)``.

    Returns:
        The largest, over pairs of classes that have labelled rows, of the mean vote over that on the own
        class's rows, 2 at most, times the mean of its density times its share of votes.
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
