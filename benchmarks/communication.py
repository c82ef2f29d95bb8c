"""Measure bytes and accuracy of codecs of soft labels.

    python benchmarks/communication.py          # a quarter of an hour of one core; writes a page of results
    python benchmarks/communication.py digits-2 fashion-2
    python benchmarks/communication.py --quick  # two minutes: one problem, one seed; prints only

Ten parties that know a part of the classes each teach one another with UWA. Bytes are those of the
messages, as the network counts them: requests and receipts, headers and all. Every run is kept under
runs/communication, so that a study that was stopped goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import page

from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.lab.config.methods import protocol_for
from consilience.lab.experiments import parse_spec
from consilience.lab.experiments.setup import gather
from consilience.methods.compression.codec import Codec
from consilience_papers.study import Study

FOLDER = Path(__file__).parent.parent / "runs" / "communication"
SEEDS = 3

_RECIPE = {"optimizer": "adam", "learning_rate": 1e-3, "first_epochs": 20, "epochs": 2}
_NETWORK = {
    "name": "mlp",
    "hidden": [64],
    "recipe": {**_RECIPE, "batch_size": 32, "distill_epochs": 2},
}
_DIGITS = {"data": {"name": "digits", "public": 500}, "models": [_NETWORK]}
_FASHION = {
    "data": {"name": "fashion-mnist", "public": 2000, "test_rows": 2000, "flat": True},
    "models": [_NETWORK],
    "samples": 500,
}
_TREC = {
    "data": {"name": "trec", "public": 1000},
    "models": [{"name": "tfidf-logistic"}],
}
PROBLEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "digits-2": ("digits, 2 of 10 classes a party, 500 public rows", {**_DIGITS, "per_party": 2}),
    "fashion-2": (
        "Fashion-MNIST, 2 of 10 classes a party, 2,000 public rows",
        {**_FASHION, "per_party": 2},
    ),
    "trec-2": ("TREC, 2 of 6 classes a party, 1,000 public rows", {**_TREC, "per_party": 2}),
}


def _bits(bits: int) -> dict[str, Any]:
    return {"name": "quantized", "bits": bits}


CODECS: tuple[list[Any], ...] = (
    [],
    ["zstd"],
    ["float16"],
    [_bits(8)],
    [_bits(8), "zstd"],
    [_bits(6), "zstd"],
    [_bits(4), "zstd"],
)


def trial(repetition: int, problem: str, codec: list[Any], rounds: int) -> Mapping[str, Any]:
    """Accuracy after the last round, and bytes per party and round each way."""
    spec, protocol = _made(problem, codec, rounds)
    cohort = gather(spec, repetition)
    network = LocalNetwork(cohort.parties(), cohort.public)
    federation = federation_over(network, cohort.public, seed=repetition, strict=False)
    steps = federation.rounds(protocol)
    next(steps)
    network.deliveries.clear()  # joining and the first fit are the same with every codec
    for last in steps:
        number = last.number
    asked = list(network.deliveries)
    accuracy = [metrics.values["accuracy"] for metrics in federation.evaluate(number).values()]
    share = 1 / (len(network.parties) * rounds)
    return {
        "accuracy": float(np.mean(accuracy)),
        "up": share * sum(delivery.bytes_up for delivery in asked),
        "down": share * sum(delivery.bytes_down for delivery in asked),
    }


def _made(problem: str, codec: list[Any], rounds: int) -> tuple[Any, Any]:
    about = PROBLEMS[problem][1]
    partition = {"name": "classes", "parties": 10}
    partition |= {key: about[key] for key in ("per_party", "samples") if key in about}
    document = {
        "name": problem,
        "methods": ["uwa"],
        "purpose": "taught",  # the distilled models; each party's own mixture would hide what a codec costs
        "data": about["data"],
        "models": about["models"],
        "partition": partition,
        "protocol": {"rounds": rounds, **({"codec": codec} if codec else {})},
    }
    spec = parse_spec(document, where=problem)
    return spec, protocol_for(spec.methods[0], spec.protocol)


def head(rounds: int) -> list[str]:
    return [
        f"Ten parties, UWA, {rounds} rounds; networks 64-64-10 and 784-64-10 on images, of which a party "
        "of Fashion-MNIST has 500, logistic regression on tf-idf weights on TREC. Accuracy is the mean over "
        "parties on all classes after the last round, mean ± standard deviation over seeds; the difference "
        "is to the run of the same seed without a codec. Bytes are those of all messages of a party in a "
        "round, requests and receipts too; × is how many times fewer they are, both ways together. The "
        "bound is the largest total variation by which a row of soft labels may differ on its way.",
        "",
        "Until revision 1677d56d other codecs existed. `changed_rows` and `cached_rows` kept what was sent "
        "at both ends, and left out rows that had not changed. `top_k` sent the largest shares of a row. "
        "With UWA on digits and Fashion-MNIST they gave:",
        "",
        "| codec | times fewer bytes | difference, points |",
        "| --- | --- | --- |",
        "| changed_rows(0.05) | 1.7, 1.8 | -1.1, 0.8 |",
        "| cached_rows(0.05, 5) | 1.8, 1.5 | -3.2, -0.4 |",
        "| top_k(2, renormalized) | 3.5, 3.7 | -50.1, 0.5 |",
        "| quantized(8) + zstd(19) | 5.2, 8.4 | 0.0, 0.6 |",
        "| quantized(4) + cached_rows(0.05, 5) + changed_rows(0.1) + zstd(19) | 17.7, 22.5 | -19.6, -0.3 |",
        "",
        "They were deleted: alone they saved less than quantization and cost accuracy on digits, and they "
        "needed 1,200 lines.",
        "",
    ]


def table(study: Study, problem: str, rounds: int, seeds: int) -> list[str]:
    name, about = PROBLEMS[problem]
    classes = 6 if about["data"]["name"] == "trec" else 10
    lines = [
        f"## {name}",
        "",
        "| codec | bound | accuracy | difference, points | up, kB | down, kB | × |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    plain: Mapping[str, Any] = {}
    for codec in CODECS:
        made = _made(problem, codec, rounds)[1].options.get("codec") or Codec()
        label = f"{problem}, {made.name}"
        found = study.repeat(trial, seeds, label=label, problem=problem, codec=codec, rounds=rounds)
        plain = plain or found
        lost = 100 * (found["accuracy"] - plain["accuracy"])
        up, down = found["up"].mean(), found["down"].mean()
        times = (plain["up"] + plain["down"]).mean() / (up + down)
        cells = (
            made.name,
            f"{made.error_bound(classes):.3f}",
            spread(100 * found["accuracy"], 1),
            spread(lost, 2),
            f"{up / 1e3:.1f}",
            f"{down / 1e3:.1f}",
            f"{times:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def spread(values: np.ndarray, digits: int) -> str:
    """Mean ± standard deviation; the mean alone of one seed."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def main() -> None:
    quick = "--quick" in sys.argv
    study = Study(folder=FOLDER, quick=quick, processes=1, report=said)
    rounds = study.times(8, 5)
    named = [word for word in sys.argv[1:] if word != "--quick"]
    if strangers := set(named).difference(PROBLEMS):
        sys.exit(f"no problem is called {min(strangers)!r}; there are {', '.join(PROBLEMS)}")
    problems = ["digits-2"] if quick else named or list(PROBLEMS)
    lines = list(head(rounds))
    for problem in problems:
        lines += table(study, problem, rounds, study.times(SEEDS, 1))
    if quick:
        print("\n".join(lines))
    else:
        page.write(__file__, lines, about=f"{', '.join(problems)}, seeds 0 to {SEEDS - 1}")


def said(label: str, done: int, total: int) -> None:
    print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
