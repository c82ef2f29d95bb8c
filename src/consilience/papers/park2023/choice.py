"""How λ is chosen, and how two averages are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Errors over repetitions, λ chosen without them.

    Attributes:
        errors: one a repetition, shape ``(R,)``.
        regularization: the λ most repetitions were given.
    """

    errors: Array
    regularization: float

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.errors.mean())

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return float(self.errors.std(ddof=1))

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return self.deviation / float(np.sqrt(len(self.errors)))

    def columns(self) -> dict[str, Any]:
        """The cells of a row."""
        return {
            "measured": self.mean,
            "standard error": self.standard_error,
            "deviation": self.deviation,
            "repetitions": len(self.errors),
            "λ": self.regularization,
        }


def measured(errors: Array, grid: Sequence[float]) -> Measured:
    """Choose λ by grid search, by cross-fitting.

    Repetitions with an even number are given the λ that did best on average over the odd ones, and the other
    way round: no test error that is reported had a say in its own λ.

    Args:
        errors: shape ``(R, L)``, R ≥ 2.
        grid: the L values of λ.

    >>> found = measured(np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 2.0]]), [0.1, 0.2])
    >>> found.errors.tolist(), found.regularization
    ([2.0, 3.0, 2.0], 0.2)
    """
    even = np.arange(len(errors)) % 2 == 0
    picks = np.where(even, errors[~even].mean(axis=0).argmin(), errors[even].mean(axis=0).argmin())
    values, counts = np.unique(picks, return_counts=True)
    return Measured(
        errors[np.arange(len(errors)), picks], float(grid[int(values[counts.argmax()])])
    )


def against_paper(found: Measured, paper: float, repetitions: int = 100) -> float:
    """How many standard errors of the difference our mean lies above the paper's.

    The paper's standard error is taken to be our deviation over the root of its ``repetitions``.
    """
    share = 1 / repetitions + 1 / len(found.errors)
    return (found.mean - paper) / (found.deviation * float(np.sqrt(share)))


def worse_by(one: Measured, other: Measured) -> float:
    """By how many standard errors of the paired difference ``one``'s mean error is above ``other``'s."""
    difference = one.errors - other.errors
    spread = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean() / spread) if spread > 0 else float(np.sign(difference.mean()))
