"""Runs a protocol and a configuration on Ray and in this process, and compares, for test_ray.py."""

from __future__ import annotations

import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

from consilience import ensemble_distillation, uwa
from consilience.core.checks import classifiers
from consilience.core.checks.protocol import ProtocolCase
from consilience.lab.experiments import Ledger, parse_spec, start
from consilience.sites.transport.flower.ray import RayNetwork
from helpers.command_line import CONFIG


def compare_protocol() -> None:
    """States, teachers and models."""
    case = ProtocolCase(ensemble_distillation(aggregate=uwa(), rounds=2), classifiers)
    network = RayNetwork(*classifiers(), timeout=300)
    with closing(network):
        there = case.run(network)
        assert {delivery.status for delivery in network.deliveries} == {"ok"}
    here = case.run()
    assert there.models.keys() == here.models.keys() == set(network.parties)
    assert there.equals(here)


def compare_configuration(folder: Path) -> None:
    """Metrics of all rounds, and the files of the models that are kept."""
    document = tomllib.loads(CONFIG)
    document["methods"] = ["uwa"]
    for kind in ("local", "ray"):
        document["network"] = {"kind": kind}
        start(parse_spec(document, where="test"), folder / kind)
    assert measured(folder / "ray") == measured(folder / "local") != []
    assert kept(folder / "ray") == kept(folder / "local") != []


def measured(run: Path) -> list[tuple[Any, ...]]:
    """Every metric of a run."""
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        return ledger.read("SELECT * FROM metrics ORDER BY round, party, name")


def kept(run: Path) -> list[Path]:
    """The models of a run."""
    return sorted(path.relative_to(run) for path in (run / "models").rglob("model.*"))


if __name__ == "__main__":
    compare_protocol()
    print("the same bits")
    compare_configuration(Path(sys.argv[1]))
    print("the same run")
