"""Table, plot and page of the distances between parties, and of their coverage of the public rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import RunFailed
from consilience.core.files import write_whole
from consilience.lab.diagnostics.heterogeneity import Distance, Heterogeneity
from consilience.lab.report.drawing import (
    COLOURS,
    Plot,
    add_legend,
    all_shortened,
    drawn,
)
from consilience.lab.report.html import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from consilience.lab.diagnostics.coverage import PublicCoverage

MEASURES = {"TV": "total variation", "W1": "Wasserstein-1 / spread"}


def parties_table(found: Heterogeneity, title: str, public: PublicCoverage | None = None) -> Table:
    """Lay out the table for a terminal: a line a party, then ω and the values expected by chance.

    Args:
        found: result of the comparison.
        title: title above the table.
        public: coverage of the public rows by the parties, if measured.

    Returns:
        A table of ``rich``.
    """
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    head, rows, below = _cells(found, public)
    for position, name in enumerate(head):
        shown.add_column(name, justify="left" if position < _words(found) else "right")
    for row in rows:
        shown.add_row(*map(Text, row))
    shown.add_section()
    for row in below:
        shown.add_row(*(Text(cell, style="bold" if row is below[0] else "dim") for cell in row))
    return shown


def _cells(
    found: Heterogeneity, public: PublicCoverage | None
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Column names, a row a party, and the rows below: ω, by chance, p-value."""
    head = ["party", "rows"] if found.classes is None else ["party", "largest", "classes", "rows"]
    blank = [""] * (len(head) - 1)
    head += [distance.title for distance in found.distances]
    rows = []
    for i, (name, n) in enumerate(zip(found.parties, found.rows, strict=True)):
        row = [name]
        if found.counts is not None:
            row += [found.shares(i), str(np.count_nonzero(found.counts[i]))]
        rows.append(
            [*row, f"{n:,}", *(_value(d, d.parties[i], d.errors[i]) for d in found.distances)]
        )
    mean = "ω, weighted by rows" if found.by_rows else "ω, the mean"
    below = [
        [mean, *blank, *(_value(d, d.omega, d.standard_error) for d in found.distances)],
        [
            "by chance",
            *blank,
            *(f"{d.chance_mean:.3f} ± {d.chance_sd:.3f}" for d in found.distances),
        ],
        ["p-value", *blank, *(f"{d.p_value:.3f}" for d in found.distances)],
    ]
    if public is not None:
        head.append("public known")
        for row in rows:
            share = public.shares.get(row[0])
            row.append("–" if share is None else f"{share:.0%}")
        for row in below:
            row.append("")
    return head, rows, below


def _words(found: Heterogeneity) -> int:
    """Number of leading text columns."""
    return 1 if found.classes is None else 2


def _value(distance: Distance, value: float, error: float) -> str:
    return f"{value:.3f}" if error == 0 else f"{value:.3f} ± {error:.3f}"


def notes(found: Heterogeneity, public: PublicCoverage | None = None) -> list[str]:
    """Explain the meaning of the figures and how they were computed, in plain sentences."""
    lines = [distance.meaning for distance in found.distances] + _of_public(public)
    lines[:0] = [found.warning] if found.warning else []
    methods = "; ".join(f"{d.title}: {d.method}" for d in found.distances)
    deals = len(found.labels.chance)
    lines.append(f"Computed as: {methods}. Chance: {deals} random deals of all rows, same sizes.")
    if found.inputs_w1 is not None:
        each = "every column divided by its standard deviation, " if found.equalized else ""
        lines.append(
            f"W1 of inputs is in units of the pooled spread ({each}{found.inputs_w1.unit:.4g}); ± is the "
            "standard error over directions, where they were sampled."
        )
    return lines


def _of_public(public: PublicCoverage | None) -> list[str]:
    return [] if public is None else [f"{public.sentence}. {public.meaning}", *public.remarks]


def parties_data(
    found: Heterogeneity, facts: Mapping[str, Any], public: PublicCoverage | None = None
) -> dict[str, Any]:
    """Collect all results as plain numbers and names, for JSON.

    Args:
        found: result of the comparison.
        facts: settings needed to reproduce the result.
        public: coverage of the public rows by the parties, if measured.

    Returns:
        Facts and results by name, with the coverage as ``"public"`` if given.
    """
    known = {} if public is None else {"public": public.as_data()}
    return {**facts, **found.as_data(), **known}


def draw_parties(found: Heterogeneity) -> Figure:
    """Draw a bar a party for every distance, over the range that random deals gave it.

    Args:
        found: result of the comparison.

    Returns:
        a matplotlib figure.
    """
    from matplotlib.figure import Figure

    parties, panels = len(found.parties), len(found.distances)
    height = float(np.clip(1.5 + 0.24 * parties, 2.6, 14))
    figure = Figure(figsize=(2.0 + 2.4 * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    places = np.arange(parties)
    for axis, distance in zip(axes, found.distances, strict=True):
        low, high = distance.chance.min(axis=0), distance.chance.max(axis=0)
        axis.barh(places, distance.parties, height=0.62, color=COLOURS[0], label="party")
        axis.barh(
            places,
            high - low,
            left=low,
            height=0.86,
            color=COLOURS[5],
            alpha=0.75,
            label="range by chance",
        )
        axis.axvline(distance.omega, color="#222222", lw=1.2, ls="--", label="ω")
        axis.set_title(distance.title, fontsize=9)
        axis.set_xlabel(MEASURES[distance.measure])
        axis.set_xlim(left=0)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="#e6e9ed", lw=0.7)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    step = -(-parties // 50)
    axes[0].set_yticks(places[::step], labels=all_shortened(found.parties)[::step])
    axes[0].set_ylim(parties - 0.5, -0.5)
    add_legend(figure, axes[0])
    return figure


def write_parties(
    found: Heterogeneity,
    folder: Path,
    *,
    title: str,
    facts: Mapping[str, Any],
    public: PublicCoverage | None = None,
) -> list[Path]:
    """Write the page, the plot and the data into a folder, which is made if it is not there.

    Args:
        found: result of the comparison.
        folder: target folder; its ``parties.html``, ``.svg``, ``.png`` and ``.json`` are replaced.
        title: title of the page.
        facts: settings needed to reproduce the result; printed on the page and put into the data.
        public: coverage of the public rows by the parties, if measured.

    Returns:
        the files, the page first.

    Raises:
        RunFailed: they cannot be written.
    """
    title_of_plot = "distance of every party from the mixture"
    plot = drawn("parties", title_of_plot, lambda: draw_parties(found), png=True)
    data = json.dumps(parties_data(found, facts, public), indent=2, ensure_ascii=False, default=str)
    files = {
        "parties.html": page(found, plot, title=title, facts=facts, public=public).encode(),
        "parties.svg": plot.svg.encode(),
        "parties.png": plot.png,
        "parties.json": (data + "\n").encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise RunFailed(
            f"cannot be written ({error.strerror})", where=str(error.filename or folder)
        ) from error
    return [folder / name for name in files]


def page(
    found: Heterogeneity,
    plot: Plot,
    *,
    title: str,
    facts: Mapping[str, Any],
    public: PublicCoverage | None = None,
) -> str:
    """Fill the page, in which every name is escaped.

    Args:
        found: result of the comparison.
        plot: the drawn figure.
        title: title of the page.
        facts: settings printed at the end of the page.
        public: coverage of the public rows by the parties, if measured.

    Returns:
        The page as HTML.
    """
    head, rows, below = _cells(found, public)
    lines = notes(found, public)
    meanings = len(found.distances) + len(_of_public(public)) + bool(found.warning)
    return render(
        "heterogeneity.html",
        found=found,
        plot=plot,
        title=title,
        facts=facts,
        head=head,
        rows=[*rows, *below],
        words=_words(found),
        meanings=lines[:meanings],
        computed=lines[meanings:],
    )
