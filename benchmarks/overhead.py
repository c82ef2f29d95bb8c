"""What the framework adds to a round: parties whose models cost nothing, against a bare numpy loop.

    python benchmarks/overhead.py

10 parties, 20 rounds, 1000 public rows, 10 classes, float32. Both sides compute the same means; runs are
interleaved, and the medians and the bytes per message are printed as JSON.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from time import perf_counter

import numpy as np

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.learners import Learner
from consilience.learners.base import Abilities

PARTIES, ROUNDS, ROWS, CLASSES, REPEATS = 10, 20, 1000, 10, 15


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


def bare(predictions: list[np.ndarray]) -> np.ndarray:
    """What the mathematics needs: every round, stack what the parties say and take the mean."""
    for _ in range(ROUNDS):
        replies = [rows.astype(np.float32) for rows in predictions]
        teacher = np.stack(replies, dtype=np.float64).mean(axis=0).astype(np.float32)
        for _ in predictions:
            teacher.astype(np.float64)
    return teacher


def main() -> None:
    rng = np.random.default_rng(0)
    predictions = [rng.dirichlet(np.ones(CLASSES), ROWS) for _ in range(PARTIES)]
    X, y = rng.normal(size=(40, 2)), np.arange(40) % CLASSES
    parties = [Party(f"p{i}", Free(rows), X, y) for i, rows in enumerate(predictions)]
    federation = Federation(parties, rng.normal(size=(ROWS, 2)))
    protocol = ensemble_distillation(aggregate=avg(), rounds=ROUNDS)

    ours, theirs = [], []
    for _ in range(REPEATS):
        rounds = federation.rounds(protocol)
        next(rounds)  # joining and the first fit are not part of a round
        federation.network.deliveries.clear()
        start = perf_counter()
        last = list(rounds)[-1]
        ours.append((perf_counter() - start) / ROUNDS * 1e3)
        start = perf_counter()
        expected = bare(predictions)
        theirs.append((perf_counter() - start) / ROUNDS * 1e3)
    assert np.array_equal(last.teacher.values, expected)
    message = max(d.bytes_up for d in federation.network.deliveries)
    print(
        json.dumps(
            {
                "ms_per_round": statistics.median(ours),
                "ms_per_round_bare_numpy": statistics.median(theirs),
                "ms_per_round_added": statistics.median(
                    o - t for o, t in zip(ours, theirs, strict=True)
                ),
                "bytes_over_array_bytes": message / (ROWS * CLASSES * 4),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
