"""A week's load in an hour: hundreds of rounds over real processes, with kills; nothing grows or is lost.

    python tests/deploy/week.py FOLDER [--rounds N] [--kills K] [--minutes M] [--seed S] [--figure FILE]

Four hospitals with quick models, TLS and a key each. Their SuperNodes look for messages twice a second in
place of every 3 s, so that an hour holds what else takes many. K times, at rounds of the first half that the
seed draws, something is killed by SIGKILL: a hospital's SuperNode, all of a hospital, the SuperLink, or the
coordinator; what nobody starts again by itself is started again by hand. Each 10 s the memory of every
process that stays is noted, and the sizes of logs, ledger and states. After M minutes the round that goes on
is the last one. In the end:

    memory    of each process that lived 30 rounds or more its median over the last fifth of its life against
              that over the first fifth, after a warm-up of 20 rounds
    sizes     of each file bytes a round in the first and in the second half of the rounds
    models    against those of the same federation in one process: the same bits
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from faults import Hurt, hurt

from helpers.deployed_example import Deployed, look_often

MODELS = ("naive-bayes", "logistic-regression", "decision-tree", "knn")
KILLS = ("party", "site", "superlink", "coordinator")
EACH = 10.0
"""Seconds between looks."""

LOOKS = 0.5
"""Seconds between a SuperNode's looks for messages."""


def roles(deployed: Deployed) -> Iterator[tuple[str, psutil.Process]]:
    """Every process that stays, and what it is; those that answer one message are not among them."""
    for place, pids in (
        ("coordinator", deployed.of_coordinator),
        *((name, lambda name=name: deployed.of_party(name)) for name in deployed.names),
    ):
        owner, *rest = (psutil.Process(pid) for pid in pids())
        yield f"{place}, own process", owner
        for process in rest:
            yield f"{place}, {_called(process)}", process
            for child in process.children(recursive=True):
                if (name := _called(child)) is not None and name != _called(child.parent()):
                    yield f"{place}, {name}", child


def _called(process: psutil.Process | None) -> str | None:
    """What Flower or we call a process; ``None`` for one of no name."""
    line = " ".join(process.cmdline()) if process is not None else ""
    for name, words in (
        ("SuperExec", "superexec"),
        ("answers", "answer_messages()"),
        ("run", "flwr-serverapp"),
        ("SuperLink", "flower-superlink"),
        ("SuperNode", "flower-supernode"),
    ):
        if words in line:
            return name
    return None


def files(deployed: Deployed) -> Iterator[tuple[str, int]]:
    """Bytes of what is written in rounds, of the first hospital for all."""
    run, name = deployed.center / "run", deployed.names[0]
    state = deployed.folder / name / "state"
    yield "coordinator: ledger", _pages(run / "ledger.sqlite")
    yield "coordinator: log", _size(run, "log")
    yield "coordinator: SuperLink's log", _size(run / "flower", "superlink.log*")
    yield "coordinator: SuperLink's database", _pages(run / "flower" / "superlink.sqlite")
    yield "hospital: audit log", _size(state, "audit.jsonl")
    yield "hospital: SuperNode's log", _size(state / "flower", "supernode.log*")
    yield "hospital: state", _size(state, "state-*/**/*")


def _size(folder: Path, pattern: str) -> int:
    while True:
        try:
            return sum(file.stat().st_size for file in folder.glob(pattern) if file.is_file())
        except FileNotFoundError:  # of a state that was replaced meanwhile
            continue


def _pages(database: Path) -> int:
    """Bytes of a database, with what is still in its journal."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as open_one:
        (pages,), (size,) = (
            open_one.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
        )
    return int(pages * size)


class Watch:
    """What was seen over the rounds.

    Args:
        deployed: what is looked at.
    """

    def __init__(self, deployed: Deployed) -> None:
        self.deployed, self.begun = deployed, time.monotonic()
        self.memory: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        """Role and number of a process to rounds and MB."""
        self.sizes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.paces: list[tuple[float, int]] = []
        """Seconds since the beginning, and rounds that were kept by then."""

    def look(self) -> None:
        """Note everything as it is."""
        kept = self.deployed.kept()
        self.paces.append((time.monotonic() - self.begun, kept))
        try:
            for role, process in roles(self.deployed):
                self.memory[role, process.pid].append((kept, process.memory_info().rss / 2**20))
        except (psutil.Error, OSError, ValueError):
            pass  # one has just been killed
        for name, size in files(self.deployed):
            self.sizes[name].append((kept, size))

    def growth(self, warm: int) -> Iterator[tuple[str, int, float, float]]:
        """Of each process that lived long its role, rounds, first and last median in MB."""
        for (role, _), seen in sorted(self.memory.items()):
            points = np.array(seen)
            points = points[points[:, 0] >= points[0, 0] + warm]
            if len(points) < 5 or (rounds := int(np.ptp(points[:, 0]))) < 30:
                continue
            fifth = max(1, len(points) // 5)
            first, last = np.median(points[:fifth, 1]), np.median(points[-fifth:, 1])
            yield role, rounds, float(first), float(last)

    def slopes(self) -> Iterator[tuple[str, float, float, float]]:
        """Of each file its bytes a round in the first and in the second half, and in the end."""
        for name, seen in self.sizes.items():
            points = np.array(seen, dtype=float)
            middle = points[:, 0].max() / 2
            halves = points[points[:, 0] <= middle], points[points[:, 0] > middle]
            first, second = (float(np.polyfit(*half.T, 1)[0]) for half in halves)
            yield name, first, second, float(points[-1, 1])


def load(deployed: Deployed, given: argparse.Namespace) -> tuple[Watch, list[str], float]:
    """Run the rounds, with kills; gives what was seen, the kills, and seconds."""
    chance = random.Random(given.seed)
    at = sorted(chance.sample(range(given.rounds // 20, given.rounds // 2), given.kills))
    to_come = [(number, chance.choice(KILLS), chance.choice(deployed.names)) for number in at]
    done: list[str] = []
    ill: Hurt | None = None
    start, looked = time.monotonic(), -EACH
    watch = Watch(deployed)
    while not deployed.is_done():
        time.sleep(0.5)
        now = time.monotonic()
        kept = deployed.kept()
        if now - looked >= EACH:
            looked = now
            watch.look()
        if ill is not None:
            if ill.over(deployed):
                print(f"{now - start:6.0f} s  {ill.fault} is over", flush=True)
                ill = None
        elif to_come and kept >= to_come[0][0]:
            _, fault, name = to_come.pop(0)
            done.append(fault if fault in ("superlink", "coordinator") else f"{fault} at {name}")
            print(f"{now - start:6.0f} s  round {kept} is kept; {done[-1]}", flush=True)
            ill = hurt(deployed, fault, name)
        elif now - start > 60 * given.minutes:
            watch.look()
            deployed.ended()
    watch.look()
    return watch, done, time.monotonic() - start


def draw(watch: Watch, file: Path) -> None:
    """A figure of memory over rounds."""
    from matplotlib import rc_context

    from consilience.lab.report.drawing import one_axis

    figure, axis = one_axis(3.6, width=6.4)
    for (_, _), seen in sorted(watch.memory.items()):
        axis.plot(*np.array(seen).T, linewidth=0.8, color="C0", alpha=0.6)
    axis.set(xlabel="round", ylabel="memory of each process, MB", ylim=(0, None))
    with rc_context({"svg.hashsalt": "week", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--rounds", type=int, default=500)
    asked.add_argument("--kills", type=int, default=10)
    asked.add_argument("--minutes", type=float, default=600.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--figure", type=Path)
    given = asked.parse_args()
    with Deployed(given.folder, rounds=given.rounds) as deployed:
        deployed.simplify(*MODELS)
        deployed.changed(aggregate='"avg"')
        look_often(given.folder / "often", LOOKS)
        deployed.start()
        deployed.said("coordinator", "start", deployed.center, "--detach")
        deployed.wait(round=0)
        watch, kills, seconds = load(deployed, given)
        rounds, left_out = deployed.kept(), deployed.left_out()
    differ = deployed.different()
    found: dict[str, Any] = {"memory": [], "sizes": dict(watch.sizes), "paces": watch.paces}
    found["memory"] = [[role, pid, seen] for (role, pid), seen in watch.memory.items()]
    (given.folder / "seen.json").write_text(json.dumps(found))
    if given.figure:
        draw(watch, given.figure)
    print(f"\n{rounds} rounds, {seconds:.0f} s; killed {len(kills)} times: {', '.join(kills)}")
    print("\n| process | rounds | MB at first | MB at last | growth |\n|---|---|---|---|---|")
    most = 0.0
    for role, lived, first, last in watch.growth(min(20, rounds // 5)):
        most = max(most, last / first - 1)
        print(f"| {role} | {lived} | {first:.0f} | {last:.0f} | {last / first - 1:+.1%} |")
    print("\n| file | bytes a round, first half | second half | kB at last |\n|---|---|---|---|")
    for name, early, late, size in watch.slopes():
        print(f"| {name} | {early:,.0f} | {late:,.0f} | {size / 1000:,.0f} |")
    print(f"\nleft out of an exchange: {len(left_out)} times")
    for (party, number, tasks), why in sorted(left_out.items()):
        print(f"  {party}, round {number}, {tasks}: {why}")
    print(f"most that a process grew: {most:+.1%}")
    print(f"models that differ from those of one process: {', '.join(differ) or 'none'}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
