"""Conjugate distillation: compute the limit of EKD by conjugate gradients.

EKD (Afonin & Karimireddy 2022, section 5.2; :mod:`consilience.methods.model_exchange.protocols`) is the
Neumann series of block Jacobi on ``(c I + L) β = y``, the system of kernel regression on all agents' rows.
Here conjugate gradients solve the same system, with the same blocks as preconditioner. A model trained on
labels t has coefficients ``p = (c I + L_aa)⁻¹ t``. Therefore directions and solution are stored as labels:

     1  every agent a: train g_a on s_a = y_a; send it                                       x = P⁻¹ y
     2  every agent a: r_a ← −Σ_{b≠a} g_b(X_a); train on r_a, z_a its coefficients;
        send r_a·z_a                                                                         r = y − A x
        for round t = 1, 2, …, T do
     3    server: ρ ← Σ_a r_a·z_a;  β ← ρ / ρ_old, 0 in the first round
     4    every agent a: t_a ← r_a + β t_a, p_a ← z_a + β p_a; train g_a on t_a; send it     p = z + β p
     5    every agent a: q_a ← t_a + Σ_{b≠a} g_b(X_a); send p_a·q_a                          q = A p
     6    server: γ ← ρ / Σ_a p_a·q_a
     7    every agent a: s_a ← s_a + γ t_a, r_a ← r_a − γ q_a; train on r_a; send r_a·z_a
     8  every agent a: train g_a on s_a; send it.  The model is f(x) = Σ_a g_a(x)

Legend: M agents, X_a, y_a private rows, A = c I + L, P its blocks, g trained models, T ``rounds``. Every
target column has separate step lengths.

Communication: in each round every agent sends one model, as in EKD, and two numbers per target column; in the
last round it sends one more model. An agent trains twice in a round, compared with once in EKD.

Deviations
    - The method is not in the paper, whose Proposition VII covers the series; it is due to Hestenes & Stiefel
      (1952).
    - All agents need the same kernel and the same ``λ_a N_a`` (their part of c I + L); the server checks both
      before round 1. Networks are refused, because they have no such system: in a trial without this check,
      ten rounds reduced the accuracy of the sum of networks from 0.84 to 0.28 on MNIST
      (docs/results/afonin2022.md). With two kernels the method reached EKD's limit, but A is then not
      symmetric, and convergence is not guaranteed.
    - Lines 3 to 7 take three exchanges per round. Every agent must answer in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
from consilience.core.tasks.base import NetworkView, Task
from consilience.core.validation.arrays import Array
from consilience.methods.model_exchange.tasks import (
    CheckKernel,
    Direction,
    Image,
    Products,
    Residual,
    Solution,
    Start,
)


@protocol(
    exchanges="models",
    python_only="its model is a sum of the parties' models, which no party holds",
)
def conjugate_distillation(
    network: NetworkView, public: Public, state: RoundState | None, *, rounds: int
) -> Rounds:
    """Compute the kernel ridge regression of all agents' rows by distributed conjugate gradients.

    The last round's replies contain every agent's term, and ``SignedEnsemble.of([round.replies])`` is the
    model. Agents hold only their terms, so a federation's measurements at the agents do not describe the
    model. The replies of round 0 contain the agents' local models; the rounds before the last have no
    replies.

    Args:
        rounds: number of rounds T.

    Raises:
        InvalidInput: there are fewer than two agents, a model is not a kernel ridge regression, or agents
            have different kernels or different ``λ N_a``.
        QuorumLost: an agent did not answer.

    Source:
        Afonin & Karimireddy 2022, Proposition VII; Hestenes & Stiefel 1952.
    """
    check_options(network, rounds=rounds)
    check_several(network)
    none = np.zeros(network.agreed.outputs)

    if state is None:
        network.require(CheckKernel())
        first = _all(network, Start(round=0))  # line 1
        state = RoundState(round=0, memory={m.party: m for m in first.of(SharedModel)})
        yield Round(0, state, replies=first)
    if state.round == 0:
        still = _each(
            network,
            tuple(state.memory.values()),
            lambda others: Residual(round=1, models=others, step=none),
        )
        _check_alike(still)  # line 2
        state = RoundState(round=0, memory={"length": still.sum(Products).values, "before": none})
    for t in range(state.round + 1, rounds + 1):
        length, before = (np.asarray(state.memory[name]) for name in ("length", "before"))
        keep = _ratio(length, before)  # line 3
        sent = _all(network, Direction(round=t, keep=keep))  # line 4
        models = sent.of(SharedModel)
        image = _each(network, models, lambda others, t=t: Image(round=t, models=others))  # line 5
        step = _ratio(length, image.sum(Products).values)  # line 6
        still = _all(network, Residual(round=t, step=step))  # line 7
        state = RoundState(round=t, memory={"length": still.sum(Products).values, "before": length})
        last = _all(network, Solution(round=t)) if t == rounds else None  # line 8
        yield Round(t, state, replies=last)


def _ratio(above: Array, below: Array) -> Array:
    """Divide elementwise, with 0 for divisors of 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _all(network: NetworkView, task: Task) -> Replies:
    return _whole(network.ask(task))


def _each(network: NetworkView, models: Sequence[SharedModel], task: Any) -> Replies:
    """Send every agent a task with the other agents' models."""
    return _whole(
        network.ask_each(
            {name: task(tuple(m for m in models if m.party != name)) for name in network.parties}
        )
    )


def _whole(replies: Replies) -> Replies:
    for agent, failure in replies.missing.items():
        kind = InvalidInput if failure.kind == "invalid" else QuorumLost
        raise kind(
            f"{agent}: {failure.reason}",
            where="conjugate_distillation",
            mend=failure.mend or "Every agent is needed in every round: resume when it is back.",
        )
    return replies


def _check_alike(replies: Replies) -> None:
    first, *others = replies.of(Products)
    for other in others:
        if other.kernel != first.kernel:
            raise InvalidInput(
                f"{first.party} has {first.kernel}, {other.party} {other.kernel}",
                where="conjugate_distillation",
                mend="Give every agent the same kernel, or take alternating_distillation.",
            )
        if not np.isclose(other.ridge, first.ridge, rtol=1e-9):
            raise InvalidInput(
                f"regularization times rows is {first.ridge:.6g} at {first.party}, {other.ridge:.6g} at "
                f"{other.party}",
                where="conjugate_distillation",
                mend="Give every agent KernelRidge(regularization=ridge / its training rows).",
            )
