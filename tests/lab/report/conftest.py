"""Runs made by hand: every number in their ledgers is written in the test that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from consilience.core.networks import Delivery
from consilience.lab.experiments import Ledger, parse_spec
from consilience.lab.runs.folder import store_configuration

Make = Callable[..., Path]

PARTS = ("mse", "bias", "variance", "correlation", "concentration")


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """Make a run folder; every method given in ``scores`` is done with the seeds given there.

    ``scores`` is ``{method: {seed: {metric: [[per party] per round]}}}``.
    """

    def make(
        scores: Mapping[str, Mapping[int, Mapping[str, Sequence[Sequence[float | None]]]]],
        *,
        name: str = "run",
        parties: Sequence[str] = ("a", "b"),
        classes: Sequence[str] = ("no", "yes"),
        rows: Sequence[Sequence[int]] = ((10, 0), (5, 5)),
        trust: Mapping[str, Sequence[Sequence[float]]] = {},
        deliveries: Mapping[str, Sequence[Delivery]] = {},
        versions: Mapping[str, str] = {"python": "3.12.0"},
        running: Sequence[tuple[str, int]] = (),
        **settings: Any,
    ) -> Path:
        document: dict[str, Any] = {
            "name": "toy",
            "methods": list(scores),
            "data": {"name": "digits", "public": 100},
            "partition": {"parties": len(parties)},
            "models": [{"name": "naive-bayes"}],
            "protocol": {"rounds": 1},
        }
        spec = parse_spec({**document, **settings}, where="test")
        folder = tmp_path / name
        folder.mkdir()
        store_configuration(folder, "simulated", spec)
        ledger = Ledger(folder / "ledger.sqlite", create=True)
        ledger.note(versions=dict(versions), machine="a machine", public_rows=100, started="then")
        for seed in spec.seed_list:
            for party, held in zip(parties, rows, strict=True):
                for label, count in zip(classes, held, strict=True):
                    ledger.write("holdings", [(seed, party, "naive-bayes", label, count)])
        for method, by_seed in scores.items():
            for seed, measured in by_seed.items():
                ledger.write("method_runs", [(method, seed, "done", 2.0)])
                for round in range(spec.protocol.rounds + 1):
                    teacher = 0.75 if round and method in trust else None
                    ledger.write("rounds", [(method, seed, round, 1.0, None, 0, teacher)])
                for metric, by_round in measured.items():
                    for round, values in enumerate(by_round):
                        for party, value in zip(parties, values, strict=True):
                            if value is not None:
                                row = (method, seed, round, party, metric, value)
                                ledger.write("metrics", [row])
                for party, weights in zip(parties, trust.get(method, ()), strict=False):
                    for label, weight in zip(classes, weights, strict=True):
                        ledger.write("trust", [(method, seed, 1, party, label, weight)])
                if method in trust:
                    parts = dict.fromkeys(PARTS, 0.25)
                    ledger.write("teachers", [(method, seed, 1, *part) for part in parts.items()])
                for told in deliveries.get(method, ()):
                    ledger.add_deliveries(method, seed, told.round, [told], {})
        for method, seed in running:
            ledger.write("method_runs", [(method, seed, "running", 0.0)])
            ledger.write("rounds", [(method, seed, 0, 1.0, None, 0, None)])
        ledger.close()
        return folder

    return make


def delivery(party: str, round: int, tasks: str, up: int, **more: Any) -> Delivery:
    """A delivery with what a test cares about."""
    given = {"status": "ok", "left": "", "bytes_down": 10, "seconds": 0.1, "detail": "", **more}
    return Delivery(party=party, round=round, tasks=tasks, bytes_up=up, **given)


@pytest.fixture
def rich_run(make_run: Make) -> Path:
    """Three seeds of local, avg and uwa, with trust, deliveries, a failure and hostile names."""
    asked = [
        delivery("<b>x", 0, "Describe", 300, left="Description"),
        delivery("<b>x", 1, "PredictPublic", 20000, left="Predictions(100×2)"),
        delivery("$\\frac{$", 1, "PredictPublic", 0, status="late", detail="no <i>answer</i>"),
        delivery("<b>x", 1, "Distill", 112, detail="no row weights; other"),
        delivery("<b>x", 1, "Evaluate", 999, left="Metrics"),
    ]
    label = "<script>alert(1)</script>"
    return make_run(
        {
            "local": {s: {"accuracy": [[0.2, 0.4], [0.2, 0.4]]} for s in range(3)},
            "avg": {s: {"accuracy": [[0.2, 0.4], [0.3, 0.5 + s / 10]]} for s in range(3)},
            label: {s: {"accuracy": [[0.2, 0.4], [0.6, 0.8]]} for s in range(3)},
        },
        parties=("<b>x", "$\\frac{$"),
        classes=('_no & "never"', "医院"),
        trust={"avg": [[0.5, 0.5], [0.5, 0.5]], label: [[0.9, 0.1], [0.1, 0.9]]},
        deliveries={"avg": asked},
        seeds=3,
        methods=["local", "avg", {"aggregate": "uwa", "label": label}],
    )
