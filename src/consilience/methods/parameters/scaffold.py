"""SCAFFOLD: FedAvg with control variates that take out what makes a party's steps its own.

Karimireddy, Kale, Mohri, Reddi, Stich & Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", Algorithm 1 with option II:

     1  server: x, c <- 0; every party i: c_i <- 0
        for round t = 1, …, T do
     2    server: S <- random set of the N parties; send (x, c) to them
          every i in S in parallel:
     3      y_i <- x; for k = 1, …, K:  y_i <- y_i − η_l (g_i(y_i) − c_i + c)
     4      c_i⁺ <- c_i − c + (x − y_i) / (K η_l);  send (y_i − x, c_i⁺ − c_i);  c_i <- c_i⁺
     5    server: x <- x + η_g mean_{i in S} (y_i − x)
     6            c <- c + (|S| / N) mean_{i in S} (c_i⁺ − c_i)

Legend: x, y_i parameters, c, c_i control variates, one for every number that is trained, g_i a gradient on
a batch of party i, K the steps that its recipe's ``epochs`` and ``batch_size`` make, η_l its
``learning_rate``, η_g ``server_rate``, T ``rounds``.

What travels: a model and a control variate from every chosen party, twice what it sends in FedAvg; x to
everybody and c to the chosen, which is twice what FedAvg sends down where all take part.

Deviations
    - Line 4 takes ``(x − y_i) / (K η_l)`` for the mean gradient, which it is for plain gradient steps alone.
      Other optimizers, momentum and weight decay are refused; where the recipe clips gradients, g_i is the
      clipped one. K and η_l are each party's own.
    - ``weights="rows"`` is for the loss of all rows instead of the mean of the parties' losses: means over S
      are weighted by rows n_i, and ``c <- c + Σ_S (n_i / n) (c_i⁺ − c_i)``, again the mean of all c_i.
    - A c_i⁺ whose message got lost, or was refused, is taken back when the party is asked next, so that c
      stays the mean of all c_i.
    - y_i is sent in place of y_i − x. Running means and other buffers have no control variate: they are
      averaged.
    - First parameters, when x is sent, and parties that fail, are as in FedAvg
      (:mod:`consilience.methods.parameters.federated_averaging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.messages.schema import Public
from consilience.core.messages.sums import Weights
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.protocols.sampling import participants
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.numbers import check_number
from consilience.methods.parameters.exchange import (
    broadcast,
    check_weights,
    initialise,
    stale_parameters,
)
from consilience.methods.parameters.tasks import ControlledParameters, TrainControlled


@protocol(exchanges="parameters")
def scaffold(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    server_rate: float = 1.0,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "uniform",
    initial: Any = None,
) -> Rounds:
    """SCAFFOLD: parties correct their gradients by what they know of the others', and average parameters.

    ``state.memory["parameters"]`` is x, shape ``(size,)``; ``state.memory["control"]`` is c, shape
    ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: η_g > 0.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts: ``"uniform"``, or by its ``"rows"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: a rate that is not above 0; a party's model is not trained by plain gradient steps, or
            has other parameters than the first party's or ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        Karimireddy et al. 2020, Algorithm 1, option II.
    """
    where = "scaffold"
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    check_number("server_rate", server_rate, above=0, where=where)
    if state is None:
        state = initialise(network, initial=initial, where=where, plain_steps=True)  # line 1
        nothing = np.zeros(state.memory["trained"])
        state = RoundState(round=0, memory={**state.memory, "control": nothing, "counted": {}})
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 2
        memory = state.memory
        x, c, counted = memory["parameters"], memory["control"], memory["counted"]
        task = TrainControlled(
            round=t,
            size=len(x),
            control=c.astype(x.dtype),
            counted={party: counted[party] for party in chosen if party in counted},
            values=stale_parameters(state, chosen),
        )
        replies = network.ask(task, to=chosen)
        y = replies.sum(ControlledParameters, weights=weights, over=None)
        trained, mean = len(c), y.values.astype(x.dtype)
        x_new = mean.copy()
        x_new[:trained] = x[:trained] + server_rate * (mean - x)[:trained]  # line 5
        everybody = memory["rows"] if weights == "rows" else len(network.parties)
        c = (
            c + replies.sum(ControlledParameters, "change", weights=weights, over=everybody).values
        )  # 6
        counted = {**counted, **dict.fromkeys(replies.parties, t)}
        memory = {**memory, "control": c, "counted": counted}
        state = broadcast(network, t, x_new, memory, where=where)
        yield Round(t, state, replies=replies)
