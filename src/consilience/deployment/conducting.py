"""The rounds of a deployed federation: recorded, kept at every party, and gone on with after any crash.

    run/config.json        the configuration that the run was started with
    run/ledger.sqlite      every round, what left whom, the metrics, and the protocol's state
    run/outcome.json       how it ended

Exchanges over Flower take seconds, so every round is kept: when its metrics are asked for, each party puts
its state aside with them. A run that goes on has the parties take up what they put aside after the last round
that was recorded; a party that missed it takes up its own last one. One that is not there goes on from
its last answer when it is back; one whose state is gone joins anew after the round in which it says so, and
trains from the beginning.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from consilience.deployment.specification import CoordinatorSpec, read_coordinator
from consilience.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.experiments.ledger import Ledger
from consilience.experiments.run import locked
from consilience.federation import Federation
from consilience.knowledge import Metrics
from consilience.network import Network
from consilience.network.flower import FlowerNetwork
from consilience.protocols import Round, RoundState
from consilience.site import NOT_JOINED
from consilience.tasks import Checkpoint, Evaluate, Join, Restore
from consilience.wire import decode, encode

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
        part = folder / "run" / "outcome.part"
        part.write_text(json.dumps(found))
        part.replace(folder / "run" / OUTCOME)


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
    spec, run = read_coordinator(folder), folder / "run"
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        label, seed = spec.method.label, spec.seed
        found = ledger.last_checkpoint(label, seed)
        ledger.forget_after(label, seed, found[0] if found else -1)
        network = FlowerNetwork(
            grid,
            nodes=tuple(spec.parties),
            wait=spec.wait,
            least=1 if found else None,
            federation=spec.name,
            timeout=spec.timeout,
            quorum=spec.quorum,
        )
        federation = Federation.over(
            network, spec.rows(), seed=seed, strict=spec.strict, threads=spec.threads
        )
        state: RoundState | None = None
        if found is not None:
            (network.agreement,) = decode(bytes.fromhex(ledger.meta["agreement"]))
            _taken_up(network, ledger)
            (state,) = decode(found[1])
        ledger.write("arms", [(label, seed, "running", 0.0)])
        before = ledger.read("SELECT coalesce(max(seconds), 0) FROM rounds")[0][0]
        begun = time.perf_counter() - before
        previous = found[0] if found else 0
        for round in federation.rounds(spec.rules(), state=state):
            metrics = _kept(network, round, previous)
            with ledger.transaction():
                _record(ledger, spec, round, metrics, network, time.perf_counter() - begun)
            previous = round.number
        ledger.write("arms", [(label, seed, "done", time.perf_counter() - begun)])


def _taken_up(network: Network, ledger: Ledger) -> None:
    """Have every party that is there take up the last state that it put aside."""
    joined = network.ask(Join(agreement=network.agreed)).parties
    kept = ledger.read(
        "SELECT party, max(round) FROM deliveries WHERE tasks LIKE 'Checkpoint%' AND status = 'ok' "
        "GROUP BY party"
    )
    tasks = {int(number): Restore(round=int(number)) for _, number in kept}
    chosen = {party: tasks[int(number)] for party, number in kept if party in joined}
    if chosen:
        network.ask_each(chosen)


def _kept(network: Network, round: Round, previous: int) -> dict[str, Mapping[str, float]]:
    """Every party's metrics; each puts its state aside. Those whose state is gone join anew."""
    t = round.number
    replies = network.gather(Checkpoint(round=t, previous=previous), Evaluate(round=t))
    lost = [name for name, why in replies.missing.items() if NOT_JOINED in why.reason]
    if lost:
        network.gather(Join(agreement=network.agreed), to=lost)
    return {metrics.party: metrics.values for metrics in replies.of(Metrics)}


def _record(
    ledger: Ledger,
    spec: CoordinatorSpec,
    round: Round,
    metrics: Mapping[str, Mapping[str, float]],
    network: Network,
    seconds: float,
) -> None:
    label, seed = spec.method.label, spec.seed
    ledger.forget_states(label, seed)
    state = encode([round.state])
    ledger.write("rounds", [(label, seed, round.number, seconds, state, 1, None)])
    ledger.note(agreement=encode([network.agreed]).hex())
    ledger.deliveries(label, seed, round.number, network.deliveries)
    network.deliveries.clear()
    ledger.write(
        "metrics",
        (
            (label, seed, round.number, party, name, value)
            for party, values in metrics.items()
            for name, value in values.items()
        ),
    )


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


def _outcome(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "run" / OUTCOME).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return dict(found)
