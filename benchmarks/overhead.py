"""What the framework adds to a round: parties whose models cost nothing, against a bare numpy loop.

    python benchmarks/overhead.py

10 parties, 20 rounds, 1000 public rows, 10 classes, float32. Both sides compute the same means; runs are
interleaved; medians and the bytes per message go to docs/results/overhead.md.
"""

from __future__ import annotations

import statistics
from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.experiments.run import machine, versions
from consilience.learners import Learner
from consilience.learners.base import Abilities

PAGE = Path(__file__).parent.parent / "docs" / "results" / "overhead.md"
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
    added = statistics.median(o - t for o, t in zip(ours, theirs, strict=True))
    PAGE.write_text(
        f"""# overhead

`python benchmarks/overhead.py` · {REPEATS} interleaved runs · {date.today().isoformat()}

{machine()}, one numerical thread. {", ".join(f"{name} {v}" for name, v in versions().items())}.

{PARTIES} parties whose models cost nothing, {ROUNDS} rounds, {ROWS} public rows, {CLASSES} classes,
float32, in one process; medians.

| what | measured |
| --- | --- |
| a round | {statistics.median(ours):.2f} ms |
| the bare numpy loop | {statistics.median(theirs):.2f} ms |
| added by the framework | {added:.2f} ms |
| bytes of a reply over those of its array | {message / (ROWS * CLASSES * 4):.4f} |
""",
        encoding="utf-8",
    )
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
