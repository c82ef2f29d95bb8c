"""Iterative ensemble distillation for regression, with optional de-regularisation and client sampling.

Park, Hong & Hwang 2023, "Towards Understanding Ensemble Distillation in Federated Learning", Algorithms
1, 2 and 3. All three are special cases of the pseudo-code below: Algorithm 1 omits lines 10–12,
Algorithm 2 uses all clients in every round, and Algorithm 3 has γ_1 = 1.

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
α ``alpha``, m the number of parties; λ and the kernel belong to each party's model, ``KernelRidge`` in the
paper. One round is *one-shot* distillation.

Deviations
    - The mean of line 8 may be any aggregator of values, its step any consensus step: ``replace()`` by
      default, which is Algorithms 1 and 2; ``anderson()`` arrives at their limit in fewer rounds.
    - In line 11 K_pp + ε I replaces K_pp; :class:`~consilience.core.aggregation.Deregularization` gives the
      reason.
    - Round 0 is yielded after line 3: the local models.
    - Any regressor may take part. A regressor that retrains from scratch on every fit follows line 14
      exactly if its loss is a weighted mean over rows. A regressor that continues from its current
      parameters trains on the public rows in line 14, and on its private rows before line 7 of its next
      round.
    - In line 7 a client predicts with the model from its last line 14, as in the algorithm. With few clients
      a round, this model is many rounds old. The proof of Theorem C.16 assumes that every chosen client
      starts from the newest ỹ; as γ_t → 0 we expect the same limit.
    - The run ends if the consensus becomes a thousand times as large as any proposal of the first five
      rounds. De-regularisation makes the consensus diverge if parties have other models than kernel ridge
      regression, another kernel or a smaller λ.
    - A party that failed or was refused in line 7 takes no part in lines 8 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping

from consilience.core.aggregation import (
    Aggregator,
    ConsensusUpdate,
    Deregularization,
    mean,
    replace,
)
from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.protocols.base import (
    Rounds,
    RoundState,
    check_options,
    protocol,
    suited,
)
from consilience.core.protocols.ensemble_distillation import distillation_rounds
from consilience.core.protocols.wrapping import check_made
from consilience.core.tasks.base import NetworkView


@protocol(exchanges="predictions", needs_public=True, any_party=True, summed=True)
def iterative_distillation(
    network: NetworkView,
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
    """Distil the mean of the parties' predicted values into every party's regressor.

    With ``deregularize``, the teacher of every round but the last is de-regularised, and
    ``state.consensus`` holds the values before that.

    Args:
        rounds: number of rounds T; 1 is one-shot distillation.
        aggregate: rule that combines the replies into one proposal; ``mean()`` by default.
        consensus: step of the consensus from round to round; ``replace()`` by default.
        deregularize: de-regularisation of the consensus, in every round but the last; none by default.
        participation: parties per round: a number (int), or a share in (0, 1] (float); 1 (int) is
            the asynchronous case.
        probabilities: probability of each party to take part, relative to the others; equal by default. The
            limit of a damped consensus is that of the mean weighted by them (Theorem C.16).
        alpha: weight of the private rows in (0, 1); by default 1/m, or, without de-regularisation, a larger
            value if it improves a party's predictions of its private rows.

    Raises:
        InvalidInput: an option cannot work with these parties or these public rows.
        QuorumLost: too few parties answered.
        RunFailed: the consensus diverges.

    Source:
        Park et al. 2023, Algorithms 1, 2 and 3.
    """
    rule = suited(mean() if aggregate is None else aggregate, network.agreed)
    step = replace() if consensus is None else consensus
    share = 1 / len(network.agreed.answering(network.parties)) if alpha is None else alpha
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
    yield from distillation_rounds(
        network,
        state,
        rounds=rounds,
        aggregate=rule,
        step=step,
        participation=participation,
        probabilities=probabilities,
        alpha=alpha if deregularize is None else share,
        lift=None if deregularize is None else deregularize.of(public.X),
        bounded="iterative_distillation",
    )
