"""Inversion of a party's predictions: what rows of its classes look like, from answers on public rows.

Public rows and what the party and all others answered on them teach a regression from a pair of answers to a
row. It is then asked for the row of which the party is as sure as it was of any, and the others as they are
on the whole: such a row it has seen, and they have not. A rebuilt row that is farther from the party's own
ones than the nearest public row is no rebuilt row, since the attacker has the public rows anyway.

Source:
    Takahashi, Liu & Liu 2023 (Paired-Logits Inversion), whose inversion is a network: here it is a kernel
    ridge regression, which takes no training.
"""

from __future__ import annotations

import numpy as np

from consilience.core.messages.replies import Predictions
from consilience.core.numerics.density import median_of, squared_distances
from consilience.core.validation.arrays import Array
from consilience.privacy.attacks.shadows import AttackedParties, RecordedNetwork

RIDGE = 0.1
"""Of the regression, in squared kernels of one row."""


def rows_rebuilt(
    party: str, network: RecordedNetwork, setup: AttackedParties
) -> tuple[list[float], str]:
    """Rebuild a row of each of a party's classes from the first predictions of a run.

    Args:
        party: its name.
        network: all that left the parties.
        setup: the parties and their rows.

    Returns:
        Medians over classes of both distances of :func:`nearest_rows`, or the reason that there are none.
    """
    classes, public = network.agreed.classes, setup.public.X
    if not classes or not setup.by_class or public.dtype.kind not in "fiu":
        return [], "it is for classes of rows of numbers"
    first = {name: network.first(name, Predictions) for name in network.questions}
    answers = {
        name: one.values.astype(np.float64)
        for name, one in first.items()
        if one is not None and one.kind == "probabilities"
    }
    if party not in answers or len(answers) < 2:
        return [], "no probabilities left it and another party"
    own = answers.pop(party)
    others = np.mean(list(answers.values()), axis=0)
    public = public.reshape(len(public), -1).astype(np.float64)
    rows = setup.rows[setup.names.index(party)]
    held, labels = setup.X[rows].reshape(len(rows), -1), setup.labels[rows]
    distances = [
        nearest_rows(inverted(public, own, others, code), held[labels == label], public)
        for code, label in enumerate(classes)
        if (labels == label).any()
    ]
    return [float(one) for one in np.median(distances, axis=0)], ""


def inverted(public: Array, own: Array, others: Array, label: int) -> Array:
    """Rebuild a row of a class, shape ``(d,)``.

    Args:
        public: the public rows, shape ``(n, d)``.
        own: probabilities that the party answered on them, shape ``(n, n_classes)``.
        others: mean of those of the others.
        label: the class.
    """
    pairs = np.log(np.hstack([own, others]) + 0.01)
    sure = own[own[:, label].argmax()]
    asked = np.log(np.append(sure, others.mean(axis=0)) + 0.01)[None]
    distances = squared_distances(pairs, pairs)
    width = median_of(distances) or 1.0
    gram = np.exp(-distances / width) + RIDGE * np.eye(len(pairs))
    centre = public.mean(axis=0)
    weights = np.linalg.solve(gram, public - centre)
    return np.asarray(centre + (np.exp(-squared_distances(asked, pairs) / width) @ weights)[0])


def nearest_rows(rebuilt: Array, private: Array, public: Array) -> tuple[float, float]:
    """Measure how near a rebuilt row is to a private one, and how near a public row is to the same.

    Args:
        rebuilt: the row, shape ``(d,)``.
        private: the party's rows of its class, shape ``(n, d)``.
        public: the public rows.

    Returns:
        Both distances, in root mean squared standard deviations of the public rows a coordinate.

    >>> nearest_rows(np.array([0.0, 3.0]), np.array([[0.0, 1.0]]), np.array([[1.0, 1.0], [-1.0, -1.0]]))
    (1.414..., 0.707...)
    """
    unit = np.sqrt(public.var(axis=0).mean() * public.shape[1])
    apart = np.linalg.norm(private - rebuilt, axis=1)
    found = private[apart.argmin()]
    beside = np.linalg.norm(public - found, axis=1).min()
    return float(apart.min() / unit), float(beside / unit)
