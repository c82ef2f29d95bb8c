"""Rows of one person are found before they are dealt to training and to test rows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput
from consilience.lab.cli.main import app
from consilience.lab.data import load_table
from consilience.lab.data.downloads import data_home
from consilience.sites.party import read_party
from consilience.tables.check import check_table
from consilience.tables.persons import check_persons
from consilience.tables.table import Table

PERSONS, VISITS = 60, 5


def visits(
    name: str = "patient_id", *, tossed: bool = True, shuffled: bool = True, numbers: bool = True
) -> pd.DataFrame:
    """A table of several rows a person, whose labels a coin decided: for each person, or each row."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(PERSONS), VISITS)
    label = rng.integers(0, 2, PERSONS)[person] if tossed else rng.integers(0, 2, len(person))
    frame = pd.DataFrame(
        {
            name: rng.permutation(PERSONS)[person] + 1000 if numbers else [f"P{i}" for i in person],
            "a": rng.normal(size=PERSONS)[person] + 0.01 * rng.normal(size=len(person)),
            "b": rng.normal(size=PERSONS)[person] + 0.01 * rng.normal(size=len(person)),
            "label": np.where(label, "yes", "no"),
        }
    )
    return frame.sample(frac=1, random_state=1) if shuffled else frame


def table(frame: pd.DataFrame) -> Table:
    return Table.of(frame, where="table")


def refuses(frame: pd.DataFrame, target: str = "label", group: str | None = None) -> bool:
    try:
        targets = [table(frame).columns[target]]
        check_persons(table(frame), targets, but=(target, group), where="table")
    except InvalidInput as error:
        assert "--rows-are-independent" in str(error)
        return True
    return False


@pytest.mark.parametrize(
    "name",
    ["patient", "patient_id", "PatientID", "Subject No", "USUBJID", "id", "mrn", "pat_nr",
     "person", "Participant", "user id", "Patientennummer", "case-no"],
)  # fmt: skip
def test_names_of_persons_and_of_their_numbers(name: str) -> None:
    assert refuses(visits(name, tossed=False))
    once = visits(name, tossed=False).drop_duplicates(name)
    assert not refuses(once)  # each has one row
    twice = pd.concat([once, once[:1]])
    assert refuses(twice)


@pytest.mark.parametrize("name", ["site_id", "width", "paid", "subject_weight", "person type"])
def test_other_names_are_none_of_persons(name: str) -> None:
    assert not refuses(visits(name, tossed=False))


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("shuffled", [True, False])
def test_values_say_it_under_any_name(shuffled: bool, numbers: bool) -> None:
    """All rows of a value have one target, or agree in two other columns, such as sex and blood group."""
    assert refuses(visits("x7", shuffled=shuffled, numbers=numbers))
    frame = visits("x7", tossed=False, shuffled=shuffled, numbers=numbers)
    assert not refuses(frame)
    codes = pd.factorize(frame["x7"])[0]
    rng = np.random.default_rng(3)
    frame["sex"] = rng.integers(0, 2, PERSONS)[codes]
    assert not refuses(frame)
    frame["blood"] = rng.choice(["A", "B", "0"], PERSONS)[codes]
    assert refuses(frame)


def test_a_numbered_column_whose_values_all_repeat() -> None:
    assert refuses(visits("nr", tossed=False)) and not refuses(visits("x7", tossed=False))


def test_a_column_of_groups_names_none() -> None:
    """Where every person is a party, no row of one is at another."""
    assert not refuses(visits("patient"), group="patient")


def test_what_is_no_person() -> None:
    """Many rows a value, few values, numbers with fractions, dates, and columns that a value is cut into."""
    rng = np.random.default_rng(0)
    n = 600
    age = rng.integers(20, 80, n)
    frame = pd.DataFrame(
        {
            "age": age,
            "group": age // 10,
            "old": age > 50,
            "months": 12.0 * age,
            "patient": rng.choice(["in", "out"], n),  # a kind of patient
            "day": pd.Timestamp("2026-01-01")
            + pd.to_timedelta(np.sort(rng.integers(0, 60, n)), "D"),
            "weight": rng.integers(40, 120, n) + 0.5,
            "label": np.where(age > 50, "yes", "no"),
        }
    )
    assert not refuses(frame)
    for column in frame.columns:
        assert not refuses(frame.sort_values(column))


@pytest.mark.needs_data("heart-disease")
def test_independent_rows_of_hospitals_pass() -> None:
    """Each hospital's table and all together, in any order of rows, whatever is predicted."""
    frames = {}
    for file in sorted((data_home() / "heart-disease").glob("processed.*.data")):
        frame = pd.read_csv(file, header=None, na_values="?")
        frame.columns = [f"c{i}" for i in range(frame.shape[1])]
        frames[file.name] = frame
    frames["all"] = pd.concat([one.assign(hospital=name) for name, one in frames.items()])
    assert len(frames) == 5
    for frame in frames.values():
        for column in frame.columns:
            assert not refuses(frame, column)
            assert not refuses(frame.sort_values(column), frame.columns[13])


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "digits"])
def test_independent_rows_of_scikit_learn_s_tables_pass(name: str) -> None:
    found = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    assert not refuses(found, "target")
    assert not refuses(found[::4], "target")


def test_a_table_is_refused_before_it_is_dealt_out(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    visits().to_csv(path, index=False)
    for drop in ((), ("patient_id",)):  # what is no input names persons all the same
        with pytest.raises(InvalidInput, match="'patient_id' names persons"):
            load_table(path, "label", drop=drop)
    assert len(load_table(path, "label", rows_are_independent=True).X) > 0
    with pytest.raises(InvalidInput, match="rows_are_independent"):
        load_table(path, "label", rows_are_independent="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'patient_id' names persons"):
        check_table(path, target="label")
    assert check_table(path, target="label", rows_are_independent=True).rows == PERSONS * VISITS


def test_a_party_refuses_its_file_and_goes_on_if_told(tmp_path: Path) -> None:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    file = tmp_path / "party.toml"
    text = """name = "north"
[data]
path = "visits.csv"
target = "label"
columns = ["a", "b"]
[model]
name = "naive-bayes"
"""
    file.write_text(text)
    with pytest.raises(InvalidInput, match="'patient_id' names persons"):
        read_party(file).party()
    file.write_text(text.replace("[model]", "rows_are_independent = true\n[model]"))
    assert len(read_party(file).party().rows.X) > 0


def test_commands_say_it_before_they_write_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    visits().to_csv("visits.csv", index=False)

    def call(*words: str) -> tuple[int, str]:
        found = CliRunner().invoke(app, words)
        return found.exit_code, found.output

    ask = ("new", "study", "--table", "visits.csv", "--target", "label", "--yes")
    status, said = call(*ask)
    assert status == 2 and "names persons" in said and "--rows-are-independent" in said
    assert not Path("study.toml").exists()
    assert call(*ask, "--rows-are-independent")[0] == 0
    text = Path("study.toml").read_text()
    assert tomllib.loads(text)["data"]["rows_are_independent"] is True
    asked = "\n".join(line for line in text.splitlines() if "rows_are_independent" not in line)
    Path("study.toml").write_text(asked)
    status, said = call("run", "study.toml", "--quick", "--out", "run")
    assert status == 2 and "names persons" in said and not Path("run").exists()
    monkeypatch.setattr(
        "consilience.lab.cli.commands.start_run", lambda spec, *_: print(spec.data.options)
    )
    status, said = call("run", "study.toml", "--rows-are-independent")
    assert status == 0 and "'rows_are_independent': True" in said
    assert call("check-table", "visits.csv", "--target", "label")[0] == 2
    assert call("check-table", "visits.csv", "--target", "label", "--rows-are-independent")[0] == 0


@pytest.mark.parametrize("mark", [".", ","])
def test_measurements_are_no_persons_whatever_their_decimal_mark(mark: str, tmp_path: Path) -> None:
    """One that is written in three units decides two other columns."""
    rng = np.random.default_rng(0)
    texts = [
        [f"{k * one}".replace(".", mark) for k in (1, 2, 3)]
        for one in rng.integers(200, 260, 300) / 8
    ]
    labels = rng.choice(["no", "yes"], 300)
    rows = [";".join([*three, label]) for three, label in zip(texts, labels, strict=True)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["a;b;c;y", *rows]))
    assert len(load_table(file, "y").X) > 0


@pytest.mark.parametrize(("wards", "persons"), [(12, False), (20, True)])
def test_few_categories_may_decide_the_target(wards: int, persons: bool) -> None:
    ward = np.arange(wards * 5) % wards
    frame = pd.DataFrame({"ward": [f"W{one}" for one in ward], "label": ward % 2})
    assert refuses(frame) == persons
