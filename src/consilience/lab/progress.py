"""A bar on a terminal for the rounds of a federation in Python."""

from __future__ import annotations

from collections.abc import Iterator

from consilience.core.federation.driver import CompletedRound


def progress_bar(
    rounds: Iterator[CompletedRound], total: int, label: str
) -> Iterator[CompletedRound]:
    """Yield the rounds, with a progress bar on a terminal.

    Args:
        rounds: as :func:`drive` yields them.
        total: number of rounds beside round 0.
        label: text beside the bar.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(label, total=total)
        for done in rounds:
            bar.update(task, completed=done.round.number)
            yield done
