"""Cost of a round of predictions through the encrypted relay, by the number of agents (appendix G)."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from consilience.core.messages.wire import encode
from consilience_papers.afonin2022.encrypted.linear import LinearModel
from consilience_papers.afonin2022.encrypted.paillier import FixedPoint
from consilience_papers.afonin2022.encrypted.relay import Questioner, Relay
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.study import Study

COLUMNS, KEY = 20, 2048

Numbers = dict[str, float | list[float]]


def exchange(*, agents: int, repetition: int) -> Numbers:
    """Have every agent ask the relay once for the mean of all models on its inputs.

    An agent has a linear model of :data:`COLUMNS` columns and as many rows as one ciphertext holds. Keys are
    made before the clock starts: a key pair serves all rounds.

    Args:
        agents: number of agents.
        repetition: which draw.

    Returns:
        ``relay`` and ``direct``, bytes of a round in all through the relay and of each model sent to each
        agent; ``agents s`` and ``relay s``, seconds of all agents and of the relay; ``error``, the largest
        difference from the mean of the models in the clear.
    """
    rng = np.random.default_rng([repetition, agents])
    models = [
        LinearModel(coefficients=rng.normal(size=(COLUMNS, 1)), intercept=rng.normal(size=1))
        for _ in range(agents)
    ]
    sent = [len(encode([model])) for model in models]
    relay, key = Relay(models), Questioner(key_length=KEY)
    mean = relay.combined()
    asked, asking, answering, error = 0, 0.0, 0.0, 0.0
    for _ in range(agents):
        X = rng.normal(size=(FixedPoint().rows(KEY), COLUMNS))
        start = perf_counter()
        question = key.ask(X)
        middle = perf_counter()
        answer = relay.answer(question)
        end = perf_counter()
        values = key.read(answer, question)
        asking += middle - start + perf_counter() - end
        answering += end - middle
        asked += len(encode([question])) + len(encode([answer]))
        error = max(error, float(np.abs(values - X @ mean.coefficients - mean.intercept).max()))
    return {
        "relay": float(sum(sent) + asked),
        "direct": float(sum(sent) * (agents - 1)),
        "agents s": asking,
        "relay s": answering,
        "error": error,
    }


def relay_cost(study: Study) -> Exhibit:
    """Bytes and seconds of a round through the relay, beside each agent's model sent to each."""
    counts = (2, 4) if study.quick else (2, 5, 10, 20, 40, 80)
    repetitions = study.times(5, 2)
    cells = {
        count: study.repeat(exchange, repetitions, label=f"relay, {count} agents", agents=count)
        for count in counts
    }
    rows = [
        {
            "agents": count,
            "bytes by relay": int(np.median(found["relay"])),
            "bytes, each model to each": int(np.median(found["direct"])),
            "bytes an agent": round(float(np.median(found["relay"])) / count),
            "seconds of all agents": _said(found["agents s"]),
            "seconds of the relay": _said(found["relay s"]),
            "milliseconds an agent": _said(
                1e3 * (found["agents s"] + found["relay s"]) / count, digits=0
            ),
            "largest error": f"{found['error'].max():.0e}",
        }
        for count, found in cells.items()
    ]
    return Exhibit(
        "relay",
        "Appendix G: predictions of all agents' linear models through an encrypted relay",
        rows,
        _claims(cells),
        [
            f"A round: every agent sends its model ({COLUMNS} columns, one output) to the relay, and asks "
            f"once for the mean of all models on {FixedPoint().rows(KEY)} encrypted rows. Paillier's scheme, "
            f"keys of {KEY} bits, made beforehand; one core. Bytes are those of the wire format. Seconds are "
            "the range of the repetitions. Other work on the machine lengthens some, so the least counts.",
            "With few agents the relay takes more bytes than each model to each agent does: a linear model "
            "is smaller than an encrypted row. Without encryption each agent would see each model.",
        ],
    )


def _claims(cells: Mapping[int, Mapping[str, Any]]) -> list[Claim]:
    """The paper's cost, O(M) for M agents, against O(M²) of each model to each."""
    counts = sorted(cells)
    first, last = cells[counts[0]], cells[counts[-1]]
    part = float(np.median(last["relay"])) / counts[-1] * counts[0] / np.median(first["relay"])
    seconds = [
        float(np.min(cells[count]["agents s"] + cells[count]["relay s"])) / count
        for count in counts
    ]
    direct = [float(np.median(cells[count]["direct"])) / count for count in counts]
    return [
        Claim(
            "the bytes of a round are linear in the number of agents",
            abs(part - 1) < 0.01,
            f"bytes an agent with {counts[-1]} agents over those with {counts[0]}: {part:.3f}; "
            f"each model to each: {direct[-1] / direct[0]:.0f}",
        ),
        Claim(
            "the seconds of a round are linear in the number of agents",
            max(seconds) < 1.25 * min(seconds),
            f"most seconds an agent over the least: {max(seconds) / min(seconds):.2f}",
        ),
    ]


def _said(values: np.ndarray, digits: int = 2) -> str:
    """Range of the repetitions.

    >>> _said(np.array([1.0, 2.0, 4.0]))
    '1.00–4.00'
    """
    return f"{values.min():.{digits}f}–{values.max():.{digits}f}"
