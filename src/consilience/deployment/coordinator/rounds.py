"""The rounds of a deployed federation: recorded, kept at every party, and gone on with after any crash.

    run/config.json        the configuration that the run was started with
    run/ledger.sqlite      every round, what left whom, the metrics, and the protocol's state
    run/outcome.json       how it ended

Exchanges over Flower take seconds, so every round is kept: each party puts its state aside. A run that goes
on has the parties take up what they put aside after the last round that was recorded; a party that missed it
takes up its own last one. One that is not there goes on from its last answer when it is back; one whose state
is gone joins anew after the round in which it says so, and trains from the beginning. One that lost its
public rows alone is sent them then, and goes on.

A party says how good its model is as often as its limits allow. It is asked when the round is recorded, and
before anything else is asked of it: where a crash lost the answer, the same question gets it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from consilience.deployment.coordinator.configuration import CoordinatorSpec, kept
from consilience.deployment.coordinator.membership import JoiningNetwork
from consilience.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.experiments.run import locked
from consilience.federation.driver import measured_rounds
from consilience.federation.federation import Federation
from consilience.federation.ledger import Ledger
from consilience.files import write_whole
from consilience.messages.replies import Failure, Metrics, Replies
from consilience.messages.wire import decode, encode
from consilience.networks import Network
from consilience.protocols import Round, RoundState
from consilience.tasks.lifecycle import Checkpoint, Evaluate, Restore

OUTCOME = "outcome.json"

LOCK = 60.0
"""Seconds that what is left of a coordinator that was killed has to be gone."""


def conduct(grid: Any, config: Mapping[str, Any]) -> None:
    """Do the rounds that are not done yet, and write how it ended; what Flower's ServerApp does.

    Args:
        grid: Flower's.
        config: ``folder`` is the coordinator's.
    """
    folder = Path(str(config["folder"]))
    with closing(locked(folder / "run", wait=LOCK)):  # a second one ends here, and says nothing
        found = _ended(grid, folder)
        write_whole(folder / "run" / OUTCOME, json.dumps(found))


def _ended(grid: Any, folder: Path) -> dict[str, Any]:
    try:
        conducted(grid, folder)
    except ConsilienceError as error:
        kind = "invalid" if isinstance(error, InvalidInput) else "failed"
        return {"status": kind, "what": error.what, "where": error.where, "mend": error.mend}
    except Exception as error:  # the SuperLink went away, say: the coordinator tries again
        return {"status": "crashed", "what": f"{type(error).__name__}: {error}"}
    return {"status": "done"}


def conducted(grid: Any, folder: Path) -> None:
    """Do the rounds that are not done yet.

    Raises:
        InvalidInput: the parties, their data or the protocol's options do not go together.
        RunFailed: too few parties, or nothing can be written.
    """
    spec, run = kept(folder), folder / "run"
    assert spec is not None  # whoever starts this keeps it before
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        label, seed = spec.method.label, spec.seed
        found = ledger.last_checkpoint(label, seed)
        ledger.forget_after(label, seed, found[0] if found else -1)
        network = JoiningNetwork(
            grid,
            nodes=tuple(spec.parties),
            wait=spec.wait,
            least=1 if found else None,
            federation=spec.name,
            timeout=spec.timeout,
            quorum=spec.quorum,
            public=spec.rows(),
            strict=spec.strict,
            changed=lambda: _note_outside(ledger, network),
        )
        federation = Federation.over(
            network, network.public, seed=seed, strict=spec.strict, threads=spec.threads
        )
        state: RoundState | None = None
        if found is not None:
            (network.agreement,) = decode(bytes.fromhex(ledger.meta["agreement"]))
            for name, (why, barred) in ledger.meta["outside"].items():
                network.outside[name] = Failure(party=name, reason=why)
                network.barred |= {name} if barred else set()
            network.metrics |= ledger.meta.get("metrics", {})
            if ledger.meta.get("measured", -1) < found[0]:
                _measure(network, ledger, spec, found[0])
            _taken_up(network, ledger)
            network.admit()
            (state,) = decode(found[1])
        ledger.write("arms", [(label, seed, "running", 0.0)])
        before = ledger.read("SELECT coalesce(max(seconds), 0) FROM rounds")[0][0]
        begun = time.perf_counter() - before
        for round in federation.rounds(spec.rules(), state=state):
            _keep(network, round, _last_kept(ledger))
            if round.number < spec.protocol.rounds:
                network.admit()
            with ledger.transaction():
                _record(ledger, spec, round, network, time.perf_counter() - begun)
            _measure(network, ledger, spec, round.number)
        ledger.write("arms", [(label, seed, "done", time.perf_counter() - begun)])


def _note_outside(ledger: Ledger, network: JoiningNetwork) -> None:
    """Keep who has not joined and why, whether they still may, and how often parties can be measured."""
    outside = {name: (why.reason, name in network.barred) for name, why in network.outside.items()}
    ledger.note(outside=outside, metrics=network.metrics)


def _last_kept(ledger: Ledger) -> dict[str, int]:
    """Party to the last round after which it put its state aside, as far as the ledger knows."""
    kept = ledger.read(
        "SELECT party, max(round) FROM deliveries WHERE tasks LIKE ? AND status = 'ok' GROUP BY party",
        f"{Checkpoint.__name__}%",
    )
    return {party: int(number) for party, number in kept}


def _taken_up(network: JoiningNetwork, ledger: Ledger) -> None:
    """Have every party that is there take up the last state that it put aside.

    One that cannot stays as it is, and goes on from its last answer; one whose state is gone joins anew.
    """
    kept = _last_kept(ledger)
    tasks = {number: Restore(round=number) for number in set(kept.values())}
    if kept:
        replies = network.ask_each({party: tasks[number] for party, number in kept.items()})
        sent = network.supply(replies.missing)
        for number, task in tasks.items():
            if again := [name for name in sent if kept[name] == number]:
                network.gather(task, to=again)
        _join_anew(network, replies)


def _keep(network: JoiningNetwork, round: Round, previous: Mapping[str, int]) -> None:
    """Have every party put its state aside, and hold on to the one that the ledger knows."""
    alike: dict[int, list[str]] = {}
    for name in network.parties:
        alike.setdefault(previous.get(name, 0), []).append(name)
    for number, names in alike.items():
        aside = Checkpoint(round=round.number, previous=number)
        _join_anew(network, network.with_rows(aside, to=names))


def _measure(network: JoiningNetwork, ledger: Ledger, spec: CoordinatorSpec, round: int) -> None:
    """Ask how good their models are: those that put their state aside after the round and are due then."""
    before = dict(ledger.read("SELECT party, count(DISTINCT round) FROM metrics GROUP BY party"))

    def due(name: str) -> bool:
        most = network.metrics.get(name, 1)  # of one that came late nothing is known
        times = spec.metrics if most is None else min(most, spec.metrics)
        planned = measured_rounds(times, spec.protocol.rounds)
        return round in planned and before.get(name, 0) < times

    asked = [name for name, last in _last_kept(ledger).items() if last == round and due(name)]
    said = network.gather(Evaluate(round=round), to=asked).of(Metrics) if asked else []
    with ledger.transaction():
        metrics = {one.party: one.values for one in said}
        ledger.exchanged(spec.method.label, spec.seed, round, network.deliveries, metrics)
        ledger.note(measured=round)
    network.deliveries.clear()


def _join_anew(network: JoiningNetwork, replies: Replies) -> None:
    """Have those join whose state is gone."""
    network.join(name for name, why in replies.missing.items() if why.code == "not-joined")


def _record(
    ledger: Ledger,
    spec: CoordinatorSpec,
    round: Round,
    network: Network,
    seconds: float,
) -> None:
    label, seed = spec.method.label, spec.seed
    ledger.forget_states(label, seed)
    state = encode([round.state])
    ledger.write("rounds", [(label, seed, round.number, seconds, state, 1, None)])
    ledger.note(agreement=encode([network.agreed]).hex())
    ledger.exchanged(label, seed, round.number, network.deliveries, {})
    network.deliveries.clear()


def outcome(folder: Path) -> bool:
    """Whether a run has ended well; ``False`` while it has not ended, or where it crashed.

    Raises:
        InvalidInput, RunFailed: it has ended with that.
    """
    found = _outcome(folder)
    if found.get("status") in ("invalid", "failed"):
        kind = InvalidInput if found["status"] == "invalid" else RunFailed
        raise kind(found["what"], where=found.get("where"), mend=found.get("mend"))
    return found.get("status") == "done"


def crash(folder: Path) -> str:
    """Why a run crashed, if it could say so."""
    return str(_outcome(folder).get("what", "no reason is known"))


def ending(folder: Path) -> str:
    """Why a run ended before it was done, with what would help; empty where it did not."""
    found = _outcome(folder)
    if found.get("status") in (None, "done"):
        return ""
    return str(RunFailed(found["what"], where=found.get("where"), mend=found.get("mend")))


def _outcome(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "run" / OUTCOME).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return dict(found)
