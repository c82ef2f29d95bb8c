"""``consilience attack``: how much all that left the parties of a run tells of their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from consilience.lab.cli.output import (
    Debug,
    Json,
    check_target,
    handle_errors,
    say,
    tables,
    write_json,
)
from consilience.lab.cli.trust import Trust, allowing

attacks = typer.Typer(suggest_commands=False)

SECONDS_BETWEEN_LINES = 10.0


@attacks.command(epilog="Example: consilience attack runs/digits-001 --with membership,lira")
def attack(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a finished simulated run.")
    ],
    chosen: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="A,B",
            help="membership, class-shares and inversion, of what left; lira and rmia, which ask about "
            "the rows.",
        ),
    ] = "membership,class-shares",
    holdout: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labelled rows that no party has, for shadow parties. [default: the run's test rows]",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="M", help="Repeatable. [default: all that exchange something]"),
    ] = None,
    party: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Repeatable. [default: the first of each model]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="[default: the first of the run]")
    ] = None,
    shadows: Annotated[int, typer.Option(metavar="N", help="Shadow parties for each party.")] = 192,
    trust: Trust = False,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Attack your own run: who is in the parties' rows, and of which classes, by what left them."""
    with handle_errors(debug):
        from rich.table import Table
        from rich.text import Text

        from consilience.lab.diagnostics.attack_run import attack_run
        from consilience.lab.experiments import stored_spec
        from consilience.lab.report import write_report
        from consilience.lab.runs.folder import read_configuration, run_of

        check_target(json_to)
        run = run_of(folder)
        deployed = read_configuration(run).kind == "deployed"
        foreign = () if deployed else stored_spec(run).foreign_code()
        with allowing(foreign, run, trust=trust, ask=True), _shown() as report:
            found = attack_run(
                run,
                [name.strip() for name in chosen.split(",")],
                methods=method or (),
                parties=party or (),
                seed=seed,
                holdout=holdout,
                shadows=shadows,
                report=report,
            )
        head, *rows = found.table()
        table = Table(*head, title=f"attacks on {run.name}", title_justify="left", box=None)
        for row in rows:
            table.add_row(*map(Text, row))
        console = tables(json_to)
        console.print(table)
        console.print(found.about)
        console.print(f"The page: {write_report(run)}", soft_wrap=True)
        results = [asdict(leak) for leak in found.leaks]
        write_json({"about": found.about, "results": results}, json_to)


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int], None]]:
    """Show how many shadows are done: a bar on a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from consilience.lab.cli.console import PlainConsole

    console = PlainConsole(stderr=True)
    if not console.is_terminal:
        said = time.monotonic()

        def line(what: str, done: int, all: int) -> None:
            nonlocal said
            if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                say(f"{what}: {done} of {all} shadows")

        yield line
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("computing the run again", total=None)
        yield lambda what, done, all: bar.update(task, description=what, completed=done, total=all)


def plug_in(app: typer.Typer) -> None:
    """Add the commands to consilience's."""
    app.add_typer(attacks)
