"""``consilience coordinator``: what the engineer of a federation does."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.core.errors import command
from consilience.lab.cli.output import (
    Debug,
    Json,
    Port,
    check_target,
    facts_table,
    handle_errors,
    say,
    stopping,
    tables,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from consilience.lab.cli.output import CommandContext
    from consilience.sites.coordinator.status import Status

coordinator = typer.Typer(
    name="coordinator",
    help="A federation between machines: start it, watch it, stop it, go on after a crash.",
    no_args_is_help=True,
    suggest_commands=False,
    epilog="Start with: consilience coordinator init heart --parties north,south",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="In the background; its words go to FOLDER/run/log.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


@coordinator.callback()
def _commands(context: typer.Context) -> None:
    """A federation between machines: start it, watch it, stop it, go on after a crash."""
    from consilience.core.files import privately

    context.with_resource(privately())  # of all that its commands write, and what they start


@coordinator.command(epilog="Example: consilience coordinator init heart --parties north,south")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where; made if need be.")],
    parties: Annotated[str, typer.Option(metavar="A,B,…", help="The names of the parties.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the parties will reach it.")
    ] = "127.0.0.1:9092",
    debug: Debug = False,
) -> None:
    """Write a coordinator.toml with comments, and tls/ with a private authority and a certificate."""
    with handle_errors(debug):
        from consilience.core.federation.forming import borne
        from consilience.sites.coordinator.template import write_coordinator

        names = [name.strip() for name in parties.split(",")]
        typer.echo(write_coordinator(folder, names, address))
        say(f"then for each party: {command('coordinator', 'invite', folder)} NAME")
        say(
            f"or by hand: give it {folder / 'tls' / 'ca.pem'}, and put its key into [parties]; the public "
            "rows are sent to who has no file"
        )
        say(
            f"without labelled rows a class bears (holders - 1) // 2 malicious parties, {borne(len(names))} "
            "at most here; if a class has one or two holders, fill in [robustness] secret_labels: ten "
            "labelled rows of each class that no party has"
        )
        say(f"fill it in, then: {command('coordinator', 'start', folder)}")


@coordinator.command(epilog="Example: consilience coordinator invite heart west")
def invite(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The party's name.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[default: NAME.invitation.json]")
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, max=365, metavar="N", help="For which it counts.")
    ] = 14,
    debug: Debug = False,
) -> None:
    """Write one file by which a party joins: address, authority, federation, a token that counts once."""
    with handle_errors(debug):
        from consilience.sites.coordinator.parties import invite as written

        path = Path(f"{name}.invitation.json") if out is None else out
        made = written(folder, name, path, days=days)
        typer.echo(path)
        say(
            f"counts until {made.until:%Y-%m-%d %H:%M} UTC; its fingerprint, for the telephone: {made.spoken}"
        )
        say("give it to the party alone, which answers with one line: consilience party join FILE")
        say(f"then: {command('coordinator', 'add', folder)} 'LINE'")


@coordinator.command(
    epilog="Example: consilience coordinator add heart 'consilience-answer west …'"
)
def add(
    folder: Folder,
    line: Annotated[
        list[str], typer.Argument(metavar="LINE", help="The party's answer, in quotes or not.")
    ],
    debug: Debug = False,
) -> None:
    """Add the party that answers an invitation; a run that goes on takes it in with its next round."""
    with handle_errors(debug):
        from consilience.sites.coordinator.parties import add as added
        from consilience.sites.coordinator.parties import note_on_sums

        say(f"{added(folder, ' '.join(line))} was added: {_when(folder)}")
        if note := note_on_sums(folder, added=True):
            say(note)


@coordinator.command(epilog="Example: consilience coordinator remove heart south")
def remove(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The party's name.")],
    debug: Debug = False,
) -> None:
    """Remove a party: it is cut off, and the others go on. What they learned from it stays."""
    with handle_errors(debug):
        from consilience.sites.coordinator.parties import note_on_sums
        from consilience.sites.coordinator.parties import remove as removed

        removed(folder, name)
        say(f"{name} was removed: {_when(folder)}")
        if note := note_on_sums(folder):
            say(note)


def _when(folder: Path, going: str = "from the next round") -> str:
    """Say when a change of parties or classes counts; ``going`` where a run goes on."""
    from consilience.sites.operations.processes import running

    if running(folder / "run" / "flower") is not None:
        return going
    return "when the coordinator is started or resumed"


@coordinator.command(epilog="Example: consilience coordinator check heart")
def check(folder: Folder, json_to: Json = None, quiet: Quiet = False, debug: Debug = False) -> None:
    """Look at the configuration and all that it names, and print the digest of the public rows."""
    with handle_errors(debug):
        from consilience.sites.coordinator.checks import coordinator_facts

        check_target(json_to)
        found = coordinator_facts(folder)
        if not quiet:
            tables(json_to).print(_facts(found))
        write_json(found, json_to)


@coordinator.command(epilog="Example: consilience coordinator start heart --detach")
def start(
    folder: Folder, detach: Detach = False, quiet: Quiet = False, debug: Debug = False
) -> None:
    """Start the federation and see it to its end; Ctrl-C stops what it started."""
    _run("start", folder, detach, quiet, debug)


@coordinator.command(epilog="Example: consilience coordinator resume heart")
def resume(
    folder: Folder, detach: Detach = False, quiet: Quiet = False, debug: Debug = False
) -> None:
    """Go on after a stop or a crash, from the last round that was kept."""
    _run("resume", folder, detach, quiet, debug)


@coordinator.command(epilog="Example: consilience coordinator status heart --json -")
def status(folder: Folder, json_to: Json = None, debug: Debug = False) -> None:
    """Show connected parties, the last round, and what left whom."""
    with handle_errors(debug):
        from consilience.sites.coordinator.status import coordinator_status

        check_target(json_to)
        found = coordinator_status(folder)
        _show(found, tables(json_to))
        write_json(asdict(found), json_to)


@coordinator.command(epilog="Example: consilience coordinator page heart")
def page(folder: Folder, port: Annotated[int, Port] = 9190, debug: Debug = False) -> None:
    """Serve a live page of the federation to the browsers of this machine, until Ctrl-C."""
    with handle_errors(debug), stopping():
        from consilience.sites.pages.coordinator import CoordinatorPage
        from consilience.sites.pages.server import serve

        serve(CoordinatorPage(folder), port, say=say)


@coordinator.command(epilog="Example: consilience coordinator stop heart")
def stop(folder: Folder, debug: Debug = False) -> None:
    """End it and all that it started; nothing is lost, and resume goes on."""
    with handle_errors(debug):
        from consilience.sites.coordinator.configuration import check_folder
        from consilience.sites.operations.processes import end

        check_folder(folder)
        ended = end(folder / "run" / "flower", say=say)
        say("stopped" if ended else "nothing was running")


def _run(verb: str, folder: Path, detach: bool, quiet: bool, debug: bool) -> None:
    with handle_errors(debug) as context, stopping():
        from consilience.sites.coordinator.checks import begins_anew, check_resume, check_start
        from consilience.sites.coordinator.process import start_coordinator
        from consilience.sites.coordinator.status import coordinator_status
        from consilience.sites.operations.processes import detached

        if detach:
            if (check_start if verb == "start" else check_resume)(folder) is None:
                say("the run is done already")
                return
            if verb == "resume" and (said := begins_anew(folder)):
                say(said)
            words = ["coordinator", verb, str(folder), *(["--debug"] if debug else [])]
            run = folder / "run"
            pid = detached(words, run / "flower", run / "log")
            say(f"runs in the background (PID {pid}): {command('coordinator', 'status', folder)}")
            return
        if verb == "resume":
            go_on_to_the_end(folder, context, quiet=quiet)
        else:
            context.again = command("coordinator", "resume", folder)
            start_coordinator(folder, report=(lambda line: None) if quiet else say)
        if not quiet:
            _show(coordinator_status(folder), tables(None))


def go_on_to_the_end(folder: Path, context: CommandContext, *, quiet: bool) -> None:
    """Resume a coordinator's run and see it to its end.

    Args:
        folder: the coordinator's.
        context: is told which command goes on with the run, should this one be stopped.
        quiet: report nothing but errors.
    """
    from consilience.sites.coordinator.process import resume_coordinator

    context.again = command("coordinator", "resume", folder)
    resume_coordinator(folder, report=(lambda line: None) if quiet else say)


def begin_without(
    folder: Path, names: Sequence[str], context: CommandContext, *, quiet: bool
) -> None:
    """Begin a coordinator's run anew as if parties had never been there, and see it to its end.

    Args:
        folder: the coordinator's.
        names: of the parties.
        context: is told which command goes on with the run, should this one be stopped.
        quiet: report nothing but errors.
    """
    from consilience.lab.runs.leaving import READABLE
    from consilience.sites.coordinator.parties import leave, note_on_sums
    from consilience.sites.coordinator.process import start_coordinator

    note = note_on_sums(folder)
    aside = leave(folder, names)
    if note:
        say(note)
    say(f"the run before was put aside: {aside}; delete it when the certificate is there")
    context.again = command("coordinator", "resume", folder)
    start_coordinator(folder, report=(lambda line: None) if quiet else say)
    say(f"the certificate: {folder / 'run' / READABLE}")


def _facts(found: dict[str, Any]) -> Table:
    public = "none"
    if found["public"]:
        public = (
            f"{found['public_rows']:,}, digest {found['public']} (a party's own file must have the same); "
            f"{found['public_bytes']:,} bytes to each party without a file"
        )
    return facts_table(
        f"{found['federation']}: {found['state']}",
        {
            "parties": ", ".join(found["parties"]),
            "address": found["address"],
            "method": f"{found['method']}, {found['rounds']} rounds",
            "public rows": public,
            "malicious parties borne": found["malicious_borne"],
        },
    )


def _show(found: Status, console: Console) -> None:
    """The table, and in full what does not go into its cells."""
    console.print(_table(found))
    out = (f"{party.party} is left out: {party.why}" for party in found.parties if party.why)
    said = (f"{party.party} noted: {note}" for party in found.parties for note in party.notes)
    for line in (*_asked_now(found.stage), *out, *said, *found.notes):
        console.print(line)


def _asked_now(stage: Mapping[str, Any]) -> Iterator[str]:
    """Say what parties are asked, since when, and whose answers are awaited."""
    if stage:
        tasks, awaited = stage["tasks"].replace("+", ", "), ", ".join(stage["awaited"])
        seconds = max(0.0, time.time() - stage["since"])
        when = f"round {stage['round']}" if stage["round"] else "between rounds"
        yield f"{when}: {tasks}, asked {seconds:.0f} s ago; awaited: {awaited}"


def _table(found: Status) -> Table:
    from rich.table import Table
    from rich.text import Text

    from consilience.sites.coordinator.status import told_once

    rounds = f"round {found.round} of {found.rounds}" if found.round >= 0 else "no round yet"
    title = f"{found.federation}: {found.state}, {rounds}, {found.seconds:.0f} s"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    metrics = told_once(party.metrics for party in found.parties)
    for name in (
        "party",
        "node",
        *metrics,
        *(["after round"] if metrics else []),
        "answers",
        "left out",
        "bytes",
        "public rows",
    ):
        table.add_column(name, no_wrap=True)
    for party in found.parties:
        values = (party.metrics.get(name) for name in metrics)
        cells = (
            party.party,
            party.connected,
            *("" if value is None else f"{value:.3f}" for value in values),
            *([str(party.measured) if party.metrics else ""] if metrics else []),
            f"{party.exchanges:,}",
            f"{party.left_out:,}",
            f"{party.bytes_up:,}",
            f"sent, {party.public_sent:,} bytes" if party.public_sent else "",
        )
        table.add_row(*map(Text, cells))
    return table


def plug_in(app: typer.Typer) -> None:
    """Add the commands to consilience's."""
    app.add_typer(coordinator)
