"""Work of many parties in one process: one after another, or as a library of models would rather have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import perf_counter
from typing import Any, Protocol


class Scheduler(Protocol):
    """Runs functions to their end, each in a copy of the context variables."""

    seconds: list[float]
    """Time of each function."""

    def results(self) -> list[Any]:
        """Run all functions, and return their results in order."""


class OneByOne:
    """Runs functions one after another.

    Args:
        functions: one for each party; an exception in one of them ends the run of all.

    Attributes:
        seconds: time of each function.
    """

    def __init__(self, functions: Sequence[Callable[[], Any]]) -> None:
        self._functions = functions
        self.seconds: list[float] = []

    def results(self) -> list[Any]:
        """Run all functions, and return their results in order."""
        found = []
        for function in self._functions:
            begun = perf_counter()
            found.append(copy_context().run(function))
            self.seconds.append(perf_counter() - begun)
        return found


_make: Callable[[Sequence[Callable[[], Any]]], Scheduler] = OneByOne


def schedule_with(make: Callable[[Sequence[Callable[[], Any]]], Scheduler]) -> None:
    """Have functions run by another scheduler from now on.

    A module of models that train faster side by side calls it at import. Results are the same.

    Args:
        make: makes a scheduler of functions.
    """
    global _make
    _make = make


def scheduler(functions: Sequence[Callable[[], Any]]) -> Scheduler:
    """Make the scheduler of some functions."""
    return _make(functions)
