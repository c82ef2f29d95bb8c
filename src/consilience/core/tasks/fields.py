"""Search in nested fields of messages: for carried tasks, and for NaN or infinite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.messages.message import REGISTRY, fields
from consilience.core.tasks.base import Task


def within(tasks: Sequence[Task]) -> Iterator[Task]:
    """Iterate over tasks, including tasks nested in their fields."""
    for task in tasks:
        yield from _held(task)


def _held(value: Any) -> Iterator[Task]:
    kind = type(value)
    if REGISTRY.get(kind.__name__) is kind:
        if isinstance(value, Task):
            yield value
        for _, item in fields(value):
            yield from _held(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _held(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _held(item)


def undefined(value: Any, name: str = "") -> str | None:
    """Return the name of the first field with a NaN, or with an array that contains NaN or infinite numbers.

    Args:
        value: a message or the value of a field.
        name: name of the field; empty for a message.

    Returns:
        Name of the field, such as ``Distill.targets``; ``None`` if there is none.
    """
    if isinstance(value, float):
        return name if math.isnan(value) else None
    if isinstance(value, np.ndarray):
        return None if value.dtype.kind != "f" or np.isfinite(value).all() else name
    parts: Iterator[tuple[str, Any]] = iter(())
    if REGISTRY.get(type(value).__name__) is type(value):
        parts = ((f"{type(value).__name__}.{field}", item) for field, item in fields(value))
    elif isinstance(value, Mapping):
        parts = ((f"{name}.{key}", item) for key, item in value.items())
    elif isinstance(value, tuple | list):
        parts = ((name, item) for item in value)
    return next((found for part, item in parts if (found := undefined(item, part))), None)
