"""A console for texts that may be a stranger's."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from consilience.core.errors import visible

_SPELT = {
    **{"±": "+-", "×": "x", "–": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "≈": "~"},
    **{"·": "*", "’": "'", "“": '"', "”": '"', "ε": "epsilon", "δ": "delta", "σ": "sigma"},
}


def spelt_out(error: UnicodeError) -> tuple[str, int]:
    """Spell out characters that a terminal or log cannot show: an error handler of encodings.

    Returns:
        The text in their place, and where to go on.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    spelt = (_SPELT.get(sign) or sign.encode("unicode_escape").decode() for sign in signs)
    return "".join(spelt), error.end


class PlainConsole(Console):
    """A console on which texts are nothing but texts: no markup, and nothing that acts on the terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render with every text made visible; segments that steer the terminal are rich's own."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(visible(piece.text), piece.style)
