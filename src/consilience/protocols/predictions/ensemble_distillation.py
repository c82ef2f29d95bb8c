"""Two-stage federated distillation with any aggregation of the parties' predictions.

Kovalchuk et al. 2026, "Who to Trust? Aggregating Client Predictions in Federated Distillation",
Algorithm 1; Li & Wang 2019 (FedMD) with plain averaging; Park et al. 2023, Algorithm 1 and 3, for models
that refit.

    1  for round t = 1, 2, … do
         Stage 1
    2    every client c in parallel: train f_c on its private data D_c
    3    every client c: send p_c(x) for every public x, and what the aggregation needs beside
         Stage 2
    4    server: p_A(x) <- A( p_1(x), …, p_m(x) ) for every public x
    5    server: send p_A to the clients; every client trains f_c on { (x, p_A(x)) }

Legend: D_c private data, f_c the party's learner, p_c its row of :class:`PredictPublic`, A ``aggregate``,
p_A ``teacher``, m the number of parties in the federation, γ_t the step of ``consensus``, α ``alpha``.

Deviations
    - Round 0 is yielded after line 2 of the first round: the parties alone, before any exchange.
    - Line 4 goes through a consensus step; the default replaces the teacher, as the papers' line does.
      ``damped()`` gives line 8 of Park's Algorithm 3. A step may extrapolate, as ``anderson()`` does:
      rows of probabilities are put back on the simplex.
    - A learner that starts anew on every fit is refitted in line 5 on private and public rows with
      Park's weights α and 1 − α, α = 1/m unless given; it then skips line 2, which would only
      forget the teacher. The weights are scaled to sum to the number of rows, so that a model's own
      regularisation means what it means to its library.
    - Parties may be drawn with probabilities of their own.
    - What a rule needs and no training changes, such as density ratios, is sent with line 2 of the first
      round, and not again.
    - Line 5 leaves out the public rows that the rule has no teacher for, as in Selective-FD; a consensus step
      still sees them, with what the rule puts in their place.
    - With a codec, p_c and p_A are what is left of them after it; γ_t moves the p_A from before it.
    - A party that was not chosen, failed or was refused in lines 2–3 is not sent the teacher either.
    - For such a learner the density of UWA is fitted after a refit that has seen the last teacher, not
      after a private phase alone, which it does not have.
    - Models that take no soft labels see weighted hard ones; classes below 5 % of a row's likeliest are
      left out (:mod:`consilience.learners.targets`). Models without weights see the likeliest class.
    - A model without logits has the logarithms of its probabilities, not below log(1e-6), in their place.
    - The density's variances are at least 1e-3; a class with fewer than two calibration rows has the
      density fitted to the training rows. The paper fits it to calibration rows in section 4.4 and says
      "private training data" in appendix A.3.
    - Torch learners may stop early on the calibration rows as well.
    - All accuracies, those on local classes too, are measured after line 5; the paper's figure 3 measures
      local classes after line 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from consilience.aggregation import Aggregator, ConsensusUpdate, Teacher, onto_simplex, replace
from consilience.messages.schema import Public
from consilience.protocols.base import (
    Round,
    Rounds,
    RoundState,
    check_options,
    protocol,
    questions,
)
from consilience.protocols.constant_replies import ConstantReplies
from consilience.protocols.predictions.compressed_exchange import ask, check_codec, settle, teach
from consilience.protocols.sampling import participants
from consilience.tasks.base import Network
from consilience.tasks.predictions import FitPrivate
from consilience.transforms.compression import Codec


@protocol(exchanges="predictions", needs_public=True, also_called=("fedmd",))
def ensemble_distillation(
    network: Network,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    aggregate: Aggregator,
    consensus: ConsensusUpdate | None = None,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    alpha: float | None = None,
    codec: Codec | None = None,
) -> Rounds:
    """Parties teach one another through an aggregate of their predictions on public data.

    Args:
        rounds: number of rounds t.
        aggregate: A, the rule that makes one teacher of the replies, such as ``uwa()``.
        consensus: how the teacher moves from round to round; ``replace()`` by default.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        alpha: weight of the private rows in (0, 1) for learners that refit; 1/m by default.
        codec: what is done to predictions, log-densities and the teacher before they are sent, such as
            ``chain(top_k(2), quantized(4), zstd())`` of :mod:`consilience.transforms.compression`; nothing by
            default.

    Raises:
        InvalidInput: an option cannot work with these parties.
        QuorumLost: too few parties answered.

    Source:
        Kovalchuk et al. 2026, Algorithm 1.
    """
    check_options(
        network,
        rounds=rounds,
        participation=participation,
        probabilities=probabilities,
        aggregate=aggregate,
        consensus=consensus,
        alpha=alpha,
    )
    check_codec(codec, aggregate, network)
    step = replace() if consensus is None else consensus
    share = 1 / len(network.parties) if alpha is None else alpha

    constant = ConstantReplies(network, aggregate)
    if state is None:
        constant.keep(
            network.ask(FitPrivate(round=1), *constant.questions(round=1))
        )  # line 2, t = 1
        state = RoundState(round=0, memory=step.init())
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)
        chosen = constant.ask(chosen, round=t)
        train = (FitPrivate(round=t),) if t > 1 else ()  # line 2
        asked = (*train, *questions(aggregate, round=t))
        replies, coding = ask(network, codec, state, *asked, to=chosen)  # line 3
        replies = constant.added_to(replies)
        proposal = aggregate(replies)  # line 4
        values, memory = step.update(proposal.values, state.consensus, state.memory)
        if aggregate.kind == "classification":
            values = onto_simplex(values)
        values = values.astype(proposal.values.dtype)
        values, coding = settle(codec, state, values, coding)
        spoken_for = Teacher(values, proposal.weights, proposal.parties).taught
        taught, coding = teach(
            network,
            codec,
            coding,
            round=t,
            values=values,
            alpha=share,
            rows=spoken_for,
            to=replies.parties,
        )  # line 5
        state = RoundState(round=t, consensus=values, memory=memory, coding=coding)
        yield Round(t, state, Teacher(taught, proposal.weights, proposal.parties), replies)
