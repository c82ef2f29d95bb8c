"""Units of a regression's target: compare one party's values with those of others on the same rows.

Two models of one target give similar values on the same rows. The values of a poorly trained model can be too
small by any factor. Therefore only factors between two known units count.
"""

from __future__ import annotations

import math

import numpy as np

from consilience.core.numerics.units import FACTORS, FEW, TEMPERATURES, UNITS, converted
from consilience.core.validation.arrays import Array

_OTHERS = {
    7.0: "days and weeks",
    24.0: "hours and days",
    60.0: "minutes and hours",
    3600.0: "seconds and hours",
    **{10.0**power: "a power of ten" for power in (4, 5, 6, 9)},
}
_APART, _SIZE, _SPREAD, _FITS = 0.85, 1.2, 1.6, 0.5
"""Share of values larger in absolute value than nine tenths of the others, or the reverse; maximum factors
between the sizes, and between the spreads, of converted values and the others; and their maximum distance
from the others, in standard deviations."""


def other_unit(values: Array, others: Array) -> str:
    """Describe by which units values differ from others on the same rows; return "" without evidence.

    A different unit requires two findings. Most values are larger, or smaller, in absolute value than most of
    the others, and a conversion between two known units matches size, spread and single values.

    Args:
        values: values of one party, shape ``(n, n_targets)``.
        others: values of another party, or of a teacher, same shape.

    Returns:
        A phrase with the factor and the units, or "".

    >>> others = np.linspace(60, 90, 20)[:, None]
    >>> other_unit(1000 * others, others)
    'about 1,000 times as large (grams and kilograms)'
    >>> other_unit(others + 20, others)
    ''
    """
    pairs = zip(np.asarray(values).T, np.asarray(others).T, strict=True)
    return next((said for own, theirs in pairs if (said := _of_target(own, theirs))), "")


def far_larger(values: Array, others: Array) -> bool:
    """Tell whether size and spread of a target are :data:`~.table_remarks.UNITS` times those of others.

    Args:
        values: shape ``(n, n_targets)``.
        others: on the same rows, of the same shape.
    """
    pairs = zip(np.asarray(values).T, np.asarray(others).T, strict=True)
    return any(
        _apart(own, theirs)
        and _size(own) > UNITS * _size(theirs)
        and own.std() > UNITS * theirs.std()
        for own, theirs in pairs
    )


def usual_values(values: Array) -> Array:
    """Select the values of the party whose size is the median one, of every target; the smaller one of two.

    A mean or median over parties would be in no unit if these disagree.

    Args:
        values: of all parties, shape ``(m, n, n_targets)``.

    Returns:
        Shape ``(n, n_targets)``.
    """
    sizes = np.median(np.abs(values), axis=1)
    usual = np.argsort(sizes, axis=0, kind="stable")[(len(sizes) - 1) // 2]
    return np.stack([values[party, :, target] for target, party in enumerate(usual)], axis=1)


def same_size(values: Array, others: Array) -> bool:
    """Tell whether the sizes of two sets of values are within a factor of 2, target by target.

    Args:
        values: shape ``(n, n_targets)``.
        others: shape ``(m, n_targets)``.
    """
    pairs = [(_size(own), _size(theirs)) for own, theirs in zip(values.T, others.T, strict=True)]
    return all(own <= 2 * theirs and theirs <= 2 * own for own, theirs in pairs)


def _size(values: Array) -> float:
    return float(np.median(np.abs(values)))


def _apart(values: Array, others: Array) -> bool:
    """True if most of some values, without their sign, lie beyond nine tenths of the others."""
    own, theirs = np.abs(values), np.abs(others)
    larger = (own > np.quantile(theirs, 0.9)).mean()
    smaller = (theirs > np.quantile(own, 0.9)).mean()
    return len(values) >= FEW and bool(max(larger, smaller) >= _APART)


def _of_target(values: Array, others: Array) -> str:
    """The same as :func:`other_unit` of one target, shape ``(n,)`` each."""
    if not _apart(values, others) or min(_size(values), _size(others), others.std()) <= 0:
        return ""
    factor = _size(values) / _size(others)
    units = {
        unit: words for unit, words in _conversions() if _fits(converted(values, unit), others)
    }
    if not units:
        return ""
    away = {unit: np.abs(converted(values, unit) - others).mean() for unit in units}
    times = max(factor, 1 / factor)
    shown = f"{times:.1f}" if times < UNITS else f"{times:,.0f}"
    words = units[min(away, key=away.__getitem__)]
    return f"about {shown} times as {'large' if factor > 1 else 'small'} ({words})"


def _conversions() -> list[tuple[float | str, str]]:
    """Conversions between two known units, and these."""
    factors = {**FACTORS, **_OTHERS}
    both = [(unit, words) for factor, words in factors.items() for unit in (factor, 1 / factor)]
    return [*both, *TEMPERATURES.items()]


def _fits(values: Array, others: Array) -> bool:
    """True if converted values are as large as the others, spread as far, and near them row by row."""
    width, spread = float(others.std()), float(values.std())
    if min(_size(values), spread) <= 0:
        return False
    size = abs(math.log(_size(values) / _size(others)))
    wider = abs(math.log(spread / width))
    near = float(np.median(np.abs(values - others))) <= _FITS * width
    return size <= math.log(_SIZE) and wider <= math.log(_SPREAD) and near
