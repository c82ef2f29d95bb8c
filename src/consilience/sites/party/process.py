"""Processes of a party that takes part: its SuperNode, for as long as it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput, RunFailed, command
from consilience.core.files import privately, write_whole
from consilience.core.party.state import read_choices
from consilience.core.tasks.base import tasks_of
from consilience.sites.operations.certificates import check_authority, check_private_key, make_key
from consilience.sites.operations.processes import (
    Processes,
    environment,
    free_port,
    held,
    running,
)
from consilience.sites.party import (
    AUDIT,
    ConnectionSpec,
    Log,
    PartySpec,
    join_alone,
    kept_public,
    read_log,
    read_party,
    read_session,
    state_of,
)
from consilience.sites.party.connection import (
    FORGOTTEN,
    PAUSE,
    STALE,
    STUCK,
    connected_now,
    dial,
    ending_cause,
    idle_seconds,
    watch_supernode,
)
from consilience.sites.party.state import current_state
from consilience.sites.transport.flower.internals import flwr, task_commands

REFUSALS = ("refused", "invalid", "failed")
"""How the audit log calls answers that say no."""

GIVEN_UP = 180.0
"""Seconds without a SuperNode that works until it is given up."""

_SUPEREXEC = """\
#!/bin/sh
# Flower starts this once. It has messages answered by what is installed, whatever app was sent.
answer='from consilience.sites.transport.party_app import answer_messages; answer_messages()'
exec '{python}' -P -c "from consilience.sites.transport.flower.forks import superexec
superexec(['{python}', '-P', '-c', '$answer'])" "$@"
"""

_SUPERNODE = """\
import sys
from pathlib import Path
from consilience.sites.transport.flower.supernode import supernode
sys.argv[0] = "flower-supernode"
supernode(lambda mark: Path(mark).touch(0o600))"""

_REFUSAL = """\
#!/bin/sh
# In the place of what Flower would start for a run of another kind, which would run the code that was sent.
echo "a party answers messages, and runs nothing else" >&2
exit 1
"""


def folder_of(state: Path) -> Path:
    """Folder of a party's processes, in its state folder's parent folder."""
    return state / "flower"


def party_key(spec: PartySpec, *, replace: bool = False) -> str:
    """Return the party's public key in OpenSSH format; create the key pair if there is none.

    Args:
        spec: the party's configuration.
        replace: create a new pair even if there is one.

    Returns:
        The public key, one line.

    Raises:
        InvalidInput: there is no ``[coordinator]``, or the key file does not contain a key.
        MissingExtra: cryptography is not installed.
    """
    with spec.located():
        return make_key(_connection(spec).key, spec.name, replace=replace)


def check_connection(connection: ConnectionSpec) -> None:
    """Check the party's key and the coordinator's certificate, without connecting.

    Raises:
        InvalidInput: one of the files is missing or invalid.
        MissingExtra: cryptography is not installed.
    """
    check_authority(connection.certificate, where="coordinator.certificate")
    check_private_key(connection.key, where="coordinator.key")


def check_party(path: Path) -> PartySpec:
    """Check all that a party needs before it takes part, and return its configuration.

    Raises:
        InvalidInput: it runs already, or the configuration, the data, the model, the certificate or the key
            cannot be used.
        RunFailed: its state could not be written.
        MissingExtra: flwr is not installed.
    """
    flwr()
    spec = read_party(path)
    if (pid := running(folder_of(spec.state))) is not None:
        raise InvalidInput(
            f"party {spec.name!r} runs already (PID {pid})",
            where=str(path),
            mend=f"Stop it first: {command('party', 'stop', path)}",
        )
    with spec.located():
        check_connection(_connection(spec))
        join_alone(spec)
    return spec


@privately()
def serve_party(
    path: Path,
    *,
    say: Callable[[str], None] = lambda line: None,
    pause: float = PAUSE,
    forgotten: float = FORGOTTEN,
) -> None:
    """Take part until this process is stopped; restart the SuperNode if it ends.

    Args:
        path: the party's configuration.
        say: called with every line for the user.
        pause: seconds before a SuperNode is restarted.
        forgotten: seconds of retries after which a recurrent failure is final.

    Raises:
        InvalidInput, RunFailed, MissingExtra: as :func:`check_party`, before any process is started.
        RunFailed: the coordinator has another certificate or does not accept the key, or the SuperNode ends
            again and again.
    """
    spec = check_party(path)
    connection = _connection(spec)
    with Processes(folder_of(spec.state), f"party {spec.name!r}") as processes:
        write_connection(connection, processes.folder)
        programs = write_programs(processes.folder / "bin")
        variables = environment(processes.folder / "home")
        variables["PATH"] = f"{programs}:{variables['PATH']}"
        trouble = processes.folder / "trouble"
        for left in (trouble, processes.folder / "progress"):
            left.unlink(missing_ok=True)

        def tell(line: str) -> None:
            """Say a line and keep it for ``consilience party status``."""
            write_whole(trouble, line)
            say(line)

        say(f"party {spec.name!r} dials {connection.address}; its log: {processes.folder}")
        processes.ready()
        try:
            _serve(path, connection, processes, variables, tell, pause, forgotten)
        except RunFailed as error:
            write_whole(trouble, f"it ended: {error}")
            raise
        except KeyboardInterrupt:  # it is told to stop
            trouble.unlink(missing_ok=True)
            raise


def _serve(
    path: Path,
    connection: ConnectionSpec,
    processes: Processes,
    variables: Mapping[str, str],
    tell: Callable[[str], None],
    pause: float,
    forgotten: float,
) -> None:
    """Run one SuperNode after another; raises ``RunFailed`` where there is no use in it."""
    fruitless, told = 0.0, ""
    while True:
        dial(connection, say=tell, pause=pause)  # a coordinator is waited for as long as need be
        begun = time.monotonic()
        processes.start("supernode", _command(path, connection), variables)
        connected, hung = watch_supernode(processes, min(pause, 0.5), stuck=STUCK)
        if connected:
            fruitless, told = 0.0, ""
        else:
            fruitless += time.monotonic() - begun + pause
        if hung:
            why, final = f"it did nothing for {STUCK:g} s, and was ended", False
        else:
            why, final = ending_cause(processes)
        if fruitless > (forgotten if final else GIVEN_UP):
            raise RunFailed(
                why,
                where=str(processes.folder / "supernode.log"),
                mend="Ask the coordinator to add the line of party join, or to put that of party key into "
                "[parties]; then start the party again."
                if final
                else None,
            )
        if why != told:
            tell(f"{why}; the SuperNode is started again")
            told = why
        time.sleep(pause)


def write_programs(folder: Path) -> Path:
    """Put a program of ours in the place of everything that Flower starts at a party; returns the folder.

    Raises:
        RunFailed: this is another flwr than the one whose programs are known here.
    """
    folder.mkdir(exist_ok=True)
    for name in task_commands():
        write_whole(folder / name, _REFUSAL, mode=0o700)
    ours = _SUPEREXEC.format(python=sys.executable)
    write_whole(folder / "flower-superexec", ours, mode=0o700)
    return folder


def party_status(path: Path, log: Log | None = None) -> dict[str, Any]:
    """Report the status of a party: connection, federation, round, and the volume of its answers.

    Args:
        path: its configuration, which may be invalid meanwhile, or the folder of its state.
        log: its audit log, if already read.

    Returns:
        Field to value, for display.

    Raises:
        InvalidInput: there is no such file.
        RunFailed: its state or its log cannot be read.
    """
    state = state_of(path)
    folder = folder_of(state)
    session, log = read_session(state), log or read_log(state / AUDIT)
    pid, connected, notes = running(folder), read_connection(folder), ""
    idle = idle_seconds(folder)
    name, connection, file = str(path), connected, None
    try:
        if path != state:
            spec = read_party(path)
            name, connection, file = spec.name, spec.coordinator, spec.public
    except InvalidInput as error:
        notes = f"the configuration cannot be used: {error}"
    if pid is not None and not notes and connection != connected:
        notes = "[coordinator] was edited since it was started; that takes effect when it is started again"
    left = pid is None and held(folder)
    if left:
        notes = "its own process was killed, what it started goes on answering: stop it, or start it again"
    elif not notes and pid is not None and idle > STALE:
        notes = f"its SuperNode has done nothing for {idle:.0f} s; it is started again after {STUCK:g} s"
    elif not notes and (folder / "trouble").exists():
        notes = (folder / "trouble").read_text(encoding="utf-8")
    elif not notes and pid is not None and session is not None and not connected_now(folder):
        notes = (
            "the coordinator does not answer yet: it is dialled on; it was stopped, is out of reach, or the "
            "federation is done"
        )
    last = log.entries[-1] if log.entries else {}
    asked = [entry for entry in log.entries if "tasks" in entry]
    refused = [entry for entry in asked if entry.get("status") in REFUSALS]
    status = "takes part"
    if idle > STALE:
        status = "does not respond"
    elif not connected_now(folder):
        status = "is not connected, and tries to be"
    elif last.get("status") in REFUSALS and last.get("tasks") not in tasks_of("measure"):
        status = "is connected, and said no to what it was asked last"
    elif session is None:
        status = "is connected, and has not been let in yet"
    return {
        "party": name,
        "state": f"{status} (PID {pid})" if pid else "unattended" if left else "stopped",
        "coordinator": connection.address if connection else None,
        "federation": session.federation if session else None,
        "public_rows": _public_rows(file, kept_public(state)),
        "round": session.round if session else None,
        "rounds_taken_part_in": session.rounds if session else 0,
        "predicts_by": _last_choice(state),
        "answers": len(asked) - len(refused),
        "refusals": len(refused),
        "bytes_that_left": sum(int(entry.get("bytes", 0)) for entry in log.entries),
        "last_answer": last.get("time"),
        "last_refusal": _refusal(refused[-1]) if refused else None,
        "note": notes or None,
    }


def _last_choice(state: Path) -> str | None:
    """One line on how a party mixes its own model with the taught one; ``None`` before it was taught."""
    folder = current_state(state)
    choices = [] if folder is None else read_choices(folder)
    return str(choices[-1]) if choices else None


def _refusal(entry: Mapping[str, Any]) -> str:
    """Format the time, the tasks and the reason of a refused request as one line."""
    return ": ".join(filter(None, (str(entry.get(key, "")) for key in ("time", "tasks", "detail"))))


def _public_rows(file: Path | None, kept: tuple[str, ...]) -> str | None:
    """Source of a party's public rows; ``None`` where it has none yet."""
    if file is not None:
        return str(file)
    return f"from the coordinator, digest {', '.join(kept)}" if kept else None


def write_connection(connection: ConnectionSpec, folder: Path) -> None:
    """Write down the connection that the processes of a folder are started with."""
    write_whole(folder / "connection.json", connection.model_dump_json())


def read_connection(folder: Path) -> ConnectionSpec | None:
    """Read the connection that the processes of a folder were last started with; ``None`` if never."""
    path = folder / "connection.json"
    return (
        ConnectionSpec.model_validate_json(path.read_text(encoding="utf-8"))
        if path.exists()
        else None
    )


def _command(path: Path, connection: ConnectionSpec) -> list[str | Path]:
    """The command that starts the SuperNode."""
    return [
        *(sys.executable, "-P", "-c", _SUPERNODE),
        *("--superlink", connection.address),
        *("--root-certificates", connection.certificate),
        *("--auth-supernode-private-key", connection.key),
        *("--port", str(free_port())),
        *("--node-config", f'party="{path.resolve()}"'),
    ]


def _connection(spec: PartySpec) -> ConnectionSpec:
    """The section ``[coordinator]``, or ``InvalidInput``."""
    if spec.coordinator is None:
        raise InvalidInput(
            "it does not say where the coordinator is",
            where="coordinator",
            mend='Add [coordinator] with address = "HOST:PORT".',
        )
    return spec.coordinator
