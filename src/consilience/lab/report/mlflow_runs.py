"""Metrics of a run as MLflow has them, in a database file on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, MissingExtra, RunFailed
from consilience.lab.report.reading import read_results
from consilience.lab.report.results import Method, Results

_BATCH = 500
"""Metrics that are written at once; MLflow takes 1,000."""


def write_mlflow(run: Path, database: Path) -> int:
    """Write each method and seed of a run as a run of MLflow; those of an earlier call are deleted.

    The MLflow experiment has the name of the run. Metrics are the mean of the parties after each round, such
    as ``accuracy``, and each party's, such as ``accuracy/north``.

    Args:
        run: the run folder, finished or not.
        database: a SQLite file; created if missing.

    Returns:
        The number of written MLflow runs.

    Raises:
        InvalidInput: not a run folder, or no folder for the database.
        RunFailed: a damaged ledger; or MLflow cannot write.
        MissingExtra: mlflow-skinny is not installed.
    """
    results = read_results(run)
    if not database.absolute().parent.is_dir():
        raise InvalidInput("there is no such folder", where=str(database.absolute().parent))
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # nothing is reported to anyone
    try:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise MissingExtra("mlflow-skinny", extra="mlflow", where="--mlflow") from error
    written = 0
    try:
        client = MlflowClient(tracking_uri=f"sqlite:///{database.absolute()}")
        known = client.get_experiment_by_name(results.spec.name)
        place = known.experiment_id if known else client.create_experiment(results.spec.name)
        before = client.search_runs([place], f"tags.folder = '{_tag(results)}'") if known else []
        for one in before:
            client.delete_run(one.info.run_id)
        for method in results.methods:
            for index, seed in enumerate(method.seeds):
                made = client.create_run(
                    place, tags={"folder": _tag(results)}, run_name=f"{method.label}, seed {seed}"
                ).info.run_id
                now = int(1000 * datetime.now().timestamp())
                metrics = [
                    Metric(name, value, now, step)
                    for name, value, step in _metrics(results, method, index)
                ]
                params = [Param(name, text) for name, text in _params(results, method, seed)]
                client.log_batch(made, params=params, tags=[RunTag("method", method.label)])
                for start in range(0, len(metrics), _BATCH):
                    client.log_batch(made, metrics=metrics[start : start + _BATCH])
                client.set_terminated(made)
                written += 1
    except MlflowException as error:
        raise RunFailed(f"MLflow cannot write: {error}", where=str(database)) from error
    return written


def _metrics(results: Results, method: Method, seed: int) -> Iterator[tuple[str, float, int]]:
    """Name, value and round of each metric with the seed at an index."""
    for metric, scores in method.scores.items():
        for column, round in enumerate(method.rounds):
            values = scores[seed, column]
            if np.isfinite(values).any():
                yield metric, float(np.nanmean(values)), round
            for party, value in zip(results.parties, values, strict=True):
                if np.isfinite(value):
                    yield f"{metric}/{_named(party)}", float(value), round


def _params(results: Results, method: Method, seed: int) -> Iterator[tuple[str, str]]:
    protocol: Any = results.spec.protocol
    yield "method", method.aggregate
    yield "protocol", protocol.name
    yield "rounds", str(protocol.rounds)
    yield "seed", str(seed)
    yield "parties", str(len(results.parties))


def _named(party: str) -> str:
    """A party's name with every sign that MLflow does not take spelt as its number."""
    return re.sub(r"[^\w. -]|\.(?=\.)", lambda sign: f":{ord(sign[0]):x}:", party)


def _tag(results: Results) -> str:
    """The run folder, without signs that a filter could take for its own."""
    return re.sub(r"['\"\\]", "_", str(results.folder.resolve()))
