"""Private sums from a configuration: every party's budget stands with the method."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.config.reading import parse_spec
from consilience.lab.experiments import start
from consilience.lab.report import read_results, write_report

pytestmark = pytest.mark.usefixtures("sketched")

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
    page = write_report(tmp_path / "run").read_text()
    head, rest = page.split("<h2>", 1)
    assert head.count("<p>Privacy (private): who sees all that left under a budget") == 1
    assert "within epsilon = 3, delta = 1e-05 at most, while metrics, and what left" in head
    assert "party-1, party-2, party-3, party-4 say.</p>" in head and "under a budget" not in rest


def test_values_by_the_same_table(tmp_path: Path) -> None:
    """Their bounds stand with the protocol, and are missed before anything is trained."""
    spec = CONFIG.replace('"digits"\npublic = 200', '"diabetes"\npublic = 100')
    spec = spec.replace('"classes"\nparties = 4\nper_party = 5', '"iid"\nparties = 2')
    spec = spec.replace("naive-bayes", "ridge")
    bounded = spec.replace('"private_sums", label', '"private_sums", bounds = [0, 350], label')
    start(parse_spec(tomllib.loads(bounded), where="tiny"), tmp_path / "run")
    assert "epsilon = 3, delta = 1e-05" in str(read_results(tmp_path / "run").notes)
    with pytest.raises(InvalidInput, match="bounds are of values"):
        start(parse_spec(tomllib.loads(spec), where="tiny"), tmp_path / "without")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("epsilon = 3.0", "epsilon = 0.0"), "method private, privacy: Budget: epsilon is 0"),
        (("epsilon = 3.0", "epsilon = 3.0, delta = 2.0"), "privacy: Budget: delta is 2"),
        (("epsilon = 3.0", 'epsilon = 3.0, unit = "patient"'), "unknown option 'unit'"),
        (("epsilon = 3.0", "epsilons = 3.0"), "epsilons"),
        (('"private_sums", label', '"federated_fusion", label'), "no stated cost"),
    ],
)
def test_a_budget_that_is_none_is_refused(change: tuple[str, str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_spec(tomllib.loads(CONFIG.replace(*change)), where="tiny").check()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("epsilon = 3.0", "epsilon = 3.0, delta = 0.01"), "a δ of one in so many permits"),
        (("rounds = 1", "rounds = 1\ndimensions = 500"), "500 dimensions of public rows that have"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused_before_any_training(
    tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        start(parse_spec(tomllib.loads(CONFIG.replace(*change)), where="tiny"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sums_without_noise_are_warned_of(tmp_path: Path) -> None:
    spec = CONFIG.replace(", privacy = { epsilon = 3.0 }", "")
    start(parse_spec(tomllib.loads(spec), where="tiny"), tmp_path / "run")
    warned = "method private: its sums leave without noise, and nothing is guaranteed"
    assert warned in str(read_results(tmp_path / "run").warnings)
    start(parse_spec(tomllib.loads(CONFIG), where="tiny"), tmp_path / "noisy")
    assert "without noise" not in str(read_results(tmp_path / "noisy").warnings)


def test_public_rows_that_are_all_one_are_refused_before_training(tmp_path: Path) -> None:
    rows = ["ill,age,consent", *(f"{'yes' if i % 3 else 'no'},{20 + i},1" for i in range(60))]
    (tmp_path / "same.csv").write_text("\n".join(rows) + "\n")
    data = f"""[data]
name = "csv"
path = {str(tmp_path / "same.csv")!r}
target = "ill"
columns = ["consent"]
public = 20
[partition]
name = "iid"
parties = 2
"""
    spec = CONFIG.split("[data]")[0] + data + CONFIG[CONFIG.index("[protocol]") :]
    with pytest.raises(InvalidInput, match="all 20 public rows are the same in every input"):
        start(parse_spec(tomllib.loads(spec), where="tiny"), tmp_path / "run")
