"""Compare every rule and rival: all data sets and ways to deal out rows, on everyone's and on own rows.

    python benchmarks/rivals.py              # the whole table, hours on a core; goes on where it was stopped
    python benchmarks/rivals.py --data digits heart-disease --seeds 1
    python benchmarks/rivals.py --page       # the page and the figure again, of what is there
    python benchmarks/rivals.py --quick      # a minute: digits, k = 2, one seed; writes no page

The first seed of every cell comes first, then the second. A trial is one rule, cell and seed; it is kept
under runs/results/rivals/ as soon as it is done, with a digest of the library's code, and not computed again
with the same code. Parties are trained alone once for all rules. docs/results/rivals.csv has a line for each
rule and cell, and keeps the lines that a call does not compute. With --more a line's seeds are kept too: one
more is added to their mean, and the line names the code of each. The page is benchmarks/rivals_page.py.

Images, pictures and texts are read as tables, made once and kept under runs/results/rivals/: means of four
pixels, and the features of the encoders that come with consilience.
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rivals_page
from page import RESULTS, write

import consilience
from consilience import ensemble_distillation
from consilience.core.aggregation import AGGREGATORS, Aggregator, density_ratio, suwa
from consilience.core.federation.federation import federation_over
from consilience.core.metrics.metrics import metrics_of
from consilience.core.networks import LocalNetwork
from consilience.core.numerics.losses import log_losses
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.trainer import Trainer
from consilience.core.protocols import local_only
from consilience.core.tasks.predictions import Distill
from consilience.lab.data import load
from consilience.lab.experiments import SimulatedParties, gather, parse_spec
from consilience.methods.comparison_rules.analytic_federation import analytic_federation
from consilience.methods.comparison_rules.rivals import fedgo
from consilience.models.encoders.encoders import find_encoder
from consilience_papers.study import Study

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "rivals"
TABLE = RESULTS / "rivals.csv"
LOGISTIC = {"name": "logistic-regression"}
FOREST = {"name": "random-forest", "n_estimators": 20}
RIDGE = {"name": "ridge"}
FIVE = [
    FOREST,
    LOGISTIC,
    {"name": "knn"},
    {"name": "extra-trees", "n_estimators": 30},
    {"name": "naive-bayes"},
]
FIVE_REGRESSORS = [
    RIDGE,
    {"name": "random-forest-regressor", "n_estimators": 30},
    {"name": "knn-regressor"},
    {"name": "extra-trees-regressor", "n_estimators": 30},
    {"name": "gradient-boosting-regressor"},
]


class Problem(NamedTuple):
    """A data set of the table.

    Attributes:
        model: that every party brings where all bring one kind.
        classes: how many; 0 for values.
        samples: private rows of each of ten parties that hold some of the classes; by default all.
        public: public rows, or their share.
        parties: how many, where it is not ten.
        source: name and options of the data set behind a table that is made here; ``None`` for none.
        encoder: of its rows, and how many numbers of the features are kept.
    """

    model: Mapping[str, Any] = LOGISTIC
    classes: int = 0
    samples: int | None = None
    public: float = 600
    parties: int = 10
    source: tuple[str, Mapping[str, Any]] | None = None
    encoder: tuple[str, int] | None = None


_FEATURES = {**LOGISTIC, "C": 0.02}  # as the presets static-logistic and encoded-logistic
PROBLEMS: Mapping[str, Problem] = {
    "digits": Problem(classes=10, samples=80, public=400),
    "heart-disease": Problem(classes=2, public=0.2, parties=4),
    "diabetes": Problem(RIDGE, public=100, parties=4),
    "mnist": Problem(FOREST, 10, source=("mnist", {})),
    "20newsgroups": Problem(
        _FEATURES, 20, source=("20newsgroups", {}), encoder=("static-words", 256)
    ),
    "fashion-mnist": Problem(FOREST, 10, source=("fashion-mnist", {})),
    "trec": Problem(
        _FEATURES, 6, None, parties=6, source=("trec", {}), encoder=("static-words", 256)
    ),
    "cifar-10": Problem(_FEATURES, 10, source=("cifar-10", {}), encoder=("photographs", 64)),
    "cifar-100": Problem(
        _FEATURES, 20, source=("cifar-100", {"coarse": True}), encoder=("photographs", 64)
    ),
}
ROWS, TESTS = 2600, 800
"""Rows of a table that is made here, and test rows of a trial at most."""

SHARES = (0.1, 0.3, 0.5, 1.0)
ALPHAS = (0.05, 0.5, 10.0)
VARIANTS = {
    "suwa-auto": partial(suwa, "auto"),
    "fedgo-generated": partial(fedgo, "generated"),
    "density-ratio-logistic": partial(density_ratio, estimator="logistic"),
}
SHORT = (
    "avg", "uwa", "suwa-auto", "certainty", "selective", "density-ratio", "ratios-alone", "fedgo", "dafkd",
    "fedd3a", "auto", "analytic-federation",
)  # fmt: skip
"""Rules of the cells that are not small."""

FULL = ("digits", "heart-disease", "diabetes")
"""Data sets with every rule in every cell of ten parties or fewer, of one kind."""


class Cell(NamedTuple):
    """Data, and how they are dealt out to whom; the fields are columns of the table."""

    data: str
    setting: str
    parties: int
    models: str

    @property
    def seeds(self) -> int:
        """Five, and three with encoders."""
        return 3 if PROBLEMS[self.data].encoder else 5

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of everything that is compared; first the lines to measure by."""
        if not PROBLEMS[self.data].classes:
            named = [n for n, make in AGGREGATORS.items() if _for_values(make())]
            return ("alone", "true-labels", *named, "analytic-federation")
        small = self.data in FULL and self.models == "one" and self.parties <= 10
        named = [n for n, make in AGGREGATORS.items() if make().kind == "classification"]
        full = ("class-holders", *named, *VARIANTS, "analytic-federation")
        return ("alone", "true-labels", *(full if small else SHORT))


def _for_values(rule: Aggregator) -> bool:
    """True for a rule of values, or one that has a form for them."""
    return rule.kind == "regression" or rule.forms is not None


def settings(data: str) -> dict[str, Mapping[str, Any]]:
    """Ways to deal out the rows of a data set, by the label of each."""
    problem = PROBLEMS[data]
    inputs = {
        # A cluster of pictures may be one class, which few models can be trained on alone.
        "clusters": {"name": "clusters", "portion": 0.2 if problem.classes > 2 else 0.0},
        "sorted": {"name": "sorted"},
        "half mixed": {"name": "clusters", "portion": 0.5},
    }
    if data == "heart-disease":
        return {"hospitals": {"name": "group"}, **inputs}
    if not problem.classes:
        return {"at random": {"name": "iid"}, **inputs}
    k = problem.classes
    held = dict.fromkeys(max(2, round(share * k)) for share in SHARES)
    rows = {} if problem.samples is None else {"samples": problem.samples}
    return {
        **{f"k = {n} of {k}": {"name": "classes", "per_party": n, **rows} for n in held},
        **{f"α = {a:g}": {"name": "dirichlet", "alpha": a, "min_rows": 10} for a in ALPHAS},
        **inputs,
    }


def plan() -> list[Cell]:
    """Cells of the whole table, in the order in which they are measured."""
    first, then = list[Cell](), list[Cell]()
    for data, problem in PROBLEMS.items():
        for label in settings(data):
            cell = Cell(data, label, problem.parties, "one")
            k = problem.classes
            main = (
                f"k = {max(2, round(0.1 * k))} of {k}",
                "α = 0.05",
                "clusters",
                "hospitals",
                "sorted",
            )
            (first if label in main else then).append(cell)
    five = [
        Cell("digits", label, 10, "five")
        for label in ("k = 2 of 10", "k = 5 of 10", "clusters", "α = 0.5")
    ]
    five += [Cell("heart-disease", "hospitals", 4, "five"), Cell("diabetes", "clusters", 4, "five")]
    five += [Cell("mnist", "k = 2 of 10", 10, "five")]
    many = [
        Cell(data, label, 50, "one")
        for data in ("digits", "mnist")
        for label in ("k = 2 of 10", "k = 5 of 10", "sorted")
    ]
    return [*first, *five[:2], *many[:1], *then, *five[2:], *many[1:]]


def table_file(data: str) -> Path:
    """The file of a table that is made here, made now if it is not there."""
    problem, path = PROBLEMS[data], FOLDER / f"{data}.npz"
    if path.exists():
        return path
    assert problem.source is not None
    name, options = problem.source
    dataset = load(name, **options)
    rng = np.random.default_rng(0)
    kept = {}
    for side, X, y, count in (
        ("", dataset.X, dataset.y, ROWS),
        ("_test", dataset.X_test, dataset.y_test, 2 * TESTS),
    ):
        rows = np.sort(rng.permutation(len(X))[:count])
        kept[f"X{side}"], kept[f"y{side}"] = _numbers(X[rows], problem), y[rows]
    if problem.encoder is not None and kept["X"].shape[1] > (width := problem.encoder[1]):
        mean = kept["X"].mean(axis=0)
        axes = np.linalg.svd(kept["X"] - mean, full_matrices=False)[2][:width]
        for side in ("X", "X_test"):
            kept[side] = (kept[side] - mean) @ axes.T
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **kept)
    return path


def _numbers(X: np.ndarray, problem: Problem) -> np.ndarray:
    """Rows as numbers: features of length 1, or means of two by two pixels."""
    if problem.encoder is not None:
        found = np.asarray(find_encoder(problem.encoder[0])(X), dtype=np.float64)
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))
    side = X.shape[-1] // 2
    pooled = X.reshape(len(X), side, 2, side, 2).mean(axis=(2, 4))
    return np.asarray(pooled.reshape(len(X), -1), dtype=np.float64)


def made(cell: Cell, purpose: str, repetition: int) -> SimulatedParties:
    """The parties of a cell."""
    problem, dealt = PROBLEMS[cell.data], dict(settings(cell.data)[cell.setting])
    if cell.parties != problem.parties:
        dealt.pop("samples", None)
    brought: list[Mapping[str, Any]] = [problem.model]
    if cell.models == "five":
        brought = [*(FIVE if problem.classes else FIVE_REGRESSORS)]
    few = dealt["name"] == "dirichlet" or (dealt["name"] == "sorted" and cell.parties > 10)
    if few:  # a party may have one class, which these can be trained on
        brought = [
            {"name": "decision-tree"} if one["name"] == "logistic-regression" else one
            for one in brought
        ]
        brought = [FOREST] if cell.models == "one" else brought
    data: dict[str, Any] = {"name": cell.data, "public": problem.public}
    if problem.source is not None:
        data |= {"name": "npz", "path": str(table_file(cell.data)), "test_rows": TESTS}
        data |= {"kind": "classification"}
    document = {
        "name": "rivals",
        "data": data,
        "partition": dealt if dealt["name"] == "group" else {"parties": cell.parties, **dealt},
        "models": brought,
        "purpose": purpose,
    }
    return gather(parse_spec(document, where=cell.data), repetition)


class Counting(LocalNetwork):
    """A network that counts the numbers that leave parties in replies, and keeps what they are taught."""

    numbers = 0
    teacher: np.ndarray | None = None

    def ask(self, *tasks: Any, **options: Any) -> Any:
        for task in tasks:
            self.teacher = task.targets if isinstance(task, Distill) else self.teacher
        replies = super().ask(*tasks, **options)
        for answers in replies.answers.values():
            for one in answers:
                told = getattr(one, "values", None)
                self.numbers += np.size(told) if isinstance(told, np.ndarray | int) else 0
        return replies


class Prepared(NamedTuple):
    """Parties of a cell and seed, trained alone once for all rules.

    Attributes:
        setup: the parties.
        learners: of each, by name, trained alone.
        outputs: of these for the test rows, shape ``(parties, n_test, n_outputs)``.
        classes: of the columns.
    """

    setup: SimulatedParties
    learners: dict[str, Any]
    outputs: np.ndarray
    classes: tuple[str, ...]


@lru_cache(maxsize=4)
def prepared(cell: Cell, purpose: str, repetition: int) -> Prepared:
    """Train the parties of a cell alone."""
    setup = made(cell, purpose, repetition)
    learners: dict[str, Any] = {}
    said, _, classes, _ = outputs(setup, "alone", 1, repetition, learners)
    return Prepared(setup, learners, said["mixed"], classes)


def outputs(
    setup: SimulatedParties, rule: str, rounds: int, seed: int, learners: dict[str, Any]
) -> tuple[dict[str, np.ndarray], float, tuple[str, ...], np.ndarray | None]:
    """Predictions of the test rows, by mixed and taught models in the end; numbers sent; classes; teacher.

    Args:
        setup: the parties.
        rule: name of a rule, or of a reference.
        rounds: of exchange.
        seed: of the run.
        learners: trained alone, by party; those that are missing are trained and added.
    """
    parties = setup.parties()
    network = Counting(parties, setup.public)
    federation = federation_over(network, setup.public, seed=seed, strict=False)
    if rule == "alone":
        protocol = local_only(rounds=rounds)
    elif rule == "analytic-federation":
        protocol = analytic_federation(rounds=rounds)
    else:
        aggregate = setup.informed(rule) or (VARIANTS.get(rule) or AGGREGATORS[rule])()
        protocol = ensemble_distillation(aggregate=aggregate, rounds=rounds)
    with trained_once(learners):
        federation.run(protocol, progress=False)
    models = [party.trainer.model() for party in parties]
    X = setup.dataset.X_test
    taught = [one.taught if isinstance(one, MixedModel) else one for one in models]
    said = {
        name: np.stack([np.asarray(one.outputs(X), dtype=np.float32) for one in ones])
        for name, ones in (("mixed", models), ("taught", taught))
    }
    return said, network.numbers / len(parties), network.agreed.classes, network.teacher


@contextmanager
def trained_once(learners: dict[str, Any]) -> Iterator[None]:
    """Let parties take the models that they trained alone for another rule, the same bits, in this block."""
    train = Trainer.fit_private

    def fit_private(trainer: Trainer, round: int) -> None:
        name = trainer.rows.party
        if not trainer.learner.fitted and name in learners:
            trainer.replace(copy.deepcopy(learners[name]))
            return
        train(trainer, round)
        learners.setdefault(name, copy.deepcopy(trainer.learner))

    Trainer.fit_private = fit_private  # type: ignore[method-assign]
    try:
        yield
    finally:
        Trainer.fit_private = train  # type: ignore[method-assign]


def trial(
    *,
    cell: Sequence[Any],
    rule: str,
    rounds: int,
    purpose: str,
    code: str,
    repetition: int,
    first: int = 0,
) -> dict[str, float]:
    """Means over parties of the metrics on everyone's and own rows, and how many parties are worse off."""
    seed = first + repetition
    setup, learners, alone, classes = prepared(Cell(*cell), purpose, seed)
    said = {"mixed": alone, "taught": alone}
    floats, teacher = 0.0, None
    if rule != "alone":
        said, floats, _, teacher = outputs(setup, rule, rounds, seed, learners)
    y = setup.labels(setup.dataset.y_test)
    values = setup.dataset.classes is None
    targets = y.reshape(len(y), -1) if values else (y[:, None] == np.asarray(classes)).astype(float)
    measure = partial(metrics_of, kind="regression" if values else "classification")
    losses = _losses(targets, values)
    found: dict[str, list[float]] = {}
    for mine, before, taught, own in zip(
        said["mixed"], alone, said["taught"], setup.own, strict=True
    ):
        measured = measure(mine, targets, own)
        about = measure(taught, targets, own)
        if values:
            measured |= {f"rmse{end}": measured[f"mse{end}"] ** 0.5 for end in ("", "_own")}
            about["rmse"] = about["mse"] ** 0.5
        measured["taught"] = about["rmse" if values else "accuracy"]
        if not values:
            measured["log_loss_taught"] = about["log_loss"]
        for name, lost in losses.items():
            one, other = lost(mine), lost(before)
            more = float(own @ (one - other) / own.sum())
            alone_error, paired = _error(other, own), _error(one - other, own)
            measured[f"worse_{name}"] = more > max(alone_error, 1e-12)
            measured[f"worse_paired_{name}"] = more > max(paired, 1e-12)
            measured[f"worse_both_{name}"] = more > max(alone_error, paired, 1e-12)
        for name, value in measured.items():
            found.setdefault(name, []).append(float(value))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    worse = {name: float(np.sum(v)) for name, v in found.items() if name.startswith("worse")}
    return {
        **means,
        **worse,
        "floats": floats,
        "parties": len(alone),
        **_teacher(teacher, setup.public_labels, classes),
        **_errors(said, losses, targets),
    }


def _teacher(teacher: np.ndarray | None, labels: Any, classes: Sequence[str]) -> dict[str, float]:
    """Accuracy and log loss of a teacher of classes on the public rows."""
    if teacher is None or not classes:
        return {}
    targets = (np.asarray(labels).astype(str)[:, None] == np.asarray(classes)).astype(float)
    right = teacher.argmax(axis=1) == targets.argmax(axis=1)
    lost = log_losses(np.asarray(teacher, dtype=float), targets)
    return {"teacher": float(right.mean()), "log_loss_teacher": float(lost.mean())}


def _errors(
    said: Mapping[str, np.ndarray], losses: Mapping[str, Any], targets: np.ndarray
) -> dict[str, float]:
    """Standard errors, over test rows, of the score of the mixed and of the taught models."""
    lost, rows = losses["error"], np.ones(len(targets))
    found = {}
    for name, ones in said.items():
        each = np.mean([lost(one) for one in ones], axis=0)
        # The error of a root is that of the mean, over twice the root.
        scale = 1.0 if "log_loss" in losses else 2 * float(each.mean()) ** 0.5
        found[f"{name}_error"] = _error(each, rows) / scale
    return found


def _losses(targets: np.ndarray, values: bool) -> dict[str, Any]:
    """What is lost on each row, by name."""
    if values:
        return {"error": lambda said: ((said - targets) ** 2).mean(axis=1)}
    truth = targets.argmax(axis=1)
    return {
        "error": lambda said: (said.argmax(axis=1) != truth).astype(float),
        "log_loss": lambda said: log_losses(said, targets),
    }


def _error(values: np.ndarray, own: np.ndarray) -> float:
    """Standard error of a weighted mean over rows."""
    mean = float(own @ values / own.sum())
    return float(np.sqrt((own**2) @ (values - mean) ** 2) / own.sum())


COLUMNS = (
    "data", "setting", "parties", "models", "purpose", "rule", "seeds", "rounds", "score", "score_error",
    "own", "taught", "taught_error", "log_loss", "log_loss_own", "log_loss_taught", "ece", "ece_own",
    "teacher", "log_loss_teacher", "worse_off", "worse_off_log_loss", "worse_off_paired",
    "worse_off_log_loss_paired", "worse_off_both", "worse_off_log_loss_both", "way", "way_taught", "floats",
    "code",
)  # fmt: skip
KEY = (*rivals_page.GROUP, "rule")
NUMBERS = COLUMNS[COLUMNS.index("rounds") + 1 : -1]
PROBABILITIES = (
    "log_loss", "log_loss_own", "log_loss_taught", "ece", "ece_own", "teacher", "log_loss_teacher",
)  # fmt: skip


@cache
def digest() -> str:
    """Digest of the library's code."""
    found = hashlib.sha256()
    for file in sorted(Path(consilience.__file__).parent.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()[:8]


def lines(
    study: Study,
    cell: Cell,
    rules: Sequence[str],
    purpose: str,
    seeds: int,
    rounds: int,
    before: Mapping[str, rivals_page.Line],
) -> Iterator[dict[str, str]]:
    """A line of the table for each rule of a cell; the score is accuracy or RMSE.

    Args:
        study: keeps the trials.
        cell: of the table.
        rules: names.
        purpose: of the parties.
        seeds: that a line is the mean of.
        rounds: of exchange.
        before: rule to its line of fewer seeds, or as many, that is gone on from.
    """
    values = not PROBLEMS[cell.data].classes
    about = {"cell": cell, "rounds": rounds, "purpose": purpose, "code": digest()}
    label = ", ".join(map(str, cell))
    of_rule = dict[str, dict[str, float | None]]()
    codes = dict[str, list[str]]()
    for rule in rules:
        first = int(before[rule]["seeds"]) if rule in before else 0
        codes[rule] = before[rule]["code"].split() if first else []
        if first >= seeds:
            of_rule[rule] = {n: float(v) for n in NUMBERS if (v := before[rule][n])}
            continue
        named = f"{label}: {rule}"
        found = study.repeat(trial, seeds - first, label=named, rule=rule, first=first, **about)
        of_rule[rule] = _means(found, before.get(rule), first, values)
        codes[rule].append(digest())
    low, high = of_rule["mean" if values else "avg"], of_rule["true-labels"]
    for rule, numbers in of_rule.items():
        for name, score in (("way", "score"), ("way_taught", "taught")):
            numbers[name] = _way(low[score], numbers[score], high[score], values)
        yield {
            **dict.fromkeys(COLUMNS, ""),
            **dict(zip(("data", "setting", "parties", "models"), map(str, cell), strict=True)),
            "purpose": purpose, "rule": rule, "seeds": str(seeds), "rounds": str(rounds),
            **{n: "" if v is None else f"{v:.4f}" for n, v in numbers.items()},
            "floats": f"{numbers['floats']:.0f}",
            "code": " ".join(dict.fromkeys(codes[rule])),
        }  # fmt: skip


def _means(
    found: Mapping[str, np.ndarray], before: rivals_page.Line | None, first: int, values: bool
) -> dict[str, float | None]:
    """Columns of a line: means over its seeds, of the new ones and of those that it has.

    Args:
        found: metric to its value for each new seed.
        before: the line of the seeds before; ``None`` where there are none.
        first: how many these are.
        values: true where the score is an RMSE.
    """
    score = "rmse" if values else "accuracy"
    named = {
        "score": score, "own": f"{score}_own", "taught": "taught", "floats": "floats",
        "worse_off": "worse_error", "worse_off_paired": "worse_paired_error",
        "worse_off_both": "worse_both_error",
        **{name: name for name in PROBABILITIES if name in found},
    }  # fmt: skip
    if not values:
        named["worse_off_log_loss"] = "worse_log_loss"
        named["worse_off_log_loss_paired"] = "worse_paired_log_loss"
        named["worse_off_log_loss_both"] = "worse_both_log_loss"
    seeds = first + len(found["parties"])

    def mean(column: str, new: np.ndarray, power: int) -> float | None:
        if not first:
            return float(new.sum()) / seeds
        old = before[column] if before else ""
        return ((float(old) * first) ** power + float(new.sum())) / seeds if old else None

    means = {column: mean(column, found[name], 1) for column, name in named.items()}
    for column, name in (("score_error", "mixed_error"), ("taught_error", "taught_error")):
        # The square of the error of a sum over seeds is the sum of theirs.
        squares = mean(column, found[name] ** 2, 2)
        means[column] = None if squares is None else float(np.sqrt(squares / seeds))
    return means


def _way(low: float, one: float, high: float, values: bool) -> float | None:
    """Share of the way from the plain mean to true labels; ``None`` where there is none between them."""
    far = high - low
    least = 0.02 * low if values else 0.01
    return (one - low) / far if abs(far) > least else None


def stored() -> dict[tuple[str, ...], rivals_page.Line]:
    """The lines of the table as it is."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {tuple(line[name] for name in KEY): line for line in csv.DictReader(file)}


def keep(rows: Mapping[tuple[str, ...], rivals_page.Line]) -> None:
    """Write the table."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=PROBLEMS)
    parser.add_argument("--settings", nargs="+", metavar="S", help='such as "k = 2 of 10" clusters')
    parser.add_argument("--models", choices=["one", "five"])
    parser.add_argument("--parties", type=int, help="cells with so many")
    parser.add_argument(
        "--rules", nargs="+", help="these; the lines to measure by are always there"
    )
    parser.add_argument("--purpose", choices=["own", "everyone", "taught"], default="own")
    parser.add_argument("--seeds", type=int, help="at most; five, three with encoders")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--more", action="store_true", help="add seeds to the lines that are there")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()

    def report(label: str, done: int, total: int) -> None:
        if done == total:
            print(f"{label}: {total}", file=sys.stderr, flush=True)

    study = Study(FOLDER, processes=1, report=report)  # so that parties trained alone are at hand
    wanted = {
        "data": given.data,
        "setting": given.settings,
        "models": [given.models] if given.models else None,
        "parties": [given.parties] if given.parties else None,
    }
    cells = [
        cell
        for cell in ([] if given.page else plan())
        if all(some is None or getattr(cell, name) in some for name, some in wanted.items())
    ]
    if given.quick:
        cell = Cell("digits", "k = 2 of 10", 10, "one")
        rules = given.rules or cell.rules
        for row in lines(study, cell, rules, given.purpose, 1, given.rounds, {}):
            print(row["rule"], row["score"], row["own"], row["taught"])
        return
    rows = stored()
    for seeds in range(1, 1 + (given.seeds or max(cell.seeds for cell in cells or plan()))):
        for cell in (one for one in cells if seeds <= one.seeds):
            values = not PROBLEMS[cell.data].classes
            marks = ("alone", "true-labels", "mean" if values else "avg")
            rules = dict.fromkeys((*marks, *given.rules)) if given.rules else cell.rules
            keys = {rule: (*map(str, cell), given.purpose, rule) for rule in rules}
            before = {r: rows[key] for r, key in keys.items() if given.more and key in rows}
            if len(before) == len(keys) and all(int(b["seeds"]) >= seeds for b in before.values()):
                continue
            if any(int(one["seeds"]) > seeds for one in before.values()):
                continue  # a later pass, of more seeds, adds what is missing
            for line in lines(
                study, cell, tuple(rules), given.purpose, seeds, given.rounds, before
            ):
                rows[tuple(line[name] for name in KEY)] = line
            keep(rows)
    shown = list(rows.values())
    rivals_page.draw(shown)
    about = f"{given.rounds} round of exchange"
    named = [tuple(map(str, cell)) for cell in plan()]
    write(__file__, rivals_page.page(shown, named), about=about)


if __name__ == "__main__":
    main()
