"""Measure time and bytes of a round against parties, public rows, classes and rounds, and each step's share.

    python benchmarks/scaling.py             # two minutes
    python benchmarks/scaling.py --exchange  # the cost of the default beside training alone, and no more

A base of 10 parties, 500 public rows and 10 classes, of which one number at a time is changed; every party
has 100 rows of 64 numbers and a logistic regression. Every message passes through bytes and every round is
written to a ledger on the disk, as in a run. The exponent is the slope of log cost against log size, by least
squares.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import page

from consilience import Federation, LocalNetwork, Party, avg, ensemble_distillation
from consilience.core.aggregation import Aggregator
from consilience.core.learners import make
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import Score
from consilience.core.networks import local
from consilience.core.party.personalizer import Chooser
from consilience.core.protocols import local_only
from consilience.core.tasks.base import task_types
from consilience.lab.experiments import gather, parse_spec
from consilience.lab.report.drawing import COLOURS, MARKERS
from consilience.lab.runs.ledger import Ledger

ROWS, COLUMNS, TEST, SEEN = 100, 64, 200, 2
REPEATS = 5
PICTURE = "benchmarks-scaling.svg"
MODELS: dict[str, dict[str, Any]] = {
    "naive-bayes": {},
    "logistic-regression": {},
    "random-forest": {"n_estimators": 20},
    "mlp": {"hidden": [64]},
}
SHARES = ("training", "predicting", "aggregation", "wire", "ledger")


@dataclass(frozen=True)
class Size:
    """A federation, and for how many rounds it goes on."""

    parties: int = 10
    public_rows: int = 500
    classes: int = 10
    rounds: int = SEEN


SWEEPS: dict[str, tuple[int, ...]] = {
    "parties": (4, 8, 16, 32, 64),
    "public_rows": (125, 250, 500, 1000, 2000),
    "classes": (2, 4, 8, 16, 32),
    "rounds": (1, 2, 4, 8, 16),
}


@dataclass(frozen=True)
class Cost:
    """Seconds of the processor, and bytes of messages."""

    seconds: float
    bytes: float


def rows(count: int, classes: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a centre for each class, and which one each is of."""
    centres = np.random.default_rng(0).normal(size=(classes, COLUMNS))
    rng = np.random.default_rng([1, key])
    y = rng.permutation(np.arange(count) % classes)
    return (centres[y] + 2 * rng.normal(size=(count, COLUMNS))).astype(np.float32), y


def cost(
    size: Size, *, model: str = "logistic-regression", at_a_time: int = 128
) -> tuple[Cost, Cost]:
    """The median of a round from 1 on, and the sum over all of them.

    Args:
        size: of the federation.
        model: that every party has.
        at_a_time: parties that train side by side.
    """
    learner, test = make(model, **MODELS[model]), rows(TEST, size.classes, 0)
    parties = [
        Party(f"p{i:03d}", learner, *rows(ROWS, size.classes, i + 2), test=test)
        for i in range(size.parties)
    ]
    public = Public(rows(size.public_rows, size.classes, 1)[0])
    network = LocalNetwork(parties, public, wire=True, at_a_time=at_a_time)
    federation = Federation.over(network, public)
    protocol = ensemble_distillation(aggregate=avg(), rounds=size.rounds)
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite", create=True)
        begun = process_time()
        for round in federation.rounds(protocol):
            metrics = federation.evaluate(round.number)
            with ledger.transaction():
                ledger.write("rounds", [("m", 0, round.number, 0.0, None, 0, None)])
                values = {party: dict(found.values) for party, found in metrics.items()}
                ledger.add_deliveries("m", 0, round.number, network.deliveries, values)
            sent = sum(one.bytes_up + one.bytes_down for one in network.deliveries)
            network.deliveries.clear()
            costs.append(Cost(process_time() - begun, sent))
            begun = process_time()
        ledger.close()
    costs = costs[1:]  # round 0 has joining in it
    typical = Cost(median(one.seconds for one in costs), median(one.bytes for one in costs))
    return typical, Cost(sum(one.seconds for one in costs), sum(one.bytes for one in costs))


def sweep(what: str) -> list[Cost]:
    """The costs of one sweep; of all rounds together where these are what changes."""
    return [cost(replace(Size(), **{what: value}))[what == "rounds"] for value in SWEEPS[what]]


def exponent(sizes: tuple[int, ...], costs: list[float]) -> float:
    """The slope of log cost against log size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


@contextmanager
def watched(
    taken: dict[str, float], further: Sequence[tuple[str, object, str]] = ()
) -> Iterator[None]:
    """Add up what each kind of work takes, without what it calls of another kind.

    Args:
        taken: seconds by kind, added to.
        further: kinds of work, and the owners and names of the functions that do it.
    """
    inside: list[float] = []

    def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **options: Any) -> Any:
            begun = process_time()
            inside.append(0.0)
            try:
                return function(*given, **options)
            finally:
                whole, others = process_time() - begun, inside.pop()
                taken[kind] += whole - others
                if inside:
                    inside[-1] += whole

        return run

    owners: list[tuple[str, object, str]] = [
        ("aggregation", Aggregator, "__call__"),
        ("wire", local, "encode"),
        ("wire", local, "decode"),
        ("ledger", Ledger, "write"),
        ("ledger", Ledger, "transaction"),
        *further,
    ]
    for model, options in MODELS.items():
        learner = type(make(model, **options))
        owners += [("training", learner, "fit"), ("predicting", learner, "predict")]
        owners += [("predicting", learner, "logits")]
    with ExitStack() as patches:
        for kind, owner, name in dict.fromkeys(owners):
            patches.enter_context(patch.object(owner, name, timed(kind, getattr(owner, name))))
        yield


def shares(model: str) -> list[float]:
    """Share of each of :data:`SHARES`, and of all else, in the time of joining and five rounds, in %."""
    taken: dict[str, float] = defaultdict(float)
    cost(Size(rounds=1), model=model)  # imports libraries
    # One party at a time: side by side, a watch that runs at one would count what others do meanwhile.
    with watched(taken):
        begun = process_time()
        cost(Size(rounds=5), model=model, at_a_time=1)
        whole = process_time() - begun
    parts = [taken[kind] / whole * 100 for kind in SHARES]
    return [*parts, 100 - sum(parts)]


CENSUS, COLUMNS_OF_CENSUS = 1000, (8, 20)
"""Rows of each of five offices, and the public ones; numbers and yes-or-no columns."""

EXCHANGES: tuple[tuple[str, str], ...] = (
    ("digits", "logistic-regression"),
    ("digits", "random-forest"),
    ("heart-disease", "logistic-regression"),
    ("heart-disease", "random-forest"),
    ("heart-disease", "gradient-boosting"),
    ("census-like", "logistic-regression"),
    ("census-like", "random-forest"),
    ("census-like", "gradient-boosting"),
    ("trec", "tfidf-logistic"),
)
DEALT: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"public": 400},
        "partition": {"name": "classes", "parties": 10, "per_party": 2},
    },
    "heart-disease": {"data": {"public": 0.2}, "partition": {"name": "group"}},
    "trec": {
        "data": {"public": 1000},
        "partition": {"name": "classes", "parties": 6, "per_party": 2},
    },
}


def offices(model: str) -> tuple[list[Party], np.ndarray]:
    """Five parties whose numbers lie apart, with a binary answer that depends on all columns; public rows."""
    rng = np.random.default_rng(0)
    numbers, flags = COLUMNS_OF_CENSUS

    def rows(count: int, office: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(0.4 * office, 1, size=(count, numbers))
        X = np.hstack([X, rng.integers(0, 2, size=(count, flags))])
        slopes = np.concatenate([np.linspace(1, -1, numbers), np.sin(np.arange(flags))])
        return X, (X @ slopes + rng.normal(size=count) > 0).astype(int)

    parties = [Party(f"office-{i}", make(model), *rows(CENSUS, i)) for i in range(5)]
    return parties, np.concatenate([rows(CENSUS // 5, i)[0] for i in range(5)])


def members(data: str, model: str) -> tuple[list[Party], Public | np.ndarray]:
    """Parties of a data set, with a model of one kind, and the public rows."""
    if data not in DEALT:
        return offices(model)
    about = {**DEALT[data], "data": {"name": data, **DEALT[data]["data"]}}
    setup = gather(parse_spec({"name": data, "models": [{"name": model}], **about}, where=data), 0)
    return setup.parties(), setup.public


def exchange(data: str, model: str) -> list[str]:
    """Cells of a line: seconds of training alone, three rounds of the default in these, shares of work."""

    def run(protocol: Any) -> float:
        parties, public = members(data, model)
        shared = public if isinstance(public, Public) else Public(public)
        network = LocalNetwork(parties, shared, at_a_time=1)
        federation = Federation.over(network, shared, strict=False)
        begun = process_time()
        federation.run(protocol, progress=False)
        return process_time() - begun

    run(local_only(rounds=1))  # imports libraries
    taken: dict[str, float] = defaultdict(float)
    learner = type(make(model))
    scores = [task for task in task_types().values() if issubclass(task.reply_type, Score)]
    further = [("rule", task, "run") for task in scores]
    further += [("choice", Chooser, "choose")]
    further += [("training", learner, "fit"), ("predicting", learner, "predict")]
    alone = median(run(local_only(rounds=1)) for _ in range(3))
    others = run(ensemble_distillation(aggregate=avg(), rounds=3))
    whole = run(ensemble_distillation(rounds=3))
    with watched(taken, further):
        watch = run(ensemble_distillation(rounds=3))
    parts = [f"{taken[kind] / watch:.0%}" for kind in ("training", "predicting", "choice")]
    rule = (taken["rule"] + taken["aggregation"]) / taken["training"]
    return [
        data,
        model,
        f"{alone:.2f}",
        f"{whole / alone:.1f}",
        f"{others / alone:.1f}",
        f"{rule:.0%}",
        *parts,
    ]


def exchanges() -> list[str]:
    """Lines of the page on the default beside training alone, from runs made now."""
    heads = [
        *("data", "models", "training alone, s", "three rounds of `auto`, in these", "of `avg`"),
        *("rule and space, of the training in it", "training, of all", "predicting", "choice"),
    ]
    return [
        "The default against training alone, seconds of the processor of all parties together: three rounds, "
        "one run, and the median of three of training alone; one party at a time. Every party refits its "
        "model on own and public rows in every round in which the teacher moved (by 0.05 of probability), "
        "and up to two times more in the first if its own rows lose.",
        "",
        *page.table(heads, [exchange(*one) for one in EXCHANGES]),
    ]


def picture(found: dict[str, list[list[Cost]]]) -> str:
    """Cost against size, as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (what, runs), colour, marker in zip(found.items(), COLOURS, MARKERS, strict=False):
        label = what.replace("_", " ") + (" (all rounds)" if what == "rounds" else "")
        sizes = np.array(SWEEPS[what])
        for axes, kind, unit in ((left, "seconds", 1.0), (right, "bytes", 1e6)):
            middle = [
                median(getattr(run[i], kind) for run in runs) / unit for i in range(len(sizes))
            ]
            axes.loglog(sizes, middle, color=colour, marker=marker, label=label)
    left.set(xlabel="size", ylabel="seconds of the processor")
    right.set(xlabel="size", ylabel="megabytes of messages")
    left.legend(frameon=False, fontsize=8)
    drawn = io.StringIO()
    with rc_context({"svg.hashsalt": "consilience", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def section(repeats: int = REPEATS) -> list[str]:
    """The lines of the page, from runs made now; its picture is written beside it."""
    found: dict[str, list[list[Cost]]] = {what: [] for what in SWEEPS}
    cost(Size())  # imports libraries
    for _ in range(repeats):
        for what, runs in found.items():
            runs.append(sweep(what))
    (page.RESULTS / PICTURE).write_text(picture(found), encoding="utf-8")
    at = Size()
    lines = [
        f"From {at.parties} parties, {at.public_rows} public rows and {at.classes} classes one number at a "
        f"time is changed. {ROWS} private rows of {COLUMNS} numbers, logistic regression; messages as bytes, "
        f"every round in a ledger. Seconds of the processor, medians of {repeats} interleaved sweeps; "
        "exponents of each sweep: mean ± sd.",
        "",
        f"![Cost of a round against its size]({PICTURE})",
        "",
        "| what changes | from → to | s a round | exponent | of the last doubling | MB a round | exponent |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for what, runs in found.items():
        sizes = SWEEPS[what]
        slopes = [exponent(sizes, [one.seconds for one in run]) for run in runs]
        last = [exponent(sizes[-2:], [one.seconds for one in run[-2:]]) for run in runs]
        sent = exponent(sizes, [one.bytes for one in runs[0]])
        ends = [
            (median(run[i].seconds for run in runs), runs[0][i].bytes / 1e6)
            for i in (0, len(sizes) - 1)
        ]
        lines.append(
            f"| {what.replace('_', ' ')}{', all together' if what == 'rounds' else ''} "
            f"| {sizes[0]:,} → {sizes[-1]:,} | {ends[0][0]:.3f} → {ends[1][0]:.3f} "
            f"| {np.mean(slopes):.2f} ± {np.std(slopes, ddof=1):.2f} "
            f"| {np.mean(last):.2f} ± {np.std(last, ddof=1):.2f} "
            f"| {ends[0][1]:.2f} → {ends[1][1]:.2f} | {sent:.2f} |"
        )
    lines += [
        "",
        "What takes the time of five rounds of the base, with joining and evaluation, one party at a time:",
        "",
        f"| model | {' | '.join(f'{kind}, %' for kind in SHARES)} | all else, % |",
        f"| --- | {' | '.join(['---'] * (len(SHARES) + 1))} |",
    ]
    for model in MODELS:
        lines.append(f"| {model} | {' | '.join(f'{part:.1f}' for part in shares(model))} |")
    return [*lines, "", *exchanges()]


if __name__ == "__main__":
    print("\n".join(exchanges() if "--exchange" in sys.argv[1:] else section()))
