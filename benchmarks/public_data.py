"""Measure each aggregator with public rows of another kind, and with few of them.

    python benchmarks/public_data.py             # half an hour on two cores
    python benchmarks/public_data.py --quick     # a minute; writes no page
    python benchmarks/public_data.py --known     # a minute: what parties know of the rows; writes no page

Ten parties hold three of ten digits of MNIST each. Of their public rows a share is taken from Fashion-MNIST;
or there are fewer of them. Ten others hold three of ten classes of CIFAR-10, with public rows from CIFAR-100.
Beside the mean test accuracy of the parties stands what they say beforehand that
they know of the public rows (consilience.lab.diagnostics.coverage). Results are kept under
runs/results/public-data/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from page import write

from consilience import Federation, ensemble_distillation
from consilience.core.aggregation import AGGREGATORS
from consilience.core.messages.schema import Public
from consilience.core.numerics.randomness import stream
from consilience.lab.data import load
from consilience.lab.experiments import SimulatedParties, gather, parse_spec
from consilience_papers.comparisons import standard_error
from consilience_papers.study import Study

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "public-data"
ROWS = 1000
FOREIGN = (0.0, 0.5, 0.9, 1.0)
SIZES = (1000, 250, 60)
OTHERS = {"mnist": "fashion-mnist", "cifar-10": "cifar-100"}
"""Where foreign rows come from."""
RULES = ("avg", "uwa", "suwa", "certainty", "selective", "density-ratio")
RECIPE = {
    "optimizer": "adam",
    "learning_rate": 2e-3,
    "batch_size": 64,
    "first_epochs": 20,
    "epochs": 2,
    "distill_epochs": 2,
}
MODELS = {
    "mnist": {"name": "mlp", "hidden": [64], "recipe": RECIPE},
    "cifar-10": {"name": "cnn", "channels": [8, 16], "recipe": {**RECIPE, "learning_rate": 3e-3}},
}


def made(data: str, public: int, foreign: float, repetition: int) -> SimulatedParties:
    """Parties with so many public rows, of which a share is of other things."""
    document = {
        "purpose": "taught",
        "name": "public",
        "data": {"name": data, "public": public, "test_rows": 1000},
        "partition": {"name": "classes", "parties": 10, "per_party": 3, "samples": 300},
        "models": [MODELS[data]],
    }
    cohort = gather(parse_spec(document, where="public"), repetition)
    count = round(foreign * public)
    if not count:
        return cohort
    others = load(OTHERS[data]).X
    rng = stream(repetition, "experiment", 0, "foreign")
    mixed = cohort.public.X.copy()
    places = rng.choice(public, count, replace=False)
    mixed[places] = others[rng.choice(len(others), count, replace=False)]
    return replace(cohort, public=Public(mixed), public_labels=None)


def trial(
    *, data: str, public: int, foreign: float, rule: str, rounds: int, repetition: int
) -> Mapping[str, float]:
    """Mean accuracy of the parties, alone and after the last round."""
    cohort = made(data, public, foreign, repetition)
    federation = Federation(cohort.parties(), cohort.public, seed=repetition, strict=False)
    protocol = ensemble_distillation(aggregate=AGGREGATORS[rule](), rounds=rounds)
    accuracy = federation.run(protocol, progress=False).metric().mean(axis=1)
    return {"alone": accuracy[0], "accuracy": accuracy[-1]}


def known(*, data: str, public: int, foreign: float, repetition: int) -> Mapping[str, float]:
    """The share of the public rows that at least one party knows, and its parts."""
    cohort = made(data, public, foreign, repetition)
    found = Federation(cohort.parties(), cohort.public, seed=repetition, strict=False).suitability()
    return {"known": found.share, "parties a row": found.parties_a_row}


def table(
    study: Study,
    data: str,
    title: str,
    cells: Mapping[str, tuple[int, float]],
    seeds: int,
    rules: tuple[str, ...],
) -> Iterator[str]:
    rounds = 2 if study.quick else 6
    yield f"## {title}"
    yield ""
    yield f"| | {' | '.join(cells)} |"
    yield f"| --- |{' ---: |' * len(cells)}"
    told = [
        study.repeat(
            known, seeds, label=f"{title}, {label}, known", data=data, public=n, foreign=share
        )["known"]
        for label, (n, share) in cells.items()
    ]
    yield f"| known to a party | {' | '.join(f'{values.mean():.0%}' for values in told)} |"
    rows: dict[str, list[str]] = {}
    for rule in rules:
        for label, (n, share) in cells.items():
            common = {"data": data, "public": n, "foreign": share, "rounds": rounds}
            found = study.repeat(
                trial, seeds, label=f"{title}, {label}, {rule}", rule=rule, **common
            )
            if rule == rules[0]:
                rows.setdefault("alone", []).append(mean_of(found["alone"]))
            rows.setdefault(rule, []).append(mean_of(found["accuracy"]))
    for rule, values in rows.items():
        yield f"| {rule} | {' | '.join(values)} |"
    yield ""


def mean_of(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {standard_error(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two seeds, two rounds, a few cells")
    parser.add_argument("--known", action="store_true", help="train nothing")
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error("--seeds: a standard error needs at least 2")

    def report(label: str, done: int, total: int) -> None:
        print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)

    study = Study(FOLDER, quick=given.quick, processes=given.processes, report=report)
    foreign = {f"{share:.0%} foreign": (ROWS, share) for share in FOREIGN}
    fewer = {f"{count:,} rows": (count, 0.0) for count in SIZES}
    if given.quick:
        foreign = {label: (200, share) for label, (_, share) in list(foreign.items())[::2]}
        fewer = {"30 rows": (30, 0.0)}
    images = {label: cell for label, cell in foreign.items() if cell[1] in (0, 1)}
    seeds = 2 if given.quick else given.seeds
    rules = () if given.known else RULES
    lines = [
        f"Mean test accuracy of the parties after 6 rounds, mean ± standard error over seeds 0 to "
        f"{seeds - 1}. Ten parties, 300 images of three classes each; networks 784-64-10 on MNIST, two "
        "convolutions of 8 and 16 filters on CIFAR-10.",
        "",
        *table(
            study,
            "mnist",
            f"MNIST: public rows from Fashion-MNIST among {ROWS:,}",
            foreign,
            seeds,
            rules,
        ),
        *table(study, "mnist", "Fewer public rows, all of MNIST", fewer, seeds, rules),
        *table(
            study,
            "cifar-10",
            f"CIFAR-10: public rows from CIFAR-100 among {ROWS:,}",
            images,
            seeds,
            rules,
        ),
    ]
    if given.quick or given.known:
        print("\n".join(lines))
    else:
        write(__file__, lines, about=f"seeds 0 to {seeds - 1}")


if __name__ == "__main__":
    main()
