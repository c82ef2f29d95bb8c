"""Checks of a user's keyword options against the function that will take them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from consilience.core.errors import InvalidInput, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter


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
    from pydantic import PydanticUserError, ValidationError

    try:
        _adapter(hint).validate_json(json.dumps(value), strict=True)
    except (PydanticUserError, TypeError):  # not a type that a configuration could spell
        return
    except ValidationError as error:
        if all(one["type"] == "needs_python_object" for one in error.errors()):
            return
        expected = dict.fromkeys(_expectation(one, hint) for one in error.errors())
        raise InvalidInput(
            f"{name} is {value!r}", where=where, mend=f"It should be {', or '.join(expected)}."
        ) from error


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))


def _expectation(error: Any, hint: Any) -> str:
    """Describe the value that pydantic expects, in words that a user of a configuration knows."""
    if error["type"] not in ("dict_type", "dataclass_type", "mapping_type"):
        return str(error["msg"]).removeprefix("Input should be ")
    made = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and is_dataclass(one)]
    if made:
        return f"a {made[0].__name__}"
    return "a table of names and values, such as { a = 1, b = 2 }"
