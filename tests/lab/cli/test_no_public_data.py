"""The command line without public data: the example, its models, its page, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import Call

pytestmark = pytest.mark.usefixtures("sketched")

EXAMPLE = Path(__file__).parents[3] / "examples" / "no-public-data.toml"
SMALL = ("--quick", "--set", "data.test_rows=40", "--set", "models.0.n_estimators=3")


def test_the_example_runs_as_it_is_but_smaller(call: Call) -> None:
    network = ("--set", "models.2.recipe.first_epochs=1")
    result = call("run", EXAMPLE, *SMALL, *network, "--out", "run", "--json", "-")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)["results"]
    methods = [row["method"] for row in shown if row["metric"] == "accuracy"]
    assert methods == ["local", "AvgKD", "PKD", "AKD", "central"]
    assert "SharedModel" in Path("run/report.html").read_text()
    rows = Path("rows.npz")
    np.savez(rows, X=np.zeros((1, 64)))
    for party in ("party-1", "party-2", "party-3"):  # a forest, a linear model, a network
        said = call("predict", "run", rows, "--party", party, "--method", "AvgKD")
        assert said.exit_code == 0, said.output
        assert len(said.stdout.splitlines()) == 2
    assert call("resume", "run", "--quiet").exit_code == 0


def test_methods_are_listed_with_what_they_are(call: Call) -> None:
    listed = {
        row["name"]: row["line"]
        for row in json.loads(call("list", "methods", "--json", "-").stdout)
    }
    assert "AvgKD" in listed["averaged_distillation"]
    assert {"local", "uwa", "alternating_distillation"} <= set(listed)


@pytest.mark.parametrize(
    ("setting", "what", "mend"),
    [
        ('methods=["local", "uwa"]', "takes no aggregator", '{ aggregate = "uwa", protocol ='),
        (
            'methods=[{aggregate="uwa",protocol="ensemble_distillation"}]',
            "no public data",
            "data.public",
        ),
        ("protocol.alpha=0.5", "unknown option 'alpha'", "rounds"),
        ("protocol.name=averaged_distilation", "unknown protocol", "'averaged_distillation'"),
        ("data.standardize=true", "no public data, whose scale", "leave it out"),
        ("models.0.name=svc", "unknown parameter 'n_estimators'", "Known"),
        ('models=[{name="svc"}]', "a trained SVC holds rows", "sends_rows = true"),
        ('trusts=["sklearn"]', "'consilience' is not trusted", '"sklearn", "consilience"'),
        (
            'methods=["federated_fusion"]',
            "no public data, which method 'federated_fusion'",
            "data.public",
        ),
        ('methods=["AvgKD"]', "unknown method 'AvgKD'", "called 'averaged_distillation' here"),
        ('methods=["conjugate_distillation"]', "cannot be run from a file", "In Python"),
        ("protocol.name=conjugate_distillation", "cannot be run from a file", "In Python"),
        ('methods=["federated_averaging"]', "no parameters to average", "same torch module"),
        ('partition={name="iid",parties=1}', "one agent only", "two or more"),
    ],
)
def test_bad_settings(call: Call, folder: Path, setting: str, what: str, mend: str) -> None:
    result = call("run", EXAMPLE, *SMALL[:3], "--out", "run", "--set", setting)
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2, result.output
    assert what in said and mend in said, said
    assert not Path("run").exists()
