"""Functions that submit work: who runs when, what is done together, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from time import sleep
from typing import Any

import pytest

from consilience.models.torch.batching import BatchScheduler, submit

said: list[str] = []


class Double:
    """Twice a number; what was done together is written down."""

    max_batch = 128

    def __init__(self, number: int, key: Any = "double") -> None:
        self.number, self.key, self.weight = number, key, number

    def run_single(self) -> int:
        said.append(f"alone {self.number}")
        return 2 * self.number

    def run_batch(self, others: Sequence[Double]) -> list[int]:
        numbers = [self.number, *(other.number for other in others)]
        said.append(f"together {numbers}")
        if 13 in numbers:
            raise ValueError("unlucky")
        return [2 * number for number in numbers]


@pytest.fixture(autouse=True)
def _silence() -> None:
    said.clear()


def doubling(number: int, *, times: int = 1, key: Any = "double") -> Callable[[], int]:
    def function() -> int:
        value = number
        for _ in range(times):
            said.append(f"{number} submits {value}")
            value = submit(Double(value, key))
        return value

    return function


def test_by_itself_work_is_done_at_once() -> None:
    assert doubling(3, times=2)() == 12
    assert said == ["3 submits 3", "alone 3", "3 submits 6", "alone 6"]


def test_everyone_gets_as_far_as_it_can_in_order() -> None:
    """Of three, the second needs two works and the third none: it is gone when the first work is done."""
    assert BatchScheduler([doubling(1), doubling(2, times=2), lambda: 5]).results() == [2, 8, 5]
    assert said == [
        "1 submits 1", "2 submits 2", "together [1, 2]", "2 submits 4", "alone 4"
    ]  # fmt: skip


def test_only_alike_works_are_done_together_and_some_alone() -> None:
    functions = [doubling(1), doubling(2, key=None), doubling(3), doubling(4, key="other")]
    assert BatchScheduler(functions).results() == [2, 4, 6, 8]
    assert said[4:] == ["together [1, 3]", "alone 2", "alone 4"]


def test_no_more_at_a_time_than_the_work_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts as equal as can be."""
    monkeypatch.setattr(Double, "max_batch", 2)
    assert BatchScheduler([doubling(i) for i in range(5)]).results() == [0, 2, 4, 6, 8]
    assert said[5:] == ["together [0, 3]", "together [1, 4]", "alone 2"]


def test_who_has_the_most_to_do_says_how_many() -> None:
    """What it takes meanwhile, it takes beside the others'."""

    def sized(number: int) -> Callable[[], int]:
        item = Double(number)
        item.max_batch = 9 // number
        return lambda: int(submit(item))

    assert BatchScheduler([sized(i) for i in (1, 4, 2, 3)]).results() == [2, 8, 4, 6]
    assert said == ["together [1, 2]", "together [4, 3]"]


def test_what_fails_is_raised_where_it_was_submitted() -> None:
    """All of a group learn of it, and can go on; others are not touched."""

    def careful() -> str:
        try:
            return str(submit(Double(13)))
        except ValueError as error:
            return f"caught {error}"

    assert BatchScheduler([careful, careful, doubling(1, key="x")]).results() == [
        "caught unlucky", "caught unlucky", 2
    ]  # fmt: skip


def test_an_error_ends_the_run_and_everyone_cleans_up() -> None:
    def waits() -> None:
        try:
            submit(Double(1))
        finally:
            said.append("cleaned up")

    def breaks() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BatchScheduler([waits, breaks]).results()
    assert said == ["cleaned up"]


def test_a_scheduler_within_a_scheduler() -> None:
    def inner() -> list[int]:
        return BatchScheduler([doubling(1), doubling(2)]).results()

    assert BatchScheduler([inner, doubling(3)]).results() == [[2, 4], 6]


def test_context_is_each_ones_own() -> None:
    """As in numpy, which keeps what it does about errors there."""
    level = ContextVar("level", default=0)
    level.set(1)

    def deeper(by: int) -> Callable[[], int]:
        def function() -> int:
            level.set(level.get() + by)
            submit(Double(1))
            return level.get()

        return function

    assert BatchScheduler([deeper(1), deeper(10)]).results() == [2, 11]
    assert level.get() == 1


def test_time_is_told_apart() -> None:
    scheduler = BatchScheduler([doubling(1), lambda: sum(range(300_000))])
    scheduler.results()
    assert 0 < scheduler.seconds[0] < scheduler.seconds[1]


def test_time_together_is_shared_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Double, "run_batch", lambda first, others: sleep(0.2) or [0, 0])
    scheduler = BatchScheduler([doubling(1), doubling(9)])
    scheduler.results()
    assert scheduler.seconds[0] == pytest.approx(0.02, abs=0.015)
    assert scheduler.seconds[1] == pytest.approx(0.18, abs=0.05)


def test_nobody() -> None:
    assert BatchScheduler([]).results() == []
