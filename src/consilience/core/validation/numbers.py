"""Checks of single numbers, choices and flags that a user or a message gave."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array, as_array


def is_number(value: object, *, whole: bool = False) -> bool:
    """Tell whether a value is a finite number; ``True`` and ``False`` are none.

    Args:
        value: anything.
        whole: accept integers only; 3.0 is none.

    >>> is_number(0.5), is_number(0.5, whole=True), is_number(True), is_number(float("nan"))
    (True, False, False, False)
    """
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) or (
        not whole and isinstance(value, Real) and math.isfinite(value)
    )


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    whole: bool = False,
    optional: bool = False,
    where: str | None = None,
    mend: str | None = None,
) -> None:
    """Raise ``InvalidInput`` unless a value is a finite number within its bounds.

    Args:
        name: the option, as the user wrote it.
        value: the user's value.
        above: exclusive lower bound.
        at_least: inclusive lower bound.
        below: exclusive upper bound.
        at_most: inclusive upper bound.
        whole: accept integers only.
        optional: accept ``None`` too.
        where: the file, function or party, for the error.
        mend: advice for the user; by default, the range of accepted numbers.

    Raises:
        InvalidInput: the value is not a number, is NaN or infinite, or is out of bounds.

    >>> check_number("decay", 0.9, at_least=0, below=1)
    >>> check_number("epochs", 2.5, above=0, whole=True, where="recipe")
    Traceback (most recent call last):
        ...
    consilience.core.errors.InvalidInput: recipe: epochs is 2.5
      Give a whole number above 0.
    """
    if optional and value is None:
        return
    if (
        is_number(value, whole=whole)
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (below is None or value < below)
        and (at_most is None or value <= at_most)
    ):
        return
    bounds = {"above": above, "of at least": at_least, "below": below, "of at most": at_most}
    limits = " and ".join(
        f"{word} {bound:,g}" for word, bound in bounds.items() if bound is not None
    )
    infinite = isinstance(value, float) and not math.isfinite(value)
    kind = "whole number" if whole else "finite number" if infinite else "number"
    none = ", or leave it out" if optional else ""
    raise InvalidInput(
        f"{name} is {value!r}",
        where=where,
        mend=mend or f"Give a {kind} {limits}".rstrip() + f"{none}.",
    )


def check_numbers(name: str, values: Any, *, where: str | None = None, **bounds: Any) -> None:
    """Raise ``InvalidInput`` unless values are a list of numbers within bounds.

    Args:
        name: the option, as the user wrote it.
        values: the user's values.
        where: the file, function or party, for the error.
        **bounds: bounds on each number, as for :func:`check_number`.

    Raises:
        InvalidInput: the values are not a list, or one of them is not a number within the bounds.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} is {values!r}", where=where, mend="Give a list of numbers.")
    for place, value in enumerate(values):
        check_number(f"{name}[{place}]", value, where=where, **bounds)


def check_choice(
    name: str, value: Any, choices: Iterable[str], *, where: str | None = None
) -> None:
    """Raise ``InvalidInput`` unless a value is one of the accepted words.

    Args:
        name: the option, as the user wrote it.
        value: the user's value.
        choices: the accepted words.
        where: the file, function or party, for the error.

    >>> check_choice("kind", "regresion", ["classification", "regression"])
    Traceback (most recent call last):
        ...
    consilience.core.errors.InvalidInput: kind is 'regresion'
      Known: classification, regression.
    """
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(
            f"{name} is {value!r}", where=where, mend=f"Known: {', '.join(choices)}."
        )


def numbers_only(values: Any, name: str, *, where: str) -> Array:
    """Convert values to double precision: durations to days, and dates to days since 1970.

    Args:
        values: an array, shape ``(n, ...)``, or values that can be converted to one.
        name: name of the values, for the error.
        where: the file or party, for the error.

    Raises:
        InvalidInput: a value is not a number; the error quotes the first one.

    >>> numbers_only(["1.5", "<0.5"], "targets of a regression", where="a.csv")
    Traceback (most recent call last):
        ...
    consilience.core.errors.InvalidInput: a.csv: targets of a regression are not all numbers: '<0.5' in row 2
    of 2
      Write numbers alone, or leave such rows out; classes are kind = "classification".
    """
    try:
        found = as_array(values, where=where)
        if found.dtype.kind in "mM":  # else counted in whatever unit the array has
            start = np.datetime64(0, "D") if found.dtype.kind == "M" else np.timedelta64(0, "D")
            return np.asarray((found - start) / np.timedelta64(1, "D"))
        return found.astype(np.float64)
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        rows = as_array(values, where=where, dtype=object)
        place, first = next(((i, v) for i, v in enumerate(rows) if not _is_number(v)), (0, rows))
        raise InvalidInput(
            f"{name} are not all numbers: {str(first)!r} in row {place + 1:,} of {len(rows):,}",
            where=where,
            mend='Write numbers alone, or leave such rows out; classes are kind = "classification".',
        ) from error


def _is_number(value: Any) -> bool:
    try:
        np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def check_flag(name: str, value: Any, *, where: str | None = None) -> None:
    """Raise ``InvalidInput`` unless a value is ``True`` or ``False``.

    Args:
        name: the option, as the user wrote it.
        value: the user's value.
        where: the file, function or party, for the error.
    """
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} is {value!r}", where=where, mend="Give true or false.")
