"""Canaries: pairs of parties that differ by one unit, chosen to move the replies as far as possible.

Each kind of release with a stated (ε, δ) has a pair of parties, the tasks for both, and the statistic of the
reply with the highest sensitivity to the unit::

    sums          class sums: a row of the largest features, in a class without other rows
    training      a network trained with noise: a row whose gradient is clipped in every step, and no other
                  row has part in its direction
    certainties   a private row at either end of a direction that other private rows lack

Certainties are charged for a replaced row. No canary moves them by more than 0.7 of the sensitivity in their
proof, so the audit detects too little noise only if it is too little by more than this factor.
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
"""Number of a party's other rows, and of rows of a canary if a unit is more than a row."""
_TRAINING = NoisyTraining(rows=_OTHERS + 1, batch=_OTHERS + 1, epochs=2, clip=0.1)
"""Two steps with every row in each: then the loss is Gaussian, and the bound of normal noise holds."""


@dataclass(frozen=True)
class Canary:
    """Two parties that differ by one unit, and the tasks for both.

    Attributes:
        parties: the party without the canary (or with another unit in its place), and the party with it. Both
            have joined.
        tasks: tasks of one request.
        told: maps the last reply to a statistic, which is larger with the canary.
        budget: privacy budget of both parties.
    """

    parties: tuple[Party, Party]
    tasks: tuple[Task, ...]
    told: Callable[[Any], float]
    budget: Budget


def in_sums(budget: Budget) -> Canary:
    """Create the canary of class sums.

    Args:
        budget: budget of the party.
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
    """Create the canary of training with noise.

    A budget without training settings gets two steps on all rows.

    Args:
        budget: budget of the party.
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
    """Create the canary of certainties with noise.

    Args:
        budget: budget of the party, for a replaced row.

    Raises:
        InvalidInput: the budget is for other neighbouring data.
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
"""Functions that create the canary of each audited kind of release, by name."""


def question_of_sums(dimensions: int) -> tuple[Public, SumClasses, float]:
    """Create public rows along the axes, the task of their class sums, and the length of a feature vector.

    The features of the axes are orthogonal.

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
    """Create a party with these rows and let it join; the rows of a canary form one unit.

    Args:
        public: the public rows.
        rows: inputs, shape ``(n, d)``.
        budget: sets the unit of privacy; it does not apply to the party yet.
        labels: class of each row; ``None`` puts all rows into the first class.
        model: model of the party.
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
