"""How the consensus moves from round to round: a small pure step, ``init`` and ``update``.

It composes with any aggregator: the rule proposes a teacher, the step decides how far to go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInput

Array = NDArray[Any]
ConsensusState = Mapping[str, Any]
"""Plain numbers and arrays, so that a round's state can be written down and resumed."""


@dataclass(frozen=True)
class ConsensusUpdate:
    """A step of the consensus.

    Attributes:
        name: as reports show it.
        init: the state before the first proposal.
        update: ``(proposal, state) -> (consensus, state)``; arrays of shape ``(n_public, n_outputs)``.
    """

    name: str
    init: Callable[[], ConsensusState]
    update: Callable[[Array, ConsensusState], tuple[Array, ConsensusState]]


def replace() -> ConsensusUpdate:
    """The consensus is the newest proposal."""
    return ConsensusUpdate("replace", dict, lambda proposal, state: (proposal, state))


def damped(step: float | None = None, *, exponent: float = 0.501) -> ConsensusUpdate:
    """``y_t = (1 - g_t) y_{t-1} + g_t proposal`` with ``g_1 = 1``.

    Robbins–Monro damping, Park et al. 2023, Algorithm 3: the steps ``g_t = t**-exponent`` average out
    the noise of partial participation.

    Args:
        step: a constant ``g_t`` in (0, 1] for t ≥ 2; ``None`` for the schedule.
        exponent: q in [0, 1] of the schedule; the paper takes 0.501.
    """
    if step is not None and not 0 < step <= 1:
        raise InvalidInput(f"step is {step}", where="damped", mend="It lies in (0, 1].")
    if not 0 <= exponent <= 1:
        raise InvalidInput(f"exponent is {exponent}", where="damped", mend="It lies in [0, 1].")

    def update(proposal: Array, state: ConsensusState) -> tuple[Array, ConsensusState]:
        t = int(state["t"]) + 1
        if t == 1:
            consensus = proposal
        else:
            g = t**-exponent if step is None else step
            consensus = ((1 - g) * state["consensus"] + g * proposal).astype(np.float32)
        return consensus, {"t": t, "consensus": consensus}

    return ConsensusUpdate("damped", lambda: {"t": 0}, update)
