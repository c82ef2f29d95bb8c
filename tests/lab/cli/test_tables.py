"""A table with gaps and categories, from the file to predictions on new rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import Call, clinics

pytestmark = pytest.mark.usefixtures("sketched")

CONFIG = """
name = "mixed"
methods = ["local", "avg"]
[data]
name = "csv"
path = "mixed.csv"
target = "ill"
group = "clinic"
public = 0.3
[partition]
name = "group"
[protocol]
rounds = 1
[[models]]
name = "gradient-boosting"
max_iter = 5
[[models]]
name = "logistic-regression"
"""


@pytest.fixture
def run(call: Call) -> Path:
    header, *lines = clinics()
    rng = np.random.default_rng(1)
    words = rng.choice(["?", "never", "often"], len(lines))
    both = zip(words, lines, strict=True)
    rows = [f"{i};{word};{line.replace(',', ';')}" for i, (word, line) in enumerate(both)]
    rows[0] = rows[0].replace("never", "").replace("often", "")
    Path("mixed.csv").write_text("\n".join([f"id;smokes;{header.replace(',', ';')}", *rows]) + "\n")
    Path("mixed.toml").write_text(CONFIG)
    result = call("run", "mixed.toml", "--out", "run", "--quiet")
    assert result.exit_code == 0, result.output
    assert "'id' counts the rows: if it is the number of a person, leave it out" in result.stderr
    return Path("run")


def test_new_rows_are_read_by_the_columns_of_training(call: Call, run: Path) -> None:
    Path("new.csv").write_text("age,note,id,smokes,pressure\n61,x,1,OFTEN,120\n,y,2,pipe,\n")
    for party in ("north", "south"):
        result = call("predict", run, "--party", party, "new.csv")
        assert result.exit_code == 0, result.output
        first, second = (line.split(",") for line in result.stdout.splitlines()[1:])
        assert first[0] in ("no", "yes") and float(second[1]) + float(second[2]) == pytest.approx(1)
        assert "that the public rows do not know: 'pipe': read as missing" in result.stderr
    Path("fewer.csv").write_text("age,smokes\n61,often\n")
    refused = call("predict", run, "--party", "north", "fewer.csv")
    assert refused.exit_code == 2 and "no input column 'id', 'pressure'" in refused.stderr


def test_a_class_too_rare_for_a_models_leaves_is_warned_of(call: Call, run: Path) -> None:
    header, *rows = [line.partition(";")[2] for line in Path("mixed.csv").read_text().splitlines()]
    rare = [
        f"{row.rpartition(';')[0]};{'no' if i % 12 else 'yes'}" for i, row in enumerate(3 * rows)
    ]
    Path("rare.csv").write_text("\n".join([header, *rare]) + "\n")
    result = call("run", "mixed.toml", "--out", "rare", "--quick", "--set", "data.path=rare.csv")
    assert result.exit_code == 0, result.output
    assert "rows of class 'yes', and a leaf of its model's trees holds 20 or more" in result.stderr
    assert "south: it trains on" not in result.stderr  # a logistic regression has no leaves
    assert "balanced" in result.stdout


def test_a_damaged_schema_is_named(call: Call, run: Path) -> None:
    path = run / "models/avg/seed-0/north/model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": '[{"name": 7}]'}))
    Path("new.csv").write_text("age,id,smokes,pressure\n61,1,often,120\n")
    result = call("predict", run, "--party", "north", "new.csv")
    assert result.exit_code == 1 and "the model's description is damaged" in result.stderr


def test_how_different_the_parties_are(call: Call, run: Path) -> None:
    result = call("parties", "mixed.toml", "--json", "parties.json")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("parties.json").read_text())
