"""Measure class sums with noise: digits, ten parties with two of the ten classes each.

    python benchmarks/private_sums.py            # five seeds, a quarter of an hour on a core; writes the page
    python benchmarks/private_sums.py --quick    # one seed, two budgets; writes no page

Some 94 rows a party, forests, logistic regressions and nearest neighbours in turn, 500 public rows, 359 test
rows of all classes. Features and fit are chosen on the public rows (the second table), whose labels nobody
else sees; noise is drawn anew by the operating system, so that figures differ a little from run to run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from page import table, write
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.aggregation import density_ratio
from consilience.numerics.class_sums import SCALE, PublicBasis, class_ratios, class_sums
from consilience.numerics.feature_space import public_feature_space
from consilience.protocols import Protocol, local_only, private_sums
from consilience.transforms.accounting import gaussian_mu
from consilience.transforms.privacy import Budget

DELTA, PARTIES = 1e-5, 10
CLASSES = [str(digit) for digit in range(10)]
BUDGETS = (None, 8.0, 3.0, 1.0)


class Split(NamedTuple):
    """Rows of one seed: inputs and labels of each part."""

    private: list[tuple[np.ndarray, np.ndarray]]
    public: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def split(seed: int) -> Split:
    """Set 500 rows aside as public and 359 for tests, and deal two classes to each party."""
    X, y = load_digits(return_X_y=True)
    X, y = X / 16, y.astype(str)
    order = np.random.default_rng(seed).permutation(len(X))
    public, test, rest = order[:500], order[500:859], order[859:]
    private = []
    for i in range(PARTIES):
        of = [rest[y[rest] == CLASSES[(i + j) % 10]][j::2] for j in (0, 1)]
        rows = np.concatenate(of)
        private.append((X[rows], y[rows]))
    return Split(private, (X[public], y[public]), (X[test], y[test]))


def parties(rows: Split, budget: float | None, *, pooled: bool = False) -> list[Party]:
    """Make the parties; ``pooled`` ones have everyone's rows."""
    kinds = (RandomForestClassifier(100), LogisticRegression(max_iter=1000), KNeighborsClassifier())
    everything = tuple(map(np.concatenate, zip(*rows.private, strict=True)))
    made = []
    for i, own in enumerate(rows.private):
        X, y = everything if pooled else own
        own_tests = np.isin(rows.test[1], own[1]).astype(float)
        party = Party(
            f"party-{i}",
            kinds[i % 3],
            X,
            y,
            test=rows.test,
            own=own_tests,
            classes=CLASSES,
            purpose="everyone",
        )
        if budget is not None:
            party.protect(Budget(budget, DELTA, measured=True))
        made.append(party)
    return made


def accuracies(rows: Split, protocol: Protocol, seed: int, **options: Any) -> np.ndarray:
    """Run a protocol: each party's accuracy on all classes and on its own, shape ``(2, parties)``."""
    made = parties(rows, options.pop("budget", None), **options)
    federation = Federation(made, public=rows.public[0], seed=seed, strict=False)
    history = federation.run(protocol, progress=False)
    last = [history.metrics[-1][party.name] for party in made]
    values = [getattr(one, "values", one) if not isinstance(one, dict) else one for one in last]
    return np.array([[one[name] for one in values] for name in ("accuracy", "accuracy_own")])


def methods(quick: bool) -> dict[str, tuple[Protocol, Mapping[str, Any]]]:
    """Lines of the table: a protocol, and what its parties are."""
    exchange = {
        "every party alone": (local_only(rounds=1), {}),
        "avg, no privacy": (ensemble_distillation(aggregate=avg(), rounds=1), {}),
        "density ratio, no privacy": (
            ensemble_distillation(aggregate=density_ratio(), rounds=1),
            {},
        ),
        "all rows pooled": (local_only(rounds=1), {"pooled": True}),
    }
    ours = {
        "private sums, " + ("no noise" if one is None else f"ε = {one:g}"): (
            private_sums(rounds=1),
            {"budget": one},
        )
        for one in BUDGETS
        if not quick or one in (None, 3.0)
    }
    return {**ours, **exchange}


def on_public_rows(seeds: range) -> list[list[str]]:
    """Accuracy of teachers on the public rows, by features."""
    lines = []
    for kind in ("directions", "kernel", "leaves"):
        for dimensions in (24, 32):
            cells = []
            for budget in BUDGETS:
                found = []
                for seed in seeds:
                    rows = split(seed)
                    space = public_feature_space(rows.public[0], np.random.default_rng(0))
                    X, y = map(np.concatenate, zip(*rows.private, strict=True))
                    basis = PublicBasis.of(
                        space.public, np.random.default_rng(0), kind=kind, dimensions=dimensions
                    )
                    codes = np.searchsorted(CLASSES, y)
                    sums = class_sums(basis(space(X), space.public), codes, 10) / SCALE
                    sigma = 0.0
                    if budget is not None:
                        sigma = PARTIES**0.5 / gaussian_mu(budget, DELTA)
                        sums = sums + np.random.default_rng().normal(scale=sigma, size=sums.shape)
                    public = basis(space.public, space.public)
                    told = class_ratios(sums, public, sigma, 0.5, public).argmax(axis=1)
                    found.append(np.mean(told == np.searchsorted(CLASSES, rows.public[1])))
                cells.append(f"{np.mean(found):.3f} ± {np.std(found):.3f}")
            lines.append([kind, str(dimensions), *cells])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    seeds = range(1 if given.quick else given.seeds)
    found: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        rows = split(seed)
        for label, (protocol, options) in methods(given.quick).items():
            values = accuracies(rows, protocol, seed, **options)
            found.setdefault(label, []).append(values)
            print(f"{seed} {label:28} {values.mean(axis=1).round(3)}", flush=True)
    alone = np.array(found["every party alone"])
    lines = []
    for label, values in found.items():
        measured = np.array(values)
        means = measured.mean(axis=2)
        worse = int((measured[:, 1] < alone[:, 1]).sum())
        lines.append(
            [
                label,
                *(f"{means[:, k].mean():.3f} ± {means[:, k].std():.3f}" for k in (0, 1)),
                f"{worse} of {measured[:, 1].size}",
            ]
        )
    head = ["", "all ten classes", "own two classes", "parties below alone on own"]
    print(*table(head, lines), sep="\n")
    if given.quick:
        return
    names = ["features", "dimensions", "no noise", "ε = 8", "ε = 3", "ε = 1"]
    page = [*ABOUT, *table(head, lines), *CHOSEN, *table(names, on_public_rows(seeds))]
    write(__file__, page, about=f"seeds 0 to {seeds[-1]}")


ABOUT = """\
Digits, ten parties of some 94 rows with two of the ten classes each: forests, logistic regressions and
nearest neighbours. 500 public rows, one round, purpose `everyone`; δ = 1e-5, one row added or removed, every
party its own noise. Mean accuracy of the parties' own models on 359 test rows after they were taught, with
the deviation over seeds. The promise is for what a party sends in all its life; accuracies were measured
outside of it. Noise comes from the operating system: another run differs by about the deviations.

""".splitlines()

CHOSEN = """
## Chosen on the public rows

Accuracy of the teacher on the public rows, whose labels this benchmark alone has, by features, dimensions
and κ, by how much noise adds to the ridge.

""".splitlines()


if __name__ == "__main__":
    main()
