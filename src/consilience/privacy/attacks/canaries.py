"""Canaries: parties that differ by one unit, which moves what leaves as far as any unit can.

For each path by which something leaves at a stated (ε, δ) there is a pair of parties, the tasks that they are
asked, and a number of the reply that tells most of the unit::

    sums          class sums: a row of the largest features, in a class of its own
    training      a network trained with noise: a row whose gradient is clipped in every step, and no other
                  row has part in its direction
    certainties   a row of one's own kind at either end of a direction that private rows lack

Certainties are charged for a replaced row, and no row moves them by more than 0.7 of what their proof allows:
their audit finds noise that is too little by more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.learners import Learner
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.numerics.outcomes import Classes
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Describe
from consilience.core.tasks.outgoing import reply_of
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.validation.arrays import Array
from consilience.methods.comparison_rules.scores import Certainties
from consilience.models.presets import make
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.accounting.privacy_of import declare_units
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.sums import SCALE
from consilience.privacy.class_sums.tasks import SumClasses, features_by, public_basis

CLASSES = tuple("abcdefghij")
"""Classes that audited parties declare."""

_OTHERS, _COPIES = 20, 3
"""Rows of a party beside its canary, and rows of a canary where a unit is more than a row."""
_TRAINING = NoisyTraining(rows=_OTHERS + 1, batch=_OTHERS + 1, epochs=2, clip=0.1)
"""Two steps with every row in each: then the loss is Gaussian, and the bound of normal noise holds."""


@dataclass(frozen=True)
class Canary:
    """Two parties that differ by one unit, and what they are asked.

    Attributes:
        parties: without the canary, or with another in its place, and with it; both have joined.
        tasks: of one request.
        told: from the last reply to a number, larger with the canary.
        budget: that both keep to.
    """

    parties: tuple[Party, Party]
    tasks: tuple[Task, ...]
    told: Callable[[Any], float]
    budget: Budget


def in_sums(budget: Budget) -> Canary:
    """Make the canary of class sums.

    Args:
        budget: of the party.
    """
    public, task, length = question_of_sums(4)
    rows = stream(0, "audit", 0, "rows").normal(size=(_OTHERS, 4))
    where = features_by(task.basis, public)[0] / length
    canary = np.tile(5 * public.X[:1], (1 if budget.unit == "row" else _COPIES, 1))
    others = np.vstack([rows, -canary]) if budget.adjacency == "replace" else rows

    def told(reply: ClassSums) -> float:
        return float(reply.values[0] @ where) / SCALE

    both = (joined(public, one, budget) for one in (others, np.vstack([rows, canary])))
    return Canary((next(both), next(both)), (task,), told, budget)


def in_training(budget: Budget) -> Canary:
    """Make the canary of training with noise, as the budget says or in two steps of all rows.

    Args:
        budget: of the party.
    """
    budget = replace(budget, training=budget.training or _TRAINING)
    public = Public(np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]))
    rows = stream(0, "audit", 0, "rows").normal(size=(_OTHERS, 3)) * [0, 1, 1]
    labels = np.array(["a", "b"] * (_OTHERS // 2))
    canary = np.tile([[3.0, 0, 0]], (1 if budget.unit == "row" else _COPIES, 1))
    slow = {"optimizer": "sgd", "learning_rate": 0.1}
    model = make("mlp", hidden=(), recipe=slow)

    def told(reply: Any) -> float:
        ahead = reply.values[:, 1] - reply.values.mean(axis=1)  # of b, as its gradient has it
        return float(ahead[0] - ahead[1])

    without = joined(public, rows, budget, labels, model)
    labels = np.append(labels, ["b"] * len(canary))
    party = joined(public, np.vstack([rows, canary]), budget, labels, model)
    tasks = (FitPrivate(round=1), PredictPublic(round=1, outputs="logits"))
    return Canary((without, party), tasks, told, budget)


def in_certainties(budget: Budget) -> Canary:
    """Make the canary of certainties with noise.

    Args:
        budget: of the party, for a replaced row.

    Raises:
        InvalidInput: it is for another neighbour.
    """
    if (budget.adjacency, budget.unit) != ("replace", "row"):
        raise InvalidInput(
            "certainties have a stated cost for a replaced row alone",
            where="audit",
            mend='Give Budget(…, adjacency="replace"); on the command line --adjacency replace.',
        )
    wide = 20
    axes = np.vstack([np.eye(wide), -np.eye(wide)])
    # Few of them lie along the first axis: others there would hold what a row of its own moves.
    rest = [axes[axes[:, 0] == 0] * (1 - i / 100) for i in range(1, 20)]
    public = Public(np.vstack([axes, *rest]))
    rows = stream(0, "audit", 0, "rows").normal(size=(_OTHERS, wide)) / 10
    rows[:, 0] = 0.0
    epsilon = budget.epsilon if budget.each is None else budget.each
    task = ScoreCertainty(round=1, regularization=0.01, epsilon=epsilon, delta=budget.delta)

    def told(reply: Certainties) -> float:
        odds = np.clip(reply.values[[0, wide]].astype(np.float64), 1e-8, 1 - 1e-8)
        ahead, behind = np.log(odds / (1 - odds))
        return float(ahead - behind)

    both = (joined(public, np.vstack([rows, side * axes[:1]]), budget) for side in (-1, 1))
    return Canary((next(both), next(both)), (task,), told, budget)


CANARIES: dict[str, Callable[[Budget], Canary]] = {
    "sums": in_sums,
    "training": in_training,
    "certainties": in_certainties,
}
"""How each path that is audited has its canary made, by name."""


def question_of_sums(dimensions: int) -> tuple[Public, SumClasses, float]:
    """Make public rows along the axes, whose features are orthogonal, the task, and a feature's length.

    Args:
        dimensions: number of axes.
    """
    public = Public(np.vstack([np.eye(dimensions), -np.eye(dimensions)]))
    task = SumClasses.of(public_basis(public, "directions", dimensions), round=1)
    return public, task, float(np.linalg.norm(features_by(task.basis, public)[0]))


def joined(
    public: Public,
    rows: Array,
    budget: Budget,
    labels: Array | None = None,
    model: Learner | str = "logistic-regression",
) -> Party:
    """Make a party with these rows, the last of them one unit where a unit is more than a row.

    Args:
        public: the public rows.
        rows: inputs.
        budget: says what a unit is; the party does not keep to it yet.
        labels: of the rows; by default all of the first class.
        model: its model.
    """
    units = None
    if budget.unit != "row":
        units = np.minimum(np.arange(len(rows)), _OTHERS)
    classes = np.full(len(rows), CLASSES[0]) if labels is None else labels
    party = Party("audited", model, rows, classes, outcome=Classes(CLASSES), calibration=0)
    declare_units(party, units)
    party.hold_public(public)
    party.join(negotiate(decode(reply_of(party, [Describe()], encode)[1]), public))
    return party
