"""Baseline without exchange: every party trains alone.

A party trains on its private rows as often as under a protocol with the same number of rounds. The
difference to that protocol is therefore the effect of the exchange, not of longer training.
"""

from __future__ import annotations

from consilience.core.messages.schema import Public
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.tasks.base import NetworkView
from consilience.core.tasks.predictions import FitPrivate


@protocol(exchanges=None, any_party=True)
def local_only(
    network: NetworkView, public: Public, state: RoundState | None, *, rounds: int = 1
) -> Rounds:
    """Train every party on its private rows in each round, without any exchange.

    Args:
        rounds: number of rounds; learners that retrain from scratch on every fit are trained once.

    Raises:
        InvalidInput: ``rounds`` is below 1.
    """
    check_options(network, rounds=rounds)
    able = network.agreed.answering(network.parties)  # the others have no labels
    if state is None:
        network.ask(FitPrivate(round=1), to=able)
        state = RoundState(round=0)
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        if t > 1:
            network.ask(FitPrivate(round=t), to=able)
        state = RoundState(round=t)
        yield Round(t, state)
