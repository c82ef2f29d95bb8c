"""Compare the teachers of the rule that chooses itself with the best that it could choose.

    python benchmarks/choosing.py                # two minutes
    python benchmarks/choosing.py --only digits  # a minute; writes no page

Parties are trained on their own rows once. Public labels judge teachers here, and choose nothing: accuracy
and log loss on the public rows of the plain mean, of ``density-ratio``, of ``auto``, and of the choice of
least log loss among all that ``auto`` has. Then every party in turn has its classes reordered, or says the
same of every row: is it named?
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from time import process_time
from typing import Any

import numpy as np
from consilience.core.aggregation.contradiction import contradicting
from page import table, write

from consilience import Federation, auto, avg, density_ratio
from consilience.core.aggregation.auto import CHOICES, Witnesses
from consilience.core.aggregation.base import Stack, stack
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.scores import DensityRatios
from consilience.core.networks import LocalNetwork
from consilience.core.protocols.base import questions, score_questions
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.validation.arrays import Array
from consilience.lab.experiments import gather, parse_spec

MLP = {
    "name": "mlp",
    "hidden": [64],
    "recipe": {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 32, "first_epochs": 20},
}
WORDS, TABLE = {"name": "tfidf-logistic"}, {"name": "random-forest"}
DATA: Mapping[str, tuple[dict[str, Any], Any, int]] = {
    "digits": ({"public": 400}, MLP, 10),
    "mnist": ({"public": 2000, "test_rows": 500}, MLP, 10),
    "fashion-mnist": ({"public": 2000, "test_rows": 500}, MLP, 10),
    "trec": ({"public": 1500}, WORDS, 6),
    "20newsgroups": ({"public": 1500, "test_rows": 500}, WORDS, 10),
    "heart-disease": ({"public": 0.2}, TABLE, 4),
}
DEALT: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "digits": {
        "2 of 10": {"name": "classes", "per_party": 2, "samples": 80},
        "5 of 10": {"name": "classes", "per_party": 5, "samples": 80},
        "all": {"name": "classes", "per_party": 10, "samples": 80},
        "Dirichlet(0.5)": {"name": "dirichlet", "alpha": 0.5, "min_rows": 10},
        "clusters of inputs": {"name": "clusters"},
    },
    "mnist": {
        "2 of 10": {"name": "classes", "per_party": 2, "samples": 400},
        "5 of 10": {"name": "classes", "per_party": 5, "samples": 400},
    },
    "fashion-mnist": {
        "2 of 10": {"name": "classes", "per_party": 2, "samples": 400},
        "all": {"name": "classes", "per_party": 10, "samples": 400},
    },
    "trec": {"2 of 6": {"name": "classes", "per_party": 2}, "all": {"name": "iid"}},
    "20newsgroups": {"4 of 20": {"name": "classes", "per_party": 4, "samples": 400}},
    "heart-disease": {"hospitals": {"name": "group"}},
}


def asked(data: str, dealt: Mapping[str, Any], seed: int) -> tuple[Replies, Array]:
    """What trained parties answer, calibrated and as they are, and the codes of the public rows' classes."""
    options, model, parties = DATA[data]
    document = {
        "name": "choosing",
        "data": {"name": data, **options},
        "partition": {**({} if dealt["name"] == "group" else {"parties": parties}), **dealt},
        "models": [model],
    }
    cohort = gather(parse_spec(document, where=data), seed)
    network = LocalNetwork(cohort.parties(), cohort.public)
    federation = Federation.over(network, cohort.public, seed=seed, strict=False)
    federation.form()
    network.ask(FitPrivate(round=1))
    rule = auto()
    replies = network.ask(
        *questions(rule, round=1),
        *score_questions(rule, round=1, static=True),
        PredictPublic(round=1),
    )
    assert cohort.public_labels is not None
    codes = [network.agreed.classes.index(str(label)) for label in cohort.public_labels]
    return replies, np.array(codes)


def judged(values: Array, labels: Array) -> str:
    """Accuracy and log loss of a teacher."""
    of_truth = np.maximum(values[np.arange(len(labels)), labels], 1e-6)
    return f"{(values.argmax(axis=1) == labels).mean():.3f}, {-np.log(of_truth).mean():.3f}"


def only(replies: Replies, place: int) -> Replies:
    """The replies with the calibrated predictions alone (0), or with those as they are (-1)."""
    answers = {}
    for party, given in replies.answers.items():
        said = [one for one in given if isinstance(one, Predictions)][place]
        answers[party] = (said, *(one for one in given if not isinstance(one, Predictions)))
    return Replies(answers, {})


def trial(data: str, dealt: Mapping[str, Any], seed: int) -> tuple[list[str], Array]:
    """Cells of a line; and how many honest, reordered, mended and frozen parties of how many were named."""
    replies, labels = asked(data, dealt, seed)
    calibrated, raw = only(replies, 0), only(replies, -1)
    rule = auto()
    begun = process_time()
    teacher = rule(calibrated)
    seconds = process_time() - begun
    told = stack(calibrated, needs=rule.needs)
    ratios = told.further[DensityRatios]
    seen = Witnesses(told.outputs, ratios)
    best = min((seen.teacher(one) for one in CHOICES), key=lambda t: loss(t, labels))
    cells = [judged(made.values, labels) for made in (avg()(raw), density_ratio()(raw), teacher)]
    chosen = teacher.notes[0].removeprefix("auto: density ratios, ").rsplit(", chosen", 1)[0]
    counts = np.zeros(5, dtype=int)
    for c, party in enumerate(told.parties):
        held = np.flatnonzero((ratios[c] > 0.05 * ratios[c].max()).any(axis=0))
        order = np.arange(ratios.shape[2])
        order[held] = np.roll(held, 1)
        reordered, frozen = told.outputs.copy(), told.outputs.copy()
        reordered[c], frozen[c] = told.outputs[c][:, order], told.outputs[c].mean(axis=0)
        honest, wrong, still = (
            [note for _, note in contradicting(Stack(told.parties, said, {}, told.classes), ratios)]
            for said in (told.outputs, reordered, frozen)
        )
        mine = [note for note in wrong if note.startswith(f"{party} ")]
        counts += [
            any(note.startswith(f"{party} ") for note in honest),
            bool(mine),
            any("another order" in note for note in mine),
            any(note.startswith(f"{party} ") for note in still),
            1,
        ]
    return [*cells, judged(best, labels), chosen, f"{seconds:.2f}"], counts


def loss(values: Array, labels: Array) -> float:
    """Log loss of a teacher."""
    return float(-np.log(np.maximum(values[np.arange(len(labels)), labels], 1e-6)).mean())


def lines(names: list[str], seeds: int) -> Iterator[str]:
    """The page's lines."""
    rows, named = [], np.zeros(5, dtype=int)
    for data in names:
        for setting, dealt in DEALT[data].items():
            for seed in range(seeds):
                cells, counts = trial(data, dealt, seed)
                rows.append([f"{data}, {setting}, seed {seed}", *cells])
                named += counts
                print(*rows[-1], *counts, sep=" | ", flush=True)
    honest, reordered, mended, frozen, parties = named
    yield "Accuracy and log loss of teachers on the public rows, whose labels choose nothing. Parties were"
    yield "trained on their own rows once; `best` is the choice of least log loss among all that `auto` has."
    yield ""
    heads = ["", "avg", "density-ratio", "auto", "best", "what auto chose", "CPU seconds"]
    yield from table(heads, rows)
    yield ""
    yield (
        f"Of {parties} honest parties {honest} were named as contradicting all others; with their classes "
        f"reordered {reordered}, and of {mended} it was said that another order mends it; with one answer to "
        f"every row {frozen}."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    found = list(lines(given.only, given.seeds))
    if given.only == list(DATA):
        write(__file__, found, about=f"seeds 0 to {given.seeds - 1}")
