"""``consilience privacy``: what a budget of privacy buys, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.output import (
    Debug,
    Json,
    check_target,
    facts_table,
    handle_errors,
    tables,
    write_json,
)

privacy = typer.Typer(
    name="privacy",
    help="Privacy by a number, before anything is trained.",
    no_args_is_help=True,
    suggest_commands=False,
)


@privacy.callback()
def _commands() -> None:
    """Privacy by a number, before anything is trained."""


@privacy.command(
    epilog="Example: consilience privacy plan public.csv --epsilon 3 --parties 10 --rows 94 --classes 10"
)
def plan(
    file: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The public rows.")],
    epsilon: Annotated[float, typer.Option(help="Of every party, in all its life.")],
    parties: Annotated[int, typer.Option(help="How many there are.")],
    rows: Annotated[int, typer.Option(help="Private rows of each, a guess.")],
    classes: Annotated[int, typer.Option(help="How many there are.")],
    delta: Annotated[float, typer.Option(help="At most 1 / (10 n) for n rows.")] = 1e-5,
    dimensions: Annotated[
        int | None, typer.Option(help="Of private_sums. [default: 24, or as many as there are]")
    ] = None,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Simulate private_sums on the public rows: noise against signal, and how far its teacher is right."""
    with handle_errors(debug):
        from consilience.data import read_rows
        from consilience.diagnostics.private_sums_plan import plan_private_sums
        from consilience.messages.schema import Public
        from consilience.transforms.privacy import Budget

        check_target(json_to)
        found = read_rows(file)
        planned = plan_private_sums(
            Public(found.X, found.schema),
            Budget(epsilon, delta),
            parties=parties,
            rows=rows,
            classes=classes,
            dimensions=dimensions,
        )
        said = {name.replace("_", " "): f"{value:.3g}" for name, value in planned.items()}
        said["note"] = (
            "clusters of the public rows stand in for classes, which are mostly harder to tell"
        )
        tables(json_to).print(facts_table(f"private sums at epsilon {epsilon:g}", said))
        write_json(planned, json_to)
