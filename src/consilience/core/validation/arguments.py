"""Checks of a user's keyword options against the function that will take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from consilience.core.errors import InvalidInput, nearest


def check_arguments(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    where: str,
    given: Iterable[str] = (),
    also: Iterable[str] = (),
) -> None:
    """Raise ``InvalidInput`` unless ``function(**options)`` can be called: names and types.

    Args:
        function: the function that will be called.
        options: as the user wrote them.
        where: for the error, such as ``"aggregator suwa"``.
        given: parameters that the caller fills in itself, hidden from the user.
        also: other names that the user could have meant, for the error.
    """
    parameters = {
        name: parameter
        for name, parameter in _signature(function).parameters.items()
        if name not in set(given)
    }
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in options:
            if name not in parameters:
                raise InvalidInput(
                    f"unknown option {name!r}",
                    where=where,
                    mend=nearest(name, [*parameters, *also])
                    if parameters or also
                    else "It takes no options.",
                )
    for name, parameter in parameters.items():
        named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if named and parameter.default is parameter.empty and name not in options:
            raise InvalidInput(f"needs the option {name!r}", where=where)
    hints = _hints(function)
    for name, value in options.items():
        if name in parameters and name in hints:
            _check_type(name, value, hints[name], where)


# Of a few functions, looked at for every method with every seed.
_signature = cache(inspect.signature)


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function))
    except NameError:  # a type that is imported for the type checker only
        return {}


def _check_type(name: str, value: Any, hint: Any, where: str) -> None:
    """Raise ``InvalidInput`` where an option has another type than a configuration could spell for it."""
    if not may_be(value, hint):
        raise InvalidInput(
            f"{name} is {value!r}", where=where, mend=f"It should be {expected(hint)}."
        )


def may_be(value: Any, hint: Any) -> bool:
    """Tell whether a value may be of a type, as far as a configuration file can spell one.

    Objects that no file can hold, a NumPy integer among them, are left to the function to judge.
    """
    if not isinstance(value, _SPELT):
        return True
    arguments = get_args(hint)
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return any(may_be(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin in (int, float) and isinstance(value, bool):
        return False
    if origin is float:
        return isinstance(value, float | int)
    if origin in (bool, int, str, NoneType):
        return isinstance(value, origin)
    if not isinstance(origin, type):  # Any, a type variable
        return True
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return False
        return not arguments or all(may_be(one, arguments[1]) for one in value.values())
    if issubclass(origin, Collection):
        if not isinstance(value, list | tuple):
            return False
        return not arguments or all(may_be(one, arguments[0]) for one in value)
    # A table of names and values may be read into a dataclass.
    return isinstance(value, Mapping) or not is_dataclass(origin)


_SPELT = (bool, int, float, str, list, tuple, Mapping, NoneType)
"""Types of values in a configuration file."""


def expected(hint: Any) -> str:
    """Describe the values of a type in words for users of a configuration file."""
    arguments = get_args(hint)
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return ", or ".join(
            dict.fromkeys(expected(one) for one in arguments if one is not NoneType)
        )
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if origin in words:
        return words[origin]
    if not isinstance(origin, type):
        return "a value"
    if issubclass(origin, Mapping):
        values = expected(arguments[1]) if arguments else "a value"
        return f"a table that gives each name {values}"
    if issubclass(origin, Collection):
        return f"a list, each item {expected(arguments[0])}" if arguments else "a list"
    return f"a {origin.__name__}"
