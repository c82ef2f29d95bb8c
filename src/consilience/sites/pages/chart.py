"""Line chart of a live page: a figure over rounds, drawn without a library, coloured by the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 14, 12, 30

_LEAST = 0.02
"""Least height of the picture, in the figure: what differs by less is drawn flat."""

_MOST = 1e30
"""Greatest size of a figure that is drawn."""


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        title: its name.
        points: places on the picture.
        main: whether it stands out.
    """

    title: str
    points: tuple[tuple[float, float], ...]
    main: bool

    @property
    def path(self) -> str:
        """The points as SVG writes them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True)
class Chart:
    """Lines between two axes.

    Attributes:
        lines: the lines, those that stand out last.
        across: place and text of each mark of the rounds.
        up: place and text of each mark of the figure.
    """

    lines: tuple[Line, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


def line_chart(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    rounds: int,
    *,
    main: Sequence[str],
    most: float = math.inf,
) -> Chart | None:
    """Place lines on a picture of :data:`WIDTH` by :data:`HEIGHT`; ``None`` where there is no point.

    Args:
        lines: title to rounds and the figure after each.
        rounds: the last round that there will be.
        main: titles of lines that stand out.
        most: the most that the figure can be.
    """
    lines = {
        title: [point for point in line if abs(point[1]) <= _MOST] for title, line in lines.items()
    }
    values = [value for line in lines.values() for _, value in line]
    if not values:
        return None
    low, high = min(values), max(values)
    coarse = 1e-9 * max(abs(low), abs(high))  # less, and great numbers would not differ
    spare = max(0.08 * (high - low), (_LEAST - high + low) / 2, coarse)
    low, high = (
        low - min(spare, low) if low >= 0 else low - spare,
        min(high + spare, max(most, high)),
    )
    last = max(rounds, 1)

    def x(round: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * round / last

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)

    placed = [
        Line(title, tuple((x(round), y(value)) for round, value in line), title in main)
        for title, line in lines.items()
        if line
    ]
    step = -(-last // 8)
    return Chart(
        lines=tuple(sorted(placed, key=lambda line: line.main)),
        across=tuple((x(round), str(round)) for round in range(0, last + 1, step)),
        up=tuple((y(value), text) for value, text in _ticks(low, high)),
    )


def _ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Round values between two, some five of them, and how they are written."""
    size = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(size * part for part in (1, 2, 5, 10) if size * part >= (high - low) / 5 - 1e-9)
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield number * step, f"{number * step:.{max(0, -math.floor(math.log10(step)))}f}"
