"""A metric of another package: one object, named by an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = """
import numpy as np
from consilience.core.metrics.base import Metric

def certainty(scored, weights):
    return float(weights @ scored.outputs.max(axis=1) / weights.sum())

CERTAINTY = Metric("certainty", certainty, label="mean top probability", low=0.5, larger_is_better=False)
"""

PROGRAM = """
import numpy as np
from sklearn.linear_model import LogisticRegression
from consilience import Federation, Party, ensemble_distillation
from consilience.core.metrics.metrics import find_metric, metric_names
from consilience.lab.report.results import words

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 2))
y = (X[:, 0] > 0).astype(int)
test = (X[60:], y[60:])
parties = [Party(n, LogisticRegression(), X[i:60:2], y[i:60:2], test=test) for i, n in enumerate("ab")]
history = Federation(parties, X[:60]).run(ensemble_distillation(rounds=1))
expected = history.models["a"].predict_proba(X[60:]).max(axis=1).mean()
assert abs(history.metric("certainty")[-1, 0] - expected) < 1e-9
assert "certainty" in str(history) and "certainty" in metric_names()
assert words("certainty") == "mean top probability" and not find_metric("certainty").larger_is_better
"""


def _installed(folder: Path, value: str) -> dict[str, str]:
    info = folder / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[consilience.metrics.classification]\ncertainty = {value}\n"
    )
    (folder / "other_metrics.py").write_text(PACKAGE)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_federation_measures_it(tmp_path: Path) -> None:
    environment = _installed(tmp_path, "other_metrics:CERTAINTY")
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)


@pytest.mark.parametrize("value", ["other_metrics:certainty", "math:pi"])
def test_an_entry_point_of_something_else_is_refused(tmp_path: Path, value: str) -> None:
    code = "from consilience.core.metrics.metrics import find_metric; find_metric('certainty')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_installed(tmp_path, value),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "entry point certainty of consilience.metrics.classification" in done.stderr
