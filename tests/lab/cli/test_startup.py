"""What ``consilience run`` imports before its first round: what the configuration needs, and no more.

By names, since seconds depend on the machine; ``benchmarks/startup.py`` has the seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = """
name = "digits"
methods = ["local", "uwa", "suwa", "density-ratio"]
[data]
name = "digits"
public = 100
[partition]
name = "classes"
parties = 3
per_party = 4
[protocol]
rounds = 1
[[models]]
"""
NETWORK = 'name = "mlp"\nhidden = [8]\nrecipe = { first_epochs = 1 }\n'
FOREST = 'name = "random-forest"\nn_estimators = 2\n'

UNTIL_TRAINED = """
import os, sys
from consilience.lab.cli.main import main
from consilience.core.tasks.predictions import FitPrivate

train = FitPrivate.run

def first(task, party):
    train(task, party)
    print("trained with", *sys.modules, flush=True)
    os._exit(0)

FitPrivate.run = first
main()
"""

NOT_YET = {"matplotlib", "skops", "consilience.lab.report", "consilience_papers.theory"}
"""What comes after the last round: pages, plots and files."""


@pytest.mark.parametrize(
    ("model", "needed", "needless"),
    [
        (
            NETWORK,
            {"torch", "consilience.models.torch.learner"},
            {
                "sklearn",
                "scipy.stats",
                "scipy.optimize",
                "scipy.spatial",
                "pandas",
                "pyarrow",
                "torch._dynamo",
                "sympy",
            },
        ),
        (FOREST, {"sklearn.ensemble"}, {"torch", "sklearn.datasets", "sklearn.manifold"}),
    ],
    ids=["network", "forest"],
)
def test_a_run_imports_what_it_needs(
    model: str, needed: set[str], needless: set[str], tmp_path: Path
) -> None:
    """Up to the first party's training: no other library's models, no compiler, nothing for later."""
    (tmp_path / "digits.toml").write_text(DIGITS + model)
    call = [sys.executable, "-c", UNTIL_TRAINED, "run", "digits.toml", "--quiet"]
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(done.stdout.removeprefix("trained with ").split())
    assert needed <= loaded
    assert not loaded & (NOT_YET | needless)
