"""FedProx: FedAvg whose parties are pulled back to where they started.

Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith 2020, "Federated Optimization in Heterogeneous Networks",
Algorithm 2:

    for round t = 0, …, T − 1 do
    1    server: S_t <- random set of K devices, device k with probability p_k; send w^t to them
    2    every k in S_t in parallel: w^k_{t+1} ≈ argmin_w F_k(w) + (μ/2) ‖w − w^t‖²; send it
    3    server: w^{t+1} <- (1/K) Σ_{k in S_t} w^k_{t+1}

Legend: w parameters, F_k the mean loss on the private rows of party k, μ ``strength``, p_k
``probabilities``, K ``participation``, T ``rounds``. With μ = 0 it is FedAvg.

Deviations
    - By default parties are drawn alike and counted by their rows in line 3, which is how the paper's
      experiments compare with FedAvg. Line 1 to the letter is ``probabilities`` by row counts and
      ``weights="uniform"``.
    - Line 2 is solved as far as the party's recipe goes: its optimizer, ``batch_size`` and ``epochs``, which
      may differ from party to party. The paper's γ, how far that is, is not measured.
    - The gradient that a recipe clips is that of F_k; ``μ (w − w^t)`` is added afterwards. The pull is on
      what is trained; running means and the like are averaged.
    - First parameters, what is sent when, and parties that fail, are as in FedAvg
      (:mod:`consilience.protocols.parameters.federated_averaging`).
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
    check_number,
    check_weights,
    missed,
    send,
)
from consilience.protocols.sampling import participants
from consilience.tasks.base import Network


@protocol(exchanges="parameters", also_called=("fedprox",))
def federated_proximal(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    strength: float = 0.01,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """FedProx: parties train near the common model, and average parameters.

    ``state.memory["parameters"]`` is w^t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        strength: μ ≥ 0; the paper tries 0.001, 0.01, 0.1 and 1.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.protocols.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: a strength below 0; a party's model has no parameters, or other ones than the first
            party's or ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        Li et al. 2020, Algorithm 2.
    """
    where = "federated_proximal"
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    check_number("strength", strength, least=0, where=where)
    if state is None:
        state = begin(network, initial=initial, where=where)
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 1
        task = TrainParameters(
            round=t,
            size=len(state.memory["parameters"]),
            values=missed(state, chosen),
            strength=float(strength),
        )
        replies = network.ask(task, to=chosen)  # line 2
        mean = average(replies, weights, state.memory["parameters"].dtype)  # line 3
        state = send(network, t, mean, state.memory, where=where)
        yield Round(t, state, replies=replies)
