"""Several labels between sites: the same bits as in one process, and a site that lacks a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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

PARTY = """
name = "{name}"
[data]
path = "notes.csv"
[outcome]
labels = ["cough", "fever"]
[model]
name = "{model}"
[limits]
federation = "center"
[coordinator]
address = "127.0.0.1:9092"
"""


def notes(rows: int, seed: int) -> pd.DataFrame:
    table = pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, 2)), columns=["a", "b"])
    says = {"cough": table["a"] > 0, "fever": table["b"] > 0.5}
    return table.assign(**{name: np.where(has, "yes", "no") for name, has in says.items()})


def prepared(folder: Path) -> Path:
    """A coordinator's folder, started, with those of two sites beside it; the south knows no fever."""
    notes(60, 2)[["a", "b"]].to_csv(folder / "public.csv", index=False)
    write_coordinator(folder / "center", list(NAMES), "127.0.0.1:9092")
    path = folder / "center" / "coordinator.toml"
    text = path.read_text().replace('"public.csv"', '"../public.csv"').replace("= 3", "= 2")
    for i, (name, model) in enumerate(zip(NAMES, ("decision-tree", "naive-bayes"), strict=True)):
        (folder / name).mkdir()
        rows = notes(80, i) if name == "north" else notes(80, i).drop(columns="fever")
        rows.to_csv(folder / name / "notes.csv", index=False)
        (folder / name / "party.toml").write_text(PARTY.format(name=name, model=model))
        key = party_key(read_party(folder / name / "party.toml"))
        text = text.replace(f'"{name}" = ""', f'"{name}" = "{key}"')
    path.write_text(text)
    return started(folder / "center")


def test_the_same_bits_as_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)
    run = prepared(tmp_path)
    for name in NAMES:
        assert try_out(read_party(tmp_path / name / "party.toml")).rows == 64
    assert served(run, grid(run)) is True
    assert_same_models_in_one_process(run)
    assert read_results(run).metrics[0] == "hamming_loss"
    new = notes(50, 9)
    new.to_csv(tmp_path / "new.csv", index=False)
    said = predictions(read_party(tmp_path / "south" / "party.toml").kept(), tmp_path / "new.csv")
    rows = np.array([line.split(",") for line in said.splitlines()[1:]], dtype=float)
    assert said.splitlines()[0] == "cough,fever" and rows.shape == (50, 2)
    assert np.corrcoef(rows[:, 1], new["b"])[0, 1] > 0.4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('["cough", "fever"]', '["cough", "cough"]'), "labels are"),
        (('["cough", "fever"]', '["cough", "fevr"]'), "no label column 'fevr'"),
        (('["cough", "fever"]', '["rash"]'), "no label is known"),
        (('["cough", "fever"]', '["cough", "fever"]\nedges = [1]'), "labels alone"),
        (('path = "notes.csv"', 'path = "notes.csv"\ntarget = "cough"'), "and no target"),
        (('"naive-bayes"', '"ridge"'), "the target holds bins"),
    ],
)
def test_a_site_is_refused_before_any_work(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    notes(40, 0).to_csv(tmp_path / "notes.csv", index=False)
    text = PARTY.format(name="north", model="naive-bayes")
    assert_refused(tmp_path, text, change, said)
