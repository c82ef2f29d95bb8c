"""Checks of a coordinator's folder before a run is started or resumed; the folder is not changed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput, command
from consilience.core.federation.forming import borne
from consilience.core.files import inside, without_links
from consilience.core.tasks.lifecycle import TakePublic
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import (
    CoordinatorSpec,
    check_folder,
    read_coordinator,
    stored_coordinator,
)
from consilience.sites.operations.certificates import certified_hosts, check_server
from consilience.sites.operations.processes import running
from consilience.sites.transport.flower.internals import flwr
from consilience.sites.transport.gate import check_free


def coordinator_facts(folder: Path) -> dict[str, Any]:
    """Collect the facts of a configuration, including those for comparison with the parties.

    Args:
        folder: the coordinator's folder.

    Returns:
        Field to value, for display.

    Raises:
        InvalidInput: the configuration, the public rows or the certificates cannot be used.
        RunFailed: another program listens at the address.
        MissingExtra: flwr is not installed.
    """
    spec = _usable(folder)
    pid = running(folder / "run" / "flower")
    if pid is None:  # else it listens there itself
        check_free(*spec.listens)
    public = spec.rows()
    return {
        "state": _state(folder, spec, pid),
        "federation": spec.name,
        "parties": list(spec.parties),
        "address": spec.address,
        "method": spec.method.label,
        "rounds": spec.protocol.rounds,
        "public_rows": len(public),
        "public": public.key if len(public) else None,
        "malicious_borne": _borne(spec),
        "public_bytes": TakePublic.of(public).nbytes if len(public) else 0,
    }


def _borne(spec: CoordinatorSpec) -> str:
    """How many malicious parties a class bears: known for each class once the parties have joined."""
    if spec.robustness.secret_labels:
        return f"judged by the labelled rows in {spec.robustness.secret_labels}"
    count = len(spec.parties)
    return (
        f"{borne(count)} by a class that all {count} parties hold, (holders - 1) // 2 by others, 0 by one "
        "with two holders or fewer: give robustness.secret_labels for these; round 1 lists each class"
    )


def check_start(folder: Path) -> CoordinatorSpec:
    """Check all requirements of a new run, and return its configuration.

    Raises:
        InvalidInput: the configuration, the public rows or the certificates cannot be used, or there is
            already a run with a recorded round.
        RunFailed: another program listens at the address.
        MissingExtra: flwr is not installed.
    """
    spec, run = _usable(folder), folder / "run"
    check_stopped(folder)
    if last_round(run) >= 0:
        raise InvalidInput(
            "there is a run already",
            where=str(run),
            mend=f"Continue it with: {command('coordinator', 'resume', folder)}\n"
            f"  or move {run} away, and start anew.",
        )
    check_free(*spec.listens)
    return spec


def check_resume(folder: Path) -> CoordinatorSpec | None:
    """Check all requirements for resuming a run, and return its configuration; ``None`` if the run is done.

    Raises:
        InvalidInput: there is no run, its configuration was changed, or a required file cannot be used.
        RunFailed: another program listens at the address.
        MissingExtra: flwr is not installed.
    """
    run = folder / "run"
    check_folder(folder)
    if stored_coordinator(folder) is None or not (run / LEDGER).exists():
        raise InvalidInput(
            "there is no run yet",
            where=str(run),
            mend=f"Start it with: {command('coordinator', 'start', folder)}",
        )
    spec = _usable(folder)
    _check_same(folder, spec)
    if _is_done(folder, spec):
        return None
    check_stopped(folder)
    check_free(*spec.listens)
    return spec


def begins_anew(folder: Path) -> str:
    """Give a sentence where a run was started with another configuration, but kept no round; else empty."""
    stored = stored_coordinator(folder)
    if stored in (None, read_coordinator(folder)) or last_round(folder / "run") >= 0:
        return ""
    return "no round was kept: it starts anew, with coordinator.toml as it is now"


def last_round(run: Path) -> int:
    """Return the number of the last recorded round; -1 if there is none."""
    if not (run / LEDGER).exists():
        return -1
    with closing(Ledger(run / LEDGER)) as ledger:
        return ledger.last_round()[0]


def _state(folder: Path, spec: CoordinatorSpec, pid: int | None) -> str:
    """The state that a start or a resume would find, in words."""
    if pid is not None:
        return f"running (PID {pid})"
    if (round := last_round(folder / "run")) < 0:
        return "ready to start"
    _check_same(folder, spec)
    return "done" if _is_done(folder, spec) else f"ready to resume after round {round}"


def _check_same(folder: Path, spec: CoordinatorSpec) -> None:
    """Raise ``InvalidInput`` if rounds were recorded with another configuration."""
    stored = stored_coordinator(folder)
    if stored is None or last_round(folder / "run") < 0:
        return
    before, now = _fixed(stored), _fixed(spec)
    for key in before:
        if before[key] != now[key]:
            raise InvalidInput(
                f"{key} is another than the run was started with",
                where=str(folder / "coordinator.toml"),
                mend="Set it back, or move the run folder away and start anew.",
            )


def _is_done(folder: Path, spec: CoordinatorSpec) -> bool:
    with closing(Ledger(folder / "run" / LEDGER)) as ledger:
        done, still = bool(ledger.done), int(ledger.meta.get("still", 0))
    over = spec.pace.is_over(still) or last_round(folder / "run") >= spec.protocol.rounds
    return done and over


def _usable(folder: Path) -> CoordinatorSpec:
    """Read the configuration, and check its public rows and the server's certificates."""
    flwr()
    spec, tls, run = read_coordinator(folder), folder / "tls", inside(folder / "run", folder)
    if run.is_dir():
        without_links(run)
    spec.rows()
    check_server(tls)
    hosts = certified_hosts(tls / "server.pem")
    if spec.host not in hosts:
        raise InvalidInput(
            f"the certificate is for {', '.join(hosts)}, and the address is {spec.address}",
            where=str(tls / "server.pem"),
            mend="Set the address back, or have init make tls/ anew in another folder.",
        )
    return spec


def check_stopped(folder: Path) -> None:
    """Raise ``InvalidInput`` where the coordinator of a folder runs."""
    if (pid := running(folder / "run" / "flower")) is not None:
        raise InvalidInput(
            f"the coordinator runs already (PID {pid})",
            where=str(folder),
            mend=f"Stop it first: {command('coordinator', 'stop', folder)}",
        )


def _fixed(spec: CoordinatorSpec) -> dict[str, Any]:
    """The settings that must stay from the first round to the last; there may be more rounds."""
    return {
        **spec.model_dump(include={"name", "seed", "strict", "columns", "method"}),
        "protocol": spec.protocol.model_dump(exclude={"rounds"}),
    }
