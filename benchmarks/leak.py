"""Measure what parties give away beside what they learn: digits, every aggregator, private sums by ε.

    python benchmarks/leak.py            # three seeds, some fifteen minutes on a core; writes the page
    python benchmarks/leak.py --quick    # one seed, few shadows; writes no page
    python benchmarks/leak.py --only elsewhere   # prints the table of noisy training

1. Ten parties with two of the ten classes each are run, and ``consilience attack`` is made on the runs.
2. A party with a random half of 200 rows that the attacker knows, of all classes and without calibration
   rows, so that nothing is in the attack's way: with ordinary public rows, and with the 200 rows themselves
   among them; and the same party where noise is in its training.
3. Rows of a class of one, two or five are rebuilt from class sums.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from page import RESULTS, table, write
from rebuilding import distances, nearest, table_of

from consilience.core.federation.federation import Federation
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.numerics.feature_space import public_feature_space
from consilience.core.protocols import Protocol, ensemble_distillation
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import Distill, PredictPublic
from consilience.lab.config.experiment_sections import ModelSpec
from consilience.lab.config.methods import AGGREGATORS
from consilience.lab.data import load
from consilience.lab.diagnostics.attack_run import attack_run
from consilience.lab.experiments import Ledger, SimulatedParties, parse_spec, start
from consilience.models.files.transfer import TRUSTED
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import NoisyTraining, gaussian_mu
from consilience.privacy.attacks.membership import (
    area_under_curve,
    confidence_likelihood,
    highest_area,
    public_row_likelihood,
    true_positives,
)
from consilience.privacy.attacks.shadows import Candidates, RecordedNetwork, Shadows, on_one_scale
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.class_sums.sums import PublicBasis
from consilience.privacy.class_sums.tasks import SumClasses

Array = np.ndarray
NO_TREES = np.zeros((0, 0, 2), dtype=np.float32)
DELTA, EPSILONS = 1e-5, (None, 8.0, 3.0, 1.0)
TRAINING = NoisyTraining(rows=100, batch=50, epochs=20)
OPTIONS = {"mlp": {"hidden": [], "recipe": {"learning_rate": 0.01, "distill_epochs": 1}}}
LIMITS = {8.0: 0.63, 3.0: 0.56, 1.0: 0.53}
"""Area under the curve that ordinary public rows may give, by ε."""
RULES = {
    "avg": "avg", "median": "avg", "trimmed-mean": "avg", "uwa": "uwa",
    "coarse-density-ratio": "coarse-density-ratio", "density-ratio": "density-ratio", "auto": "auto",
}  # fmt: skip
"""Aggregators, and the one that asks a party the same, whose leak is measured."""

CONFIG = """
name = "leak"
purpose = "everyone"
keep_models = "none"
[data]
name = "digits"
public = 500
[partition]
name = "classes"
parties = 10
per_party = 2
[protocol]
rounds = 1
[[models]]
name = "logistic-regression"
[[models]]
name = "knn"
[[models]]
name = "random-forest"
n_estimators = 30
"""


def named(epsilon: float | None) -> str:
    return "private sums, " + ("no noise" if epsilon is None else f"ε = {epsilon:g}")


# --- 1. leak beside accuracy ---------------------------------------------------------------------------


def runs(seed: int, shadows: int) -> dict[str, dict[str, list[float]]]:
    """Accuracy of every method, and the leak of the first party of each model."""
    sums = [
        {"protocol": "private_sums", "label": named(one)}
        | ({} if one is None else {"privacy": {"epsilon": one, "delta": DELTA}})
        for one in EPSILONS
    ]
    spec = {**tomllib.loads(CONFIG), "seeds": [seed], "methods": ["local", *RULES, *sums]}
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start(parse_spec(spec, where="leak"), run)
        with closing(Ledger(run / "ledger.sqlite", read_only=True)) as ledger:
            query = (
                "SELECT method, avg(value) FROM metrics "
                "WHERE name = 'accuracy' AND round = 1 GROUP BY method"
            )
            for method, accuracy in ledger.read(query):
                found[method] = {"accuracy": [accuracy]}
        for label in dict.fromkeys([*RULES.values(), *map(named, EPSILONS)]):
            parties = ["party-01", "party-02"] if label in RULES else ["party-02"]
            parties += ["party-03"] * (label == "avg")  # forests take their time
            done = attack_run(
                run, ["membership"], methods=[label], parties=parties, seed=seed, shadows=shadows
            )
            for leak in done.leaks:
                found[label][leak.model] = [
                    leak.figures[name] for name in ("AUC", "TPR at 1 % FPR")
                ]
                print(seed, label, leak.model, found[label][leak.model], flush=True)
    for rule, same in RULES.items():
        found[rule] = {**found[same], "accuracy": found[rule]["accuracy"]}
    return found


# --- 2. the attack at its strongest --------------------------------------------------------------------


Line = tuple[str, str, Protocol, Budget | None]
"""Name, model, protocol and budget."""


def questions() -> Iterator[Line]:
    """Lines of the table."""
    for model in ("logistic-regression", "knn", "random-forest"):
        yield (
            f"predictions: {model}",
            model,
            ensemble_distillation(aggregate=AGGREGATORS["avg"](), rounds=1),
            None,
        )
    ratios = ensemble_distillation(aggregate=AGGREGATORS["density-ratio"](), rounds=1)
    yield "density ratios", "knn", ratios, None
    for epsilon in EPSILONS:
        budget = None if epsilon is None else Budget(epsilon, DELTA)
        yield named(epsilon), "knn", private_sums(rounds=1), budget


def elsewhere() -> Iterator[Line]:
    """Lines of the table of noise in training."""
    average = ensemble_distillation(aggregate=AGGREGATORS["avg"](), rounds=1)
    for epsilon in (None, 8.0, 3.0):
        how = None if epsilon is None else Budget(epsilon, DELTA, training=TRAINING)
        yield f"network, {named(epsilon).removeprefix('private sums, ')}", "mlp", average, how


def strongest(
    seed: int, shadows: int, *, laid: bool, of: Callable[[], Iterator[Line]] | None = None
) -> dict[str, list[float]]:
    """Area and true positives of membership in 100 of 200 rows, by question.

    Args:
        of: gives the questions; by default :func:`questions`.
        seed: draws the rows.
        shadows: their number; a sixth as many parties are attacked.
        laid: whether the coordinator lays the 200 rows themselves among the public ones. Models are then
            attacked by their answers on these, and sums asked for in a basis that has a feature for each.
    """
    data = load("digits")
    order = np.random.default_rng(seed).permutation(len(data.X))
    pool, public, other = order[:200], order[200:500], order[500:700]
    rows = np.concatenate([pool, public[:100]]) if laid else public
    found = {}
    for name, model, protocol, budget in (of or questions)():
        if laid and model == "random-forest":
            continue
        setup = SimulatedParties(
            dataset=data,
            public=Public(data.X[rows]),
            public_labels=None,
            names=("other", "target"),
            rows=(other, pool[:100]),
            own_tests=(np.ones(len(data.X_test)),) * 2,
            models=(ModelSpec(name=model, **OPTIONS.get(model, {})),) * 2,
            calibration=0.0,
            purpose="taught",
            trusts=TRUSTED,
            scaling=None,
        )
        network = RecordedNetwork(setup.parties(budget=budget), setup.public)
        federation = Federation.over(network, setup.public, seed=seed)
        hostile = laid and name.startswith("private")
        if hostile:  # one feature for each of the rows, and no other row has part in it
            basis = PublicBasis(
                "kernel", np.arange(200), np.eye(200, dtype=np.float32), 1e-6, NO_TREES
            )
            federation.form()
            network.ask(SumClasses.of(basis, round=1))
        else:
            for _ in federation.rounds(protocol):
                pass
        shadow = Shadows(setup, "target", network.questions["target"], budget)
        known, rng = Candidates(pool, 100, pool[:0], other[:0]), np.random.default_rng([seed, 1])
        predicted = laid and name.startswith(("predictions", "network"))
        told = shadow.answers(known, shadows * 7 // 6, rng, ask_rows=predicted)
        there, members = told.members[:shadows], told.members[shadows:]
        if hostile:
            sums = np.array([vectors[0].reshape(-1, 201) for vectors in told.numbers])
            classes = [network.agreed.classes.index(one) for one in setup.labels(data.y[pool])]
            scores, members = sums[:, classes, np.arange(200)], told.members
        elif predicted:
            scores = confidence_likelihood(told.rows[:shadows], there, told.rows[shadows:])
        else:
            seen = on_one_scale(told.numbers, like=shadows)
            scores = public_row_likelihood(seen[:shadows], there, seen[shadows:])
        found[name] = [area_under_curve(scores, members), true_positives(scores, members)]
        print(seed, "laid" if laid else "ordinary", name, found[name], flush=True)
        if budget is not None and budget.training is None and not laid:
            check_silence(network, shadow)
    return found


def check_silence(network: RecordedNetwork, shadow: Shadows) -> None:
    """Hold that a party with a budget says nothing of what a teacher of the attacker's did to its model."""
    (party,) = (one for one in network._members.values() if one.name == "target")
    n, k = len(shadow.setup.public), len(network.agreed.classes)
    teacher = np.eye(k, dtype=np.float32)[np.arange(n) % k]
    taught = answer(party, (Distill(round=2, targets=teacher, alpha=0.5),))
    refused = answer(party, (PredictPublic(round=2),))
    assert not isinstance(taught, Failure) and isinstance(refused, Failure)
    assert refused.code == "budget", refused


# --- 3. rebuilding -------------------------------------------------------------------------------------


def rebuilt(seed: int, size: int, epsilon: float | None) -> tuple[float, float]:
    """Median distance of rows of a class to those that are found for them, and to the nearest public row.

    The sum's best linear estimate of a row, with the public rows' mean and covariance for a prior; standard
    deviations a coordinate.
    """
    digits = table_of("digits", 500)
    space = public_feature_space(digits.public, np.random.default_rng(0))
    public = space.public
    basis = PublicBasis.of(public, np.random.default_rng(0), kind="directions")
    features = basis(public, public)[:, :-1]
    mean, spread = features.mean(axis=0), np.cov(features, rowvar=False)
    back = np.linalg.lstsq(np.column_stack([features, np.ones(len(features))]), public)[0]
    rng = np.random.default_rng(seed)
    sigma = 0.0 if epsilon is None else 1 / gaussian_mu(epsilon, DELTA)
    found, near = [], []
    for _ in range(100):
        rows = space(digits.draw(size, rng))
        own = basis(rows, public)[:, :-1]
        told = own.sum(axis=0) + sigma * rng.normal(size=len(mean))
        noise = size * spread + (sigma**2 + 1e-9) * np.eye(len(mean))
        guess = mean + spread @ np.linalg.solve(noise, told - size * mean)
        row = np.append(guess, 1) @ back
        found.append(distances(np.tile(row, (size, 1)), rows))
        near.append(nearest(public, rows))
    return float(np.median(np.concatenate(found))), float(np.median(np.concatenate(near)))


# --- the page ------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=["elsewhere"], help="print this table alone")
    parser.add_argument("--keep", type=Path, help="a file of what was measured, to go on from")
    given = parser.parse_args()
    seeds, shadows = (range(1), 24) if given.quick else (range(given.seeds), 192)
    kept: dict[str, Any] = {}
    if given.keep is not None and given.keep.exists():
        kept = json.loads(given.keep.read_text())

    def measured(key: str, made: Any, *arguments: Any, **options: Any) -> Any:
        if key not in kept:
            kept[key] = made(*arguments, **options)
            if given.keep is not None:
                given.keep.write_text(json.dumps(kept))
        return kept[key]

    def both(
        name: str, of: Callable[[], Iterator[Line]], count: int, seeds: range
    ) -> list[list[dict[str, Any]]]:
        return [
            [
                measured(f"{name} {seed} {where}", strongest, seed, count, laid=where, of=of)
                for seed in seeds
            ]
            for where in (False, True)
        ]

    others = others_shown(*both("elsewhere", elsewhere, shadows // 3, range(1)))
    if given.only:
        print(*others, sep="\n")
        return
    laid = both("strongest", questions, shadows, seeds)
    found = [measured(f"runs {seed}", runs, seed, shadows * 2 // 3) for seed in seeds]
    lines = [*PAGE[0].splitlines(), *leaks(found), *PAGE[1].splitlines(), *attacks(*laid)]
    lines += [*PAGE[2].splitlines(), *others, *PAGE[3].splitlines(), *rebuildings()]
    if given.quick:
        print(*lines, sep="\n")
        return
    draw(found)
    write(__file__, lines, about=f"seeds 0 to {seeds[-1]}")


def shown(values: Any) -> str:
    values = np.array(list(values))
    return f"{values.mean():.3f}" + (f" ± {values.std():.3f}" if len(values) > 1 else "")


def leaks(found: list[dict[str, Any]]) -> list[str]:
    models = ("logistic-regression", "knn", "random-forest")
    rows = []
    for label in sorted(found[0], key=lambda one: np.mean([f[one]["accuracy"] for f in found])):
        cells = [label, shown(f[label]["accuracy"][0] for f in found)]
        for model in models:
            there = [f[label][model] for f in found if model in f[label]]
            cells.append(
                f"{shown(one[0] for one in there)} · {np.mean([one[1] for one in there]):.1%}"
                if there
                else "–"
            )
        epsilon = next((one for one in EPSILONS if one and label == named(one)), None)
        cells.append(
            "–" if epsilon is None else f"{highest_area(Budget(epsilon, DELTA).release):.3f}"
        )
        rows.append(cells)
    return table(["", "accuracy", *models, "no attack beyond"], rows)


def attacks(ordinary: list[dict[str, Any]], laid: list[dict[str, Any]]) -> list[str]:
    rows = []
    for name in ordinary[0]:
        cells = [name]
        for where in (ordinary, laid):
            there = [one[name] for one in where if name in one]
            cells += (
                [shown(one[0] for one in there), f"{np.mean([one[1] for one in there]):.1%}"]
                if there
                else ["–", "–"]
            )
        asked = {"density ratios": "≥ 0.74", "predictions: knn": "≥ 0.64"}
        asked["predictions: logistic-regression"] = "≥ 0.64"
        epsilon = next((one for one in LIMITS if name.startswith(named(one))), None)
        if epsilon is not None and name == named(epsilon):
            asked[name] = f"≤ {LIMITS[epsilon]}"
        highest = "–" if epsilon is None else f"{highest_area(Budget(epsilon, DELTA).release):.3f}"
        rows.append([*cells, asked.get(name, "–"), highest])
    head = [
        "",
        "AUC",
        "TPR at 1 % FPR",
        "AUC, rows laid",
        "TPR, rows laid",
        "asked for",
        "no attack beyond",
    ]
    return table(head, rows)


def others_shown(ordinary: list[dict[str, Any]], laid: list[dict[str, Any]]) -> list[str]:
    rows = []
    for name, _, _, budget in elsewhere():
        cells = [name]
        for where in (ordinary, laid):
            cells += [shown(one[name][0] for one in where)]
            cells += [f"{np.mean([one[name][1] for one in where]):.1%}"]
        loss = (
            None if budget is None else budget.training_loss if budget.training else budget.release
        )
        rows.append([*cells, "–" if loss is None else f"{highest_area(loss):.3f}"])
    head = ["", "AUC", "TPR at 1 % FPR", "AUC, rows laid", "TPR, rows laid", "no attack beyond"]
    return table(head, rows)


def rebuildings() -> list[str]:
    rows = []
    for size in (1, 2, 5):
        cells = [rebuilt(0, size, epsilon) for epsilon in EPSILONS]
        rows.append([str(size), *(f"{one[0]:.2f}" for one in cells), f"{cells[0][1]:.2f}"])
    return table(
        ["rows of the class", "no noise", "ε = 8", "ε = 3", "ε = 1", "nearest public row"], rows
    )


def draw(found: list[dict[str, Any]]) -> None:
    """Draw accuracy against the largest area of the three models."""
    from matplotlib import rc_context

    from consilience.lab.report.drawing import COLOURS, one_axis

    figure, axis = one_axis(3.6, width=6.4)
    places: dict[tuple[float, float], list[str]] = {}
    for label in found[0]:
        areas = [
            max([v[0] for k, v in f[label].items() if k != "accuracy"], default=0.5) for f in found
        ]
        accuracy = np.mean([f[label]["accuracy"][0] for f in found])
        places.setdefault((float(np.mean(areas)), float(accuracy)), []).append(label)
    for place, labels in places.items():
        ours = labels[0].startswith("private")
        axis.plot(*place, "os"[ours], color=COLOURS[ours])
        beside: Any = {"ha": "right", "xytext": (-5, 3)} if ours else {"xytext": (5, 2)}
        text = ", ".join(labels).removeprefix("private ")
        axis.annotate(text, place, fontsize=7, textcoords="offset points", **beside)
    axis.axvline(0.5, color="grey", linewidth=0.6)
    axis.set_xlabel("AUC of the attack, the worst of three models; 0.5 is chance")
    axis.set_ylabel("mean accuracy of the parties")
    axis.margins(x=0.25)
    with rc_context({"svg.hashsalt": "leak", "svg.fonttype": "none"}):
        figure.savefig(RESULTS / "leak.svg", metadata={"Date": None})


PAGE = (
    """\
What does a party give away, and what does it get for it? An attacker sees all that a party sends, knows rows
that may be among the party's, and has shadow parties to learn from. AUC: how often a row that is there scores
above one that is not; 0.5 is chance. TPR: share of the rows that are there which are found where 1 % of the
others are taken for them. Mean ± deviation over seeds.

## Leak beside accuracy

Ten parties of some 76 rows with two of the ten classes each, 500 public rows, one round, every party its own
noise at δ = 1e-5; `consilience attack` with 128 shadows and 32 parties under attack, whose rows are a random
half of the party's own and as many test rows of the same classes. A cell has AUC and TPR at 1 % FPR; private
sums are the same for any model, and one party was attacked. Median and trimmed mean ask a party what `avg`
asks, and leak the same; here they teach the same too, as no class is held by more than two of ten.

![Accuracy against the attack's AUC](leak.svg)

""",
    """
## The attack at its strongest

A party with a random half of 200 rows of all classes that the attacker knows, no calibration rows, 192
shadows, 32 parties under attack, 300 public rows. *Rows laid*: the coordinator lays the 200 rows themselves
among the public ones; of predictions it then looks at the answers on these (LiRA), and for sums it sends a
basis of its own, with one feature for each of them that no other row has part in. The bound of the last
column, Φ(μ/√2), holds for whatever it asks; figures scatter around theirs by some 0.005. After its sums a
party with a budget answers nothing: the script has it learn from a teacher of the attacker's, and holds that
its predictions are refused.

""",
    """
## Noise in training

The same party is attacked by 64 shadows (10 parties under attack). A linear network is trained with noise
(batches of 50 of 100 rows, 20 epochs) and then predicts all public rows. *Rows laid* is LiRA. No attack goes
beyond the Rényi divergences of the training. One seed.

""",
    """
## Rows rebuilt

Digits of a class of one, two or five rows are estimated from the party's class sums, with the public rows'
mean and covariance for all that is known beforehand. Median distance in standard deviations a coordinate over
100 classes, beside that to the nearest public row, which is there for the taking. [Ratios without
noise](rebuilding.md) give small classes away exactly.

""",
)


if __name__ == "__main__":
    main()
