"""Units of one quantity: factors and scales between two known units."""

from __future__ import annotations

import numpy as np

from consilience.core.validation.arrays import Array

FEW = 10
"""Number of different texts up to which a column is always categorical; fewer rows than this are too few for
a judgement."""

UNITS = 10.0
"""Factor between a party's numbers and the public ones that shows other units, whatever these are."""

FACTORS = {
    2.20462: "pounds and kilograms",
    2.54: "inches and centimetres",
    7.50062: "mmHg and kPa",
    10.0: "g/dl and g/l",
    12.0: "months and years",
    18.016: "glucose in mg/dl and mmol/l",
    38.67: "cholesterol in mg/dl and mmol/l",
    88.42: "creatinine in µmol/l and mg/dl",
    100.0: "percent and shares",
    365.25: "days and years",
    1000.0: "grams and kilograms",
}
"""Factors between two units of one quantity."""

TEMPERATURES = {
    "F to C": "degrees Fahrenheit, and not Celsius",
    "C to F": "degrees Celsius, and not Fahrenheit",
}
"""Conversions other than by a factor."""


def converted(values: Array, unit: float | str) -> Array:
    """Convert numbers: times a factor, or from one scale of temperature to the other.

    Args:
        values: shape ``(n,)``.
        unit: a factor, or a key of :data:`TEMPERATURES`.
    """
    values = values.astype(np.float64)
    if unit == "F to C":
        return np.asarray((values - 32) / 1.8)
    return np.asarray(values * 1.8 + 32 if unit == "C to F" else values * float(unit))
