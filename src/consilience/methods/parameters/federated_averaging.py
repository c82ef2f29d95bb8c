"""Average the parameters of one architecture: FedAvg, FedProx, FedAdagrad, FedYogi, FedAdam.

The five protocols share one loop. They differ in the clients' training and in the server's step:

    1  server: w_0
    2  for round t = 1, 2, …, T do
    3    S_t <- random set of the parties
    4    every client k in S_t in parallel: train from w_{t−1} on its n_k rows; send w^k
    5    server: w̄ <- Σ_{k in S_t} (n_k / Σ_{j in S_t} n_j) w^k
    6            w_t <- step(w_{t−1}, w̄)

    FedAvg       line 4: E epochs in batches of B;  line 6: w_t <- w̄
    FedProx      line 4: w^k ≈ argmin_w F_k(w) + (μ/2) ‖w − w_{t−1}‖²;  line 6: w_t <- w̄
    FedAdagrad,  line 6: Δ <- w̄ − w_{t−1}
    FedYogi,             m <- β₁ m + (1 − β₁) Δ
    FedAdam              v <- v + Δ²                              FedAdagrad
                         v <- v − (1 − β₂) Δ² sign(v − Δ²)        FedYogi
                         v <- β₂ v + (1 − β₂) Δ²                  FedAdam
                         w_t <- w_{t−1} + η m / (√v + τ);  m = 0, v = τ² before the first round

- FedAvg: McMahan, Moore, Ramage, Hampson & Agüera y Arcas 2017, "Communication-Efficient Learning of Deep
  Networks from Decentralized Data", Algorithm 1.
- FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar & Smith 2020, "Federated Optimization in Heterogeneous
  Networks", Algorithm 2. With μ = 0 it is FedAvg.
- The others: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar & McMahan 2021, "Adaptive Federated
  Optimization", Algorithm 2. Their messages are those of FedAvg.

Legend: w parameters, S_t by ``participation`` and ``probabilities``, n_k the number of private rows that a
party trains on (1 in line 5 with ``weights="uniform"``), F_k the mean loss on them, E and B its recipe's
``epochs`` and ``batch_size``, μ ``strength``, η ``server_rate``, β₁ ``momentum``, β₂ ``decay``, τ
``adaptivity``, T ``rounds``; squares, roots and quotients are elementwise.

Deviations
    - In line 1 the first party by name draws w_0, because a coordinator holds no model, unless ``initial``
      sets it. The server sends w_0 to all parties and yields round 0 with it, untrained.
    - The server sends w_t to all parties at the end of the round, so that every party can be evaluated. A
      round thus takes w_t once to every party, and w^k once from each chosen party. If a chosen party missed
      w_{t−1}, line 4 sends it again.
    - The server averages floating-point parameters and buffers, such as the running means of batch
      normalisation. Integer buffers, such as their counters, stay local. The proximal term of FedProx and
      line 6 of the last three protocols apply to trainable parameters only; the other numbers are averaged.
    - Optimizers with a state, such as Adam, restart in every round. The papers use SGD in line 4; here any
      optimizer of a recipe is possible.
    - A failed party is excluded from line 5.
    - FedProx: the party's recipe determines the accuracy of line 4, and recipes may differ between parties.
      The paper's inexactness γ is not measured. Parties are sampled uniformly and weighted by their rows, as
      in the paper's comparison with FedAvg. For the algorithm as printed, set ``probabilities`` to row counts
      and ``weights="uniform"``. A recipe clips the gradient of F_k only; ``μ (w − w_{t−1})`` is added
      afterwards.
    - FedAdagrad, FedYogi, FedAdam: line 5 weights clients by their rows, as in the paper's experiments; use
      ``weights="uniform"`` for the algorithm as printed. The paper requires v ≥ τ² at the start; here v = τ².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.messages.schema import Public
from consilience.core.messages.sums import Weights
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.protocols.sampling import participants
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.methods.parameters.exchange import (
    average,
    broadcast,
    check_weights,
    initialise,
    stale_parameters,
)
from consilience.methods.parameters.tasks import TrainParameters

Memory = Mapping[str, Any]

SecondMoment = Callable[[Array, Array], Array]
"""Function that computes v from the previous round's v and Δ²."""


@dataclass(frozen=True)
class _ServerOptimizer:
    """Line 6 of FedAdagrad, FedYogi and FedAdam: use the mean change of parameters as a pseudo-gradient."""

    second: SecondMoment
    rate: float
    momentum: float
    adaptivity: float

    def check(self, where: str) -> None:
        """Raise ``InvalidInput`` on an option out of range."""
        check_number("server_rate", self.rate, above=0, where=where)
        check_number("momentum", self.momentum, at_least=0, below=1, where=where)
        check_number("adaptivity", self.adaptivity, above=0, where=where)

    def start(self, memory: Memory) -> Memory:
        """Add the initial m and v, shape ``(trained,)``, to the memory of round 0."""
        m = np.zeros(memory["trained"])
        return {**memory, "momentum": m, "second": np.full_like(m, float(self.adaptivity) ** 2)}

    def step(self, mean: Array, memory: Memory) -> tuple[Array, Memory]:
        """Compute the new parameters from w̄, shape ``(size,)``, and the updated memory."""
        x = memory["parameters"]
        m, v, new = memory["momentum"], memory["second"], mean.copy()
        change = (mean - x)[: len(m)].astype(np.float64)
        m = self.momentum * m + (1 - self.momentum) * change
        v = self.second(v, change**2)
        new[: len(m)] = x[: len(m)] + self.rate * m / (np.sqrt(v) + self.adaptivity)
        return new, {**memory, "momentum": m, "second": v}


def _averaged(
    where: str,
    network: NetworkView,
    state: RoundState | None,
    rounds: int,
    participation: int | float,
    probabilities: Mapping[str, float] | None,
    weights: Weights,
    initial: Any,
    *,
    strength: float = 0.0,
    server: _ServerOptimizer | None = None,
) -> Rounds:
    """Run the common loop of the five protocols; the positional options are common to all of them."""
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    check_number("strength", strength, at_least=0, where=where)
    if server is not None:
        server.check(where)
    if state is None:
        state = initialise(network, initial=initial, where=where, counted=False)  # line 1
        if server is not None:
            state = RoundState(round=0, memory=server.start(state.memory))
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 3
        task = TrainParameters(
            round=t,
            size=len(state.memory["parameters"]),
            values=stale_parameters(state, chosen),
            strength=float(strength),
        )
        replies = network.ask(task, to=chosen)  # line 4
        new, memory = average(replies, weights, state.memory["parameters"].dtype), state.memory  # 5
        if server is not None:
            new, memory = server.step(new, memory)  # line 6
        state = broadcast(network, t, new, memory, where=where)
        yield Round(t, state, replies=replies)


@protocol(exchanges="parameters", also_called=("fedavg",), summed=True)
def federated_averaging(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    weights: Weights = "rows",
    initial: Any = None,
) -> Rounds:
    """Train local copies of one model in parallel, and average their parameters (FedAvg).

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in the mean: by their ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: an option is out of range, or a party's model has no parameters to average, or different
            ones from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        McMahan et al. 2017, Algorithm 1.
    """
    shared = (rounds, participation, probabilities, weights, initial)
    return _averaged("federated_averaging", network, state, *shared)


@protocol(exchanges="parameters", also_called=("fedprox",), summed=True)
def federated_proximal(
    network: NetworkView,
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
    """Train with a proximal term to the global model, and average the parameters (FedProx).

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        strength: weight μ ≥ 0 of the proximal term; the paper tries 0.001, 0.01, 0.1 and 1.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in the mean: by their ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: an option is out of range, or a party's model has no parameters to average, or different
            ones from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Li et al. 2020, Algorithm 2.
    """
    shared = (rounds, participation, probabilities, weights, initial)
    return _averaged("federated_proximal", network, state, *shared, strength=strength)


@protocol(exchanges="parameters", also_called=("fedadagrad",), summed=True)
def federated_adagrad(
    network: NetworkView,
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
    """Average parameters with an Adagrad step at the server (FedAdagrad).

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: learning rate η > 0 of the server.
        momentum: decay β₁ of the first moment, in [0, 1).
        adaptivity: constant τ > 0 in the denominator of the step.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in the mean: by their ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: an option is out of range, or a party's model has no parameters to average, or different
            ones from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    shared = (rounds, participation, probabilities, weights, initial)
    server = _ServerOptimizer(_adagrad, server_rate, momentum, adaptivity)
    return _averaged("federated_adagrad", network, state, *shared, server=server)


@protocol(exchanges="parameters", also_called=("fedyogi",), summed=True)
def federated_yogi(
    network: NetworkView,
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
    """Average parameters with a Yogi step at the server (FedYogi).

    In contrast to FedAdam, the second moment changes by at most ``(1 − β₂) Δ²`` per round.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: learning rate η > 0 of the server.
        momentum: decay β₁ of the first moment, in [0, 1).
        decay: decay β₂ of the second moment, in [0, 1).
        adaptivity: constant τ > 0 in the denominator of the step.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in the mean: by their ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: an option is out of range, or a party's model has no parameters to average, or different
            ones from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    check_number("decay", decay, at_least=0, below=1, where="federated_yogi")
    shared = (rounds, participation, probabilities, weights, initial)
    server = _ServerOptimizer(_yogi(decay), server_rate, momentum, adaptivity)
    return _averaged("federated_yogi", network, state, *shared, server=server)


@protocol(exchanges="parameters", also_called=("fedadam",), summed=True)
def federated_adam(
    network: NetworkView,
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
    """Average parameters with an Adam step, without bias correction, at the server (FedAdam).

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
    shape ``(trained,)``.

    Args:
        rounds: number of rounds T.
        server_rate: learning rate η > 0 of the server.
        momentum: decay β₁ of the first moment, in [0, 1).
        decay: decay β₂ of the second moment, in [0, 1).
        adaptivity: constant τ > 0 in the denominator of the step.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in the mean: by their ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: an option is out of range, or a party's model has no parameters to average, or different
            ones from the first party's or ``initial``; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Reddi et al. 2021, Algorithm 2.
    """
    check_number("decay", decay, at_least=0, below=1, where="federated_adam")
    shared = (rounds, participation, probabilities, weights, initial)
    server = _ServerOptimizer(_adam(decay), server_rate, momentum, adaptivity)
    return _averaged("federated_adam", network, state, *shared, server=server)


def _adagrad(v: Array, square: Array) -> Array:
    return v + square


def _yogi(decay: float) -> SecondMoment:
    return lambda v, square: v - (1 - decay) * square * np.sign(v - square)


def _adam(decay: float) -> SecondMoment:
    return lambda v, square: decay * v + (1 - decay) * square
