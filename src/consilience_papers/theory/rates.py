"""Rate at which the error falls with the number of rows: in theory, and measured with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience_papers.theory.expansion import inside_unit, positive


def error_exponent(smoothness: float) -> float:
    """The exponent of Theorems 5.1 and 5.5: ``E‖f − f₀‖ = O((mN)^{−(2r+1)/(4r+4)})`` in L²(ρ).

    No method does better in general, from all mN rows in one place (Theorem 3.3). The mean *squared* error,
    which experiments report, has twice this exponent as its natural companion; the theorems do not bound it.

    Args:
        smoothness: r in [0, 1/2], where f₀ = L_kʳ g₀ for a g₀ in the kernel's space; Theorem 5.5 needs r > 0.

    Returns:
        A negative number: -1/4 for r = 0, -1/3 for r = 1/2.

    Raises:
        ValueError: r outside [0, 1/2].
    """
    _check_smoothness(smoothness)
    return -(2 * smoothness + 1) / (4 * smoothness + 4)


def prescribed_regularization(rows: float, smoothness: float) -> float:
    """The λ of Theorems 5.1 and 5.5, ``(mN)^{−1/(2r+2)}``.

    Args:
        rows: mN, the private rows of all clients together.
        smoothness: r in [0, 1/2].

    Raises:
        ValueError: no rows; r outside [0, 1/2].
    """
    positive(rows, "rows")
    _check_smoothness(smoothness)
    return float(rows ** (-1 / (2 * smoothness + 2)))


@dataclass(frozen=True)
class Slope:
    """A measured exponent p, ``E error ≈ C nᵖ``, with its confidence interval.

    Attributes:
        exponent: p, negative where the error falls.
        low: lower end of the interval.
        high: upper end.
        level: the share of such intervals that hold the true value.
    """

    exponent: float
    low: float
    high: float
    level: float

    def no_slower_than(self, exponent: float) -> bool:
        """Tell whether the measurement is consistent with a fall at least as fast as ``n**exponent``.

        False means that a fall this fast is refuted, at one side of the interval. True does not prove it: an
        interval from few repetitions is wide, and agrees with much.
        """
        return self.low <= exponent

    def __str__(self) -> str:
        return f"{self.exponent:.3f} ({self.low:.3f} to {self.high:.3f}, {self.level:.0%})"


def slope(sizes: ArrayLike, errors: ArrayLike, *, level: float = 0.95) -> Slope:
    """The slope of the mean error against the size on logarithmic axes.

    Least squares through the points (log n_i, log ē_i), ē_i the mean of R repetitions since the theorems
    bound an expectation: ``p = Σ c_i log ē_i`` with c the centred log n over its sum of squares. By the delta
    method log ē_i has the standard error ``s_i / (ē_i √R)``, estimated at each size for itself, since errors
    spread differently from size to size. The interval is ``p ± t √(Σ c_i² s_i² / (R ē_i²))``, t with the
    degrees of freedom of Welch and Satterthwaite. Points are not weighted by their precision: so the slope
    that the interval is about depends on the sizes alone, also where errors do not follow a power exactly.

    It assumes repetitions that are independent, within and between sizes, and enough of them for the standard
    error of each mean to be small against the mean. It says nothing about sizes that were not measured, and a
    rate is about n → ∞.

    Args:
        sizes: n_i, shape ``(n_sizes,)``, above 0, at least two different ones.
        errors: shape ``(n_sizes, n_repetitions)``, above 0, at least two repetitions.
        level: of confidence, in (0, 1).

    Raises:
        ValueError: shapes that do not go together, or values out of range.

    Example:
        >>> print(slope([10, 100], [[0.9, 1.1], [0.09, 0.11]], level=0.5))
        -1.000 (-1.050 to -0.950, 50%)
    """
    inside_unit(level, "level")
    n, e = np.asarray(sizes, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if n.ndim != 1 or e.ndim != 2 or len(n) != len(e) or e.shape[1] < 2:
        raise ValueError(
            f"sizes have shape {n.shape}, errors {e.shape}; give (n_sizes,) and "
            "(n_sizes, n_repetitions) with at least two repetitions"
        )
    if not all((np.isfinite(values) & (values > 0)).all() for values in (n, e)):
        raise ValueError("sizes and errors must be finite and above 0")
    if len(np.unique(n)) < 2:
        raise ValueError("at least two different sizes are needed for a slope")
    repetitions = e.shape[1]
    centred = np.log(n) - np.log(n).mean()
    c = centred / (centred**2).sum()
    exponent = float(c @ np.log(e.mean(axis=1)))
    parts = c**2 * e.var(axis=1, ddof=1) / (e.mean(axis=1) ** 2 * repetitions)
    variance = parts.sum()
    if variance == 0:  # exact errors, such as a formula's
        return Slope(exponent, exponent, exponent, level)
    from scipy.stats import t as student  # half a second, which nobody else should wait for

    freedom = variance**2 / (parts**2).sum() * (repetitions - 1)
    half = float(student.ppf((1 + level) / 2, freedom) * np.sqrt(variance))
    return Slope(exponent, exponent - half, exponent + half, level)


def _check_smoothness(smoothness: float) -> None:
    if not 0 <= smoothness <= 0.5:
        raise ValueError(f"smoothness is {smoothness}; it must lie in [0, 1/2]")
