"""``consilience privacy`` and ``consilience audit``: what a budget of privacy buys, and whether it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from consilience.lab.cli.output import (
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
    classes: Annotated[int, typer.Option(help="How many there are; 0 for values.")],
    delta: Annotated[float, typer.Option(help="At most 1 / (10 n) for n rows.")] = 1e-5,
    dimensions: Annotated[
        int | None, typer.Option(help="Of private_sums. [default: 24, or as many as there are]")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="directions, kernel or leaves. [default: by the public rows]"),
    ] = None,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Say what ε buys with each mechanism, and simulate it on the public rows."""
    with handle_errors(debug):
        from consilience.core.messages.schema import Public
        from consilience.core.validation.numbers import check_choice
        from consilience.core.validation.tables import table_reader
        from consilience.privacy.accounting.budget import Budget
        from consilience.privacy.class_sums.plan import (
            plan_others,
            plan_private_sums,
            simulate_others,
        )
        from consilience.privacy.class_sums.sums import Features

        check_target(json_to)
        check_choice("features", features or "directions", get_args(Features), where="privacy plan")
        found, budget = table_reader().rows_in(file), Budget(epsilon, delta)
        scale: dict[str, int] = {"parties": parties, "rows": rows, "classes": classes}
        public = Public(found.X, found.schema)
        others = plan_others(budget, **scale)
        planned = plan_private_sums(
            public,
            budget,
            **scale,
            features=cast("Features | None", features),
            dimensions=dimensions,
        )
        for name, facts in simulate_others(public, budget, **scale).items():
            others[name] |= facts
        said = {
            name.replace("_", " "): value if isinstance(value, str) else f"{value:.3g}"
            for name, value in planned.items()
        }
        said["note"] = stand_in = (
            "clusters of the public rows stand in for classes, which are mostly harder to tell"
            if classes
            else "the widest direction of the public rows stands in for values"
        )
        console = tables(json_to)
        console.print(facts_table(f"private sums at epsilon {epsilon:g}", said))
        for name, facts in others.items():
            one = {
                key.replace("_", " "): value if isinstance(value, str) else f"{value:.3g}"
                for key, value in facts.items()
            }
            if "simulated_with_noise" in facts:
                one["note"] = f"simulated: small models, the mean of all parties; {stand_in}"
            console.print(facts_table(f"{name.replace('_', ' ')} at epsilon {epsilon:g}", one))
        write_json(planned | others, json_to)


audits = typer.Typer(suggest_commands=False)
"""Commands at the top."""


@audits.command(epilog="Example: consilience audit --epsilon 3 --trials 10000")
def audit(
    epsilon: Annotated[float, typer.Option(help="Promised of one release.")] = 3.0,
    of: Annotated[
        str, typer.Option(help="What is released: sums, training or certainties.")
    ] = "sums",
    trials: Annotated[int, typer.Option(help="Replies, half of them with the canary.")] = 10_000,
    delta: Annotated[float, typer.Option(help="Of the promise.")] = 1e-5,
    adjacency: Annotated[
        str, typer.Option(help="What is promised of one row: add-remove or replace.")
    ] = "add-remove",
    confidence: Annotated[float, typer.Option(help="Of each bound by itself.")] = 0.95,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Look for a canary row in the bytes that leave a party with a budget, and bound its ε from below."""
    with handle_errors(debug):
        from dataclasses import asdict

        from consilience.core.errors import RunFailed
        from consilience.privacy.accounting.budget import Budget
        from consilience.privacy.attacks.audit import audit as audited

        check_target(json_to)
        budget = Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]
        found = audited(budget, trials, of=of, confidence=confidence)
        said = {
            "promised": f"epsilon {epsilon:g}, delta {delta:g}, {adjacency} of one row",
            "at least, of normal noise": f"epsilon {found.gdp:.2f}",
            "at least, of any noise": f"epsilon {found.clopper_pearson:.2f}",
            "at least, by one release": f"epsilon {found.one_run:.2f}" if of == "sums" else "–",
            "beside the numbers": "the reply says if the row is there"
            if found.told_beside
            else "nothing",
        }
        tables(json_to).print(facts_table(f"audit of {trials:,} replies, {of}", said))
        write_json(asdict(found), json_to)
        if found.broken:
            raise RunFailed(
                "the audit found more than was promised: do not rely on this budget",
                where="audit",
                mend="By chance alone that comes in one audit of twenty or fewer: run it again, with more "
                "trials.",
            )


def plug_in(app: typer.Typer) -> None:
    """Add the commands to consilience's."""
    app.add_typer(privacy)
    app.add_typer(audits)
