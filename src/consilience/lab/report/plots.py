"""Plots of a run, as PNG and SVG: figures only, no global state of matplotlib is left changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.files import write_whole
from consilience.core.validation.arrays import Array
from consilience.lab.data import Holdings, draw
from consilience.lab.report.clinical import clinical_figures
from consilience.lab.report.drawing import (
    COLOURS,
    MARKERS,
    WIDTH,
    Plot,
    add_legend,
    all_shortened,
    drawn,
    name_ticks,
    one_axis,
    rounds_axis,
    shortened,
)
from consilience.lab.report.outcomes import outcome_plots
from consilience.lab.report.results import Method, Results, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINES = {
    "local": ("#777777", "--"),
    "central": ("#222222", ":"),
    "class-holders": ("#777777", "-."),
    "true-labels": ("#222222", (0, (5, 1, 1, 1, 1, 1))),
}
CELLS = 12
"""Up to this many parties and classes have their weights written into the heat map."""
DRAWN = 1_000
"""Parties for whom there are figures with a mark for each."""


def draw_all(results: Results, folder: Path | None = None) -> tuple[Plot, ...]:
    """Draw every figure that the run has data for.

    Args:
        results: the run.
        folder: the folder to write each into, as ``.png`` and ``.svg``; by default none.
    """
    plots = []
    for name, title, figure in _figures(results):
        plots.append(drawn(name, title, figure, png=folder is not None))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"{name}.svg", plots[-1].svg)
            write_whole(folder / f"{name}.png", plots[-1].png)
    return tuple(plots)


def _figures(results: Results) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    metric, few = results.metric, len(results.parties) <= DRAWN
    sides = [] if metric is None else [(metric, "")]
    if metric is not None and results.apart:
        sides.append((f"{metric}_own", "-own"))
    for name, suffix in sides:
        title = results.titled(name)
        yield f"rounds{suffix}", f"{title}, over rounds", partial(over_rounds, results, name)
        if few and any(method.exchanges for method in results.methods):
            yield f"parties{suffix}", f"{title}, by party", partial(per_party, results, name)
    yield from clinical_figures(results)
    yield from outcome_plots(results)
    unequal = [method for method in results.methods if few and uneven(method.trust)]
    top = max((float(np.nanmax(m.trust)) for m in unequal if m.trust is not None), default=1.0)
    for i, method in enumerate(unequal):
        yield f"trust-{i + 1}", f"trust under {method.label}", partial(trust, results, method, top)
    if few and results.holdings is not None:
        held = results.holdings
        names = Holdings(held.counts, all_shortened(held.parties), all_shortened(held.classes, 14))
        yield "holdings", "rows of each class per party", lambda: draw(names)
    if any(_talks(method) for method in results.methods):
        yield "bytes", "bytes on the wire", lambda: traffic(results)
    if any(np.isfinite(method.teacher).any() for method in results.methods):
        yield "teacher", "accuracy of the teacher", lambda: teachers(results)
    if any(method.errors for method in results.methods):
        yield "teacher-error", "what the teacher's error is made of", lambda: errors(results)


def over_rounds(results: Results, metric: str) -> Figure:
    """Draw the mean over parties, round by round; bands are ± one standard deviation over seeds."""
    figure, axis = one_axis(3.3)
    for method in results.methods:
        if metric not in method.scores:
            continue
        values = method.over_rounds(metric)
        _line(axis, results, method, np.array(method.rounds), values)
    rounds_axis(
        axis,
        max((m.rounds[-1] for m in results.methods if m.rounds), default=1),
        "round (0: alone)",
    )
    axis.set_ylabel(f"{results.titled(metric)}\nmean of parties")
    add_legend(figure, axis)
    return figure


def teachers(results: Results) -> Figure:
    """Draw the teacher's accuracy on the public rows, whose labels only the experiment has."""
    figure, axis = one_axis(3.0)
    for method in results.methods:
        if np.isfinite(method.teacher).any():
            rounds = np.arange(1, method.teacher.shape[1] + 1)
            _line(axis, results, method, rounds, method.teacher)
    rounds_axis(axis, max(m.teacher.shape[1] for m in results.methods), "round", first=1)
    axis.set_ylabel("teacher's accuracy")
    add_legend(figure, axis)
    return figure


def errors(results: Results) -> Figure:
    """Draw the teacher's squared error, its weighted bias, its variance, and the concentration of weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    methods = [method for method in results.methods if method.errors]
    for axis, (title, names) in zip(axes.flat, _PARTS.items(), strict=True):
        for method in methods:
            values = np.sum([method.errors[name] for name in names], axis=0)
            _line(axis, results, method, np.arange(1, values.shape[1] + 1), values)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        last = max(method.teacher.shape[1] for method in methods)
        rounds_axis(axis, last, "round" if axis in axes[1] else "", first=1)
        axis.set_title(title, fontsize=9.5, loc="left")
    add_legend(figure, axes[0, 0])
    return figure


_PARTS = {
    "mean squared error": ("mse",),
    "weighted bias": ("bias",),
    "variance and correlation": ("variance", "correlation"),
    "weight concentration Σ w²": ("concentration",),
}
"""Panels of :func:`errors`, and the parts whose sum they show."""


def per_party(results: Results, metric: str) -> Figure:
    """Draw every party alone (ring) and after the last round of every exchange method (filled)."""
    alone = results.baseline("local")
    methods = [m for m in results.methods if m.exchanges and metric in m.scores]
    central = results.baseline("central")
    step = 0.8 / len(methods)
    figure, axis = one_axis(min(300, 1.3 + len(results.parties) * max(0.3, 0.14 * len(methods))))
    rows = np.arange(len(results.parties))
    for party in rows[1::2]:
        axis.axhspan(party - 0.5, party + 0.5, color="#f3f5f7", lw=0)
    for i, method in enumerate(methods):
        first = method.scores[metric][:, 0]
        if alone is not None and metric in alone.scores:
            first = alone.scores[metric][:, -1]
        before, after = mean(first, 0), mean(method.scores[metric][:, -1], 0)
        y = rows + (i - (len(methods) - 1) / 2) * step
        look = _look(results, method)
        ends = np.column_stack(
            [before, after, np.full(len(rows), np.nan)]
        )  # a gap after each party
        axis.plot(ends.ravel(), y.repeat(3), color=look["color"], lw=1.6, alpha=0.55)
        axis.plot(before, y, "o", mfc="white", mec="#777777", ms=4.5)
        axis.plot(after, y, look["marker"], color=look["color"], ms=5.5)
    if central is not None and metric in central.scores:
        pooled = mean(central.scores[metric][:, -1], 0)
        for party, x in zip(rows, pooled, strict=True):
            axis.plot([x, x], [party - 0.42, party + 0.42], color="#222222", lw=1.4, ls=":")
    axis.plot([], [], "o", mfc="white", mec="#777777", ms=4.5, label="alone")
    for method in methods:
        look = {**_look(results, method), "ls": ""}
        axis.plot([], [], **look, ms=5.5, label=shortened(method.label))
    if central is not None and metric in central.scores:
        axis.plot([], [], color="#222222", lw=1.4, ls=":", label=shortened(central.label))
    axis.set_ylim(len(results.parties) - 0.5, -0.5)
    axis.set_yticks(range(len(results.parties)), labels=all_shortened(results.parties))
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="#e6e9ed", lw=0.7)
    axis.set_xlabel(f"{results.titled(metric)} (mean over seeds)")
    add_legend(figure, axis)
    return figure


def trust(results: Results, method: Method, top: float) -> Figure:
    """Draw the mean weight of each party in the teacher, class by class.

    Of the method's first seed, in its last round: with other seeds the parties hold other rows. Boxes mark
    classes that a party holds, where some lack some.

    Args:
        results: the run.
        method: whose teacher.
        top: the weight of the darkest colour, the same for all methods.
    """
    from matplotlib.patches import Rectangle

    split, weights = results.splits[method.seeds[0]], method.trust
    assert weights is not None
    parties, classes = weights.shape
    few = max(parties, classes) <= CELLS
    size = float(np.clip(1.7 + 0.36 * classes, 3.6, 10))
    figure, axis = one_axis(float(np.clip(1.3 + 0.3 * parties, 2.2, 11)), width=size)
    image = axis.imshow(
        np.ma.masked_invalid(weights), cmap="Blues", vmin=0, vmax=top, aspect="auto"
    )
    held = np.nonzero(split.counts) if not split.counts.all() else ()
    for party, label in zip(*held, strict=True):
        box = (label - 0.48, party - 0.48)
        axis.add_patch(Rectangle(box, 0.96, 0.96, fill=False, ec="#D55E00", lw=1.6 if few else 0.6))
    if few:
        for (party, label), weight in np.ndenumerate(weights):
            text = "–" if np.isnan(weight) else f"{weight:.2f}".lstrip("0") or "0"
            dark = weight > 0.6 * top
            colour = "white" if dark else "#333333"
            axis.text(label, party, text, ha="center", va="center", fontsize=7.5, color=colour)
    if not few:
        bar = figure.colorbar(image, ax=axis, fraction=0.05, pad=0.02)
        bar.set_label("mean weight", fontsize=8.5)
        bar.outline.set_visible(False)
    name_ticks(axis.yaxis, all_shortened(split.parties), 40)
    crowded = max(map(len, split.classes)) > 3
    name_ticks(axis.xaxis, all_shortened(split.classes, 14), 25)
    if crowded:
        axis.tick_params(axis="x", labelrotation=45)
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    axis.tick_params(length=0)
    axis.set_xlabel("class of the public rows")
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure


def traffic(results: Results) -> Figure:
    """Draw the bytes sent so far by all parties (solid) and to them (dashed), evaluation aside."""
    figure, axis = one_axis(3.0)
    methods = [method for method in results.methods if _talks(method)]
    most = max(float(m.bytes_up.sum() + m.bytes_down.sum()) / len(m.seeds) for m in methods)
    scale, unit = next(
        (s, u)
        for s, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
        if most >= s or s == 1
    )
    for method in methods:
        look = _look(results, method)
        rounds = np.arange(method.bytes_up.shape[1])
        for values, line in ((method.bytes_up, "-"), (method.bytes_down, "--")):
            total = values.sum(axis=2).mean(axis=0).cumsum() / scale
            label = shortened(method.label) if line == "-" else None
            style = {**look, "ls": line, "ms": 4}
            axis.plot(rounds, total, **style, lw=1.6, label=label)
    axis.plot([], [], color="#444444", ls="-", label="from parties")
    axis.plot([], [], color="#444444", ls="--", label="to parties")
    rounds_axis(axis, max(m.bytes_up.shape[1] - 1 for m in methods), "round (0: set-up)")
    axis.set_ylim(bottom=0)
    axis.set_ylabel(f"{unit} so far")
    add_legend(figure, axis)
    return figure


def uneven(weights: Array | None) -> bool:
    """Tell whether a teacher trusted some parties more than others."""
    if weights is None or not np.isfinite(weights).any():
        return False
    weights = weights[:, np.isfinite(weights).any(axis=0)]  # no public row may be of a rare class
    return bool((np.nanmax(weights, axis=0) - np.nanmin(weights, axis=0)).max() > 1e-9)


def _talks(method: Method) -> bool:
    return method.aggregate not in ("local", "central") and bool(method.bytes_up.any())


def _line(axis: Any, results: Results, method: Method, rounds: Array, values: Array) -> None:
    middle = mean(values, axis=0)
    look = _look(results, method)
    if method.aggregate in BASELINES:
        look["marker"] = ""
    axis.plot(rounds, middle, **look, lw=1.8, ms=4.5, label=shortened(method.label))
    if len(values) > 1:
        masked: Any = np.ma.masked_invalid(values)
        sd = np.ma.filled(masked.std(axis=0, ddof=1), 0.0)
        band = {"color": look["color"], "alpha": 0.12, "lw": 0}
        axis.fill_between(rounds, middle - sd, middle + sd, **band)


def _look(results: Results, method: Method) -> dict[str, Any]:
    """Colour, marker and line of a method: the same in every figure of a run."""
    if method.aggregate in BASELINES:
        colour, line = BASELINES[method.aggregate]
        return {"color": colour, "ls": line, "marker": "|"}
    ours = [m.label for m in results.spec.methods if m.aggregate not in BASELINES]
    i = ours.index(method.label)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "ls": "-",
        "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)],
    }
