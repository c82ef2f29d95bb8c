"""FedDyn: add a linear term to each party's loss in every round, so that the local minima converge to one.

Acar, Zhao, Matas Navarro, Mattina, Whatmough & Saligrama 2021, "Federated Learning Based on Dynamic
Regularization", Algorithm 1:

     1  server: θ^0, h <- 0; every device k: ∇_k <- 0
        for round t = 1, …, T do
     2    server: P_t <- random set of the m devices; send θ^{t−1} to them
          every k in P_t in parallel:
     3      θ_k <- argmin_θ L_k(θ) − ⟨∇_k, θ⟩ + (α/2) ‖θ − θ^{t−1}‖²
     4      ∇_k <- ∇_k − α (θ_k − θ^{t−1});  send θ_k
     5    server: h <- h − α (1/m) Σ_{k in P_t} (θ_k − θ^{t−1})
     6            θ^t <- (1/|P_t|) Σ_{k in P_t} θ_k − h / α

Legend: θ parameters, L_k the mean loss on the private rows of party k, ∇_k its state, which equals ∇L_k(θ_k)
if line 3 is solved exactly, h the mean of all ∇_k, α ``strength``, m the number of parties, T ``rounds``.

The messages are those of FedAvg. With full participation, the algorithm equals FedPD with communication in
every round (p = 0; Zhang, Hong, Dhople, Yin & Liu 2020, "FedPD: A Federated Learning Framework with Optimal
Rates and Adaptivity to Non-IID Data", Algorithm 1). With η = 1/α, dual variables λ_k = −∇_k and the same
local solver, FedPD's x_k, λ_k + (x_k − x_0)/η and x_0 = mean(x_k + η λ_k) are lines 3, 4 and 6, since then
h = −mean λ_k. The two differ with partial participation, which FedPD does not support, and with skipped
rounds of FedPD.

Deviations
    - The party's recipe (optimizer, ``batch_size`` and ``epochs``) solves line 3 approximately, starting from
      θ^{t−1}. With full-batch gradient steps, the fixed points are still those of the exact algorithm.
    - ``weights="rows"`` minimises the loss of all rows instead of the mean of the parties' losses: L_k is
      then (m n_k / n) L_k. A party divides line 3 by that factor to keep the scale of its learning rate.
    - If the message with a ∇_k was lost or refused, the party reverts this ∇_k at its next request. Thus h
      stays the mean of all ∇_k.
    - A recipe clips the gradient of L_k only. Running means and other buffers have no ∇_k; they are averaged.
    - Initial parameters, the time of sending θ, and failed parties are handled as in FedAvg
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
    average,
    broadcast,
    check_weights,
    initialise,
    stale_parameters,
)
from consilience.methods.parameters.tasks import Parameters, TrainDynamically


@protocol(exchanges="parameters", also_called=("feddyn", "fedpd"))
def federated_dynamics(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    strength: float = 0.01,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "uniform",
    initial: Any = None,
) -> Rounds:
    """Average parameters with dynamically regularised local losses (FedDyn; FedPD with full participation).

    ``state.memory["parameters"]`` is θ^t, shape ``(size,)``; ``state.memory["tilt"]`` is h, shape
    ``(trained,)``.

    Args:
        rounds: number of rounds T.
        strength: regularisation α > 0; the paper uses 0.001 to 0.1.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: objective: ``"uniform"`` minimises the mean of the parties' losses, ``"rows"`` the mean loss
            of all rows.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: the strength is not above 0, or a party's model has no parameters, or different ones
            from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Acar et al. 2021, Algorithm 1; Zhang et al. 2020, Algorithm 1.
    """
    where = "federated_dynamics"
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    check_number("strength", strength, above=0, where=where)
    if state is None:
        state = initialise(network, initial=initial, where=where)  # line 1
        nothing = np.zeros(state.memory["trained"])
        state = RoundState(round=0, memory={**state.memory, "tilt": nothing, "counted": {}})
        yield Round(0, state)
    count = len(network.parties)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 2
        memory = state.memory
        theta, h, counted = memory["parameters"], memory["tilt"], memory["counted"]
        task = TrainDynamically(
            round=t,
            size=len(theta),
            strength=float(strength),
            counted={party: counted[party] for party in chosen if party in counted},
            mean_rows=memory["rows"] / count if weights == "rows" else None,
            values=stale_parameters(state, chosen),
        )
        replies = network.ask(task, to=chosen)
        before, trained = theta.astype(np.float64), len(h)
        moved = replies.sum(Parameters, minus=before).values[:trained]
        h = h - strength / count * moved  # line 5
        new = average(replies, "uniform", theta.dtype)
        new[:trained] = before[:trained] + moved / len(replies) - h / strength  # line 6
        counted = {**counted, **dict.fromkeys(replies.parties, t)}
        state = broadcast(network, t, new, {**memory, "tilt": h, "counted": counted}, where=where)
        yield Round(t, state, replies=replies)
