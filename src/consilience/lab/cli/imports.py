"""Imports of SciPy and scikit-learn ahead of a run, without what these import for a few names alone.

Every module of scikit-learn imports pandas where it is installed, and most import large parts of SciPy: a
third of the time until a run begins, for names that most runs never use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from consilience.models.presets import LEARNERS

_TOOLS = "numpy.f2py", "numpy.testing"
"""What is imported by ``from numpy import *``."""

_SELDOM_USED = (
    *_TOOLS,
    "pandas",
    "scipy.stats",
    "scipy.interpolate",
    "scipy.integrate",
    "scipy.optimize._linprog",
    "scipy.optimize._shgo",
    "scipy.spatial.transform",
    "sklearn.callback._progressbar",
)


def import_scipy() -> None:
    """Import SciPy's arrays, without tools of NumPy that come with all of its names."""
    with put_off(*_TOOLS):
        import_module("scipy.sparse")


def import_models(names: Iterable[str]) -> None:
    """Import the modules of scikit-learn that models are made of; those of other libraries are left.

    Args:
        names: of presets; other names are passed over.
    """
    entries = [LEARNERS[name] for name in names if name in LEARNERS]
    paths = {path for entry in entries for path in (entry.target, *entry.before)}
    with put_off(*_SELDOM_USED):
        for module in sorted(path.partition(":")[0] for path in paths):
            if module.startswith("sklearn."):
                import_module(module)


@contextmanager
def put_off(*modules: str) -> Iterator[None]:
    """Have modules that are imported meanwhile be imported when one of their functions is first called.

    For imports on one thread, of modules that derive no class from what they import.

    Args:
        modules: their names; those that are imported already stay as they are.
    """
    places: list[tuple[dict[str, Any], str, ModuleType]] = []
    for name in modules:
        if name not in sys.modules:
            stand_in: ModuleType = _Unimported(name)
            package, _, own = name.rpartition(".")
            places.append((sys.modules, name, stand_in))
            if package in sys.modules and own not in (within := vars(sys.modules[package])):
                places.append((within, own, stand_in))  # where NumPy looks for modules of its own
    for names, key, stand_in in places:
        names[key] = stand_in
    try:
        yield
    finally:
        for names, key, stand_in in places:
            if names.get(key) is stand_in:
                del names[key]


class _Unimported(ModuleType):
    """A module in whose place another takes what it wants to use later."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self.__name__, name)


class _Later:
    """A function, or an object, of a module that is imported when it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._path = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def _found(self) -> Any:
        module, name = self._path
        return getattr(import_module(module), name)
