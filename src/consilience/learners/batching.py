"""Functions that stop where they have work to share, so that alike work is done as one.

Parties of a simulation are asked one after another. What takes their time is training, and models of one
architecture train faster as one batched computation than one by one. A :class:`Meeting` runs every party's
part in a greenlet of its own: up to where it :func:`brings <bring>` work, then the next party's; when all
have brought theirs or are done, works with the same key are done together, and everyone goes on. All of it
happens in one thread and in the parties' order, so that nothing depends on timing, and what the parties run
does not know of it. Context variables are each one's own; what is the whole thread's or process's, such as
filters of warnings, must not be changed around something that brings work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar, copy_context
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from greenlet import greenlet


class Work(Protocol):
    """Something to be done, alone or with others of its kind."""

    @property
    def key(self) -> Hashable:
        """Works with the same key can be done together; ``None`` can be done only alone."""

    @property
    def most(self) -> int:
        """How many are done as one at most, asked of who has the most to do."""

    @property
    def weight(self) -> float:
        """How much there is to do, beside others with the same key."""

    def alone(self) -> Any:
        """Do it."""

    def together(self, others: Sequence[Any]) -> list[Any]:
        """Do it and others with the same key: the results, its own first."""


T = TypeVar("T")

_meeting: ContextVar[Meeting[Any] | None] = ContextVar("meeting", default=None)


def bring(work: Work) -> Any:
    """The work's result: at once, or, in a :class:`Meeting`, when all have brought theirs."""
    meeting = _meeting.get()
    return work.alone() if meeting is None else meeting.wait(work)


class Meeting(Generic[T]):
    """Functions that are run so that the work they bring is done together.

    Args:
        functions: what each of those who meet does; what one raises ends the meeting.

    Attributes:
        seconds: for each, how long it took: its own time and its share, by weight, of what was done together.

    Example:
        >>> class Sum:
        ...     key, most, weight = "sum", 10, 1
        ...     def __init__(self, *numbers): self.numbers = numbers
        ...     def alone(self): return sum(self.numbers)
        ...     def together(self, others): return [work.alone() for work in (self, *others)]
        >>> Meeting([lambda: bring(Sum(1, 2)) + 1, lambda: bring(Sum(3, 4)) * 10]).results()
        [4, 70]
    """

    def __init__(self, functions: Sequence[Callable[[], T]]) -> None:
        self._functions = functions
        self.seconds = [0.0] * len(functions)

    def results(self) -> list[T]:
        """Run all of them: their results, in order."""
        self._floor = greenlet.getcurrent()
        given: list[Any] = [()] * len(self._functions)
        actors = [greenlet(self._entered(function)) for function in self._functions]
        for actor in actors:
            actor.gr_context = copy_context()
        present = list(range(len(actors)))
        try:
            while present:
                brought: dict[int, Work] = {}
                for i in present:
                    begun = perf_counter()
                    given[i] = actors[i].switch(*([given[i]] if actors[i] else []))
                    self.seconds[i] += perf_counter() - begun
                    if not actors[i].dead:
                        brought[i] = given[i]
                present = list(brought)
                self._do(brought, given)
        finally:
            for actor in actors:  # of a meeting that ended early
                if actor and not actor.dead:
                    actor.throw()
        return given

    def wait(self, work: Work) -> Any:
        """Hand in work and stop until it is done; raises what doing it raises."""
        outcome = self._floor.switch(work)
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def _entered(self, function: Callable[[], T]) -> Callable[[], T]:
        def enter() -> T:
            _meeting.set(self)
            return function()

        return enter

    def _do(self, brought: dict[int, Work], given: list[Any]) -> None:
        """Put the results of works in the places of those who brought them."""
        groups: dict[Hashable, list[int]] = {}
        for i, work in brought.items():
            key = work.key
            groups.setdefault(("alone", i) if key is None else ("together", key), []).append(i)
        for alike in groups.values():
            parts = -(-len(alike) // max(1, min(brought[i].most for i in alike)))
            for group in (alike[part::parts] for part in range(parts)):
                begun = perf_counter()
                first, *others = (brought[i] for i in group)
                results: list[Any]
                try:
                    results = first.together(others) if others else [first.alone()]
                except Exception as error:
                    results = [_Raised(error)] * len(group)
                seconds = perf_counter() - begun
                whole = sum(brought[i].weight for i in group)
                for i, result in zip(group, results, strict=True):
                    given[i] = result
                    share = brought[i].weight / whole if whole else 1 / len(group)
                    self.seconds[i] += seconds * share


class _Raised:
    """What doing a work raised, on its way to whoever brought it."""

    def __init__(self, error: Exception) -> None:
        self.error = error
