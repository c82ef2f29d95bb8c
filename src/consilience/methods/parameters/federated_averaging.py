"""Averaging the parameters of one architecture: FedAvg, FedProx, FedAdagrad, FedYogi, FedAdam.

One loop; the five differ in how a client trains and in what the server does with the mean:

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
  Optimization", Algorithm 2. They send what FedAvg sends.

Legend: w parameters, S_t by ``participation`` and ``probabilities``, n_k the private rows that a party trains
on (1 in line 5 with ``weights="uniform"``), F_k the mean loss on them, E and B its recipe's ``epochs`` and
``batch_size``, μ ``strength``, η ``server_rate``, β₁ ``momentum``, β₂ ``decay``, τ ``adaptivity``, T
``rounds``; squares, roots and quotients are by element.

Deviations
    - In line 1 the first party by name draws w_0, since a coordinator holds no model, unless ``initial``
      gives it. It is sent to all, and round 0 is yielded with it: untrained.
    - w_t is sent at the end of its round and to all parties, so that each has it and can be evaluated; a
      round is then w_t once to everybody and w^k once from the chosen. Where a chosen party missed it, line 4
      sends it again.
    - What is averaged are parameters and buffers that hold fractions, such as the running means of batch
      normalisation; whole numbers, such as their counters, stay each party's own. Only what is trained is
      pulled back by FedProx, and stepped by line 6 of the last three; the other numbers are averaged.
    - An optimiser with a state, such as Adam, starts afresh in every round. Where the papers take SGD in line
      4, it is any optimizer of a recipe.
    - A party that failed is left out of line 5.
    - FedProx: line 4 is solved as far as the party's recipe goes, which may differ from party to party; the
      paper's γ, how far that is, is not measured. Parties are drawn alike and counted by their rows, which is
      how the paper's experiments compare with FedAvg; its algorithm to the letter is ``probabilities`` by row
      counts and ``weights="uniform"``. The gradient that a recipe clips is that of F_k; ``μ (w − w_{t−1})``
      is added afterwards.
    - FedAdagrad, FedYogi, FedAdam: line 5 weights clients by their rows, as the paper's experiments do;
      ``weights="uniform"`` is its algorithm as printed. It asks for v ≥ τ² at the start; here it is τ².
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
"""The v of a round from that of the round before and Δ²."""


@dataclass(frozen=True)
class _ServerOptimizer:
    """Line 6 of FedAdagrad, FedYogi and FedAdam: what parties changed is taken for a gradient."""

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
        """The memory of round 0: m and v, shape ``(trained,)``, beside what was there."""
        m = np.zeros(memory["trained"])
        return {**memory, "momentum": m, "second": np.full_like(m, float(self.adaptivity) ** 2)}

    def step(self, mean: Array, memory: Memory) -> tuple[Array, Memory]:
        """The new parameters from w̄, shape ``(size,)``, and the memory that goes with them."""
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
    """The loop of all five protocols, with the options that they share in their order."""
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
    """FedAvg: parties train one model in turns of their own, and average its parameters.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters to average, or other ones than
            the first party's or ``initial``; before any training.
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
    """FedProx: parties train near the common model, and average parameters.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        strength: μ ≥ 0; the paper tries 0.001, 0.01, 0.1 and 1.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the mean: by its ``"rows"``, or ``"uniform"``.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters to average, or other ones than
            the first party's or ``initial``; before any training.
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
    """FedAdagrad: the server adds up squares of changes and takes ever smaller steps.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
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
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters to average, or other ones than
            the first party's or ``initial``; before any training.
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
    """FedYogi: as FedAdam, with second moments that move by no more than the new square.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
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
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters to average, or other ones than
            the first party's or ``initial``; before any training.
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
    """FedAdam: the server steps by Adam, without bias correction, along what parties changed.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``; ``["momentum"]`` and ``["second"]`` are m and v,
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
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: an option out of range; a party's model has no parameters to average, or other ones than
            the first party's or ``initial``; before any training.
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
