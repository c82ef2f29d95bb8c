"""Status of a coordinator: connected parties, last recorded round, and bytes received from each party."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput, command
from consilience.core.messages.replies import Metrics
from consilience.core.tasks.base import task_types
from consilience.core.tasks.lifecycle import TakePublic
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import (
    CoordinatorSpec,
    check_folder,
    read_coordinator,
    stored_coordinator,
)
from consilience.sites.coordinator.rounds import ending, stage
from consilience.sites.operations.processes import held, running
from consilience.sites.transport.superlink import connected

_MEASURING = sorted(name for name, kind in task_types().items() if kind.reply_type is Metrics)
_NOT_MEASURING = f"tasks NOT IN ({', '.join(map(repr, _MEASURING))})"
"""SQL for deliveries that ask for more than metrics: to those a party may say no."""


@dataclass(frozen=True)
class PartyStatus:
    """Status of one party.

    Attributes:
        party: its name.
        connected: ``"online"``, ``"offline"``, ``"registered"`` if it never connected, or ``"?"``.
        exchanges: number of exchanges with its answer.
        left_out: number of exchanges without its answer, except for evaluations.
        bytes_up: bytes received from it.
        public_sent: bytes of public rows sent to it; 0 if it had them already.
        why: reason why it has not joined, or was left out of its last exchange, with the round; else empty.
        metrics: its metrics at the last evaluation.
        measured: round of the last evaluation; -1 if there is none.
        notes: further remarks of the party, for example that its private rows weigh more than requested.
    """

    party: str
    connected: str
    exchanges: int
    left_out: int
    bytes_up: int
    public_sent: int
    why: str
    metrics: Mapping[str, float]
    measured: int = -1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """Status of a coordinator and its parties.

    Attributes:
        federation: its name.
        state: ``"no run"``, ``"running"``, ``"stopped"`` or ``"done"``.
        round: the last recorded round; -1 before there is one.
        rounds: total number of rounds.
        seconds: duration of the recorded rounds.
        parties: status of each party.
        notes: further remarks, such as the reason why the run ended early.
        stage: current request to the parties, from ``coordinator.rounds.stage``; empty if the run is not
            active.
    """

    federation: str
    state: str
    round: int
    rounds: int
    seconds: float
    parties: tuple[PartyStatus, ...]
    notes: tuple[str, ...] = ()
    stage: Mapping[str, Any] = field(default_factory=dict)


def coordinator_status(
    folder: Path, *, nodes: Callable[[Path], Mapping[str, str]] = connected
) -> Status:
    """Read the status of a coordinator from its ledger and its SuperLink.

    Its coordinator.toml may be broken meanwhile.

    Args:
        folder: the coordinator's.
        nodes: gives the state of each party's node, while the SuperLink of a folder runs.

    Raises:
        InvalidInput: there is no such folder.
        RunFailed: the ledger is damaged.
    """
    check_folder(folder)
    run, spec = folder / "run", stored_coordinator(folder)
    written: CoordinatorSpec | None = None
    broken = ""
    try:
        written = read_coordinator(folder)
    except InvalidInput as error:
        broken = f"coordinator.toml cannot be used: {error}"
    if spec is None or not (run / LEDGER).exists():
        return _without_run(folder, written, broken)
    going = running(run / "flower") is not None
    states = nodes(run / "flower") if going else {}
    with closing(Ledger(run / LEDGER)) as ledger:
        done = bool(ledger.done)
        last, seconds = ledger.last_round()
        parties = tuple(
            _party(ledger, name, states.get(name, "?" if going else "offline"))
            for name in sorted(spec.parties)
        )
    state = "done" if done else "running" if going else "stopped"
    notes = [broken] if broken else []
    if state == "stopped" and (why := ending(folder)):
        notes.append(f"it ended: {why}\nthen: {command('coordinator', 'resume', folder)}")
    if not going and held(run / "flower"):
        notes.append("its own process was killed, what it started still runs: stop it, or resume")
    if written is not None and going:
        written = written.model_copy(update={"parties": spec.parties})  # they count at once
    if not done and written not in (None, spec):
        notes.append("coordinator.toml was edited since; that takes effect when the run is resumed")
    return Status(
        spec.name,
        state,
        int(last),
        spec.protocol.rounds,
        float(seconds),
        parties,
        tuple(notes),
        stage=stage(folder) if state == "running" else {},
    )


def _without_run(folder: Path, written: CoordinatorSpec | None, broken: str) -> Status:
    """The status before there is a run, by the configuration, if it can be used."""
    if written is None:
        return Status(folder.resolve().name, "no run", -1, 0, 0.0, (), (broken,))
    nobody = tuple(PartyStatus(name, "?", 0, 0, 0, 0, "", {}) for name in sorted(written.parties))
    return Status(written.name, "no run", -1, written.protocol.rounds, 0.0, nobody)


def _party(ledger: Ledger, name: str, connected: str) -> PartyStatus:
    """The status of a party; one that does not let itself be measured is not left out for that."""
    ((answered, out, up, sent),) = ledger.read(
        "SELECT coalesce(sum(status = 'ok'), 0), "
        f"coalesce(sum(status != 'ok' AND {_NOT_MEASURING}), 0), "
        "coalesce(sum(bytes_up), 0), coalesce(sum(bytes_down * (tasks = ?)), 0) "
        "FROM deliveries WHERE party = ?",
        TakePublic.__name__,
        name,
    )
    why = ledger.read(
        f"SELECT status, within, detail FROM deliveries WHERE party = ? AND {_NOT_MEASURING} "
        "ORDER BY rowid DESC LIMIT 1",
        name,
    )
    metrics = ledger.read(
        "SELECT name, value, round FROM metrics WHERE party = ?1 "
        "AND round = (SELECT max(round) FROM metrics WHERE party = ?1)",
        name,
    )
    notes = ledger.read(
        "SELECT DISTINCT detail FROM deliveries WHERE party = ? AND status = 'ok' AND detail <> ''",
        name,
    )
    excluded = ledger.meta.get("excluded", {})  # nothing before it was first asked who joins
    said = ""
    if name in excluded:
        said = str(excluded[name][0])
    elif why and why[0][0] != "ok":
        said = "round {1}: {2}".format(*why[0])
    return PartyStatus(
        party=name,
        connected=connected,
        exchanges=int(answered),
        left_out=int(out),
        bytes_up=int(up),
        public_sent=int(sent),
        why=said,
        metrics={metric: value for metric, value, _ in metrics},
        measured=metrics[0][2] if metrics else -1,
        notes=tuple(note for (note,) in notes),
    )


def round_line(ledger: Ledger, spec: CoordinatorSpec) -> str:
    """Sum up the last round in a line.

    A party that did not let itself be measured is not left out for that.
    """
    last, seconds = ledger.last_round()
    ((asked,),) = ledger.read("SELECT count(DISTINCT party) FROM deliveries WHERE within = ?", last)
    means = ledger.read("SELECT name, avg(value) FROM metrics WHERE round = ? GROUP BY name", last)
    missing = [
        f"{name} ({why})"
        for name, why, answered in ledger.read(
            "SELECT party, detail, max(rowid * (status = 'ok')) FROM deliveries WHERE within = ? "
            f"AND {_NOT_MEASURING} GROUP BY party HAVING max(rowid) > max(rowid * (status = 'ok'))",
            last,
        )
    ]
    shown = told_once([dict(means)])
    said = ", ".join(f"{name} {value:.3f}" for name, value in means if name in shown)
    return (
        f"round {last} of {spec.protocol.rounds}: {asked - len(missing)} of {asked} parties, "
        f"{said + ', ' if said else ''}{seconds:.0f} s{'; left out: ' if missing else ''}{'; '.join(missing)}"
    )


def told_once(metrics: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """List names of metrics, without those on own rows if they equal the metrics on all rows.

    Args:
        metrics: name to value, of each party.

    Returns:
        The names, sorted.

    >>> told_once([{"mse": 1.0, "mse_own": 1.0, "r2": 0.5, "r2_own": 0.4}])
    ('mse', 'r2', 'r2_own')
    """
    found = list(metrics)
    names = sorted({name for values in found for name in values})
    same = {
        name
        for name in names
        if name.endswith("_own")
        and all(one.get(name) == one.get(name.removesuffix("_own")) for one in found)
    }
    return tuple(name for name in names if name not in same)
