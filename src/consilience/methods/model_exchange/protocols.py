"""Distillation between agents without public data: AKD, AvgKD, PKD and EKD.

Afonin & Karimireddy 2022, "Towards Model Agnostic Federated Learning Using Knowledge Distillation". Agents
label their own inputs with the others' models:

    AKD    y¹ -> agent 1 trains g_0 on (X¹, y¹);                                         (section 4)
           round t: the model goes to the next agent a of the ring 1 → 2 → … → M → 1, which
           relabels ŷ ← g_{t−1}(X^a) and trains g_t on (X^a, ŷ)
    AvgKD  every agent i trains g^i_0 on (X^i, y^i);                             (section 5.1, App. G)
           round t: ŷ^i ← (y^i + Σ_{j≠i} g^j_{t−1}(X^i)) / M; trains g^i_t on (X^i, ŷ^i)
    PKD    as AvgKD with ŷ^i ← (1/M) Σ_j g^j_{t−1}(X^i): its own prediction for its labels   (App. E)
    EKD    AKD from every agent at once, g^i_t the model of chain i in round t;            (section 5.2)
           the model after T rounds is f(x) = Σ_t (−1)^t Σ_i g^i_t(x)

Legend: M number of agents, X^i, y^i private rows of agent i, ŷ their new labels, g a trained model, T
``rounds``. EKD is :func:`alternating_distillation` with all chains; its sum is
:class:`consilience.methods.model_exchange.signed_ensemble.SignedEnsemble`.

Deviations
    - A coordinator forwards the models. Every agent sends one model per round and receives the models needed
      for its labels (one in AKD, M − 1 in AvgKD and PKD). Without a coordinator, it would send M − 1.
    - The ring is in the order of the agents' names.
    - Every fit starts from an untrained model, as in the analysis, so that an agent gets information only
      through its labels. The paper does not specify whether its networks continue from their previous
      parameters; with ``warm_start`` they do in AvgKD and PKD.
    - Classifiers mix class probabilities. Squared loss on one-hot targets, as in the paper's main
      experiments, is a regression with one-hot rows as targets.
    - In AvgKD and PKD, a missing model, or a model which the receiving agent refuses, is excluded from the
      mean, and the other weights are rescaled; a refusal is noted. The ring of AKD needs every agent.
"""

from __future__ import annotations

from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.messages.replies import Replies, SharedModel
from consilience.core.messages.schema import Public
from consilience.core.protocols.base import (
    Round,
    Rounds,
    RoundState,
    check_options,
    check_several,
    protocol,
)
from consilience.core.tasks.base import NetworkView
from consilience.methods.model_exchange.tasks import CheckSharing, TrainTowards


@protocol(exchanges="models", also_called=("avgkd",))
def averaged_distillation(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    warm_start: bool = False,
) -> Rounds:
    """Train every agent on the mean of its labels and the other agents' predictions (AvgKD).

    Args:
        rounds: number of rounds T after the first training.
        warm_start: continue training networks from their previous parameters; other models always start from
            an untrained model.

    Raises:
        InvalidInput: there are fewer than two agents.
        QuorumLost: too few agents answered.

    Source:
        Afonin & Karimireddy 2022, section 5.1 and appendix G.
    """
    return _in_parallel(network, state, rounds, labels=True, warm_start=warm_start)


@protocol(exchanges="models", also_called=("pkd",))
def parallel_distillation(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    warm_start: bool = False,
) -> Rounds:
    """Train every agent on the mean of all agents' predictions, including its own (PKD).

    The labels are used in the first training only.

    Args:
        rounds: number of rounds T after the first training.
        warm_start: continue training networks from their previous parameters; other models always start from
            an untrained model.

    Raises:
        InvalidInput: there are fewer than two agents.
        QuorumLost: too few agents answered.

    Source:
        Afonin & Karimireddy 2022, appendix E.
    """
    return _in_parallel(network, state, rounds, labels=False, warm_start=warm_start)


@protocol(exchanges="models", also_called=("akd",))
def alternating_distillation(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    start: str | None = None,
) -> Rounds:
    """Train agents along a ring, each on the predictions of the previous agent's model (AKD).

    Without ``start``, one chain starts at every agent, and every agent trains one model in every round. These
    models are the terms of EKD, and
    :class:`~consilience.methods.model_exchange.signed_ensemble.SignedEnsemble` adds them up.

    Args:
        rounds: number of rounds T after the first training.
        start: agent at which a single chain starts; in each round only the next agent of this chain is
            trained, and the other agents keep their models. By default a chain starts at every agent.

    Raises:
        InvalidInput: there are fewer than two agents, or no agent has the name ``start``.
        QuorumLost: an agent did not answer.

    Source:
        Afonin & Karimireddy 2022, sections 4 and 5.2.
    """
    _check(network, state, rounds)
    ring = network.parties
    if start is not None and start not in ring:
        raise InvalidInput(f"no agent is called {start!r}", where="alternating_distillation")
    if state is None:
        replies = _whole(network.ask(TrainTowards(round=0, labels=1.0)))
        state = _after(0, replies)
        if start is not None:
            state = RoundState(round=0, memory={start: state.memory[start]})
        yield Round(0, state, replies=replies)
    for t in range(state.round + 1, rounds + 1):
        after = dict(zip(ring, (*ring[1:], ring[0]), strict=True))
        tasks = {
            after[agent]: TrainTowards(round=t, models=(model,), share=1.0)
            for agent, model in state.memory.items()
        }
        replies = _whole(network.ask_each(tasks))
        state = _after(t, replies)
        yield Round(t, state, replies=replies)


def _whole(replies: Replies) -> Replies:
    """Return the replies; raise ``QuorumLost`` if an agent is missing."""
    for agent, failure in replies.missing.items():
        raise QuorumLost(
            f"{agent} did not train ({failure.kind}: {failure.reason})",
            where="alternating_distillation",
            mend="A ring needs every agent: resume when it is back, or take averaged_distillation.",
        )
    return replies


def _in_parallel(
    network: NetworkView, state: RoundState | None, rounds: int, *, labels: bool, warm_start: bool
) -> Rounds:
    _check(network, state, rounds)
    if state is None:
        replies = network.ask(TrainTowards(round=0, labels=1.0))
        state = _after(0, replies)
        yield Round(0, state, replies=replies)
    for t in range(state.round + 1, rounds + 1):
        tasks = {}
        for agent in network.parties:
            others = tuple(model for name, model in state.memory.items() if name != agent)
            share = 1 / (len(others) + 1)
            mine = {"labels": share} if labels else {"own": share}
            tasks[agent] = TrainTowards(
                round=t, models=others, share=share, warm_start=warm_start, **mine
            )
        replies = network.ask_each(tasks)
        state = _after(t, replies)
        yield Round(t, state, replies=replies)


def _after(t: int, replies: Replies) -> RoundState:
    """The models of a round are all that the next one needs."""
    return RoundState(round=t, memory={model.party: model for model in replies.of(SharedModel)})


def _check(network: NetworkView, state: RoundState | None, rounds: int) -> None:
    check_options(network, rounds=rounds)
    check_several(network)
    if state is None:
        network.require(CheckSharing())
