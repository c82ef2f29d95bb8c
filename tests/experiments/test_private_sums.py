"""Private sums from a configuration: every party's budget stands with the method."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from consilience.errors import InvalidInput
from consilience.experiments import start
from consilience.experiments.configuration import parse_spec
from consilience.report import read_results

CONFIG = """
name = "tiny"
methods = ["local", { protocol = "private_sums", label = "private", privacy = { epsilon = 3.0 } }]
[data]
name = "digits"
public = 200
[partition]
name = "classes"
parties = 4
per_party = 5
[protocol]
name = "private_sums"
rounds = 1
[[models]]
name = "naive-bayes"
"""


def test_a_run_says_what_was_guaranteed(tmp_path: Path) -> None:
    start(parse_spec(tomllib.loads(CONFIG), where="tiny"), tmp_path / "run")
    notes = str(read_results(tmp_path / "run").notes)
    assert "epsilon = 3, delta = 1e-05" in notes and "outside of this guarantee" in notes


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("epsilon = 3.0", "epsilon = 0.0"), "epsilon is 0"),
        (("epsilon = 3.0", "epsilons = 3.0"), "epsilons"),
        (('"private_sums", label', '"federated_fusion", label'), "no stated cost"),
    ],
)
def test_a_budget_that_is_none_is_refused(change: tuple[str, str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_spec(tomllib.loads(CONFIG.replace(*change)), where="tiny").check()
