"""Compare every aggregator for classification on several data sets, from two classes a party to all.

    python benchmarks/aggregators.py                        # digits, MNIST, Fashion-MNIST; hours on two cores
    python benchmarks/aggregators.py --data trec --seeds 3
    python benchmarks/aggregators.py --data mnist --parties 50 --classes 2 5 --alpha 0.05 0.5 10
    python benchmarks/aggregators.py --data mnist --classes 2 3 --seeds 3 --rules coarse-density-ratio
    python benchmarks/aggregators.py --encoders --data 20newsgroups cifar-10 --seeds 2 --rounds 1
                                                            # with an encoder and without: ten minutes
    python benchmarks/aggregators.py --quick                # a minute, on digits; writes no page

Parties hold k classes each, or classes in proportions drawn from Dirichlet(α). For every rule: mean test
accuracy of the parties after the last round, the share that it closes of the distance between the plain mean
and a teacher that knows each row's class (class-holders), and the time of the density ratio beside training.
Results are kept under runs/results/aggregators/ and not computed again. The page keeps the sections of data
sets that are not named, and with --rules the lines of rules that are not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from page import write

from consilience import Federation, ensemble_distillation
from consilience.core.aggregation import AGGREGATORS, density_ratio, suwa
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Replies
from consilience.core.networks import LocalNetwork
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.scores import ComparePublic
from consilience.lab.experiments import SimulatedParties, gather, parse_spec
from consilience.lab.experiments.oracles import class_holders
from consilience_papers.comparisons import standard_error
from consilience_papers.study import Study

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
        "data": {"public": 1000, "test_rows": 1000},
        "samples": 500,
        "model": {
            "name": "cnn",
            "channels": [8, 16],
            "recipe": {**RECIPE, "learning_rate": 3e-3, "batch_size": 64, "distill_epochs": 3},
        },
    },
    "trec": {
        "data": {"public": 1500},
        "samples": None,  # all there are: its rarest class has 86 rows
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
RULES = {name: rule for name, rule in AGGREGATORS.items() if rule().kind == "classification"}
RULES["suwa-auto"] = partial(suwa, "auto")


def made(data: str, setting: Mapping[str, Any], parties: int, repetition: int) -> SimulatedParties:
    """The parties of a setting: ``{"per_party": k}`` or ``{"alpha": α}``."""
    problem = PROBLEMS[data]
    dealt = {"name": "classes", **setting}
    if problem["samples"] is not None:
        dealt["samples"] = problem["samples"] * 10 // parties
    if "alpha" in setting:
        dealt = {"name": "dirichlet", "min_rows": 10, **setting}
    document = {
        "purpose": "taught",
        "name": "aggregators",
        "data": {"name": data, **problem["data"]},
        "partition": {"parties": parties, **dealt},
        "models": [problem["model"]],
    }
    return gather(parse_spec(document, where=data), repetition)


def trial(
    *,
    data: str,
    setting: Mapping[str, Any],
    parties: int,
    rule: str,
    rounds: int,
    repetition: int,
) -> dict[str, float]:
    """Mean accuracy of the parties, alone, after the first and the last round, and that of the teacher."""
    cohort = made(data, setting, parties, repetition)
    known = rule == "class-holders"
    aggregate = class_holders(cohort.public_labels, cohort.holders) if known else RULES[rule]()
    federation = Federation(cohort.parties(), cohort.public, seed=repetition, strict=False)
    history = federation.run(
        ensemble_distillation(aggregate=aggregate, rounds=rounds), progress=False
    )
    names = np.asarray(federation.network.agreed.classes)

    def teacher(number: int) -> float:
        said = history.rounds[number].teacher.values.argmax(axis=1)
        return float((names[said] == cohort.public_labels).mean())

    alone, first, last = (float(history.metric()[t].mean()) for t in (0, 1, -1))
    return {
        "alone": alone,
        "first": first,
        "accuracy": last,
        "first teacher": teacher(1),
        "teacher": teacher(-1),
    }


ENCODED: Mapping[str, Mapping[str, Any]] = {
    "20newsgroups": {
        "data": {"public": 1500, "test_rows": 2000},
        "per_party": 4,
        "samples": 400,
        "models": [{"name": "tfidf-logistic"}, {"name": "static-logistic"}],
        "encoder": "static-words",
        "cells": [
            (0, "avg", False),
            (0, "auto", False),
            (0, "auto", True),
            (1, "auto", True),
        ],
    },
    "cifar-10": {
        "data": {"public": 1000, "test_rows": 1000},
        "per_party": 2,
        "samples": 500,
        "models": [PROBLEMS["cifar-10"]["model"], {"name": "encoded-logistic"}],
        "encoder": "photographs",
        "cells": [
            (1, "auto", True),
        ],
    },
}
"""Ten parties each: models, and which of them is taught by which rule, its rows compared by the encoder or
by what they alone say."""


def encoded_trial(
    *, data: str, model: int, encoder: bool, rule: str, rounds: int, repetition: int
) -> dict[str, float]:
    """Accuracy of the last teacher on the public rows and of the parties on test rows, and CPU seconds."""
    problem = ENCODED[data]
    document = {
        "name": "encoders",
        "purpose": "taught",
        "data": {"name": data, **problem["data"]},
        "partition": {
            "name": "classes",
            "parties": 10,
            "per_party": problem["per_party"],
            "samples": problem["samples"],
        },
        "models": [problem["models"][model]],
    }
    if encoder:
        document["data"]["encoder"] = problem["encoder"]
    cohort = gather(parse_spec(document, where=data), repetition)
    federation = Federation(cohort.parties(), cohort.public, seed=repetition, strict=False)
    aggregate = cohort.informed(rule) or RULES[rule]()
    start = process_time()
    history = federation.run(
        ensemble_distillation(aggregate=aggregate, rounds=rounds), progress=False
    )
    names = np.asarray(federation.network.agreed.classes)
    said = names[history.rounds[-1].teacher.values.argmax(axis=1)]
    return {
        "alone": float(history.metric()[0].mean()),
        "teacher": float((said == cohort.public_labels).mean()),
        "accuracy": float(history.metric()[-1].mean()),
        "seconds": process_time() - start,
    }


def encoded(study: Study, data: str, seeds: int, rounds: int) -> Iterator[str]:
    """The section of a data set compared with an encoder and without."""
    problem = ENCODED[data]
    yield f"## {data} with an encoder, 10 parties"
    yield ""
    yield "| model | rule | rows compared by | teacher, public rows | parties, test rows | CPU seconds |"
    yield f"| --- | --- | --- |{' --- |' * 3}"
    told: set[str] = set()
    for i, rule, encoder in problem["cells"]:
        model = problem["models"][i]["name"]
        one = study.repeat(
            encoded_trial,
            seeds,
            label=f"{data}, {model}, {rule}{', encoder' * encoder}",
            data=data,
            model=i,
            encoder=encoder,
            rule=rule,
            rounds=rounds,
        )
        if model not in told:
            told.add(model)
            yield f"| {model} | alone | | | {mean_of(one['alone'])} | |"
        space = problem["encoder"] if encoder else "" if rule == "avg" else "the rows alone"
        figures = f"{mean_of(one['teacher'])} | {mean_of(one['accuracy'])}"
        yield f"| {model} | {rule} | {space} | {figures} | {one['seconds'].mean():.0f} |"
    yield ""
    command = " ".join(["python benchmarks/aggregators.py", *sys.argv[1:]])
    public, samples = problem["data"]["public"], problem["samples"]
    yield (
        f"{problem['per_party']} classes a party, {samples} rows; {public:,} public rows. `{command}` · "
        f"{date.today().isoformat()} · {seeds} seeds, {rounds} round{'s' * (rounds > 1)}. The CPU seconds "
        "are of a whole run, and with photographs hold the network's one pass over all rows where none of "
        "these was seen before."
    )
    yield ""


def cost(
    *, data: str, setting: Mapping[str, Any], parties: int, rounds: int, repetition: int
) -> dict[str, float]:
    """CPU seconds of all parties' training, and of what the density ratio adds to it."""
    cohort = made(data, setting, parties, repetition)
    network = LocalNetwork(cohort.parties(), cohort.public)
    federation = federation_over(network, cohort.public, seed=repetition, strict=False)
    federation.form()
    rule = density_ratio()

    def timed(work: Callable[[], Any]) -> tuple[float, Any]:
        start = process_time()
        done = work()
        return process_time() - start, done

    first, _ = timed(lambda: network.ask(FitPrivate(round=1)))
    later, _ = timed(lambda: network.ask(FitPrivate(round=2)))
    (asked,) = (ComparePublic(round=1, **options) for options in rule.options.values())
    once, ratios = timed(lambda: network.ask(asked))
    said = network.ask(PredictPublic(round=1))
    replies = Replies({p: (*said.answers[p], *ratios.answers[p]) for p in said}, {})
    each, teacher = timed(lambda: rule(replies))
    distil, _ = timed(lambda: network.ask(Distill(round=1, targets=teacher.values, alpha=0.5)))
    training = first + (rounds - 1) * later + rounds * distil
    return {
        "once": once,
        "each": each,
        "training": training,
        "share": (once + rounds * each) / training,
    }


def table(
    study: Study,
    data: str,
    settings: Mapping[str, Any],
    parties: int,
    seeds: int,
    rounds: int,
    *,
    rules: Sequence[str],
    before: Sequence[str],
) -> Iterator[str]:
    """The lines of a data set's section: a rule a line, three columns a setting.

    Args:
        study: keeps what was computed.
        data: the data set.
        settings: label to the setting.
        parties: how many.
        seeds: how many.
        rounds: how many.
        rules: those to compute, beside the baselines; the lines of all others are those of ``before``.
        before: the section as it was.
    """
    common = {"data": data, "parties": parties, "rounds": rounds}
    found = {
        (rule, label): study.repeat(
            trial, seeds, label=f"{data}, {label}, {rule}", rule=rule, setting=setting, **common
        )
        for label, setting in settings.items()
        for rule in dict.fromkeys(["avg", *rules, "class-holders"])
    }
    yield f"## {data}, {parties} parties"
    yield ""
    heads = [f"{label} | closes | first teacher" for label in settings]
    head = f"| rule | {' | '.join(heads)} |"
    if len(rules) < len(RULES) and head not in before:
        sys.exit(f"{data}: the page has other settings, and lines of other rules cannot be kept")
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in before}
    yield head
    yield f"| --- |{' --- |' * 3 * len(settings)}"
    alone = [found["avg", label]["alone"] for label in settings]
    yield f"| alone | {' | '.join(f'{mean_of(values)} | – | –' for values in alone)} |"
    for rule in [*RULES, "class-holders"]:
        if rule not in (*rules, "class-holders"):
            if rule in kept:
                yield kept[rule]
            continue
        cells = []
        for label in settings:
            reached, low, high = (
                found[name, label]["accuracy"] for name in (rule, "avg", "class-holders")
            )
            cells += [
                mean_of(reached),
                closed(reached, low, high),
                f"{found[rule, label]['first teacher'].mean():.3f}",
            ]
        yield f"| {rule} | {' | '.join(cells)} |"
    yield ""
    command = " ".join(["python benchmarks/aggregators.py", *sys.argv[1:]])
    if len(rules) < len(RULES):
        yield from (line for line in before if line.startswith("`"))
        yield ""
        yield f"`{command}` · {date.today().isoformat()}, which left the other lines as they were."
        yield ""
        return
    label_of_cost, setting = next(iter(settings.items()))
    spent = study.repeat(cost, seeds, label=f"{data}, cost", setting=setting, **common)
    once, each, training = (spent[name].mean() for name in ("once", "each", "training"))
    yield (
        f"`{command}` · {date.today().isoformat()} · {seeds} seeds, {rounds} rounds. In these, with "
        f"{label_of_cost}, the density ratio takes {once:.2f} s of CPU time once and {each:.3f} s a "
        f"round, all parties together; training and distilling one by one takes {training:.1f} s: "
        f"{spent['share'].mean():.1%}."
    )
    yield ""


def mean_of(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {standard_error(values):.3f}"


def closed(reached: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """The share of the distance from AVG to class-holders; none where they are nearly the same."""
    distance = float((high - low).mean())
    return f"{(reached - low).mean() / distance:.0%}" if distance > 0.02 else "–"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=PROBLEMS, default=list(USUAL))
    parser.add_argument("--classes", nargs="*", type=int, default=[2, 3, 5, 10], metavar="K")
    parser.add_argument("--alpha", nargs="*", type=float, default=[], metavar="A")
    parser.add_argument("--parties", type=int, help="10; 6 on trec")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--encoders", action="store_true", help="with an encoder and without")
    parser.add_argument("--quick", action="store_true", help="digits, k = 2, one seed, two rounds")
    given = parser.parse_args()
    if given.seeds < 2 and not given.quick:
        parser.error("--seeds: a standard error needs at least 2")

    def report(label: str, done: int, total: int) -> None:
        print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)

    study = Study(FOLDER, processes=given.processes, report=report)
    if given.quick:
        few = {"data": "digits", "setting": {"per_party": 2}, "parties": 10, "rounds": 2}
        for rule in ("avg", "density-ratio", "coarse-density-ratio", "class-holders"):
            found = study.repeat(trial, 1, label=rule, rule=rule, **few)
            print(rule, {name: round(float(values[0]), 3) for name, values in found.items()})
        print(
            "cost",
            {
                k: round(float(v[0]), 3)
                for k, v in study.repeat(cost, 1, label="cost", **few).items()
            },
        )
        return
    sections = written()
    for data in given.data:
        if given.encoders:
            lines = list(encoded(study, data, given.seeds, given.rounds))
            sections[lines[0]] = lines
            publish(sections)
            continue
        parties = given.parties or PROBLEMS[data].get("parties", 10)
        settings = {
            **{f"k = {k}": {"per_party": k} for k in given.classes if data != "trec" or k <= 6},
            **{f"α = {alpha:g}": {"alpha": alpha} for alpha in given.alpha},
        }
        before = sections.get(f"## {data}, {parties} parties", [])
        made = table(
            study,
            data,
            settings,
            parties,
            given.seeds,
            given.rounds,
            rules=given.rules,
            before=before,
        )
        lines = list(made)
        sections[lines[0]] = lines
        publish(sections)


def publish(sections: Mapping[str, Sequence[str]]) -> None:
    """Write the page."""
    write(
        __file__,
        [HEAD, "", *(line for part in sections.values() for line in part)],
        about="seeds 0, 1, …",
    )


HEAD = (
    "Mean test accuracy of the parties after the last round, mean ± standard error over seeds; the share "
    "of the distance between `avg` and class-holders that a rule closes, where there is one; and the "
    "accuracy of the first round's teacher on the public rows. Every party holds k classes, or classes in "
    "proportions drawn from Dirichlet(α). Networks 64-64-10 and 784-64-10 on images of one channel, "
    "convolutions on CIFAR-10, logistic regression on TF-IDF weights on texts."
)


def written() -> dict[str, list[str]]:
    """The sections that the page has, by their first line."""
    page = Path(__file__).parent.parent / "docs" / "results" / "aggregators.md"
    if not page.exists():
        return {}
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        f"## {part.splitlines()[0]}": [*f"## {part}".rstrip().splitlines(), ""] for part in parts
    }


if __name__ == "__main__":
    main()
