"""Rounds of a deployed federation: recorded one by one, and resumed after a crash.

The run folder is described in :mod:`consilience.lab.runs.folder`. In addition, ``outcome.json`` records how
the run ended, and ``stage.json`` records the current request and its recipients.

A run can be resumed after every round. A party writes its state with every answer, and every request contains
the last recorded round. When a party first receives a new number, it keeps its current state as a
checkpoint, so that checkpoints need no further message. When a run is resumed, the parties restore their
checkpoints of the last recorded round. A party offline at this time continues from its last answer later. A
party without a state joins again after the round in which it reports this, and trains from the beginning. If
a party has lost only its public rows, they are sent again, and it continues.

A party evaluates its model as often as its limits allow. The evaluation is requested when the round is
recorded, before any other request: if a crash loses the answer, the repeated request returns it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.federation.driver import CompletedRound, drive, measured_rounds
from consilience.core.federation.federation import federation_over
from consilience.core.files import write_whole
from consilience.core.messages.replies import Failure, Metrics
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.incoming import task_names
from consilience.core.protocols import Round, RoundState
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Evaluate, Restore
from consilience.core.validation.arrays import Array
from consilience.lab.runs.folder import LEDGER, locked
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import CoordinatorSpec, stored_coordinator
from consilience.sites.coordinator.membership import MembershipNetwork, agreement_of

OUTCOME = "outcome.json"
STAGE = "stage.json"


def serve_run(grid: Any, config: Mapping[str, Any], *, lock: float = 60.0, **options: Any) -> None:
    """Run the remaining rounds, and write how the run ended; the main function of Flower's ServerApp.

    Args:
        grid: Flower's grid.
        config: Flower's run configuration; ``folder`` is the coordinator's folder.
        lock: seconds to wait until remaining processes of a killed coordinator have ended.
        **options: options of :class:`MembershipNetwork` that replace the default ones.
    """
    folder = Path(str(config["folder"]))
    with closing(locked(folder / "run", wait=lock)):  # a second one ends here, and says nothing
        found = _ended(grid, folder, options)
        (folder / "run" / STAGE).unlink(missing_ok=True)
        write_whole(folder / "run" / OUTCOME, json.dumps(found))


def _ended(grid: Any, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Do the rounds; the result is what :data:`OUTCOME` holds."""
    try:
        run_rounds(grid, folder, **options)
    except ConsilienceError as error:
        kind = "invalid" if isinstance(error, InvalidInput) else "failed"
        return {"status": kind, "what": error.what, "where": error.where, "mend": error.mend}
    except Exception as error:  # the SuperLink went away, say: the coordinator tries again
        return {"status": "crashed", "what": f"{type(error).__name__}: {error}"}
    return {"status": "done"}


def run_rounds(grid: Any, folder: Path, **options: Any) -> None:
    """Run the remaining rounds.

    Args:
        grid: Flower's grid.
        folder: the coordinator's folder.
        **options: options of :class:`MembershipNetwork` that replace the default ones.

    Raises:
        InvalidInput: the parties, their data or the protocol's options do not fit together.
        RunFailed: too few parties, or a file cannot be written.
    """
    spec = stored_coordinator(folder)
    assert spec is not None  # whoever starts this stores it before
    with closing(Ledger(folder / "run" / LEDGER)) as ledger:
        _DeployedRun(grid, folder, spec, ledger, **options).run()


class _DeployedRun:
    """The rounds of one run, from the first one or after the last recorded one."""

    def __init__(
        self, grid: Any, folder: Path, spec: CoordinatorSpec, ledger: Ledger, **options: Any
    ) -> None:
        self.folder, self.spec, self.ledger = folder, spec, ledger
        self.label, self.seed = spec.method.label, spec.seed
        self.found = ledger.last_checkpoint(self.label, self.seed)
        public, self.secret = spec.rows_and_secret()
        self._stage: dict[str, Any] = {}
        self._still = int(ledger.meta.get("still", 0))
        self._teacher: Array | None = None
        """Rounds in a row in which the teacher stayed, and the last one."""
        self.network = MembershipNetwork(
            grid,
            nodes=tuple(spec.parties),
            wait=spec.wait,
            least=1 if self.found else None,
            federation=spec.name,
            recorded=self.found[0] if self.found else -1,
            timeout=spec.timeout,
            quorum=spec.quorum,
            share=spec.pace.share,
            grace=spec.pace.grace,
            public=public,
            changed=self._note_members,
            waiting=self._note_stage,
            **options,
        )

    def run(self) -> None:
        """Do the rounds; each is recorded and evaluated by :meth:`_record`."""
        label, seed, ledger, spec = self.label, self.seed, self.ledger, self.spec
        ledger.forget_after(label, seed, self.found[0] if self.found else -1)
        federation = federation_over(
            self.network,
            self.network.public,
            seed=seed,
            strict=spec.strict,
            threads=spec.threads,
            encoder=spec.encoder or None,
            tolerates=spec.robustness.unaided,
        )
        state = None if self.found is None else self._restored(*self.found)
        ledger.mark(label, seed, "running")
        ledger.note(public_rows=len(self.network.public))
        seconds = ledger.last_round(label, seed)[1]
        done: CompletedRound | None = None
        while not self._is_over() and (done is None or done.round.number < spec.protocol.rounds):
            before = done
            for done in drive(
                federation,
                spec.make_protocol(self.secret),
                state=state,
                seconds=seconds,
                checkpoint=lambda round, seconds: True,
                record=self._record,
            ):
                state, seconds = done.round.state, done.seconds
                if self._is_over():
                    break
                if self._regrouped(state.round):
                    break  # the protocol goes on with the parties that there are now
            if done is before:  # nothing was left to do
                break
        ledger.mark(label, seed, "done", seconds)

    def _is_over(self) -> bool:
        """Tell whether the run ends before its last round, for the teacher stays as it is."""
        return self.spec.pace.is_over(self._still)

    def _regrouped(self, round: int) -> bool:
        """Admit parties added to the configuration, and release parties removed from it.

        Args:
            round: number of the completed round.

        Returns:
            True if the parties have changed.
        """
        stored, network = stored_coordinator(self.folder), self.network
        wanted = set() if stored is None else set(stored.parties)
        before = set(network.parties)
        if not wanted or wanted == before:
            return False
        network.regroup(wanted)
        told = [f"{name} was added after round {round}" for name in sorted(wanted - before)]
        told += [f"{name} was removed after round {round}" for name in sorted(before - wanted)]
        with self.ledger.transaction():
            self.ledger.write("notes", [(self.label, self.seed, round, line) for line in told])
        return True

    def _restored(self, number: int, written: bytes) -> RoundState:
        """The state after the last recorded round, with members and parties as they were then."""
        network, meta = self.network, self.ledger.meta
        network.agreement = agreement_of(self.ledger)
        for name, (why, banned) in meta["excluded"].items():
            if name not in network.parties:  # it was removed meanwhile
                continue
            network.excluded[name] = Failure(party=name, reason=why)
            network.banned |= {name} if banned else set()
        network.most_measurements |= meta.get("metrics", {})
        if meta.get("measured", -1) < number:
            self._evaluate(number)
        answered = "SELECT DISTINCT party FROM deliveries WHERE status = 'ok'"
        heard = {name for (name,) in self.ledger.read(answered)}
        heard &= set(network.parties)  # some were removed meanwhile
        network.described |= heard
        (state,) = decode(written)
        assert isinstance(state, RoundState)
        if inside := sorted(heard - network.excluded.keys()):
            network.with_rows(dict.fromkeys(inside, (Restore(round=number),)))
            network.take_back()
        asked = {name for (name,) in self.ledger.read("SELECT DISTINCT party FROM deliveries")}
        network.admit(set(network.parties) - asked - network.excluded.keys())
        network.readmit()
        self._teacher = state.consensus
        return state

    def _record(self, done: CompletedRound) -> None:
        """Record the round, then request the parties' metrics and record these.

        After every round except the last, parties without a state and excluded ones join if they can.
        """
        network, ledger = self.network, self.ledger
        with ledger.transaction():
            ledger.add_round(self.label, self.seed, done, network.deliveries)
            agreed = network.agreed
            ledger.note(agreement=encode([agreed]).hex(), learners=list(agreed.learners))
            teacher = done.round.state.consensus
            self._still = self.spec.pace.rounds_still(self._still, self._teacher, teacher)
            self._teacher = teacher
            ledger.note(still=self._still)
            if agreed.classes and not agreed.outcome:
                self._add_trust(done.round, np.asarray(agreed.classes))
        network.deliveries.clear()
        network.recorded = done.round.number
        self._evaluate(done.round.number)
        if done.round.number < self.spec.protocol.rounds:
            network.take_back()
            network.readmit()

    def _add_trust(self, round: Round, classes: Array) -> None:
        """Record each party's weight by class; the teacher's classes stand in for the unknown true ones."""
        teacher = round.teacher
        if teacher is not None and (weights := teacher.weights) is not None:
            taught = weights.any(axis=0)
            teacher = replace(teacher, values=teacher.values[taught], weights=weights[:, taught])
            labels = classes[teacher.values.argmax(axis=1)]
            self.ledger.add_trust(self.label, self.seed, round.number, teacher, labels)

    def _evaluate(self, round: int) -> None:
        """Request metrics from the parties due for evaluation.

        The exchange does not end early before the due parties with a complete round have answered.
        """
        network, ledger, spec = self.network, self.ledger, self.spec
        before = dict(
            ledger.read("SELECT party, count(DISTINCT round) FROM metrics GROUP BY party")
        )

        def due(name: str) -> bool:
            most = network.most_measurements.get(name, 1)  # of one that came late nothing is known
            times = spec.metrics if most is None else min(most, spec.metrics)
            planned = measured_rounds(times, round if self._is_over() else spec.protocol.rounds)
            return round in planned and before.get(name, 0) < times

        last_words = ledger.read(
            "SELECT party, status, max(rowid) FROM deliveries WHERE within = ? GROUP BY party",
            round,
        )
        through = {name for name, status, _ in last_words if status == "ok"}
        asked = [name for name in network.parties if name not in network.excluded and due(name)]
        # Their limits count what was measured, heard or not.
        with network.not_without(through.intersection(asked)):
            replies = network.gather(Evaluate(round=round), to=asked).of(Metrics) if asked else []
        with ledger.transaction():
            metrics = {one.party: one.values for one in replies}
            ledger.add_deliveries(self.label, self.seed, round, network.deliveries, metrics)
            ledger.note(measured=round)
        network.deliveries.clear()

    def _note_stage(self, tasks: tuple[Task, ...], parties: Sequence[str]) -> None:
        """Write the current request, the time of its start, and the parties whose reply is awaited."""
        asked = {"round": tasks[0].round, "tasks": task_names(tasks)}
        if asked.items() - self._stage.items():
            self._stage = {**asked, "since": time.time()}
        with suppress(OSError):  # for who watches; a run does not end for it
            stage = json.dumps({**self._stage, "awaited": list(parties)})
            write_whole(self.ledger.path.parent / STAGE, stage)

    def _note_members(self) -> None:
        """Record the excluded parties with reason and ban, and the limits on evaluations."""
        network = self.network
        excluded = {
            name: (why.reason, name in network.banned) for name, why in network.excluded.items()
        }
        self.ledger.note(excluded=excluded, metrics=network.most_measurements)


def outcome(folder: Path) -> bool:
    """Return true if a run has ended successfully; false if it has not ended, or has crashed.

    Raises:
        InvalidInput, RunFailed: the run has ended with this error.
    """
    found = _outcome(folder)
    if found.get("status") in ("invalid", "failed"):
        kind = InvalidInput if found["status"] == "invalid" else RunFailed
        raise kind(found["what"], where=found.get("where"), mend=found.get("mend"))
    return found.get("status") == "done"


def crash(folder: Path) -> str:
    """Return the reason why a run crashed, if it was recorded."""
    return str(_outcome(folder).get("what", "no reason is known"))


def ending(folder: Path) -> str:
    """Give the reason why a run ended before it was done, with what would help; empty where it did not."""
    found = _outcome(folder)
    if found.get("status") in (None, "done"):
        return ""
    return str(RunFailed(found["what"], where=found.get("where"), mend=found.get("mend")))


def stage(folder: Path) -> dict[str, Any]:
    """Read the current request to the parties: ``round``, ``tasks``, ``since`` (Unix time) and ``awaited``.

    Empty before the first request. A killed run leaves its last stage.
    """
    return _read(folder / "run" / STAGE)


def _outcome(folder: Path) -> dict[str, Any]:
    return _read(folder / "run" / OUTCOME)


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty if there is no file or its content is invalid."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}
