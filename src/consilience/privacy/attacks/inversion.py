"""Inversion of a party's predictions: reconstruct typical rows of its classes from answers on public rows.

A regression learns, on public rows, to predict a row from a pair of answers: the party's answer and the mean
answer of all other parties. Its input is then a pair of the party's most confident answer and the average
answer of the others, because only the party has seen such rows. A reconstructed row counts only if it is
nearer to the party's rows than the nearest public row is, since the attacker has the public rows anyway.

Source:
    Takahashi, Liu & Liu 2023 (Paired-Logits Inversion). Their inversion model is a network; this one is a
    kernel ridge regression, which needs no iterative training.
"""

from __future__ import annotations

import numpy as np

from consilience.core.messages.replies import Predictions
from consilience.core.numerics.density import median_of, squared_distances
from consilience.core.validation.arrays import Array
from consilience.privacy.attacks.shadows import AttackedParties, RecordedNetwork

RIDGE = 0.1
"""Ridge penalty of the regression, in units of a row's kernel with itself."""


def rows_rebuilt(
    party: str, network: RecordedNetwork, setup: AttackedParties
) -> tuple[list[float], str]:
    """Reconstruct a row of each of a party's classes from the first predictions of a run.

    Args:
        party: name of the party.
        network: recording of all requests and replies.
        setup: the parties and their rows.

    Returns:
        Medians over classes of both distances of :func:`nearest_rows`, and an empty text; or an empty list
        and the reason for it.
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
    """Reconstruct a row of a class, shape ``(d,)``.

    Args:
        public: the public rows, shape ``(n, d)``.
        own: probabilities of the attacked party on them, shape ``(n, n_classes)``.
        others: mean probabilities of the other parties, shape ``(n, n_classes)``.
        label: code of the class.
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
