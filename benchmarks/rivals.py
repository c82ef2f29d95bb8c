"""Compare every rule and rival: all data sets and ways to deal out rows, on everyone's and on own rows.

    python benchmarks/rivals.py                      # digits and heart disease; an hour on two cores
    python benchmarks/rivals.py --data mnist fashion-mnist cifar-10 cifar-100 20newsgroups trec diabetes
    python benchmarks/rivals.py --data digits --parties 50 --models five --seeds 5
    python benchmarks/rivals.py --page               # the page and the figure again, of what is there
    python benchmarks/rivals.py --quick              # a minute: digits, k = 2, one seed; writes no page

One trial is one rule, setting and seed. It is kept under runs/results/rivals/ as soon as it is done, and not
computed again. The table docs/results/rivals.csv has a line for each rule and setting, and keeps the lines
that a call does not compute.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from aggregators import FOLDER as BESIDE
from aggregators import PROBLEMS as USUAL
from page import RESULTS, table, write

from consilience import Federation, Party, ensemble_distillation
from consilience.aggregation import AGGREGATORS, Aggregator, density_ratio, fedgo, suwa
from consilience.experiments import SimulatedParties, gather, parse_spec
from consilience.networks import LocalNetwork
from consilience.party.metrics import classification_metrics, log_losses, regression_metrics
from consilience.protocols import analytic_federation, local_only
from consilience_papers.comparisons import standard_error
from consilience_papers.study import Study

FOLDER = BESIDE.with_name("rivals")
TABLE = RESULTS / "rivals.csv"
LOGISTIC = {"name": "logistic-regression"}
FIVE = [
    {"name": "random-forest", "n_estimators": 30},
    LOGISTIC,
    {"name": "knn"},
    {"name": "extra-trees", "n_estimators": 30},
    {"name": "naive-bayes"},
]
REGRESSORS = [{"name": "ridge"}, {"name": "random-forest-regressor", "n_estimators": 30}]
PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    **USUAL,
    "digits": {"data": {"public": 400}, "samples": 80, "model": LOGISTIC, "classes": 10},
    "cifar-100": {
        **USUAL["cifar-10"],
        "data": {"public": 2000, "test_rows": 1000, "coarse": True},
        "classes": 20,
    },
    "20newsgroups": {**USUAL["20newsgroups"], "classes": 20},
    "trec": {**USUAL["trec"], "classes": 6},
    "heart-disease": {"data": {"public": 0.2}, "parties": 4, "model": LOGISTIC},
    "diabetes": {"data": {"public": 100}, "parties": 4, "model": REGRESSORS[0], "values": True},
}
SHARES = (0.1, 0.2, 0.3, 0.5, 1.0)
ALPHAS = (0.05, 0.5, 10.0)
BY_INPUTS = {
    "clusters": {"name": "clusters"},
    "sorted": {"name": "sorted"},
    "half mixed": {"name": "clusters", "portion": 0.5},
}
VARIANTS = {
    "suwa-auto": partial(suwa, "auto"),
    "fedgo-generated": partial(fedgo, "generated"),
    "density-ratio-logistic": partial(density_ratio, estimator="logistic"),
}
REFERENCES = ("alone", "analytic-federation", "class-holders", "true-labels")
"""Methods that are no aggregator."""


def rules(values: bool) -> tuple[str, ...]:
    """Names of all that is compared, for classes or for values."""
    wanted = "regression" if values else "classification"
    found = [name for name, make in AGGREGATORS.items() if make().kind == wanted]
    if values:
        return *found, *(name for name in REFERENCES if name != "class-holders")
    return *found, *VARIANTS, *REFERENCES


def settings(data: str) -> dict[str, Mapping[str, Any]]:
    """Ways to deal out the rows of a data set, by the label of each."""
    problem = PROBLEMS[data]
    if data == "heart-disease":
        return {"hospitals": {"name": "group"}, **BY_INPUTS}
    if problem.get("values"):
        return {"at random": {"name": "iid"}, **BY_INPUTS}
    k = problem.get("classes", 10)
    held = dict.fromkeys(max(2, round(share * k)) for share in SHARES)
    rows = {} if problem["samples"] is None else {"samples": problem["samples"]}
    return {
        **{f"k = {n} of {k}": {"name": "classes", "per_party": n, **rows} for n in held},
        **{f"α = {a:g}": {"name": "dirichlet", "alpha": a, "min_rows": 10} for a in ALPHAS},
        **BY_INPUTS,
        # A cluster of pictures may be one class, which few models can be trained on alone.
        "clusters": {"name": "clusters", "portion": 0.2},
    }


def made(
    data: str,
    setting: Mapping[str, Any],
    parties: int,
    models: str,
    purpose: str,
    repetition: int,
) -> SimulatedParties:
    """The parties of a setting."""
    problem, dealt = PROBLEMS[data], dict(setting)
    if "samples" in dealt:
        dealt["samples"] = dealt["samples"] * 10 // parties
    brought = [problem["model"]]
    if models == "five":
        brought = REGRESSORS if problem.get("values") else FIVE
    document = {
        "name": "rivals",
        "data": {"name": data, **problem["data"]},
        "partition": dealt if dealt["name"] == "group" else {"parties": parties, **dealt},
        "models": brought,
        "purpose": purpose,
    }
    return gather(parse_spec(document, where=data), repetition)


class Counting(LocalNetwork):
    """A network that counts the numbers that leave parties in replies."""

    numbers = 0

    def ask(self, *tasks: Any, **options: Any) -> Any:
        replies = super().ask(*tasks, **options)
        for answers in replies.answers.values():
            for one in answers:
                told = getattr(one, "values", None)
                self.numbers += np.size(told) if isinstance(told, np.ndarray | int) else 0
        return replies


def outputs(
    setup: SimulatedParties, rule: str, rounds: int, seed: int
) -> tuple[np.ndarray, float, tuple[str, ...]]:
    """What parties predict of the test rows in the end, the numbers that left each, and the classes."""
    parties = setup.parties()
    network = Counting(parties, setup.public)
    federation = Federation.over(network, setup.public, seed=seed, strict=False)
    if rule == "alone":
        protocol = local_only(rounds=rounds)
    elif rule == "analytic-federation":
        protocol = analytic_federation(rounds=rounds)
    else:
        aggregate = setup.informed(rule) or _rule(rule)
        protocol = ensemble_distillation(aggregate=aggregate, rounds=rounds)
    federation.run(protocol, progress=False)
    said = np.stack([_predicted(party, setup.dataset.X_test) for party in parties])
    return said, network.numbers / len(parties), network.agreed.classes


def _rule(name: str) -> Aggregator:
    return (VARIANTS.get(name) or AGGREGATORS[name])()


def _predicted(party: Party, X: np.ndarray) -> np.ndarray:
    model = party.model()
    ask = model.predict_proba if model.classes else model.predict
    return np.asarray(ask(X), dtype=np.float32)


def trial(
    *,
    data: str,
    setting: Mapping[str, Any],
    parties: int,
    models: str,
    rule: str,
    rounds: int,
    purpose: str,
    repetition: int,
) -> dict[str, float]:
    """Means over parties of the metrics on everyone's and own rows, and how many parties are worse off."""
    setup = made(data, setting, parties, models, purpose, repetition)
    y = setup.labels(setup.dataset.y_test)
    said, floats, classes = outputs(setup, rule, rounds, repetition)
    key = json.dumps([data, setting, parties, models, rounds, repetition], sort_keys=True)
    kept = FOLDER / "alone" / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.npy"
    if rule == "alone":
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, said)
    alone = np.load(kept) if kept.exists() else outputs(setup, "alone", rounds, repetition)[0]
    values = setup.dataset.classes is None
    targets = y.reshape(len(y), -1) if values else (y[:, None] == np.asarray(classes)).astype(float)
    measure = regression_metrics if values else classification_metrics
    found: dict[str, list[float]] = {}
    for mine, before, own in zip(said, alone, setup.own, strict=True):
        for name, value in measure(mine, targets, own).items():
            found.setdefault(name, []).append(value)
        for name, lost in _losses(targets, values).items():
            found.setdefault(f"worse_{name}", []).append(
                float(_worse(lost(mine) - lost(before), own))
            )
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name in ("mse", "mse_own"):
        if name in means:
            means[name.replace("mse", "rmse")] = float(np.mean(np.sqrt(found[name])))
    worse = {name: float(np.sum(v)) for name, v in found.items() if name.startswith("worse")}
    return {**means, **worse, "floats": floats, "parties": len(said)}


def _losses(targets: np.ndarray, values: bool) -> dict[str, Any]:
    """What is lost on each row, by name."""
    if values:
        return {"error": lambda said: ((said - targets) ** 2).mean(axis=1)}
    truth = targets.argmax(axis=1)
    return {
        "error": lambda said: (said.argmax(axis=1) != truth).astype(float),
        "log_loss": lambda said: log_losses(said, targets),
    }


def _worse(more: np.ndarray, own: np.ndarray) -> bool:
    """Whether own rows lose more than before, by more than the standard error of the paired difference."""
    mean = float(own @ more / own.sum())
    return mean > np.sqrt((own**2) @ (more - mean) ** 2) / own.sum() and mean > 0


COLUMNS = (
    "data", "parties", "models", "purpose", "setting", "rule", "seeds", "rounds", "score", "score_se",
    "own", "own_se", "log_loss", "log_loss_own", "ece", "ece_own", "worse_off", "worse_off_log_loss",
    "way", "floats", "command",
)  # fmt: skip
GROUP = ("data", "parties", "models", "purpose")
KEY = (*GROUP, "setting", "rule")


def lines(
    study: Study,
    data: str,
    dealt: Mapping[str, Mapping[str, Any]],
    parties: int,
    models: str,
    purpose: str,
    seeds: int,
    rounds: int,
    wanted: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """A line of the table for each setting and rule of a data set; the score is accuracy or RMSE."""
    values = bool(PROBLEMS[data].get("values"))
    score = "rmse" if values else "accuracy"
    for label, setting in dealt.items():
        common = {"data": data, "setting": setting, "parties": parties, "models": models}
        common |= {"rounds": rounds, "purpose": purpose}
        found = {
            rule: study.repeat(trial, seeds, label=f"{data}, {label}, {rule}", rule=rule, **common)
            for rule in wanted
        }
        low, high = (found[rule][score] for rule in ("mean" if values else "avg", "true-labels"))
        for rule, one in found.items():
            far = abs(float((high - low).mean()))
            least = (
                0.02 * float(low.mean()) if values else 0.01
            )  # nearer ones have no way between them
            way = float((one[score] - low).mean() / (high - low).mean()) if far > least else None
            numbers = {
                "score": one[score].mean(),
                "score_se": standard_error(one[score]) if seeds > 1 else None,
                "own": one[f"{score}_own"].mean(),
                "own_se": standard_error(one[f"{score}_own"]) if seeds > 1 else None,
                **{
                    n: one[n].mean()
                    for n in ("log_loss", "log_loss_own", "ece", "ece_own")
                    if n in one
                },
                "worse_off": one["worse_error"].mean(),
                "worse_off_log_loss": None if values else one["worse_log_loss"].mean(),
                "way": way,
            }
            yield {
                "data": data, "parties": str(int(one["parties"][0])), "models": models, "purpose": purpose,
                "setting": label,
                "rule": rule, "seeds": str(seeds), "rounds": str(rounds),
                **{n: "" if v is None else f"{v:.3f}" for n, v in numbers.items()},
                "floats": f"{one['floats'].mean():.0f}",
            }  # fmt: skip


def stored() -> dict[tuple[str, ...], dict[str, str]]:
    """The lines of the table as it is."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {tuple(line[name] for name in KEY): line for line in csv.DictReader(file)}


def keep(rows: Mapping[tuple[str, ...], Mapping[str, str]]) -> None:
    """Write the table."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows.values())


def page(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The page: for each data set and each rule a line, of settings a column."""
    yield HEAD
    yield ""
    yield "![Accuracy against numbers that leave a party](rivals.svg)"
    yield ""
    for group in dict.fromkeys(tuple(row[name] for name in GROUP) for row in rows):
        here = [row for row in rows if tuple(row[name] for name in GROUP) == group]
        about = f"{here[0]['seeds']} seeds, {here[0]['rounds']} rounds"
        yield f"## {_titled(group)}"
        yield ""
        commands = dict.fromkeys(f"`{row['command']}`" for row in here)
        yield f"{', '.join(commands)} · {about}."
        yield ""
        labels = list(dict.fromkeys(row["setting"] for row in here))
        by_rule: dict[str, dict[str, Mapping[str, str]]] = {}
        for row in here:
            by_rule.setdefault(row["rule"], {})[row["setting"]] = row
        body = [
            [rule, *(_cell(found.get(label)) for label in labels), _floats(found.values())]
            for rule, found in by_rule.items()
        ]
        yield from table(["rule", *labels, "numbers that left a party"], body)
        yield ""


def _titled(group: tuple[str, ...]) -> str:
    """Title of a data set's section."""
    data, parties, models, purpose = group
    kinds = "one kind" if models == "one" else "five kinds"
    return f"{data}, {parties} parties, models of {kinds}, purpose {purpose}"


def _cell(row: Mapping[str, str] | None) -> str:
    if row is None:
        return "–"
    losses = f"{row['log_loss_own']} · " if row.get("log_loss_own") else ""
    return f"**{row['score']}** · {row['own']} · {losses}{float(row['worse_off']):.1f}"


def _floats(rows: Any) -> str:
    found = [int(row["floats"]) for row in rows]
    return f"{min(found):,}" if min(found) == max(found) else f"{min(found):,} to {max(found):,}"


def draw(rows: Sequence[Mapping[str, str]]) -> None:
    """The figure: mean score over settings against numbers that left a party, a panel a data set."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "rivals"
    from matplotlib import pyplot

    groups = list(dict.fromkeys(tuple(row[name] for name in GROUP) for row in rows))
    figure, axes = pyplot.subplots(
        len(groups), 1, figsize=(8, 5 * len(groups)), squeeze=False, layout="constrained"
    )
    for axis, group in zip(axes[:, 0], groups, strict=True):
        here = [row for row in rows if tuple(row[name] for name in GROUP) == group]
        points = {}
        for rule in dict.fromkeys(row["rule"] for row in here):
            mine = [row for row in here if row["rule"] == rule]
            points[rule] = [np.mean([float(row[n]) for row in mine]) for n in ("floats", "score")]
        most = max(floats for floats, _ in points.values())
        # Names stand in a column beside the panel, in the order of the scores, a line to each point.
        names = sorted(points, key=lambda rule: points[rule][1])
        for place, rule in zip(np.linspace(0, 1, len(names)), names, strict=True):
            floats, score = points[rule]
            mark = rule in ("alone", "true-labels", "class-holders")
            if mark:
                axis.axhline(score, color="0.6", lw=0.8)
            else:
                axis.plot(floats, score, "o", ms=4, color="#0072B2")
            axis.annotate(
                rule,
                (most if mark else floats, score),
                xytext=(1.08, place),
                textcoords="axes fraction",
                fontsize=7,
                va="center",
                arrowprops={"arrowstyle": "-", "lw": 0.3, "color": "0.5"},
            )
        values = PROBLEMS[group[0]].get("values")
        axis.set(
            xscale="log",
            title=_titled(group),
            xlabel="numbers that leave a party, all rounds",
            ylabel=f"{'RMSE' if values else 'accuracy'} on everyone's rows, mean over settings",
        )
    figure.savefig(RESULTS / "rivals.svg", metadata={"Date": None})


HEAD = (
    "In each cell: **mean score of the parties on everyone's test rows** · on own rows · log loss on own "
    "rows · number of parties that are worse off than alone on own rows, by more than the standard error of "
    "the paired difference. The score is accuracy, and RMSE for diabetes. All numbers, with standard errors, "
    "calibration errors and the share of the way from `avg` to `true-labels`, are in "
    "[rivals.csv](rivals.csv). Numbers that left a party are those of all replies in all rounds; "
    "`true-labels` and `class-holders` read the public rows' true labels, as marks to measure by; `alone` "
    "exchanges nothing."
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=PROBLEMS, default=["digits", "heart-disease"])
    parser.add_argument("--models", choices=["one", "five"], default="one")
    parser.add_argument(
        "--parties", type=int, help="10; 6 on trec, 4 on heart disease and diabetes"
    )
    parser.add_argument("--settings", nargs="+", metavar="S", help='such as "k = 2 of 10" clusters')
    parser.add_argument("--rules", nargs="+", help="these; the baselines are always there")
    parser.add_argument("--purpose", choices=["own", "everyone", "taught"], default="own")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()

    def report(label: str, done: int, total: int) -> None:
        print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)

    study = Study(FOLDER, processes=given.processes, report=report)
    if given.quick:
        common = {"data": "digits", "setting": settings("digits")["k = 2 of 10"], "parties": 10}
        common |= {"models": "one", "rounds": 2, "purpose": given.purpose}
        for rule in given.rules or rules(values=False):
            one = study.repeat(trial, 1, label=rule, rule=rule, **common)
            print(rule, {name: round(float(v[0]), 3) for name, v in one.items()})
        return
    rows = stored()
    for data in () if given.page else given.data:
        values = bool(PROBLEMS[data].get("values"))
        marks = ("alone", "mean" if values else "avg", "true-labels")
        wanted = dict.fromkeys((*marks, *(given.rules or rules(values))))
        parties = given.parties or PROBLEMS[data].get("parties", 10)
        dealt = {
            label: setting
            for label, setting in settings(data).items()
            if given.settings is None or label in given.settings
        }
        computed = lines(
            study,
            data,
            dealt,
            parties,
            given.models,
            given.purpose,
            given.seeds,
            given.rounds,
            tuple(wanted),
        )
        for line in computed:
            line["command"] = shlex.join(["python", "benchmarks/rivals.py", *sys.argv[1:]])
            rows[tuple(line[name] for name in KEY)] = line
            keep(rows)
    draw(list(rows.values()))
    write(__file__, page(list(rows.values())), about="seeds 0, 1, …")


if __name__ == "__main__":
    main()
