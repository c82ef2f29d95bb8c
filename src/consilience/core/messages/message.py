"""Messages: frozen dataclasses of plain numbers, strings and arrays, written on the wire by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin
from typing import get_type_hints as hints_of

import numpy as np

from consilience.core.registry import registered_names, registered_object
from consilience.core.validation.printing import prints_no_rows

REGISTRY: dict[str, type[Any]] = {}
"""Every imported message class by its name on the wire; sender and receiver have the same code."""

_NAMES: dict[type[Any], tuple[str, ...]] = {}

T = TypeVar("T")


TaskGroup = Literal["predictions", "parameters", "models", "others"]
"""Groups of tasks, by the messages that leave a party; ``"others"`` belong to other packages' protocols."""

HEADERS = "consilience.headers"
"""Group of entry points of headers of requests."""

_TASKS = "consilience.tasks."


def load_registered(allow: Collection[str] | None = None) -> None:
    """Import the messages that packages register: headers of requests, and tasks.

    A package registers a task by its name under ``consilience.tasks.GROUP``, where ``GROUP`` is the group
    that the limits of a party allow. Its module has the replies to it too.

    Args:
        allow: groups and names of tasks; no other task is imported. ``None``, the default, imports all.

    Raises:
        InvalidInput: two packages register one task, or a package cannot be imported.
    """
    for name in registered_names(HEADERS):
        registered_object(HEADERS, name)
    for group, name in registered_tasks():
        if allow is None or group in allow or name in allow:
            registered_object(_TASKS + group, name)


def registered_tasks() -> list[tuple[str, str]]:
    """List the tasks that packages register, without importing them: pairs of a group and a name."""
    groups = get_args(TaskGroup)
    return [(group, name) for group in groups for name in registered_names(_TASKS + group)]


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
def message(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass, and register it for the wire under its name.

    Fields may be ``None``, bool, int, float, str, numpy arrays of numbers, tuples of these, string-keyed
    mappings of these, or other messages. Every field is checked against its annotation when a message is
    created, also from bytes; a class adds further checks in its ``__post_init__``.

    Raises:
        TypeError: another message has that name, or (at creation of a message) a field has the wrong type.
    """
    further: Callable[[Any], None] | None = cls.__dict__.get("__post_init__")

    def check(self: Any) -> None:
        for name, hint, usual in _hints(cls):  # type: ignore[arg-type]
            value = getattr(self, name)
            if usual(value):  # what nearly every field is, known at a glance
                continue
            if not fits(value, hint):
                got = type(value).__name__
                raise TypeError(f"{cls.__name__}.{name} should be {_said(hint)}, not {got}")
        if further is not None:
            further(self)

    cls.__post_init__ = check  # type: ignore[attr-defined]
    made = prints_no_rows(dataclasses.dataclass(frozen=True, eq=False, kw_only=True)(cls))
    known = REGISTRY.setdefault(cls.__name__, made)
    if (known.__module__, known.__qualname__) != (made.__module__, made.__qualname__):
        raise TypeError(f"two messages are called {cls.__name__}: in {known.__module__} and here")
    REGISTRY[cls.__name__] = made
    _NAMES[made] = tuple(field.name for field in dataclasses.fields(made))  # type: ignore[arg-type]
    return made


def fits(value: object, hint: Any) -> bool:
    """Tell whether a value is of a type, all the way down.

    Stricter than Python where a hostile sender could hide something: a bool is no number, a whole number
    has at most 64 bits, a string can be written as UTF-8, an array holds numbers.
    """
    kind = type(value)
    if hint is str:
        return isinstance(value, str) and (value.isascii() or _writable(value))
    if hint is int:
        return kind is int and -(2**63) <= value < 2**63  # type: ignore[operator]
    if hint is float:
        return isinstance(value, float) or fits(value, int)
    if hint is Any:
        return True
    origin, arguments = _parts(hint)
    if origin is None:
        return isinstance(value, type(None) if hint is None else hint)
    if origin is tuple:
        item = arguments[0]
        return kind is tuple and all([fits(one, item) for one in value])  # type: ignore[attr-defined]
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits(key, str) and fits(item, arguments[1]) for key, item in value.items()
        )
    if origin is Literal:
        return value in arguments if kind is str else False
    if origin in (Union, UnionType):
        return any(fits(value, argument) for argument in arguments)
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can smuggle in
        return False
    return True


def _said(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is np.ndarray:
        return "an array of numbers"
    return str(getattr(hint, "__name__", hint) if origin is None else hint).replace("typing.", "")


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _hints(cls: type[Any]) -> tuple[tuple[str, Any, Callable[[Any], bool]], ...]:
    """Name, type and a quick test of every field; a field that fails the test may still fit."""
    hints = hints_of(cls)
    return tuple((name, hints[name], _usual(hints[name])) for name in _NAMES[cls])


def _usual(hint: Any) -> Callable[[Any], bool]:
    if hint is str:
        return lambda value: type(value) is str and value.isascii()
    if hint is int:
        return lambda value: type(value) is int and -(2**63) <= value < 2**63
    if get_origin(hint) is np.ndarray:
        return lambda value: type(value) is np.ndarray and value.dtype.kind in "biuf"
    if get_origin(hint) is Literal:
        known = frozenset(get_args(hint))
        return lambda value: type(value) is str and value in known
    if hint == tuple[str, ...]:
        return lambda value: type(value) is tuple and _ascii_strings(value)
    return lambda value: False


def _ascii_strings(values: tuple[Any, ...]) -> bool:
    try:
        return "".join(values).isascii()
    except TypeError:  # one is no string
        return False


class Brief:
    """Base of messages whose fields are left out on the wire where they have their default."""


def sent_fields(message: Any) -> Iterator[tuple[str, Any]]:
    """List name and value of the fields that a message writes to the wire; :class:`Brief` omits defaults."""
    if not isinstance(message, Brief):
        return fields(message)
    defaults = {one.name: _default(one) for one in dataclasses.fields(message)}  # type: ignore[arg-type]
    return ((name, value) for name, value in fields(message) if not _equals(value, defaults[name]))


def _default(field: dataclasses.Field[Any]) -> Any:
    """Default of a field; ``MISSING`` where it has none."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _equals(value: Any, default: Any) -> bool:
    """Tell whether a value is a default; arrays are none."""
    return not isinstance(value, np.ndarray) and bool(value == default)


def fields(message: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a message, name and value, in the order they are declared."""
    return zip(_NAMES[type(message)], values_of(message), strict=True)


def values_of(message: Any) -> list[Any]:
    """The values of a message's fields, in the order they are declared."""
    return [getattr(message, name) for name in _NAMES[type(message)]]
