"""Attacks on the folder of a finished run."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput, RunFailed
from consilience.lab.cli.main import app
from consilience.lab.config.reading import parse_spec
from consilience.lab.data import load
from consilience.lab.diagnostics.attack_run import ATTACKS, AttackedRun, attack_run
from consilience.lab.experiments import Ledger, start
from consilience.lab.runs.folder import LEDGER
from consilience.privacy.attacks.shadows import on_one_scale

pytestmark = pytest.mark.usefixtures("sketched")

CONFIG = """
name = "tiny"
methods = [
  "local", "density-ratio", { protocol = "private_sums", label = "private", privacy = { epsilon = 1.0 } }
]
keep_models = "none"
[data]
name = "digits"
public = 100
[partition]
name = "classes"
parties = 10
per_party = 2
[protocol]
rounds = 1
[[models]]
name = "naive-bayes"
"""

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "run"
    start(parse_spec(tomllib.loads(CONFIG), where="tiny"), folder)
    return folder


@pytest.fixture(scope="module")
def found(run: Path) -> AttackedRun:
    """All attacks, of few shadows."""
    return attack_run(run, ATTACKS, shadows=40, targets=16, rows=40)


def test_every_attack_is_made_where_it_can_be(found: AttackedRun) -> None:
    leaks = {(leak.method, leak.attack): leak for leak in found.leaks}
    assert {party for party in (leak.party for leak in found.leaks)} == {"party-01"}
    told = {one: leaks[one, "membership"].figures["AUC"] for one in ("density-ratio", "private")}
    assert told["density-ratio"] > 0.65 > 0.62 > told["private"]
    assert 0.4 < leaks["density-ratio", "lira"].figures["AUC"] <= 1
    assert leaks["private", "membership"].figures["highest AUC"] == pytest.approx(0.575, abs=1e-3)
    assert leaks["private", "rmia"].why_not == "a party with a budget predicts no rows"
    assert leaks["private", "inversion"].why_not == "no probabilities left it and another party"
    rebuilt = leaks["density-ratio", "inversion"].figures
    assert rebuilt["rebuilt at"] > rebuilt["public row at"] > 0
    assert found.table()[0][-1] == "public row at"
    shares = leaks["density-ratio", "class-shares"].figures
    assert shares["KL of shares"] < 0.1 < shares["KL of equal shares"]


def test_training_with_noise_tells_no_more_than_its_bound(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    spec = tomllib.loads(CONFIG)
    spec["models"] = [
        {"name": "mlp", "hidden": [], "recipe": {"first_epochs": 1, "distill_epochs": 1}}
    ]
    spec["partition"] |= {"parties": 2, "per_party": 5}
    training = {"rows": 400, "batch": 100, "epochs": 1}
    spec["methods"] = [
        {"aggregate": "avg", "label": "dp-sgd", "privacy": {"epsilon": 1.0, "training": training}},
    ]
    start(parse_spec(spec, where="noisy"), tmp_path / "run")
    leaks = attack_run(tmp_path / "run", ["membership"], shadows=8, targets=4, rows=40).leaks
    (dp_sgd,) = (leak.figures for leak in leaks)
    assert dp_sgd["AUC"] < dp_sgd["highest AUC"] < 0.62


def test_a_hold_out_of_ones_own_is_read_as_the_rows_of_the_run_are(run: Path) -> None:
    """A file of the test rows gives the figures that they give: the same seed gives the same ones, too."""
    data = load("digits")
    file = run.with_name("held-out.npz")
    np.savez(file, X=data.X_test, y=data.y_test)
    usual, named = (
        attack_run(run, ["lira"], methods=["density-ratio"], shadows=8, targets=2, holdout=one)
        for one in (None, file)
    )
    assert "held-out.npz" in named.about and "test rows of the run" in usual.about
    assert named.leaks == usual.leaks


def test_a_table_with_groups_is_attacked_and_a_masked_method_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{x:.3f},{'yes' if x > 0 else 'no'},clinic{i % 3}"
        for i, x in enumerate(rng.normal(size=240))
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["x,ill,clinic", *rows]))
    masked = {"aggregate": "avg", "label": "masked", "protocol": {"secure_aggregation": {}}}
    spec = tomllib.loads(CONFIG) | {"methods": ["avg", masked]}
    del spec["partition"]
    data = {"name": "csv", "path": str(tmp_path / "rows.csv"), "target": "ill", "group": "clinic"}
    start(parse_spec(spec | {"data": data | {"public": 0.25}}, where="grouped"), tmp_path / "run")
    plain, summed = attack_run(tmp_path / "run", ["class-shares"], shadows=8).leaks
    assert plain.figures and not plain.why_not
    assert summed.why_not == "sums alone left, and no party is attacked by a sum"


def test_a_run_that_is_computed_otherwise_now_is_not_attacked(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    config["configuration"]["protocol"]["rounds"] = 2
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunFailed, match="and not the"):
        attack_run(copy, methods=["density-ratio"], shadows=8)
    config["configuration"]["data"]["public"] = 101
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="the data are not those of the run"):
        attack_run(copy, shadows=8)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"attacks": ["member"]}, "no attack is called 'member'"),
        ({"methods": ["local"]}, "no method in which something leaves"),
        ({"parties": ["nobody"]}, "no party with rows is called"),
        ({"seed": 7}, "no seed is called '7'"),
        ({"shadows": 7}, "shadows is 7"),
    ],
)
def test_what_cannot_be_attacked_is_refused(run: Path, options: dict, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        attack_run(run, **options)


def test_a_hold_out_that_is_too_small_is_refused(run: Path, tmp_path: Path) -> None:
    data = load("digits")
    np.savez(tmp_path / "few.npz", X=data.X_test[:8], y=data.y_test[:8])
    with pytest.raises(InvalidInput, match="10 are needed"):
        attack_run(run, holdout=tmp_path / "few.npz")


def test_a_run_that_is_not_done_is_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    ledger = Ledger(copy / LEDGER)
    ledger.mark("density-ratio", 0, "running")
    ledger.close()
    with pytest.raises(InvalidInput, match="density-ratio is not done"):
        attack_run(copy)


def test_the_command_prints_a_table_and_adds_it_to_the_page(run: Path, tmp_path: Path) -> None:
    words = ["attack", str(run), "--with", "class-shares", "--json", str(tmp_path / "leaks.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "KL of shares" in done.output
    results = json.loads((tmp_path / "leaks.json").read_text())["results"]
    assert {one["attack"] for one in results} == {"class-shares"}
    assert "What attacks told" in (run / "report.html").read_text()


def test_numbers_of_every_kind_are_put_on_one_scale() -> None:
    """What is the same at all parties is left out, and so is what has another length at some."""
    parties = [
        [np.array([0.0, 10.0]), np.array([1.0]), np.zeros(n), np.zeros(0)] for n in (1, 2, 1)
    ]
    parties[1][0] = np.array([0.0, -10.0])
    seen = on_one_scale(parties, like=2)
    assert seen == pytest.approx(np.array([[0, 2**0.5], [0, -(2**0.5)], [0, 2**0.5]]))
    assert on_one_scale([[np.zeros(2)]] * 3, like=2).shape == (3, 0)
