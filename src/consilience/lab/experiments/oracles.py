"""Oracle baselines of experiments: teachers that use the true labels of the public rows.

No federation has these labels, and the oracles are not upper bounds. :func:`class_holders` gives all holders
of a class equal weight, whatever the number and the location of their rows, so a rule that takes these into
account can be better. :func:`true_labels` teaches hard labels, which carry no information about the
similarity of classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.aggregation.base import Aggregator, Combined, Stack, weighted_mean_of
from consilience.core.validation.arrays import Array


def class_holders(labels: Array, holders: Mapping[str, Sequence[Any]]) -> Aggregator:
    """Average only the parties trained on the row's true class (oracle weights).

    A row of a class without holders gets the plain mean.

    Args:
        labels: shape ``(n_public,)``, true classes.
        holders: party to the classes it holds.

    Returns:
        The aggregator.
    """
    labels = np.asarray(labels)

    def rule(stack: Stack) -> Combined:
        knows = np.stack([np.isin(labels, holders[party]) for party in stack.parties]).astype(float)
        knows[:, knows.sum(axis=0) == 0] = 1
        weights = knows / knows.sum(axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    return Aggregator("class-holders", rule)


def true_labels(truth: Array, classes: Sequence[Any] | None) -> Aggregator:
    """Teach the public rows' true labels, whatever the parties predict (oracle labels).

    A row of a class without holders has no column among the outputs; it is not taught.

    Args:
        truth: shape ``(n_public,)``, true classes; or values, shape ``(n_public,)`` or
            ``(n_public, n_outputs)``.
        classes: in the order of the outputs; ``None`` for values.

    Returns:
        The aggregator.
    """
    teacher: Array = np.asarray(truth).reshape(len(truth), -1)
    if classes is not None:
        teacher = teacher == np.asarray(classes)

    def rule(stack: Stack) -> Combined:
        taught = np.ones(len(truth)) if classes is None else teacher.sum(axis=1)
        weights = np.repeat(taught[None] / len(stack.parties), len(stack.parties), axis=0)
        return Combined(np.where(taught[:, None] > 0, teacher, 1 / teacher.shape[1]), weights)

    return Aggregator("true-labels", rule, "values" if classes is None else "probabilities")
