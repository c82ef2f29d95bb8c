"""A deployed federation's run in this process, over a fake of Flower's grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.deployment.coordinator.configuration import read_coordinator, store_coordinator
from consilience.deployment.coordinator.rounds import OUTCOME, outcome, serve_run
from consilience.deployment.party.flower_app import client
from consilience.federation.ledger import Ledger
from helpers.flower_grid import QUICK, Context, Grid, Node, RecordDict

NAMES = ("north", "south")


def started(center: Path) -> Path:
    """Make the run folder, as starting the coordinator does."""
    (center / "run").mkdir()
    Ledger(center / "run" / "ledger.sqlite", create=True).close()
    return center


def node(home: Path) -> Node:
    """Answer messages as the party in a folder does."""
    config = {"party": str(home / "party.toml")}
    return lambda message: [client(message, Context(1, 7, config, RecordDict(), {}))]


def grid(center: Path) -> Grid:
    """Connect the two parties beside a coordinator's folder."""
    made = Grid(**{name: node(center.parent / name) for name in NAMES})
    for info, name in zip(made.infos.values(), NAMES, strict=True):
        info.name = name
    return made


def served(center: Path, nodes: Grid, **options: Any) -> bool:
    """Do the rounds that are not done yet; whether the run has ended well."""
    (center / "run" / OUTCOME).unlink(missing_ok=True)
    begun(center, nodes, **options)
    return outcome(center)


def begun(center: Path, nodes: Grid, **options: Any) -> None:
    """Start or resume a run with the configuration as it is now."""
    store_coordinator(read_coordinator(center), center)
    serve_run(nodes, {"folder": str(center)}, waits=QUICK, **options)
