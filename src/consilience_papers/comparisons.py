"""Paired comparisons of two ways of training: the test, and the words for its outcome.

Differences are paired: the same repetition has the same data in every cell.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from consilience.core.validation.arrays import Array


def standard_error(values: Array) -> float:
    """Standard error of the mean, shape ``(R,)``."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def differs(difference: Array) -> bool:
    """Test whether a paired difference, shape ``(R,)``, is above 0: t-test, one-sided, 5 %."""
    needed = float(stats.t.ppf(0.95, len(difference) - 1))  # 2.92 for three repetitions
    return bool(difference.mean() > needed * standard_error(difference))


def said(values: Array) -> str:
    """Mean and standard error.

    >>> said(np.array([0.1, 0.3]))
    '+0.200 ± 0.100'
    """
    return f"{values.mean():+.3f} ± {standard_error(values):.3f}"
