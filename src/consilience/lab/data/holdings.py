"""Rows of each class that each party holds, as a table and as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, visible
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

WIDE = 12
"""More classes than this are summed up, not given a column each, in a printed table."""
BUBBLES = 20
"""Up to this many parties and classes are drawn as bubbles with numbers, more as a heat map."""
QUARTERS = 4


@prints_no_rows
@dataclass(frozen=True)
class Holdings:
    """Counts of rows by party and class.

    Attributes:
        counts: shape ``(parties, classes)``, int64.
        parties: the parties' names.
        classes: the classes' names; for regression, four ranges of values.
    """

    counts: NDArray[np.int64]
    parties: tuple[str, ...]
    classes: tuple[str, ...]

    def table(self) -> Table:
        """Make the table for a terminal; with many classes, their number and the largest of each party."""
        from rich.table import Table
        from rich.text import Text

        table = Table()
        table.add_column("party")
        table.add_column("rows", justify="right")
        wide = len(self.classes) > WIDE
        for name in ("classes", "most of") if wide else self.classes:
            side: Literal["left", "right"] = "left" if name == "most of" else "right"
            table.add_column(Text(visible(name)), justify=side)
        for party, row in zip(self.parties, self.counts, strict=True):
            cells = self._summary(row) if wide else [f"{n:,}" if n else "·" for n in row]
            table.add_row(*(Text(visible(cell)) for cell in (party, f"{row.sum():,}", *cells)))
        return table

    def text(self, width: int = 100) -> str:
        """Format the table as plain text of at most ``width`` characters a line."""
        from rich.console import Console

        out = io.StringIO()
        Console(file=out, width=width, no_color=True).print(self.table())
        return out.getvalue()

    def _summary(self, row: Array) -> list[str]:
        largest = [i for i in np.argsort(-row, kind="stable")[:4] if row[i]]
        return [
            str(np.count_nonzero(row)),
            ", ".join(f"{self.classes[i]} {row[i]}" for i in largest),
        ]


def who_holds_what(
    y: Array,
    parts: Sequence[Array],
    classes: Sequence[str] | None,
    names: Sequence[str] | None = None,
) -> Holdings:
    """Count the rows of each class that each party holds.

    Args:
        y: class codes or values, shape ``(n,)``.
        parts: the row indices of each party.
        classes: names of the classes; ``None`` for regression, for which quarters of all values serve as
            columns.
        names: names of the parties; by default their numbers from 0.

    Returns:
        Counts, shape ``(parties, classes)``, with the names.
    """
    names = [str(i) for i in range(len(parts))] if names is None else list(names)
    if len(names) != len(parts):
        raise InvalidInput(f"{len(parts)} parties and {len(names)} names")
    if classes is None:
        edges = np.quantile(y, np.linspace(0, 1, QUARTERS + 1))
        y = np.searchsorted(edges[1:-1], y, side="right")
        classes = [f"{a:.3g} to {b:.3g}" for a, b in pairwise(edges)]
    counts = [np.bincount(y[rows], minlength=len(classes)) for rows in parts]
    return Holdings(np.array(counts, dtype=np.int64), tuple(names), tuple(classes))


def draw(holdings: Holdings, *, title: str | None = None) -> Figure:
    """Draw who holds what: parties from top to bottom, classes from left to right.

    Few parties and classes are bubbles whose area is the number of rows; many are a heat map. The
    bars on the right are each party's rows.

    Returns:
        a matplotlib figure; ``figure.savefig("split.svg")`` writes it.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    parties, classes = holdings.counts.shape
    height = float(np.clip(1.2 + 0.37 * parties, 2.4, 11))
    width = float(np.clip(3.2 + 0.46 * classes, 5.5, 12))
    figure = Figure(figsize=(width, height), layout="constrained")
    # Axes are inverted by hand: party 0 is at the top of both plots.
    main, side = figure.subplots(1, 2, width_ratios=[4, 1])
    if max(parties, classes) <= BUBBLES:
        _bubbles(main, holdings.counts)
    else:
        # A root scale: one large cell must not wash out all others.
        image = main.imshow(
            np.ma.masked_equal(holdings.counts, 0),
            aspect="auto",
            cmap="Blues",
            norm=PowerNorm(0.5, vmin=0),
            interpolation="nearest",
        )
        bar = figure.colorbar(image, ax=[main, side], fraction=0.03, pad=0.02)
        bar.set_label("rows of a class", fontsize=9)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8)
    side.barh(range(parties), holdings.counts.sum(axis=1), color="#9aa5b1", height=0.7)
    for axis in (main, side):
        axis.set_ylim(parties - 0.5, -0.5)
        axis.tick_params(length=0, labelsize=8)
        for spine in axis.spines.values():
            spine.set_visible(False)
    _ticks(main.yaxis, holdings.parties, limit=40)
    _ticks(main.xaxis, holdings.classes, limit=25)
    crowded = max(map(len, holdings.classes)) > 3
    main.tick_params(axis="x", labelrotation=45 if crowded else 0)
    if crowded:
        for label in main.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    main.set_xlabel("class")
    main.set_ylabel("party")
    side.set_yticks([])
    side.set_xlabel("rows")
    side.locator_params(axis="x", nbins=2)
    if title:
        figure.suptitle(visible(title), fontsize=11, parse_math=False)
    return figure


def _bubbles(axis: Any, counts: Array) -> None:
    """A disc per party and class, with its number of rows below it in small print."""
    parties, classes = np.nonzero(counts)
    rows = counts[parties, classes]
    axis.scatter(classes, parties, s=230 * rows / rows.max(), color="#2a6f97", alpha=0.85, lw=0)
    for party, name, n in zip(parties, classes, rows, strict=True):
        axis.annotate(
            f"{n:,}",
            (name, party),
            xytext=(0, -11.5),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=6,
            color="#444444",
        )
    axis.set_xlim(-0.6, counts.shape[1] - 0.4)
    axis.set_axisbelow(True)
    axis.grid(color="#e6e9ed", lw=0.6)


def _ticks(axis: Any, names: Sequence[str], limit: int) -> None:
    """At most ``limit`` names, at equal and round steps."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, len(names)) if len(names) / s <= limit)
    shown = list(map(visible, names[::step]))  # names, and no formulas
    axis.set_ticks(range(0, len(names), step), labels=shown, parse_math=False)
