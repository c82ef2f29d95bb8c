"""Own test rows of every party, and one scale at all, taken from the public rows alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.config.experiment_sections import ReportSpec
from consilience.lab.data import DATASETS, Dataset, load
from consilience.lab.data.registry import DatasetEntry
from consilience.lab.experiments import gather, parse_spec
from consilience.lab.experiments.measured_rows import own_tests
from consilience.lab.experiments.setup import SimulatedParties
from consilience.lab.experiments.subgroups import check_two_classes, subgroups_of
from consilience.tables.dataset import as_texts
from consilience.tables.predictions import Scaling

CONFIG = """
name = "scaled"
methods = ["local", "mean"]
[data]
name = "diabetes"
public = 150
[partition]
parties = 3
[[models]]
name = "ridge"
"""


def cohort(**data: Any) -> SimulatedParties:
    document = tomllib.loads(CONFIG)
    document["data"] |= data
    return gather(parse_spec(document, where="test"), seed=0)


def test_a_scaling_by_hand() -> None:
    """Column 1 holds 1 and 3: mean 2, deviation 1. Column 2 is 7 throughout: centred, never divided."""
    scaling = Scaling.of(np.array([[1, 7], [3, 7]], dtype=np.float32))
    assert scaling.centre.tolist() == [2, 7] and scaling.spread.tolist() == [1, 1]
    scaled = scaling(np.array([[4, 8]], dtype=np.float32))
    assert scaled.tolist() == [[2, 1]] and scaled.dtype == np.float32


def test_a_constant_that_no_binary_number_is() -> None:
    """The deviation of rows that are all 0.1 comes out as rounding; they are constant all the same."""
    rows = np.full((11, 1), 0.1, dtype=np.float32)
    assert Scaling.of(rows).spread.tolist() == [1]
    assert np.abs(Scaling.of(rows)(rows)).max() < 1e-7


def test_public_rows_have_mean_0_and_deviation_1() -> None:
    plain, scaled = cohort(), cohort(standardize=True)
    X = scaled.public.X.astype(np.float64)
    assert X.shape == (150, 10)
    assert np.abs(X.mean(axis=0)).max() < 1e-6
    assert np.abs(X.std(axis=0) - 1).max() < 1e-6
    centre, spread = (getattr(plain.public.X, f)(axis=0, dtype=float) for f in ("mean", "std"))
    for part in ("X", "X_test"):
        expected = (getattr(plain.dataset, part) - centre) / spread
        assert np.allclose(getattr(scaled.dataset, part), expected, atol=1e-5)
    for mine, theirs in zip(scaled.rows, plain.rows, strict=True):
        assert np.array_equal(mine, theirs)


def test_without_the_key_rows_are_as_they_came() -> None:
    plain = cohort()
    assert plain.scaling is None
    ages = plain.dataset.X[:, 0]
    assert ages.min() >= 19 and (ages == ages.round()).all()


def test_images_are_scaled_pixel_by_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, 2, size=(60, 4, 5))

    def images() -> Dataset:
        return Dataset("images", X[:40], np.arange(40.0), X[40:], np.arange(20.0), None)

    monkeypatch.setitem(DATASETS._entries, "images", DatasetEntry(images, "images", "nobody"))
    scaled = cohort(name="images", public=20, standardize=True)
    assert scaled.scaling is not None and scaled.scaling.centre.shape == (4, 5)
    assert np.abs(scaled.public.X.mean(axis=0)).max() < 1e-6


def table(path: Path, seed: int, n: int, *, scale: float = 1) -> Path:
    rows = np.random.default_rng(seed).normal([50, 120], [10, 15], size=(n, 2)) / scale
    path.write_text("age,pressure,dose\n" + "".join(f"{a},{p},{a + p}\n" for a, p in rows))
    return path


def test_public_rows_of_a_file_of_their_own(tmp_path: Path) -> None:
    given = {
        "name": "csv",
        "path": str(table(tmp_path / "doses.csv", 0, 60)),
        "target": "dose",
        "public": None,
        "public_file": str(table(tmp_path / "public.csv", 1, 30)),
        "standardize": True,
    }
    scaled = cohort(**given)
    assert len(scaled.public) == 30
    assert np.abs(scaled.public.X.mean(axis=0)).max() < 1e-6
    assert scaled.scaling is not None and scaled.scaling.centre[0] == pytest.approx(50, abs=5)
    with pytest.raises(InvalidInput, match="18 of 18 test rows are among its rows"):
        cohort(**given | {"public_file": given["path"]})
    table(tmp_path / "public.csv", 1, 30, scale=1000)
    with pytest.raises(InvalidInput, match="'age' is of another unit"):
        cohort(**given)


def test_texts_have_no_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = as_texts([f"row {i}" for i in range(40)])

    def words() -> Dataset:
        return Dataset("words", texts, np.arange(40.0), texts, np.arange(40.0), None)

    monkeypatch.setitem(DATASETS._entries, "words", DatasetEntry(words, "words", "nobody"))
    with pytest.raises(InvalidInput, match="are texts, which have no scale"):
        cohort(name="words", public=10, standardize=True)


def own_of(partition: dict[str, Any], classes: tuple[str, ...] | None) -> SimulatedParties:
    """Parties of 60 rows, of 2 classes or values 0 to 59; 30 test rows are of class 0, 10 of class 1."""
    y = np.arange(60) % 2 if classes else np.arange(60.0)
    y_test = np.repeat([0, 1], [30, 10]) if classes else np.linspace(0, 59, 40)
    groups = {"group": np.repeat(["n", "s"], 30), "group_test": np.repeat(["n", "s"], [15, 25])}
    data = Dataset(
        "own", np.arange(60.0)[:, None], y, np.arange(40)[:, None], y_test, classes, **groups
    )
    model, name = (
        ("naive-bayes", "own") if classes else ("ridge", "own-values")
    )  # data are kept by name
    document = {
        "name": "own",
        "methods": ["local"],
        "data": {"name": name},
        "partition": partition,
        "models": [{"name": model}],
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(DATASETS._entries, name, DatasetEntry(lambda: data, name, "nobody"))
        return gather(parse_spec(document, where="test"), seed=0)


def test_every_party_is_measured_on_everyones_rows() -> None:
    found = own_of({"name": "group"}, ("a", "b"))
    for party, own in zip(
        found.parties(pooled=True), [[1] * 15 + [0] * 25, [0] * 15 + [1] * 25], strict=True
    ):
        assert party.rows.test is not None and len(party.rows.test[0]) == 40
        assert party.rows.own.tolist() == own


def test_own_rows_of_classes_are_their_shares() -> None:
    """A class that has a of a party's rows and b of the test rows has the weight a/b there."""
    found = own_of({"name": "dirichlet", "parties": 2, "alpha": 1.0}, ("a", "b"))
    for rows, weights in zip(found.rows, found.own, strict=True):
        share = np.mean(found.dataset.y[rows] == 1)
        np.testing.assert_allclose(weights[:30], (1 - share) / 0.75)
        np.testing.assert_allclose(weights[30:], share / 0.25)


def test_own_rows_of_whole_classes_and_of_chance() -> None:
    classes = own_of({"name": "classes", "parties": 2, "per_party": 1}, ("a", "b"))
    assert sorted(sum(own) for own in classes.own) == [10, 30]
    assert all(own.all() for own in own_of({"name": "iid", "parties": 2}, ("a", "b")).own)


def test_own_rows_of_sorted_values_are_of_their_range() -> None:
    """Values below the middle are the first party's: 20 of 40 test rows, and none of the others."""
    found = own_of({"name": "shards", "parties": 2, "share": 0.0}, None)
    assert found.own[0].tolist() == [2.0] * 20 + [0.0] * 20


def test_own_rows_by_inputs_are_dealt_by_the_private_rows() -> None:
    """Private inputs are 0 to 59, test inputs 0 to 39: of two blocks the first ends at 29."""
    found = own_of({"name": "sorted", "parties": 2, "column": 0}, ("a", "b"))
    assert [len(rows) for rows in found.rows] == [30, 30]
    assert found.own[0].tolist() == [1.0] * 30 + [0.0] * 10
    assert found.own[1].tolist() == [0.0] * 30 + [1.0] * 10


def test_test_rows_are_grouped_by_a_column() -> None:
    """Few values are groups; of many the thirds of all rows are, the same with every seed."""
    dataset = load("diabetes")
    found = {
        name: subgroups_of(ReportSpec(subgroup=name), dataset, None) for name in ("sex", "bmi")
    }
    assert all(len(groups) == len(dataset.X_test) for groups in found.values())
    assert len(set(found["sex"])) == 2
    assert {name.split()[0] for name in found["bmi"] if name[0] != "0"} >= {"above", "up"}
    assert len(set(found["bmi"])) == 3
    with pytest.raises(InvalidInput, match=r"report\.subgroup: there is no column 'sexe'\n.*'sex'"):
        subgroups_of(ReportSpec(subgroup="sexe"), dataset, None)


@pytest.mark.parametrize("name", ["positive", "subgroup"])
def test_what_only_two_classes_have_is_refused_elsewhere(name: str) -> None:
    document = tomllib.loads(CONFIG) | {"report": {name: "sex"}}
    with pytest.raises(InvalidInput, match=rf"report\.{name}: is for two classes, .* have none"):
        gather(parse_spec(document, where="test"), seed=0)


def test_the_class_that_is_looked_for_is_one_of_two() -> None:
    rows, labels = np.zeros((4, 1), np.float32), np.array([0, 1, 0, 1])
    two = Dataset("two", rows, labels, rows, labels, ("ill", "well"))
    check_two_classes(ReportSpec(positive="ill"), two)
    with pytest.raises(InvalidInput, match=r"report\.positive: there is no class 'il'\n.*'ill'"):
        check_two_classes(ReportSpec(positive="il"), two)


WARDS = ("east", "north", "south")
ODD = {
    "age": None, "gap": "", "code": "Z", "mark": "unknown", "word": "many", "whole": "1.5",
    "day": "soon", "flag": "maybe", "empty": "7", "spelt": "LEBT", "ill": "YES", "grade": "unclear",
    "value": "unclear", "time": "9.5", "event": "0", "flu": "", "cold": "1",
}  # fmt: skip
"""Columns of a table, and what only the ward north has in them."""


def wards(seed: int, n: int) -> list[dict[str, str]]:
    """Rows of three wards in turn; in every column every other row of north holds what no one else has."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(n):
        a, b = (int(one) for one in rng.integers(0, 4, 2))
        row = {
            "age": f"{rng.normal(50, 9):.1f}", "gap": f"{a + 0.5}", "code": "AB"[a % 2], "mark": str(b),
            "word": str(a * b), "whole": str(a + b), "day": f"2026-0{1 + a}-0{1 + b}", "empty": "",
            "flag": ("true", "false")[b % 2], "spelt": ("lebt", "tot")[a % 2], "ill": ("yes", "no")[b % 2],
            "grade": ("2", "10")[a % 2], "value": f"{a - b}.25", "time": str(1 + a), "event": str(b % 2),
            "flu": str(a % 2), "cold": str(b % 2), "clinic": WARDS[i % 3],
        }  # fmt: skip
        if row["clinic"] == "north" and i % 2:
            row |= {name: odd for name, odd in ODD.items() if odd is not None}
        rows.append(row)
    return rows


def store(path: Path, rows: list[dict[str, str]]) -> None:
    import pandas as pd

    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":  # numbers as numbers, beside words
        cells = [
            [float(one) if re.fullmatch(r"-?[\d.]+", one) else one for one in row.values()]
            for row in rows
        ]
        pd.DataFrame(cells, columns=frame.columns).to_excel(path, index=False)
    else:
        X = frame[["age", "time"]].astype(float).to_numpy()
        arrays = {"X": X, "y": frame["ill"].to_numpy(str), "clinic": frame["clinic"].to_numpy(str)}
        np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("suffix", "target", "model", "files"),
    [
        ("csv", {"target": "ill"}, "naive-bayes", True),
        ("csv", {"target": "ill"}, "naive-bayes", False),
        ("csv", {"target": "grade"}, "naive-bayes", False),
        ("csv", {"target": "value"}, "ridge", False),
        ("csv", {"time": "time", "event": "event"}, "random-forest", True),
        ("csv", {"labels": ["flu", "cold"]}, "random-forest", False),
        ("parquet", {"target": "grade"}, "naive-bayes", False),
        ("xlsx", {"target": "value"}, "ridge", True),
        ("npz", {}, "naive-bayes", False),
    ],
)
def test_nothing_is_left_of_a_group_that_left(
    tmp_path: Path, suffix: str, target: dict[str, Any], model: str, files: bool
) -> None:
    """All that a run begins with is of the others' rows: columns, categories, gaps, classes, draws."""
    for folder in ("whole", "never"):
        (tmp_path / folder).mkdir()
        for i, (name, n) in enumerate([("rows", 180), ("tests", 60), ("public", 40)]):
            rows = wards(i, n)
            if folder == "never" or name == "public":
                rows = [row for row in rows if row["clinic"] != "north"]
            store(tmp_path / folder / f"{name}.{suffix}", rows)

    def gathered(folder: str, **more: Any) -> SimulatedParties:
        home = tmp_path / folder
        data = {"name": "csv", "path": str(home / f"rows.{suffix}"), "group": "clinic", **target}
        if suffix != "npz":
            named = [
                one
                for part in target.values()
                for one in ([part] if isinstance(part, str) else part)
            ]
            data["drop"] = sorted(
                {"ill", "grade", "value", "time", "event", "flu", "cold"} - {*named}
            )
        data |= (
            {"test": str(home / f"tests.{suffix}"), "public_file": str(home / f"public.{suffix}")}
            if files
            else {"public": 0.2}
        )
        document = {
            "name": "wards",
            "methods": ["local"],
            "data": data,
            "models": [{"name": model}],
        }
        if "time" in target:
            document["outcome"] = {"horizon": 4, "bins": 4}
        return gather(parse_spec(document | more, where="test"), seed=0)

    left, never = gathered("whole", without=["north"]), gathered("never")
    assert left.names == never.names == ("east", "south")
    assert left.dataset.classes == never.dataset.classes
    assert left.dataset.schema == never.dataset.schema
    assert left.public.schema == never.public.schema
    pairs = [
        (getattr(left.dataset, f), getattr(never.dataset, f))
        for f in ("X", "y", "X_test", "y_test")
    ]
    pairs += [(left.public.X, never.public.X)]
    pairs += [*zip(left.rows, never.rows, strict=True), *zip(left.own, never.own, strict=True)]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)


def test_who_stays_keeps_its_model_and_own_rows_are_of_those_who_stay() -> None:
    """Rows that are dealt are dealt as before; a party's own test rows do not hang on who left."""
    document = tomllib.loads(CONFIG) | {"models": [{"name": "ridge"}, {"name": "svr"}]}
    document["partition"] = {"name": "shards", "parties": 3, "share": 0.5}
    whole = gather(parse_spec(document, where="test"), seed=0)
    left = gather(parse_spec(document | {"without": ["party-1"]}, where="test"), seed=0)
    assert left.names == whole.names[1:] and left.models == whole.models[1:]
    held = [whole.dataset.y[rows] for rows in whole.rows[1:]]
    own = own_tests(whole.dataset, "shares", left.names, held, [])
    assert own is not None
    for ours, theirs, rows, kept in zip(left.own, own, left.rows, whole.rows[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(rows, kept)
    with pytest.raises(InvalidInput, match="without: no party is called 'party-4'"):
        gather(parse_spec(document | {"without": ["party-4"]}, where="test"), seed=0)
