"""A federation of two clinics, prepared as its engineers would."""

from __future__ import annotations

from pathlib import Path

import pytest

from consilience.sites.coordinator.template import write_coordinator
from consilience.sites.party import read_party
from consilience.sites.party.process import party_key
from helpers import flower_grid  # imports flwr without its warnings
from helpers.command_line import clinics
from helpers.deployed_run import grid, served, started

PARTY = """
name = "{name}"
public = "../public.csv"
[data]
path = "patients.csv"
target = "ill"
[model]
name = "{model}"
[limits]
federation = "center"
[coordinator]
address = "127.0.0.1:9092"
"""

MODELS = {"north": "decision-tree", "south": "naive-bayes"}
"""Written and read in no time, as every answer of a party does with its model."""


@pytest.fixture
def center(tmp_path: Path) -> Path:
    """The coordinator's folder; the parties' are beside it."""
    return prepared(tmp_path)


@pytest.fixture
def run(center: Path) -> Path:
    """The coordinator's folder with a run that was started."""
    return started(center)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The coordinator's folder with a run that is done; to be read alone."""
    center = started(prepared(tmp_path_factory.mktemp("finished")))
    with pytest.MonkeyPatch.context() as patch:
        flower_grid.in_a_run(patch)
        assert served(center, grid(center))
    return center


def prepared(tmp_path: Path) -> Path:
    """Write the folders of a coordinator and two parties; gives the coordinator's."""
    header, *lines = clinics()
    columns = header.replace("clinic,", "")
    rows = [line.split(",") for line in lines]
    public = ["age,pressure", *(f"{age},{pressure}" for age, pressure, *_ in rows[::4])]
    rows = [row for number, row in enumerate(rows) if number % 4]
    (tmp_path / "public.csv").write_text("\n".join(public) + "\n")
    write_coordinator(tmp_path / "center", ["north", "south"], "127.0.0.1:9092")
    path = tmp_path / "center" / "coordinator.toml"
    text = path.read_text().replace('"public.csv"', '"../public.csv"')
    text = text.replace('"auto"', '"uwa"').replace("rounds = 3", "rounds = 2")
    for name, model in MODELS.items():
        home = tmp_path / name
        home.mkdir()
        mine = [f"{a},{p},{ill}" for a, p, clinic, ill in rows if clinic == name]
        (home / "patients.csv").write_text("\n".join([columns, *mine]) + "\n")
        (home / "party.toml").write_text(PARTY.format(name=name, model=model))
        key = party_key(read_party(home / "party.toml"))
        text = text.replace(f'"{name}" = ""', f'"{name}" = "{key}"')
    path.write_text(text)
    return tmp_path / "center"
