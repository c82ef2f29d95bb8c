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
trains on, E and B its recipe's ``epochs`` and ``batch_size``, T ``rounds``.

Deviations
    - In line 1 the first party by name draws w_0, since a coordinator holds no model. It is sent to all, and
      round 0 is yielded with it: untrained.
    - w_t is sent at the end of its round and to all parties, so that each has it and can be evaluated; a
      round is then w_t once to everybody and w^k once from the chosen. Where a chosen party missed it, line 4
      sends it again.
    - What is averaged are parameters and buffers that hold fractions, such as the running means of batch
      normalisation; whole numbers, such as their counters, stay each party's own.
    - An optimiser with a state, such as Adam, starts afresh in every round.
    - A party that failed is left out of line 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.knowledge import Agreement, Array, Asked, Public, Receipt, Replies
from consilience.messages import message
from consilience.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.protocols.participation import participants
from consilience.randomness import stream
from consilience.tasks import Network


@message
class Architecture:
    """What the parameters of a party's model are.

    Attributes:
        party: its name.
        round: the round of the task.
        parts: name and shape of each, sorted.
        size: how many numbers there are in all.
    """

    party: str
    round: int
    parts: tuple[str, ...]
    size: int

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the party speaks for itself, and has any."""
        if (self.party, self.round) != (party, task.round) or self.size < 1:
            raise KnowledgeRefused("speaks for another party or round, or of nothing", where=party)


@message
class Parameters:
    """All parameters of a party's model in one line, and how many rows it trains on.

    Attributes:
        party: its name.
        round: the round of the task.
        values: shape ``(size,)``, in the order of :attr:`Architecture.parts`.
        rows: n_k.
    """

    party: str
    round: int
    values: Array
    rows: int

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are finite and as many as were asked for."""
        if (self.party, self.round) != (party, task.round):
            raise KnowledgeRefused("speaks for another party or round", where=party)
        expected = (getattr(task, "size", len(self.values)),)
        if self.values.dtype.kind != "f" or self.values.shape != expected:
            got = f"{self.values.dtype} of shape {self.values.shape}"
            raise KnowledgeRefused(f"parameters are {got}, expected {expected}", where=party)
        if not np.isfinite(self.values).all():
            raise KnowledgeRefused("parameters are NaN or infinite", where=party)
        if self.rows < 1:
            raise KnowledgeRefused(f"a row count of {self.rows}", where=party)


@runtime_checkable
class Parametric(Protocol):
    """A learner whose parameters can be read and set, as :class:`TorchLearner`'s can."""

    @property
    def fitted(self) -> bool:
        """Whether it has any."""

    def start(self, X: Array, *, rng: np.random.Generator) -> None:
        """Draw first parameters."""

    def parameters(self) -> dict[str, Array]:
        """By name."""

    def set_parameters(self, values: Mapping[str, Array]) -> None:
        """In place of what :meth:`parameters` gives."""


@message
class DescribeParameters:
    """Draw first parameters, and say what they are."""

    answers: ClassVar[type[Any]] = Architecture
    round: int

    def run(self, party: Any) -> Architecture:
        """Names and shapes."""
        parts = _learner(party).parameters()
        return Architecture(
            party=party.name,
            round=self.round,
            parts=tuple(f"{name} {parts[name].shape}" for name in sorted(parts)),
            size=sum(part.size for part in parts.values()),
        )


@message
class SendParameters:
    """Send your parameters as they are."""

    answers: ClassVar[type[Any]] = Parameters
    round: int
    size: int

    def run(self, party: Any) -> Parameters:
        """All of them, in one line."""
        parts = _learner(party).parameters()
        values = np.concatenate([parts[name].ravel() for name in sorted(parts)])
        return Parameters(party=party.name, round=self.round, values=values, rows=party.train_rows)


@message
class AdoptParameters:
    """Take these parameters for your own."""

    answers: ClassVar[type[Any]] = Receipt
    round: int
    values: Array

    def run(self, party: Any) -> Receipt:
        """The model is then the average."""
        _adopt(_learner(party), self.values)
        return Receipt(party=party.name, round=self.round)


@message
class TrainParameters:
    """Train on your private rows, and send your parameters.

    Attributes:
        size: how many numbers they are.
        values: what to start from; ``None`` where every party that is asked holds it already.
    """

    answers: ClassVar[type[Any]] = Parameters
    round: int
    size: int
    values: Array | None = None

    def run(self, party: Any) -> Parameters:
        """Line 4."""
        learner = _learner(party)
        if self.values is not None:
            _adopt(learner, self.values)
        party.fit_private(self.round)
        return SendParameters(round=self.round, size=self.size).run(party)


@protocol
def federated_averaging(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
) -> Rounds:
    """FedAvg: parties train one model in turns of their own, and average its parameters.

    ``state.memory["parameters"]`` is w_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.

    Raises:
        InvalidInput: a party's model has no parameters to average, or other ones than the first party's.
        QuorumLost: too few parties answered.

    Source:
        McMahan et al. 2017, Algorithm 1.
    """
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    if state is None:
        first = _alike(network.require(DescribeParameters(round=0)))
        drawn = network.ask(SendParameters(round=0, size=first.size), to=[first.party])
        state = _sent(network, 0, drawn.of(Parameters)[0].values)  # line 1
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 3
        held, current = state.memory["holders"], state.memory["parameters"]
        again = None if set(chosen) <= set(held) else current
        task = TrainParameters(round=t, size=len(current), values=again)
        replies = network.ask(task, to=chosen)  # line 4
        state = _sent(network, t, _average(replies.of(Parameters)))  # line 5
        yield Round(t, state, replies=replies)


def _average(replies: Sequence[Parameters]) -> Array:
    """The mean weighted by rows, in the parties' precision."""
    weights = np.array([reply.rows for reply in replies], dtype=np.float64)
    total = np.zeros(len(replies[0].values))
    for weight, reply in zip(weights / weights.sum(), replies, strict=True):
        total += weight * reply.values
    return total.astype(replies[0].values.dtype)


def _sent(network: Network, t: int, values: Array) -> RoundState:
    """The state after all parties have been sent the average: what it is, and who holds it."""
    holders = network.ask(AdoptParameters(round=t, values=values)).parties
    return RoundState(round=t, memory={"parameters": values, "holders": holders})


def _alike(replies: Replies) -> Architecture:
    """The first party's architecture, which must be everybody's."""
    first, *others = replies.of(Architecture)
    for other in others:
        if other.parts != first.parts:
            here, there = (
                ", ".join(sorted(set(one.parts) - set(two.parts))[:3]) or "nothing else"
                for one, two in ((first, other), (other, first))
            )
            raise InvalidInput(
                f"parameters differ: {first.party!r} has {here}; {other.party!r} has {there}",
                where="federated_averaging",
                mend="Averaging needs one architecture; averaged_distillation works with any models.",
            )
    return first


def _learner(party: Any) -> Parametric:
    """The party's learner, its first parameters drawn."""
    learner = party.learner
    if not isinstance(learner, Parametric):
        raise InvalidInput(
            "its model has no parameters to average",
            mend="Give every party the same torch module, or take averaged_distillation.",
        )
    if not learner.fitted:
        rng = stream(party.agreement.seed, party.name, 0, "parameters")
        learner.start(party.X, rng=rng)
    return learner


def _adopt(learner: Parametric, values: Array) -> None:
    """Put one line of numbers back into the parts it was made of."""
    parts = learner.parameters()
    names = sorted(parts)
    sizes = [math.prod(parts[name].shape) for name in names]
    if values.shape != (sum(sizes),):
        raise InvalidInput(f"{values.shape} parameters for a model that has {sum(sizes)}")
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    learner.set_parameters(
        {name: piece.reshape(parts[name].shape) for name, piece in zip(names, pieces, strict=True)}
    )
