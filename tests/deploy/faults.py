"""Hurt a deployed federation at random moments, again and again, and see that nothing is lost.

    python tests/deploy/faults.py FOLDER [--times N] [--parties P] [--seed S] [party|site|disk|…]

One federation of hospitals as processes of their own, four or fewer. The faults come in random order, each N
times, at most 15 s after what was hurt before is well again: a party is well once it has answered something
since. Half of the parties may be ill at a time. When the last one is well the round is ended, and the models
are compared with those of the same federation in one process, where whoever was left out of an exchange is
left out too: they are the same bit for bit.

    party        SIGKILL of a SuperNode; the party starts another
    site         SIGKILL of all that a party runs; it is started again by hand
    disk         a party's disk is full until another round is kept (a small one, which takes root to mount)
    twice        a party is started a second time: here, and on another machine with a copy of all it has
    superlink    SIGKILL of the SuperLink; the coordinator starts another
    coordinator  SIGKILL of the coordinator's own process; resumed by hand
    all          SIGKILL of everything at once; all is started again by hand
    cut          the coordinator does not answer anyone for 30 s
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.command_line import shell
from helpers.deployed_example import Deployed, kill

WAIT = 15.0
"""Seconds, at most, from one fault being over to the next: an exchange takes about as many."""

DISK = "32m"
ELSEWHERE = 20.0
"""Seconds that the copy of a party tries to take part."""

OF_A_PARTY = ("party", "site", "disk", "twice")
FAULTS = (*OF_A_PARTY, "cut", "superlink", "coordinator", "all")


@dataclass
class Hurt:
    """A fault that is not over.

    Attributes:
        fault: its name.
        parties: whom it hurts.
        ready: whether it is time to mend it.
        mend: what somebody does about it then.
        work: whether a party that was not hurt itself may still answer what it was asked before.
    """

    fault: str
    parties: tuple[str, ...]
    ready: Callable[[], bool] = lambda: True
    mend: Callable[[], None] = lambda: None
    work: bool = False
    begun: float = field(default_factory=time.monotonic)
    answered: dict[str, int] | None = None
    """How much each had answered when it was mended."""

    def over(self, deployed: Deployed) -> bool:
        """Whether all whom it hurt have answered since it was mended; mends it when it is time."""
        if self.answered is None:
            if not self.ready():
                return False
            self.mend()
            self.answered = {name: deployed.answers(name) for name in self.parties}
        return all(
            deployed.answers(name) > before + self.work for name, before in self.answered.items()
        )


def hurt(deployed: Deployed, fault: str, name: str) -> Hurt:
    """One fault, and what somebody would do about it; ``name`` is the party, where it is of one."""
    owner, *rest = deployed.of_coordinator()
    if fault == "disk":
        return full(deployed, name)
    if fault == "twice":
        return twice(deployed, name)
    parties = (name,) if fault in OF_A_PARTY else deployed.names
    before = {one: deployed.connections(one) for one in parties}

    def connected() -> bool:
        return all(deployed.connections(one) > number for one, number in before.items())

    begun = time.monotonic()
    if fault == "party":
        kill(*deployed.of_party(name)[1:])
        return Hurt(fault, parties, connected)
    if fault == "site":
        kill(*deployed.of_party(name))
        deployed.start(name)
        return Hurt(fault, parties, connected, begun=begun)
    if fault == "superlink":
        kill(*rest)
        return Hurt(fault, parties, work=True)
    if fault == "cut":
        os.kill(owner, signal.SIGSTOP)
        time.sleep(30)
        os.kill(owner, signal.SIGCONT)
        return Hurt(fault, parties, work=True, begun=begun)
    if fault == "coordinator":
        kill(owner)
    else:
        kill(owner, *rest, *(pid for one in parties for pid in deployed.of_party(one)))
        deployed.start()
    deployed.said("coordinator", "resume", deployed.center, "--detach")
    if fault == "coordinator":
        return Hurt(fault, parties, work=True, begun=begun)
    return Hurt(fault, parties, connected, begun=begun)


def full(deployed: Deployed, name: str) -> Hurt:
    """Nothing more fits on the disk that the party's state is on."""
    ballast, kept = deployed.folder / name / "state" / "ballast", deployed.kept()
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return Hurt("disk", (name,), lambda: deployed.kept() > kept, ballast.unlink)


def twice(deployed: Deployed, name: str) -> Hurt:
    """A second start is refused here, and by Flower where it comes from another machine."""
    second = shell("party", "start", deployed.party(name))
    assert second.returncode == 2 and "runs already" in second.stderr, second
    home, elsewhere = deployed.folder / name, deployed.folder / "elsewhere" / name
    shutil.rmtree(elsewhere, ignore_errors=True)
    with suppress(shutil.Error):  # it is at work: files come and go
        shutil.copytree(home, elsewhere, ignore=shutil.ignore_patterns("flower"))
    copied = elsewhere / "state" / "audit.jsonl"
    before, written = copied.read_bytes(), elsewhere / "state" / "flower" / "supernode.log"
    deployed.said("party", "start", elsewhere / "party.toml", "--detach")
    started = list[float]()

    def tried() -> bool:
        if not started and written.exists() and "Starting Flower SuperNode" in written.read_text():
            started.append(time.monotonic())
        return bool(started) and time.monotonic() > started[0] + ELSEWHERE

    def refused() -> None:
        deployed.said("party", "stop", elsewhere / "party.toml")
        log = written.read_text()
        assert "SuperNode ID" not in log, log
        assert copied.read_bytes() == before

    return Hurt("twice", (name,), tried, refused)


def small_disks(deployed: Deployed, stack: ExitStack) -> None:
    """Every party's state on a disk of its own."""
    for name in deployed.names:
        state = deployed.folder / name / "state"
        state.mkdir(exist_ok=True)
        mounted = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "disk", str(state)]
        if subprocess.run(mounted, check=False).returncode:
            sys.exit("a disk cannot be mounted here: leave out disk, or be root")
        stack.callback(subprocess.run, ["umount", "-l", str(state)], check=True)


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("faults", nargs="*", metavar="fault", help=", ".join(FAULTS))
    asked.add_argument("--times", type=int, default=1)
    asked.add_argument("--parties", type=int, default=4)
    asked.add_argument("--minutes", type=float, default=600.0, help="no fault begins after these")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_intermixed_args()
    if unknown := set(given.faults).difference(FAULTS):
        asked.error(f"there is no fault {min(unknown)}")
    chance, start = random.Random(given.seed), time.monotonic()
    to_come = [*(given.faults or FAULTS)] * given.times
    chance.shuffle(to_come)
    lasted: dict[str, list[float]] = {fault: [] for fault in to_come}

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    with ExitStack() as stack:
        deployed = Deployed(given.folder, rounds=1000, parties=given.parties)
        if "disk" in to_come:
            small_disks(deployed, stack)
        stack.enter_context(deployed)
        deployed.start()
        deployed.said("coordinator", "start", deployed.center, "--detach")
        deployed.wait(round=0)
        ill: list[Hurt] = []
        next_at = time.monotonic() + chance.uniform(0, WAIT)
        while to_come or ill:
            time.sleep(0.5)
            if time.monotonic() - start > 60 * given.minutes:
                to_come.clear()
            for one in [one for one in ill if one.over(deployed)]:
                ill.remove(one)
                seconds = time.monotonic() - one.begun
                lasted[one.fault].append(seconds)
                say(f"  {one.fault} is over, {seconds:.0f} s")
            well = sorted(set(deployed.names).difference(*(one.parties for one in ill)))
            everybody = not to_come or to_come[0] not in OF_A_PARTY
            if len(well) < (len(deployed.names) if everybody else 1 + len(deployed.names) // 2):
                next_at = max(next_at, time.monotonic() + chance.uniform(0, WAIT))
            elif to_come and time.monotonic() > next_at:
                fault, name = to_come.pop(0), chance.choice(well)
                whom = f" at {name}" if fault in OF_A_PARTY else ""
                say(f"round {deployed.kept()} is kept; {fault}{whom}")
                ill.append(hurt(deployed, fault, name))
                next_at = time.monotonic() + chance.uniform(0, WAIT)
        found = deployed.ended()
        say(f"done, round {found['round']}")
        different, left_out = deployed.different(), deployed.left_out()
        print(deployed.said("coordinator", "status", deployed.center))
    print("| fault | hits | seconds until all whom it hurt had answered again: median, longest |")
    print("|---|---|---|")
    for fault in FAULTS:
        if times := lasted.get(fault):
            print(f"| {fault} | {len(times)} | {statistics.median(times):.0f}, {max(times):.0f} |")
    print(f"\nrounds: {found['round']}; left out of an exchange: {len(left_out)} times")
    for (party, number, tasks), why in sorted(left_out.items()):
        print(f"  {party}, round {number}, {tasks}: {why}")
    print(f"models that differ from those of one process: {', '.join(different) or 'none'}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
