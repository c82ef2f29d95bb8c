"""Teachers of experiments, which read the public rows' true labels: marks to measure rules by.

No federation has these labels, and neither is a bound: :func:`class_holders` weighs holders of a class alike,
however many rows they have and wherever these lie, and a rule that knows this can be better; a student of
:func:`true_labels` is taught nothing of how like one another classes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.aggregation.base import Aggregator, Combined, Stack, weighted_mean_of
from consilience.core.validation.arrays import Array


def class_holders(labels: Array, holders: Mapping[str, Sequence[Any]]) -> Aggregator:
    """Average only the parties that were trained on the row's true class.

    A row whose class nobody holds keeps the plain mean.

    Args:
        labels: shape ``(n_public,)``, true classes.
        holders: party to the classes it holds.
    """
    labels = np.asarray(labels)

    def rule(stack: Stack) -> Combined:
        knows = np.stack([np.isin(labels, holders[party]) for party in stack.parties]).astype(float)
        knows[:, knows.sum(axis=0) == 0] = 1
        weights = knows / knows.sum(axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    return Aggregator("class-holders", rule)


def true_labels(truth: Array, classes: Sequence[Any] | None) -> Aggregator:
    """Teach the public rows' true labels, whatever the parties predict: what is to be had of these rows.

    A row whose class nobody holds is not taught: there is no column for it.

    Args:
        truth: shape ``(n_public,)``, true classes; or values, with an axis of outputs or without.
        classes: in the order of the outputs; ``None`` for values.
    """
    teacher: Array = np.asarray(truth).reshape(len(truth), -1)
    if classes is not None:
        teacher = teacher == np.asarray(classes)

    def rule(stack: Stack) -> Combined:
        taught = np.ones(len(truth)) if classes is None else teacher.sum(axis=1)
        weights = np.repeat(taught[None] / len(stack.parties), len(stack.parties), axis=0)
        return Combined(np.where(taught[:, None] > 0, teacher, 1 / teacher.shape[1]), weights)

    return Aggregator("true-labels", rule, "values" if classes is None else "probabilities")
