"""Parties of a configuration: models by name, sites without labels, frozen models."""

from __future__ import annotations

import csv
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.config.experiment import Spec
from consilience.lab.experiments import gather, parse_spec, start
from consilience.lab.experiments.run import resume
from consilience.lab.report.page import write_report
from consilience.lab.report.reading import read_results
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.ledger import Ledger
from consilience.models import ForeignCode, trusting

pytestmark = pytest.mark.usefixtures("sketched")

CONFIG = """
name = "sites"
methods = ["local", "avg", "central"]
keep_models = "all"
[data]
name = "csv"
target = "ill"
group = "site"
public = 10
[partition]
name = "group"
[models]
north = { name = "decision-tree" }
vendor = { name = "frozen", answer = "sick_rule:answer", classes = ["yes", "no"], labels = false, most = 500 }
unlabelled = { name = "logistic-regression", labels = false }
"*" = { name = "naive-bayes" }
[protocol]
rounds = 2
"""

RULE = """
from pathlib import Path
import numpy as np

def answer(X):
    with Path(__file__).with_name("asked").open("a") as file:
        file.write(f"{len(X)}\\n")
    ill = np.clip(0.5 + X[:, :1], 0.1, 0.9)
    return np.hstack([ill, 1 - ill])
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four sites of 60 rows, ill where x > 0; and a rule that knows it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "sites.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["x", "noise", "site", "ill"])
        for site in ("east", "north", "unlabelled", "vendor"):
            for x, noise in rng.normal(size=(60, 2)).round(3):
                lines.writerow([x, noise, site, "yes" if x > 0 else "no"])
    (tmp_path / "sick_rule.py").write_text(RULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sick_rule", raising=False)
    return path


def spec(table: Path, **models: Any) -> Spec:
    document = tomllib.loads(CONFIG)
    document["data"]["path"] = str(table)
    document["models"] |= models
    return parse_spec(document, where="test")


def test_models_are_given_by_name_and_the_rest_in_turn(table: Path) -> None:
    with trusting():
        setup = gather(spec(table), 0)
    brought = {name: model.name for name, model in zip(setup.names, setup.models, strict=True)}
    assert brought == {
        "east": "naive-bayes",
        "north": "decision-tree",
        "unlabelled": "logistic-regression",
        "vendor": "frozen",
    }


def test_a_party_that_is_not_there_names_the_nearest(table: Path) -> None:
    with trusting(), pytest.raises(InvalidInput, match=r"no party is called 'nort'\n.*'north'"):
        gather(spec(table, nort={"name": "svc"}), 0)


def test_a_party_without_a_model_is_named(table: Path) -> None:
    document = tomllib.loads(CONFIG)
    document["data"]["path"] = str(table)
    del document["models"]["*"]
    with trusting(), pytest.raises(InvalidInput, match="no model for party 'east'"):
        gather(parse_spec(document, where="test"), 0)


def test_a_frozen_function_is_foreign_code(table: Path) -> None:
    with pytest.raises(ForeignCode, match="sick_rule:answer"):
        gather(spec(table), 0)
    assert [one.path for one in spec(table).foreign_code()] == ["sick_rule:answer"]


def test_a_run_with_parties_of_other_kinds(table: Path, tmp_path: Path) -> None:
    """From file to page; the rule is asked about a row once, whatever methods there are, and after resume."""
    run = tmp_path / "run"
    with trusting():
        start(spec(table), run)
        asked = sum(map(int, (tmp_path / "asked").read_text().split()))
        results = read_results(run)
        assert asked == len((run / "answers" / "vendor.jsonl").read_text().splitlines())
        assert asked == results.meta["public_rows"] + results.tests[0].own.shape[1]
        with closing(Ledger(run / LEDGER)) as ledger:
            ledger.forget_after("avg", 0, 0)
            ledger.mark("avg", 0, "running")
        resume(run)
        assert sum(map(int, (tmp_path / "asked").read_text().split())) == asked
    avg = next(method for method in read_results(run).methods if method.label == "avg")
    place = results.parties.index("unlabelled")
    assert np.isnan(avg.scores["accuracy"][0, 0, place])
    assert avg.scores["accuracy"][0, -1, place] > 0.8
    page = write_report(run).read_text()
    assert "unlabelled: learns only: it has no model trained alone" in page
    assert "In no mean, since they learn only: unlabelled." in page
    both = [avg.scores["accuracy"][0, -1, i] for i in range(4) if i != place]
    assert avg.over_rounds("accuracy")[0, -1] == pytest.approx(np.mean(both))


def test_test_rows_are_grouped_by_a_category_and_by_site(table: Path, tmp_path: Path) -> None:
    rows = list(csv.reader(table.read_text().splitlines()))
    for i, row in enumerate(rows[1:]):
        row[1] = ("f", "m")[i % 2]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    document = tomllib.loads(CONFIG)
    document["data"]["path"] = str(table)
    found = {}
    for column in ("noise", "site"):
        document["report"] = {"subgroup": column}
        with trusting():
            found[column] = set(gather(parse_spec(document, where="test"), 0).subgroups)
    assert found == {"noise": {"f", "m"}, "site": {"east", "north", "unlabelled", "vendor"}}


MANY = """
name = "many"
methods = ["avg"]
[data]
name = "digits"
public = 30
test_rows = 40
[partition]
name = "iid"
parties = 8
[[models]]
name = "naive-bayes"
[protocol]
rounds = 3
participation = 2
[network]
"""


def many(network: str) -> Spec:
    """Eight parties of which two are drawn a round."""
    return parse_spec(tomllib.loads(MANY + network), where="test")


def test_parties_that_are_made_when_they_are_drawn_learn_the_same(tmp_path: Path) -> None:
    start(many('kind = "local"'), tmp_path / "all")
    start(many('kind = "population"\nlive = 1'), tmp_path / "few")
    with closing(Ledger(tmp_path / "few" / LEDGER)) as ledger:
        ledger.forget_after("avg", 0, 1)
        ledger.mark("avg", 0, "running")
    resume(tmp_path / "few")
    every, few = (read_results(tmp_path / name).methods[0] for name in ("all", "few"))
    assert (every.rounds, few.rounds) == ((0, 1, 2, 3), (1, 2, 3))
    after, found = every.scores["accuracy"][:, 1:], few.scores["accuracy"]
    measured = np.isfinite(found)
    assert measured.sum(axis=2).tolist() == [[2, 2, 2]]
    assert np.array_equal(found[measured], after[measured])
    assert (
        "6 of 8 parties and seeds were not measured" in write_report(tmp_path / "few").read_text()
    )


@pytest.mark.parametrize(
    ("network", "change", "said"),
    [
        (
            'kind = "population"',
            {"protocol": {"rounds": 2, "participation": 9}},
            "participation is 9",
        ),
        (
            'kind = "population"',
            {"hostile": {"attack": "constant"}},
            "lie in this process",
        ),
        ('kind = "population"\nlive = 0', {}, "live"),
    ],
)
def test_a_population_that_cannot_be_is_refused_before_anything_is_done(
    tmp_path: Path, network: str, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        start(parse_spec(tomllib.loads(MANY + network) | change, where="test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
