"""Measure two checkouts of the package in turns: the start of a run, and the cost of a round.

    python benchmarks/paired.py OLD [REPEATS]     # OLD: another checkout; five minutes

Every number is of a process of its own, in seconds of the processor, which other work on the machine moves
less than those of the clock; the two checkouts take turns, and ratios are of pairs. Medians and ranges.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import page
from startup import EXAMPLES, IMPORT, RUN, SKLEARN

HERE = Path(__file__).parent.parent
REPEATS = 5

ROUND = """
import sys, time
from statistics import median
import numpy as np
from overhead import CLASSES, ROWS, Free, bare
from consilience import Federation, Party, avg, ensemble_distillation

count, rounds = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
predictions = [rng.dirichlet(np.ones(CLASSES), ROWS) for _ in range(count)]
X, y = rng.normal(size=(40, 2)), np.arange(40) % CLASSES
members = [Party(f"p{i:02d}", Free(rows), X, y, purpose="taught") for i, rows in enumerate(predictions)]
federation = Federation(members, rng.normal(size=(ROWS, 2)))
found = []
for _ in range(6):
    going = federation.rounds(ensemble_distillation(aggregate=avg(), rounds=rounds))
    next(going)
    for _ in range(rounds):
        start = time.process_time()
        next(going)
        middle = time.process_time()
        bare(predictions, 1)
        found.append((1e3 * (middle - start), 1e3 * (time.process_time() - middle)))
ours, theirs = map(median, zip(*found, strict=True))
print(ours, theirs, (ours - theirs) / theirs)
"""


def started(checkout: Path, example: str) -> float:
    """Seconds until the first party of an example is asked to train."""
    with TemporaryDirectory() as folder:
        words = ["run", str(EXAMPLES / example), "--quiet", "--out", f"{folder}/run"]
        return float(said(checkout, RUN, *words)[1])


def imported(checkout: Path) -> float:
    """Seconds for scikit-learn's own modules."""
    return float(said(checkout, IMPORT.format(SKLEARN))[1])


def said(checkout: Path, code: str, *words: str) -> list[str]:
    """Words that a process of a checkout prints."""
    path = os.pathsep.join(str(checkout / part) for part in ("src", "benchmarks"))
    setting = {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=setting,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return done.stdout.split()


def line(what: str, pairs: list[tuple[float, float]], digits: int) -> list[str]:
    """A row of the table."""
    old, new = zip(*pairs, strict=True)
    ratios = [b / a for a, b in pairs]
    cells = [
        f"{median(side):.{digits}f} ({min(side):.{digits}f} to {max(side):.{digits}f})"
        for side in (old, new)
    ]
    return [what, *cells, f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]


def main() -> None:
    """Measure, and print a table."""
    checkouts = (Path(sys.argv[1]).resolve(), HERE)
    repeats = int(sys.argv[2]) if sys.argv[2:] else REPEATS
    print("\n".join(page.table(["what", "old", "new", "new / old"], [])), flush=True)

    def show(what: str, measured: Callable[[Path], Sequence[float]]) -> None:
        """Measure both checkouts in turns, and print a line for each number."""
        found = [[measured(one) for one in checkouts] for _ in range(repeats)]
        for name, *pairs in zip(
            what.split(" | "), *(zip(*pair, strict=True) for pair in found), strict=True
        ):
            print(f"| {' | '.join(line(name, pairs, 2))} |", flush=True)

    for count, rounds in ((10, 20), (50, 10)):
        words = (str(count), str(rounds))
        show(
            f"a round of {count} parties, ms | its bare numpy loop, ms | added, in bare loops",
            lambda one, words=words: list(map(float, said(one, ROUND, *words))),
        )
    for example in ("heart.toml", "digits.toml"):
        for checkout in checkouts:  # fills caches
            started(checkout, example)
        show(f"start of {example}, s", lambda one, example=example: [started(one, example)])
    show("beside it: scikit-learn's models, imported, s", lambda one: [imported(one)])


if __name__ == "__main__":
    main()
