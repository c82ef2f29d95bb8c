"""Measure accuracy by CPU seconds of training: networks for CIFAR-10, models for texts.

    python benchmarks/networks_and_text.py --seeds 3                    # quarter of an hour
    python benchmarks/networks_and_text.py --checkpoint FOLDER          # fine-tuned, three minutes; no page
    python benchmarks/networks_and_text.py --sides 64 96 128            # of photographs, two minutes; no page

Central training, as one party would do with all of these rows. Networks train, an epoch at a time and each
with a fresh optimizer as in the rounds of a federation, until so many CPU seconds are used. Held-out rows are
of the training files: by them the presets' settings were chosen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from page import write

from consilience.core.learners import Learner, make
from consilience.core.numerics.randomness import limited_threads, stream
from consilience.lab.data import load

BUDGETS = (10, 20)
"""CPU seconds."""
NETWORKS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "`cnn`": ("cnn", {}, {}),
    "`cnn`, channels = [32, 64], hidden = 128": ("cnn", {"channels": (32, 64), "hidden": 128}, {}),
    "`resnet8`": ("resnet8", {}, {}),
    "`resnet8`, augmented": ("resnet8", {}, {"augment": {"crop": 4, "flip": True}}),
    "`resnet18`, width = 8": ("resnet18", {"width": 8}, {}),
}
"""What it is called, the preset, its options, its recipe."""
FINE_TUNED = {
    "longest": 32,
    "recipe": {"learning_rate": 1e-4, "batch_size": 16, "first_epochs": 4},
}
EMBEDDING = {"learning_rate": 5e-3, "first_epochs": 8}
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "`tfidf-logistic`": ("tfidf-logistic", {}),
    "`text-embedding`": ("text-embedding", {"recipe": EMBEDDING}),
    "`text-embedding`, ngrams = 2": ("text-embedding", {"ngrams": 2, "recipe": EMBEDDING}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="of a pretrained transformer")
    parser.add_argument("--sides", nargs="+", type=int, help="pixels that an encoder sees")
    given = parser.parse_args()
    if given.sides:
        with limited_threads(1):
            for line in sides(given.sides):
                print(line, flush=True)
        return
    seeds, lines = range(given.seeds), []
    if given.checkpoint:
        TEXTS.clear()
        TEXTS.update(
            {
                "`tfidf-logistic`": ("tfidf-logistic", {}),
                "`static-logistic`": ("static-logistic", {}),
                "`transformer`": ("transformer", {"pretrained": given.checkpoint, **FINE_TUNED}),
            }
        )
        with limited_threads(1):
            for line in texts("trec", seeds, rows=400):
                print(line, flush=True)
        return
    with limited_threads(1):
        for line in chain(texts("trec", seeds), texts("20newsgroups", seeds), images(seeds)):
            print(line, flush=True)
            lines.append(line)
    write(__file__, lines, about=f"seeds {', '.join(map(str, seeds))}")


def images(seeds: Sequence[int], *, rows: int = 4000, held_out: int = 1000) -> Iterator[str]:
    """Accuracy on held-out and on test images after each budget."""
    data = load("cifar-10")
    yield f"## CIFAR-10, {rows:,} images"
    yield ""
    yield (
        f"Accuracy in %, mean of the seeds, on {held_out:,} held-out training images and on 2,000 of the "
        "test images, after so many CPU seconds of training on one core. Adam, 0.001, batches of 32."
    )
    yield ""
    heads = [f"{side}, {budget} s" for budget in BUDGETS for side in ("held out", "test")]
    yield f"| network | parameters | {' | '.join(heads)} | epochs |"
    yield f"| --- |{' ---: |' * (len(heads) + 2)}"
    for label, (name, options, recipe) in NETWORKS.items():
        found, epochs, size = [], [], 0
        for seed in seeds:
            rng = stream(seed, "networks", 0, "rows")
            picked = rng.choice(len(data.X), rows + held_out, replace=False)
            own, others = picked[:rows], picked[rows:]
            tests = rng.choice(len(data.X_test), 2000, replace=False)
            learner: Any = make(name, **options, recipe={"first_epochs": 1, "epochs": 1, **recipe})
            learner.bind(10)
            used, count, scores = 0.0, 0, []
            for budget in BUDGETS:
                while used < budget:
                    start = time.process_time()
                    learner.fit(data.X[own], np.eye(10)[data.y[own]], rng=rng)
                    used, count = used + time.process_time() - start, count + 1
                scores += [
                    accuracy(learner, data.X[others], data.y[others]),
                    accuracy(learner, data.X_test[tests], data.y_test[tests]),
                ]
            found.append(scores)
            epochs.append(count)
            size = sum(part.numel() for part in learner.module.parameters())
        cells = [f"{score:.1f}" for score in np.mean(found, axis=0)]
        yield f"| {label} | {size:,} | {' | '.join(cells)} | {np.mean(epochs):.0f} |"


def texts(name: str, seeds: Sequence[int], rows: int | None = None) -> Iterator[str]:
    """Accuracy on held-out and on test texts, and what training took, of all texts or of so many."""
    data = load(name)
    yield f"## {name}"
    yield ""
    yield (
        f"Accuracy in %, mean of the seeds, trained on {rows or 'four fifths of the training'} rows: on a "
        "fifth of the training rows, and "
        f"on the {len(data.X_test):,} test rows."
    )
    yield ""
    yield "| model | held out | test | CPU seconds |"
    yield "| --- | ---: | ---: | ---: |"
    for label, (preset, options) in TEXTS.items():
        found = []
        for seed in seeds:
            rng = stream(seed, "texts", 0, "rows")
            order = rng.permutation(len(data.X))
            own, others = np.split(order, [len(order) * 4 // 5])
            own = own[:rows]
            learner = make(preset, **options)
            learner.bind(len(data.classes or ()))
            start = time.process_time()
            targets = np.eye(learner.n_outputs)[data.y[own]]
            learner.fit(data.X[own], targets, rng=rng, phase="first")
            used = time.process_time() - start
            found.append(
                [
                    accuracy(learner, data.X[others], data.y[others]),
                    accuracy(learner, data.X_test, data.y_test),
                    used,
                ]
            )
        held_out, test, seconds = np.mean(found, axis=0)
        yield f"| {label} | {held_out:.1f} | {test:.1f} | {seconds:.1f} |"
    yield ""


def sides(pixels: Sequence[int], *, rows: int = 1000, held_out: int = 600) -> Iterator[str]:
    """Accuracy on held-out training images by the size that pictures are brought to, and time of one."""
    from consilience.models.encoders import photographs
    from consilience.models.encoders.encoders import find_encoder

    data = load("cifar-10")
    picked = stream(0, "networks", 0, "rows").permutation(len(data.X))[: rows + held_out]
    for side in pixels:
        photographs.SIDE = side
        start = time.process_time()
        X = find_encoder("photographs").compute(data.X[picked])  # type: ignore[attr-defined]
        used = (time.process_time() - start) / len(picked)
        learner = make("logistic-regression", C=0.02)
        learner.bind(10)
        targets = np.eye(10)[data.y[picked[:rows]]]
        learner.fit(X[:rows], targets, rng=stream(0, "networks", 0, "fit"))
        right = accuracy(learner, X[rows:], data.y[picked[rows:]])
        yield f"{side} pixels: {right:.1f} % of {held_out} held-out images, {1000 * used:.1f} ms a picture"


def accuracy(learner: Learner, X: np.ndarray, y: np.ndarray) -> float:
    """In %."""
    return 100 * float((learner.predict(X).argmax(axis=1) == y).mean())


if __name__ == "__main__":
    main()
