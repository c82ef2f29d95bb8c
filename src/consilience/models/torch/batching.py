"""Cooperative scheduler: run functions as greenlets, and execute work of the same kind as one batch.

A simulation queries its parties one after another. Most of their time is training, and models of one
architecture train faster as one batched computation than one by one. A :class:`BatchScheduler` runs the
parties' functions in greenlets. If a function :func:`submits <submit>` a work item, its greenlet waits for
the result, and another greenlet runs the next party's function. After all have submitted an item or
returned, items with the same key run as one batch, and every function continues with its result. All
functions run in one thread and in the parties' order, so that results do not depend on timing. The functions
require no change for this. Every function has separate context variables. A function must not change
settings of the whole thread or process, such as filters of warnings, around a call of :func:`submit`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar, copy_context
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from greenlet import greenlet

from consilience.core.networks.scheduling import schedule_with


class WorkItem(Protocol):
    """A computation that can run separately, or as one batch with other items of the same key."""

    @property
    def key(self) -> Hashable:
        """Return the batch key: items with equal keys can run as one batch, ``None`` always runs alone."""

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
    """Run functions as greenlets, and the work items from these functions in batches.

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
        self.seconds = [0.0] * len(functions)
        self._results: list[Any] = [()] * len(functions)
        self._todo = enumerate(functions)
        self._running, self._begun = 0, 0.0

    def results(self) -> list[T]:
        """Run all functions to their end, and list their return values in order."""
        self._main = greenlet.getcurrent()
        waiting: dict[int, tuple[greenlet, WorkItem]] = {}
        workers: list[greenlet] = []
        try:
            while True:
                workers.append(greenlet(self._work))
                workers[-1].gr_context = copy_context()
                if (item := workers[-1].switch()) is None:  # nothing is left to begin
                    break
                waiting[self._running] = workers[-1], item
            while waiting:
                found = self._run_items({i: item for i, (_, item) in waiting.items()})
                for i, (worker, _) in list(waiting.items()):
                    if (item := worker.switch(found[i])) is None:
                        del waiting[i]
                    else:
                        waiting[i] = worker, item
        finally:
            for worker in workers:  # of a run that ended early
                if not worker.dead:
                    worker.throw()
        return self._results

    def wait(self, item: WorkItem) -> Any:
        """Hand in an item, suspend the current function, and return the item's result."""
        i = self._running
        self.seconds[i] += perf_counter() - self._begun
        outcome = self._main.switch(item)
        self._running, self._begun = i, perf_counter()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def _work(self) -> None:
        """Run pending functions, one after another, each with separate context variables."""
        _scheduler.set(self)
        for i, function in self._todo:
            self._running, self._begun = i, perf_counter()
            self._results[i] = copy_context().run(function)
            self.seconds[i] += perf_counter() - self._begun

    def _run_items(self, items: dict[int, WorkItem]) -> dict[int, Any]:
        """Run all items in batches of equal keys; the result of each."""
        results: dict[int, Any] = {}
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
        return results


class _Raised:
    """An exception of a batch, on its way to the functions that wait for its results."""

    def __init__(self, error: Exception) -> None:
        self.error = error


schedule_with(BatchScheduler)  # whoever imports this has models to train side by side
