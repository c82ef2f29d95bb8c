"""Where a coordinator is: who is connected, which round is kept, what left whom."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from consilience.deployment.processes import running
from consilience.deployment.specification import read_coordinator
from consilience.deployment.superlink import connected
from consilience.experiments.ledger import Ledger


@dataclass(frozen=True)
class PartyStatus:
    """Where one party is.

    Attributes:
        party: its name.
        connected: ``"online"``, ``"offline"``, ``"registered"`` where it was never seen, or ``"?"``.
        exchanges: how many it has answered.
        left_out: of how many it was left out.
        bytes_up: bytes that left it.
        why: why it was left out last; empty where it never was.
        metrics: its metrics after the last round.
    """

    party: str
    connected: str
    exchanges: int
    left_out: int
    bytes_up: int
    why: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Status:
    """Where a coordinator is.

    Attributes:
        federation: its name.
        state: ``"no run"``, ``"running"``, ``"stopped"`` or ``"done"``.
        round: the last round that is kept; -1 before there is one.
        rounds: how many there are.
        seconds: what they took.
        parties: where each of them is.
    """

    federation: str
    state: str
    round: int
    rounds: int
    seconds: float
    parties: tuple[PartyStatus, ...]


def coordinator_status(folder: Path) -> Status:
    """Where a coordinator is, by its ledger and its SuperLink.

    Raises:
        InvalidInput: there is no configuration there.
        RunFailed: the ledger is damaged.
    """
    spec, run = read_coordinator(folder), folder / "run"
    rounds = spec.protocol.rounds
    nobody = tuple(PartyStatus(name, "?", 0, 0, 0, "", {}) for name in sorted(spec.parties))
    if not (run / "ledger.sqlite").exists():
        return Status(spec.name, "no run", -1, rounds, 0.0, nobody)
    going = running(run / "flower") is not None
    nodes = connected(run / "flower") if going else {}
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        done = bool(ledger.read("SELECT 1 FROM arms WHERE status = 'done'"))
        state = "done" if done else "running" if going else "stopped"
        ((last, seconds),) = ledger.read(
            "SELECT coalesce(max(round), -1), coalesce(max(seconds), 0) FROM rounds"
        )
        parties = []
        for name in sorted(spec.parties):
            ((answered, out, up),) = ledger.read(
                "SELECT coalesce(sum(status = 'ok'), 0), coalesce(sum(status != 'ok'), 0), "
                "coalesce(sum(bytes_up), 0) FROM deliveries WHERE party = ?",
                name,
            )
            why = ledger.read(
                "SELECT detail FROM deliveries WHERE party = ? AND status != 'ok' "
                "ORDER BY rowid DESC LIMIT 1",
                name,
            )
            metrics = ledger.read(
                "SELECT name, value FROM metrics WHERE party = ? AND round = ?", name, last
            )
            parties.append(
                PartyStatus(
                    name,
                    nodes.get(name, "?" if going else "offline"),
                    int(answered),
                    int(out),
                    int(up),
                    str(why[0][0]) if why else "",
                    dict(metrics),
                )
            )
    return Status(spec.name, state, int(last), rounds, float(seconds), tuple(parties))
