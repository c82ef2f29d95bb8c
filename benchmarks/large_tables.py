"""Measure a table from file to report, and joining and the wire with many public rows of mixed kinds.

    python benchmarks/large_tables.py FILE --target COLUMN   # minutes; writes a page
    python benchmarks/large_tables.py                        # the second part alone; prints

First part: `consilience new` and `consilience run` as a stranger calls them, nothing edited, each in a
process of its own. Second part: 100,000 public rows of 50 columns (numbers, categories, truth values, dates,
with gaps) that are made here, and two parties with 2,000 rows and a model of another kind each: reading the
rows, their bytes on the wire, joining, and one round; in one process, whose largest size is read after each.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import page

ROWS, OWN, NUMBERS, CATEGORIES, TRUTHS, DATES = 100_000, 2_000, 22, 18, 5, 5
GAPS = 0.1
"""Share of values that are missing, in every third column."""
COMMAND = [sys.executable, "-P", "-c", "from consilience.lab.cli.main import main; main()"]


def used(who: int) -> tuple[float, float]:
    """Seconds of the processor and the largest size in MB, of this process or of its ended children."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def called(*words: str, folder: Path) -> list[str]:
    """Cells of a line on a command: seconds on the clock and of the processor."""
    before, begun = used(resource.RUSAGE_CHILDREN)[0], time.monotonic()
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    clock, (after, _) = time.monotonic() - begun, used(resource.RUSAGE_CHILDREN)
    return [f"{clock:.0f}", f"{after - before:.0f}"]


def from_file_to_report(file: Path, target: str, further: list[str]) -> list[str]:
    """Lines on a table, from the file to its page."""
    from consilience.tables.check import check_table

    found = check_table(file, target=target)
    assert found.target is not None
    kinds = [one.kind for one in found.columns]
    gaps = sum(one.missing > 0 for one in found.columns)
    holds: dict[str, Any] = dict(found.target.holds)  # type: ignore[call-overload]
    rarest = min(holds.values()) / found.rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(file, folder)
        words = ["new", "study", "--table", file.name, "--target", target, "--yes", *further]
        rows = [["`consilience new`", *called(*words, folder=folder)]]
        rows.append(["`consilience run`", *called("run", "study.toml", "--quiet", folder=folder)])
        configuration = (folder / "study.toml").read_text()
        written = folder / "runs" / "study-001"
        size = sum(one.stat().st_size for one in written.rglob("*") if one.is_file())
        report = (written / "report.html").stat().st_size
    peak = used(resource.RUSAGE_CHILDREN)[1]
    return [
        f"{found.rows:,} rows; {len(kinds)} input columns, {kinds.count('category')} of them of categories, "
        f"{gaps} with gaps; {len(holds)} classes, the rarest {rarest:.1%} of the rows; "
        f"{file.stat().st_size / 1e6:.1f} MB.",
        "",
        *page.table(["command", "seconds", "of the processor"], rows),
        "",
        f"Largest size of a process: {peak:,.0f} MB. The run's folder: {size / 1e6:.1f} MB, its page "
        f"{report / 1e6:.1f} MB. The configuration:",
        "",
        "```toml",
        *configuration.strip().splitlines(),
        "```",
    ]


def mixed(rows: int, key: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of mixed kinds, and classes that depend on some of them."""
    rng = np.random.default_rng([2, key])
    found: dict[str, np.ndarray] = {}
    signal = np.zeros(rows)
    for i in range(NUMBERS):
        values = rng.normal(10 * i, 1 + i, rows).round(2)
        signal += (values - 10 * i) / (1 + i) * np.cos(i)
        found[f"number {i}"] = values
    for i in range(CATEGORIES):
        codes = rng.integers(0, 2 + i, rows)
        signal += codes / (2 + i) * np.sin(i)
        names = np.array([f"kind {code} of column {i}" for code in range(2 + i)], dtype=object)
        found[f"category {i}"] = names[codes]
    for i in range(TRUTHS):
        found[f"truth {i}"] = rng.random(rows) < 0.3
    for i in range(DATES):
        days = rng.integers(18_000, 20_000, rows)
        found[f"date {i}"] = days.astype("datetime64[D]").astype("datetime64[ms]")
    for place, (name, values) in enumerate(found.items()):
        if place % 3 == 0:
            missing = rng.random(rows) < GAPS
            if values.dtype.kind == "b":
                values = values.astype(object)
            empty = {"f": np.nan, "O": None, "M": np.datetime64("NaT")}[values.dtype.kind]
            found[name] = np.where(missing, empty, values) if values.dtype.kind != "O" else values
            found[name][missing] = empty
    signal += rng.normal(size=rows)
    return found, np.where(signal > np.quantile(signal, 0.9), "yes", "no")


def steps() -> None:
    """Print a line of JSON after each step: name, seconds, seconds of the processor, largest size, bytes."""
    from consilience import Federation, LocalNetwork, Party, avg, ensemble_distillation
    from consilience.core.learners import make
    from consilience.core.messages.schema import Public
    from consilience.core.messages.wire import decode, encode
    from consilience.core.tasks.lifecycle import TakePublic

    @contextmanager
    def step(name: str) -> Iterator[dict[str, int]]:
        said: dict[str, int] = {}
        before, begun = time.process_time(), time.monotonic()
        yield said
        taken = time.monotonic() - begun, time.process_time() - before
        print(json.dumps([name, *taken, used(resource.RUSAGE_SELF)[1], said]), flush=True)

    with step("the table, in memory"):
        table, _ = mixed(ROWS, 0)
        own = [mixed(OWN, i + 1) for i in range(2)]
    with step("the public rows and their schema") as said:
        public = Public(table)
        said["in memory"] = public.X.nbytes
    with step("their digest"):
        _ = public.key
    with step("the message that sends them") as said:
        sent = encode([TakePublic.of(public)])
        said["on the wire"] = len(sent)
    with step("reading the message"):
        (task,) = decode(sent)
        assert task.rows().key == public.key
        del task, sent
    with step("two parties join"):
        models = ("gradient-boosting", "logistic-regression")
        parties = [
            Party(f"site-{i}", make(model), X, y)
            for i, (model, (X, y)) in enumerate(zip(models, own, strict=True))
        ]
        network = LocalNetwork(parties, public, wire=True)
        federation = Federation.over(network, public)
    with step("one round, mean of predictions") as said:
        history = federation.run(ensemble_distillation(aggregate=avg(), rounds=1), progress=False)
        assert not history.failures
        said["on the wire"] = sum(
            d.bytes_up + d.bytes_down for row in history.deliveries for d in row
        )


def many_public_rows() -> list[str]:
    """Lines on joining and the wire."""
    words = [sys.executable, __file__, "--steps"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    rows = []
    for line in done.stdout.splitlines():
        name, clock, seconds, size, said = json.loads(line)
        told = ", ".join(f"{count / 1e6:.1f} MB {what}" for what, count in said.items())
        rows.append([name, f"{clock:.1f}", f"{seconds:.1f}", f"{size:,.0f}", told])
    heads = ["step", "seconds", "of the processor", "largest size so far, MB", "bytes"]
    return [
        f"{ROWS:,} public rows of {NUMBERS} numbers, {CATEGORIES} columns of categories, {TRUTHS} truth "
        f"values and {DATES} dates, a tenth missing in every third column; made by this script. "
        f"Two parties of {OWN:,} rows each, gradient boosting and logistic regression, in one process.",
        "",
        *page.table(heads, rows),
    ]


def main() -> None:
    """Run both parts, or the second alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--about", default="", help="what the table is, for the page")
    parser.add_argument("--steps", action="store_true")
    given, further = parser.parse_known_args()
    if given.steps:
        steps()
        return
    second = ["## 100,000 public rows of mixed kinds", "", *many_public_rows()]
    if given.file is None:
        print("\n".join(second))
        return
    first = from_file_to_report(given.file, given.target, further)
    head = ["## From file to report", "", *([given.about, ""] if given.about else [])]
    page.write(__file__, [*head, *first, "", *second], about=f"`FILE --target {given.target}`")


if __name__ == "__main__":
    main()
