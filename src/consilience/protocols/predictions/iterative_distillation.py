"""Iterative ensemble distillation for regression, de-regularised, also with a part of the clients.

Park, Hong & Hwang 2023, "Towards Understanding Ensemble Distillation in Federated Learning", Algorithms
1, 2 and 3. The three are one: Algorithm 1 is lines 10–12 left out, Algorithm 2 all clients in every
round, and Algorithm 3, with γ_1 = 1, reads

     3  pretrain: every client j minimises (1/N) Σ_i (h(x_i) − y_i)² + λ‖h‖²
     4  every client holds the public inputs X_p
     5  for t = 1, …, T do
     6    determine a set C_t of C clients
     7    clients j in C_t: predict X_p and upload ỹ_j
     8    server: ỹ <- (1 − γ_t) ỹ_old + γ_t (1/C) Σ_{j in C_t} ỹ_j
     9    server: ỹ_old <- ỹ
    10    if t ≠ T then
    11      server: ỹ <- (K_pp + N_p λ0 I) K_pp⁻¹ ỹ
    12    end if
    13    clients j in C_t: download ỹ
    14    clients j in C_t: minimise
            α (1/N) Σ_i (h(x_i) − y_i)² + (1 − α) (1/N_p) Σ_i (h(x_p,i) − ỹ_i)² + λ‖h‖²
    15  end for

Legend: T ``rounds``, C ``participation``, P(j in C_t) from ``probabilities``, γ_t the step of
``consensus`` (``damped()``: γ_t = t^−q), ỹ_old ``state.consensus``, λ0 ``deregularize.regularization``,
α ``alpha``, m the number of parties; λ and the kernel are the parties' own, ``KernelRidge`` in the
paper. One round is *one-shot* distillation.

Deviations
    - The mean of line 8 may be any aggregator of values, its step any consensus step: ``replace()`` by
      default, which is Algorithms 1 and 2; ``anderson()`` arrives at their limit in fewer rounds.
    - In line 11 K_pp + ε I stands for K_pp; :class:`~consilience.aggregation.Deregularization` says why.
    - Round 0 is yielded after line 3: the parties alone.
    - Any regressor may take part. One that starts anew on every fit does line 14 as it is written if
      its loss is a weighted mean over rows; one that goes on from where it is trains on the public rows
      in line 14, and on its private rows before line 7 of the next round that it is in.
    - In line 7 a client predicts with the model of its own last line 14, as the algorithm says, which with
      few clients a round is many rounds old. The proof of Theorem C.16 has every chosen client start from
      the newest ỹ; as γ_t → 0 we expect the same limit.
    - A consensus a thousand times as large as any proposal of the first five rounds ends the run:
      de-regularisation blows up what it does not fit, parties with other models than kernel ridge
      regression, another kernel or a smaller λ.
    - A party that failed or was refused in line 7 is left out of lines 8 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.aggregation import (
    Aggregator,
    ConsensusUpdate,
    Deregularization,
    Teacher,
    mean,
    replace,
)
from consilience.errors import InvalidInput, RunFailed
from consilience.messages.schema import Public
from consilience.protocols.base import (
    Round,
    Rounds,
    RoundState,
    check_made,
    check_options,
    protocol,
    questions,
)
from consilience.protocols.constant_replies import ConstantReplies
from consilience.protocols.sampling import participants
from consilience.tasks.base import Network
from consilience.tasks.predictions import Distill, FitPrivate
from consilience.validation.arrays import Array

_FIRST, _DIVERGED = 5, 1e3
"""A consensus so many times as large as any proposal of the first rounds has diverged."""


@protocol(exchanges="predictions", needs_public=True)
def iterative_distillation(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    aggregate: Aggregator | None = None,
    consensus: ConsensusUpdate | None = None,
    deregularize: Deregularization | None = None,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    alpha: float | None = None,
) -> Rounds:
    """Regressors teach one another through the mean of their predictions, de-regularised or not.

    A round's teacher is what was sent; its ``state.consensus`` is what that was made of.

    Args:
        rounds: number of rounds T; 1 is one-shot distillation.
        aggregate: the rule that makes one proposal of the replies; ``mean()`` by default.
        consensus: how the consensus moves from round to round; ``replace()`` by default.
        deregularize: what is done to the consensus before it is sent, in every round but the last;
            nothing by default.
        participation: parties per round: a number (int), or a share in (0, 1] (float); 1 (int) is
            the asynchronous case.
        probabilities: how likely each party takes part, relative to the others; alike by default. The
            limit of a damped consensus is that of the mean weighted by them (Theorem C.16).
        alpha: weight of the private rows in (0, 1); 1/m by default.

    Raises:
        InvalidInput: an option cannot work with these parties or these public rows.
        QuorumLost: too few parties answered.
        RunFailed: the consensus diverges.

    Source:
        Park et al. 2023, Algorithms 1, 2 and 3.
    """
    rule = mean() if aggregate is None else aggregate
    step = replace() if consensus is None else consensus
    share = 1 / len(network.parties) if alpha is None else alpha
    check_options(
        network,
        rounds=rounds,
        participation=participation,
        probabilities=probabilities,
        aggregate=rule,
        consensus=step,
        alpha=share,
    )
    if rule.kind != "regression":
        raise InvalidInput(
            "it is for regression, and these parties classify",
            where="protocol iterative_distillation",
            mend="Take ensemble_distillation.",
        )
    check_made(
        "deregularize", deregularize, Deregularization, "a Deregularization", "Deregularization(…)"
    )
    lifted = (lambda values: values) if deregularize is None else deregularize.of(public.X)

    constant = ConstantReplies(network, rule)
    if state is None:
        constant.keep(network.ask(FitPrivate(round=1), *constant.questions(round=1)))  # line 3
        state = RoundState(round=0, memory={"step": step.init(), "largest": 0.0})
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(
            network, participation, round=t, probabilities=probabilities
        )  # line 6
        chosen = constant.ask(chosen, round=t)
        train = (FitPrivate(round=t),) if t > 1 else ()
        replies = network.ask(*train, *questions(rule, round=t), to=chosen)  # line 7
        replies = constant.added_to(replies)
        proposal = rule(replies)
        before = state.memory["step"]
        values, memory = step.update(proposal.values, state.consensus, before)  # line 8
        largest = float(state.memory["largest"])
        if t <= _FIRST:
            largest = max(largest, float(np.abs(proposal.values).max()))
        _check_bounded(values, largest, round=t)
        kept = {"step": memory, "largest": largest}
        state = RoundState(round=t, consensus=values, memory=kept)  # line 9
        targets = values if t == rounds else lifted(values)  # lines 10 to 12
        network.ask(Distill(round=t, targets=targets, alpha=share), to=replies.parties)  # 13, 14
        yield Round(t, state, Teacher(targets, proposal.weights, proposal.parties), replies)


def _check_bounded(values: Array, largest: float, *, round: int) -> None:
    """Raise ``RunFailed`` where the consensus is out of all proportion."""
    if round > _FIRST and largest > 0 and not np.abs(values).max() <= _DIVERGED * largest:
        raise RunFailed(
            f"the consensus diverges: its largest value is {np.abs(values).max():.3g}, and no proposal of "
            f"the first rounds was above {largest:.3g}",
            where=f"iterative_distillation, round {round}",
            mend="De-regularise only where every party has kernel ridge regression, with the kernel and "
            "the regularisation that deregularize names.",
        )
