"""Tasks for the further inputs of aggregators: scores of the public rows, and row counts.

A party computes scores in :mod:`consilience.core.party.row_scores`; :mod:`consilience.core.messages.scores`
has the replies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import numpy as np

from consilience.core.messages.message import message
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    PublicScores,
    RowCount,
    Score,
)
from consilience.core.party.row_scores import COMPARED_SETS
from consilience.core.party.shared_space import public_features as features_of
from consilience.core.party.view import PartyView
from consilience.core.registry import registered_object
from consilience.core.tasks.base import Task, task_types
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

S = TypeVar("S", bound=PublicScores)
T = TypeVar("T", bound=Task)


def of_rows(run: Callable[[T, PartyView], S]) -> Callable[[T, PartyView], S]:
    """Wrap the ``run`` of a score: a party without labels replies zeros, marked as absent."""

    @wraps(run)
    def replied(task: T, party: PartyView) -> S:
        if party.rows.labelled:
            return run(task, party)
        agreement, kind = party.trainer.agreement, cast(type[S], task.reply_type)
        columns, _ = kind.form(agreement.kind, agreement.outputs)
        return scored(kind, task, party, np.zeros((agreement.rows, *columns)), absent=True)

    return replied


def score_task(kind: type[Score]) -> type[Task]:
    """Find the task with a given type of score as its reply.

    Args:
        kind: the type of score.

    Returns:
        The task type.

    Raises:
        TypeError: there is none, or there are several.
    """
    for registered in (
        False,
        True,
    ):  # a task of a feature is imported where none of core asks for it
        known = task_types(registered=registered)
        found = [task for task in known.values() if task.reply_type is kind]
        if len(found) == 1:
            return found[0]
    names = ", ".join(task.__name__ for task in found) or "no task"
    raise TypeError(f"one task has to ask for {kind.__name__}, and {names} does")


def asked_once() -> frozenset[str]:
    """Return the names of static tasks, whose reply is the same in every round.

    A resumed run sends these tasks again.
    """
    return frozenset(name for name, kind in task_types().items() if kind.static)


@message
class ScorePublic(
    Task,
    reply_type=LogDensities,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="usual",
    limits=(),
    summed="score",
):
    """Compute how typical each public row is of your training rows."""

    round: int

    @of_rows
    def run(self, party: PartyView) -> LogDensities:
        """Compute one log-density for each public row."""
        values, notes = party.trainer.scores.log_density(
            party.trainer.learner.logits, party.trainer.outputs("logits")
        )
        return scored(LogDensities, self, party, values, notes=notes)


@message
class ComparePublic(
    Task,
    reply_type=DensityRatios,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="rows",
    limits=(),
    summed="score",
):
    """Compute exact density ratios of your rows of each class to the public rows, at each public row.

    The ratios use the training rows, scaled to the number of all private rows, so that calibration rows can
    validate the result. Rows can be reconstructed from the answer. A party with limits
    (:class:`consilience.sites.party.Limits`) therefore refuses this task, and receives
    :class:`CompareCoarsely` instead.

    Attributes:
        ridge: ridge of :class:`consilience.core.numerics.density.PublicRatio`, above 0.
        calibration: whether to use only your calibration rows, which are held out from training. The default
            is false.
        estimator: ``"kernel"``, the default, or ``"logistic"``, which a package registers, for the odds of a
            logistic regression.
    """

    round: int
    ridge: float
    calibration: bool = False
    estimator: Literal["kernel", "logistic"] = "kernel"

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, above=0, where=type(self).__name__)

    @of_rows
    def run(self, party: PartyView) -> DensityRatios:
        """Compute one number for each public row and class, without the model: the same in every round."""
        if self.estimator == "kernel":
            values = party.trainer.scores.density_ratios(self.ridge, calibration=self.calibration)
        else:
            ratios = registered_object("consilience.density_ratios", self.estimator)
            values = ratios(party.trainer.scores, calibration=self.calibration)
        return scored(DensityRatios, self, party, values)


@message
class CompareCoarsely(
    Task,
    reply_type=CoarseRatios,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="usual",
    limits=("density_ratios",),
    summed="score",
):
    """Compute quantised density ratios of your rows to the public rows, with your own settings."""

    round: int

    @of_rows
    def run(self, party: PartyView) -> CoarseRatios:
        """Compute one number for each public row and class, the same in every round and for every seed."""
        values, question = party.trainer.scores.coarse_ratios()
        party.outbox.note(COMPARED_SETS, question)
        return scored(CoarseRatios, self, party, values)


@message
class CountRows(
    Task,
    reply_type=RowCount,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="usual",
    limits=(),
    summed="score",
):
    """Count your private training rows."""

    round: int

    def run(self, party: PartyView) -> RowCount:
        """Count the rows; rows excluded because they are also public rows are included."""
        if not party.rows.labelled:
            return RowCount(party=party.name, round=self.round, rows=1, absent=True)
        return RowCount(party=party.name, round=self.round, rows=party.trainer.rows.train_rows)


def public_features(public: Public, agreement: Agreement) -> Array:
    """Compute the features of public rows; :class:`SendMoments` sums such features of private rows.

    Args:
        public: the public rows.
        agreement: agreement of the federation.

    Returns:
        Shape ``(n_public, n_features)``.
    """
    return features_of(public, agreement.seed)


@message
class CompareInputs(
    Task,
    reply_type=InputRatios,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="rows",
    limits=(),
    summed="score",
):
    """Compute density ratios like :class:`ComparePublic`, but over all classes or values together.

    Attributes:
        ridge: ridge of :class:`consilience.core.numerics.density.PublicRatio`, above 0.
    """

    round: int
    ridge: float

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, above=0, where=type(self).__name__)

    @of_rows
    def run(self, party: PartyView) -> InputRatios:
        """Compute one number for each public row, the same in every round."""
        return scored(InputRatios, self, party, party.trainer.scores.input_ratios(self.ridge))


@message
class SumCalibration(
    Task,
    reply_type=CalibrationSums,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="rows",
    limits=(),
):
    """Sum the labels or values of your calibration rows at their nearest public rows."""

    round: int

    def run(self, party: PartyView) -> CalibrationSums:
        """Sum up classes, or counts and values, at each public row: the same in every round."""
        values, notes = party.trainer.scores.calibration_sums()
        return scored(CalibrationSums, self, party, values, notes=notes)


def scored(kind: type[S], task: Task, party: PartyView, values: Array, **more: Any) -> S:
    """Make the reply with these scores.

    Args:
        kind: type of the reply.
        task: the task.
        party: the party.
        values: the scores, shape ``(n_public, ...)``.
        more: further fields of the reply.

    Returns:
        The reply.
    """
    agreement = party.trainer.agreement
    if kind.per_class:
        more["classes"] = agreement.classes
    _, precision = kind.form(agreement.kind, agreement.outputs)
    values = values.astype(precision)
    return kind(party=party.name, round=task.round, public=agreement.public, values=values, **more)
