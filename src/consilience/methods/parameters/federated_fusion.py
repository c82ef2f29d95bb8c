"""FedDF (FedAvg-distill): distil the ensemble of the parties' models into their average on public rows.

Lin, Kong, Stich & Jaggi 2020, "Ensemble Distillation for Robust Model Fusion in Federated Learning",
Algorithm 1 and its equation for AvgLogits:

     1  server: initialise x_0
     2  for round t = 1, …, T do
     3    S_t <- random subset (a share C) of the K clients
     4    for every client k in S_t in parallel do
     5      x^k <- ClientUpdate(k, x_{t−1}), as in FedAvg
     6    x_{t,0} <- Σ_{k in S_t} (n_k / Σ_{j in S_t} n_j) x^k
     7    for j = 1, …, N do
     8      d <- a batch of unlabelled rows
     9      x_{t,j} <- x_{t,j−1} − η ∂/∂x KL(σ(mean_{k in S_t} f(x^k, d)), σ(f(x, d))) at x = x_{t,j−1}
    10    x_t <- x_{t,N}

Legend: x parameters, f(x, d) the logits of the model x at rows d, σ the softmax, C ``participation``, K the
number of parties, n_k the number of rows that a party trains on (1 in line 6 with ``weights="uniform"``), N
the number of distillation steps on the public rows, T ``rounds``. For regression, f are values, and line 9 is
a step on the squared error to their mean. Without lines 7 to 9 the algorithm is FedAvg.

Communication: the messages of FedAvg, one model in each direction. In addition, the coordinator sends all
models of the round to the distilling party, which returns one model.

Deviations
    - A coordinator holds no model. Therefore the first party by name that answers carries out lines 6 to 9.
      This party sees the others' models; in the paper only the server does.
    - Line 9 uses the recipe of that party: its loss, ``optimizer``, ``learning_rate`` and ``batch_size``,
      which also apply to line 5. It runs for ``distill_epochs``, or until the loss to the teacher stops
      falling on held-out public rows. The paper uses plain SGD in line 5. In line 9 it uses Adam with
      learning rate 10⁻³ and cosine annealing, for 10⁴ steps or until the loss on the server's labelled
      validation rows has not fallen for 10³ steps.
    - The teacher is computed once for all public rows, with the running means from line 5. Distillation
      updates the student's running means on the public rows.
    - Initial parameters, the order of messages, and failed parties are handled as in FedAvg
      (:mod:`consilience.methods.parameters.federated_averaging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.messages.schema import Public
from consilience.core.messages.sums import Weights
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.protocols.sampling import participants
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.arrays import Array
from consilience.methods.parameters.exchange import (
    broadcast,
    check_weights,
    initialise,
    stale_parameters,
)
from consilience.methods.parameters.tasks import (
    CheckFusion,
    FuseModels,
    Parameters,
    TrainParameters,
)


@protocol(exchanges="parameters", needs_public=True)
def federated_fusion(
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
    """Average parameters, then distil the parties' ensemble into the average on public rows (FedDF).

    ``state.memory["parameters"]`` is x_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        weights: weighting of the parties in line 6: by their ``"rows"``, or ``"uniform"``. All parties have
            equal weight in the teacher.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws the parameters.

    Raises:
        InvalidInput: there are no public rows; a party's model has different parameters from the first
            party's or ``initial``, or does not support distillation; raised before any training.
        QuorumLost: too few parties answered.

    Source:
        Lin et al. 2020, Algorithm 1.
    """
    where = "federated_fusion"
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    check_weights(weights, where=where)
    if network.agreed.rows == 0:
        raise InvalidInput(
            "there are no public rows to distil on",
            where=where,
            mend="Give unlabelled rows that every party may see: Federation(parties, public=X); or take "
            "federated_averaging.",
        )
    if state is None:
        network.require(CheckFusion(round=0))
        state = initialise(network, initial=initial, where=where)  # line 1
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)  # 3
        size = len(state.memory["parameters"])
        task = TrainParameters(round=t, size=size, values=stale_parameters(state, chosen))
        replies = network.ask(task, to=chosen)  # lines 4 and 5
        models = tuple(replies.of(Parameters))
        student = _fused(network, FuseModels(round=t, size=size, trained=models, weights=weights))
        state = broadcast(network, t, student, state.memory, where=where)  # line 10
        yield Round(t, state, replies=replies)


def _fused(network: NetworkView, task: FuseModels) -> Array:
    """x_t, shape ``(size,)``, from the first party that answers."""
    lost: QuorumLost | None = None
    for party in network.parties:
        try:
            return network.ask(task, to=(party,)).of(Parameters)[0].values
        except QuorumLost as error:
            lost = error
    assert lost is not None
    raise lost
