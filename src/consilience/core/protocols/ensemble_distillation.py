"""Two-stage federated distillation with any aggregation of the parties' predictions.

Kovalchuk et al. 2026, "Who to Trust? Aggregating Client Predictions in Federated Distillation",
Algorithm 1; Li & Wang 2019 (FedMD) with plain averaging; Park et al. 2023, Algorithm 1 and 3, for models
that refit.

    1  for round t = 1, 2, … do
         Stage 1
    2    every client c in parallel: train f_c on its private data D_c
    3    every client c: send p_c(x) for every public x, and the scores that the aggregation needs
         Stage 2
    4    server: p_A(x) <- A( p_1(x), …, p_m(x) ) for every public x
    5    server: send p_A to the clients; every client trains f_c on { (x, p_A(x)) }

Legend: D_c private data, f_c the party's learner, p_c its row of :class:`PredictPublic`, A ``aggregate``,
p_A ``teacher``, m the number of parties in the federation, γ_t the step of ``consensus``, α ``alpha``.

Deviations
    - Line 2 of the first round runs at all parties before the loop. Round 0 is yielded after it: the local
      models, before any exchange. Round 1 begins with line 3.
    - A rule without a screen gets :class:`~consilience.core.aggregation.guard.Guard`, which bounds claims and
      may exclude parties.
    - Line 4 applies a consensus step; the default replaces the teacher, as the papers' line does.
      ``damped()`` gives line 8 of Park's Algorithm 3. A step may extrapolate, as ``anderson()`` does;
      rows of probabilities are then projected onto the simplex.
    - A learner that retrains from scratch on every fit is refitted in line 5 on private and public rows with
      Park's weights α and 1 − α, α = 1/m unless given. It skips line 2, which would only erase the teacher.
      If α is not given, a party may take 0.5 or 0.8 if the first teacher worsens its predictions of its
      private rows; it keeps this value. The weights are scaled to sum to the number of rows, so that a
      model's regularisation keeps its usual scale.
    - A party predicts, and is evaluated, with a mixture of f_c and the model that preceded line 5 of its
      first round (:mod:`consilience.core.party.personalizer`), unless its purpose is ``"taught"``. Line 3 and
      the training of f_c follow the papers.
    - Parties may be drawn with unequal probabilities.
    - A party with a frozen model skips lines 2 and 5. A party without labels skips lines 2 and 3, is in no
      draw, and trains f_c in line 5 on the public rows alone. m counts the parties that send.
    - Scores that do not change with training, such as density ratios, are sent once, with line 2 of the
      first round.
    - Line 5 omits the public rows without a teacher, as in Selective-FD. A consensus step still uses these
      rows, with the rule's substitute values.
    - With compression, p_c and p_A are the values after transmission; γ_t uses p_A before compression.
    - A party that failed or was refused in lines 2–3, or is not in the round's draw, does not receive the
      teacher either. A party excluded in line 4 (:class:`consilience.core.aggregation.guard.Guard`)
      receives it, and so does a late party if last answers count
      (:class:`consilience.core.aggregation.last_answers.LastAnswers`).
    - For a learner that retrains from scratch, the density of UWA is fitted after a refit with the last
      teacher; there is no private phase alone.
    - Models without support for soft labels are trained on weighted hard labels; classes below 5 % of a row's
      likeliest are dropped (:mod:`consilience.core.learners.targets`). Models without weights are trained on
      the likeliest class.
    - A logistic regression with C of 0.2 or less is taught with C multiplied by 5, 25 or 125 if held-out rows
      favour it (:mod:`consilience.core.learners.sklearn.soft_logistic`).
    - A model without logits sends the logarithms of its probabilities, at least log(1e-6).
    - The density's variances are at least 1e-3; for a class with fewer than two calibration rows, the
      density is fitted to the training rows. The paper fits it to calibration rows in section 4.4, but to
      "private training data" in appendix A.3.
    - Torch learners may also stop early on the calibration rows.
    - All accuracies, including those on local classes, are measured after line 5; the paper's figure 3
      measures local classes after line 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from consilience.core.aggregation import Aggregator, ConsensusUpdate, Teacher, onto_simplex, replace
from consilience.core.aggregation.last_answers import still_at_work
from consilience.core.errors import RunFailed
from consilience.core.messages.schema import Public
from consilience.core.protocols.base import (
    Round,
    Rounds,
    RoundState,
    check_options,
    protocol,
    questions,
    suited,
)
from consilience.core.protocols.constant_replies import ConstantReplies
from consilience.core.protocols.sampling import participants
from consilience.core.tasks.base import NetworkView
from consilience.core.tasks.predictions import Distill, FitPrivate
from consilience.core.validation.arrays import Array

_FIRST, _DIVERGED = 5, 1e3
"""Number of first rounds, and factor over their largest proposal above which a consensus has diverged."""


@protocol(
    exchanges="predictions",
    needs_public=True,
    also_called=("fedmd",),
    any_party=True,
    summed=True,
)
def ensemble_distillation(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    aggregate: Aggregator | None = None,
    consensus: ConsensusUpdate | None = None,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    alpha: float | None = None,
) -> Rounds:
    """Distil an aggregate of the parties' predictions on public data into every party's model.

    Args:
        rounds: number of rounds t.
        aggregate: A, the rule that combines the replies into one teacher; ``auto()`` by default.
        consensus: step of the teacher from round to round; ``replace()`` by default.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: probability of each party to take part, relative to the others; equal by default.
        alpha: weight of the private rows in (0, 1) for learners that refit; by default 1/m, or a larger
            value if it improves a party's predictions of its private rows.

    Raises:
        InvalidInput: an option cannot work with these parties.
        QuorumLost: too few parties answered.

    Source:
        Kovalchuk et al. 2026, Algorithm 1.
    """
    rule = suited(aggregate, network.agreed)
    check_options(
        network,
        rounds=rounds,
        participation=participation,
        probabilities=probabilities,
        aggregate=rule,
        consensus=consensus,
        alpha=alpha,
    )
    yield from distillation_rounds(
        network,
        state,
        rounds=rounds,
        aggregate=rule,
        step=replace() if consensus is None else consensus,
        participation=participation,
        probabilities=probabilities,
        alpha=alpha,
    )


def distillation_rounds(
    network: NetworkView,
    state: RoundState | None,
    *,
    rounds: int,
    aggregate: Aggregator,
    step: ConsensusUpdate,
    participation: int | float,
    probabilities: Mapping[str, float] | None,
    alpha: float | None,
    lift: Callable[[Array], Array] | None = None,
    bounded: str | None = None,
) -> Rounds:
    """Run the rounds of ensemble distillation; lines are those of the pseudo-code above.

    Args:
        network: the parties.
        state: state of the round before; ``None`` to begin.
        rounds: number of rounds.
        aggregate: rule that makes one proposal of the replies.
        step: step of the consensus.
        participation: parties per round, a number or a share.
        probabilities: probability of each party to take part, relative to the others.
        alpha: weight of the private rows for learners that refit; by default 1/m, or each party's choice.
        lift: function that makes the teacher from the consensus, in every round but the last, such as the
            result of :meth:`.Deregularization.of`; by default the consensus is the teacher.
        bounded: name of a protocol that ends if the consensus diverges; ``None`` for no such check.

    Yields:
        Round 0 unless a state is given, then one round for each t.

    Raises:
        QuorumLost: too few parties answered.
        RunFailed: the consensus diverges, and ``bounded`` is given.
    """
    constant = ConstantReplies(network, aggregate)
    answering = network.agreed.answering(network.parties)
    if state is None:
        # Line 2, t = 1.
        constant.keep(network.ask(FitPrivate(round=1), *constant.questions(round=1), to=answering))
        memory = step.init() if bounded is None else {"step": step.init(), "largest": 0.0}
        state = RoundState(round=0, memory=memory)
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(network, participation, round=t, probabilities=probabilities)
        chosen = constant.ask(chosen, round=t)
        train = (FitPrivate(round=t),) if t > 1 else ()  # line 2
        replies = network.ask(*train, *questions(aggregate, round=t), to=chosen)  # line 3
        replies = constant.added_to(replies)
        proposal = aggregate(replies, state.trust)  # line 4
        before = (state.memory or step.init()) if bounded is None else state.memory["step"]
        values, memory = step.update(proposal.values, state.consensus, before)
        if aggregate.kind == "classification":
            values = onto_simplex(values)
        values = values.astype(proposal.values.dtype)
        if bounded is not None:
            largest = float(state.memory["largest"])
            if t <= _FIRST:
                largest = max(largest, float(np.abs(proposal.values).max()))
            _check_bounded(values, largest, where=f"{bounded}, round {t}", first=t <= _FIRST)
            memory = {"step": memory, "largest": largest}
        targets = values if lift is None or t == rounds else lift(values)
        teacher = Teacher(targets, proposal.weights, proposal.parties, proposal.notes)
        distill = Distill(
            round=t,
            targets=targets,
            alpha=1 / len(answering) if alpha is None else alpha,
            taught=teacher.taught,
            free_alpha=alpha is None,
            share=1 / len(answering),
        )
        late = () if aggregate.last is None else still_at_work(replies)
        if to := network.agreed.taught((*replies.parties, *late)):
            network.ask(distill, to=to)  # line 5
        state = RoundState(round=t, consensus=values, memory=memory, trust=proposal.memory)
        yield Round(t, state, teacher, replies)


def _check_bounded(values: Array, largest: float, *, where: str, first: bool) -> None:
    """Raise ``RunFailed`` if the consensus exceeds the first proposals by a factor of 1000."""
    if not first and largest > 0 and not np.abs(values).max() <= _DIVERGED * largest:
        raise RunFailed(
            f"the consensus diverges: its largest value is {np.abs(values).max():.3g}, and no proposal of "
            f"the first rounds was above {largest:.3g}",
            where=where,
            mend="De-regularise only where every party has kernel ridge regression, with the kernel and "
            "the regularisation that deregularize names.",
        )
