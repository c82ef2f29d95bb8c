"""Estimate the class shares of a party from its replies about public rows."""

from __future__ import annotations

import numpy as np

from consilience.core.validation.arrays import Array


def shares_from_sums(sums: Array) -> Array:
    """Estimate class shares from estimated row counts per class: sums of density ratios, or class sums.

    Args:
        sums: estimated numbers of rows of each class, of any sign, shape ``(n_classes,)``.

    Returns:
        Shares, which sum to 1, shape ``(n_classes,)``; uniform if no number is above 0.

    >>> shares_from_sums(np.array([3.0, 1.0, -0.5])).tolist()
    [0.75, 0.25, 0.0]
    """
    counts = np.maximum(sums, 0)
    return counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))


def shares_from_predictions(answers: Array, reference: Array) -> Array:
    """Estimate class shares from predictions: their mean over the public rows, divided by a reference mean.

    If a party holds more rows of a class than other parties do, its model predicts that class more often on
    the same public rows.

    Args:
        answers: probabilities of the party, shape ``(n_public, n_classes)``.
        reference: mean probabilities of the other parties, or those of a party with equal class shares, shape
            ``(n_public, n_classes)``.

    Returns:
        Shares, which sum to 1, shape ``(n_classes,)``.
    """
    return shares_from_sums(answers.mean(axis=0) / np.maximum(reference.mean(axis=0), 1e-6))


def divergence(truth: Array, guess: Array, *, least: float = 1e-3) -> float:
    """Compute the Kullback-Leibler divergence of guessed shares from the true ones, in nats.

    Args:
        truth: true shares.
        guess: guessed shares, of the same shape.
        least: lower limit of each guessed share, which makes the cost of a missed class finite.

    >>> round(divergence(np.array([0.5, 0.5]), np.array([0.25, 0.75]), least=0.0), 4)
    0.1438
    """
    guess = np.maximum(guess, least)
    told = truth > 0
    return float((truth[told] * np.log(truth[told] / (guess / guess.sum())[told])).sum())
