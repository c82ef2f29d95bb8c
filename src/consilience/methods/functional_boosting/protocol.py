"""Parties boost one function together, each with weak learners fitted to its own gradients: FFGB.

Shen, Hassani, Kale & Karbasi 2022, "Federated Functional Gradient Boosting", Algorithms 1 and 2:

    1  server: for t = 0 … T − 1 do
    2    sample a set S_t of clients
    3    f^{t+1} = (1/|S_t|) Σ_{i in S_t} Client(i, t, f^t)
       Client(i, t, f):
    4    Δ⁰ = 0, g¹ = f
    5    for k = 1 … K do
    6      h^k = Q(Δ^{k−1} + ∇R_i[g^k])
    7      g^{k+1} = g^k − η^{k,t} (h^k + μ g^k)
    8      Δ^k = Δ^{k−1} + ∇R_i[g^k] − h^k
    9    return g^{K+1}

Legend: T ``rounds``, K ``local_steps``, S_t by ``participation``, η ``step_size``, μ ``ridge``, Δ the
residual, Q the oracle of a party's :class:`~consilience.methods.functional_boosting.boosted.Boosted`, R_i the
mean of its loss over its training rows, at whose j-th ``∇R_i[g] = ∂ℓ(g(x_j), y_j)/∂g``.

As line 7 is linear, ``g^{K+1} = Π_k (1 − η_k μ) f + Σ_k w_k h^k`` with ``w_k = −η_k Π_{l>k} (1 − η_l μ)``:
what a chosen party sends are its K weak learners, and what all parties are sent the new terms of f with the
factor on the old ones. FFGB-distill (equation 17) fits one weak learner to f^{t+1} on the public rows in
every round, and puts it in place of the sum.

Deviations
    - f⁰ = 0, the server's round t is round t + 1 here, and round 0 is yielded with f⁰: nothing is trained.
    - Everybody is sent f^{t+1} at the end of a round, chosen or not, so that every party has it and can be
      evaluated. A party that missed it is sent all of f next time.
    - A coordinator holds no model, so that the first party by name that answers distils, with its own weak
      learner: it is sent the new terms, and sends the student up.
    - Terms of weight 0 are left out; with the schedules of the theorems there are some. ``prune`` leaves out
      more of them.
    - Parties say how large their objective ``R_i[f] + μ/2 ‖f‖²`` is on their training rows, one number a
      round, so that a step size that diverges is noticed.
    - The authors' published code draws f⁰ at random and puts μ g into the target of Q; its students start
      from the last one (``warm_start`` here). Its gradient, softmax(g) − onehot, is the ∇R_i above: that of
      a sum over rows, not of their mean. It has K = 1 and no residual, which in one step makes no difference.
    - A party that failed is left out of line 3. So is one whose weak learners are refused on arrival:
      damaged, of packages that no party named at the start, no regressors, or of other outputs. They are
      built to find out, unless a party named a package that is not trusted by default: then a coordinator,
      which holds no list of its own, looks at their descriptions alone. What they say of rows it cannot know.
    - An objective that is infinite is refused as well: a party stops as soon as its own is beyond the limit,
      which is reached long before infinity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput, QuorumLost, RunFailed
from consilience.core.messages.replies import Replies, SharedModel
from consilience.core.messages.schema import Public
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.protocols.sampling import participants
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.numbers import check_choice, check_number
from consilience.methods.functional_boosting.ensemble_weights import descent_weights, negligible
from consilience.methods.functional_boosting.losses import DIVERGED
from consilience.methods.functional_boosting.tasks import (
    Change,
    ChangeFunction,
    CheckTrust,
    Descend,
    DistillFunction,
    Function,
    Objective,
    StartFunction,
    Student,
    WeakLearners,
)

SCHEDULES: Mapping[str, float] = {"heterogeneous": 4.0, "homogeneous": 2.0}
"""c of the step sizes ``η^{k,t} = c / (μ (tK + k + 1))``: Theorems 4.1 and 4.4, Theorem 4.3."""

Schedule = Literal["heterogeneous", "homogeneous"]


# --- the rounds -----------------------------------------------------------------------------------


@protocol(exchanges="models", needs_public="distill", also_called=("ffgb",))
def functional_gradient_boosting(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    local_steps: int = 1,
    step_size: float | Schedule = 1.0,
    ridge: float = 0.0,
    residual: bool = True,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    prune: float = 0.0,
    distill: bool = False,
    warm_start: bool = False,
) -> Rounds:
    """FFGB: parties add weak learners, each fitted to its own functional gradients, to one sum.

    Every party brings a :class:`~consilience.methods.functional_boosting.boosted.Boosted`, whose model is f^t
    after round t. ``state.memory["objective"]`` is the mean of the parties' ``F_i[f^t]``; :func:`function_of`
    makes f^t of a state.

    Args:
        rounds: number of rounds T.
        local_steps: K, of which each is a weak learner to be sent.
        step_size: η, the same in all steps; or ``"heterogeneous"``, ``4 / (μ (tK + k + 1))`` as in Theorems
            4.1 and 4.4, or ``"homogeneous"``, ``2 / (…)`` as in Theorem 4.3, for inputs that are
            distributed alike at all parties.
        ridge: μ ≥ 0.
        residual: ``False`` leaves Δ out, for comparison.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: how likely each party takes part, relative to the others; alike by default.
        prune: after every round the terms of the smallest weights are left out which come to at most this
            share of all weight; what they said stays in what parties remember of their own rows.
        distill: FFGB-distill: one weak learner, fitted to f on the public rows, takes the place of the sum.
        warm_start: of the distillation: it goes on from the last student, with the recipe's
            ``distill_epochs``. For networks.

    Raises:
        InvalidInput: an option out of range, no public rows to distil on, models that are no Boosted, weak
            learners that may not be or cannot be sent or are not trusted, losses that differ.
        QuorumLost: too few parties answered.
        RunFailed: the step size diverges.

    Source:
        Shen et al. 2022, Algorithms 1 and 2, section 5.
    """
    check_options(network, rounds=rounds, participation=participation, probabilities=probabilities)
    _check(network, local_steps, step_size, ridge, prune, distill, warm_start)
    if state is None:
        begun = network.require(StartFunction(round=0, ridge=ridge, warm_start=warm_start))
        state = _started(network, begun.of(Objective), ridge)
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):
        chosen = participants(
            network, participation, round=t, probabilities=probabilities
        )  # line 2
        rates = step_sizes(step_size, ridge, t - 1, local_steps)
        limit = float(state.memory["limit"])
        replies = _asked(
            network,
            state,
            Descend(
                round=t,
                step_sizes=rates,
                ridge=ridge,
                residual=residual,
                limit=limit,
                packages=state.memory["packages"],
            ),
            chosen,
        )
        answers = replies.of(WeakLearners)
        state = _caught_up(state, replies)
        took_part = tuple(answer.party for answer in answers)
        _check_steady(state, t, {answer.party: answer.value for answer in answers}, took_part)
        change = _mean(state, answers, rates, ridge, prune)  # line 3
        if distill:
            student = _student(network, state, change, t, warm_start)
            change = Change.to((student,), np.ones(1))
        state = _sent(network, state, change, t, ridge, took_part)
        yield Round(t, state, replies=replies)


def function_of(state: RoundState, **options: Any) -> Function:
    """f after a round of :func:`functional_gradient_boosting`, as a model by itself.

    Args:
        state: of a round after round 0.
        options: ``trusted``, the packages whose models are accepted.

    Raises:
        InvalidInput: f is 0, as it is in round 0.
    """
    return _whole(state).new_terms(**options)


def step_sizes(
    schedule: float | Schedule, ridge: float, t: int, local_steps: int
) -> tuple[float, ...]:
    """``η^{1,t} … η^{K,t}``.

    Args:
        schedule: one number for all, or a name of :data:`SCHEDULES`.
        ridge: μ, above 0 where a name is given.
        t: the server's round, 0 first.
        local_steps: K.

    >>> step_sizes("homogeneous", 0.5, 1, 2)
    (1.0, 0.8)
    """
    if not isinstance(schedule, str):
        return (float(schedule),) * local_steps
    top = SCHEDULES[schedule]
    return tuple(top / (ridge * (t * local_steps + k + 1)) for k in range(1, local_steps + 1))


# --- the server's side ----------------------------------------------------------------------------


def _check(
    network: NetworkView,
    local_steps: int,
    step_size: float | str,
    ridge: float,
    prune: float,
    distill: bool,
    warm_start: bool,
) -> None:
    """Raise ``InvalidInput`` on options that cannot work, or not together."""
    where = "functional_gradient_boosting"
    check_number("local_steps", local_steps, at_least=1, whole=True, where=where)
    check_number("ridge", ridge, at_least=0, where=where)
    check_number("prune", prune, at_least=0, below=1, where=where)
    if isinstance(step_size, str):
        check_choice("step_size", step_size, SCHEDULES, where=where)
        if ridge == 0:
            raise InvalidInput(
                f"the schedule {step_size!r} divides by ridge, which is 0",
                where=where,
                mend="Give ridge a value above 0, or step_size a number.",
            )
    else:
        check_number("step_size", step_size, above=0, where=where)
    if distill and network.agreed.rows == 0:
        raise InvalidInput(
            "there are no public rows to distil on",
            where=where,
            mend="Give unlabelled rows that every party may see: Federation(parties, public=X); or leave "
            "distill out.",
        )
    if distill and prune > 0:
        raise InvalidInput(
            "prune is for sums, and a distilled function has one term",
            where=where,
            mend="Leave out prune or distill.",
        )
    if warm_start and not distill:
        raise InvalidInput(
            "warm_start is for students, and nothing is distilled",
            where=where,
            mend="Add distill=True, or leave it out.",
        )


def _started(network: NetworkView, begun: list[Objective], ridge: float) -> RoundState:
    """The state of f = 0, after all parties have been found to go together."""
    first, *others = begun
    for other in others:
        if other.loss != first.loss:
            raise InvalidInput(
                f"{first.party} has the loss {first.loss!r}, {other.party} {other.loss!r}",
                where="functional_gradient_boosting",
                mend="Give every party's Boosted the same loss.",
            )
    packages = tuple(sorted({package for one in begun for package in one.packages}))
    network.require(CheckTrust(round=0, packages=packages))
    largest = max(one.value for one in begun)
    return RoundState(
        round=0,
        memory={
            "models": {},
            "weights": np.zeros(0),
            "holders": network.parties,
            "packages": packages,
            "objective": float(np.mean([one.value for one in begun])),
            "limit": DIVERGED * max(largest, float(np.finfo(np.float64).eps)),
            "steady": 2 / (first.smoothness + ridge),
        },
    )


def _asked(network: NetworkView, state: RoundState, task: Any, to: tuple[str, ...]) -> Replies:
    """The parties asked; those that do not hold the last function are sent all of it with the question."""
    held = state.memory["holders"]
    if set(to) <= set(held):
        return network.ask(task, to=to)
    late = replace(task, missed=_whole(state))
    return network.ask_each({party: task if party in held else late for party in to})


def _caught_up(state: RoundState, replies: Replies) -> RoundState:
    """Note that the parties that answered hold the last function."""
    holders = tuple(sorted({*state.memory["holders"], *replies.parties}))
    return replace(state, memory={**state.memory, "holders": holders})


def _whole(state: RoundState) -> Change:
    """All of f."""
    models = tuple(state.memory["models"].values())
    return Change.to(models, np.asarray(state.memory["weights"]))


def _mean(
    state: RoundState,
    answers: list[WeakLearners],
    rates: tuple[float, ...],
    ridge: float,
    prune: float,
) -> Change:
    """Line 3: the mean of what the parties returned, as a change of f."""
    factor = math.prod(1 - rate * ridge for rate in rates)
    weights = np.tile(descent_weights(rates, ridge) / len(answers), len(answers))
    every = np.concatenate([factor * state.memory["weights"], weights])
    return Change(
        since=state.round,
        factor=factor,
        models=tuple(model for answer in answers for model in answer.models),
        weights=weights,
        kept=np.flatnonzero(~negligible(every, prune)),
    )


def _student(
    network: NetworkView, state: RoundState, change: Change, t: int, warm_start: bool
) -> SharedModel:
    """Equation 17, by the first party that answers."""
    packages = state.memory["packages"]
    task = DistillFunction(round=t, change=change, warm_start=warm_start, packages=packages)
    lost: QuorumLost | None = None
    for party in network.parties:
        try:
            return _asked(network, state, task, (party,)).of(Student)[0].model
        except QuorumLost as error:
            lost = error
    assert lost is not None
    raise lost


def _sent(
    network: NetworkView,
    state: RoundState,
    change: Change,
    t: int,
    ridge: float,
    took_part: tuple[str, ...],
) -> RoundState:
    """The state after all parties have been sent f^{t+1}: what it is, who holds it, how good it is."""
    memory = dict(state.memory)
    models, weights = dict(memory["models"]), np.asarray(memory["weights"])
    if change.since < 0:
        models, weights = {}, np.zeros(0)
    for place, model in enumerate(change.models):
        models[f"{model.round} {model.party} {place}"] = model
    weights = np.concatenate([change.factor * weights, change.weights])[change.kept]
    names = list(models)
    memory |= {"models": {names[i]: models[names[i]] for i in change.kept}, "weights": weights}
    held = state.memory["holders"]
    task = ChangeFunction(round=t, change=change, ridge=ridge)
    try:
        if change.since < 0 or set(network.parties) <= set(held):
            replies = network.ask(task)
        else:
            late = replace(task, change=_whole(RoundState(round=t, memory=memory)))
            replies = network.ask_each(
                {party: task if party in held else late for party in network.parties}
            )
    except QuorumLost as error:
        raise QuorumLost(
            error.what,
            where=error.where,
            mend=f"{error.mend}\n  The weak learners of this round are of {', '.join(took_part)}.",
        ) from error
    objectives = {answer.party: answer.value for answer in replies.of(Objective)}
    _check_steady(state, t, objectives, took_part)
    memory |= {"holders": replies.parties, "objective": float(np.mean(list(objectives.values())))}
    return RoundState(round=t, memory=memory)


def _check_steady(
    state: RoundState, t: int, values: Mapping[str, float], took_part: tuple[str, ...]
) -> None:
    """Raise ``RunFailed`` where a party's objective is beyond all bounds."""
    for party, value in values.items():
        if not value <= state.memory["limit"]:
            raise RunFailed(
                "either the step size diverges or a party's weak learners are wild: the objective of party "
                f"{party!r} is {value:.3g}, more than {DIVERGED:g} times the largest one at f = 0",
                where=f"functional_gradient_boosting, round {t}",
                mend=f"Those of this round are of {', '.join(took_part)}. "
                f"Take a step_size below 2 / (smoothness + ridge) = {state.memory['steady']:.3g}, which "
                "cannot diverge with exact weak learners, or a larger ridge where a schedule depends on it.",
            )
