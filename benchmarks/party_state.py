"""Time a party's writing of its state before every answer: ms per message, by size of the model.

    python benchmarks/party_state.py [FOLDER]     # FOLDER: on the disk to be measured; a minute

"bare" are the same tasks in memory; "answer" is a party whose process stays, "anew" one that is started for
every message and reads its state first, as over Flower. "flush" is what of an answer the disk takes (fsync).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np

from consilience import Party
from consilience.learners import make
from consilience.messages.schema import Agreement, Public
from consilience.messages.wire import decode, encode
from consilience.site import EVERYTHING, PartySite
from consilience.tasks.base import Task
from consilience.tasks.lifecycle import Join
from consilience.tasks.outgoing import answer
from consilience.tasks.predictions import Distill, FitPrivate, PredictPublic

RECIPE = {"epochs": 1, "first_epochs": 1, "distill_epochs": 1, "batch_size": 512}
MODELS = {
    "logistic-regression": {},
    "random-forest": {"n_estimators": 100},
    "mlp": {"hidden": [64], "recipe": RECIPE},
    "mlp, 1 million numbers": {"hidden": [1000, 900], "recipe": RECIPE},
}
ROWS, PUBLIC, ROUNDS = 500, 1000, 8


def party_of(name: str) -> Party:
    """A party with 500 rows of 64 numbers, 10 classes and 1,000 public rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 64)).astype(np.float32)
    party = Party("a", make(name.partition(",")[0], **MODELS[name]), X, np.arange(ROWS) % 10)
    party.public = Public(rng.normal(size=(PUBLIC, 64)).astype(np.float32))
    return party


def tasks(party: Party) -> Iterator[tuple[str, tuple[Task, ...]]]:
    """The tasks of a run, message by message."""
    assert party.public is not None
    agreed = Agreement(
        kind="classification",
        classes=party.classes,
        outputs=10,
        public=party.public.key,
        rows=PUBLIC,
        seed=0,
    )
    yield "join", (Join(agreement=agreed),)
    teacher = np.full((PUBLIC, 10), 0.1, dtype=np.float32)
    for t in range(1, ROUNDS + 1):
        yield "train and predict", (FitPrivate(round=t), PredictPublic(round=t))
        yield "predict", (PredictPublic(round=t, outputs="logits"),)
        yield "distil", (Distill(round=t, targets=teacher, alpha=0.5),)


def taken(name: str, ask: Callable[[bytes], object]) -> dict[str, float]:
    """Median seconds of each kind of message."""
    found: dict[str, list[float]] = {}
    for what, asked in tasks(party_of(name)):
        request = encode(asked)
        start = perf_counter()
        ask(request)
        found.setdefault(what, []).append(perf_counter() - start)
    return {what: float(np.median(times)) for what, times in found.items()}


def in_memory(name: str) -> dict[str, float]:
    """Milliseconds per message without a state."""
    party = party_of(name)
    return taken(name, lambda request: encode(answer(party, decode(request))))


@contextmanager
def unflushed() -> Iterator[None]:
    """Without waiting for the disk."""
    flush = os.fsync
    os.fsync = lambda handle: None
    try:
        yield
    finally:
        os.fsync = flush


def on_disk(name: str, home: Path | None, *, anew: bool = False) -> dict[str, float]:
    """Median seconds of each kind of message at a site, opened once or for every message."""
    with tempfile.TemporaryDirectory(dir=home) as folder:
        made = party_of(name)

        def opened() -> PartySite:
            return PartySite(lambda: made, Path(folder), limits=EVERYTHING)

        def ask(request: bytes) -> None:
            with opened() as site:
                site.answer(request)

        if anew:
            return taken(name, ask)
        with opened() as site:
            return taken(name, site.answer)


def main() -> None:
    """Print one line per model and message."""
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(f"{'ms':<24}{'message':<20}{'bare':>9}{'answer':>9}{'anew':>9}{'flush':>9}")
    for name in MODELS:
        in_memory(name)  # imports libraries
        bare, kept, anew = in_memory(name), on_disk(name, home), on_disk(name, home, anew=True)
        with unflushed():
            unwaited = on_disk(name, home)
        for what in bare:
            columns = (bare[what], kept[what], anew[what], kept[what] - unwaited[what])
            print(f"{name:<24}{what:<20}" + "".join(f"{1e3 * one:>9.1f}" for one in columns))


if __name__ == "__main__":
    main()
