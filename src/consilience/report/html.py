"""Pieces of the page: every text is escaped on its way in."""

from __future__ import annotations

import base64
from collections.abc import Container, Iterable, Sequence
from html import escape as _escape

from consilience.errors import visible
from consilience.report.plots import Plot

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6875; --line: #dde3e9; --back: #fff;
  --card: #f5f7f9; --accent: #0b6e6e; --warn: #9a4a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9fabb7; --line: #36414c;
  --back: #14191f; --card: #1c232b; --accent: #5cc7c0; --warn: #f0a860; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 58rem; color: var(--ink);
  background: var(--back); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { margin: .5rem 0; } .small, figcaption, summary { color: var(--soft); font-size: .87rem; }
.finding { background: var(--card); border-left: 4px solid var(--accent); padding: .8rem 1rem;
  margin: 1rem 0; } .finding strong { font-weight: 600; }
.warning { border-left: 4px solid var(--warn); background: var(--card); padding: .6rem 1rem;
  margin: .6rem 0; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .75rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
td.prose { white-space: normal; min-width: 16rem; } th { font-weight: 600; color: var(--soft); }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--back);
  white-space: normal; min-width: 5.5rem; max-width: 12rem; }
@media (max-width: 30rem) { th:first-child, td:first-child { max-width: 8rem; } }
.n { text-align: right; padding-left: .75rem; } tr.best td { font-weight: 600; }
figure { margin: .8rem 0; } .picture { overflow-x: auto; background: #fff; border-radius: 6px; }
.picture img { display: block; height: auto; margin: 0 auto; max-width: none; }
pre { overflow-x: auto; background: var(--card); padding: .8rem 1rem; font-size: .82rem; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""


def escape(text: str) -> str:
    r"""A text as it stands on a page: no tags, and nothing in it turns words round or hides.

    >>> escape("<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return _escape(visible(text))


def amount(count: float) -> str:
    """Bytes in words.

    >>> amount(0), amount(20328), amount(3.2e6)
    ('0 B', '20.3 kB', '3.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts.

    >>> counted(1, "seed"), counted(2000, "party", "parties")
    ('1 seed', '2,000 parties')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def section(title: str, *parts: str) -> str:
    """A section of the page; empty parts are left out."""
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(filter(None, parts)) + "\n</section>"
    )


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text, with a style class."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def picture(plot: Plot, caption: str) -> str:
    """An image of its own, so that nothing inside one figure can clash with another."""
    data = base64.b64encode(plot.svg.encode()).decode()
    # At two thirds of its size the letters are as small as they may be: narrower screens scroll.
    size = (
        f"width: 100%; min-width: {0.67 * plot.width:.0f}px; max-width: {1.25 * plot.width:.0f}px"
    )
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure><div class="picture"><img style="{size}" alt="{escape(plot.title)}" '
        f'src="data:image/svg+xml;base64,{data}"></div>{below}</figure>'
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: int = 1,
    prose: Container[int] = (),
    best: str | None = None,
) -> str:
    """A table in a box that scrolls: the first ``words`` columns are words, the others numbers.

    Columns in ``prose`` may run over several lines.
    """

    def cell(tag: str, i: int, text: str) -> str:
        kinds = ["n"] if i >= words else []
        if tag == "td" and i in prose:
            kinds.append("prose")
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    lines = ["<tr>" + "".join(cell("th", i, text) for i, text in enumerate(head)) + "</tr>"]
    for row in rows:
        mark = ' class="best"' if best is not None and row[0] == best else ""
        lines.append(f"<tr{mark}>" + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>")
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"
