"""A deployed federation of four hospitals on this machine, to be started, hurt and compared."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from consilience import Federation, protocols  # noqa: F401 (as the command does)
from consilience.deployment.coordinator.configuration import read_coordinator
from consilience.deployment.processes import held
from consilience.federation.ledger import Ledger
from consilience.messages.replies import Failure
from consilience.networks import LocalNetwork
from consilience.networks.incoming import Arrival, task_names
from consilience.site import read_party
from consilience.tasks.base import Task
from helpers.command_line import PROGRAM, shell
from helpers.party_sites import as_deployed

Absence = tuple[str, int, str]
"""A party, a round, and the tasks that it was asked for in vain."""

QUIET_AFTER = 30.0
"""Seconds in which what was stopped is gone."""


def example() -> ModuleType:
    """``examples/deploy/run.py``, whose commands are those of this checkout."""
    file = Path(__file__).parents[2] / "examples" / "deploy" / "run.py"
    spec = spec_from_file_location("deploy_example", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.COMMAND = PROGRAM
    return module


@dataclass
class Replayed(LocalNetwork):
    """Parties of this process that are not asked what they could not be asked elsewhere."""

    left_out: frozenset[Absence] = field(default=frozenset(), kw_only=True)

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if (name, tasks[0].round, task_names(tasks)) in self.left_out:
            return Arrival(Failure(party=name, reason="left out"), 0, 0.0)
        return super()._answer(name, tasks, request)


class Deployed:
    """The example's federation in a folder; leave the ``with`` block, and all is stopped."""

    def __init__(self, folder: Path, *, rounds: int, parties: int = 4) -> None:
        made = example()
        made.MODELS = dict(list(made.MODELS.items())[:parties])
        self.folder, self.names = folder, tuple(made.MODELS)
        made.prepare(folder, rounds=rounds, timeout=300)
        self.center = folder / "coordinator"

    def __enter__(self) -> Deployed:
        return self

    def __exit__(self, *_: object) -> None:
        shell("coordinator", "stop", self.center)
        for name in self.names:
            shell("party", "stop", self.party(name))

    def party(self, name: str) -> Path:
        """The party's configuration."""
        return self.folder / name / "party.toml"

    def start(self, *names: str) -> None:
        """Have parties take part."""
        for name in names or self.names:
            self.said("party", "start", self.party(name), "--detach")

    def said(self, *words: object) -> str:
        """What a command says; it must end well."""
        done = shell(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Where the coordinator is."""
        return json.loads(self.said("coordinator", "status", self.center, "--json", "-"))

    def wait(self, *, round: int | None = None, seconds: float = 1200) -> dict[str, Any]:
        """Until a round is kept, or all is done."""
        until = time.monotonic() + seconds
        run = self.center / "run"
        while True:
            alive = held(run / "flower")
            if (run / "ledger.sqlite").exists() and (
                self._done() or (round is not None and self.kept() >= round)
            ):
                return self.status()
            assert alive, (run / "log").read_text()
            assert time.monotonic() < until, f"after {seconds} s: {self.status()}"
            time.sleep(1)

    def _done(self) -> bool:
        with self.ledger() as ledger:
            return bool(ledger.done)

    def ledger(self) -> AbstractContextManager[Ledger]:
        """The coordinator's, to be read."""
        return closing(Ledger(self.center / "run" / "ledger.sqlite"))

    def kept(self) -> int:
        """The last round that the ledger holds."""
        with self.ledger() as ledger:
            return ledger.last_round()[0]

    def answers(self, name: str) -> int:
        """How often a party has answered something it could do."""
        log = (self.folder / name / "state" / "audit.jsonl").read_bytes()
        return log.count(b'"status":"ok"') + log.count(b'"status":"repeated"')

    def connections(self, name: str) -> int:
        """How often the party's SuperNode has got through to the SuperLink."""
        log = self.folder / name / "state" / "flower" / "supernode.log"
        return log.read_text(errors="replace").count("SuperNode ID")

    def ended(self) -> dict[str, Any]:
        """Have the round that goes on be the last one, and wait for it."""
        self.said("coordinator", "stop", self.center)
        path = self.center / "coordinator.toml"
        last = f"rounds = {self.kept() + 1}"
        path.write_text(re.sub(r"^rounds = \d+", last, path.read_text(), flags=re.MULTILINE))
        self.said("coordinator", "resume", self.center, "--detach")
        return self.wait()

    def left_out(self) -> dict[Absence, str]:
        """Who was left out of which exchange, and why, but for those that only keep and measure."""
        with self.ledger() as ledger:
            found = ledger.read(
                "SELECT party, round, tasks, detail FROM deliveries WHERE status != 'ok' "
                "AND tasks NOT LIKE 'Checkpoint%' AND tasks NOT IN ('Evaluate', 'Restore', 'Join')"
            )
        return {(party, number, tasks): why for party, number, tasks, why in found}

    def pids(self, where: Path) -> list[int]:
        """The processes noted in a folder, the first one first."""
        return [pid for pid, _ in json.loads((where / "processes.json").read_text())]

    def of_party(self, name: str) -> list[int]:
        """A party's own process and its SuperNode."""
        return self.pids(self.folder / name / "state" / "flower")

    def of_coordinator(self) -> list[int]:
        """The coordinator's own process and its SuperLink."""
        return self.pids(self.center / "run" / "flower")

    def different(self) -> list[str]:
        """The parties whose models are not those of the same federation in one process.

        Those who were left out of an exchange are left out of it there too.
        """
        spec = read_coordinator(self.center)
        specs = {name: read_party(self.party(name)) for name in self.names}
        members = {name: as_deployed(spec) for name, spec in specs.items()}
        network = Replayed(members.values(), spec.rows(), left_out=frozenset(self.left_out()))
        list(Federation.over(network, spec.rows(), seed=spec.seed).rounds(spec.make_protocol()))
        found = []
        for name, here in members.items():
            with specs[name].site(wait=QUIET_AFTER) as site:
                there = site.party()
            rows = np.concatenate([here.X, here.test[0], spec.rows().X])
            for ask in ("predict", "logits"):
                one, other = (getattr(party.learner, ask)(rows) for party in (here, there))
                if not np.array_equal(one, other):
                    found.append(f"{name}: {ask}")
        return found


def kill(*pids: int) -> None:
    """As a power cut would, one by one."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
