"""Measure what liars and broken models do to honest parties, and whether an honest one is ever left out.

    python benchmarks/liars.py                          # all, in the order of their weight: hours
    python benchmarks/liars.py --parts default broken   # some of it
    python benchmarks/liars.py --parts                  # the page alone, of what is there

Ten parties with models of three kinds, and 400 public rows of which 100 have secret labels (heart disease:
200 and 50). In each trial so many parties lie, or bring a broken model, and after six rounds the accuracy of
the others on the test rows of all classes is taken. A trial is kept under runs/results/liars.jsonl as soon as
it is done, with a digest of the library's code, and not computed again with the same code.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from page import table, write
from rivals import _train_once, digest

from consilience import (
    Federation,
    auto,
    avg,
    coordinate_median,
    density_ratio,
    ensemble_distillation,
)
from consilience.aggregation import (
    Aggregator,
    centred_clipping,
    cronus,
    exp_guard,
    geometric_median,
    nearest_neighbours,
)
from consilience.aggregation.guard import Guard, SecretLabels
from consilience.errors import InvalidInput, RunFailed
from consilience.experiments import gather, parse_spec
from consilience.experiments.setup import SimulatedParties
from consilience.networks.hostile import ATTACKS, Hostile, HostileNetwork

KEPT = Path(__file__).parent.parent / "runs" / "results" / "liars.jsonl"
PARTIES, ROUNDS, CLEAN = 10, 6, 100
HELD = (10, 5, 2)
COUNTS = (1, 2, 3, 4)
MODELS = ("logistic-regression", "knn", "naive-bayes")
WORST = ("greedy", "claims-everywhere", "second-class", "sybil", "hips", "lma")
RULES = (
    "avg",
    "median",
    "geometric median",
    "Cronus",
    "nearest neighbours",
    "centred clipping",
    "ExpGuard",
    "avg, secret labels",
    "density-ratio",
    *("auto", "auto, cap, secret labels"),
)
BROKEN = ("constant", "shuffled labels", "another table")
PROTECTED, KNOWING = "auto, cap, secret labels", "auto, knowing who lies"
DEFAULTS = ("auto", PROTECTED)

Settings = Mapping[str, Aggregator]


class Trial(NamedTuple):
    """One federation of six rounds.

    Attributes:
        data: name of the data set.
        held: classes of each party.
        seed: of everything.
        attack: one of ``ATTACKS``, of ``BROKEN``, or ``"none"``.
        count: how many lie, are broken, or are known to lie.
        rule: name of a setting of :func:`settings`.
        parties: how many there are.
        alike: whether all but one have the same classes, and the one others; else everybody's are drawn.
    """

    data: str
    held: int
    seed: int
    attack: str
    count: int
    rule: str
    parties: int = PARTIES
    alike: bool | None = None


@lru_cache(maxsize=2)
def made(data: str, held: int, seed: int) -> SimulatedParties:
    """The parties of a seed, with so many classes each."""
    rows: dict[str, Any] = {"name": data, "public": 400, "test_rows": 500}
    dealt: dict[str, Any] = {"name": "classes", "per_party": held, "samples": 80}
    if data == "mnist":
        rows["flat"] = True
    if data == "heart-disease":
        rows["public"], dealt = 200, {"name": "iid"}
    document = {
        "name": "liars",
        "purpose": "taught",
        "data": rows,
        "partition": {**dealt, "parties": PARTIES},
        "models": list(MODELS),
    }
    return gather(parse_spec(document, where="liars"), seed)


def divided(setup: SimulatedParties, one: Trial) -> SimulatedParties:
    """The rows, dealt by classes to as many parties, whoever may have the same ones."""
    rng = np.random.default_rng([one.seed, one.parties, one.held])
    order = [rng.permutation(10) for _ in range(one.parties)]
    if one.alike:
        order = [order[0]] * (one.parties - 1) + [np.roll(order[0], -one.held)]
    sets = [classes[: one.held] for classes in order]
    y, everything = setup.dataset.y, np.concatenate(setup.rows)
    rows = tuple(
        np.sort(
            np.concatenate(
                [rng.permutation(everything[y[everything] == c])[: 80 // one.held] for c in held]
            )
        )
        for held in sets
    )
    tested = np.flatnonzero(np.isin(setup.dataset.y_test, np.concatenate(sets)))
    return replace(
        setup,
        dataset=setup.dataset.take_test(tested),
        names=setup.names[: one.parties],
        rows=rows,
        models=setup.models[: one.parties],
    )


def broken(setup: SimulatedParties, how: str, names: Sequence[str], seed: int) -> SimulatedParties:
    """The parties, the rows of some of which are wrong."""
    rng = np.random.default_rng(seed)
    X, y = setup.dataset.X.copy(), setup.dataset.y.copy()
    for name in names:
        rows = setup.rows[setup.names.index(name)]
        if how == "shuffled labels":
            y[rows] = rng.permutation(y[rows])
        else:  # another table, whose columns mean something else
            X[rows] = X[rows][:, rng.permutation(X.shape[1])]
    return replace(setup, dataset=replace(setup.dataset, X=X, y=y))


def settings(setup: SimulatedParties, liars: tuple[str, ...]) -> Settings:
    """The rules of the tables, with their guards."""
    assert setup.public_labels is not None
    count = secret_rows(setup)
    labels = tuple(str(one) for one in setup.public_labels[:count])
    secret = SecretLabels(np.arange(count), labels)
    capped = Guard(most_rows="median")
    sure = replace(capped, secret=secret)
    known = Guard(leave_out=liars)
    return {
        "avg": avg(),
        "median": coordinate_median(),
        "geometric median": geometric_median(),
        "Cronus": cronus(),
        "nearest neighbours": nearest_neighbours(),
        "centred clipping": centred_clipping(),
        "ExpGuard": exp_guard(),
        "avg, secret labels": replace(avg(), screen=Guard(secret=secret)),
        "density-ratio": density_ratio(),
        "auto": auto(),
        PROTECTED: replace(auto(), screen=sure),
        KNOWING: replace(auto(), screen=known),
        "avg, knowing who lies": replace(avg(), screen=known),
    }


def secret_rows(setup: SimulatedParties) -> int:
    """How many public rows have secret labels."""
    return len(setup.public) // 4


_learners: dict[Any, dict[str, Any]] = defaultdict(dict)


def tried(one: Trial) -> dict[str, Any]:
    """Run a trial: accuracy of each party that is honest, who was named in which round, who lied."""
    setup = made(one.data, one.held, one.seed)
    if one.alike is not None:
        setup = divided(setup, one)
    attack = one.attack if one.attack in ATTACKS else "random"
    hostile = Hostile(attack=attack, parties=one.count, after=2)
    liars = hostile.liars(setup.names, one.seed)
    lying: tuple[str, ...] = liars if one.attack in ATTACKS else ()
    rule = settings(setup, liars)[one.rule]
    trained: Any = one.data, one.held, one.seed, one.parties, one.alike
    if one.attack in BROKEN[1:]:
        setup = broken(setup, one.attack, liars, one.seed)
        trained = (*trained, one.attack, one.count)
    if trained not in _learners:
        _learners.clear()
    parties = setup.parties()
    for party in parties:
        _train_once(party, _learners[trained])
    network = HostileNetwork(
        parties, setup.public, hostile=hostile.model_copy(update={"parties": lying}), seed=one.seed
    )
    federation = Federation.over(network, setup.public, seed=one.seed, strict=False)
    named: dict[str, int] = {}
    told: dict[str, Any] = {"liars": liars, "named": named, "left_out": {}, "failed": ""}
    try:
        for round in federation.rounds(ensemble_distillation(rounds=ROUNDS, aggregate=rule)):
            if round.teacher is None:
                continue
            for note in round.teacher.notes:
                if (party := note.split(" ", 1)[0]) in setup.names:
                    named.setdefault(party, round.number)
            if round.teacher.weights is not None:
                for i in np.flatnonzero(~round.teacher.weights.any(axis=1)):
                    told["left_out"].setdefault(round.teacher.parties[i], round.number)
    except InvalidInput as refused:  # a table of other columns, before anything was trained
        told["failed"] = str(refused)[:200]
        told["named"] = {name: 0 for name in liars if name in str(refused)}
        return told
    except RunFailed as failed:
        told["failed"] = str(failed)[:200]
        return told
    told["accuracy"] = {
        name: round_to(metrics.values["accuracy"])
        for name, metrics in federation.evaluate(ROUNDS).items()
    }
    return told


def round_to(value: float) -> float:
    """As many digits as a page needs."""
    return round(float(value), 6)


# --- plans ------------------------------------------------------------------------------------------------


def plan(part: str, seeds: int) -> Iterator[Trial]:
    """The trials of a part, the weightiest first."""
    heavy = [*ATTACKS]
    if part == "default":
        for counts in ((4, 1), (2, 3)):
            for seed, held in product(range(seeds), HELD[:2]):
                yield from (
                    Trial("digits", held, seed, "none", 0, rule) for rule in ("avg", *DEFAULTS)
                )
                for count in counts:
                    yield Trial("digits", held, seed, "none", count, KNOWING)
                    for attack in heavy:
                        yield from (
                            Trial("digits", held, seed, attack, count, rule) for rule in DEFAULTS
                        )
    if part == "few classes":
        for seed in range(seeds):
            yield from (Trial("digits", 2, seed, "none", 0, rule) for rule in ("avg", *DEFAULTS))
            for count in (4, 1, 3, 2):
                yield Trial("digits", 2, seed, "none", count, KNOWING)
                for attack in heavy:
                    yield from (Trial("digits", 2, seed, attack, count, r) for r in DEFAULTS)
    if part == "others":
        for (data, held), count, seed in product(
            (("heart-disease", 2), ("mnist", 5), ("mnist", 10)), (4, 1, 3, 2), range(seeds)
        ):
            yield from (Trial(data, held, seed, "none", 0, rule) for rule in ("avg", *DEFAULTS))
            yield Trial(data, held, seed, "none", count, KNOWING)
            for attack in WORST + tuple(one for one in heavy if one not in WORST):
                yield from (Trial(data, held, seed, attack, count, rule) for rule in DEFAULTS)
    if part == "rules":
        for count, held in product((4, 1), (5, 10, 2)):
            for attack in ("none", *heavy):
                lying = count if attack != "none" else 0
                yield from (Trial("digits", held, 0, attack, lying, rule) for rule in RULES)
    if part == "broken":
        for seed in range(seeds):
            for held in HELD:
                for count in (1, 3, 2):
                    for rule in ("auto", "avg"):
                        yield Trial(
                            "digits", held, seed, "none", count, f"{rule}, knowing who lies"
                        )
                        for how in BROKEN:
                            yield Trial("digits", held, seed, how, count, rule)
    if part == "clean":
        for i in range(CLEAN):
            for rule in ("avg", "auto"):
                yield Trial(
                    "digits", (2, 5)[i % 2], i, "none", 0, rule, 3 + i // 2 % 8, i // 16 % 2 == 0
                )


PARTS = ("clean", "broken", "default", "few classes", "others", "rules")


def key(one: Trial) -> str:
    """Its line's key: the trial and the code."""
    return json.dumps([digest(), *one])


def stored() -> dict[str, dict[str, Any]]:
    """What was computed with this code, by :func:`key`."""
    if not KEPT.exists():
        return {}
    lines = (json.loads(line) for line in KEPT.read_text().splitlines())
    return {line["key"]: line for line in lines if line["key"].startswith(f'["{digest()}"')}


def compute(trials: Sequence[Trial]) -> None:
    """Run the trials that were not run with this code, and keep each."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    done = stored()
    for one in trials:
        if key(one) in done:
            continue
        line = {"key": key(one), **tried(one)}
        with KEPT.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(*one, line.get("failed") or f"{honest(line):.3f}", line["left_out"], flush=True)


def honest(line: Mapping[str, Any]) -> float:
    """Mean accuracy of the parties that did not lie, in percent of rows."""
    each = [value for name, value in line["accuracy"].items() if name not in line["liars"]]
    return 100 * float(np.mean(each))


# --- the page ---------------------------------------------------------------------------------------------


def accuracy(found: Mapping[str, Any], **about: Any) -> float:
    """Accuracy of the honest parties of a trial; NaN where it is not there."""
    line = found.get(key(Trial(**about)))
    return honest(line) if line and "accuracy" in line else np.nan


def losses(found: Mapping[str, Any], data: str, held: int, seeds: Sequence[int]) -> Iterator[str]:
    """Points that honest parties lose against knowing who lies, by attack and number of liars."""
    lost: dict[tuple[str, int], np.ndarray] = {}
    for rule, count in product(DEFAULTS, COUNTS):
        about: dict[str, Any] = {"data": data, "held": held, "count": count}
        each = [
            [
                accuracy(found, seed=seed, attack="none", rule=KNOWING, **about)
                - accuracy(found, seed=seed, attack=attack, rule=rule, **about)
                for attack in ATTACKS
            ]
            for seed in seeds
        ]
        there = np.isfinite(each).sum(axis=1)
        if there.max() >= len(WORST):  # of the seeds with most attacks
            lost[rule, count] = np.array(each)[there == there.max()]
    if not lost:
        return
    classes = "2 of 2" if data == "heart-disease" else f"{held} of 10"
    yield from (f"### {data}, {classes} classes a party", "")
    usual = {"data": data, "held": held, "attack": "none"}
    clean = (
        f"`{rule}` {np.nanmean(values):.1f} %"
        for rule in ("avg", *DEFAULTS)
        for values in [[accuracy(found, seed=s, count=0, rule=rule, **usual) for s in seeds]]
        if np.isfinite(values).any()
    )
    known = (
        f"{count}: {np.nanmean(values):.1f} %"
        for count in COUNTS
        for values in [[accuracy(found, seed=s, count=count, rule=KNOWING, **usual) for s in seeds]]
        if np.isfinite(values).any()
    )
    yield f"Nobody lies: {', '.join(clean)}. Liars left out from the start, by their number:"
    yield from (f"{', '.join(known)}.", "")
    heads = [f"`{rule}`, {count} ({len(lost[rule, count])})" for rule, count in lost]
    rows = [
        [attack, *(f"{one[:, i].mean():+.1f}".replace("+nan", "–") for one in lost.values())]
        for i, attack in enumerate(ATTACKS)
    ]
    worst = ["worst seed", *(f"{np.nanmax(one):+.1f}" for one in lost.values())]
    yield from table(["points lost: rule, liars (seeds)", *heads], [*rows, worst])
    yield ""


def accuracies(found: Mapping[str, Any]) -> Iterator[str]:
    """Accuracy of honest parties by attack and rule, on digits, one seed."""
    for held in HELD:
        rows, rules = [], RULES
        for attack, count in [("none", 0), *((a, c) for c in (4, 1) for a in ATTACKS)]:
            cells = [
                accuracy(
                    found, data="digits", held=held, seed=0, attack=attack, count=count, rule=rule
                )
                for rule in rules
            ]
            if np.isfinite(cells).all():
                rows.append(
                    [f"{attack}, {count}", *("–" if np.isnan(v) else f"{v:.0f}" for v in cells)]
                )
        if rows:
            yield from (f"### digits, {held} of 10 classes a party", "")
            yield from table(["attack, liars", *rules], rows)
            yield ""


def unmeant(found: Mapping[str, Any], seeds: Sequence[int]) -> Iterator[str]:
    """Broken models that nobody meant: who was found, and what others lost."""
    rows = []
    for held in HELD:
        for how in BROKEN:
            for rule in ("auto", "avg"):
                shares, others, worst, mean, trials = [], 0, [], [], 0
                for count in (1, 2, 3):
                    for seed in seeds:
                        about: Any = {"data": "digits", "held": held, "seed": seed, "count": count}
                        line = found.get(key(Trial(attack=how, rule=rule, **about)))
                        base = found.get(
                            key(Trial(attack="none", rule=f"{rule}, knowing who lies", **about))
                        )
                        if line is None or base is None:
                            continue
                        trials += 1
                        early = {name for name, number in line["named"].items() if number <= 2}
                        shares.append(len(early & set(line["liars"])) / count)
                        others += len(set(line["left_out"]) - set(line["liars"]))
                        if "accuracy" not in line:
                            continue
                        each = [
                            100 * (base["accuracy"][name] - value)
                            for name, value in line["accuracy"].items()
                            if name not in line["liars"]
                        ]
                        worst.append(max(each))
                        mean.append(float(np.mean(each)))
                if trials:
                    rows.append(
                        [
                            f"{held}, {how}, {rule}", str(trials), f"{np.mean(shares):.0%}", str(others),
                            f"{np.mean(mean):+.1f}", f"{np.max(mean):+.1f}", f"{np.max(worst):+.1f}",
                        ]
                    )  # fmt: skip
    if rows:
        heads = ["classes a party, what, rule", "trials", "found in two rounds", "others left out"]
        heads += ["points others lose", "worst trial", "worst party"]
        yield from table(heads, rows)
        yield ""


def cleanly(found: Mapping[str, Any]) -> str:
    """How many honest parties were left out where nobody lies."""
    said = []
    for rule in ("avg", "auto"):
        lines = [found.get(key(one)) for one in plan("clean", 1) if one.rule == rule]
        lines = [one for one in lines if one]
        parties = sum(len(one["accuracy"]) for one in lines if one)
        out = sum(len(one["left_out"]) for one in lines if one)
        said.append(f"under `{rule}` {out} of {parties} parties in {len(lines)} runs")
    return "Left out: " + "; ".join(said) + "."


ABOUT = (
    "Ten parties: logistic regressions, nearest neighbours and naive Bayes in turn, 80 rows each (heart",
    "disease: a tenth of the rows), models as they are taught. Liars see what honest parties answer in",
    "the same exchange (`consilience.networks.hostile`). *Cap*: 1.5 times the median claim; *labels*: a",
    "quarter of the public rows has secret ones. Accuracy is in percent of the test rows of all classes, the",
    f"mean over the honest parties after {ROUNDS} rounds; `sleeper` is honest for two.",
    "",
)


def page(seeds: int) -> Iterator[str]:
    """The page of what is there."""
    found = stored()
    yield from ABOUT
    yield from ("## Nobody lies", "")
    yield (
        f"Runs of {ROUNDS} rounds on digits, 3 to 10 parties with 2 or 5 classes each: in half of them all "
        "but one have the same classes and the one others, in half everybody's are drawn."
    )
    yield ""
    yield cleanly(found)
    yield from ("", "## Broken models that nobody meant, without any setting", "")
    yield "One to three of ten parties on digits; losses are against leaving these out from the start."
    yield ""
    yield from unmeant(found, range(seeds))
    yield from ("## What liars cost, against knowing who they are", "")
    yield "Below 0 the liars help, where their rows count or they say what others do. –: not measured."
    yield ""
    for data, helds in (("digits", HELD), ("mnist", HELD), ("heart-disease", (2,))):
        for held in helds:
            yield from losses(found, data, held, range(seeds))
    yield from ("## Every rule", "")
    yield "Percent of the test rows that honest parties have right, seed 0."
    yield ""
    yield from accuracies(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    for part in given.parts:
        compute(list(plan(part, given.seeds)))
    write(__file__, page(given.seeds), about=f"code {digest()} · up to {given.seeds} seeds")
