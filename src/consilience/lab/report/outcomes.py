"""Survival, quantiles and several labels of a run: every party's metrics, curves, and calibration.

Curves and calibration are computed from the predictions for single test rows, which a simulated run keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.metrics.ranking import area_under_curve
from consilience.core.numerics.outcomes import Outcome, outcome_of
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.experiments.measured_rows import COLUMN
from consilience.lab.report.gains import pair_of
from consilience.lab.report.results import Method, Results, number, spread, words
from consilience.lab.report.verdict import Verdict, verdict
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.several_labels import MultiLabel
from consilience.tables.outcomes.survival import Survival
from consilience.tables.outcomes.survival_scores import KaplanMeier

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS, FEW = 4, 10
"""Most parts of a calibration curve, with as many rows each; and rows of a part where there are few."""

PANELS = 12
"""Parties that are drawn."""

_COLOURS = {"alone": "#777777", "after": "#0072B2"}


@prints_no_rows
@dataclass(frozen=True)
class OutcomeFigures:
    """Figures of a run of an outcome, under one method.

    Attributes:
        results: results of the run.
        method: the method.
        outcome: the predicted outcome.
        truth: targets of the test rows of the first seed, shape ``(n, ...)``; ``None`` if none are kept.
        said: ``"alone"`` and ``"after"`` to the predictions of every party's model for these rows, shape
            ``(parties, n, columns)``, NaN without a model.
    """

    results: Results
    method: Method
    outcome: Outcome
    truth: Array | None
    said: Mapping[str, Array]

    @property
    def survival(self) -> bool:
        """Tell whether it is survival."""
        return isinstance(self.outcome, Survival)

    @property
    def labels(self) -> bool:
        """Tell whether it is several labels."""
        return isinstance(self.outcome, MultiLabel)

    def by_label(self) -> dict[str, Any] | None:
        """Lay out each label's area under the curve, the parties' mean; ``None`` where no rows are kept."""
        if not self.labels or self.truth is None:
            return None
        rows = []
        for i, (name, y) in enumerate(zip(self.outcome.columns, self.truth.T, strict=True)):
            known = ~np.isnan(y)
            has = y[known] == 1
            cells = ["–", "–"]
            if has.any() and not has.all():
                cells = [
                    number(
                        float(np.mean([_area(one[known, i], has) for one in said if _made(one)]))
                    )
                    for said in self.said.values()
                ]
            rows.append([name, f"{int(known.sum()):,}", f"{int(has.sum()):,}", *cells])
        head = ["label", "test rows that tell", "of them have it", *self.said]
        return {"head": head, "rows": rows}

    @property
    def horizon(self) -> str:
        """The last edge, in words."""
        return f"{self.outcome.edges[-1]:g}"

    def tables(self) -> list[dict[str, Any]]:
        """Lay out every party's metrics, alone and after: own rows, then everyone's."""
        sides = (("_own", "own rows"), ("", self.results.everyones))
        return [
            self._table(suffix, title)
            for suffix, title in (sides if self.results.apart else sides[1:])
        ]

    def _table(self, suffix: str, title: str) -> dict[str, Any]:
        pairs = [pair_of(self.results, self.method, name + suffix) for name in self.outcome.metrics]
        rows = []
        for i, party in enumerate(self.results.parties):
            for j, when in enumerate(_COLOURS):
                values = [
                    None if pair is None else spread((pair.after if j else pair.before)[:, i])
                    for pair in pairs
                ]
                cells = ["–" if value is None else str(value) for value in values]
                rows.append([party if not j else "", when, *cells])
        head = ["party", "", *map(words, self.outcome.metrics)]
        return {"title": title[:1].upper() + title[1:], "head": head, "rows": rows}

    def curves(self) -> Figure:
        """Draw the mean predicted survival curve, and the Kaplan-Meier estimate of local test rows."""

        def draw(axis: Axes, y: Array, weights: Array, said: Mapping[str, Array]) -> None:
            times = np.append(0.0, self.outcome.edges)
            seen = KaplanMeier.of(y, weights)
            steps = np.unique(np.append(times, seen.times[seen.times <= times[-1]]))
            axis.step(steps, seen.at(steps), where="post", color="#222222", lw=1.1, label="seen")
            for when, values in said.items():
                mean = np.append(1.0, weights @ values / weights.sum())
                axis.plot(times, mean, "o-", color=_COLOURS[when], lw=1.4, ms=3, label=when)

        return self._panels(draw, "time", "share that survives")

    def calibration(self) -> Figure:
        """Draw observed frequencies against predictions.

        The frequency is, for survival, the share of rows that survive the last edge; for labels, the share of
        rows with a label; for quantiles, the share of values below each quantile.
        """

        def draw(axis: Axes, y: Array, weights: Array, said: Mapping[str, Array]) -> None:
            axis.plot([0, 1], [0, 1], color="#c5ccd3", lw=1)
            for when, values in said.items():
                points = self._calibrated(y, weights, values)
                axis.plot(*points, "o-", color=_COLOURS[when], lw=1.4, ms=3.5, label=when)

        if self.survival:
            return self._panels(draw, f"said to survive {self.horizon}", "share that survives")
        if self.labels:
            return self._panels(draw, "probability of a label", "share of rows that have it")
        return self._panels(draw, "quantile", "share of values below it")

    def _calibrated(self, y: Array, weights: Array, said: Array) -> tuple[Array, Array]:
        """Predicted probabilities or levels, and the observed share of rows for each."""
        if isinstance(self.outcome, Quantiles):
            return self.outcome.levels, weights @ (y[:, None] <= said) / weights.sum()
        if self.labels:  # all labels' probabilities together
            told = ~np.isnan(y)
            weights = (weights[:, None] * told)[told]
            return _in_parts(
                said[told], weights, lambda part: np.average(y[told][part], weights=weights[part])
            )
        last, end = said[:, -1], self.outcome.edges[-1:]

        def survived(part: Array) -> float:
            return float(KaplanMeier.of(y[part], weights[part]).at(end)[0])

        return _in_parts(last, weights, survived)

    def _panels(self, draw: Any, across: str, up: str) -> Figure:
        """Draw a panel for each of the first parties, of own rows."""
        from matplotlib.figure import Figure

        assert self.truth is not None
        shown = self.results.parties[:PANELS]
        columns = min(3, len(shown))
        lines = -(-len(shown) // columns)
        figure = Figure(figsize=(5.2, 0.5 + 1.9 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
        tests = self.results.tests[self.method.seeds[0]]
        own = tests.own if self.results.apart else np.ones_like(tests.own)
        for i, (axis, party) in enumerate(zip(axes, shown, strict=False)):
            if own[i].any():
                rows = np.flatnonzero(own[i])
                known = {w: s[i, rows] for w, s in self.said.items() if not np.isnan(s[i]).any()}
                draw(axis, self.truth[rows], own[i, rows].astype(np.float64), known)
            axis.set_title(party[:22].replace("_", " "), fontsize=8.5)
            axis.set_ylim(-0.03, 1.03)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        figure.supxlabel(across, fontsize=9)
        figure.supylabel(up, fontsize=9)
        found = max(
            (axis.get_legend_handles_labels() for axis in axes), key=lambda one: len(one[0])
        )
        figure.legend(*found, loc="outside upper left", ncols=3, frameon=False)
        return figure


def _in_parts(said: Array, weights: Array, seen: Callable[[Array], float]) -> tuple[Array, Array]:
    """Mean prediction and observed value in bins of rows sorted by prediction, with equal weight per bin."""
    order = np.argsort(said, kind="stable")
    many = min(PARTS, max(2, len(said) // FEW))
    place = np.minimum(many * weights[order].cumsum() / weights.sum(), many - 1e-9)
    parts = [order[place.astype(int) == part] for part in range(many)]
    parts = [part for part in parts if weights[part].any()]
    means = np.array([np.average(said[part], weights=weights[part]) for part in parts])
    return means, np.array([seen(part) for part in parts])


def _area(said: Array, has: Array) -> float:
    """Area under the curve of a label's probabilities."""
    return area_under_curve(said, has, np.ones(len(has)))


def _made(said: Array) -> bool:
    """Tell whether a party had a model to predict with."""
    return not np.isnan(said).any()


def outcome_figures(results: Results, found: Verdict | None) -> OutcomeFigures | None:
    """Gather the figures of the verdict's method; ``None`` for classes and values.

    Args:
        results: of a run.
        found: its verdict.
    """
    method = None if found is None else results.method(found.method)
    try:
        outcome = outcome_of(str(results.meta.get("outcome", "")))
    except InvalidInput:
        return None
    if method is None or outcome is None:
        return None
    pairs = [
        pair_of(results, method, outcome.metrics[0], rows=f"{COLUMN}{name}")
        for name in outcome.columns
    ]
    seed, said = method.seeds[0], {}
    truth = _truth(results, outcome, seed)
    if truth is not None and all(pair is not None and seed in pair.rows for pair in pairs):
        for j, when in enumerate(_COLOURS):
            said[when] = np.stack(
                [pair.rows[seed][j] for pair in pairs if pair is not None], axis=2
            )
    return OutcomeFigures(results, method, outcome, truth if said else None, said)


def outcome_plots(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, title and maker of the pictures of an outcome, if there are any."""
    known = outcome_figures(results, verdict(results))
    if known is not None and known.truth is not None:
        if known.survival:
            yield "survival", "survival curves", known.curves
        yield "outcome-calibration", "calibration", known.calibration


def _truth(results: Results, outcome: Outcome, seed: int) -> Array | None:
    """Targets of the test rows as a run notes them; ``None`` where it noted none that fit."""
    if seed not in results.tests:
        return None
    try:
        truth = outcome.read(results.meta.get(f"targets {seed}", ()), where="targets")
    except (InvalidInput, ValueError, TypeError):  # a stranger's notes
        return None
    return truth if len(truth) == results.tests[seed].own.shape[1] else None
