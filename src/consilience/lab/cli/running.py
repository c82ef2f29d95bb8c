"""From a configuration to a run folder, its page and its table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from consilience.lab.cli.output import say, tables, write_json
from consilience.lab.cli.trust import allowing

if TYPE_CHECKING:
    from consilience.lab.cli.output import CommandContext
    from consilience.lab.experiments import Spec
    from consilience.lab.runs.leaving import Record

RUNS = Path("runs")


def spec_of(file: Path, settings: Sequence[str], seeds: int | None, *, quick: bool) -> Spec:
    """Read the configuration of a run.

    Args:
        file: the configuration.
        settings: ``key=value`` in place of what it says.
        seeds: number of seeds; ``None`` for those that it says.
        quick: one seed and two rounds.
    """
    from consilience.lab.cli.imports import import_scipy

    import_scipy()
    from consilience.lab.config.experiment import QUICK
    from consilience.lab.experiments import read_spec

    small = [f"{key}={value}" for key, value in QUICK.items()] if quick else []
    overrides = {} if seeds is None else {"seeds": seeds}
    return read_spec(file, [*small, *settings], overrides=overrides)


def start_run(
    spec: Spec,
    named: Path,
    out: Path | None,
    trust: bool,
    json_to: str | None,
    quiet: bool,
    context: CommandContext,
    before: Record | None = None,
) -> None:
    """Run a configuration in a new folder, and show its results.

    Args:
        spec: the configuration.
        named: the file or folder that it is from.
        out: the run folder; by default the next number under ``runs/``.
        trust: whether code of others that it names may run.
        json_to: file for the table as JSON; ``None`` for none.
        quiet: print nothing but the folder.
        context: is told the folder, should the run be stopped.
        before: record of the run that it does again without some parties.
    """
    from consilience.lab.cli.imports import import_models
    from consilience.lab.cli.progress import shown
    from consilience.lab.experiments import start
    from consilience.lab.runs.leaving import READABLE

    context.run = folder = out if out is not None else next_folder(spec.name)
    import_models(model.name for model in spec.models)
    foreign = spec.foreign_code()
    context.trust = bool(foreign)
    with (
        allowing(foreign, named, trust=trust, ask=True),
        shown(spec, quiet=quiet) as report,
    ):
        start(spec, folder, report=report, warn=lambda line: say(f"warning: {line}"), before=before)
    finish(folder, json_to, quiet)
    if before is not None:
        say(f"the certificate: {folder / READABLE}")


def next_folder(name: str) -> Path:
    """Name the folder under ``runs/`` with the number after the highest that is there."""
    numbered = re.compile(re.escape(name) + r"-(\d+)")
    there = (numbered.fullmatch(path.name) for path in RUNS.glob(f"{name}-*"))
    last = max((int(found[1]) for found in there if found), default=0)
    return RUNS / f"{name}-{last + 1:03d}"


def method_runs_done(folder: Path) -> int:
    """Count the methods and seeds that are done."""
    from consilience.lab.runs.folder import LEDGER
    from consilience.lab.runs.ledger import Ledger

    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        return len(ledger.done)


def finish(folder: Path, json_to: str | None, quiet: bool) -> None:
    """Write the page of a run, print its table, and say where they are.

    Args:
        folder: the run folder.
        json_to: file for the table as JSON; ``None`` for none.
        quiet: print nothing but the folder.
    """
    from consilience.lab.report import as_rows, left_out, read_results, table, write_report

    page = write_report(folder)
    results = read_results(folder)
    if not quiet:
        console = tables(json_to)
        console.print(table(results))
        console.print(f"The page: {page}", soft_wrap=True)
    elif json_to != "-":
        typer.echo(folder)
    for line in left_out(results):
        say(f"warning: {line}")
    facts = {"run": str(folder), "page": str(page), "versions": results.meta.get("versions")}
    write_json({**facts, "results": as_rows(results), "warnings": results.warnings}, json_to)
