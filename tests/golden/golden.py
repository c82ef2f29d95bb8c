"""Numbers of every protocol, rule and of the demo, so that a move or a rename that changes one is found.

    python tests/golden/golden.py              # writes protocols.json and rules.json again
    python tests/golden/golden.py --demo       # demo.json: `make demo` with one seed

A commit that changes numbers on purpose writes the files again, by itself, and says which change and why.
Keys are names of cases, rules, tasks on the wire and metrics, which outlive renames in the code. An array is
kept as its shape, its first numbers, its sum and two sums that depend on the order of its numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience import Federation, ensemble_distillation
from consilience.core.aggregation import AGGREGATORS
from consilience.core.checks import PROTOCOL_CASES, MakeParties, ProtocolCase
from consilience.core.checks.example_models import Linear
from consilience.core.messages.schema import Public
from consilience.core.party.party import Party

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHOWN = 4
"""First numbers of an array that are kept."""

DEMO = ("run", "examples/digits.toml", "--seeds", "1", "--quiet")
PLAIN = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""The demo runs on what every processor has: with AVX-512 sums differ in their last digit, and from the first
model that this changes on, trees in round 1, the rounds differ."""


def numbers(values: Any) -> list[Any]:
    """Sum up an array: its shape, first numbers, sum, and sums weighted by sine and cosine of the place."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        return [list(array.shape), *map(str, array.ravel()[:SHOWN])]
    flat = array.astype(np.float64).ravel()
    place = np.arange(flat.size)
    sums = flat.sum(), flat @ np.sin(place), flat @ np.cos(place)
    return [list(array.shape), *(rounded(one) for one in (*flat[:SHOWN], *sums))]


def rounded(value: float) -> float | str:
    """Nine digits, which JSON gives back; a text for what is no number there."""
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)


def of_case(case: ProtocolCase) -> dict[str, Any]:
    """Run a case, and keep teachers, predictions, metrics, and what was delivered in each round."""
    parties, public = case.parties()
    federation = Federation(parties, public, seed=0, strict=False)
    history = federation.run(case.protocol, progress=False)
    inputs = case.inputs
    return {
        "teachers": [
            None if one.teacher is None else numbers(one.teacher.values) for one in history.rounds
        ],
        "predictions": {
            name: numbers(model.learner.predict(inputs))
            for name, model in sorted(federation.network.models().items())
        },
        "metrics": [
            {
                party: {name: rounded(value) for name, value in sorted(found.items())}
                for party, found in sorted(each.items())
            }
            for each in history.metrics
        ],
        "deliveries": [
            sorted(f"{one.party}: {one.tasks} {one.status}" for one in each)
            for each in history.deliveries
        ],
    }


def protocols() -> dict[str, Any]:
    """Numbers of every case of ``PROTOCOL_CASES``."""
    return {name: of_case(case) for name, case in PROTOCOL_CASES.items()}


def rules() -> dict[str, Any]:
    """Numbers of every rule, on parties with classes or with values, or both."""
    return {name: found for name in AGGREGATORS for name, found in of_rule(name)}


def of_rule(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Numbers of a rule in two rounds of the example parties of each kind that it takes."""
    rule = AGGREGATORS[name]()
    kinds = {"classification": unequal(classes=True), "regression": unequal(classes=False)}
    for kind in kinds if rule.forms is not None else (rule.kind,):
        protocol = ensemble_distillation(aggregate=rule, rounds=2)
        yield f"{name}, {kind}", of_case(ProtocolCase(protocol, kinds[kind]))


def unequal(*, classes: bool) -> MakeParties:
    """Make six parties of 12 to 72 rows, some of them far off the others, so that no two rules agree on them.

    Args:
        classes: whether they know classes, or values.
    """

    def made() -> tuple[list[Party], Public]:
        rng = np.random.default_rng(3)
        parties = []
        for i, name in enumerate(("ash", "birch", "cedar", "damson", "elm", "fir")):
            X = rng.normal(loc=[0.3 * i, 0.0], size=(12 * (i + 1), 2))
            noise = rng.normal(scale=0.1 + 0.4 * (i == 1), size=len(X))
            values = X @ [1.0, -2.0 + 0.3 * i] + noise
            y = np.digitize(values, [-1.0, 1.0]) if classes else values
            model = Linear("classification" if classes else "regression", incremental=i % 2 == 0)
            parties.append(Party(name, model, X, y, test=(X[::2], y[::2])))
        return parties, Public(rng.normal(size=(20, 2)))

    return made


def demo() -> dict[str, Any]:
    """Metrics and deliveries of `make demo` with one seed, by its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "demo"
        command = [str(Path(sys.executable).parent / "consilience"), *DEMO, "--out", str(run)]
        env = {**os.environ, **PLAIN}
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=env)
        with sqlite3.connect(run / "ledger.sqlite") as ledger:
            metrics = ledger.execute("SELECT method, round, party, name, value FROM metrics")
            found = {
                f"{method}, {round}, {party}, {name}": rounded(value)
                for method, round, party, name, value in metrics
            }
            left = ledger.execute(
                "SELECT method, round, tasks, status, COUNT(*) FROM deliveries GROUP BY 1, 2, 3, 4"
            )
            counts = {
                f"{method}, {round}: {tasks} {status}": count
                for method, round, tasks, status, count in left
            }
    return {"metrics": dict(sorted(found.items())), "deliveries": dict(sorted(counts.items()))}


def differences(stored: Any, now: Any, where: str = "", *, tolerance: float = 0.0) -> Iterator[str]:
    """Name the places at which two of these documents differ.

    Args:
        stored: as the files have it.
        now: as it is computed now.
        where: the place of both.
        tolerance: relative difference of numbers that is none, and the absolute one near 0.
    """
    if isinstance(stored, Mapping) and isinstance(now, Mapping):
        for key in sorted({*stored, *now}):
            if key not in stored or key not in now:
                yield f"{where}{key}: {'is new' if key in now else 'is gone'}"
            else:
                yield from differences(
                    stored[key], now[key], f"{where}{key}: ", tolerance=tolerance
                )
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for i, (one, other) in enumerate(zip(stored, now, strict=True)):
            yield from differences(one, other, f"{where}{i}: ", tolerance=tolerance)
    elif isinstance(stored, float) and isinstance(now, float | int):
        if not math.isclose(stored, now, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{where}{stored} became {now}"
    elif stored != now:
        yield f"{where}{stored} became {now}"


def read(name: str) -> Any:
    """One of the files of this folder."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def write(name: str, found: Any) -> None:
    """Write one of the files of this folder: a line for each entry."""
    lines = [
        f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in found.items()
    ]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", action="store_true")
    given = parser.parse_args()
    if given.demo:
        write("demo.json", demo())
    else:
        write("protocols.json", protocols())
        write("rules.json", rules())
