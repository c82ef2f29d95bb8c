"""Metrics of a run in MLflow's database."""

from __future__ import annotations

from pathlib import Path

import pytest

from consilience.core.errors import InvalidInput, MissingExtra
from consilience.lab.report import mlflow_runs
from consilience.lab.report.mlflow_runs import write_mlflow


def test_without_it_the_extra_is_named(rich_run: Path, tmp_path: Path, monkeypatch) -> None:
    for module in ("mlflow", "mlflow.entities", "mlflow.exceptions", "mlflow.tracking"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra, match=r"consilience\[mlflow\]"):
        write_mlflow(rich_run, tmp_path / "runs.db")
    with pytest.raises(InvalidInput, match="no such folder"):
        write_mlflow(rich_run, tmp_path / "none" / "runs.db")


def test_names_that_mlflow_takes() -> None:
    assert mlflow_runs._named("Köln 1.a-b") == "Köln 1.a-b"
    assert mlflow_runs._named("<b>/..") == ":3c:b:3e::2f::2e:."


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of its own making: deprecated calls of SQLAlchemy
def test_a_run_is_written_and_written_anew(rich_run: Path, tmp_path: Path) -> None:
    """By hand: round 0 of avg is 0.2 and 0.4, round 1 with seed 0 is 0.3 and 0.5."""
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    from mlflow.tracking import MlflowClient

    database = tmp_path / "runs.db"
    assert write_mlflow(rich_run, database) == write_mlflow(rich_run, database) == 9
    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("toy")
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 9  # 3 methods, 3 seeds; the earlier ones are deleted
    avg = runs["avg, seed 0"]
    assert avg.data.params["method"] == "avg" and avg.data.params["parties"] == "2"
    history = client.get_metric_history(avg.info.run_id, "accuracy")
    assert [(one.step, one.value) for one in history] == [(0, pytest.approx(0.3)), (1, 0.4)]
    (last,) = [
        one.value
        for one in client.get_metric_history(avg.info.run_id, "accuracy/:3c:b:3e:x")
        if one.step == 1
    ]
    assert last == 0.3
