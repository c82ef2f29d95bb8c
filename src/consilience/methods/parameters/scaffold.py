"""SCAFFOLD: FedAvg with control variates that correct the drift of the parties' local steps.

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

Legend: x, y_i parameters, c, c_i control variates, one number per trainable parameter, g_i a gradient on a
batch of party i, K the number of steps from its recipe's ``epochs`` and ``batch_size``, η_l its
``learning_rate``, η_g ``server_rate``, T ``rounds``.

Communication: every chosen party sends a model and a control variate, twice the volume of FedAvg. The server
sends x to all parties and c to the chosen parties. With full participation this is also twice the volume of
FedAvg.

Deviations
    - Line 4 uses ``(x − y_i) / (K η_l)`` as the mean gradient, which is correct only for plain gradient
      steps. Other optimizers, momentum and weight decay are refused. If the recipe clips gradients, g_i is
      the clipped gradient. K and η_l may differ between parties.
    - ``weights="rows"`` minimises the loss of all rows instead of the mean of the parties' losses. Means over
      S are then weighted by rows n_i, and ``c <- c + Σ_S (n_i / n) (c_i⁺ − c_i)``, again the mean of all c_i.
    - If the message with a c_i⁺ was lost or refused, the party reverts this c_i⁺ at its next request. Thus c
      stays the mean of all c_i.
    - A party sends y_i instead of y_i − x. Running means and other buffers have no control variate; they are
      averaged.
    - Initial parameters, the time of sending x, and failed parties are handled as in FedAvg
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
    """Average parameters, with control variates that correct the local gradients (SCAFFOLD).

    ``state.memory["parameters"]`` is x, shape ``(size,)``; ``state.memory["control"]`` is c, shape
    ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: η_g > 0.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties: ``"uniform"``, or by their ``"rows"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: the rate is not above 0; a party's model is not trained by plain gradient steps, or has
            different parameters from the first party's or ``initial``; raised before any training.
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
