"""What may be written on the wire: frozen dataclasses of plain numbers, strings and arrays, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar, dataclass_transform

REGISTRY: dict[str, type[Any]] = {}
"""Every message class, by the name it carries on the wire; the code is at both ends."""

_NAMES: dict[type[Any], tuple[str, ...]] = {}

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
def message(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass and let it cross the wire under its name.

    Fields may be ``None``, bool, int, float, str, numpy arrays of numbers, tuples of these, string-keyed
    mappings of these, or other messages. A message checks its own fields in ``__post_init__``.
    """
    made = dataclasses.dataclass(frozen=True, eq=False, kw_only=True)(cls)
    known = REGISTRY.setdefault(cls.__name__, made)
    if (known.__module__, known.__qualname__) != (made.__module__, made.__qualname__):
        raise TypeError(f"two messages are called {cls.__name__}: in {known.__module__} and here")
    REGISTRY[cls.__name__] = made
    _NAMES[made] = tuple(field.name for field in dataclasses.fields(made))
    return made


def fields(message: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a message, name and value, in the order they are declared."""
    return ((name, getattr(message, name)) for name in _NAMES[type(message)])
