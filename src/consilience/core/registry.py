"""Registries by name: what core offers itself, and what other folders and packages add by entry points.

A package adds to a registry by an entry point of the group in its ``pyproject.toml``; its value is a module::

    [project.entry-points."consilience.aggregators"]
    mine = "my_package.rules"

The library's own features register in the same way. Their modules are imported when a registry is first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from consilience.core.errors import InvalidInput

T = TypeVar("T")


@cache
def registered_modules(group: str) -> tuple[ModuleType, ...]:
    """Import the modules of an entry-point group.

    Args:
        group: name of the group, such as ``"consilience.aggregators"``.

    Returns:
        The modules, in the order of the entry points' names.

    Raises:
        InvalidInput: there are none, as where the library's sources are on the path and it is not installed.
    """
    points = {point.name: point for point in entry_points(group=group)}
    if not points:
        raise InvalidInput(
            f"no package registers anything under {group}",
            where="consilience",
            mend="Install it: pip install -e . in its checkout. Its sources alone register nothing.",
        )
    return tuple(points[name].load() for name in sorted(points))


@cache
def registered_names(group: str) -> tuple[str, ...]:
    """List the names of an entry-point group, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


@cache
def registered_object(group: str, name: str) -> Any:
    """Import what one entry point of a group names.

    Args:
        group: name of the group.
        name: of the entry point, of :func:`registered_names`.
    """
    return {point.name: point for point in entry_points(group=group)}[name].load()


class Registry(Mapping[str, T]):
    """A mapping that is made when it is first read.

    Args:
        make: makes the mapping.
    """

    def __init__(self, make: Callable[[], Mapping[str, T]]) -> None:
        self._make = make

    @cached_property
    def _entries(self) -> dict[str, T]:
        return dict(self._make())

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self)})"
