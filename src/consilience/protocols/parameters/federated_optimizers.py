"""FedAdagrad, FedYogi, FedAdam: the server takes what parties changed for a gradient, and steps adaptively.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar & McMahan 2021, "Adaptive Federated Optimization",
Algorithm 2:

     1  server: x_0; m_{−1} <- 0; v_{−1} <- τ²
        for t = 0, …, T − 1 do
     2    S <- random set of clients; x_i <- x_t
     3    every i in S in parallel: K steps of SGD on its rows from x_i; Δ_i <- x_i − x_t
     4    Δ_t <- mean_{i in S} Δ_i
     5    m_t <- β₁ m_{t−1} + (1 − β₁) Δ_t
     6    v_t <- v_{t−1} + Δ_t²                                     FedAdagrad
          v_t <- v_{t−1} − (1 − β₂) Δ_t² sign(v_{t−1} − Δ_t²)       FedYogi
          v_t <- β₂ v_{t−1} + (1 − β₂) Δ_t²                         FedAdam
     7    x_{t+1} <- x_t + η m_t / (√v_t + τ)

Legend: x parameters, K what a party's recipe makes of ``epochs`` and ``batch_size``, η ``server_rate``, β₁
``momentum``, β₂ ``decay``, τ ``adaptivity``, T ``rounds``; squares, roots and quotients are by element.

They send what FedAvg sends.

Deviations
    - Any optimizer of a recipe makes the steps of line 3; one with a state starts afresh in every round.
    - Line 4 weights clients by their rows, as the paper's experiments do; ``weights="uniform"`` is the line
      as printed.
    - The paper asks for v_{−1} ≥ τ²; here it is τ².
    - Only what is trained is stepped; running means and other buffers are averaged.
    - First parameters, what is sent when, and parties that fail, are as in FedAvg
      (:mod:`consilience.protocols.parameters.federated_averaging`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
from consilience.validation.arrays import Array

Second = Callable[[Array, Array], Array]
"""Line 6: v_{t−1} and Δ_t² to v_t."""


@protocol(exchanges="parameters", also_called=("fedadagrad",))
def federated_adagrad(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    server_rate: float = 0.1,
    momentum: float = 0.0,
    adaptivity: float = 1e-3,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """FedAdagrad: the server adds up squares of changes and takes ever smaller steps.

    ``state.memory["parameters"]`` is x_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: η > 0.
        momentum: β₁ in [0, 1).
        adaptivity: τ > 0.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.protocols.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters, or other ones than the first
            party's or ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    return _stepped(
        network,
        state,
        lambda v, square: v + square,
        where="federated_adagrad",
        rounds=rounds,
        server_rate=server_rate,
        momentum=momentum,
        adaptivity=adaptivity,
        participation=participation,
        probabilities=probabilities,
        weights=weights,
        initial=initial,
    )


@protocol(exchanges="parameters", also_called=("fedyogi",))
def federated_yogi(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    server_rate: float = 0.01,
    momentum: float = 0.9,
    decay: float = 0.99,
    adaptivity: float = 1e-3,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """FedYogi: as FedAdam, with second moments that move by no more than the new square.

    ``state.memory["parameters"]`` is x_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: η > 0.
        momentum: β₁ in [0, 1).
        decay: β₂ in [0, 1).
        adaptivity: τ > 0.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.protocols.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters, or other ones than the first
            party's or ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    check_number("decay", decay, least=0, below=1, where="federated_yogi")
    return _stepped(
        network,
        state,
        lambda v, square: v - (1 - decay) * square * np.sign(v - square),
        where="federated_yogi",
        rounds=rounds,
        server_rate=server_rate,
        momentum=momentum,
        adaptivity=adaptivity,
        participation=participation,
        probabilities=probabilities,
        weights=weights,
        initial=initial,
    )


@protocol(exchanges="parameters", also_called=("fedadam",))
def federated_adam(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    server_rate: float = 0.01,
    momentum: float = 0.9,
    decay: float = 0.99,
    adaptivity: float = 1e-3,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """FedAdam: the server steps by Adam, without bias correction, along what parties changed.

    ``state.memory["parameters"]`` is x_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: η > 0.
        momentum: β₁ in [0, 1).
        decay: β₂ in [0, 1).
        adaptivity: τ > 0.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.protocols.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters, or other ones than the first
            party's or ``initial``; before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    check_number("decay", decay, least=0, below=1, where="federated_adam")
    return _stepped(
        network,
        state,
        lambda v, square: decay * v + (1 - decay) * square,
        where="federated_adam",
        rounds=rounds,
        server_rate=server_rate,
        momentum=momentum,
        adaptivity=adaptivity,
        participation=participation,
        probabilities=probabilities,
        weights=weights,
        initial=initial,
    )


def _stepped(
    network: Network,
    state: RoundState | None,
    second: Second,
    *,
    where: str,
    rounds: int,
    server_rate: float,
    momentum: float,
    adaptivity: float,
    participation: int | float,
    probabilities: Mapping[str, float] | None,
    weights: Weights,
    initial: Any,
) -> Rounds:
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    check_number("server_rate", server_rate, above=0, where=where)
    check_number("momentum", momentum, least=0, below=1, where=where)
    check_number("adaptivity", adaptivity, above=0, where=where)
    if state is None:
        state = begin(network, initial=initial, where=where)  # line 1
        m = np.zeros(state.memory["trained"])
        v = np.full(state.memory["trained"], float(adaptivity) ** 2)
        state = RoundState(round=0, memory={**state.memory, "momentum": m, "second": v})
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 2
        x, m, v = (state.memory[name] for name in ("parameters", "momentum", "second"))
        task = TrainParameters(round=t, size=len(x), values=missed(state, chosen))
        replies = network.ask(task, to=chosen)  # line 3
        new = average(replies, weights, x.dtype)
        change = (new - x)[: len(m)].astype(np.float64)  # line 4
        m = momentum * m + (1 - momentum) * change  # line 5
        v = second(v, change**2)  # line 6
        new[: len(m)] = x[: len(m)] + server_rate * m / (np.sqrt(v) + adaptivity)  # line 7
        state = send(network, t, new, {**state.memory, "momentum": m, "second": v}, where=where)
        yield Round(t, state, replies=replies)
