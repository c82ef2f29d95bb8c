"""Experiments without public data: how methods that exchange models are named, checked, run and resumed."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.cli.predict import kept
from consilience.lab.experiments import Ledger, gather, parse_spec, resume, start
from consilience.lab.report import read_results, verdict, write_report
from consilience.lab.report.toml import to_toml
from consilience.tables.predictions import predictions
from helpers.configurations import spec_with

pytestmark = pytest.mark.usefixtures("sketched")

CONFIG = """
name = "exchange"
methods = [
  "local",
  { protocol = "averaged_distillation", label = "AvgKD" },
  { protocol = "alternating_distillation", start = "party-2", rounds = 1 },
  "parallel_distillation",
  "central",
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
name = "averaged_distillation"
rounds = 2
[[models]]
name = "logistic-regression"
[[models]]
name = "decision-tree"
[[models]]
name = "naive-bayes"
"""


def numbers(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What a run computed. Bytes are left out: those of scikit-learn's models hold addresses."""
    ledger = Ledger(folder / "ledger.sqlite")
    columns = {
        "metrics": "*",
        "rounds": "method, seed, round",
        "deliveries": "method, seed, party, round, tasks, status, left, detail",
    }
    found = {
        table: ledger.read(f"SELECT {names} FROM {table} ORDER BY method, seed, round, rowid")
        for table, names in columns.items()
    }
    ledger.close()
    return found


def states(folder: Path) -> list[tuple[Any, ...]]:
    """Seed and round of the protocol's states that are kept."""
    ledger = Ledger(folder / "ledger.sqlite")
    found = ledger.read("SELECT seed, round FROM rounds WHERE state IS NOT NULL")
    ledger.close()
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "exchange"
    start(spec_with(CONFIG), folder)
    return folder


def test_methods_by_any_of_their_spellings() -> None:
    spec = spec_with(CONFIG)
    options = {m.label: spec.protocol_for(m) for m in spec.methods}
    found = {label: (p.name, dict(p.options)) for label, p in options.items()}
    assert found == {
        "local": ("local_only", {"rounds": 2}),
        "AvgKD": ("averaged_distillation", {"rounds": 2}),
        "alternating_distillation(party-2, 1)": (
            "alternating_distillation",
            {"rounds": 1, "start": "party-2"},
        ),
        "parallel_distillation": ("parallel_distillation", {"rounds": 2}),
        "central": ("local_only", {"rounds": 2}),
    }
    table = {"protocol": {"name": "averaged_distillation"}, "label": "AvgKD"}
    assert spec_with(CONFIG, methods=[table]).methods == spec.methods[1:2]
    assert parse_spec(json.loads(spec.model_dump_json()), where="stored") == spec
    assert parse_spec(tomllib.loads(to_toml(spec)), where="written") == spec


def test_methods_that_go_with_the_protocol() -> None:
    chosen = spec_with(CONFIG, methods=None).methods
    assert [m.label for m in chosen] == ["local", "averaged_distillation", "central"]
    usual = spec_with(
        CONFIG, methods=None, protocol__name="ensemble_distillation", data__public=20
    ).methods
    assert [m.label for m in usual] == ["local", "auto", "central"]


def test_both_ways_of_teaching_in_one_table() -> None:
    """Another protocol than ``[protocol]`` takes over the rounds, and not what it does not know."""
    spec = spec_with(
        CONFIG,
        methods=["uwa", "averaged_distillation", {"aggregate": "avg", "protocol": {"rounds": 1}}],
        data__public=20,
        protocol={"rounds": 3, "participation": 2, "consensus": "damped"},
    )
    options = [spec.protocol_for(method).options for method in spec.methods]
    assert options[1] == {"rounds": 3}
    assert (options[0]["rounds"], options[0]["participation"]) == (3, 2)
    assert options[0]["consensus"].name == options[2]["consensus"].name == "damped"
    assert options[2]["rounds"] == 1
    assert [m.needs_public for m in spec.methods] == [True, False, True]
    other = spec_with(
        CONFIG, methods=[{"aggregate": "avg", "protocol": "ensemble_distillation"}], data__public=20
    )
    assert other.protocol_for(other.methods[0]).name == "ensemble_distillation"


def test_all_rows_stay_private() -> None:
    cohort = gather(spec_with(CONFIG), 0)
    assert len(cohort.public) == 0 and cohort.public_labels is None
    assert all(len(party.rows.X) == 40 for party in cohort.parties())
    assert all(len(party.rows.X) == 120 for party in cohort.parties(pooled=True))


def test_it_runs_and_is_reported(run: Path) -> None:
    results = read_results(run)
    assert [m.label for m in results.methods if m.exchanges] == [
        "AvgKD",
        "alternating_distillation(party-2, 1)",
        "parallel_distillation",
    ]
    assert all(np.isnan(m.teacher).all() and m.trust is None for m in results.methods)
    local, averaged, central = (results.method(m) for m in ("local", "AvgKD", "central"))
    assert local is not None and averaged is not None and central is not None
    before, after = (averaged.scores["log_loss"][0, at] for at in (0, -1))
    alone = local.scores["log_loss"][0, -1]
    # These models are trained once in local, and AvgKD begins with the same; trees draw anew.
    assert before[[0, 2]].tolist() == alone[[0, 2]].tolist()
    assert not np.isclose(before, after).any()
    assert central.over_rounds("accuracy")[0, -1] > local.over_rounds("accuracy")[0, -1]
    found = verdict(results)
    assert found is not None and found.candidates == 3

    page = write_report(run).read_text()
    assert "public rows" not in page.partition("</header>")[0]
    assert "SharedModel" in page and "Accuracy of the teacher" not in page
    assert not list((run / "plots").glob("teacher*"))


def test_every_agent_sends_one_model_a_round_and_is_sent_the_others(run: Path) -> None:
    ledger = Ledger(run / "ledger.sqlite")
    sent = ledger.read(
        "SELECT round, sum(bytes_up), sum(bytes_down) FROM deliveries "
        "WHERE method = 'AvgKD' AND tasks = 'TrainTowards' GROUP BY round ORDER BY round"
    )
    ledger.close()
    for (_, up, _), (_, _, down) in pairwise(sent):
        assert down == pytest.approx(2 * up, rel=0.01)  # M − 1 = 2 others each
    assert sent[0][2] < 1000


def test_resumed_equals_straight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after round 1 of 3. By a clock that stands still every round has its checkpoint."""
    monkeypatch.setattr(
        "consilience.lab.experiments.method_run.time", SimpleNamespace(perf_counter=lambda: 0.0)
    )
    spec = spec_with(
        CONFIG, methods=["averaged_distillation"], protocol__rounds=3, checkpoint_seconds=0, seeds=2
    )
    start(spec, tmp_path / "straight")

    class Stopped(Exception):
        pass

    def stop(progress: Any) -> None:
        if (progress.seed, progress.round) == (1, 1):
            raise Stopped

    with pytest.raises(Stopped):
        start(spec, tmp_path / "stopped", report=stop)
    # Models are large: the last state alone is kept.
    assert states(tmp_path / "stopped") == [(1, 1)]
    begun: list[tuple[int, int]] = []
    resume(tmp_path / "stopped", report=lambda p: begun.append((p.seed, p.round)))
    assert begun[0] == (1, 2)  # from the checkpoint, not from the start
    assert states(tmp_path / "stopped") == []
    straight, resumed = (numbers(tmp_path / name) for name in ("straight", "stopped"))
    for rows in (straight, resumed):
        rows["deliveries"] = [row for row in rows["deliveries"] if row[4] != "Restore"]
    assert resumed == straight


def test_averaged_parameters_as_a_comparator(tmp_path: Path) -> None:
    network = {"name": "mlp", "hidden": [8], "recipe": {"first_epochs": 1, "epochs": 1}}
    start(spec_with(CONFIG, models=[network], methods=["federated_averaging"]), tmp_path / "run")
    (method,) = read_results(tmp_path / "run").methods
    assert method.scores["accuracy"].shape == (1, 3, 3) and method.exchanges
    assert np.ptp(method.scores["log_loss"][0, -1]) == 0  # one model at all parties


def test_over_processes_the_same(run: Path, tmp_path: Path) -> None:
    chosen = ["averaged_distillation"]
    start(
        spec_with(CONFIG, methods=chosen, network={"kind": "processes", "processes": 1}),
        tmp_path / "apart",
    )
    here = [row[1:] for row in numbers(run)["metrics"] if row[0] == "AvgKD"]
    assert [row[1:] for row in numbers(tmp_path / "apart")["metrics"]] == here != []


def test_kept_models_predict(run: Path, tmp_path: Path) -> None:
    model = kept(run, "party-2")
    assert model.about == "parallel_distillation, seed 0, party-2"
    rows = gather(spec_with(CONFIG), 0).dataset.X_test[:4]
    np.savez(tmp_path / "rows.npz", X=rows)
    assert len(predictions(model, tmp_path / "rows.npz").splitlines()) == 5


def test_models_that_hold_rows_are_sent_if_that_is_said(tmp_path: Path) -> None:
    knn = [{"name": "knn", "sends_rows": True, "n_neighbors": 3}]
    start(spec_with(CONFIG, models=knn, methods=["averaged_distillation"]), tmp_path / "run")
    assert kept(tmp_path / "run", "party-1").model.learner.fitted
    with pytest.raises(InvalidInput, match="a trained KNeighborsClassifier holds rows") as refused:
        start(spec_with(CONFIG, models=[{"name": "knn"}]), tmp_path / "other")
    assert "sends_rows = true" in str(refused.value)
    start(
        spec_with(CONFIG, models=[{"name": "knn"}], methods=["local", "central"]),
        tmp_path / "unsent",
    )


def test_models_are_trusted_by_their_package(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'sklearn' is not trusted") as refused:
        start(spec_with(CONFIG, trusts=["xgboost"]), tmp_path / "run")
    assert 'trusts = ["xgboost", "sklearn"]' in str(refused.value)
    with pytest.raises(InvalidInput, match="'consilience' is not trusted"):
        start(spec_with(CONFIG, trusts=["sklearn"], models=[{"name": "mlp"}]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    cohort = gather(spec_with(CONFIG, trusts=["sklearn"]), 0)
    assert all(party.rules.trusts == ("sklearn",) for party in cohort.parties())


@pytest.mark.parametrize(
    ("changes", "what", "mend"),
    [
        (
            {"methods": ["avg"]},
            "protocol averaged_distillation takes no aggregator",
            '{ aggregate = "avg", protocol = "ensemble_distillation" }',
        ),
        (
            {"methods": ["local", "uwa"], "protocol": {"rounds": 2}},
            "there is no public data, which method 'uwa' needs",
            "averaged_distillation",
        ),
        (
            {"methods": ["class-holders"], "protocol": {"rounds": 2}},
            "there is no public data, which method 'class-holders' needs",
            "data.public",
        ),
        ({"data__public": 0, "protocol": {}, "methods": None}, "there is no public data", "rows"),
        ({"data__standardize": True}, "there is no public data, whose scale", "leave it out"),
        (
            {"methods": [{"protocol": "averaged_distilation"}]},
            "unknown protocol 'averaged_distilation'",
            "Did you mean 'averaged_distillation'",
        ),
        (
            {"methods": ["averaged_distilation"]},
            "unknown method 'averaged_distilation'",
            "Did you mean 'averaged_distillation'",
        ),
        (
            {"methods": [{"aggregate": "averaged_distillation"}]},
            "'averaged_distillation' is a protocol",
            'protocol = "averaged_distillation"',
        ),
        (
            {"methods": [{"protocol": "alternating_distillation", "strat": "party-1"}]},
            "unknown option 'strat'",
            "Did you mean 'start'",
        ),
        (
            {"methods": [{"protocol": "averaged_distillation", "rounds": 0}]},
            "rounds: input should be greater than or equal to 1",
            "method averaged_distillation(0), protocol",
        ),
        ({"protocol__participation": 2}, "unknown option 'participation'", "rounds"),
        ({"protocol__consensus": "damped"}, "unknown option 'consensus'", "averaged_distillation"),
        (
            {"methods": ["local"], "protocol": {"name": "averaged_distillation", "alpha": 0.5}},
            "unknown option 'alpha'",
            "protocol averaged_distillation",
        ),
        ({"methods": [{"label": "mine"}]}, "neither an aggregator nor a protocol", "list methods"),
        (
            {"methods": [{"protocol": "iterative_distillation"}]},
            "protocol iterative_distillation is no method by itself",
            "averaged_distillation",
        ),
        (
            {"methods": [{"protocol": "local_only"}]},
            "protocol local_only is no method by itself",
            "averaged_distillation",
        ),
        ({"methods": [{"protocol": 3}]}, "methods.0.protocol", "table"),
        ({"models": [{"name": "knn", "send_rows": True}]}, "unknown parameter 'send_rows'", "knn"),
        ({"trusts": "sklearn"}, "trusts", "list"),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(changes: Any, what: str, mend: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        spec_with(CONFIG, **changes).check_models()
    assert what in str(raised.value) and mend in str(raised.value)


def test_an_agent_that_is_not_there_is_missed_before_any_training(tmp_path: Path) -> None:
    methods = [{"protocol": "alternating_distillation", "start": "party-9"}]
    with pytest.raises(InvalidInput, match="no agent is called 'party-9'"):
        start(spec_with(CONFIG, methods=methods), tmp_path / "run")
    assert not (tmp_path / "run").exists()
