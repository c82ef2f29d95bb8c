"""Survival between sites: the same bits as in one process, and edges that are agreed on like classes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from consilience.core.errors import RunFailed
from consilience.lab.report.page import write_report
from consilience.lab.report.reading import read_results
from consilience.sites.coordinator.template import write_coordinator
from consilience.sites.party import read_party, try_out
from consilience.sites.party.process import party_key
from consilience.tables.predictions import predictions
from helpers.deployed_run import (
    NAMES,
    assert_refused,
    assert_same_models_in_one_process,
    grid,
    served,
    started,
)
from helpers.flower_grid import in_a_run

pytestmark = pytest.mark.usefixtures("sketched")

PARTY = """
name = "{name}"
{public}
[data]
path = "patients.csv"
time = "days"
event = "died"
[outcome]
edges = {edges}
[model]
name = "{model}"
[limits]
federation = "center"
[coordinator]
address = "127.0.0.1:9092"
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "own-survival.csv"


def prepared(folder: Path, *edges: str) -> Path:
    """A coordinator's folder, started, with those of two sites beside it."""
    everyone = pd.read_csv(EXAMPLE)
    columns = ["age", "stage", "marker", "treated"]
    everyone[everyone.clinic == "east"][columns].to_csv(folder / "public.csv", index=False)
    write_coordinator(folder / "center", list(NAMES), "127.0.0.1:9092")
    path = folder / "center" / "coordinator.toml"
    text = path.read_text().replace('"public.csv"', '"../public.csv"').replace("= 3", "= 2")
    models = ("logistic-regression", "decision-tree")
    for name, model, own in zip(NAMES, models, edges, strict=True):
        home = folder / name
        home.mkdir()
        rows = everyone[everyone.clinic == name].drop(columns="clinic")
        if name == "south":  # written by another program
            rows["died"] = rows["died"].map({"yes": 1, "no": 0})
        rows.to_csv(home / "patients.csv", index=False, sep=";" if name == "south" else ",")
        public = 'public = "../public.csv"' if name == "north" else ""
        about = PARTY.format(name=name, public=public, model=model, edges=own)
        (home / "party.toml").write_text(about)
        key = party_key(read_party(home / "party.toml"))
        text = text.replace(f'"{name}" = ""', f'"{name}" = "{key}"')
    path.write_text(text)
    return started(folder / "center")


def test_the_same_bits_as_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)
    run = prepared(tmp_path, "[300, 700, 1200]", "[300, 700, 1200]")
    for name in NAMES:
        report = try_out(read_party(tmp_path / name / "party.toml"))
        assert report.rows == 60 and sum(report.classes.values()) == 60
        assert set(report.classes) == {"censored", "event"}
    assert served(run, grid(run)) is True
    assert_same_models_in_one_process(run)
    results = read_results(run)
    assert results.metrics[0] == "ibs" and "Uno&#39;s C" in write_report(run).read_text()
    said = predictions(read_party(tmp_path / "south" / "party.toml").kept(), EXAMPLE).splitlines()
    assert said[0] == "survival_300,survival_700,survival_1200" and len(said) == 301


def test_sites_with_other_edges_do_not_form_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_run(monkeypatch)
    run = prepared(tmp_path, "[300, 700, 1200]", "[300, 700, 1100]")
    with pytest.raises(RunFailed, match=r"'north' is .*1200.*, of 'south' .*1100"):
        served(run, grid(run))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('event = "died"', 'event = "dead"'), "there is no event column 'dead'"),
        (("edges = [1, 2]", "edges = [2, 1]"), "edges are [2.0, 1.0]"),
        (("[outcome]\nedges = [1, 2]", ""), "outcome = { edges"),
        (('time = "days"\nevent = "died"', 'target = "died"'), "data.time and data.event"),
        (("[1, 2]", "[9000]"), "the first edge is 9000"),
        (("logistic-regression", "ridge"), "the target holds bins"),
    ],
)
def test_a_site_is_refused_before_any_work(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    pd.read_csv(EXAMPLE).to_csv(tmp_path / "patients.csv", index=False)
    text = PARTY.format(name="north", public="", model="logistic-regression", edges="[1, 2]")
    assert_refused(tmp_path, text, change, said)
