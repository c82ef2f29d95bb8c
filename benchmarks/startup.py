"""Time ``consilience run`` up to its first round, beside the imports that it needs.

    python benchmarks/startup.py      # three minutes

Every run is a process of its own: the command as a user calls it, timed from the start of Python until the
first party is asked to train, and until it has; then it ends. Before that the configuration is checked, the
data are read and dealt out, every seed is rehearsed, and the parties say what they know of the public rows.
Runs are interleaved, with one numerical thread; medians. Beside the seconds on the clock stand those of the
processor, which other work on the machine hardly moves.

scikit-learn imports pandas where that is installed, as it is for the tests: both ways are measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

EXAMPLES = Path(__file__).parent.parent / "examples"
REPEATS = 7

WITHOUT_PANDAS = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError("as where it is not installed", name=name)

sys.meta_path.insert(0, Absent)
"""
RUN = """
import os, time
from consilience.lab.cli.main import main
try:
    from consilience.lab.cli.imports import import_scipy
except ImportError:  # of an earlier checkout
    pass
else:
    import_scipy()  # before all else, as the command does
from consilience.core.tasks.predictions import FitPrivate

train = FitPrivate.run

def first(task, party):
    asked = time.monotonic(), time.process_time()
    train(task, party)
    print(*asked, time.monotonic(), time.process_time(), flush=True)
    os._exit(0)

FitPrivate.run = first
main()
"""
IMPORT = "import {}\nimport time\nprint(time.monotonic(), time.process_time())"
SKLEARN = "sklearn.ensemble, sklearn.linear_model, sklearn.naive_bayes, sklearn.neighbors, sklearn.pipeline"


@dataclass(frozen=True)
class Case:
    """A command, and its name in the table.

    Attributes:
        what: in words.
        code: of the process; it prints when it got where.
        example: the configuration that it runs, if it runs one.
        beside: the case that does nothing but import this one's libraries.
    """

    what: str
    code: str
    example: str | None = None
    beside: str | None = None


@dataclass(frozen=True)
class Row:
    """Seconds from the start of a process to each event, by the clock and by the processor; one a repeat.

    Attributes:
        case: of what.
        asked: until the first party was asked to train; for imports, until they were done.
        trained: until it had trained; empty for imports.
    """

    case: Case
    asked: list[tuple[float, float]] = field(default_factory=list)
    trained: list[tuple[float, float]] = field(default_factory=list)


CASES = (
    Case("`import numpy`", IMPORT.format("numpy")),
    Case("`import sklearn.ensemble`", IMPORT.format("sklearn.ensemble")),
    Case("scikit-learn's models, imported", IMPORT.format(SKLEARN)),
    Case("the same without pandas", WITHOUT_PANDAS + IMPORT.format(SKLEARN)),
    Case("`import torch`", IMPORT.format("torch")),
    Case(
        "heart.toml: 4 models of scikit-learn, 20 seeds",
        RUN,
        "heart.toml",
        "scikit-learn's models, imported",
    ),
    Case(
        "heart.toml, without pandas", WITHOUT_PANDAS + RUN, "heart.toml", "the same without pandas"
    ),
    Case(
        "digits.toml: 5 models of scikit-learn, 3 seeds",
        RUN,
        "digits.toml",
        "scikit-learn's models, imported",
    ),
    Case(
        "digits.toml, without pandas",
        WITHOUT_PANDAS + RUN,
        "digits.toml",
        "the same without pandas",
    ),
    Case("digits-mlp.toml: networks of torch, 3 seeds", RUN, "digits-mlp.toml", "`import torch`"),
)


def measure(repeats: int = REPEATS, cases: Sequence[Case] = CASES) -> list[Row]:
    """Time every case ``repeats`` times, in turn.

    Raises:
        CalledProcessError: one failed.
    """
    rows = [Row(case) for case in cases]
    with TemporaryDirectory() as folder:
        for repeat in range(repeats + 1):
            for number, row in enumerate(rows):
                moments = timed(row.case, Path(folder) / f"{repeat}-{number}")
                if repeat:  # the first fills caches: files, and modules that are compiled
                    row.asked.append(moments[0])
                    row.trained.extend(moments[1:])
    return rows


def timed(case: Case, folder: Path) -> list[tuple[float, float]]:
    """Seconds to each moment that a process told of, on the clock and of the processor."""
    call = [sys.executable, "-c", case.code]
    if case.example is not None:
        call += ["run", str(EXAMPLES / case.example), "--quiet", "--out", str(folder)]
    # An installed package is compiled; a checkout is, once it may keep what was compiled.
    setting = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    start = time.monotonic()  # one clock for all processes
    done = subprocess.run(
        call, env=setting, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    said = [float(moment) for moment in done.stdout.split()]
    return [(at - start, used) for at, used in zip(said[::2], said[1::2], strict=True)]


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of Markdown; a run beside its libraries is the median of the differences."""
    lines = [
        "| until the first party is asked to train | seconds | fastest | of the processor "
        "| without its libraries | until it has trained |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    of = {row.case.what: row for row in rows}
    for row in rows:
        clock, processor = zip(*row.asked, strict=True)
        cells = [statistics.median(clock), min(clock), statistics.median(processor)]
        if row.case.beside is not None:
            pairs = zip(row.asked, of[row.case.beside].asked, strict=True)
            cells.append(statistics.median(ours[1] - theirs[1] for ours, theirs in pairs))
            cells.append(statistics.median(used for _, used in row.trained))
        told = [f"{seconds:.2f}" for seconds in cells] + [""] * (5 - len(cells))
        lines.append(f"| {' | '.join([row.case.what, *told])} |")
    lines += ["", "The last three columns are seconds of the processor."]
    return lines


def section() -> list[str]:
    """Lines of the page, from runs made now."""
    return [
        "From the start of Python; the command as a user calls it. Medians of "
        f"{REPEATS} interleaved runs, each in a process of its own.",
        "",
        *table(measure()),
    ]


if __name__ == "__main__":
    print("\n".join(section()))
