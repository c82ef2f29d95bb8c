"""FedDyn: parties whose losses are tilted from round to round, so that their minima come to lie in one place.

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

Legend: θ parameters, L_k the mean loss on the private rows of party k, ∇_k its state, which is ∇L_k(θ_k)
where line 3 is solved exactly, h the mean of all ∇_k, α ``strength``, m the number of parties, T ``rounds``.

It sends what FedAvg sends. It is FedPD (Zhang, Hong, Dhople, Yin & Liu 2020, "FedPD: A Federated Learning
Framework with Optimal Rates and Adaptivity to Non-IID Data", Algorithm 1) where all parties take part and
FedPD communicates in every round (p = 0): with η = 1/α, dual variables λ_k = −∇_k and the same local solver,
FedPD's x_k, λ_k + (x_k − x_0)/η and x_0 = mean(x_k + η λ_k) are lines 3, 4 and 6, since then h = −mean λ_k.
With partial participation, which FedPD has not, and with rounds that FedPD skips, they differ.

Deviations
    - Line 3 is solved as far as the party's recipe goes, starting from θ^{t−1}: its optimizer,
      ``batch_size`` and ``epochs``. With gradient steps on all rows its fixed points are nevertheless those
      of the exact algorithm.
    - ``weights="rows"`` is for the loss of all rows instead of the mean of the parties' losses: L_k is then
      (m n_k / n) L_k. A party divides line 3 by that factor, so that its learning rate means the same.
    - A ∇_k whose message got lost, or was refused, is taken back when the party is asked next, so that h
      stays the mean of all ∇_k.
    - The gradient that a recipe clips is that of L_k alone. Running means and other buffers have no state:
      they are averaged.
    - First parameters, when θ is sent, and parties that fail, are as in FedAvg
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
    """FedDyn, or FedPD: parties' losses are tilted until their minima agree, and parameters are averaged.

    ``state.memory["parameters"]`` is θ^t, shape ``(size,)``; ``state.memory["tilt"]`` is h, shape
    ``(trained,)``.

    Args:
        rounds: number of rounds T.
        strength: α > 0; the paper takes 0.001 to 0.1.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: whose loss is minimised: the mean of the parties' (``"uniform"``), or that of all ``"rows"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: a strength that is not above 0; a party's model has no parameters, or other ones than
            the first party's or ``initial``; before any training.
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
