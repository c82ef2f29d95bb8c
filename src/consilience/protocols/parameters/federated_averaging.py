"""Parties with models of one architecture average their parameters: FedAvg, a comparator.

McMahan, Moore, Ramage, Hampson & Agüera y Arcas 2017, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", Algorithm 1:

    1  server: initialise w_0
    2  for round t = 1, 2, … do
    3    S_t <- random set of max(C K, 1) clients
    4    every client k in S_t in parallel: w^k <- w_{t−1}, trained for E epochs in batches of B on its
         rows D_k; send w^k
    5    server: w_t <- Σ_{k in S_t} (n_k / Σ_{j in S_t} n_j) w^k

Legend: w parameters, C ``participation``, K the number of parties, D_k the n_k private rows that a party
trains on (n_k = 1 in line 5 with ``weights="uniform"``), E and B its recipe's ``epochs`` and ``batch_size``,
T ``rounds``.

Deviations
    - In line 1 the first party by name draws w_0, since a coordinator holds no model, unless ``initial``
      gives it. It is sent to all, and round 0 is yielded with it: untrained.
    - w_t is sent at the end of its round and to all parties, so that each has it and can be evaluated; a
      round is then w_t once to everybody and w^k once from the chosen. Where a chosen party missed it, line 4
      sends it again.
    - What is averaged are parameters and buffers that hold fractions, such as the running means of batch
      normalisation; whole numbers, such as their counters, stay each party's own.
    - An optimiser with a state, such as Adam, starts afresh in every round.
    - A party that failed is left out of line 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.messages.replies import Public
from consilience.messages.sums import Weights
from consilience.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.protocols.parameters.exchange import (
    TrainParameters,
    average,
    begin,
    check_weights,
    missed,
    send,
)
from consilience.protocols.sampling import participants
from consilience.tasks.base import Network


@protocol(exchanges="parameters", also_called=("fedavg",))
def federated_averaging(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """FedAvg: parties train one model in turns of their own, and average its parameters.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from, such as one that was distilled from others; see
            :func:`~consilience.protocols.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: a party's model has no parameters to average, or other ones than the first party's or
            ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        McMahan et al. 2017, Algorithm 1.
    """
    where = "federated_averaging"
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    if state is None:
        state = begin(network, initial=initial, where=where)  # line 1
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 3
        size = len(state.memory["parameters"])
        task = TrainParameters(round=t, size=size, values=missed(state, chosen))
        replies = network.ask(task, to=chosen)  # line 4
        mean = average(replies, weights, state.memory["parameters"].dtype)  # line 5
        state = send(network, t, mean, state.memory, where=where)
        yield Round(t, state, replies=replies)
