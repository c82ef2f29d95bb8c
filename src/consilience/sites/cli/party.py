"""``consilience party``: commands for the engineer of one party."""

from __future__ import annotations

import json
from collections import Counter
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
    write_predictions,
)

if TYPE_CHECKING:
    from rich.table import Table

    from consilience.sites.party import DryRunReport, Log

party = typer.Typer(
    name="party",
    help="One party, where its data is: write its configuration, check it, take part, read the log.",
    no_args_is_help=True,
    suggest_commands=False,
    epilog="Start with: consilience party init north",
)

File = Annotated[Path, typer.Argument(metavar="party.toml", help="The party's configuration.")]


@party.callback()
def _commands(context: typer.Context) -> None:
    """One party, where its data is: write its configuration, check it, take part, read the log."""
    from consilience.core.files import privately

    context.with_resource(privately())  # of all that its commands write, and what they start


@party.command(epilog="Example: consilience party init north")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where; made if need be.")],
    debug: Debug = False,
) -> None:
    """Write a party.toml with comments, to be filled in."""
    with handle_errors(debug):
        from consilience.sites.party import write_template

        path = write_template(folder)
        typer.echo(path)
        say(f"fill it in, then: {command('party', 'check', path)}")


@party.command(epilog="Example: consilience party join west.invitation.json")
def join(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The coordinator's invitation.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The party's. [default: its name]")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="DIGITS", help="As the coordinator read it aloud.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Make the party's key and configuration, and print one line that answers, to paste or to mail."""
    with handle_errors(debug):
        from consilience.sites.party.joining import join as answered

        invitation, line = answered(file, folder, fingerprint=fingerprint)
        typer.echo(line)
        say(f"federation {invitation.federation!r} at {invitation.address}")
        if fingerprint is None:
            say(f"compare by telephone before you start: {invitation.spoken}")
        say(
            "send the line above to the coordinator; it holds nothing secret, and must arrive whole"
        )
        path = (Path(invitation.party) if folder is None else folder) / "party.toml"
        say(f"fill in {path}, then: {command('party', 'check', path)}")
        say(f"and: {command('party', 'start', path)}")


@party.command(epilog="Example: consilience party check north/party.toml")
def check(
    file: File,
    json_to: Json = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Debug = False,
) -> None:
    """Try a configuration out on a few of the party's rows; nothing is kept, and nobody is asked."""
    with handle_errors(debug):
        from consilience.sites.party import read_party, try_out

        check_target(json_to)
        spec = read_party(file)
        if spec.coordinator is not None:
            from consilience.sites.operations.certificates import exposed
            from consilience.sites.party.process import check_connection

            with spec.located():
                check_connection(spec.coordinator)
            if not quiet and (warning := exposed(spec.coordinator.key)):
                say(f"warning: {warning}")
        found = try_out(spec)
        if not quiet:
            for warning in found.warnings:
                say(f"warning: {warning}")
            address = None if spec.coordinator is None else spec.coordinator.address
            tables(json_to).print(_report_table(found, address))
        write_json(asdict(found), json_to)


@party.command(
    epilog="Example: consilience party predict north/party.toml new-patients.csv --out answers.csv"
)
def predict(
    file: File,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA.csv", help="Rows with the party's input columns."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there. [default: stdout]")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Predict with the model that it trained alone.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Predict with the model that the party holds: a CSV of classes and their probabilities, or of values."""
    with handle_errors(debug):
        from consilience.sites.party import read_party

        write_predictions(read_party(file).kept(), data, out, alone=alone)


@party.command(epilog="Example: consilience party audit north/party.toml --json audit.json")
def audit(
    file: File,
    json_to: Json = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors: verify alone.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show what left the party, and verify that its log is whole; fails where it is not."""
    with handle_errors(debug):
        from consilience.core.errors import RunFailed
        from consilience.sites.party import AUDIT, read_log, read_session, state_of

        check_target(json_to)
        home = state_of(file)
        session = read_session(home)
        path = home / AUDIT
        log = read_log(path, written_after=None if session is None else session.audit)
        if not quiet:
            console = tables(json_to)
            console.print(_log_table(log))
            for line in (*log.notes, _summary(log)):
                console.print(line)
        write_json(asdict(log), json_to)
        if log.faults:
            raise RunFailed(
                "the log was tampered with or damaged: " + "; ".join(log.faults),
                where=str(path),
                mend=_broken_at(log.sealed),
            )


@party.command(epilog="Example: consilience party budget north/party.toml")
def budget(
    file: File,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="DIGEST", help="Fail unless this line of the ledger is still there."
        ),
    ] = None,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Show the limit of privacy, what was spent of it, and by what."""
    with handle_errors(debug):
        from consilience.sites.party import read_party
        from consilience.sites.party.privacy_limits import spending

        check_target(json_to)
        spec = read_party(file)
        with spec.located():
            found = spending(spec.state, spec.limits, after=after)
        said = {name.replace("_", " "): str(value) for name, value in found.items()}
        said["releases"] = "\n".join(
            f"{one['time']}  {one['kind']}, epsilon {one['epsilon']:.4g} by itself"
            for one in found["releases"]
        )
        bare = found["answers_without_budget"]
        said["answers without budget"] = (
            ", ".join(f"{task} {n}" for task, n in bare.items()) or "none"
        )
        tables(json_to).print(facts_table(f"{spec.name}: budget of privacy", said))
        write_json(found, json_to)


@party.command(epilog="Example: consilience party key north/party.toml")
def key(
    file: File,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make a new one in the place of the one that is there."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Make the party's key pair, if there is none, and print the public half, a line for the coordinator."""
    with handle_errors(debug):
        from consilience.sites.party import read_party
        from consilience.sites.party.process import party_key

        spec = read_party(file)
        line = party_key(spec, replace=replace)
        typer.echo(f"{json.dumps(spec.name)} = {json.dumps(line)}")
        if replace:
            say("the coordinator takes the old key until this line is in its [parties]")


@party.command(epilog="Example: consilience party start north/party.toml --detach")
def start(
    file: File,
    detach: Annotated[
        bool, typer.Option("--detach", help="In the background; its words go to flower/log.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Take part until it is stopped; Ctrl-C stops what it started."""
    with handle_errors(debug) as context, stopping():
        from consilience.sites.operations.processes import detached
        from consilience.sites.party.process import check_party, folder_of, serve_party

        if detach:
            folder = folder_of(check_party(file).state)
            words = ["party", "start", str(file), *(["--debug"] if debug else [])]
            pid = detached(words, folder, folder / "log")
            say(f"runs in the background (PID {pid}): {command('party', 'status', file)}")
            return
        context.again = command("party", "start", file)
        serve_party(file, say=say)


@party.command(epilog="Example: consilience party status north/party.toml")
def status(file: File, json_to: Json = None, debug: Debug = False) -> None:
    """Show whether it takes part, in which federation and round, and how many bytes have left."""
    with handle_errors(debug):
        from consilience.sites.party.process import party_status

        check_target(json_to)
        found = party_status(file)
        said = {
            name.replace("_", " "): "" if value is None else str(value)
            for name, value in found.items()
        }
        tables(json_to).print(facts_table(f"{found['party']}: {found['state']}", said))
        write_json(found, json_to)


@party.command(epilog="Example: consilience party page north/party.toml")
def page(file: File, port: Annotated[int, Port] = 9191, debug: Debug = False) -> None:
    """Serve a live page of the party to the browsers of this machine, until Ctrl-C."""
    with handle_errors(debug), stopping():
        from consilience.sites.pages.party import PartyPage
        from consilience.sites.pages.server import serve

        serve(PartyPage(file), port, say=say)


@party.command(epilog="Example: consilience party stop north/party.toml")
def stop(file: File, debug: Debug = False) -> None:
    """End its part and all that it started; its state stays, and start goes on."""
    with handle_errors(debug):
        from consilience.sites.operations.processes import end
        from consilience.sites.party import state_of
        from consilience.sites.party.process import folder_of

        ended = end(folder_of(state_of(file)), say=say)
        say("stopped" if ended else "nothing was running")


def _report_table(found: DryRunReport, address: str | None) -> Table:
    """The findings of a dry run as a table."""
    row = "×".join(map(str, found.inputs)) or "one text"
    facts = {
        "rows": f"{found.rows:,} and {found.test_rows:,} to measure on; inputs of a row: {row}"
    }
    if found.classes:
        facts["classes"] = ", ".join(f"{name} ({n:,})" for name, n in found.classes.items())
    facts["public rows"] = _public_rows(found)
    facts["model"] = found.model
    facts["soft targets"] = found.soft_targets
    by_kind: dict[str, list[str]] = {}
    for task, kind in found.leaves.items():
        by_kind.setdefault(kind, []).append(task)
    facts["may leave"] = "\n".join(
        f"{kind} ({', '.join(tasks)})" for kind, tasks in sorted(by_kind.items())
    )
    facts["rounds"] = f"at most {found.rounds:,} in all" if found.rounds else "no limit"
    if found.public_rows and "Predictions" in found.leaves.values():
        facts["predictions"] = f"{found.answer_bytes:,} bytes each time they leave"
    if address is not None:
        facts["coordinator"] = (
            f"{address}, its certificate and the key are there; it was not dialled"
        )
    parts = ", ".join(f"{what} {seconds:.1f}" for what, seconds in found.seconds.items())
    many = ", and as many public ones come" if found.public_from == "coordinator" else ""
    facts["a round"] = (
        f"about {sum(found.seconds.values()):.1f} s ({parts}), if time grows with rows{many}"
    )
    return facts_table(f"{found.name}: ready to join", facts)


def _public_rows(found: DryRunReport) -> str:
    """The public rows: number and digest, or their source."""
    if found.public_from == "file":
        shared = f"\n{found.shared_rows:,} of your rows are among them, and are left out"
        return (
            f"{found.public_rows:,}, digest {found.public} (the coordinator's must be the same)"
            f"{shared if found.shared_rows else ''}"
        )
    if found.public_from == "none":
        return (
            "none, and limits lets the coordinator send none: it can take part only where no public rows are "
            "needed"
        )
    most = "" if found.public_bytes is None else f", at most {found.public_bytes:,} bytes"
    kept = f"\nkept from before: digest {', '.join(found.kept)}" if found.kept else ""
    return (
        f"the coordinator sends them, if there are any{most}; tried with own rows in their place, so "
        f"not whether they look alike{kept}"
    )


def _log_table(log: Log) -> Table:
    """The lines of an audit log as a table; the notes have not left."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("time", "round", "tasks", "status", "left", "bytes", "sha256", "note"):
        table.add_column(name, no_wrap=name not in ("left", "note"))
    for entry in log.entries:
        left = ", ".join(
            f"{one['name']} {one['type']} {'×'.join(map(str, one['shape']))}"
            for one in entry.get("left", ())
            if one.get("shape") and one["type"] != "text"
        )
        cells = (
            str(entry.get("time", ""))[:19].replace("T", " "),
            "" if entry.get("round") is None else str(entry["round"]),
            str(entry.get("tasks", "")),
            str(entry.get("status", "")),
            left,
            f"{entry['bytes']:,}" if "bytes" in entry else "",
            str(entry.get("sha256", ""))[:12],
            str(entry.get("detail", "")),
        )
        table.add_row(*map(_plain, cells))
    return table


def _summary(log: Log) -> str:
    """One line on an audit log: counts, bytes, and whether its chain is whole."""
    counts = Counter(str(entry.get("status")) for entry in log.entries)
    total = sum(int(entry.get("bytes", 0)) for entry in log.entries)
    said = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())) or "none"
    state = "BROKEN" if log.faults else "whole"
    return f"{len(log.entries):,} lines ({said}), {total:,} bytes; the chain is {state} up to {log.head}"


def _broken_at(sealed: int) -> str:
    """Advice on a log whose chain is broken, by its last line that is sealed."""
    if sealed == 0:
        return "Nothing that it says before the break holds."
    lines = "line 1 still holds" if sealed == 1 else f"lines 1 to {sealed} still hold"
    return f"Before the break {lines}; the next may be the one that was changed."


def _plain(text: str) -> Any:
    """A text in which no markup is read."""
    from rich.text import Text

    return Text(text)


def plug_in(app: typer.Typer) -> None:
    """Add the commands to consilience's."""
    app.add_typer(party)
