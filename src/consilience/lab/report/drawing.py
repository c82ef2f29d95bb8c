"""Means of drawing that all figures share: colours, axes, legends, names cut to fit, style and rendering."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito 2008, told apart by colour-blind readers; line and marker differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6A3D9A", "#8C6D31")
MARKERS = "osD^vPX*"
WIDTH = 5.2
"""Inches: shown on a phone at two thirds of its size, letters stay legible."""


@dataclass(frozen=True)
class Plot:
    """A drawn figure.

    Attributes:
        name: its file name, without suffix.
        title: short title.
        svg: the picture, self-contained.
        width: its natural width in CSS pixels.
        png: the picture in pixels; empty unless requested.
    """

    name: str
    title: str
    svg: str
    width: int
    png: bytes = field(default=b"", compare=False, repr=False)


def one_axis(height: float, *, width: float = WIDTH) -> tuple[Figure, Any]:
    """Make a figure of one axis; sizes are in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return figure, axis


def rounds_axis(axis: Any, last: int, label: str, *, first: int = 0) -> None:
    """Label an axis of rounds, and choose its ticks.

    Args:
        axis: of the figure.
        last: last round.
        label: text below it.
        first: first round.
    """
    from matplotlib.ticker import MaxNLocator

    margin = 0.02 * (last - first) or 0.5
    axis.set_xlim(first - margin, last + margin)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, min_n_ticks=1))
    axis.set_xlabel(label)
    axis.grid(axis="y", color="#e6e9ed", lw=0.7)
    axis.set_axisbelow(True)


def add_legend(figure: Figure, axis: Any) -> None:
    """Put the legend above the figure, in as many columns as fit."""
    handles, labels = axis.get_legend_handles_labels()
    columns = next((n for n in range(len(labels), 1, -1) if _wide(labels, n) < 70), 1)
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5
    )


def _wide(labels: list[str], columns: int) -> int:
    """Approximate width of a legend in letters; its columns are filled from top to bottom."""
    parts = np.array_split(np.array(labels), columns)
    return sum(max(map(len, part)) + 7 for part in parts)


def name_ticks(axis: Any, names: tuple[str, ...], limit: int) -> None:
    """Write names at the ticks of an axis, each, or every few where there are more than ``limit``."""
    step = -(-len(names) // limit)
    axis.set_ticks(range(0, len(names), step), labels=names[::step])


def shortened(name: str, most: int = 22) -> str:
    """Cut a name to fit; matplotlib hides labels that begin with an underscore, so none does."""
    name = " ".join(visible(name).split())
    name = f" {name}" if name.startswith("_") else name
    return name if len(name) <= most else name[: most - 1] + "…"


def all_shortened(names: Iterable[str], most: int = 22) -> tuple[str, ...]:
    """Cut names to fit."""
    return tuple(shortened(name, most) for name in names)


@contextmanager
def _plain_style() -> Iterator[None]:
    """Set matplotlib so that text stays text, names are no formulas, and equal data give equal files."""
    import matplotlib.style

    style: Any = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "consilience",
        "font.size": 9,
        "axes.edgecolor": "#9aa5b1",
        "xtick.color": "#444444",
        "ytick.color": "#444444",
    }
    # Not the settings of a matplotlibrc, which may lie in the current folder and have LaTeX started.
    with matplotlib.style.context(["default", style]), warnings.catch_warnings():
        # A name in a script that matplotlib's font lacks: the SVG has it, the PNG shows boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def drawn(name: str, title: str, make: Callable[[], Figure], *, png: bool) -> Plot:
    """Make a figure and draw it.

    Args:
        name: its file name, without suffix.
        title: short title.
        make: makes the figure.
        png: whether to draw it in pixels too.

    Returns:
        The drawn figure.
    """
    with _plain_style():
        svg, picture = rendered(make(), png=png)
    points = float(svg.partition('viewBox="0 0 ')[2].partition(" ")[0])
    return Plot(name, title, svg, round(points * 96 / 72), picture)


def rendered(figure: Figure, *, png: bool) -> tuple[str, bytes]:
    """Draw a figure once for each format; ``savefig`` would draw it twice, to place everything first."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text, picture = io.StringIO(), io.BytesIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})  # type: ignore[no-untyped-call]
    if png:
        figure.set_layout_engine("none")  # everything is in its place
        figure.set_dpi(200)
        FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    return text.getvalue(), picture.getvalue()
