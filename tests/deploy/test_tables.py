"""Tables of two sites whose files were written by other programs: the same bits as in one process."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from consilience import Party
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.sites.coordinator.checks import coordinator_facts
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.coordinator.status import coordinator_status
from consilience.sites.coordinator.template import write_coordinator
from consilience.sites.party import read_party, try_out
from consilience.sites.party.process import party_key
from consilience.tables.predictions import predictions
from helpers.deployed_run import NAMES, grid, served, started
from helpers.flower_grid import in_a_run
from helpers.party_sites import as_deployed

PARTY = """
name = "{name}"
{public}
[data]
path = "patients.csv"
target = "ill"
{data}
[model]
{model}
[limits]
federation = "center"
[coordinator]
address = "127.0.0.1:9092"
"""


def patients(seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(30, 80, n),
            "größe": rng.normal(170, 10, n).round(1),
            "grade": rng.choice([1, 2, 3], n),
            "smokes": rng.choice(["no", "yes"], n),
        }
    )
    ill = frame["age"] / 10 + 2 * (frame["smokes"] == "yes") + rng.normal(size=n) > 6.5
    frame["ill"] = np.where(ill, "yes", "no")
    frame.loc[rng.random(n) < 0.15, "größe"] = np.nan
    return frame


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """South's file is of another program: order, separator, marks, encoding, types, spellings, a name."""
    public = patients(0, 60).drop(columns="ill")
    public["grade"] = public["grade"].map("grade {}".format)
    public.to_csv(tmp_path / "public.csv", index=False, na_rep="NA")
    north, south = patients(1, 70), patients(2, 70)
    north["grade"] = north["grade"].map("grade {}".format)
    south["grade"] = south["grade"].map("Grade  {}".format)
    south["age"] = south["age"].astype(float)
    south["smokes"] = south["smokes"].map({"no": "No", "yes": "YES"})
    south["höhe"] = south.pop("größe")
    south["ward"] = [f"ward {i}" for i in range(70)]
    homes = {name: tmp_path / name for name in NAMES}
    for home in homes.values():
        home.mkdir()
    north.to_csv(homes["north"] / "patients.csv", index=False)
    south.to_csv(
        homes["south"] / "patients.csv", index=False, sep=";", decimal=",", encoding="cp1252"
    )
    write_coordinator(tmp_path / "center", list(NAMES), "127.0.0.1:9092")
    path = tmp_path / "center" / "coordinator.toml"
    text = path.read_text().replace('"public.csv"', '"../public.csv"').replace("= 3", "= 2")
    settings = {
        "north": ('public = "../public.csv"', "", 'name = "gradient-boosting"\nmax_iter = 5'),
        "south": ("", 'rename = { "höhe" = "größe" }', 'name = "logistic-regression"'),
    }
    for name, (public_line, data, model) in settings.items():
        file = homes[name] / "party.toml"
        file.write_text(PARTY.format(name=name, public=public_line, data=data, model=model))
        text = text.replace(f'"{name}" = ""', f'"{name}" = "{party_key(read_party(file))}"')
    path.write_text(text)
    return started(tmp_path / "center")


def test_the_same_bits_as_in_one_process(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)
    assert served(run, grid(run)) is True
    spec = read_coordinator(run)
    parties = [as_deployed(read_party(run.parent / name / "party.toml")) for name in NAMES]
    federation = federation_over(LocalNetwork(parties, spec.rows()), spec.rows(), seed=spec.seed)
    list(federation.rounds(spec.make_protocol()))
    for party in parties:
        with read_party(run.parent / party.name / "party.toml").site() as site:
            held = site.party()
            assert held is not None and held.rows.schema == spec.rows().schema
            expected = party.trainer.learner.predict(spec.rows().X)
            np.testing.assert_array_equal(held.trainer.learner.predict(spec.rows().X), expected)
    new = run.parent / "new.csv"
    new.write_text("smokes;grade;höhe;age\nYes;Grade 3;170,5;55\n;;;41\n")
    said = predictions(read_party(run.parent / "south" / "party.toml").kept(), new).splitlines()
    assert said[0] == "prediction,no,yes" and len(said) == 3


def test_each_end_says_what_it_found(run: Path) -> None:
    for name in NAMES:
        report = try_out(read_party(run.parent / name / "party.toml"))
        assert report.rows == 56
    assert coordinator_facts(run)["public_rows"] == 60


def test_a_difference_that_no_rule_mends_is_refused_by_name(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is said without what the party holds, as the coordinator reads it."""
    in_a_run(monkeypatch)
    path = run.parent / "south" / "patients.csv"
    path.write_text(path.read_text("cp1252").replace("YES", "pipe"))
    served(run, grid(run))
    (south,) = (one for one in coordinator_status(run).parties if one.party == "south")
    assert "column 'smokes' holds a category that the public rows do not know" in south.why
    assert "pipe" not in south.why


def read(folder: Path, frame: pd.DataFrame, **written: Any) -> Party:
    """A site's party beside public rows, its file written like that."""
    patients(0, 60).drop(columns="ill").to_csv(folder / "public.csv", index=False)
    frame.to_csv(folder / "patients.csv", **{"index": False, **written})
    about = {
        "name": "north",
        "public": 'public = "public.csv"',
        "data": "",
        "model": 'name = "naive-bayes"',
    }
    (folder / "party.toml").write_text(PARTY.format(**about))
    party = read_party(folder / "party.toml").party()
    assert party.public is not None
    party.read_public(party.public)
    return party


WRITTEN: dict[str, dict[str, Any]] = {
    "with a mark in front": {"encoding": "utf-8-sig"},
    "in Latin-1, with semicolons and decimal commas": {
        "encoding": "latin-1",
        "sep": ";",
        "decimal": ",",
    },
    "in UTF-16, with tabs": {"encoding": "utf-16", "sep": "\t"},
    "with all in quotes": {"quoting": csv.QUOTE_ALL},
    "with words for gaps": {"na_rep": "N/A"},
}
NORTH = patients(1, 70)
MENDED = {
    "columns in another order": NORTH[NORTH.columns[::-1]],
    "1.0 for 1": NORTH.astype({"grade": float, "age": float}),
    "Yes for yes": NORTH.assign(smokes=NORTH["smokes"].str.title()),
    "true for yes": NORTH.assign(smokes=NORTH["smokes"] == "yes"),
    "1.0 for yes": NORTH.assign(smokes=(NORTH["smokes"] == "yes") * 1.0),
    "names in capitals": NORTH.rename(columns={"größe": " Größe", "age": "AGE"}),
}
REFUSED = {
    "column 'smokes' holds a category that the public rows do not know: 'pipe'": NORTH.assign(
        smokes=NORTH["smokes"].replace("yes", "pipe")
    ),
    "there is no input column 'größe'": NORTH.rename(columns={"größe": "height"}),
    "column 'größe' is of another unit": NORTH.assign(größe=NORTH["größe"] * 10),
    "column 'age' is a number in the public rows": NORTH.assign(age="2020-01-31"),
    "columns that appear twice: grade": NORTH.rename(columns={"age": "grade"}),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_a_file_is_read_however_it_is_written(how: str, tmp_path: Path) -> None:
    same(read(tmp_path, NORTH, **WRITTEN[how]))


@pytest.mark.parametrize("difference", MENDED)
def test_a_difference_is_mended(difference: str, tmp_path: Path) -> None:
    same(read(tmp_path, MENDED[difference]))


def same(party: Party) -> None:
    """Rows and labels are those of the plain file: the rows that are set aside too."""
    found = np.concatenate([party.rows.X, party.rows.test[0]])
    expected = (
        NORTH.assign(smokes=NORTH["smokes"] == "yes").drop(columns="ill").to_numpy(np.float32)
    )
    at = np.lexsort(found.T), np.lexsort(expected.T)
    np.testing.assert_array_equal(found[at[0]].astype(np.float32), expected[at[1]])
    labels = np.concatenate([party.rows.y, party.rows.test[1]])
    assert labels[at[0]].tolist() == NORTH["ill"].to_numpy()[at[1]].tolist()


@pytest.mark.parametrize("why", REFUSED)
def test_another_difference_is_refused_by_name(why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=why):
        read(tmp_path, REFUSED[why])


@pytest.mark.parametrize("wrong", ["YES;pipe", "1,5;alles"], ids=["category", "row"])
def test_nor_where_the_party_has_its_own_copy_of_the_public_rows(
    run: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    in_a_run(monkeypatch)
    file = run.parent / "south" / "party.toml"
    file.write_text(file.read_text().replace("\n[data]", '\npublic = "../public.csv"\n[data]', 1))
    path, (was, now) = run.parent / "south" / "patients.csv", wrong.split(";")
    path.write_text(path.read_text("cp1252").replace(was, now))
    served(run, grid(run))
    (south,) = (one for one in coordinator_status(run).parties if one.party == "south")
    assert "party 'south': " in south.why and now not in south.why
    with pytest.raises(InvalidInput, match=now):
        try_out(read_party(file))
