"""Foreign code in a file: show it to the user, and run it only if the user says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.lab.cli.output import say

if TYPE_CHECKING:
    from consilience.models.files.trust import ForeignCode

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import and run models that are not of consilience, scikit-learn, XGBoost, LightGBM or "
        "CatBoost; their modules may lie in the current folder.",
    ),
]


@contextmanager
def allowing(
    foreign: Sequence[ForeignCode], file: Path, *, trust: bool, ask: bool = False
) -> Iterator[None]:
    """Say which foreign code a file names, and let it run inside of the block.

    Args:
        foreign: the code.
        file: what names it.
        trust: whether the user has allowed it.
        ask: whether to ask where that is not so and there is a terminal.

    Raises:
        ForeignCode: it is not allowed.
    """
    from consilience.models.files.trust import trusting

    here = Path.cwd() if foreign else Path()
    asked = bool(foreign) and ask and not trust and on_terminal()
    if asked:
        say(f"{file} names code that would be imported and run as you:")
    for one in foreign if trust or asked else ():
        word = "  " if asked else "trusted: "
        say(f"{word}{one.field} = {one.path!r} (from {one.source(here)})")
    if asked:
        trust = typer.confirm("Do you know it, and trust whoever wrote this?", err=True)
    if foreign and not trust:
        raise foreign[0].said_in(file)
    with trusting(folders=(here,), names=[one.path for one in foreign]):
        yield


def on_terminal() -> bool:
    """Return true if somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
