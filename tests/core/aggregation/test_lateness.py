"""Last answers of the absent: what an old answer weighs, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import avg
from consilience.core.aggregation import AGGREGATORS
from consilience.core.aggregation.guard import Guard
from consilience.core.aggregation.last_answers import LastAnswers
from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Failure, Predictions, Receipt, Replies
from consilience.core.messages.wire import decode, encode
from consilience.core.protocols import RoundState

A, B, C = ([1.0, 0.0], [0.0, 1.0], [0.5, 0.5])


def said(party: str, row: list[float]) -> tuple[object, ...]:
    values = np.array([row], dtype=np.float32)
    return (
        Receipt(party=party, round=1),
        Predictions(
            party=party,
            round=1,
            values=values,
            kind="probabilities",
            classes=("x", "y"),
            public="p",
        ),
    )


def round_of(missing: dict[str, str] | None = None, **rows: list[float]) -> Replies:
    gone = {p: Failure(party=p, reason="no", kind=kind) for p, kind in (missing or {}).items()}
    return Replies({party: said(party, row) for party, row in rows.items()}, gone)


def test_an_old_answer_weighs_less_with_each_round() -> None:
    """South says y once, and is away: half of it after a round, a quarter after two, nothing after three."""
    rule = avg()
    rule = type(rule)(**{**vars(rule), "last": LastAnswers(age=2, fade=0.5)})
    teacher = rule(round_of(north=A, south=B))
    np.testing.assert_allclose(teacher.values, [[0.5, 0.5]])
    weights = []
    for _ in range(3):
        (state,) = decode(encode([RoundState(round=1, trust=teacher.memory)]))  # over a crash
        teacher = rule(round_of({"south": "late"}, north=A), state.trust)
        weights.append(float(teacher.values[0, 1]))
    np.testing.assert_allclose(weights, [0.25, 0.125, 0])
    assert teacher.parties == ("north",) and teacher.notes == ()


def test_where_nobody_is_absent_nothing_changes() -> None:
    replies = round_of(north=A, south=C)
    completed, notes, memory = LastAnswers(age=1)(replies, {})
    assert completed is replies and notes == {} and set(memory) == {"north", "south"}


def test_an_answer_that_arrived_late_is_the_last() -> None:
    late = {"south": (1, said("south", C))}
    found = round_of({"south": "late"}, north=A)
    found = Replies(found.answers, found.missing, late=late)
    old = {"south": (2, said("south", B)[1:])}
    last = LastAnswers(age=3, fade=0.5)
    completed, ages, _ = last(found, old)
    assert completed.parties == ("north", "south") and ages == {"south": 1}
    # Half of (0.5, 0.5), half of north's (1, 0).
    faded = last.faded(completed, ages).of(Predictions)[1]
    np.testing.assert_allclose(faded.values, [[0.75, 0.25]])
    assert last.notes(ages) == ("south is absent: its answer of 1 rounds ago counts by 0.5",)


def test_one_that_is_left_out_does_not_count_through_the_absent() -> None:
    """South's old answer is filled up by those who are heard: east lies, and the operator leaves it out."""
    guard = Guard(watch=False, leave_out=("east",))
    rule = replace(avg(), last=LastAnswers(age=1, fade=0.5), screen=guard)
    memory = rule(round_of(east=A, north=A, south=C)).memory
    teachers = [rule(round_of({"south": "late"}, east=said, north=A), memory) for said in (A, B)]
    np.testing.assert_array_equal(teachers[0].values, teachers[1].values)
    np.testing.assert_allclose(teachers[0].values, [[0.875, 0.125]])  # (1, 0) and (0.75, 0.25)


@pytest.mark.parametrize("kind", ["refused", "invalid"])
def test_one_that_says_no_is_not_asked_by_its_past(kind: str) -> None:
    memory = {"south": (0, said("south", B)[1:])}
    completed, _, _ = LastAnswers(age=3)(round_of({"south": kind}, north=A), memory)
    assert completed.parties == ("north",)


def test_one_that_was_removed_is_forgotten_in_time() -> None:
    memory = {"south": (1, said("south", B)[1:])}
    completed, _, kept = LastAnswers(age=2)(round_of(north=A), memory)
    assert completed.parties == ("north",) and set(kept) == {"north"}


@pytest.mark.parametrize("name", ["vote", "entropy", "geometric-median", "nearest-neighbours"])
def test_other_rules_take_old_answers_too(name: str) -> None:
    rule = AGGREGATORS[name]()
    rule = type(rule)(**{**vars(rule), "last": LastAnswers(age=1, fade=0.5)})
    memory = rule(round_of(east=B, north=A, south=B)).memory
    teacher = rule(round_of({"south": "failed"}, east=B, north=A), memory)
    assert teacher.parties == ("east", "north", "south")
    np.testing.assert_allclose(teacher.values.sum(axis=1), 1)


@pytest.mark.parametrize(("age", "fade"), [(0, 0.5), (1, 0), (1, 1.5)])
def test_numbers_out_of_range(age: int, fade: float) -> None:
    with pytest.raises(InvalidInput):
        LastAnswers(age=age, fade=fade)
