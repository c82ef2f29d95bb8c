"""The baseline without exchange: every party trains alone.

A party trains on its private rows as often as under a protocol with the same number of rounds, so that
what the protocol adds is the exchange and not the training time.
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
    """Every party trains on its own rows, round after round; nothing is exchanged.

    Args:
        rounds: how often; learners that start anew on every fit are trained once.
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
