"""Boosting by many parties, as a configuration names it: run beside its baselines, kept, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.experiments import start
from consilience.lab.report import read_results
from consilience.models import make
from helpers.configurations import spec_with

CONFIG = """
name = "boosting"
methods = [
  "local",
  "central",
  { protocol = "functional_gradient_boosting", label = "FFGB" },
  { protocol = "functional_gradient_boosting", distill = true, label = "FFGB-distill" },
]
[data]
name = "digits"
public = 200
test_rows = 100
[partition]
name = "classes"
parties = 3
per_party = 7
samples = 150
[protocol]
name = "functional_gradient_boosting"
rounds = 4
step_size = 4
[[models]]
name = "boosted"
weak = { name = "tree-regressor", max_depth = 8 }
steps = 4
step_size = 4.0
"""


def test_a_run_beside_its_baselines(tmp_path: Path) -> None:
    start(spec_with(CONFIG), tmp_path / "run")
    methods = {method.label: method for method in read_results(tmp_path / "run").methods}
    last = {label: method.scores["accuracy"][0, -1] for label, method in methods.items()}
    assert np.ptp(last["FFGB"]) == np.ptp(last["FFGB-distill"]) == 0  # one model for all
    assert last["local"].mean() + 0.05 < last["FFGB"][0] < last["central"].mean() + 0.1
    assert last["FFGB-distill"][0] > last["local"].mean()

    kept = tmp_path / "run" / "models"
    learner = make("boosted", weak={"name": "tree-regressor", "max_depth": 8})
    sizes = {}
    for label in ("FFGB", "FFGB-distill"):
        learner.load(kept / label / "seed-0" / "party-1" / "model.safetensors")
        sizes[label] = len(learner.ensemble)  # type: ignore[attr-defined]
    assert sizes == {"FFGB": 12, "FFGB-distill": 1}


def test_regression_from_a_table(tmp_path: Path) -> None:
    x = np.round(np.random.default_rng(0).random(90), 6)
    rows = "\n".join(f"{a},{np.sin(6 * a)}" for a in x)
    (tmp_path / "rows.csv").write_text(f"x,y\n{rows}\n")
    spec = spec_with(
        CONFIG,
        data={"name": "csv", "path": str(tmp_path / "rows.csv"), "target": "y"},
        partition={"name": "iid", "parties": 3},
        methods=[{"protocol": "functional_gradient_boosting", "label": "FFGB", "step_size": 0.7}],
        models=[{"name": "boosted", "kind": "regression", "weak": "kernel-ridge"}],
    )
    with pytest.raises(InvalidInput, match="KernelRidge holds rows of its private data"):
        start(spec, tmp_path / "refused")
    sends = {"name": "boosted", "kind": "regression", "weak": "kernel-ridge", "sends_rows": True}
    start(
        spec.model_copy(update={"models": spec_with(CONFIG, models=[sends]).models}),
        tmp_path / "run",
    )
    (method,) = read_results(tmp_path / "run").methods
    error = method.scores["mse"][0, :, 0]
    assert (np.diff(error) < 0).all() and error[-1] < 0.1 * error[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"protocol": {"name": "functional_gradient_boosting", "step_size": "fast"}},
            "step_size is",
        ),
        ({"protocol": {"name": "functional_gradient_boosting", "local_step": 2}}, "local_steps"),
        ({"models": [{"name": "random-forest"}]}, "no sum of weak learners"),
        ({"models": [{"name": "boosted", "weak": "decision-tree"}]}, "weak learner cannot be used"),
        (
            {"models": [{"name": "boosted", "weak": "tree-regresor"}]},
            "Did you mean 'tree-regressor'",
        ),
        ({"models": [{"name": "boosted", "losss": "squared"}]}, "Did you mean 'loss'"),
        (
            {"models": [{"name": "boosted", "weak": "lightgbm-regressor"}], "trusts": ["sklearn"]},
            "trust",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(changes: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=said):
        start(spec_with(CONFIG, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
