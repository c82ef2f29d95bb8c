"""The commands. What a command needs is imported when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience import __version__
from consilience.core.errors import InvalidInput, command
from consilience.lab.cli.check_table import preparation
from consilience.lab.cli.listing import KINDS, listed
from consilience.lab.cli.new import questions
from consilience.lab.cli.output import (
    Debug,
    Independent,
    Json,
    Mlflow,
    check_target,
    handle_errors,
    say,
    stopping,
    tables,
    write_json,
    write_predictions,
)
from consilience.lab.cli.running import finish, method_runs_done, spec_of, start_run
from consilience.lab.cli.trust import Trust, allowing

app = typer.Typer(
    name="consilience",
    help="Any models teach one another by what they predict on public data.",
    no_args_is_help=True,
    suggest_commands=False,  # click suggests them already
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: consilience run examples/digits.toml, or consilience new NAME --table FILE",
)

app.add_typer(questions)
app.add_typer(preparation)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/digits-001.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="The run folder, a new one. [default: runs/NAME-001, -002, …]"
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but the run folder, and errors.")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"consilience {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Any models teach one another by what they predict on public data."""


@app.command(
    epilog="Example: consilience run examples/digits.toml --set protocol.rounds=3 --seeds 5"
)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="What to run.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace what the file says: partition.parties=4, models.0.name=svc. Repeatable.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run with N seeds: 0, 1, … N-1.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed and two rounds, to see that all works.")
    ] = False,
    independent: Independent = False,
    out: Out = None,
    trust: Trust = False,
    json_to: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a configuration: every method with every seed."""
    with handle_errors(debug) as context:
        check_target(json_to)
        said = ["data.rows_are_independent=true"] if independent else []
        spec = spec_of(file, [*(settings or []), *said], seeds, quick=quick)
        start_run(spec, file, out, trust, json_to, quiet, context)


@app.command(epilog="Example: consilience resume runs/digits-001")
def resume(
    folder: Run,
    late: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="PARTY.toml",
            help="A party that joins the finished run after its last round: a new run, into a new folder, "
            "with more rounds. Repeatable.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="NAME",
            help="A party that leaves: all rounds again as if it had never been there, into a new folder, "
            "with a certificate. Repeatable.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="With --with, the number of all rounds. [default: twice as many]",
        ),
    ] = None,
    out: Out = None,
    trust: Trust = False,
    json_to: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Continue a run that was stopped; or do one again with further parties, or without some."""
    with handle_errors(debug) as context:
        from consilience.core.files import privately
        from consilience.lab.cli.progress import shown
        from consilience.lab.experiments import resume as go_on
        from consilience.lab.experiments import stored_spec
        from consilience.lab.runs.deployment import deployment
        from consilience.lab.runs.folder import read_configuration, run_of

        check_target(json_to)
        found = run_of(folder)
        deployed = read_configuration(found).kind == "deployed"
        if late and without:
            raise InvalidInput(
                "--with and --without are one run each",
                where="resume",
                mend="Name one, then the other for the folder that it writes.",
            )
        if without and deployed and rounds is None and out is None:
            with stopping(), privately():
                deployment().begin_without(found.parent, without, context, quiet=quiet)
            finish(found, json_to, quiet)
            return
        if without and rounds is None and not deployed:
            from consilience.lab.experiments import spec_without

            spec, before = spec_without(folder, without)
            start_run(spec, folder, out, trust, json_to, quiet, context, before)
            return
        if late:
            if deployed:
                raise InvalidInput(
                    "parties of a deployed federation join from their own machines",
                    where="--with",
                    mend=f"Invite it: {command('coordinator', 'invite', found.parent)} NAME\n"
                    "  Where the run is done, write more rounds into coordinator.toml, and resume it.",
                )
            from consilience.lab.experiments import spec_joined_by

            files = list(map(deployment().joining_party, late))
            spec = spec_joined_by(folder, files, rounds)
            start_run(spec, folder, out, trust, json_to, quiet, context)
            return
        if rounds is not None or out is not None:
            raise InvalidInput(
                "--rounds is for parties that join, --out for these and those that leave",
                where="resume",
                mend=f"Name one: {command('resume', folder)} --with party.toml",
            )
        if deployed:
            with stopping(), privately():
                deployment().go_on_to_the_end(found.parent, context, quiet=quiet)
            finish(found, json_to, quiet)
            return
        spec = stored_spec(folder)
        context.run, context.trust = folder, trust
        with (
            allowing(spec.foreign_code() if trust else (), folder, trust=trust),
            shown(spec, done=method_runs_done(folder), quiet=quiet) as report,
        ):
            go_on(folder, report=report)
        finish(folder, json_to, quiet)


@app.command(epilog="Example: consilience compare runs/digits-001 runs/digits-002")
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Two or more run folders.")],
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="What to compare. [default: the first run's main metric]"
        ),
    ] = None,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Put the results of several runs into one table."""
    with handle_errors(debug):
        from consilience.lab.report import compare as side_by_side

        check_target(json_to)
        comparison = side_by_side(folders, metric)
        tables(json_to).print(comparison.table())
        found = {"results": comparison.as_rows(), "warnings": comparison.warnings}
        write_json({"metric": comparison.metric, **found}, json_to)


@app.command(epilog="Example: consilience report runs/digits-001")
def report(folder: Run, mlflow: Mlflow = None, debug: Debug = False) -> None:
    """Build the page of a run anew, and say where it is."""
    with handle_errors(debug):
        from consilience.lab.report import write_report
        from consilience.lab.report.mlflow_runs import write_mlflow

        typer.echo(write_report(folder))
        if mlflow is not None:
            say(f"runs of MLflow in {mlflow}: {write_mlflow(folder, mlflow):,}")


@app.command(epilog="Example: consilience parties examples/heart.toml --out runs/heart-parties")
def parties(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Whose parties.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace what the file says, as in run. Repeatable."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="S", help="Deal the rows by this seed. [default: the file's first]"
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="columns|overall",
            help="One scale for every column, or one for all. [default: columns for tables]",
        ),
    ] = None,
    by_rows: Annotated[
        bool, typer.Option("--by-rows", help="Weight parties by their rows, not equally.")
    ] = False,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="Leave the inputs aside.")
    ] = False,
    directions: Annotated[
        int, typer.Option(min=2, metavar="N", help="Directions of the sliced distance.")
    ] = 100,
    permutations: Annotated[
        int, typer.Option(min=20, metavar="N", help="Random deals, for what chance gives.")
    ] = 20,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a page, a plot and the data there.")
    ] = None,
    trust: Trust = False,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Say how different the parties are, and what they know of the public rows, before any training."""
    with handle_errors(debug):
        from consilience.lab.cli.heterogeneity import (
            bound,
            check_folder,
            compared,
            equalized,
            facts,
            judged,
        )
        from consilience.lab.experiments import gather, read_spec
        from consilience.lab.report.heterogeneity_page import (
            notes,
            parties_data,
            parties_table,
            write_parties,
        )

        check_target(json_to)
        check_folder(out)
        spec = read_spec(file, settings or [])
        seed = spec.seed_list[0] if seed is None else seed
        with allowing(spec.foreign_code(), file, trust=trust, ask=True):
            setup = gather(spec, seed)
            options = {
                "inputs": not labels_only,
                "equalize": equalized(setup, scale),
                "by_rows": by_rows,
                "directions": directions,
                "permutations": permutations,
            }
            rows = sum(map(len, setup.rows))
            say(f"comparing {len(setup.names):,} parties with {rows:,} rows; nothing is trained")
            found = compared(setup, seed=seed, **options)
            public = judged(spec, setup, seed)
        title = f"{spec.name}, seed {seed}: how different are the parties?"
        known = facts(spec, seed, settings=settings or [], **options)
        console = tables(json_to)
        console.print(parties_table(found, title, public))
        for line in (*notes(found, public), *bound(setup)):
            console.print(line)
        if out is not None:
            written = write_parties(found, out, title=title, facts=known, public=public)
            line = f"Written: {', '.join(map(str, written))}"
            console.print(line, soft_wrap=True)
        write_json(parties_data(found, known, public), json_to)


@app.command(name="list", epilog="Example: consilience list learners")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(KINDS), autocompletion=lambda: list(KINDS), help="Of what."
        ),
    ],
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """List what a configuration can name."""
    with handle_errors(debug):
        from rich.table import Table
        from rich.text import Text

        check_target(json_to)
        found = listed(kind)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in found.items():
            table.add_row(Text(name, style="bold"), Text(line))
        tables(json_to).print(table)
        write_json([{"name": name, "line": line} for name, line in found.items()], json_to)


@app.command(
    epilog="Example: consilience predict runs/clinics-001 --party north new-patients.csv --out answers.csv"
)
def predict(
    folder: Run,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA.csv",
            help="Rows with the columns that the model was trained on, others are ignored; "
            ".parquet and .npz are read too.",
        ),
    ],
    party: Annotated[str, typer.Option(metavar="NAME", help="Whose model.")],
    method: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="The method it was trained with. [default: the last in the configuration that is "
            "not local, central, class-holders or true-labels]",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="[default: the first of the run]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there. [default: stdout]")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Predict with the model that it trained alone.")
    ] = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Predict with a party's model: a CSV of classes and their probabilities, or of values."""
    with handle_errors(debug):
        from consilience.lab.cli.predict import kept

        model = kept(folder, party, method, seed, trust=trust)
        write_predictions(model, data, out, alone=alone)
