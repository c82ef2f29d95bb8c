"""Measure time and memory of a federation of 10,000 parties, of which 100 take part in a round.

    python benchmarks/population.py          # a quarter of an hour
    python benchmarks/population.py 1        # with one repeat

20 rounds of 100 parties each, drawn anew; every party has 40 rows of 64 numbers, 10 classes and a logistic
regression, and there are 1,000 public rows. Three federations, in processes of their own, in turn:

    200                 parties in memory, all of them trained in round 0
    10,000, 200 drawn   a ``Population``, of which the same 200 alone are ever drawn
    10,000              a ``Population``; most parties drawn are new, made and first trained in that round

The first two do the same work but for the order of the draws: their difference is the cost of 9,800 others.
The third trains each new party on its own rows first, as the 200 were before round 0: these seconds are
measured apart.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from consilience import Federation, Party, Population, avg, ensemble_distillation
from consilience.core.learners import make
from consilience.core.party.trainer import Training

PER_ROUND, ROUNDS, ROWS, PUBLIC, COLUMNS, CLASSES = 100, 20, 40, 1000, 64, 10
CASES = {"200": (200, 200), "10,000, 200 drawn": (10_000, 200), "10,000": (10_000, 10_000)}
"""Parties, and how many of them may be drawn."""

REPEATS = 3


def rows(count: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around ten centres, and which one each is of."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, COLUMNS))
    rng = np.random.default_rng([1, key])
    y = rng.permutation(np.arange(count) % CLASSES)
    return (centres[y] + 2 * rng.normal(size=(count, COLUMNS))).astype(np.float32), y


def first_training() -> list[float]:
    """Have seconds of the processor added to a list of one number, whenever a party first trains."""
    spent, fit = [0.0], Training.fit_private

    def fit_private(party: Training, round: int) -> None:
        new, begun = not party.learner.fitted, process_time()
        fit(party, round)
        spent[0] += (process_time() - begun) * new

    Training.fit_private = fit_private
    return spent


def measure(case: str) -> dict[str, float]:
    """One federation in this process."""
    count, drawn = CASES[case]
    model, test = make("logistic-regression"), rows(100, 0)

    def party(name: str) -> Party:
        return Party(name, model, *rows(ROWS, int(name) + 2), test=test)

    names = [f"{i:05d}" for i in range(count)]
    parties = Population(names, party) if count > PER_ROUND * 2 else list(map(party, names))
    federation = Federation(parties, rows(PUBLIC, 1)[0])
    protocol = ensemble_distillation(
        aggregate=avg(),
        rounds=ROUNDS,
        participation=PER_ROUND,
        probabilities={name: float(i < drawn) for i, name in enumerate(names)},
        alpha=0.01,
    )
    wall, cpu, accuracy = [perf_counter()], [process_time()], []
    training = first_training()
    first = [0.0]
    for round in federation.rounds(protocol):
        part = () if round.replies is None else round.replies.parties
        metrics = federation.evaluate(round.number, parties=part)
        accuracy += [one.values["accuracy"] for one in metrics.values()]
        federation.network.deliveries.clear()
        wall.append(perf_counter())
        cpu.append(process_time())
        first.append(training[0])
    later, new = np.diff(cpu[1:]), np.diff(first[1:])
    return {
        "start": cpu[1] - cpu[0],
        "round": float(np.median(later)),
        "first": float(np.median(new)),
        "after": float(np.median(later - new)),
        "wall": float(np.median(np.diff(wall[1:]))),
        "accuracy": float(np.mean(accuracy)),
        "peak": peak(),
    }


def peak() -> float:
    """Megabytes that this process has held at most; what started it held may have been more."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts what a process held before it became this one into ru_maxrss
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def section(repeats: int = REPEATS) -> list[str]:
    """The lines of the page, from runs made now."""
    found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    for _ in range(repeats):
        for case in CASES:
            command = [sys.executable, __file__, "--measure", case]
            made = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found[case].append(json.loads(made.stdout))
    first = found[next(iter(CASES))]
    lines = [
        f"{PER_ROUND} parties a round, {ROUNDS} rounds, {ROWS} private rows of {COLUMNS} numbers, {CLASSES} "
        f"classes, {PUBLIC:,} public rows, logistic regression; {repeats} interleaved runs, each in a "
        "process of its own; medians. Seconds are those of the processor, which other work on the machine "
        "does not change much; in brackets those of the clock.",
        "",
        "| parties | a round, s | to the 200 (range) | of it first training, s "
        "| to the 200 without that (range) | until round 0, s | peak memory, MB | mean accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, runs in found.items():
        pairs = list(zip(runs, first, strict=True))
        ratios = [[one[what] / base[what] for one, base in pairs] for what in ("round", "after")]
        told = [f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})" for found in ratios]
        middle = {what: median(one[what] for one in runs) for what in runs[0]}
        lines.append(
            f"| {case} | {middle['round']:.2f} ({middle['wall']:.2f}) | {told[0]} | {middle['first']:.2f} "
            f"| {told[1]} | {middle['start']:.1f} | {middle['peak']:.0f} | {middle['accuracy']:.4f} |"
        )
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        print("\n".join(section(*map(int, sys.argv[1:2]))))
