"""Assertions of the checks, which also hold under ``python -O``."""

from __future__ import annotations

from consilience.core.validation.arrays import Array


def expect(holds: object, otherwise: str) -> None:
    """Raise ``AssertionError(otherwise)`` unless ``holds``, also under ``python -O``."""
    if not holds:
        raise AssertionError(otherwise)


def same_bits(one: Array, other: Array) -> bool:
    """Tell whether two arrays are the same bit for bit."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and one.tobytes() == other.tobytes()
