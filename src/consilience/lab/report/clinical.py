"""Reports of two classes, one of them positive: discrimination and calibration of every party.

AUC, average precision, balanced accuracy at probability one half and Brier score are measured before and
after exchange, on local and global test sets, with 95 % bootstrap intervals over test rows
(:mod:`consilience.lab.report.gains`). The module also gives calibration curves, and the same figures for
groups of test rows. All figures are computed from the probabilities of single test rows, which a simulated
run keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import class_order
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.experiments import Spec
from consilience.lab.report.gains import pair_of, row_counts, t_interval
from consilience.lab.report.results import Results, mean, number, spread, words
from consilience.lab.report.verdict import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("auc", "average_precision", "balanced_accuracy", "brier")
BINS = 5
"""Parts of a calibration curve, with as many rows each."""

FEW = 10
"""Rows of either class below which a group's figures are left out."""

_NUMBERS, _FEWEST_DRAWS = 20_000_000, 200
"""Numbers of all parties and rows in draws, beyond which there are fewer draws; and the fewest."""

Table = dict[str, Any]


@prints_no_rows
@dataclass(frozen=True)
class _Curves:
    """Probabilities of the positive class with one seed.

    Attributes:
        key: digest of the test rows.
        before: by every party's local model, shape ``(parties, n_test)``, NaN without a model.
        after: by its model after the last round.
        positive: true in rows of the class, shape ``(n_test,)``.
        own: weights of the rows in each party's local test set, shape ``(parties, n_test)``.
        groups: name of each row's group, shape ``(n_test,)``; ``None`` without configured groups.
    """

    key: str
    before: Array
    after: Array
    positive: Array
    own: Array
    groups: Array | None


@dataclass(frozen=True)
class Clinical:
    """Figures of a run of two classes under one method.

    Attributes:
        results: results of the run.
        method: label of the method.
        positive: name of the positive class.
        share: its share of everyone's test rows, with the first seed.
        seeds: probabilities by seed.
    """

    results: Results
    method: str
    positive: str
    share: float
    seeds: tuple[_Curves, ...]

    def tables(self) -> list[Table]:
        """Lay out every party's figures, alone and after: own rows, then everyone's."""
        sides = ((True, "own rows"), (False, self.results.everyones))
        return [
            self._table(own, title) for own, title in (sides if self.results.apart else sides[1:])
        ]

    def _table(self, own: bool, title: str) -> Table:
        found = [self._figures(one, own) for one in self.seeds]
        rows = []
        for i, party in enumerate(self.results.parties):
            for j, when in enumerate(("alone", "after")):
                cells = [_cell([seed[name][j, i] for seed in found]) for name in METRICS]
                rows.append([party if not j else "", when, *cells])
        return {
            "title": title[:1].upper() + title[1:],
            "head": ["party", "", *map(words, METRICS)],
            "rows": rows,
        }

    def _figures(self, one: _Curves, own: bool, rows: Array | None = None) -> dict[str, Array]:
        """Figures of a seed: metric to its value and its draws, shape ``(2, parties, 1 + draws)``.

        Args:
            one: the seed.
            own: of own rows alone.
            rows: marks the rows to look at; by default all.
        """
        n = one.own.shape[1]
        most = max(_FEWEST_DRAWS, _NUMBERS // one.own.size)
        drawn = np.concatenate([part for _, part in row_counts(one.key, n)])[:most]
        counts = [np.ones((1, n)), drawn]
        weights = one.own if own else np.ones_like(one.own)
        if rows is not None:
            weights = weights * rows
        parts = [
            [
                {name: np.full(len(count), np.nan) for name in METRICS}
                if np.isnan(said).any()
                else measure(count * weight, said, one.positive)
                for said, weight in zip(side, weights, strict=True)
            ]
            for count in counts
            for side in (one.before, one.after)
        ]
        sides = (parts[0::2], parts[1::2])
        return {
            name: np.array(
                [
                    [np.concatenate([part[i][name] for part in side]) for i in range(len(weights))]
                    for side in sides
                ]
            )
            for name in METRICS
        }

    def by_group(self) -> Table | None:
        """Lay out the parties' mean figures on local test rows of each group.

        Returns:
            The table; ``None`` without configured groups.
        """
        if self.seeds[0].groups is None:
            return None
        named = (one.groups for one in self.seeds if one.groups is not None)
        names = sorted({str(name) for groups in named for name in groups}, key=_in_order)
        rows: list[list[Any]] = []
        for group in names:
            marks = [one.groups == group for one in self.seeds if one.groups is not None]
            held = int(marks[0].sum())
            ill = int((marks[0] & self.seeds[0].positive).sum())
            head = [group, f"{held:,}", f"{ill:,}"]
            if min(ill, held - ill) < FEW:
                rows += [[*head, "too few to tell", *["–"] * len(METRICS)]]
                continue
            found = [
                (self._figures(one, self.results.apart, mark), ~np.isnan(one.before).any(axis=1))
                for one, mark in zip(self.seeds, marks, strict=True)
            ]
            for j, when in enumerate(("alone", "after")):
                cells = [
                    _cell([mean(seed[name][j][both], 0) for seed, both in found])
                    for name in METRICS
                ]
                rows.append([*(head if not j else ["", "", ""]), when, *cells])
        head = ["group", "test rows", f"of them {self.positive}", "", *map(words, METRICS)]
        return {"head": head, "rows": rows}

    def figure(self) -> Figure:
        """Draw calibration curves of the first parties on own rows: share of the class by probability."""
        from matplotlib.figure import Figure

        one, shown = self.seeds[0], self.results.parties[:12]
        across = min(3, len(shown))
        down = -(-len(shown) // across)
        figure = Figure(figsize=(5.2, 0.5 + 1.9 * down), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
        weights = one.own if self.results.apart else np.ones_like(one.own)
        drawn = np.concatenate([part for _, part in row_counts(one.key, one.own.shape[1])])
        for i, (axis, party) in enumerate(zip(axes, shown, strict=False)):
            axis.plot([0, 1], [0, 1], color="#c5ccd3", lw=1)
            for side, colour, label in (
                (one.before, "#777777", "alone"),
                (one.after, "#0072B2", f"after {self.method}"),
            ):
                if not np.isnan(side[i]).any() and weights[i].any():
                    said, seen, low, high = calibration_curve(
                        side[i], one.positive, weights[i], drawn
                    )
                    axis.plot(said, seen, "o-", color=colour, lw=1.4, ms=3.5, label=label)
                    axis.vlines(said, low, high, color=colour, lw=0.8, alpha=0.6)
            axis.set_title(party[:22].replace("_", " "), fontsize=8.5)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        figure.supxlabel(f"probability of {self.positive}", fontsize=9)
        figure.supylabel("share of rows", fontsize=9)
        handles, labels = next(
            (found for axis in axes if (found := axis.get_legend_handles_labels())[0]), ([], [])
        )
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
        return figure


def clinical(results: Results, found: Verdict | None) -> Clinical | None:
    """Gather the figures of the verdict's method; ``None`` without probabilities of two classes.

    Args:
        results: of a run.
        found: its verdict.
    """
    spec, held = results.spec, results.holdings
    method = None if found is None else results.method(found.method)
    if method is None or held is None or not isinstance(spec, Spec):
        return None
    names = class_order(held.classes)
    pair = pair_of(results, method, "auc")
    if pair is None or not pair.rows or len(names) != 2:
        return None
    first = next(iter(pair.rows.values()))[1]
    second = np.nanmax(first, axis=0) > 0
    asked = spec.report.positive
    flipped = second.mean() > 0.5 if asked not in names else asked == names[0]
    seeds = []
    for seed, (before, after) in pair.rows.items():
        positive = np.nanmax(after, axis=0) > 0
        groups = results.meta.get(f"subgroup {seed}")
        seeds.append(
            _Curves(
                key=results.tests[seed].key,
                before=_probability(before, flipped),
                after=_probability(after, flipped),
                positive=positive != flipped,
                own=results.tests[seed].own,
                groups=_named(groups, len(positive)),
            )
        )
    return Clinical(
        results=results,
        method=method.label,
        positive=names[0 if flipped else 1],
        share=float((second != flipped).mean()),
        seeds=tuple(seeds),
    )


def clinical_figures(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, title and maker of the calibration curves, if there are any."""
    if (known := clinical(results, verdict(results))) is not None:
        yield "calibration", f"calibration, {known.positive}", known.figure


def _named(groups: Any, rows: int) -> Array | None:
    """Group of each test row, as a run notes it; ``None`` where it noted none that fit."""
    fits = isinstance(groups, list) and len(groups) == rows
    return np.array([str(name) for name in groups]) if fits else None


def _probability(signed: Array, flipped: bool) -> Array:
    """Recover the positive class's probability from the signed probabilities of the second class."""
    second = np.abs(signed).astype(np.float64)
    return 1 - second if flipped else second


def measure(weights: Array, said: Array, positive: Array) -> Mapping[str, Array]:
    """Compute :data:`METRICS` under several weights of the rows.

    Args:
        weights: shape ``(draws, n)``.
        said: probability of the class, shape ``(n,)``.
        positive: true in rows of the class, shape ``(n,)``.

    Returns:
        Metric name to values, shape ``(draws,)``.
    """
    order = np.argsort(-said, kind="stable")
    starts = np.flatnonzero(np.diff(said[order], prepend=np.inf))
    weights, positive, said = weights[:, order], positive[order], said[order]
    hits, misses = (
        np.add.reduceat(weights * side, starts, axis=1) for side in (positive, ~positive)
    )
    held, others = hits.sum(axis=1), misses.sum(axis=1)
    above, found = misses.cumsum(axis=1), (hits + misses).cumsum(axis=1)
    right = said > 0.5
    with np.errstate(
        invalid="ignore", divide="ignore"
    ):  # of a draw without the class there is none
        precision = hits.cumsum(axis=1) / np.where(found > 0, found, 1)
        return {
            "auc": 1 - (hits * (above - misses / 2)).sum(axis=1) / (held * others),
            "average_precision": (hits * precision).sum(axis=1) / np.where(others > 0, held, 0),
            "balanced_accuracy": (
                (weights @ (positive & right)) / held + (weights @ (~positive & ~right)) / others
            )
            / 2,
            "brier": (weights @ (said - positive) ** 2) / weights.sum(axis=1),
        }


def calibration_curve(
    said: Array, positive: Array, weights: Array, drawn: Array
) -> tuple[Array, Array, Array, Array]:
    """Compute mean probability and share of the class in :data:`BINS` bins of equal weight.

    Args:
        said: probability of the class, shape ``(n,)``.
        positive: true in rows of the class, shape ``(n,)``.
        weights: weights of the rows, shape ``(n,)``, some above 0.
        drawn: counts of the rows in draws, shape ``(draws, n)``.

    Returns:
        Mean probability, share, and the ends of its 95 % interval, one number per non-empty bin; rows of
        equal probability stay together.
    """
    order = np.argsort(said, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    starts = np.flatnonzero(np.diff(said[order], prepend=-np.inf))
    first = before[starts].repeat(np.diff([*starts, len(said)]))
    part = np.minimum((first / weights.sum() * BINS).astype(int), BINS - 1)
    member = weights[order, None] * (part[:, None] == np.arange(BINS))
    member = member[:, member.any(axis=0)]
    held = member.sum(axis=0)
    drawn = drawn[:, order]
    with np.errstate(
        invalid="ignore", divide="ignore"
    ):  # of a draw without rows of a part there is none
        shares = ((drawn * positive[order]) @ member) / (drawn @ member)
    low, high = np.nanpercentile(shares, [2.5, 97.5], axis=0)
    return said[order] @ member / held, positive[order] @ member / held, low, high


def _cell(seeds: list[Array]) -> str:
    """A figure with its interval, of values and draws by seed, shape ``(1 + draws,)`` each."""
    overall = spread(float(one[0]) for one in seeds)
    if overall is None:
        return "–"
    draws = mean(np.array([one[1:] for one in seeds]), 0)
    if not np.isfinite(draws).any():
        return number(overall.mean)
    if overall.sd is None:
        low, high = np.nanpercentile(draws, [2.5, 97.5])
    else:
        low, high = t_interval(overall, float(np.nanvar(draws)))
    return f"{number(overall.mean)} ({number(max(low, 0))} to {number(min(high, 1))})"


def _in_order(name: str) -> tuple[Any, ...]:
    """Key that sorts numbers by size, and names by letters after them."""
    try:
        return (0, float(name.split()[-1].replace(",", "")), name)
    except ValueError:
        return (1, name)
