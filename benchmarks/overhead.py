"""Time what the framework adds to a round: parties whose models cost nothing, against a bare numpy loop.

    python benchmarks/overhead.py      # two minutes; without Ray, nothing of Flower's engine

10 parties for 20 rounds and 50 for 10; 1,000 public rows, 10 classes, float32. All sides compute the same
means; a federation also looks for liars among the answers (``aggregation.guard``), which is mathematics too
and is timed by itself. Seconds of the processor, which other work on the machine moves less than those of the
clock; runs are interleaved; medians. Flower's simulation engine is benchmarks/flower_simulation.py: its
rounds, and everything from its start to its end.
"""

from __future__ import annotations

import statistics
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
import page

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.aggregation.guard import Guard
from consilience.core.learners import Learner
from consilience.core.learners.base import Abilities

SIZES, ROWS, CLASSES, REPEATS, ENGINES = ((10, 20), (50, 10)), 1000, 10, 15, 5


class Free(Learner):
    """Answers with the same rows whatever it is taught."""

    abilities = Abilities(kind="classification", soft_targets="native", incremental=True)
    suffix = ".none"

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def fit(self, X, targets, *, rng, weights=None, validation=None, phase="private"):
        pass

    def predict(self, X):
        return self.rows

    @property
    def fitted(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        raise NotImplementedError

    def load(self, path: Path) -> None:
        raise NotImplementedError


def bare(predictions: list[np.ndarray], rounds: int) -> np.ndarray:
    """Do the bare mathematics: in every round, stack the parties' predictions and take the mean."""
    for _ in range(rounds):
        replies = [rows.astype(np.float32) for rows in predictions]
        teacher = np.stack(replies, dtype=np.float64).mean(axis=0).astype(np.float32)
    return teacher


def measured(parties: int, rounds: int) -> list[str]:
    """A line of the table."""
    rng = np.random.default_rng(0)
    predictions = [rng.dirichlet(np.ones(CLASSES), ROWS) for _ in range(parties)]
    X, y = rng.normal(size=(40, 2)), np.arange(40) % CLASSES
    # A choice between models would be work of the parties' own, and this model can only answer public rows.
    members = [
        Party(f"p{i:02d}", Free(rows), X, y, purpose="taught") for i, rows in enumerate(predictions)
    ]
    federation = Federation(members, rng.normal(size=(ROWS, 2)))
    protocol = ensemble_distillation(aggregate=avg(), rounds=rounds)

    ours, theirs, guards = [], [], []
    for _ in range(REPEATS):
        going = federation.rounds(protocol)
        next(going)  # joining and the first fit are not part of a round
        federation.network.deliveries.clear()
        start = process_time()
        last = list(going)[-1]
        ours.append((process_time() - start) / rounds * 1e3)
        start = process_time()
        expected = bare(predictions, rounds)
        theirs.append((process_time() - start) / rounds * 1e3)
        start = process_time()
        for _ in range(rounds):
            Guard()(last.replies, {})
        guards.append((process_time() - start) / rounds * 1e3)
    assert np.array_equal(last.teacher.values, expected)
    message = max(d.bytes_up for d in federation.network.deliveries)
    sides = list(zip(ours, theirs, guards, strict=True))
    added = statistics.median(one - loop for one, loop, _ in sides)
    times = statistics.median((one - loop) / loop for one, loop, _ in sides)
    guarded = statistics.median((one - loop - by) / (loop + by) for one, loop, by in sides)
    engine, whole = flower(predictions, rounds)
    return [
        f"{parties} × {rounds}",
        f"{statistics.median(ours):.2f}",
        f"{statistics.median(theirs):.2f}",
        f"{statistics.median(guards):.2f}",
        f"{added:.2f}",
        f"{times:.1f}",
        f"{guarded:.1f}",
        f"{message / (ROWS * CLASSES * 4):.4f}",
        engine,
        whole,
    ]


def flower(predictions: list[np.ndarray], rounds: int) -> tuple[str, str]:
    """Milliseconds of a round of Flower's engine, and seconds of all of it; nothing without Ray."""
    if not find_spec("ray"):
        return "", ""
    from flower_simulation import simulate

    rows = [said.astype(np.float32) for said in predictions]
    found = [
        simulate(lambda client, mean, context: rows[client], clients=len(rows), rounds=rounds)
        for _ in range(ENGINES)
    ]
    each = [
        statistics.median(seconds[1:]) for _, seconds in found
    ]  # the first one starts the workers
    return f"{statistics.median(each) * 1e3:.0f}", f"{statistics.median(f[0] for f in found):.1f}"


def section() -> list[str]:
    """Lines of the page, from runs made now."""
    heads = [
        *("parties × rounds", "a round, ms", "bare numpy loop, ms", "the guard alone, ms"),
        *("added to the loop, ms", "in bare loops", "beside loop and guard, in these"),
        *(
            "bytes of a reply over those of its array",
            "a round of Flower's engine, ms",
            "all of it, s",
        ),
    ]
    return [
        f"Parties whose models cost nothing, {ROWS:,} public rows, {CLASSES} classes, float32; medians of "
        f"{REPEATS} interleaved runs, of Flower's engine {ENGINES}.",
        "",
        *page.table(heads, [measured(*size) for size in SIZES]),
    ]


if __name__ == "__main__":
    print("\n".join(section()))
