"""Every aggregator for classification, on several data sets, from two classes a party to all.

    python benchmarks/aggregators.py                        # digits, MNIST, Fashion-MNIST; hours on two cores
    python benchmarks/aggregators.py --data trec --seeds 3
    python benchmarks/aggregators.py --quick                # minutes, on digits; writes no page

Ten parties hold k classes each. For every rule: mean test accuracy of the parties after the last round, and
how much it closes of the distance between the plain mean and a teacher that knows each row's class (the
oracle). Results are kept under runs/results/aggregators/; what is there is not computed again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from page import write

from consilience import Federation, ensemble_distillation
from consilience.aggregation import AGGREGATORS, oracle
from consilience.experiments import parse_spec
from consilience.experiments.cohort import gather
from consilience.papers.comparisons import standard_error
from consilience.papers.study import Study

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "aggregators"
RECIPE = {
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "batch_size": 32,
    "first_epochs": 20,
    "epochs": 2,
    "distill_epochs": 2,
}
MLP = {"name": "mlp", "hidden": [64], "recipe": RECIPE}
PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "digits": {"data": {"public": 400}, "samples": 80, "model": MLP},
    "mnist": {"data": {"public": 2000, "test_rows": 2000}, "samples": 600, "model": MLP},
    "fashion-mnist": {"data": {"public": 3000, "test_rows": 2000}, "samples": 1000, "model": MLP},
    "cifar-10": {
        "data": {"public": 2000, "test_rows": 2000},
        "samples": 1000,
        "model": {"name": "cnn", "recipe": RECIPE},
    },
    "trec": {
        "data": {"public": 1500},
        "samples": 300,
        "parties": 6,
        "model": {"name": "tfidf-logistic"},
    },
    "20newsgroups": {
        "data": {"public": 3000, "test_rows": 2000},
        "samples": 400,
        "model": {"name": "tfidf-logistic"},
    },
}
USUAL = ("digits", "mnist", "fashion-mnist")
RULES = [name for name, rule in AGGREGATORS.items() if rule().kind == "classification"]


def trial(*, data: str, classes: int, rule: str, rounds: int, repetition: int) -> dict[str, float]:
    """Mean accuracy of the parties and accuracy of the teacher, in the last round and the first."""
    problem = PROBLEMS[data]
    spec = parse_spec(
        {
            "name": "aggregators",
            "data": {"name": data, **problem["data"]},
            "partition": {
                "name": "classes",
                "parties": problem.get("parties", 10),
                "per_party": classes,
                "samples": problem["samples"],
            },
            "models": [problem["model"]],
        },
        where=data,
    )
    cohort = gather(spec, repetition)
    known = rule == "oracle"
    aggregate = oracle(cohort.public_labels, cohort.holders) if known else AGGREGATORS[rule]()
    federation = Federation(cohort.parties(), cohort.public, seed=repetition, strict=False)
    start = process_time()
    taught = ensemble_distillation(aggregate=aggregate, rounds=rounds)
    history = federation.run(taught, progress=False)
    seconds = process_time() - start
    names = np.asarray(federation.network.agreed.classes)

    def teacher(number: int) -> float:
        said = history.rounds[number].teacher.values.argmax(axis=1)
        return float((names[said] == cohort.public_labels).mean())

    def accuracy(number: int) -> float:
        return float(np.mean([party["accuracy"] for party in history.metrics[number].values()]))

    return {
        "accuracy": accuracy(-1),
        "first": accuracy(1),
        "teacher": teacher(-1),
        "first teacher": teacher(1),
        "seconds": seconds,
    }


def table(study: Study, data: str, counts: list[int], seeds: int, rounds: int) -> Iterator[str]:
    """The lines of a data set's table: a rule a line, two columns a number of classes."""
    found = {
        (rule, k): study.repeat(
            trial,
            seeds,
            label=f"{data}, {k} classes, {rule}",
            data=data,
            classes=k,
            rule=rule,
            rounds=rounds,
        )
        for k in counts
        for rule in [*RULES, "oracle"]
    }
    yield f"## {data}"
    yield ""
    heads = [f"k = {k} | closes | first teacher" for k in counts]
    yield f"| rule | {' | '.join(heads)} |"
    yield f"| --- |{' --- |' * 3 * len(counts)}"
    for rule in [*RULES, "oracle"]:
        cells = []
        for k in counts:
            reached, low, high = (found[name, k]["accuracy"] for name in (rule, "avg", "oracle"))
            cells += [
                f"{reached.mean():.3f} ± {standard_error(reached):.3f}",
                closed(reached, low, high),
                f"{found[rule, k]['first teacher'].mean():.3f}",
            ]
        yield f"| {rule} | {' | '.join(cells)} |"
    yield ""


def closed(reached: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """The share of the distance from AVG to the oracle; none where they are nearly the same."""
    distance = float((high - low).mean())
    return f"{(reached - low).mean() / distance:.0%}" if distance > 0.02 else "–"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=PROBLEMS, default=list(USUAL))
    parser.add_argument("--classes", nargs="+", type=int, default=[2, 3, 5, 10], metavar="K")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="digits, k = 2, one seed, two rounds")
    given = parser.parse_args()
    if given.seeds < 2 and not given.quick:
        parser.error("--seeds: a standard error needs at least 2")

    def report(label: str, done: int, total: int) -> None:
        print(f"{label}: {done} of {total}", file=sys.stderr)

    study = Study(FOLDER, processes=given.processes, report=report)
    if given.quick:
        for rule in ("avg", "density-ratio", "oracle"):
            found = study.repeat(
                trial, 1, label=rule, data="digits", classes=2, rule=rule, rounds=2
            )
            print(rule, {name: round(float(values[0]), 3) for name, values in found.items()})
        return
    lines = [
        "Mean test accuracy of the parties after the last round, mean ± standard error over seeds; the "
        "share of the distance between `avg` and the oracle that a rule closes, where there is one; and "
        "the accuracy of the first round's teacher on the public rows. Every party holds k classes.",
        "",
    ]
    for data in given.data:
        counts = [k for k in given.classes if data != "trec" or k <= 6]
        lines += table(study, data, counts, given.seeds, given.rounds)
    about = f"{' '.join(given.data)}, seeds 0 to {given.seeds - 1}, {given.rounds} rounds"
    write(__file__, lines, about=about)


if __name__ == "__main__":
    main()
