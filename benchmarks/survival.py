"""Measure survival over four sites: alone, exchanged and pooled, on three data sets of scikit-survival.

    python benchmarks/survival.py             # three minutes on a core with nothing beside it
    python benchmarks/survival.py --quick     # a minute; writes no page

Rows are dealt to four sites at random, or in the order of age, a quarter of each mixed. Every site has
another model. Needs the extra "survival". Runs are kept under runs/results/survival/ and gone on with.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sksurv
import sksurv.datasets
from page import table, write

from consilience.lab.experiments import parse_spec, resume, start
from consilience.lab.report.reading import read_results
from consilience.lab.report.results import Method, Results, spread

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "survival"
DATA = {"whas500": 1800.0, "gbsg2": 2000.0, "aids": 320.0}
"""Data sets with the last edge of eight bins, in days."""
MODELS = [
    {"name": "cox"},
    {"name": "survival-forest", "n_estimators": 50},
    {"name": "logistic-regression", "C": 0.1},
    {"name": "random-forest", "min_samples_leaf": 10, "max_features": 0.5},
]
METHODS = ("local", "avg", "auto", "central")
DEALT = {
    "at random": {"name": "iid", "parties": 4},
    "sorted by age": {"name": "sorted", "parties": 4, "column": 0, "portion": 0.25},
}
METRICS = ("harrell_c", "uno_c", "ibs")


def file_of(name: str) -> Path:
    """The data set as a table: its columns, the days, and whether there was an event."""
    path = FOLDER / f"{name}.csv"
    if not path.exists():
        X, y = getattr(sksurv.datasets, f"load_{name}")()
        event, time = y.dtype.names
        path.parent.mkdir(parents=True, exist_ok=True)
        X = X[["age", *X.columns.drop("age")]]
        X.assign(days=y[time], event=y[event].astype(int)).to_csv(path, index=False)
    return path


def measured(name: str, dealt: str, seeds: int) -> Results:
    """Run a data set, or go on with it."""
    document = {
        "name": f"{name}-{'sorted' if 'sorted' in dealt else 'random'}-{seeds}",
        "seeds": seeds,
        "methods": list(METHODS),
        "keep_models": "none",
        "data": {
            "name": "csv",
            "path": str(file_of(name)),
            "time": "days",
            "event": "event",
            "public": 0.25,
        },
        "outcome": {"horizon": DATA[name], "bins": 8},
        "partition": DEALT[dealt],
        "models": MODELS,
        "protocol": {"name": "ensemble_distillation", "rounds": 2},
    }
    spec = parse_spec(document, where=name)
    folder = FOLDER / spec.name
    if (folder / "config.json").exists():
        resume(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        start(spec, folder)
    return read_results(folder)


def cell(method: Method, metric: str) -> str:
    """Mean over parties, then over seeds with its standard deviation."""
    return str(method.final(metric) or "–")


def worse(results: Results, method: Method, metric: str) -> str:
    """Parties and seeds that end worse than alone on own rows, of all."""
    alone = results.baseline("local")
    assert alone is not None
    name = f"{metric}_own" if results.apart else metric
    change = method.scores[name][:, -1] - alone.scores[name][:, -1]
    change = change * (1 if metric == "ibs" else -1)
    return f"{int((change > 1e-12).sum())} of {int(np.isfinite(change).sum())}"


def gain(results: Results, method: Method, metric: str) -> str:
    """Gain over training alone, the mean over parties paired by seed, with its standard deviation."""
    alone = results.baseline("local")
    assert alone is not None
    change = method.over_rounds(metric)[:, -1] - alone.over_rounds(metric)[:, -1]
    found = spread(change * (-1 if metric.startswith("ibs") else 1))
    return str(found or "–")


def page(found: dict[tuple[str, str], Results]) -> Iterator[str]:
    yield from (
        "Four sites with a model each (Cox, survival forest, logistic regression on bins, random forest",
        "on bins), eight bins of time up to the last edge, two rounds, purpose `own`. Three tenths of the",
        "rows are tested on, a quarter of the others is public. Means over the sites ± standard deviation",
        "over seeds: C is Harrell's and Uno's, larger is better; IBS the integrated Brier score, smaller",
        "is better; all up to the last edge. *Pooled* trains every site's model on all private rows.",
        "Gains are paired by seed, above 0 where better; *worse* counts sites and seeds whose IBS on own",
        "rows ended above that of training alone.",
    )
    yield ""
    for dealt in DEALT:
        yield from _part(found, dealt)


def _part(found: dict[tuple[str, str], Results], dealt: str) -> Iterator[str]:
    yield from (f"## Rows dealt {dealt}", "")
    apart = "sorted" in dealt
    sides = (("own rows", "_own"), ("everyone's rows", "")) if apart else (("all rows", ""),)
    for title, suffix in sides:
        rows = []
        for (name, how), results in found.items():
            if how != dealt:
                continue
            for method in results.methods:
                cells = [cell(method, metric + suffix) for metric in METRICS]
                taught = method.exchanges
                gains = [gain(results, method, f"{one}{suffix}") for one in ("harrell_c", "ibs")]
                rows.append(
                    [
                        name if method.aggregate == "local" else "",
                        {"local": "alone", "central": "pooled"}.get(method.label, method.label),
                        *cells,
                        *(gains if taught else ["", ""]),
                        worse(results, method, "ibs") if taught and suffix == sides[0][1] else "",
                    ]
                )
        yield from (f"**{title}**", "")
        heads = [
            "data",
            "",
            "Harrell's C",
            "Uno's C",
            "IBS",
            "gain in C",
            "gain in IBS",
            "worse in IBS",
        ]
        yield from table(heads, rows)
        yield ""


def about(found: dict[tuple[str, str], Results]) -> Iterator[str]:
    """Rows of every data set."""
    rows = []
    for name, horizon in DATA.items():
        X, y = getattr(sksurv.datasets, f"load_{name}")()
        event = y[y.dtype.names[0]]
        rows.append(
            [name, f"{len(X):,}", str(X.shape[1]), f"{event.mean():.0%}", f"{horizon:,.0f}"]
        )
    yield from table(["data", "rows", "columns", "events", "last edge, days"], rows)
    yield ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    seeds = 1 if given.quick else given.seeds
    found = {(name, dealt): measured(name, dealt, seeds) for name in DATA for dealt in DEALT}
    lines = [*about(found), *page(found)]
    if given.quick:
        print("\n".join(lines))
    else:
        write(__file__, lines, about=f"{seeds} seeds, scikit-survival {sksurv.__version__}")
