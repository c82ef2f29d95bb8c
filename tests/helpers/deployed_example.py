"""A deployed federation of four hospitals on this machine, to be started, hurt and compared."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from consilience import Party
from consilience.core import protocols  # noqa: F401 (as the command does)
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.networks import LocalNetwork
from consilience.core.networks.incoming import Arrival, task_names
from consilience.core.protocols import Protocol, Round
from consilience.core.tasks.base import Task
from consilience.lab.config.sections import read_toml
from consilience.lab.runs.ledger import Ledger
from consilience.privacy.accounting.ledger import FOLDER as RELEASES
from consilience.privacy.accounting.ledger import PrivacyLedger
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.operations.processes import held
from consilience.sites.party import read_party
from helpers.command_line import PROGRAM, shell
from helpers.party_sites import as_deployed

Absence = tuple[str, int, str]
"""A party, a round, and the tasks that it was asked for in vain."""

SLOWEST = 600
"""Seconds that a command may take, on a machine with much other work."""

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
class SetBack:
    """A party that came back with an earlier state.

    Attributes:
        name: the party.
        kept: round and tasks of the last answer that the state was written after.
        first: round and tasks of the first answer that it was asked for with it.
    """

    name: str
    kept: tuple[int, str]
    first: tuple[int, str]
    state: Party | None = None


@dataclass
class Replayed(LocalNetwork):
    """Parties of this process that are not asked what they could not be asked elsewhere."""

    left_out: frozenset[Absence] = field(default=frozenset(), kw_only=True)
    was: SetBack | None = field(default=None, kw_only=True)

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        asked, was = (tasks[0].round, task_names(tasks)), self.was
        if (name, *asked) in self.left_out:
            return Arrival(Failure(party=name, reason="left out"), 0, 0.0)
        if was is None or was.name != name:
            return super()._answer(name, tasks, request)
        if asked == was.first:
            assert was.state is not None
            self._members[name] = was.state
        answer = super()._answer(name, tasks, request)
        if asked == was.kept:
            was.state = deepcopy(self._members[name])
        return answer


class Deployed:
    """The example's federation in a folder; leave the ``with`` block, and all is stopped."""

    def __init__(self, folder: Path, *, rounds: int, parties: int = 4) -> None:
        self.made = example()
        self.folder, self.names = folder, tuple(self.made.MODELS)[:parties]
        self.made.prepare(folder, hospitals=self.names, rounds=rounds, timeout=300)
        self.center = folder / "coordinator"

    def simplify(self, *models: str, kind: str = "classification", limits: str = "") -> None:
        """Have the hospitals hold small tables of numbers and quick models, in place of the example's.

        Args:
            models: the hospitals' models by name, one after another.
            kind: ``"classification"`` or ``"regression"``.
            limits: further lines of a party's limits and sections behind them.
        """
        rng, columns = np.random.default_rng(0), ["a", "b", "c", "d"]
        address = read_toml(self.center / "coordinator.toml", missing="")["address"]
        public = pd.DataFrame(rng.normal(size=(40, 4)).round(3), columns=columns)
        public.to_csv(self.center / "public.csv", index=False)
        for name, model in zip(self.names, cycle(models), strict=False):
            home = self.folder / name
            public.to_csv(home / "public.csv", index=False)
            for file, rows in (("patients", 80), ("test", 40)):
                table = pd.DataFrame(rng.normal(size=(rows, 4)).round(3), columns=columns)
                score = table["a"] + table["b"] * table["c"]
                yes_or_no = np.where(score > 0, "yes", "no")
                table["disease"] = yes_or_no if kind == "classification" else score.round(3)
                table.to_csv(home / f"{file}.csv", index=False)
            says = 'classes = ["no", "yes"]' if kind == "classification" else ""
            filled = {"public": 'public = "public.csv"', "says": says, "options": ""}
            text = self.made.PARTY.format(name=name, model=model, address=address, **filled)
            text = text.replace('kind = "classification"', f'kind = "{kind}"')
            text = text.replace('unknown = "missing"\n', "")
            named = 'federation = "coordinator"\n'
            self.party(name).write_text(text.replace(named, named + limits))

    def changed(self, **values: str) -> None:
        """Put other values of keys into the coordinator's configuration."""
        path = self.center / "coordinator.toml"
        text = path.read_text()
        for key, value in values.items():
            text, found = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.MULTILINE)
            assert found, key
        path.write_text(text)

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
        self._each("start", "--detach", names=names)

    def stop(self, *names: str) -> None:
        """Have parties take part no more."""
        self._each("stop", names=names)

    def _each(self, verb: str, *words: str, names: tuple[str, ...]) -> None:
        with ThreadPoolExecutor() as pool:  # a command takes seconds to begin
            said = [
                pool.submit(self.said, "party", verb, self.party(name), *words)
                for name in names or self.names
            ]
        for one in said:
            one.result()

    def said(self, *words: object) -> str:
        """What a command says; it must end well."""
        done = shell(*words, timeout=SLOWEST)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Where the coordinator is."""
        return json.loads(self.said("coordinator", "status", self.center, "--json", "-"))

    def wait(self, *, round: int | None = None, seconds: float = 1200) -> dict[str, Any]:
        """Until a round is kept, or all is done and the coordinator's processes have ended."""
        until = time.monotonic() + seconds
        run = self.center / "run"
        while True:
            alive = held(run / "flower")
            begun = (run / "ledger.sqlite").exists()
            done = begun and self.is_done()
            kept = begun and round is not None and self.kept() >= round
            # A coordinator that is done closes its connections for seconds, and holds the run till then.
            if (done and not alive) or (kept and not done):
                return self.status()
            assert done or alive, (run / "log").read_text()
            assert time.monotonic() < until, f"after {seconds} s: {self.status()}"
            time.sleep(1)

    def is_done(self) -> bool:
        """Whether the ledger says that the run has ended."""
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
        self.changed(rounds=str(self.kept() + 1))
        self.said("coordinator", "resume", self.center, "--detach")
        return self.wait()

    def left_out(self) -> dict[Absence, str]:
        """Who was left out of which exchange, and why, but for those that only keep and measure.

        Who answered twice was not left out: the second answer alone was dropped.
        """
        with self.ledger() as ledger:
            found = ledger.read(
                "SELECT party, round, tasks, detail FROM deliveries AS missed WHERE status != 'ok' "
                "AND tasks NOT IN ('Evaluate', 'Restore', 'Join') AND NOT EXISTS (SELECT 1 FROM "
                "deliveries AS came WHERE came.status = 'ok' AND (came.party, came.round, came.tasks) "
                "= (missed.party, missed.round, missed.tasks))"
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

    def in_one_process(
        self, protocol: Protocol, *, was: SetBack | None = None
    ) -> tuple[dict[str, Party], Round]:
        """Run the same federation in this process: the parties, and the last round.

        Those who were left out of an exchange are left out of it here too, and what a party has released with
        noise is what it released there.

        Args:
            protocol: the coordinator's, or another one.
            was: a party's state that was set back there.
        """
        spec, ledger = read_coordinator(self.center), self.center / "run" / "ledger.sqlite"
        absent = frozenset(self.left_out()) if ledger.exists() else frozenset()
        with ExitStack() as stack:
            members = []
            for name in self.names:
                own = read_party(self.party(name))
                members.append(as_deployed(own))
                if (own.state / RELEASES).exists():
                    releases = stack.enter_context(closing(PrivacyLedger(own.state / RELEASES)))
                    privacy_of(members[-1]).accountant.keep_in(releases)
            network = Replayed(members, spec.rows(), left_out=absent, was=was)
            federation = federation_over(network, spec.rows(), seed=spec.seed)
            *_, last = federation.rounds(protocol)
        return dict(network._members), last

    def answers_of(self, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What the model that a party holds says of rows, as probabilities or values and as logits."""
        with read_party(self.party(name)).site(wait=QUIET_AFTER) as site:
            party = site.party()
            assert party is not None
            return answers(party, rows)

    def different(self, *, was: SetBack | None = None) -> list[str]:
        """The parties whose models are not those of the same federation in one process.

        Args:
            was: a party's state that was set back.
        """
        spec = read_coordinator(self.center)
        members, _ = self.in_one_process(spec.make_protocol(), was=was)
        found = []
        for name, here in members.items():
            rows = np.concatenate([here.rows.X, here.rows.test[0], spec.rows().X])
            there = self.answers_of(name, rows)
            for kind, values in answers(here, rows).items():
                if not np.array_equal(values, there[kind]):
                    found.append(f"{name}: {kind}")
        return found


def answers(party: Party, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What a party's model says of rows, in every form that it has."""
    kinds = ("predict", "logits") if party.rows.kind == "classification" else ("predict",)
    return {kind: getattr(party.trainer.learner, kind)(rows) for kind in kinds}


_OFTEN = """\
import time

_sleep = time.sleep
time.sleep = lambda seconds: _sleep({seconds} if seconds == 3 else seconds)
"""


def look_often(folder: Path, seconds: float) -> None:
    """Have SuperNodes that are started from now on look for messages more often than every 3 s.

    Args:
        folder: to be made, for a file that every Python reads when it starts.
        seconds: between looks, in place of Flower's 3.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_OFTEN.format(seconds=seconds))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder.resolve()), before]))


def kill(*pids: int) -> None:
    """As a power cut would, one by one."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
