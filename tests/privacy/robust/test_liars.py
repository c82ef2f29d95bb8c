"""Liars in a configuration, and protection from them: in the ledger and on the page."""

from __future__ import annotations

import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.experiments import Ledger, parse_spec, start
from consilience.lab.report import read_results

CONFIG = """
name = "liars"
purpose = "taught"
methods = ["density-ratio"]
[data]
name = "csv"
path = "PATH"
target = "y"
public = 60
[partition]
name = "iid"
parties = 5
[[models]]
name = "naive-bayes"
[protocol]
rounds = 1
[hostile]
attack = "claims-everywhere"
parties = ["party-2"]
"""


def ran(folder: Path, tmp_path: Path, text: str = "", **changes: Any) -> Ledger:
    """A run on three clouds of points, with a further section of the configuration."""
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 3
    X = rng.normal(size=(300, 2)) + 5 * np.eye(3)[codes, :2]
    rows = "\n".join(f"{a:.4f},{b:.4f},{'uvw'[c]}" for (a, b), c in zip(X, codes, strict=True))
    (tmp_path / "rows.csv").write_text(f"a,b,y\n{rows}\n")
    document = tomllib.loads(CONFIG.replace("PATH", str(tmp_path / "rows.csv")) + text)
    start(parse_spec({**document, **changes}, where="liars.toml"), folder)
    return Ledger(folder / "ledger.sqlite")


def found(folder: Path, tmp_path: Path, text: str = "") -> tuple[float, list[str]]:
    """Accuracy of the teacher, and the notes of the run."""
    with closing(ran(folder, tmp_path, text)) as ledger:
        ((accuracy,),) = ledger.read("SELECT teacher_accuracy FROM rounds WHERE round = 1")
        return accuracy, [text for (text,) in ledger.read("SELECT text FROM notes")]


def test_an_attacker_is_bounded_and_found_by_secret_labels(tmp_path):
    """It claims a million rows everywhere; without bounds the teacher would have its second class."""
    unwatched = "[robustness]\nwatch = false\n"
    accuracy, notes = found(tmp_path / "bounded", tmp_path, unwatched)
    assert accuracy > 0.9
    assert not any("is excluded" in note for note in notes)
    secret = f"{unwatched}secret_labels = 20\n"
    accuracy, notes = found(tmp_path / "secret", tmp_path, secret)
    assert accuracy > 0.9
    assert any("party-2 is excluded since round 1: on secret rows" in note for note in notes)
    assert any(
        "party-2 is excluded" in note.text for note in read_results(tmp_path / "secret").notes
    )
    let_in = f'{secret}let_in = ["party-2"]\n'
    assert not any(
        "is excluded" in note for note in found(tmp_path / "let in", tmp_path, let_in)[1]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[robustness]\nsecret_labels = 60\n", "secret_labels is 60, of 60 public rows"),
        ('[robustness]\nsecret_labels = "root.csv"\n', "secret_labels is root.csv, of 60"),
        ('[robustness]\nlet_in = ["nobody"]\n', "no party is called 'nobody'"),
        ('[network]\nkind = "processes"\n', "network.kind is 'processes'"),
        (
            "[robustness]\ntolerates = 3\n",
            "3 may lie, and class 'u' is known to party-1, .*party-5 alone",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, text, said):
    with pytest.raises(InvalidInput, match=said):
        ran(tmp_path / "run", tmp_path, text)


def test_a_broken_model_is_left_out_without_any_setting(tmp_path):
    accuracy, notes = found(tmp_path / "run", tmp_path, "[robustness]\ntolerates = 2\n")
    assert accuracy > 0.9
    assert any(note.startswith("party-2 is excluded since round 1") for note in notes)
    results = read_results(tmp_path / "run")
    assert results.missed("density-ratio") == "excluded: party-2"
    assert any(one.startswith("party-2 is excluded since round 1") for one in results.warnings)


def test_more_liars_than_any_rule_bears_are_said(tmp_path):
    hostile = {"attack": "claims-everywhere", "parties": ["party-1", "party-2", "party-3"]}
    with closing(ran(tmp_path / "run", tmp_path, hostile=hostile)) as ledger:
        (said,) = [text for text in ledger.meta["warnings"] if "may lie" in text]
    assert said.startswith(
        "3 may lie, and class 'u' is known to party-1, party-2, party-3, party-4, party-5"
    )


def test_what_nobody_would_lie_in_is_refused(tmp_path):
    masked = {"name": "ensemble_distillation", "rounds": 1, "secure_aggregation": {}}
    for changes, said in (
        ({"methods": ["avg"], "protocol": masked}, "under masks none arrives"),
        ({"methods": ["private_sums"]}, "private_sums has none"),
        ({"hostile": {"attack": "random", "parties": -1}}, "hostile.parties"),
    ):
        with pytest.raises(InvalidInput, match=said):
            ran(tmp_path / "run", tmp_path, **changes)
    honest = {"attack": "random", "parties": 0}
    ran(tmp_path / "run", tmp_path, methods=["avg"], protocol=masked, hostile=honest).close()


def test_a_protocol_without_a_rule_is_not_guarded(tmp_path):
    text = "[robustness]\nmost_rows = 10\n"
    with pytest.raises(InvalidInput, match="takes no aggregator"):
        ran(tmp_path / "run", tmp_path, text, methods=["averaged_distillation"])
