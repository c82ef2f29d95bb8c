"""Output of the command line: tables and data on stdout, all else on stderr, and an exit status."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.core.errors import (
    ConsilienceError,
    InvalidInput,
    RunFailed,
    as_json,
    command,
    visible,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from consilience.tables.predictions import Kept

Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the table as JSON too; - for stdout."),
]
Independent = Annotated[
    bool,
    typer.Option(
        "--rows-are-independent",
        help="Take a table in which a column seems to name persons on several rows.",
    ),
]

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Mlflow = Annotated[
    Path | None,
    typer.Option("--mlflow", metavar="DB", help="Write the metrics to MLflow's database too."),
]
Port = typer.Option(
    metavar="PORT", help="Of 127.0.0.1, where the page is served; 0 for any that is free."
)
"""Options that many commands have."""


@dataclass
class CommandContext:
    """Facts about a running command that its last words need when it is stopped.

    Attributes:
        run: the run folder that it works on, which need not exist yet.
        again: the command that goes on where it was stopped, where that is not ``resume``.
        trust: whether the run may import what it names.
    """

    run: Path | None = None
    again: str | None = None
    trust: bool = False


@contextmanager
def handle_errors(debug: bool) -> Iterator[CommandContext]:
    """Turn an exception that ends a command into a few lines on stderr and an exit status.

    Args:
        debug: print the traceback too.

    Yields:
        the context, which the command fills in as it learns what it works on.

    Raises:
        typer.Exit: with 1 when a run failed, 2 when the call was wrong, 130 after Ctrl-C.
    """
    context = CommandContext()
    try:
        yield context
    except KeyboardInterrupt:
        if context.run is not None and context.run.exists():
            context.again = command("resume", context.run, *["--trust"] * context.trust)
        say("stopped" + (f"; continue with: {context.again}" if context.again else ""))
        raise typer.Exit(130) from None
    except (BrokenPipeError, typer.Exit):
        raise
    except ConsilienceError as error:
        _trace(debug)
        say(f"error: {error}")
        raise typer.Exit(error.exit_code) from None
    except Exception as error:
        _trace(debug)
        first = (str(error).strip() or "no reason given").splitlines()[0]
        say(f"error: {type(error).__name__}: {first}")
        if not debug:
            say("  This is unexpected; run again with --debug for the traceback.")
        raise typer.Exit(1) from None


@contextmanager
def stopping() -> Iterator[None]:
    """Treat a request to end the process (SIGTERM) as Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(line: str) -> None:
    """Print one line on stderr; above the live picture, where there is one."""
    # Not typer.echo, which writes past the stream that rich puts in stderr's place, into the picture.
    print(visible(line), file=sys.stderr)


def tables(json_to: str | None) -> Console:
    """Return the console for tables: stdout, or stderr where stdout carries JSON."""
    from consilience.lab.cli.console import PlainConsole

    console = PlainConsole(stderr=json_to == "-")
    if not console.is_terminal:
        console.width = max(console.width, 200)  # nobody cuts a line in a file
    return console


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Lay out facts under a title, a line for each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0)
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in facts.items():
        table.add_row(Text(name), Text(text))
    return table


def write_json(data: Any, json_to: str | None) -> None:
    """Write the data behind a table to a file, or to stdout for ``-``."""
    if json_to is None:
        return
    import json

    text = as_json(json.dumps(data, indent=2, ensure_ascii=False, default=str))
    if json_to == "-":
        typer.echo(text)
        return
    write_text(Path(json_to), text + "\n")


def check_target(json_to: str | None) -> None:
    """Raise ``InvalidInput`` if the data cannot be written there, before any work."""
    if json_to in (None, "-"):
        return
    path = Path(str(json_to)).absolute()
    if not path.parent.is_dir():
        raise InvalidInput("there is no such folder", where=f"--json {json_to}")
    if path.is_dir():
        raise InvalidInput("this is a folder, and a file is wanted", where=f"--json {json_to}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput("it cannot be written", where=f"--json {json_to}")


def write_text(path: Path, text: str) -> None:
    """Write a file that the user asked for.

    Raises:
        RunFailed: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFailed(f"cannot be written ({error.strerror})", where=str(path)) from error


def write_predictions(model: Kept, data: Path, out: Path | None, *, alone: bool = False) -> None:
    """Write a model's predictions for the rows of a file, and print on stderr which model it is.

    Args:
        model: a party's.
        data: the file of rows.
        out: the file to write; ``None`` for stdout.
        alone: use the model that the party trained alone.

    Raises:
        InvalidInput: the predictions would replace the rows, or the model trained alone was not kept.
    """
    from consilience.tables.predictions import predictions

    if alone:
        if model.model.alone is None:
            raise InvalidInput(
                "the model that it trained alone was not kept",
                where=f"--alone, {model.about}",
                mend="It is kept from the first teacher on, where predictions are exchanged and purpose is "
                'not "taught".',
            )
        model = replace(model, model=model.model.alone, about=f"{model.about}, trained alone")
    if out is not None and out.exists() and data.exists() and out.samefile(data):
        raise InvalidInput(
            "this is the table of rows itself", where=f"--out {out}", mend="Name another file."
        )
    text = predictions(model, data, say)
    say(f"model: {model.about}")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


def _trace(debug: bool) -> None:
    if debug:
        say(traceback.format_exc())
