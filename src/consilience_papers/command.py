"""``consilience papers``: exhibits of a paper computed, printed and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.core.errors import InvalidInput, RunFailed, nearest
from consilience.core.files import write_whole
from consilience.lab.cli.commands import Quiet
from consilience.lab.cli.output import (
    Debug,
    Json,
    check_target,
    handle_errors,
    say,
    tables,
    write_json,
)
from consilience.lab.cli.running import RUNS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from consilience_papers.exhibit import Exhibit
    from consilience_papers.papers import Paper
    from consilience_papers.study import Report, Study


EXAMPLE = "Example: consilience papers park2023 table1 fig2 --quick"


def plug_in(app: typer.Typer) -> None:
    """Add the command to consilience's."""
    app.command(name="papers", epilog=EXAMPLE)(papers)


def papers(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="Which; without it, what there is.")
    ] = None,
    exhibits: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE|FIGURE…", help="Which of it. [default: all]"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few repetitions of a part, to see that all works.")
    ] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Repetitions. [default: each exhibit's own number]"),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Computing at a time.")] = 2,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Tables, plots and every repetition's result; what is there is not computed again. "
            "[default: runs/PAPER]",
        ),
    ] = None,
    json_to: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compute a paper's tables and figures anew, beside what it printed."""
    with handle_errors(debug) as context:
        from consilience_papers.study import Study

        if paper is None:
            tables(json_to).print(known())
            return
        check_target(json_to)
        found, names = asked_for(paper, exhibits or [])
        folder = out if out is not None else RUNS / (f"{paper}-quick" if quick else paper)
        context.again = "the same command"
        with progress(quiet) as report:
            study = Study(folder, repetitions, quick, processes, report)
            data = computed(found, names, study, tables(json_to) if not quiet else None)
        write_json({"paper": found.citation, **facts(study), "exhibits": data}, json_to)


def asked_for(paper: str, exhibits: Sequence[str]) -> tuple[Paper, list[str]]:
    """The paper and the names of its exhibits, all of them if none is named.

    Raises:
        InvalidInput: there is no such paper or exhibit.
    """
    from consilience_papers.papers import PAPERS

    if paper not in PAPERS:
        raise InvalidInput(f"unknown paper {paper!r}", mend=nearest(paper, PAPERS))
    found = PAPERS[paper]
    for name in exhibits:
        if name not in found.exhibits:
            raise InvalidInput(
                f"unknown table or figure {name!r}", where=paper, mend=nearest(name, found.exhibits)
            )
    return found, list(dict.fromkeys(exhibits)) or list(found.exhibits)


def known() -> Table:
    """List the papers and their exhibits."""
    from rich.table import Table

    from consilience_papers.papers import PAPERS

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, paper in PAPERS.items():
        table.add_row(name, f"{paper.citation}\n{', '.join(paper.exhibits)}")
    return table


def computed(
    paper: Paper, names: Sequence[str], study: Study, console: Console | None
) -> dict[str, Any]:
    """Compute exhibits one after another; print each, and write it into the study's folder.

    Args:
        paper: whose.
        names: of the exhibits.
        study: computes and keeps them.
        console: where to print; ``None`` for nowhere.

    Returns:
        The data behind them, by name.
    """
    data = {}
    for name in names:
        exhibit = paper.exhibits[name](study)
        data[name] = exhibit.as_data()
        written = _write(exhibit, study.folder)
        if console is not None:
            _print(exhibit, written, console, judged=not study.quick)
    return data


def _print(exhibit: Exhibit, written: Sequence[Path], console: Console, *, judged: bool) -> None:
    from rich.text import Text

    console.print(_table(exhibit))
    for claim in exhibit.claims:
        mark = ("holds", "green") if claim.holds else ("does not hold", "red")
        mark = mark if judged else ("too few repetitions to tell", "dim")
        console.print(Text.assemble(mark, f": {claim.text}  ({claim.evidence})"))
    for note in exhibit.notes:
        console.print(note, style="dim")
    line = f"Written: {', '.join(map(str, written))}\n"
    console.print(line, soft_wrap=True)


def facts(study: Study) -> dict[str, Any]:
    """Facts that are needed to compute the same again."""
    from consilience.lab.runs.folder import machine, versions

    return {
        "date": date.today().isoformat(),
        "versions": versions(),
        "machine": machine(),
        "processes": study.processes,
        "quick": study.quick,
        "seeds": "a repetition's number, from 0",
        "folder": str(study.folder),
    }


@contextmanager
def progress(quiet: bool) -> Iterator[Report]:
    """A bar over the repetitions on a terminal; elsewhere a line when a cell is begun."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield lambda label, done, total: None
    elif console.is_terminal:
        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
        )
        with bars.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("")

            def update(label: str, done: int, total: int) -> None:
                if bar.tasks[0].description != label:
                    bar.reset(task, description=label, total=total)
                bar.update(task, completed=done)

            yield update
    else:
        begun: set[str] = set()

        def line(label: str, done: int, total: int) -> None:
            if label not in begun:
                begun.add(label)
                say(f"{label}: {done} of {total} repetitions are there")

        yield line


def _table(exhibit: Exhibit) -> Table:
    from rich.table import Table

    from consilience_papers.exhibit import shown

    table = Table(title=exhibit.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for position, column in enumerate(exhibit.columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    for row in exhibit.rows:
        table.add_row(*(shown(value) for value in row.values()))
    return table


def _write(exhibit: Exhibit, folder: Path) -> list[Path]:
    files = [_written(folder / f"{exhibit.name}.md", exhibit.as_markdown())]
    if exhibit.draw is not None:
        import matplotlib.style
        from matplotlib.figure import Figure

        # As in a run's plots: no matplotlibrc of the current folder has a say.
        with matplotlib.style.context(["default", {"svg.hashsalt": exhibit.name}]):
            figure = Figure(figsize=(9, 5.5), layout="constrained")
            exhibit.draw(figure)
            figure.suptitle(exhibit.title, fontsize=10)
            for suffix in (".png", ".svg"):
                draw = partial(figure.savefig, format=suffix[1:], dpi=150)
                files.append(_written(folder / f"{exhibit.name}{suffix}", draw))
    return files


def _written(path: Path, content: str | Callable[[Path], object]) -> Path:
    try:
        write_whole(path, content)
    except OSError as error:
        raise RunFailed(f"cannot be written ({error.strerror})", where=str(path)) from error
    return path
