"""Single repetitions of each experiment: fresh clients, plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.aggregation import Aggregator
from consilience.core.errors import QuorumLost, RunFailed
from consilience.core.federation.federation import Federation
from consilience.core.federation.history import History
from consilience.core.messages.replies import Metrics
from consilience.core.protocols import Protocol, ensemble_distillation, local_only
from consilience.core.tasks.base import bookkeeping_tasks
from consilience.lab.diagnostics.error_parts import teacher_parts
from consilience.lab.experiments import SimulatedParties
from consilience.methods.compression.codec import chain, quantized, zstd
from consilience.methods.parameters.scaffold import scaffold
from consilience_papers.kovalchuk2026 import problems
from consilience_papers.kovalchuk2026.problems import Size

Numbers = dict[str, Any]

PARTS = ("bias", "variance", "correlation", "concentration", "bound")
"""Of Lemma 4.1, beside the error itself."""


def taught(
    *,
    data: str,
    share: float,
    rule: str,
    size: Mapping[str, Any],
    coded: bool = False,
    repetition: int,
) -> Numbers:
    """Clients that distil: accuracies round by round, bytes, and what the teacher's error is made of.

    Args:
        data: a key of :data:`~consilience_papers.kovalchuk2026.problems.SIZES`.
        share: of the classes that a client holds.
        rule: by its name in tables.
        size: the fields of a :class:`~consilience_papers.kovalchuk2026.problems.Size`.
        coded: whether soft labels are sent in 8 bits, compressed.
        repetition: which draw.

    Returns:
        ``accuracy`` and ``local``, means over clients of the accuracy on all classes and on their own after
        rounds 0, 1, …; ``after training`` and ``local after training`` the same after the local stage of
        rounds 1, 2, …; ``up`` and ``down``, bytes a client and round; ``teacher``, its accuracy on the public
        rows, ``mse``, its squared distance from their true classes, and :data:`PARTS`, NaN for rules that are
        not means of probabilities.
    """
    how = Size(**size)
    given = problems.cohort(data, share, how, repetition)
    federation = Federation(given.parties(), given.public, seed=repetition, strict=False)
    between: list[Mapping[str, Metrics]] = []
    aggregate = _watched(problems.rule(rule, given), lambda: between.append(federation.evaluate(0)))
    protocol = ensemble_distillation(aggregate=aggregate, rounds=how.rounds)
    if coded:
        protocol = protocol.compressed(chain(quantized(8), zstd()))
    history = federation.run(protocol, progress=False)
    names, labels = federation.network.agreed.classes, given.public_labels
    assert labels is not None
    truth = np.asarray(names) == labels[:, None]
    found: Numbers = {
        **_accuracies(history),
        **_bytes(history),
        "after training": [_mean(metrics, "accuracy") for metrics in between],
        "local after training": [_mean(metrics, "accuracy_own") for metrics in between],
        "teacher": [],
        "mse": [],
        **{part: [] for part in PARTS},
    }
    for round in history.rounds[1:]:
        assert round.teacher is not None and round.replies is not None
        values = round.teacher.values
        found["teacher"].append((np.asarray(names)[values.argmax(axis=1)] == labels).mean())
        found["mse"].append(((values - truth) ** 2).sum(axis=1).mean())
        parts = teacher_parts(round, labels, names)
        for part in PARTS:
            found[part].append(parts.get(part, np.nan))
    return found


def _watched(aggregate: Aggregator, look: Callable[[], None]) -> Aggregator:
    """Wrap a rule, which is called between the two stages, so that ``look`` is called there too."""

    def rule(stack: Any) -> Any:
        look()
        return aggregate.rule(stack)

    return replace(aggregate, rule=rule)


def alone(*, data: str, share: float, size: Mapping[str, Any], repetition: int) -> Numbers:
    """Train the clients without exchange, as many epochs on private rows: ``accuracy`` and ``local``.

    Args:
        data: as in :func:`taught`.
        share: as there.
        size: as there.
        repetition: as there.
    """
    how = Size(**size)
    given = problems.cohort(data, share, how, repetition)
    return _accuracies(_run(given, local_only(rounds=how.rounds), repetition))


def averaged(*, data: str, share: float, size: Mapping[str, Any], repetition: int) -> Numbers:
    """Train the clients with SCAFFOLD: ``accuracy``, ``local``, ``up`` and ``down`` as in :func:`taught`.

    Args:
        data: as in :func:`taught`.
        share: as there.
        size: as there.
        repetition: as there.
    """
    how = Size(**size)

    def run(rate: float, rounds: int, *, held: bool) -> History:
        given = problems.averaged(data, share, how, repetition, rate, held=held)
        return _run(given, scaffold(rounds=rounds), repetition)

    def score(rate: float) -> float:
        try:
            return float(run(rate, how.exchanges, held=True).metric()[-1].mean())
        except (RunFailed, QuorumLost):  # training ended in NaN
            return 0.0

    rate = how.rates[0] if len(how.rates) == 1 else max(how.rates, key=score)
    history = run(rate, how.exchanges, held=False)
    return {**_accuracies(history), **_bytes(history), "rate": rate}


def _run(given: SimulatedParties, protocol: Protocol, repetition: int) -> History:
    """Clients of their own, all the way through a protocol."""
    federation = Federation(given.parties(), given.public, seed=repetition, strict=False)
    return federation.run(protocol, progress=False)


def _accuracies(history: History) -> Numbers:
    return {
        "accuracy": history.metric("accuracy").mean(axis=1),
        "local": history.metric("accuracy_own").mean(axis=1),
    }


def _bytes(history: History) -> Numbers:
    """Bytes of a client, round by round; those before the first round count as the first round's."""
    before, first, *later = history.deliveries
    aside = bookkeeping_tasks()
    sent = [
        [one for one in round if one.tasks not in aside] for round in ([*before, *first], *later)
    ]
    clients = history.metric().shape[1]
    return {
        "up": [sum(one.bytes_up for one in round) / clients for round in sent],
        "down": [sum(one.bytes_down for one in round) / clients for round in sent],
    }


def _mean(metrics: Mapping[str, Metrics], name: str) -> float:
    return float(np.mean([given.values[name] for given in metrics.values()]))
