"""Registries by name: what core offers itself, and what other folders and packages add by entry points.

A package adds to a registry by an entry point of the group in its ``pyproject.toml``; its value is a module,
or an object of one::

    [project.entry-points."consilience.aggregators"]
    mine = "my_package.rules"

The library's own features register in the same way. They are imported when a registry is first read. Two
packages with one name are an error that names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, InvalidInput

T = TypeVar("T")


@cache
def registered_names(group: str) -> tuple[str, ...]:
    """List the names of an entry-point group, sorted, without importing them.

    Raises:
        InvalidInput: two packages register one name.
    """
    return tuple(sorted(_points(group)))


@cache
def registered_object(group: str, name: str) -> Any:
    """Import what one entry point names.

    Args:
        group: name of the group.
        name: of the entry point, one of :func:`registered_names`.

    Raises:
        InvalidInput: no package has it, or its package cannot be imported.
    """
    point = _points(group).get(name)
    if point is None:
        raise _nothing(f"{name!r} under {group}")
    try:
        return point.load()
    except ConsilienceError:  # such as a library that is not installed, which says so itself
        raise
    except Exception as error:  # another package's code may raise anything
        raise InvalidInput(
            f"{point.value} cannot be imported ({type(error).__name__}: {error})",
            where=f"{_package(point)}, entry point {name} of {group}",
            mend="Repair this package, or uninstall it.",
        ) from error


@cache
def registered_modules(group: str) -> tuple[ModuleType, ...]:
    """Import the modules of an entry-point group.

    Args:
        group: name of the group, such as ``"consilience.aggregators"``.

    Returns:
        The modules, in the order of the entry points' names.

    Raises:
        InvalidInput: there are none, as where the library's sources are on the path and it is not installed;
            two packages register one name; or a package cannot be imported.
    """
    names = registered_names(group)
    if not names:
        raise _nothing(f"anything under {group}")
    return tuple(registered_object(group, name) for name in names)


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        # A package that is found twice on the path has the same value twice.
        if (before := found.setdefault(point.name, point)).value != point.value:
            raise InvalidInput(
                f"two packages register {point.name}: {_package(before)} has {before.value}, "
                f"{_package(point)} has {point.value}",
                where=group,
                mend="Uninstall one of them, or give its entry point another name.",
            )
    return found


def _nothing(what: str) -> InvalidInput:
    return InvalidInput(
        f"no package registers {what}",
        where="consilience",
        mend="Install it: pip install -e . in its checkout. Its sources alone register nothing.",
    )


def _package(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"package {point.dist.name}"


def named(entries: Iterable[tuple[str, T]], *, what: str) -> dict[str, T]:
    """Make a mapping of entries, each of another name.

    Args:
        entries: names and objects.
        what: noun of an entry, for the error.

    Raises:
        InvalidInput: two different entries have one name.
    """
    found: dict[str, T] = {}
    for name, entry in entries:
        if found.setdefault(name, entry) is not entry:
            raise InvalidInput(f"two {what}s are called {name!r}", where="consilience")
    return found


class Registry(Mapping[str, T]):
    """A mapping created when it is first read.

    Args:
        make: creates the mapping.
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
