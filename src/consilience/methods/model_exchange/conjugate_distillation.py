"""Conjugate distillation: what EKD comes to, in as many rounds as conjugate gradients need.

EKD (Afonin & Karimireddy 2022, section 5.2; :mod:`consilience.methods.model_exchange.protocols`) is the
Neumann series of block Jacobi on ``(c I + L) β = y``, the system of kernel regression on all agents' rows.
Here the same system is solved by conjugate gradients with the same blocks as preconditioner. A model trained
on labels t has coefficients ``p = (c I + L_aa)⁻¹ t``, so that directions and solution are kept as labels:

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
target column has step lengths of its own.

What travels: a model an agent and round, as in EKD, and two numbers a target column; one more model in the
last round. An agent trains twice in a round, EKD's once.

Deviations
    - This is not in the paper, whose Proposition VII is about the series; the method is Hestenes &
      Stiefel's (1952).
    - All agents need the same kernel and the same ``λ_a N_a`` (their part of c I + L); both are asked for
      before round 1. Networks have no such system, and are refused: carried out all the same, ten rounds took
      the sum of networks from 0.84 to 0.28 on MNIST (docs/results/afonin2022.md). With two kernels it came to
      EKD's limit, but A is then not symmetric, and nothing says that it must.
    - Lines 3 to 7 are three exchanges a round. Every agent must answer in each.
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
    """Kernel ridge regressions come to the model of all their rows, by conjugate gradients.

    The last round's replies hold every agent's term: ``SignedEnsemble.of([round.replies])`` is the model, and
    agents hold their terms, not the sum: what a federation measures at the agents is not the model. Round 0
    has the agents alone, rounds between have no replies.

    Args:
        rounds: number of rounds T.

    Raises:
        InvalidInput: fewer than two agents, models other than kernel ridge regression, other kernels or other
            ``λ N_a``.
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
    """0 where there is nothing left to divide."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _all(network: NetworkView, task: Task) -> Replies:
    return _whole(network.ask(task))


def _each(network: NetworkView, models: Sequence[SharedModel], task: Any) -> Replies:
    """Every agent asked with the others' models."""
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
