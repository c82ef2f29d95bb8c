"""Class shares of a party, read off what it answered about public rows."""

from __future__ import annotations

import numpy as np

from consilience.core.validation.arrays import Array


def shares_from_sums(sums: Array) -> Array:
    """Read shares off numbers that add up to rows of a class: columns of density ratios, or class sums.

    Args:
        sums: estimated numbers of rows of each class, of any sign, shape ``(n_classes,)``.

    Returns:
        Shares, which sum to 1; alike where no number is above 0.

    >>> shares_from_sums(np.array([3.0, 1.0, -0.5])).tolist()
    [0.75, 0.25, 0.0]
    """
    counts = np.maximum(sums, 0)
    return counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))


def shares_from_predictions(answers: Array, reference: Array) -> Array:
    """Read shares off predictions: their mean over the public rows, over that of a reference.

    A model of a party that holds more of a class than others do says it more often, on rows that are the same
    for all.

    Args:
        answers: probabilities of the party, shape ``(n_public, n_classes)``.
        reference: probabilities of the others together, or of a party that holds all classes alike.

    Returns:
        Shares, which sum to 1.
    """
    return shares_from_sums(answers.mean(axis=0) / np.maximum(reference.mean(axis=0), 1e-6))


def divergence(truth: Array, guess: Array, *, least: float = 1e-3) -> float:
    """Compute the Kullback-Leibler divergence of guessed shares from the true ones, in nats.

    Args:
        truth: true shares.
        guess: guessed ones, of the same shape.
        least: share that every class is given at least, so that one that is missed costs a finite amount.

    >>> round(divergence(np.array([0.5, 0.5]), np.array([0.25, 0.75]), least=0.0), 4)
    0.1438
    """
    guess = np.maximum(guess, least)
    told = truth > 0
    return float((truth[told] * np.log(truth[told] / (guess / guess.sum())[told])).sum())
