"""Tables of two sites whose files were written by other programs: the same bits as in one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from consilience import Federation
from consilience.cli.predict import of_party, predictions
from consilience.deployment.coordinator.checks import coordinator_facts
from consilience.deployment.coordinator.configuration import read_coordinator, write_coordinator
from consilience.deployment.coordinator.status import coordinator_status
from consilience.deployment.party.process import party_key
from consilience.networks import LocalNetwork
from consilience.site import read_party, try_out
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
name = "{model}"
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
        "north": ('public = "../public.csv"', "", "gradient-boosting"),
        "south": ("", 'rename = { "höhe" = "größe" }', "logistic-regression"),
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
    federation = Federation.over(LocalNetwork(parties, spec.rows()), spec.rows(), seed=spec.seed)
    list(federation.rounds(spec.make_protocol()))
    for party in parties:
        with read_party(run.parent / party.name / "party.toml").site() as site:
            held = site.party()
            assert held is not None and held.schema == spec.rows().schema
            expected = party.learner.predict(spec.rows().X)
            np.testing.assert_array_equal(held.learner.predict(spec.rows().X), expected)
    new = run.parent / "new.csv"
    new.write_text("smokes;grade;höhe;age\nYes;Grade 3;170,5;55\n;;;41\n")
    said = predictions(of_party(run.parent / "south" / "party.toml"), new).splitlines()
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
