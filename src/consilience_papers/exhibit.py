"""A table or figure of a paper as it came out here: rows, claims that were checked, and a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether it holds here.

    Attributes:
        text: the statement.
        holds: whether it does.
        evidence: the figures that say so.
    """

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Exhibit:
    """A table or figure.

    Attributes:
        name: such as ``"table1"``.
        title: what it shows.
        rows: one mapping a row, with the same keys in each: column to value.
        claims: what the paper says of it.
        notes: how it was computed, and what the paper leaves open.
        draw: fills an empty figure with the plot; ``None`` for tables.
    """

    name: str
    title: str
    rows: Sequence[Row]
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    draw: Callable[[Figure], None] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The rows' keys."""
        return tuple(self.rows[0]) if self.rows else ()

    def as_data(self) -> dict[str, Any]:
        """Return everything but the plot as plain data."""
        claims = [vars(claim) for claim in self.claims]
        rows = [dict(row) for row in self.rows]
        return {"title": self.title, "rows": rows, "claims": claims, "notes": list(self.notes)}

    def as_markdown(self) -> str:
        """A table with its claims and notes."""
        lines = [f"## {self.title}", ""]
        cells = [self.columns, ["---"] * len(self.columns)]
        cells += [[shown(value) for value in row.values()] for row in self.rows]
        lines += [f"| {' | '.join(row)} |" for row in cells]
        if self.claims:
            lines += [""]
            lines += [
                f"- {'Holds' if c.holds else '**Does not hold**'}: {c.text} ({c.evidence})"
                for c in self.claims
            ]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    """A cell as people read it: four significant digits, a dash for nothing.

    >>> shown(0.0328571), shown(None), shown(50)
    ('0.03286', '–', '50')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
