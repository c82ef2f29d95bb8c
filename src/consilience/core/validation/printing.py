"""Print objects with rows by names, numbers and shapes, without any value of an array or a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_LISTED = 10
"""Maximum number of printed names of a mapping or a sequence."""

_LONGEST = 100
"""Maximum number of printed characters of a text."""


def prints_no_rows(cls: type[T]) -> type[T]:
    """Replace a dataclass's ``repr`` by one with only the type and shape of arrays, tables and other objects.

    The default ``repr`` of a dataclass prints all its arrays, and notebooks and experiment trackers store
    them.

    >>> @prints_no_rows
    ... @dataclasses.dataclass
    ... class Rows:
    ...     name: str
    ...     X: object
    >>> Rows("north", np.ones((2, 3)))
    Rows(name='north', X=<float64 of shape (2, 3)>)
    """

    def __repr__(self: Any) -> str:  # it becomes a method
        shown = (
            (one.name, getattr(self, one.name)) for one in dataclasses.fields(self) if one.repr
        )
        said = ", ".join(f"{name}={described(value)}" for name, value in shown)
        return f"{type(self).__name__}({said})"

    cls.__repr__ = __repr__  # type: ignore[method-assign]
    return cls


def described(value: object) -> str:
    """Describe a value without its contents.

    Returns:
        Numbers and truth values unchanged, and texts, cut if long. Arrays and tables give their shape,
            sequences and mappings their length and names, other objects their type.

    >>> described(np.zeros(3)), described((1, 2)), described({"north": [1.5]})
    ('<float64 of shape (3,)>', '<2 × int>', "{'north': <1 × float>}")
    """
    if value is None or isinstance(value, bool | int | float | np.generic):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    if isinstance(value, np.ndarray):
        return f"<{value.dtype.name} of shape {value.shape}>"
    if isinstance(value, Mapping):
        named = [
            f"{key if isinstance(key, int) else str(key)[:_LONGEST]!r}: {_kind(value[key])}"
            for key in _first(value)
        ]
        return f"{{{', '.join(named)}{_further(len(value))}}}"
    if isinstance(value, tuple | list) and all(isinstance(one, str) for one in value):
        return f"({', '.join(map(described, _first(value)))}{_further(len(value))})"
    return _kind(value)


def _kind(value: object) -> str:
    """Describe a value in one line by its type, and its length or shape."""
    shape = getattr(value, "shape", None)
    if isinstance(value, np.ndarray):
        return described(value)
    if isinstance(shape, tuple):
        return f"<{type(value).__name__} of shape {shape}>"
    if isinstance(value, bytes | bytearray):
        return f"<{len(value):,} bytes>"
    if isinstance(value, Sequence) and not isinstance(value, str):
        kinds = sorted({type(one).__name__ for one in value})
        return f"<{len(value):,} × {' or '.join(kinds)}>" if kinds else "<none>"
    return f"<{type(value).__name__}>"


def _first(values: Mapping[Any, Any] | Sequence[Any]) -> Iterator[Any]:
    return (one for one, _ in zip(values, range(_LISTED), strict=False))


def _further(count: int) -> str:
    return f", … {count - _LISTED:,} more" if count > _LISTED else ""
