"""A model trained on scaled rows is asked with rows as they come."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from consilience.core.party.mixed_model import MixedModel
from consilience.lab.cli.predict import kept
from consilience.lab.data import load
from consilience.lab.experiments import gather, read_spec, start, stored_spec
from consilience.models import make
from helpers.command_line import Call

pytestmark = pytest.mark.usefixtures("sketched")

EXAMPLES = Path(__file__).parents[3] / "examples"
CONFIG = """
name = "scaled"
methods = ["local", "mean"]
metric = "r2"
purpose = "everyone"
[data]
name = "diabetes"
public = 150
standardize = true
[partition]
parties = 3
[protocol]
rounds = 1
[[models]]
name = "svr"
C = 100.0
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaled")
    (folder / "scaled.toml").write_text(CONFIG)
    start(read_spec(folder / "scaled.toml"), folder / "run")
    return folder / "run"


@pytest.fixture
def run(call: Call, finished: Path) -> Path:
    """A finished run in the current folder, beside its configuration."""
    Path("scaled.toml").write_text(CONFIG)
    return Path(shutil.copytree(finished, "run"))


def test_predictions_do_not_replace_the_rows(call: Call, run: Path) -> None:
    Path("new.csv").write_text("age,sex\n1,2\n")
    result = call("predict", run, "--party", "party-2", "new.csv", "--out", "./new.csv")
    assert result.exit_code == 2 and "the table of rows itself" in result.stderr
    assert Path("new.csv").read_text() == "age,sex\n1,2\n"


def test_rows_as_they_come_are_scaled_as_in_training(call: Call, run: Path) -> None:
    """The command on raw rows says what the model says of the rows that the run scaled."""
    data = load("diabetes", seed=0)
    assert data.columns is not None
    order = list(reversed(range(10)))
    lines = [",".join(data.columns[i] for i in order)]
    lines += [",".join(repr(float(row[i])) for i in order) for row in data.X_test]
    Path("new.csv").write_text("\n".join(lines) + "\n")
    told = call("predict", run, "--party", "party-2", "new.csv", "--alone").stdout.splitlines()

    learner = make("svr", C=100.0)
    learner.bind(1)
    learner.load(run / "models/mean/seed-0/party-2/alone.skops")
    scaled = gather(stored_spec(run), 0).dataset.X_test
    expected = [f"{value:.9g}" for value in learner.predict(scaled)[:, 0]]
    assert told == ["prediction", *expected]
    assert len(set(expected)) > 100
    raw = learner.predict(data.X_test)[:, 0]
    assert np.abs(raw - np.array(expected, dtype=float)).max() > 10

    chosen = call("predict", run, "--party", "party-2", "new.csv").stdout.splitlines()
    model = kept(run, "party-2").model
    assert isinstance(model, MixedModel)
    assert chosen[1:] == [f"{value:.9g}" for value in model.predict(scaled)[:, 0]] != expected


def test_a_model_of_rows_as_they_come_has_no_scaling(call: Call, run: Path) -> None:
    words = ("--set", "data.standardize=false", "--out", "plain", "--quiet")
    assert call("run", "scaled.toml", *words).exit_code == 0
    kept = "models/mean/seed-0/party-1/model.json"
    assert json.loads(Path("plain", kept).read_text())["scaling"] is None
    scaling = json.loads((run / kept).read_text())["scaling"]
    assert len(scaling["centre"]) == len(scaling["spread"]) == 10


def test_a_damaged_scaling(call: Call, run: Path) -> None:
    path = run / "models/mean/seed-0/party-1/model.json"
    about = json.loads(path.read_text())
    del about["scaling"]["spread"]
    path.write_text(json.dumps(about))
    Path("new.csv").write_text("age,sex,bmi,bp,s1,s2,s3,s4,s5,s6\n" + ",".join("1" * 10) + "\n")
    result = call("predict", run, "--party", "party-1", "new.csv")
    assert result.exit_code == 1 and "description is damaged" in result.stderr


@pytest.mark.parametrize("outputs", [0, 10**12])
def test_outputs_that_no_model_has(call: Call, run: Path, outputs: int) -> None:
    path = run / "models/mean/seed-0/party-1/model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "outputs": outputs}))
    result = call("predict", run, "--party", "party-1", "new.csv")
    assert result.exit_code == 1 and f"damaged ({outputs} outputs" in result.stderr


def test_the_example_of_values_in_a_table(call: Call) -> None:
    """``examples/own-regression.toml`` runs as it is; older patients have a higher pressure."""
    result = call("run", EXAMPLES / "own-regression.toml", "--out", "run", "--quiet", "--quick")
    assert result.exit_code == 0, result.output
    Path("new.csv").write_text("cholesterol,name,age\n180,Ann,30\n180,Bob,75\n")
    for party in ("east", "north", "west"):
        answer = call("predict", "run", "--party", party, "new.csv").stdout.splitlines()
        young, old = map(float, answer[1:])
        assert answer[0] == "prediction" and 90 < young < old < 160


def test_the_example_of_kernel_ridge_regression(call: Call) -> None:
    """``examples/diabetes.toml``: better together than alone, and nearly as good as the rows pooled."""
    words = ("--set", "protocol.rounds=3", "--seeds", "1", "--json", "results.json", "--quiet")
    result = call("run", EXAMPLES / "diabetes.toml", "--out", "run", *words)
    assert result.exit_code == 0, result.output
    found = json.loads(Path("results.json").read_text())["results"]
    error = {row["method"]: row["mean"] for row in found if row["metric"] == "mse"}
    assert error["central"] < error["de-regularised"] < error["iterated"] < error["local"]
    assert error["accelerated"] < error["one-shot"] < error["local"]
