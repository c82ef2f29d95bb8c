"""Boost one function jointly, with weak learners fitted to each party's functional gradients (FFGB).

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

Since line 7 is linear, ``g^{K+1} = Π_k (1 − η_k μ) f + Σ_k w_k h^k`` with ``w_k = −η_k Π_{l>k} (1 − η_l μ)``.
Therefore a chosen party sends only its K weak learners, and the server sends all parties only the new terms
of f and a factor for the old terms. FFGB-distill (equation 17) fits one weak learner to f^{t+1} on the public
rows in every round, and replaces the sum by it.

Deviations
    - f⁰ = 0, the server's round t is round t + 1 here, and round 0 yields f⁰ without training.
    - The server sends f^{t+1} to all parties at the end of a round, so that every party can be evaluated. A
      party that missed it gets all of f with the next request.
    - A coordinator holds no model. Therefore the first party by name that answers carries out the
      distillation, with its weak learner: it receives the new terms and sends the student.
    - Terms of weight 0 are dropped; the schedules of the theorems produce some. ``prune`` drops more terms.
    - Every party sends its objective ``R_i[f] + μ/2 ‖f‖²`` on its training rows, one number per round, so
      that the server detects a diverging step size.
    - The authors' published code draws f⁰ at random and puts μ g into the target of Q; its students start
      from the last student (``warm_start`` here). Its gradient, softmax(g) − onehot, is the ∇R_i above: the
      gradient of a sum over rows, not of their mean. It has K = 1 and no residual, which makes no difference
      in one step.
    - A failed party is excluded from line 3. A party is excluded as well if the coordinator refuses its weak
      learners: because they are damaged, come from a package which no party named at the start, are not
      regressors, or have a different number of outputs. The coordinator builds them for this check. If a
      party named a package outside the default list of trusted packages, the coordinator reads only their
      descriptions, because it has no list of trusted packages. It cannot check their predictions.
    - An infinite objective is refused as well. A party stops as soon as its objective exceeds the limit, long
      before it becomes infinite.
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
    """Train one sum of weak learners by federated functional gradient boosting (FFGB).

    Every party has a :class:`~consilience.methods.functional_boosting.boosted.Boosted`, which holds f^t after
    round t. ``state.memory["objective"]`` is the mean of the parties' ``F_i[f^t]``. :func:`function_of`
    builds f^t from a state.

    Args:
        rounds: number of rounds T.
        local_steps: number of steps K per round; a party sends one weak learner for each.
        step_size: η, the same in all steps; or a schedule: ``"heterogeneous"``, ``4 / (μ (tK + k + 1))`` as
            in Theorems 4.1 and 4.4, or ``"homogeneous"``, ``2 / (…)`` as in Theorem 4.3, for parties with the
            same distribution of inputs.
        ridge: μ ≥ 0.
        residual: ``False`` omits Δ, for comparison.
        participation: parties per round: a number (int), or a share in (0, 1] (float).
        probabilities: relative probability of each party to be chosen; equal by default.
        prune: share of the total weight to drop after every round, beginning with the terms of the smallest
            weights. The values of f that parties store for their training rows still include dropped terms.
        distill: replace the sum by one weak learner fitted to f on the public rows (FFGB-distill).
        warm_start: start each distillation from the last student, with the recipe's ``distill_epochs``; for
            networks.

    Raises:
        InvalidInput: an option is out of range, there are no public rows to distil on, a model is not a
            Boosted, a weak learner may not or cannot be sent or is not trusted, or the losses differ.
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
    """Build f as a standalone model from the state of a :func:`functional_gradient_boosting` round.

    Args:
        state: state of a round after round 0.
        options: ``trusted``, the packages with accepted models.

    Returns:
        The weighted sum of weak learners.

    Raises:
        InvalidInput: f is 0, as in round 0.
    """
    return _whole(state).new_terms(**options)


def step_sizes(
    schedule: float | Schedule, ridge: float, t: int, local_steps: int
) -> tuple[float, ...]:
    """Compute the step sizes ``η^{1,t} … η^{K,t}`` of a round.

    Args:
        schedule: one number for all steps, or a name of :data:`SCHEDULES`.
        ridge: μ; must be above 0 for a named schedule.
        t: the server's round, starting at 0.
        local_steps: K.

    Returns:
        K step sizes.

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
    """The state of f = 0, after a check that the parties are compatible."""
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
    """Send a task to parties, with all of f to those that do not hold the last function."""
    held = state.memory["holders"]
    if set(to) <= set(held):
        return network.ask(task, to=to)
    late = replace(task, missed=_whole(state))
    return network.ask_each({party: task if party in held else late for party in to})


def _caught_up(state: RoundState, replies: Replies) -> RoundState:
    """Record the answering parties as holders of the last function."""
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
    """Line 3: the mean of the functions g^{K+1} of the parties, as a change of f."""
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
    """Send f^{t+1} to all parties; return the state with f^{t+1}, its holders and its mean objective."""
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
    """Raise ``RunFailed`` if a party's objective exceeds the limit."""
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
