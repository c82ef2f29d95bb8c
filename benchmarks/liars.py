"""Measure what liars do to teachers and to honest parties: attacks against rules, caps and secret labels.

    python benchmarks/liars.py                     # four minutes on a quiet machine
    python benchmarks/liars.py --parts teachers    # one

Digits, ten parties with 2, 5 or 10 classes each, 400 public rows of which 100 have secret labels. First the
teachers of one round, accuracy on the 300 other public rows: parties are trained once, and liars replaced by
each attack. Then six rounds, and the honest parties' accuracy on the test rows of all classes. Then broken
models that nobody meant, without any setting; and clean runs, in which nobody should be left out.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from page import table, write

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
from consilience.errors import InvalidInput
from consilience.experiments import gather, parse_spec
from consilience.experiments.setup import SimulatedParties
from consilience.messages.replies import Predictions, Replies
from consilience.networks import LocalNetwork
from consilience.networks.hostile import ATTACKS, Hostile, HostileNetwork
from consilience.protocols.base import score_questions, suited
from consilience.tasks.predictions import FitPrivate, PredictPublic

PARTIES, SECRET, ROUNDS = 10, 100, 6
HELD = (10, 5, 2)
LIARS = (1, 4)
MODELS = ("logistic-regression", "knn", "naive-bayes")
ROUNDS_OF = ("second-class", "greedy", "sleeper")
BROKEN = ("constant", "shuffled labels", "another table")

Settings = Mapping[str, Aggregator]


def made(held: int, seed: int) -> SimulatedParties:
    """The parties of a seed, with so many classes each."""
    document = {
        "name": "liars",
        "purpose": "taught",
        "data": {"name": "digits", "public": 400, "test_rows": 500},
        "partition": {"name": "classes", "parties": PARTIES, "per_party": held, "samples": 80},
        "models": list(MODELS),
    }
    return gather(parse_spec(document, where="liars"), seed)


def settings(setup: SimulatedParties, liars: tuple[str, ...]) -> Settings:
    """The rules of the table, with their guards."""
    assert setup.public_labels is not None
    labels = tuple(str(one) for one in setup.public_labels[:SECRET])
    secret = SecretLabels(np.arange(SECRET), labels)
    capped = Guard(most_rows="median")
    sure = replace(capped, secret=secret)
    return {
        "avg, unwatched": replace(avg(), screen=Guard(watch=False)),
        "avg": avg(),
        "median": coordinate_median(),
        "geometric median": geometric_median(),
        "Cronus": cronus(),
        "nearest neighbours": nearest_neighbours(),
        "centred clipping": centred_clipping(),
        "ExpGuard": exp_guard(),
        "avg, secret labels": replace(avg(), screen=replace(Guard(), secret=secret)),
        "density-ratio": density_ratio(),
        "density-ratio, cap": replace(density_ratio(), screen=capped),
        "density-ratio, cap, secret labels": replace(density_ratio(), screen=sure),
        "auto": auto(),
        "auto, cap, secret labels": replace(auto(), screen=sure),
        "auto, knowing who lies": replace(auto(), screen=replace(capped, leave_out=liars)),
    }


def trained(setup: SimulatedParties, seed: int, hostile: Hostile) -> HostileNetwork:
    """A network of parties that have been trained on their own rows."""
    network = HostileNetwork(setup.parties(), setup.public, hostile=hostile, seed=seed)
    Federation.over(network, setup.public, seed=seed, strict=False).form()
    network.ask(FitPrivate(round=1))
    return network


def asked(replies: Replies, rule: Aggregator) -> Replies:
    """The replies that a rule would have asked for: predictions, calibrated or not, and its scores."""
    answers = {}
    for party, given in replies.answers.items():
        said = [one for one in given if isinstance(one, Predictions)][0 if rule.calibrated else 1]
        answers[party] = (said, *(one for one in given if isinstance(one, rule.needs)))
    return Replies(answers, {})


def first_round(held: int, seed: int) -> Iterator[tuple[tuple[str, int], str, float]]:
    """Attack and number of liars, setting, and accuracy of the teacher after one round."""
    setup = made(held, seed)
    network = trained(setup, seed, Hostile(attack="random"))
    assert setup.public_labels is not None
    true = setup.public_labels[SECRET:]
    for attack, count in [("none", 0), *((a, f) for f in LIARS for a in ATTACKS if a != "sleeper")]:
        network.hostile = Hostile(attack="random" if attack == "none" else attack, parties=count)
        network.liars = network.hostile.liars(network.parties, seed)
        claims = network.ask(*score_questions(auto(), round=1, static=True))
        said = network.ask(PredictPublic(round=1, calibrated=True), PredictPublic(round=1))
        answers = {name: (*said.answers[name], *claims.answers[name]) for name in said}
        for name, rule in settings(setup, network.liars).items():
            rule = suited(rule, network.agreed)
            values = rule(asked(Replies(answers, {}), rule)).values
            guessed = np.asarray(network.agreed.classes)[values.argmax(axis=1)][SECRET:]
            yield (attack, count), name, float((guessed == true).mean())


def six_rounds(held: int, seed: int, attack: str, count: int) -> Iterator[tuple[str, float]]:
    """Setting, and accuracy of the honest parties after six rounds."""
    setup = made(held, seed)
    hostile = Hostile(attack="random" if attack == "none" else attack, parties=count, after=2)
    liars = hostile.liars(setup.names, seed)
    for name, rule in settings(setup, liars).items():
        if name not in ("avg", "ExpGuard") and not name.startswith("auto"):
            continue
        network = HostileNetwork(setup.parties(), setup.public, hostile=hostile, seed=seed)
        yield name, learned(setup, network, rule, seed, liars)[0]


def learned(
    setup: SimulatedParties,
    network: LocalNetwork,
    rule: Aggregator,
    seed: int,
    apart: tuple[str, ...],
) -> tuple[float, dict[str, float], dict[int, set[str]]]:
    """Mean accuracy of all parties but some after six rounds, of each, and who was left out in each round."""
    federation = Federation.over(network, setup.public, seed=seed, strict=False)
    named: dict[int, set[str]] = defaultdict(set)
    for round in federation.rounds(ensemble_distillation(rounds=ROUNDS, aggregate=rule)):
        if round.teacher is not None and round.teacher.weights is not None:
            idle = ~round.teacher.weights.any(axis=1)
            named[round.number] |= set(np.array(round.teacher.parties)[idle])
    metrics = federation.evaluate(ROUNDS)
    each = {name: one.values["accuracy"] for name, one in metrics.items() if name not in apart}
    return float(np.mean(list(each.values()))), each, named


def broken(
    setup: SimulatedParties, how: str, count: int, seed: int
) -> tuple[SimulatedParties, tuple[str, ...]]:
    """The parties, some of whose rows or models were broken; and their names."""
    rng = np.random.default_rng(seed)
    names = tuple(sorted(rng.permutation(setup.names)[:count].tolist()))
    X, y = setup.dataset.X.copy(), setup.dataset.y.copy()
    for name in names:
        rows = setup.rows[setup.names.index(name)]
        if how == "shuffled labels":
            y[rows] = rng.permutation(y[rows])
        elif how == "another table":  # whose columns mean something else
            X[rows] = X[rows][:, rng.permutation(X.shape[1])]
    return replace(setup, dataset=replace(setup.dataset, X=X, y=y)), names


def unmeant(held: int, seed: int, how: str, count: int) -> Iterator[tuple[str, list[float]]]:
    """Rule; worst loss of another party's accuracy, mean loss, share found, and whether anybody else was."""
    sound = made(held, seed)
    setup, names = broken(sound, how, count, seed)
    for rule in (avg(), auto()):
        unheard = replace(rule, screen=Guard(leave_out=names))
        _, usual, _ = learned(sound, LocalNetwork(sound.parties(), sound.public), unheard, seed, ())
        if how == "constant":
            hostile = Hostile(attack="constant", parties=names)
            network: LocalNetwork = HostileNetwork(
                setup.parties(), setup.public, hostile=hostile, seed=seed
            )
        else:
            network = LocalNetwork(setup.parties(), setup.public)
        try:
            _, each, named = learned(setup, network, rule, seed, names)
        except (
            InvalidInput
        ) as refused:  # before anything was trained: its columns are on another scale
            assert any(name in str(refused) for name in names)
            yield rule.name, [0.0, 0.0, 1.0, 0.0]
            continue
        lost = [usual[name] - value for name, value in each.items()]
        early = named[1] | named[2]
        everybody = set().union(*named.values())
        yield (
            rule.name,
            [
                max(lost),
                float(np.mean(lost)),
                len(early & set(names)) / count,
                len(everybody - set(names)),
            ],
        )


def clean(held: int, seed: int) -> list[int]:
    """How many honest parties were left out in six clean rounds: by avg and auto, and with secret labels."""
    setup = made(held, seed)
    found = []
    chosen = settings(setup, ())
    for name in ("avg", "auto", "avg, secret labels", "auto, cap, secret labels"):
        network = LocalNetwork(setup.parties(), setup.public)
        *_, named = learned(setup, network, chosen[name], seed, ())
        found.append(len(set().union(*named.values())))
    return found


def teachers(seeds: int) -> Iterator[str]:
    """Teachers of the first round, by attack and rule."""
    for held in HELD:
        tables: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for seed in range(seeds):
            for key, name, accuracy in first_round(held, seed):
                tables[key][name].append(accuracy)
        yield from (f"## {held} of 10 classes a party: teachers of the first round", "")
        names = list(next(iter(tables.values())))
        yield from table(
            ["attack, liars", *names],
            (
                [f"{attack}, {count}", *(f"{np.mean(row[name]):.2f}" for name in names)]
                for (attack, count), row in tables.items()
            ),
        )
        yield ""


def models(seeds: int) -> Iterator[str]:
    """Broken models, and clean runs."""
    yield from ("## Broken models that nobody meant, without any setting", "")
    rows = []
    for held, how, count in product(HELD, BROKEN, (1, 3)):
        tried: dict[str, list[list[float]]] = defaultdict(list)
        for seed in range(seeds):
            for name, row in unmeant(held, seed, how, count):
                tried[name].append(row)
        for name, each in tried.items():
            worst, mean, share, others = np.array(each).T
            cells = (
                f"{worst.max():+.3f}",
                f"{mean.mean():+.3f}",
                f"{share.mean():.0%}",
                f"{others.sum():.0f}",
            )
            rows.append([f"{held}, {how}, {count}, {name}", *cells])
    heads = ["classes a party, what, parties, rule", "most that another loses", "mean loss"]
    yield from table([*heads, "found in two rounds", "others left out"], rows)
    yield ""
    parties = len(HELD) * seeds * PARTIES
    counted = np.sum([clean(held, seed) for held in HELD for seed in range(seeds)], axis=0)
    yield (
        f"Of {parties} honest parties in clean runs of {ROUNDS} rounds {counted[0]} were left out under avg, "
        f"{counted[1]} under auto, {counted[2]} under avg with secret labels, {counted[3]} under auto with a "
        "cap and secret labels."
    )
    yield ""


def rounds(seeds: int) -> Iterator[str]:
    """Honest parties after all rounds, by attack and rule."""
    yield from (f"## Honest parties after {ROUNDS} rounds", "")
    rows, names = [], []
    for held, (attack, count) in product(HELD, [("none", 0), *((one, 4) for one in ROUNDS_OF)]):
        got: dict[str, list[float]] = defaultdict(list)
        for seed in range(seeds):
            for name, accuracy in six_rounds(held, seed, attack, count):
                got[name].append(accuracy)
        names = list(got)
        rows.append([f"{held}, {attack}, {count}", *(f"{np.mean(got[n]):.2f}" for n in names)])
    yield from table(["classes a party, attack, liars", *names], rows)


PARTS = {"teachers": teachers, "models": models, "rounds": rounds}

ABOUT = (
    "Digits, ten parties: logistic regressions, nearest neighbours and naive Bayes in turn. Liars see what",
    "honest parties answer (`consilience.networks.hostile`). *cap*: 1.5 times the median claim; *secret",
    "labels*: 100 of the 400 public rows; *unwatched*: without the check that is always on. Accuracy of",
    "teachers is on the 300 other public rows, whose labels nobody uses.",
    "",
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    found = list(ABOUT)
    for part in given.parts:
        found += PARTS[part](given.seeds)
    seeds = f"{given.seeds} seeds" if given.seeds > 1 else "seed 0"
    write(__file__, found, about=f"`--parts {' '.join(given.parts)}` · {seeds}")
