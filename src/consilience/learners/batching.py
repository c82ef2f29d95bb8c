"""Cooperative scheduler: run functions as greenlets, and execute work of the same kind as one batch.

Parties of a simulation are asked one after another. Most of their time is training, and models of one
architecture train faster as one batched computation than one by one. A :class:`BatchScheduler` runs every
party's function in a greenlet: up to where it :func:`submits <submit>` a work item, then the next party's.
When all have submitted an item or returned, items with the same key are run as one batch, and every function
continues with its result. All of it happens in one thread and in the parties' order, so that nothing depends
on timing, and the functions need not know of it. Every function has its own context variables; settings of a
whole thread or process, such as filters of warnings, must not be changed around a call of :func:`submit`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar, copy_context
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from greenlet import greenlet


class WorkItem(Protocol):
    """A computation that can be run by itself, or as one batch with others that have the same key."""

    @property
    def key(self) -> Hashable:
        """Items with equal keys can be run as one batch; ``None`` is always run by itself."""

    @property
    def max_batch(self) -> int:
        """The largest number of items in a batch; the smallest answer of a group holds for it."""

    @property
    def weight(self) -> float:
        """The amount of work, compared with other items of the same key."""

    def run_single(self) -> Any:
        """Compute the result of this item."""

    def run_batch(self, others: Sequence[Any]) -> list[Any]:
        """Compute the results of this item and of ``others`` with the same key, its own first."""


T = TypeVar("T")

_scheduler: ContextVar[BatchScheduler[Any] | None] = ContextVar("scheduler", default=None)


def submit(item: WorkItem) -> Any:
    """Return the result of a work item: computed at once, or by the :class:`BatchScheduler` that runs this.

    Args:
        item: the computation.

    Raises:
        Exception: whatever the computation raises.
    """
    scheduler = _scheduler.get()
    return item.run_single() if scheduler is None else scheduler.wait(item)


class BatchScheduler(Generic[T]):
    """Runs functions side by side, and the work items that they submit in batches.

    Args:
        functions: one for each party; an exception in one of them ends the run of all.

    Attributes:
        seconds: time of each function: its own, and its share by weight of the batches.

    Example:
        >>> class Sum:
        ...     key, max_batch, weight = "sum", 10, 1
        ...     def __init__(self, *numbers): self.numbers = numbers
        ...     def run_single(self): return sum(self.numbers)
        ...     def run_batch(self, others): return [item.run_single() for item in (self, *others)]
        >>> BatchScheduler([lambda: submit(Sum(1, 2)) + 1, lambda: submit(Sum(3, 4)) * 10]).results()
        [4, 70]
    """

    def __init__(self, functions: Sequence[Callable[[], T]]) -> None:
        self._functions = functions
        self.seconds = [0.0] * len(functions)

    def results(self) -> list[T]:
        """Run all functions to their end, and return what they return, in order."""
        self._main = greenlet.getcurrent()
        results: list[Any] = [()] * len(self._functions)
        workers = [greenlet(self._within(function)) for function in self._functions]
        for worker in workers:
            worker.gr_context = copy_context()
        waiting = list(range(len(workers)))
        try:
            while waiting:
                items: dict[int, WorkItem] = {}
                for i in waiting:
                    begun = perf_counter()
                    results[i] = workers[i].switch(*([results[i]] if workers[i] else []))
                    self.seconds[i] += perf_counter() - begun
                    if not workers[i].dead:
                        items[i] = results[i]
                waiting = list(items)
                self._run_items(items, results)
        finally:
            for worker in workers:  # of a run that ended early
                if worker and not worker.dead:
                    worker.throw()
        return results

    def wait(self, item: WorkItem) -> Any:
        """Hand in an item, suspend the current function, and return the item's result."""
        outcome = self._main.switch(item)
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def _within(self, function: Callable[[], T]) -> Callable[[], T]:
        """The function, with this scheduler as the one that it submits to."""

        def run() -> T:
            _scheduler.set(self)
            return function()

        return run

    def _run_items(self, items: dict[int, WorkItem], results: list[Any]) -> None:
        """Run all items in batches of equal keys; write each one's result to its place."""
        groups: dict[Hashable, list[int]] = {}
        for i, item in items.items():
            key = item.key
            groups.setdefault(("single", i) if key is None else ("batch", key), []).append(i)
        for alike in groups.values():
            parts = -(-len(alike) // max(1, min(items[i].max_batch for i in alike)))
            for batch in (alike[part::parts] for part in range(parts)):
                begun = perf_counter()
                first, *others = (items[i] for i in batch)
                found: list[Any]
                try:
                    found = first.run_batch(others) if others else [first.run_single()]
                except Exception as error:
                    found = [_Raised(error)] * len(batch)
                seconds = perf_counter() - begun
                total = sum(items[i].weight for i in batch)
                for i, result in zip(batch, found, strict=True):
                    results[i] = result
                    share = items[i].weight / total if total else 1 / len(batch)
                    self.seconds[i] += seconds * share


class _Raised:
    """An exception of a batch, on its way to the functions that wait for its results."""

    def __init__(self, error: Exception) -> None:
        self.error = error
