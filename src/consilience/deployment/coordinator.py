"""The coordinator: Flower's SuperLink behind a gate, and one run after another until the rounds are done.

    coordinator.toml        the configuration
    tls/                    ca.pem for the parties; server.pem, server.key
    run/                    the run (:mod:`consilience.deployment.conducting`)
    run/flower/             the SuperLink's database and log, what holds the folder, the app

Whatever ends is started again: the SuperLink with its database, and the run, which goes on from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from consilience.deployment.conducting import OUTCOME, crash, outcome
from consilience.deployment.gate import Gate
from consilience.deployment.keys import certified_hosts
from consilience.deployment.party import free_port
from consilience.deployment.processes import Processes
from consilience.deployment.specification import CoordinatorSpec, read_coordinator
from consilience.deployment.superlink import SuperLink
from consilience.errors import InvalidInput, RunFailed
from consilience.experiments.ledger import Ledger
from consilience.experiments.run import versions
from consilience.network.flower import check_installed

FRUITLESS = 3
"""Runs that end without a round and without a reason, one after another, before it is given up."""

Report = Callable[[str], None]


def start_coordinator(folder: Path, *, report: Report = lambda line: None) -> None:
    """Start a run and see it to its end.

    Raises:
        InvalidInput: there is a run already, or the configuration, the public rows or the parties cannot
            be used.
        RunFailed: the run failed; the logs are in ``run/flower``.
        MissingExtra: flwr is not installed.
    """
    check_installed()
    folder = folder.resolve()
    spec = read_coordinator(folder)
    spec.rows()
    _check_tls(folder, spec)
    run = folder / "run"
    with Processes(run / "flower", "the coordinator") as processes:
        if (run / "ledger.sqlite").exists():
            raise InvalidInput(
                "there is a run already",
                where=str(run),
                mend=f"Continue it with: consilience coordinator resume {folder}\n"
                f"  or move {run} away, and start anew.",
            )
        (run / "config.json").write_text(spec.model_dump_json(indent=2), encoding="utf-8")
        part = run / "ledger.part"
        part.unlink(missing_ok=True)
        with closing(Ledger(part, create=True)) as ledger:
            started = datetime.now(UTC).isoformat(timespec="seconds")
            ledger.note(versions=versions(), started=started)
        part.replace(run / "ledger.sqlite")
        _serve(spec, folder, processes, report)


def resume_coordinator(folder: Path, *, report: Report = lambda line: None) -> None:
    """Go on with a run that was stopped or crashed, to its end; a finished one is left as it is.

    Raises:
        InvalidInput: there is none, or its configuration was changed.
        RunFailed: the run failed; the logs are in ``run/flower``.
        MissingExtra: flwr is not installed.
    """
    check_installed()
    folder = folder.resolve()
    spec, run = read_coordinator(folder), folder / "run"
    if not (run / "ledger.sqlite").exists():
        raise InvalidInput(
            "there is no run yet",
            where=str(run),
            mend=f"Start it with: consilience coordinator start {folder}",
        )
    stored = CoordinatorSpec.model_validate_json((run / "config.json").read_text())
    before, now = (_fixed(one) for one in (stored, spec))
    for key in before:
        if before[key] != now[key]:
            raise InvalidInput(
                f"{key} is another than the run was started with",
                where=str(folder / "coordinator.toml"),
                mend="Set it back, or move the run folder away and start anew.",
            )
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        done = bool(ledger.read("SELECT 1 FROM arms WHERE status = 'done'"))
    if done and _rounds(run) >= spec.protocol.rounds:
        return
    _check_tls(folder, spec)
    with Processes(run / "flower", "the coordinator") as processes:
        _serve(spec, folder, processes, report)


def _serve(spec: CoordinatorSpec, folder: Path, processes: Processes, report: Report) -> None:
    """See the run to its end, whatever dies on the way."""
    run = folder / "run"
    (run / OUTCOME).unlink(missing_ok=True)
    link = SuperLink(folder, processes, free_port())
    link.start(spec.parties)
    gate = Gate(spec.listen or spec.host, spec.port, link.address, folder / "tls")
    try:
        report(f"{spec.name}: parties reach the coordinator at {spec.address}")
        done, tries = _rounds(run), 0
        while not outcome(folder):
            if tries > FRUITLESS:
                raise RunFailed(
                    f"the run ended {tries} times without a round: {crash(folder)}",
                    where=str(processes.folder / "superlink.log"),
                )
            (run / OUTCOME).unlink(missing_ok=True)
            tries += 1
            try:
                link.submit()
                while link.busy() and not (run / OUTCOME).exists():
                    time.sleep(0.5)
                    if (now := _rounds(run)) != done:
                        done, tries = now, 0
                        report(_line(run, spec))
            except RunFailed:  # it may have died while it was asked
                if processes.ended("superlink") is None:
                    raise
            if processes.ended("superlink") is not None:
                report("the SuperLink ended; it is started again")
                link.start(spec.parties)
        if _rounds(run) != done:
            report(_line(run, spec))
    finally:
        gate.close()


def _rounds(run: Path) -> int:
    """The last round that is kept."""
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        return int(ledger.read("SELECT coalesce(max(round), -1) FROM rounds")[0][0])


def _line(run: Path, spec: CoordinatorSpec) -> str:
    """What there is to say of the last round."""
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        ((last, seconds),) = ledger.read("SELECT max(round), max(seconds) FROM rounds")
        ((parties,),) = ledger.read(
            "SELECT count(DISTINCT party) FROM deliveries WHERE within = ? AND status = 'ok'", last
        )
        means = ledger.read(
            "SELECT name, avg(value) FROM metrics WHERE round = ? GROUP BY name", last
        )
    said = ", ".join(f"{name} {value:.3f}" for name, value in means)
    return (
        f"round {last} of {spec.protocol.rounds}: {parties} of {len(spec.parties)} parties, "
        f"{said}, {seconds:.0f} s"
    )


def _check_tls(folder: Path, spec: CoordinatorSpec) -> None:
    """Raise ``InvalidInput`` unless the certificate is there and for the address."""
    for name in ("ca.pem", "server.pem", "server.key"):
        if not (folder / "tls" / name).is_file():
            raise InvalidInput(
                "the file is missing",
                where=str(folder / "tls" / name),
                mend="consilience coordinator init makes them; or put your own there.",
            )
    hosts = certified_hosts(folder / "tls" / "server.pem")
    if spec.host not in hosts:
        raise InvalidInput(
            f"the certificate is for {', '.join(hosts)}, and the address is {spec.address}",
            where=str(folder / "tls" / "server.pem"),
            mend="Set the address back, or have init make tls/ anew in another folder.",
        )


def _fixed(spec: CoordinatorSpec) -> dict[str, Any]:
    """What must stay as it is from the first round to the last; there may be more rounds."""
    return {
        **spec.model_dump(include={"name", "seed", "strict", "columns", "method"}),
        "protocol": spec.protocol.model_dump(exclude={"rounds"}),
    }
