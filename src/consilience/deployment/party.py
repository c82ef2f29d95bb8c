"""A party that takes part: its SuperNode, for as long as it runs."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consilience.deployment.keys import make_key
from consilience.deployment.processes import BIN, Processes, environment, running
from consilience.errors import InvalidInput, RunFailed
from consilience.network.flower import check_installed, task_commands
from consilience.site import (
    AUDIT,
    ConnectionSpec,
    PartySpec,
    read_log,
    read_party,
    read_session,
)

SOON = 60.0
"""Seconds after which a SuperNode that lives is taken to work."""

GIVEN_UP = 180.0
"""Seconds without one that works until it is given up: Flower needs a minute to believe that one is gone."""

PAUSE = 3.0
"""Seconds before a SuperNode is started again."""

_CLIENT = """\
#!/bin/sh
# Flower starts this for every message. It runs what is installed, whatever app was sent.
exec '{python}' -c 'from consilience.deployment.answering import answer_once; answer_once()' "$@"
"""

_REFUSAL = """\
#!/bin/sh
# In the place of what Flower would start for a run of another kind, which would run the code that was sent.
echo "a party answers messages, and runs nothing else" >&2
exit 1
"""


def folder_of(spec: PartySpec) -> Path:
    """Where a party's processes live: beside the state that they change."""
    return spec.state / "flower"


def party_key(spec: PartySpec) -> str:
    """The line with the party's public key; the key pair is made where there is none.

    Raises:
        InvalidInput: there is no ``[coordinator]``, or what is there is no key.
        MissingExtra: cryptography is not installed.
    """
    return make_key(_connection(spec).key, spec.name)


def serve_party(path: Path, *, say: Callable[[str], None] = lambda line: None) -> None:
    """Take part until this process is stopped; a SuperNode that dies is started again.

    Raises:
        InvalidInput: the configuration cannot be used, or the party runs already.
        RunFailed: the SuperNode ends again and again; its log says why.
        MissingExtra: flwr is not installed.
    """
    check_installed()
    spec = read_party(path)
    connection = _connection(spec)
    for what, file, mend in (
        ("certificate", connection.certificate, "Ask the coordinator for tls/ca.pem."),
        ("key", connection.key, f"Make one with: consilience party key {path}"),
    ):
        if not file.is_file():
            raise InvalidInput(f"there is no file {file}", where=f"coordinator.{what}", mend=mend)
    with Processes(folder_of(spec), f"party {spec.name!r}") as processes:
        programs = write_programs(processes.folder / "bin")
        variables = environment(processes.folder / "home")
        variables["PATH"] = f"{programs}:{variables['PATH']}"
        say(f"party {spec.name!r} takes part at {connection.address}; its log: {processes.folder}")
        worked = time.monotonic()
        while True:
            started = time.monotonic()
            processes.start("supernode", _command(path, connection), variables)
            while (status := processes.ended("supernode")) is None:
                time.sleep(0.5)
                if time.monotonic() - started > SOON:
                    worked = time.monotonic()
            words = processes.last_words("supernode")
            if time.monotonic() - worked > GIVEN_UP:
                raise RunFailed(
                    f"its SuperNode ends with status {status}: {words}",
                    where=str(processes.folder / "supernode.log"),
                    mend="Does the coordinator have this party's public key?",
                )
            say(f"the SuperNode ended with status {status}; it is started again")
            time.sleep(PAUSE)


def write_programs(folder: Path) -> Path:
    """Put a program of ours in the place of everything that Flower starts at a party; gives the folder.

    Raises:
        RunFailed: this is another flwr than the one whose programs are known here.
    """
    folder.mkdir(exist_ok=True)
    for name in {"flwr-clientapp", *task_commands()}:
        ours = name == "flwr-clientapp"
        (folder / name).write_text(_CLIENT.format(python=sys.executable) if ours else _REFUSAL)
        (folder / name).chmod(0o700)
    return folder


def party_status(spec: PartySpec) -> dict[str, Any]:
    """Where a party is: whether it takes part, in what, and what has left it.

    Raises:
        RunFailed: its state or its log cannot be read.
    """
    session, log = read_session(spec.state), read_log(spec.state / AUDIT)
    pid = running(folder_of(spec))
    last = log.entries[-1] if log.entries else {}
    return {
        "party": spec.name,
        "state": "stopped" if pid is None else f"takes part (PID {pid})",
        "coordinator": spec.coordinator.address if spec.coordinator else None,
        "federation": session.federation if session else None,
        "round": session.round if session else None,
        "rounds_taken_part_in": session.rounds if session else 0,
        "answers": len(log.entries),
        "bytes_that_left": sum(int(entry.get("bytes", 0)) for entry in log.entries),
        "last_answer": last.get("time"),
    }


def _command(path: Path, connection: ConnectionSpec) -> list[str | Path]:
    return [
        BIN / "flower-supernode",
        *("--superlink", connection.address),
        *("--root-certificates", connection.certificate),
        *("--auth-supernode-private-key", connection.key),
        *("--port", str(free_port())),
        *("--node-config", f'party="{path.resolve()}"'),
    ]


def _connection(spec: PartySpec) -> ConnectionSpec:
    if spec.coordinator is None:
        raise InvalidInput(
            "it does not say where the coordinator is",
            where="coordinator",
            mend='Add [coordinator] with address = "HOST:PORT".',
        )
    return spec.coordinator


def free_port() -> int:
    """A port of the loopback device that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
