"""The tables of the examples with networks once more, as they were first computed and as they are now.

    python benchmarks/recomputed.py                 # an hour
    python benchmarks/recomputed.py digits-mlp      # some of them

First computed: one network after another, gradients recorded by torch. Now: as a federation does it. Same
configurations, same seeds; what differs is rounding, which a training makes larger. Runs are kept under
runs/recomputed, so that a run that was stopped goes on by the same command.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported

import argparse
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan, nan
from pathlib import Path

import page
import torch
from scipy.stats import ttest_rel

from consilience.experiments import read_spec, resume, start
from consilience.learners.torch.batched import engine
from consilience.report.reading import read_results
from consilience.report.results import Results

ROOT = Path(__file__).parent.parent
TABLES = {
    "digits-mlp": ("digits-mlp", ["seeds=10"]),
    "no-public-data": ("no-public-data", ["seeds=10"]),
    "fashion-mlp-2": ("fashion-mlp", ["partition.per_party=2", "seeds=5"]),
    "fashion-mlp-5": ("fashion-mlp", ["partition.per_party=5", "seeds=5"]),
    "fashion-mlp-10": ("fashion-mlp", ["partition.per_party=10", "seeds=5"]),
}
"""Table to the example it comes from and the settings that differ; those with fully connected networks."""


@contextmanager
def as_first() -> Iterator[None]:
    """Networks train one after another, and torch records their gradients."""
    before = engine.layers_of
    engine.layers_of = lambda *_: None  # type: ignore[assignment]
    try:
        yield
    finally:
        engine.layers_of = before


def code() -> str:
    """A digest of the code that trains networks."""
    files = sorted(Path(engine.__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def computed(table: str, way: str) -> Results:
    """A table's run, from its folder where it is done."""
    example, settings = TABLES[table]
    folder = ROOT / "runs" / "recomputed" / code() / f"{table}-{way}"
    if folder.exists():
        resume(folder)
    else:
        start(read_spec(ROOT / "examples" / f"{example}.toml", settings), folder)
    return read_results(folder)


def compared(table: str) -> list[tuple[list[str], float]]:
    """A line for each method: what came out both times, and whether it differs by more than chance.

    The last number is the p-value of a paired t-test, NaN where nothing differs.
    """
    with as_first():
        first = computed(table, "first")
    now, lines = computed(table, "now"), []
    metric = now.metric or ""
    for before, after in zip(first.methods, now.methods, strict=True):
        assert (before.label, before.seeds) == (after.label, after.seeds)
        old, new = (method.over_rounds(metric)[:, -1] for method in (before, after))
        change = new - old
        p = float(ttest_rel(new, old).pvalue) if change.any() else nan
        line = [
            *(table, after.label, f"{len(new)}"),
            *(f"{values.mean():.4f} ± {values.std(ddof=1):.4f}" for values in (old, new)),
            f"{change.mean():+.4f} ± {change.std(ddof=1):.4f}",
            "the same" if isnan(p) else f"{p:.4f}",
        ]
        lines.append((line, p))
    return lines


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument(
        "tables",
        nargs="*",
        metavar="TABLE",
        help="all by default, an hour, into docs/results/recomputed.md; "
        f"else printed: {', '.join(TABLES)}",
    )
    torch.set_num_threads(1)
    tables = asked.parse_args().tables
    if unknown := set(tables).difference(TABLES):
        asked.error(f"no table is called {min(unknown)!r}; there are {', '.join(TABLES)}")
    lines = [line for table in tables or TABLES for line in compared(table)]
    heads = [
        *("table", "method", "seeds", "accuracy as first computed", "accuracy now"),
        *("change", "p of a paired t-test"),
    ]
    found = [p for _, p in lines if not isnan(p)]
    said = [
        "Last round's accuracy, mean over parties; mean ± standard deviation over seeds. As first "
        "computed: one network after another, gradients recorded by torch. Now: side by side, gradients "
        "written out. The optimizer is today's both times; it takes the steps of torch.optim, bit for bit.",
        "",
        *page.table(heads, [line for line, _ in lines]),
        "",
        f"{len(found)} of {len(lines)} lines differ at all. The smallest p is {min(found):.4f}; below "
        f"{0.05 / len(found):.4f}, 0.05 over their number, it would mean something."
        if found
        else "Nothing changed in any line.",
    ]
    if tables:
        print("\n".join(said))
    else:
        page.write(__file__, said)


if __name__ == "__main__":
    main()
