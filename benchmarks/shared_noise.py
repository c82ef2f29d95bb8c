"""Measure class sums whose noise the parties of a secure sum share, beside every party's own noise.

    python benchmarks/shared_noise.py                   # minutes on a core; goes on where it was stopped
    python benchmarks/shared_noise.py --only heart      # one problem

Trials are kept under runs/results/shared-noise/, and the page is made of them. All noise is the operating
system's, so that figures differ a little from run to run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from page import table, write
from private_sums import DELTA, PROBLEMS, Split, outcomes, parties, score, split

from consilience.core.messages.schema import Public
from consilience.core.numerics.randomness import SystemNoise
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import gaussian_mu
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.class_sums.sums import SCALE, class_ratios, class_sums
from consilience.privacy.class_sums.tasks import features_by, public_basis
from consilience.privacy.secure_aggregation.rounds import SecureAggregation

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "shared-noise"
BUDGETS = (1.0, 0.5)
SEEDS = {
    "digits": 3,
    "heart": 3,
    "mnist 10 × 600": 3,
    "fashion-mnist 10 × 600": 3,
    "mnist 10 × 5,000": 1,
    "fashion-mnist 10 × 5,000": 1,
}
ASKED = (
    ("digits, parties' own models", "ε = 1", 0.84),
    ("mnist 10 × 600", "ε = 1", 0.83),
    ("mnist 10 × 5,000", "ε = 0.5", 0.885),
)
"""Figures asked for, of all parties answering."""


def taught(name: str, rows: Split, epsilon: float) -> dict[str, float]:
    """Measure the teacher: of every party's own noise, and of shared noise with all parties or the fewest."""
    public = Public(rows.public[0])
    basis = public_basis(public, None, PROBLEMS[name].dimensions)
    each = [
        class_sums(
            features_by(basis, public, X), np.searchsorted(rows.classes, y), len(rows.classes)
        )
        for X, y in rows.private
    ]
    space, at = features_by(basis, public), features_by(basis, public, rows.test[0])
    secure = SecureAggregation(epsilon=epsilon, delta=DELTA)
    threshold = secure.of(len(each))
    share = secure.variance(each[0].size, threshold)

    def told(answering: int, variance: float) -> float:
        whole = answering * variance
        noise = SystemNoise().skellam(variance=whole, size=each[0].shape)
        noisy = (sum(each[:answering]) + noise) / SCALE
        return score(class_ratios(noisy, space, whole**0.5 / SCALE, 0.5, at), rows)

    return {
        "own": told(len(each), (SCALE / gaussian_mu(epsilon, DELTA)) ** 2),
        "shared": told(len(each), share),
        "fewest": told(threshold, share),
    }


def trained(name: str, rows: Split, seed: int, epsilon: float) -> float:
    """Measure the parties' own models after a round under masks: mean accuracy on all test rows."""
    made = parties(rows, None)
    for party in made:
        party.protect(Budget(epsilon, DELTA, noise="shared"))
    protocol = private_sums(
        rounds=1,
        dimensions=PROBLEMS[name].dimensions,
        secure_aggregation=SecureAggregation(epsilon=epsilon, delta=DELTA),
    )
    right, _ = outcomes(rows, protocol, seed, made)
    return float(right.mean())


def kept(name: str, seed: int) -> dict[str, dict[str, float]]:
    """What was measured and kept, by ε; measured now where it was not."""
    file = FOLDER / f"{name}, {seed}.json"
    if not file.exists():
        rows, found = split(seed, name), {}
        for epsilon in BUDGETS:
            found[f"ε = {epsilon:g}"] = taught(name, rows, epsilon)
            if name == "digits":
                found[f"ε = {epsilon:g}"]["models"] = trained(name, rows, seed, epsilon)
        print(name, seed, found, flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def page() -> Iterator[str]:
    """Make the page of what is there."""
    yield from [*ABOUT.splitlines(), ""]
    found = {name: [kept(name, seed) for seed in range(count)] for name, count in SEEDS.items()}

    def values(name: str, budget: str, kind: str) -> list[float]:
        return [one[budget][kind] for one in found[name]]

    lines = []
    for name, budget, least in ASKED:
        problem = name.removesuffix(", parties' own models")
        measured = values(problem, budget, "shared" if problem == name else "models")
        missed = "" if np.mean(measured) >= least else "**missed**"
        lines.append([name, budget, f"{least:g}", _cell(measured), missed])
    yield from table(["", "", "asked", "found", ""], lines)
    yield from ["", "## Teachers", ""]
    heads = ["", "seeds"]
    for budget in (f"ε = {one:g}" for one in BUDGETS):
        heads += [f"{budget}, own noise", f"{budget}, shared", f"{budget}, shared, fewest parties"]
    rows = []
    for name, count in SEEDS.items():
        cells = [name, str(count)]
        for budget in (f"ε = {one:g}" for one in BUDGETS):
            cells += [_cell(values(name, budget, kind)) for kind in ("own", "shared", "fewest")]
        rows.append(cells)
    yield from table(heads, rows)
    behind = [
        f"{name} at ε = {one:g}"
        for name in SEEDS
        for one in BUDGETS
        if np.mean(values(name, f"ε = {one:g}", "shared"))
        < np.mean(values(name, f"ε = {one:g}", "own"))
    ]
    if behind:
        yield from [
            "",
            f"Behind every party's own noise, though there is less: {', '.join(behind)}.",
        ]
    yield from ["", "## Parties' own models: digits", ""]
    yield from table(
        ["", "all test rows"],
        [
            [f"ε = {one:g}, shared", _cell(values("digits", f"ε = {one:g}", "models"))]
            for one in BUDGETS
        ],
    )


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


ABOUT = """\
δ = 1e-5, a row added or removed. Ten parties of which seven open a sum, four hospitals of which three do;
one may collude with the coordinator. *Own noise*: every party adds all of it. *Shared*: every party adds a
part, so that the sum of the fewest parties without the one that colludes has enough, and the sum of all has
10/6 of that (4/2 of hospitals). *Fewest*: the last parties drop out, with their rows. Teachers on test rows,
of heart the mean of the hospitals' areas under the curve; problems are those of
[private-sums](private-sums.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(SEEDS))
    given = parser.parse_args()
    if given.only:
        for seed in range(SEEDS[given.only]):
            kept(given.only, seed)
        return
    write(__file__, page())


if __name__ == "__main__":
    main()
