"""A deployed federation's run in this process, over a fake of Flower's grid."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import read_coordinator, store_coordinator
from consilience.sites.coordinator.rounds import OUTCOME, outcome, serve_run
from consilience.sites.coordinator.status import round_line
from consilience.sites.party import read_party
from consilience.sites.party.process import party_key
from consilience.sites.transport.party_app import client
from helpers.flower_grid import QUICK, Context, Grid, Node, RecordDict
from helpers.party_sites import as_deployed

NAMES = ("north", "south")


def started(center: Path) -> Path:
    """Make the run folder, as starting the coordinator does."""
    (center / "run").mkdir()
    Ledger(center / "run" / "ledger.sqlite", create=True).close()
    return center


def last_line(center: Path) -> str:
    """What the coordinator says of the last round."""
    with closing(Ledger(center / "run" / "ledger.sqlite")) as ledger:
        return round_line(ledger, read_coordinator(center))


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


def east(run: Path) -> tuple[Path, str]:
    """Folder and key of a third party with north's rows, which nobody knows yet."""
    home = run.parent / "east"
    shutil.copytree(run.parent / "north", home)
    (home / "party.key").unlink()
    (home / "party.toml").write_text((home / "party.toml").read_text().replace("north", "east"))
    return home, party_key(read_party(home / "party.toml"))


def rounds(run: Path, number: int) -> None:
    """Set the number of rounds."""
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", f"rounds = {number}"))


def attended(run: Path, party: str) -> list[int]:
    """The rounds in which it learned from the teacher."""
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        found = ledger.read(
            "SELECT round FROM deliveries WHERE party = ? AND tasks LIKE 'Distill%' "
            "AND status = 'ok' ORDER BY 1",
            party,
        )
    return [round for (round,) in found]


def predictions(center: Path) -> dict[str, np.ndarray]:
    """Answers of the parties' own models to the public rows, by party."""
    said = {}
    for name in NAMES:
        with read_party(center.parent / name / "party.toml").site() as site:
            party = site.party()
            said[name] = party.trainer.learner.predict(party.public.X)
    return said


def assert_same_models_in_one_process(center: Path) -> None:
    """Hold the models of a run that is done against those of the same parties in one process."""
    spec = read_coordinator(center)
    files = {name: center.parent / name / "party.toml" for name in NAMES}
    parties = [as_deployed(read_party(file)) for file in files.values()]
    federation = federation_over(LocalNetwork(parties, spec.rows()), spec.rows(), seed=spec.seed)
    list(federation.rounds(spec.make_protocol()))
    for party in parties:
        with read_party(files[party.name]).site() as site:
            held = site.party()
            assert held is not None
            expected = party.trainer.predict(spec.rows().X)
            np.testing.assert_array_equal(held.trainer.predict(spec.rows().X), expected)


def assert_refused(folder: Path, text: str, change: tuple[str, str], said: str) -> None:
    """Change a configuration of a party: what is wrong is said with the file, before any work."""
    assert change[0] in text
    (folder / "party.toml").write_text(text.replace(*change))
    with pytest.raises(InvalidInput) as found:
        read_party(folder / "party.toml").party()
    assert said in str(found.value) and "party.toml" in str(found.value)
