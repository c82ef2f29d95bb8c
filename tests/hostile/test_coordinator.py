"""A coordinator that asks whatever it likes: a party answers, or says why not, and stays whole."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from consilience import Party
from consilience.core import (
    networks,  # noqa: F401 (every task is registered)
    protocols,  # noqa: F401 (every task is registered)
)
from consilience.core.checks import classifiers
from consilience.core.messages.message import REGISTRY, fields
from consilience.core.messages.replies import Failure
from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.base import task_types
from consilience.core.tasks.lifecycle import Join, TakePublic
from consilience.core.tasks.outgoing import LONGEST_REASON
from consilience.sites.party import AUDIT, Limits, PartySite, read_log, read_session
from helpers.forged_messages import CHOICES, Choices, forged, written
from helpers.killed_sites import state
from helpers.party_sites import agreement, one_party, requests, without_rows

TASKS = sorted(
    name for name, kind in task_types().items() if kind.__module__.startswith("consilience.")
)
NUMBERS = [0.0, 0.5, 1.0, -1.0, 1e-300, 1e300, float("nan"), float("inf"), 2**62, 2**64]
ROUNDS = [0, 1, 2, 3, 3, 3, -1, 10**9, 2**62]
TEXTS = [
    "",
    "ash",
    "birch",
    "probabilities",
    "logits",
    "uniform",
    "/etc",
    "x" * 300,
    "\x1b[2J\n",
    "\ud800",
]
SHAPES = [(20, 3), (20, 3), (20,), (3,), (0,), (), (1, 1, 1), (19, 3), (20, 4), (2000,)]
DTYPES = ["<f4", "<f8", "<f2", "<i8", "|u1", "|b1"]


def value_of(hint: Any, choose: Choices, arrays: dict[str, np.ndarray], depth: int = 0) -> Any:
    """Something for a field: of its type more often than not."""
    if choose.below(12) == 0:
        return choose.of([None, True, -1, "x", [], {"map": {}}, {"array": "7"}, {"Nobody": {}}])
    if hint is int:
        return choose.of(ROUNDS)
    if hint is float:
        return choose.of(NUMBERS)
    if hint is str:
        return choose.of(TEXTS)
    if hint is bool:
        return bool(choose.below(2))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return choose.of(arguments)
    if origin in (Union, UnionType):
        kinds = [kind for kind in arguments if kind is not NoneType]
        return None if choose.below(2) else value_of(kinds[0], choose, arrays, depth)
    if origin is tuple:
        count = 0 if depth > 2 else choose.below(3)
        return [value_of(arguments[0], choose, arrays, depth + 1) for _ in range(count)]
    if origin is Mapping:
        return {"map": {name: value_of(arguments[1], choose, arrays, 3) for name in ("ash", "1")}}
    if hint is Any:
        return task(choose, arrays, depth + 1) if depth < 3 else 1
    if REGISTRY.get(getattr(hint, "__name__", "")) is hint:
        return document(hint, choose, arrays, depth + 1)
    name = str(len(arrays))
    shape, dtype = choose.of(SHAPES), choose.of(DTYPES)
    data = Random(choose.below(99)).randbytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    arrays[name] = np.frombuffer(data, dtype=dtype).reshape(shape)
    if choose.below(2):  # more often numbers that could be meant
        arrays[name] = np.full(shape, 1 / 3 if dtype[1] == "f" else 1, dtype=dtype)
    return {"array": name}


def document(
    kind: type[Any], choose: Choices, arrays: dict[str, np.ndarray], depth: int = 0
) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        kind.__name__: {
            field.name: value_of(hints[field.name], choose, arrays, depth)
            for field in dataclasses.fields(kind)
        }
    }


def task(choose: Choices, arrays: dict[str, np.ndarray], depth: int = 0) -> dict[str, Any]:
    return document(REGISTRY[choose.of(TASKS)], choose, arrays, depth)


def asked(choose: Choices, usual: list[bytes]) -> bytes:
    """A request: one that could be meant, such a one spoilt, or tasks with whatever in their fields."""
    how = choose.below(4)
    if how == 0:
        return bytes(choose.of(usual))
    if how == 1:
        return forged(choose, choose.of(usual), usual)
    arrays: dict[str, np.ndarray] = {}
    wanted = [task(choose, arrays) for _ in range(1 + choose.below(2))]
    return written(wanted, arrays)


@dataclasses.dataclass(frozen=True)
class Pestered:
    """A party that is asked whatever, and the requests that could be meant."""

    make: Callable[[], Party]
    usual: list[bytes]


def sent() -> list[bytes]:
    """The usual requests to a party that has to be sent its public rows."""
    describe, *others = requests(3)
    return [describe, encode([TakePublic.of(classifiers()[1])]), *others]


PARTIES = {
    "rows of its own": Pestered(one_party, requests(3)),
    "rows are sent": Pestered(without_rows, sent()),
}


def pestered(home: Path, examples: int, party: Pestered) -> list[tuple[str, str]]:
    """The tasks of so many requests and the status of their answers, each of them looked at."""
    limits = Limits(rounds=50, requests=30)
    allowed = set(limits.allowed_replies())
    usual = party.usual
    statuses: list[tuple[str, str]] = []
    with PartySite(party.make, home, limits=limits) as site:
        for request in usual:
            assert not isinstance(decode(site.answer(request))[0], Failure)
        count = len(usual)

        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(CHOICES)
        def pester(choose: Choices) -> None:
            nonlocal count
            with_numbers = Choices(
                [Random(choose.below(2**32)).randrange(2**32) for _ in range(64)]
            )
            request = asked(with_numbers, usual)
            before, start = state(home), time.process_time()
            reply = site.answer(request)
            assert time.process_time() - start < 5.0
            count += 1
            said = decode(reply)
            if isinstance(said[0], Failure):
                (failure,) = said
                assert failure.party == "ash" and len(failure.reason) <= LONGEST_REASON + 2
                after = state(home)
                if failure.kind != "refused":  # that it was worked at counts, and nothing else
                    (federation, _, rounds), then = before.pop("session"), after.pop("session")
                    assert then[0] == federation and rounds <= then[2] <= min(rounds + 1, 50)
                assert after == before
                statuses.append(("", failure.kind))
                return
            tasks = decode(request)
            assert {type(task).__name__ for task in tasks} <= allowed
            assert [task.reply_type for task in tasks] == [type(one) for one in said]
            for asked_for, one in zip(tasks, said, strict=True):
                assert (
                    one.party == "ash" and getattr(one, "round", asked_for.round) == asked_for.round
                )
                arrays = [item for _, item in fields(one) if isinstance(item, np.ndarray)]
                assert all(np.isfinite(item).all() for item in arrays if item.dtype.kind == "f")
            session = read_session(home)
            assert session is not None and session.rounds <= 50 and session.requests <= 30
            statuses.append((type(tasks[0]).__name__, "ok"))

        pester()
        site.party()  # can still be taken up
        entries = read_log(home / AUDIT).entries
        assert len(entries) == count
        assert max(len(json.dumps(entry)) for entry in entries) < 10_000
    session = read_session(home)
    assert session is not None
    log = read_log(home / AUDIT, written_after=session.audit)
    assert (log.faults, log.notes) == ((), ())
    return statuses


@pytest.mark.parametrize("which", PARTIES)
def test_whatever_is_asked_a_party_stays_whole(tmp_path: Path, which: str) -> None:
    statuses = pestered(tmp_path, 120, PARTIES[which])
    assert {"ok", "refused"} <= {status for _, status in statuses}
    assert (("TakePublic", "ok") in statuses) is (which == "rows are sent")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", PARTIES)
def test_ten_thousand_requests(tmp_path: Path, which: str) -> None:
    statuses = pestered(tmp_path, 10_000, PARTIES[which])
    assert {"ok", "refused", "failed", "invalid"} <= {status for _, status in statuses}
    assert (("TakePublic", "ok") in statuses) is (which == "rows are sent")


def test_limits_hold_however_often_it_joins(tmp_path: Path) -> None:
    """Another seed and another federation each time: rounds and requests are counted in all its life."""
    usual = requests(1)[2:]
    answered = 0
    with PartySite(one_party, tmp_path, limits=Limits(rounds=5, requests=4)) as site:
        for seed in range(12):
            site.answer(encode([Join(agreement=agreement(seed=seed))]), federation=f"f{seed}")
            for request in usual:
                said = decode(site.answer(request, federation=f"f{seed}"))
                answered += not isinstance(said[0], Failure)
    assert 0 < answered <= 5 * 4
