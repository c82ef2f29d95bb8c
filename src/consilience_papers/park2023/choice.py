"""Choice of λ, and comparison of two averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.validation.arrays import Array


@dataclass(frozen=True)
class Measured:
    """Errors over repetitions, λ chosen without them.

    Attributes:
        errors: one a repetition, shape ``(R,)``.
        regularizations: the λ of the even repetitions, and that of the odd ones.
        at_edge: whether one of them is the grid's least or largest, so that a wider one might do better.
    """

    errors: Array
    regularizations: tuple[float, float]
    at_edge: bool

    @property
    def regularization(self) -> str:
        """Both λ, or one where they are the same."""
        return ", ".join(f"{value:.3g}" for value in dict.fromkeys(self.regularizations))

    @property
    def mean(self) -> float:
        """Mean over repetitions."""
        return float(self.errors.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation over repetitions."""
        return float(self.errors.std(ddof=1))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
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
    ([2.0, 3.0, 2.0], '0.2, 0.1')
    """
    even = np.arange(len(errors)) % 2 == 0
    of_even, of_odd = (int(errors[half].mean(axis=0).argmin()) for half in (~even, even))
    picks = np.where(even, of_even, of_odd)
    return Measured(
        errors[np.arange(len(errors)), picks],
        (float(grid[of_even]), float(grid[of_odd])),
        bool({of_even, of_odd} & {0, len(grid) - 1}),
    )


def against_paper(found: Measured, paper: float, repetitions: int = 100) -> float:
    """Distance of our mean above the paper's, in standard errors of the difference.

    The paper's standard error is taken to be our deviation over the root of its ``repetitions``.
    """
    share = 1 / repetitions + 1 / len(found.errors)
    return (found.mean - paper) / (found.deviation * float(np.sqrt(share)))


def worse_by(one: Measured, other: Measured) -> float:
    """By how many standard errors of the paired difference ``one``'s mean error is above ``other``'s."""
    difference = one.errors - other.errors
    spread = difference.std(ddof=1) / np.sqrt(len(difference))
    if spread == 0:
        return 0.0 if difference.mean() == 0 else float(np.copysign(np.inf, difference.mean()))
    return float(difference.mean() / spread)


@dataclass(frozen=True)
class Ratio:
    """A ratio of two means with its standard error, by the delta method, the means independent.

    Attributes:
        value: above over below.
        standard_error: of it.
    """

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.standard_error:.2f}"


def ratio(above: Array, below: Array) -> Ratio:
    """The mean of ``above`` over that of ``below``, shapes ``(R,)`` and ``(S,)``, of separate draws."""
    parts = [
        values.std(ddof=1) / (values.mean() * np.sqrt(len(values))) for values in (above, below)
    ]
    value = float(above.mean() / below.mean())
    return Ratio(value, value * float(np.hypot(*parts)))
