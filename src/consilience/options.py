"""Keyword options that a user named, checked against the function that will take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from consilience.errors import InvalidInput, nearest


def check_options(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    where: str,
    given: Iterable[str] = (),
) -> None:
    """Raise ``InvalidInput`` unless ``function(**options)`` can be called.

    Args:
        function: what will be called.
        options: what the user wrote.
        where: for the error, such as ``"aggregator suwa"``.
        given: parameters that the caller fills in itself, hidden from the user.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in set(given)
    }
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in options:
            if name not in parameters:
                raise InvalidInput(
                    f"unknown option {name!r}",
                    where=where,
                    mend=nearest(name, parameters) if parameters else "It takes no options.",
                )
    for name, parameter in parameters.items():
        named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if named and parameter.default is parameter.empty and name not in options:
            raise InvalidInput(f"needs the option {name!r}", where=where)
