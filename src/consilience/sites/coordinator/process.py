"""The coordinator: Flower's SuperLink behind a gate, and one run after another until the rounds are done.

    coordinator.toml        the configuration
    tls/                    ca.pem for the parties; server.pem, server.key
    run/                    the run (:mod:`consilience.sites.coordinator.rounds`)
    run/flower/             the SuperLink's database and log, the lock of the folder, the app

Processes that end are restarted: the SuperLink with its database, and the run from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from consilience.core.errors import InvalidInput, RunFailed, command
from consilience.core.files import PART, privately, write_whole
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.leaving import certify
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.checks import begins_anew, check_resume, check_start
from consilience.sites.coordinator.configuration import (
    CONFIGURATION,
    CoordinatorSpec,
    read_coordinator,
    store_coordinator,
)
from consilience.sites.coordinator.parties import check_joinable, forget_next, take_up
from consilience.sites.coordinator.rounds import OUTCOME, crash, outcome
from consilience.sites.coordinator.status import round_line
from consilience.sites.operations.processes import Processes, free_port
from consilience.sites.transport.gate import Gate
from consilience.sites.transport.superlink import ASK_EVERY, SuperLink

FRUITLESS = 3
"""Runs that end without a round and without a reason, one after another, before it is given up."""

STEADY = 10.0
"""Seconds that a SuperLink lives whose end is not the run's doing."""

Report = Callable[[str], None]


@privately()
def start_coordinator(folder: Path, *, report: Report = lambda line: None) -> None:
    """Start a run and supervise it until it ends.

    Args:
        folder: the coordinator's folder.
        report: called with each line for the user.

    Raises:
        InvalidInput, RunFailed, MissingExtra: as :func:`check_start`, before any file is created.
        RunFailed: the run failed; the logs are in ``run/flower``.
    """
    folder = folder.resolve()
    take_up(folder)
    spec, run = check_start(folder), folder / "run"
    with Processes(run / "flower", "the coordinator") as processes:
        # Of a run that ended before it had kept a round.
        for file in (*run.glob("ledger.*"), *run.glob(f"{PART}ledger.*")):
            file.unlink()
        store_coordinator(spec, folder)
        write_whole(run / LEDGER, Ledger.begin)
        _serve(spec, folder, processes, report)


@privately()
def resume_coordinator(folder: Path, *, report: Report = lambda line: None) -> None:
    """Resume a stopped or crashed run and supervise it until it ends; a finished run is not changed.

    Args:
        folder: the coordinator's folder.
        report: called with each line for the user.

    Raises:
        InvalidInput, RunFailed, MissingExtra: as :func:`check_resume`.
        RunFailed: the run failed; the logs are in ``run/flower``.
    """
    folder = folder.resolve()
    spec = check_resume(folder)
    forget_next(folder)
    if spec is None:
        return
    with Processes(folder / "run" / "flower", "the coordinator") as processes:
        if said := begins_anew(folder):
            report(said)
        store_coordinator(spec, folder)
        _ask_again(folder / "run")
        _serve(spec, folder, processes, report)


def _serve(
    spec: CoordinatorSpec,
    folder: Path,
    processes: Processes,
    report: Report,
    *,
    steady: float = STEADY,
) -> None:
    """See the run to its end, whatever dies on the way."""
    run = folder / "run"
    (run / OUTCOME).unlink(missing_ok=True)
    link = SuperLink(folder, processes, free_port())
    link.start(spec.parties)
    begun, members = time.monotonic(), _Members(folder)
    gate = Gate(*spec.listens, link.address, folder / "tls", lambda: spec.parties.values())
    with closing(gate), closing(Ledger(run / LEDGER)) as ledger:
        ledger.mark(spec.method.label, spec.seed, "running")
        processes.ready()
        report(f"{spec.name}: parties reach the coordinator at {spec.address}")
        wait = f"waits up to {spec.wait:g} s until each party that does not run is started"
        report(f"{wait}: {command('party', 'start', 'party.toml')}")
        done, excluded, tries = _measured(ledger), dict[str, str](), 0
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
                    spec = members.followed(spec, link, report)
                    excluded = _reported(excluded, _told(ledger), report)
                    if (now := _measured(ledger)) != done:
                        done, tries = now, 0
                        report(round_line(ledger, spec))
            except RunFailed:  # it may have died while it was asked
                if processes.ended("superlink") is None:
                    raise
            if processes.ended("superlink") is not None:
                report("the SuperLink ended; it is started again")
                if time.monotonic() - begun > steady:
                    tries = 0
                link.start(spec.parties)
                begun, members = time.monotonic(), _Members(folder)
                spec = members.followed(spec, link, report)
        if _measured(ledger) != done:
            report(round_line(ledger, spec))
        certify(run, ledger)


@dataclass
class _Members:
    """The section ``[parties]`` of coordinator.toml, whose changes take effect during a run.

    Args:
        folder: the coordinator's folder.
        pause: seconds before a failed update of the SuperLink is repeated.
    """

    folder: Path
    pause: float = ASK_EVERY
    seen: int = field(default=0, init=False)
    again_at: float = field(default=0.0, init=False)

    def followed(self, spec: CoordinatorSpec, link: SuperLink, report: Report) -> CoordinatorSpec:
        """Register the parties in the file with the SuperLink and the run.

        Args:
            spec: the current configuration of the run.
            link: the SuperLink.
            report: called with a line for each added or removed party, or with the reason why the file is
                ignored.

        Returns:
            The configuration with the current parties; its other settings take effect when the run is
            resumed.
        """
        try:
            changed = (self.folder / CONFIGURATION).stat().st_mtime_ns
        except OSError:  # some editors move a file away before they write it
            return spec
        if changed == self.seen or time.monotonic() < self.again_at:
            return spec
        try:
            written = read_coordinator(self.folder)
            wanted = written.parties
            check_joinable(spec, wanted)
            if wanted != spec.parties:
                link.register(wanted)
        except InvalidInput as error:
            self.seen = changed
            report(f"[parties] stay as they are: {error}")
            return spec
        except RunFailed as error:
            self.again_at = time.monotonic() + self.pause
            report(f"[parties] stay as they are until the SuperLink can be told: {error}")
            return spec
        self.seen = changed
        if wanted == spec.parties:
            return spec
        for name in sorted(wanted.keys() - spec.parties.keys()):
            report(f"{name} was added, and takes part from the next round")
        for name in sorted(spec.parties.keys() - wanted.keys()):
            report(f"{name} was removed, and is cut off")
        now = spec.model_copy(update={"parties": wanted})
        store_coordinator(now, self.folder)
        return now


def _ask_again(run: Path) -> None:
    """Reset the recorded reasons of excluded parties, except for banned ones, before the next invitation."""
    with closing(Ledger(run / LEDGER)) as ledger:
        excluded = {
            name: (why if banned else "it is asked again to join", banned)
            for name, (why, banned) in ledger.meta.get("excluded", {}).items()
        }
        ledger.note(excluded=excluded)


def _reported(before: dict[str, str], now: dict[str, str], report: Report) -> dict[str, str]:
    """Report changes of the excluded parties, and return those of now."""
    for name, why in now.items():
        if before.get(name) != why:
            report(f"{name}: {why}")
    for name in sorted(before.keys() - now.keys()):
        report(f"{name} has joined")
    return now


def _told(ledger: Ledger) -> dict[str, str]:
    """Excluded parties, each with the reason why it has not joined."""
    return {name: why for name, (why, _) in ledger.meta.get("excluded", {}).items()}


def _measured(ledger: Ledger) -> int:
    """Return the last round with an evaluation request to the parties; -1 for none."""
    return int(ledger.meta.get("measured", -1))
