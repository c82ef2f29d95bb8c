"""FedDF, or FedAvg-distill: the averaged model learns what the parties' models say together of public rows.

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
number of parties, n_k the rows that a party trains on (1 in line 6 with ``weights="uniform"``), N the steps
that a distillation makes on the public rows, T ``rounds``. For regression, f are values, and
line 9 is a step of the squared error to their mean. Without lines 7 to 9 it is FedAvg.

What travels: in FedAvg's way, a model each way; and from the coordinator to the party that distils all models
of the round, and one back.

Deviations
    - A coordinator holds no model, so that lines 6 to 9 are done by the first party by name that answers. It
      sees the others' models, which in the paper the server alone does.
    - Line 9 is trained as the recipe of that party says: its loss, ``optimizer``, ``learning_rate`` and
      ``batch_size``, which are also those of line 5, for ``distill_epochs``, or until the loss to the
      teacher stops falling on held-out public rows. The paper takes plain SGD in line 5, and Adam with 10⁻³,
      annealed along a cosine, in line 9, for 10⁴ steps or until the loss on labelled validation rows of the
      server has not fallen for 10³.
    - The teacher is computed for all public rows at once, with running means as line 5 left them; while the
      student learns, its own are moved by the public rows.
    - First parameters, what is sent when, and parties that fail, are as in FedAvg
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
    """FedDF: parties average parameters, and the average is taught what their models say of public rows.

    ``state.memory["parameters"]`` is x_t, shape ``(size,)``.

    Args:
        rounds: number of rounds T.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        weights: how much a party counts in the average of line 6: by its ``"rows"``, or ``"uniform"``. All
            count alike in the teacher.
        initial: a model to start from; see
            :func:`~consilience.methods.parameters.exchange.named_parameters`. By default the first party
            draws.

    Raises:
        InvalidInput: there are no public rows; a party's model has other parameters than the first party's or
            ``initial``, or is not trained by distillation; before any training.
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
