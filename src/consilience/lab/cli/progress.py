"""Progress of a run: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from consilience.lab.cli.output import say

if TYPE_CHECKING:
    from rich.table import Table

    from consilience.lab.experiments import Progress, Spec
    from consilience.lab.experiments.method_run import Report

SECONDS_BETWEEN_LINES = 10.0
"""In a log, a method that takes long says where it is this often."""


@contextmanager
def shown(spec: Spec, *, done: int = 0, quiet: bool = False) -> Iterator[Report]:
    """Show a run's progress for as long as the block lasts; yields the ``report`` to give the run.

    Args:
        spec: what is run.
        done: methods times seeds that were finished before.
        quiet: show nothing.
    """
    from consilience.lab.cli.console import PlainConsole

    console = PlainConsole(stderr=True)
    if quiet:
        yield lambda progress: None
    elif console.is_terminal:
        from rich.live import Live

        picture = Picture(spec, done)
        with Live(
            get_renderable=picture.draw, console=console, refresh_per_second=4, transient=True
        ) as live:
            yield picture.update
            live.refresh()
    else:
        yield _Lines().update


class _Lines:
    """One line when a method is through with a seed, and now and then between."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.round < progress.rounds and now - self._said < SECONDS_BETWEEN_LINES:
            return
        self._said = now
        mean = "" if progress.score is None else f", mean {progress.score:.3f}"
        where = f"round {progress.round} of {progress.rounds}"
        say(f"{progress.method}, seed {progress.seed}: {where}{mean}")


class Picture:
    """A bar over everything that is to do, and a line per method.

    Args:
        spec: what is run.
        done: methods times seeds that were finished before.
    """

    def __init__(self, spec: Spec, done: int = 0) -> None:
        from rich import progress as bars

        self._methods = [method.label for method in spec.methods]
        self._seeds = len(spec.seed_list)
        self._runs = self._seeds * len(self._methods)
        self._before = done
        self._newest: dict[str, dict[int, Progress]] = {label: {} for label in self._methods}
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeElapsedColumn(),
            bars.TextColumn("left:"),
            bars.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("looking at data and models", total=self._runs)

    def update(self, progress: Progress) -> None:
        """Take in how far the run is."""
        self._newest[progress.method][progress.seed] = progress
        rounds = [
            (one.round + 1) / (one.rounds + 1)  # round 0 is the parties alone
            for seeds in self._newest.values()
            for one in seeds.values()
        ]
        where = f"{progress.method}, seed {progress.seed}, round {progress.round}/{progress.rounds}"
        self._bar.update(
            self._task, completed=min(self._runs, self._before + sum(rounds)), description=where
        )

    def draw(self) -> Table:
        """Lay out the bar and the table as they stand."""
        from rich.table import Table

        methods = Table(box=None, padding=(0, 3, 0, 0))
        for title in ("method", "seeds", "round", "mean over parties"):
            methods.add_column(title, justify="left" if title == "method" else "right")
        for label, seeds in self._newest.items():
            finished = sum(one.round == one.rounds for one in seeds.values())
            last = list(seeds.values())[-1] if seeds else None
            means = [one.score for one in seeds.values() if one.score is not None]
            methods.add_row(
                label,
                f"{finished}/{self._seeds}",
                f"{last.round}/{last.rounds}" if last else "",
                f"{sum(means) / len(means):.3f}" if means else "",
            )
        whole = Table.grid()
        whole.add_row(self._bar.get_renderable())
        whole.add_row(methods)
        return whole
