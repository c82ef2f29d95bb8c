"""Distances between inputs, and what exchange then costs own rows: the bound of `consilience parties`.

    python benchmarks/inputs_apart.py             # about ten minutes on two cores

Rows of tables that come with scikit-learn, and made ones, are dealt by their inputs: clusters, or blocks in
the order of the direction in which they spread most; a portion of 0 to 1 is dealt at random. Four parties
with four kinds of model are trained alone, and taught for one round by the plain mean with own rows weighing
1/m, as papers have it. Printed are, before anything is trained, the largest share of a party's rows without
any of others' nearby, and the distance of inputs beyond chance; and what became of own rows, in units of
their loss alone (log loss, or squared error).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from consilience.core.errors import InvalidInput
from consilience.lab.cli.heterogeneity import compared
from consilience.lab.diagnostics.heterogeneity.result import OWN_ROWS_AT_RISK
from consilience.lab.experiments import gather, parse_spec, start
from consilience.lab.report import read_results
from consilience.lab.report.gains import gains_of

PORTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLASSIFIERS = [
    {"name": "random-forest", "n_estimators": 30},
    {"name": "logistic-regression"},
    {"name": "gradient-boosting", "max_iter": 30},
    {"name": "knn"},
]
REGRESSORS = [
    {"name": "random-forest-regressor", "n_estimators": 30},
    {"name": "ridge"},
    {"name": "gradient-boosting-regressor", "max_iter": 30},
    {"name": "knn-regressor"},
]


def friedman() -> tuple[np.ndarray, np.ndarray, bool]:
    """Friedman's first problem with its noise."""
    X, y = datasets.make_friedman1(1200, noise=1.0, random_state=0)
    return X, y, False


def moons() -> tuple[np.ndarray, np.ndarray, bool]:
    """Two moons, and four columns of noise."""
    X, y = datasets.make_moons(1200, noise=0.3, random_state=0)
    return np.hstack([X, np.random.default_rng(0).normal(size=(1200, 4))]), y, True


PROBLEMS = {
    "digits": lambda: (*datasets.load_digits(return_X_y=True), True),
    "wine": lambda: (*datasets.load_wine(return_X_y=True), True),
    "breast cancer": lambda: (*datasets.load_breast_cancer(return_X_y=True), True),
    "diabetes": lambda: (*datasets.load_diabetes(return_X_y=True), False),
    "friedman": friedman,
    "moons": moons,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PROBLEMS], help="all by default")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    found = []
    print("| problem | dealt by | portion | rows apart | W1 beyond chance | own loss | worse off |")
    print("|---|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or PROBLEMS:
            path = Path(folder) / f"{name}.npz"
            X, y, classes = PROBLEMS[name]()
            np.savez(path, X=X, y=y)
            for way in ("clusters", "sorted"):
                for portion in PORTIONS:
                    out = Path(folder) / f"{name}-{way}-{portion}"
                    try:
                        row = trial(path, classes, way, portion, given.seeds, out)
                    except InvalidInput as error:  # a cluster may hold one class
                        print(f"| {name} | {way} | {portion} | {error.what} | | | |", flush=True)
                        continue
                    found.append(row)
                    apart, far, loss, worse = row
                    figures = f"{apart:.0%} | {far:.2f} | {loss:+.0%} | {worse:.0%}"
                    print(f"| {name} | {way} | {portion} | {figures} |", flush=True)
    apart, _, loss, worse = np.array(found).T
    risky = apart > OWN_ROWS_AT_RISK
    for side, which in (("above", risky), ("below", ~risky)):
        print(
            f"rows apart {side} {OWN_ROWS_AT_RISK:.0%}: {which.sum()} splits, own loss worse in "
            f"{(loss[which] > 0.01).sum()}, in the mean {loss[which].mean():+.0%}; "
            f"parties worse off {worse[which].mean():.0%}"
        )


def trial(
    path: Path, classes: bool, way: str, portion: float, seeds: int, out: Path
) -> tuple[float, float, float, float]:
    """Rows apart, distance beyond chance; mean change of own loss, in it; share of parties worse off."""
    document: dict[str, Any] = {
        "name": "apart",
        "seeds": seeds,
        "methods": ["local", "avg" if classes else "mean"],
        "purpose": "taught",
        "data": {
            "name": "npz",
            "path": str(path),
            "public": 0.25,
            "kind": "classification" if classes else "regression",
        },
        "partition": {"name": way, "parties": 4, "portion": portion},
        "models": CLASSIFIERS if classes else REGRESSORS,
        "protocol": {"rounds": 1},
    }
    spec = parse_spec(document, where=way)
    distances = []
    for seed in spec.seed_list:
        parties = compared(gather(spec, seed), seed=seed, equalize=True)
        inputs = parties.inputs_w1
        assert inputs is not None and parties.apart is not None
        distances.append((parties.apart.max(), inputs.omega - inputs.chance_mean))
    start(spec, out)
    gain = gains_of(read_results(out))["avg" if classes else "mean"]
    own = gain["log_loss_own" if classes else "mse_own"]
    apart, far = np.mean(distances, axis=0).tolist()
    return (
        apart,
        far,
        -own.mean / own.alone.mean,
        len(own.worse) / len(own.by_party),
    )


if __name__ == "__main__":
    main()
