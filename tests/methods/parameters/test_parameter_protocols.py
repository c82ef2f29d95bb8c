"""Protocols that exchange parameters, as a configuration names them: run, warm-started and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.experiments import start
from consilience.lab.report import read_results
from helpers.configurations import spec_with

pytest.importorskip("torch")

CONFIG = """
name = "parameters"
methods = [
  "federated_averaging",
  { protocol = "federated_proximal", strength = 0.5, label = "FedProx" },
  { protocol = "scaffold", server_rate = 0.9, weights = "rows", label = "SCAFFOLD" },
  { protocol = "federated_dynamics", strength = 0.1, label = "FedDyn" },
  { protocol = "federated_adam", decay = 0.9, label = "FedAdam" },
  "federated_yogi",
  "federated_adagrad",
]
[data]
name = "digits"
test_rows = 60
[partition]
name = "classes"
parties = 3
per_party = 5
samples = 40
[protocol]
name = "federated_averaging"
rounds = 3
participation = 2
[[models]]
name = "mlp"
hidden = [8]
recipe = { optimizer = "sgd", learning_rate = 0.1, epochs = 2 }
"""


def test_a_run_of_all_of_them(tmp_path: Path) -> None:
    start(spec_with(CONFIG), tmp_path / "run")
    methods = {method.label: method for method in read_results(tmp_path / "run").methods}
    assert len(methods) == 7
    losses = {label: method.scores["log_loss"][0] for label, method in methods.items()}
    for label, loss in losses.items():
        assert loss.shape == (4, 3) and np.ptp(loss, axis=1).max() == 0, label
        assert np.array_equal(loss[0], losses["FedDyn"][0]), label
    assert len({loss[-1, 0] for loss in losses.values()}) == 7

    model = tmp_path / "run" / "models" / "SCAFFOLD" / "seed-0" / "party-1" / "model.safetensors"
    warm = {"protocol": "federated_dynamics", "initial": str(model), "label": "warm"}
    start(spec_with(CONFIG, methods=[warm]), tmp_path / "warm")
    (method,) = read_results(tmp_path / "warm").methods
    assert np.array_equal(method.scores["log_loss"][0, 0], losses["SCAFFOLD"][-1])


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"protocol": "scaffold"}, "optimizer is 'adam' in its recipe"),
        ({"protocol": "federated_dynamics", "strength": 0}, "strength is 0"),
        ({"protocol": "federated_averaging", "weights": "equal"}, "weights is 'equal'"),
        ({"protocol": "federated_averaging", "initial": "none.safetensors"}, "cannot be read"),
        ({"protocol": "federated_averaging", "participation": 9}, "participation is 9"),
        ({"protocol": "federated_adam", "rate": 0.1}, "unknown option 'rate'"),
    ],
)
def test_bad_options_are_refused_before_any_method_runs(
    method: dict[str, Any], said: str, tmp_path: Path
) -> None:
    models = [{"name": "mlp", "hidden": [8]}]
    methods = ["federated_averaging", {**method, "label": "wrong"}]
    with pytest.raises(InvalidInput, match=said):
        start(spec_with(CONFIG, methods=methods, models=models), tmp_path / "run")
    assert not (tmp_path / "run").exists()
