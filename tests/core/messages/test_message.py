"""Messages hold their fields to what they declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest

from consilience.core.messages.message import REGISTRY, fields, fits, message

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.mark.parametrize(
    ("value", "hint", "holds"),
    [
        (1, int, True),
        (True, int, False),
        (np.int64(1), int, False),
        (2**63 - 1, int, True),
        (2**63, int, False),
        (1.5, float, True),
        (np.float64(1.5), float, True),
        (1, float, True),
        (True, float, False),
        ("1", float, False),
        ("ü", str, True),
        ("\udc80", str, False),
        (b"b", str, False),
        (True, bool, True),
        (1, bool, False),
        ((), tuple[str, ...], True),
        (("a", "b"), tuple[str, ...], True),
        (("a", 1), tuple[str, ...], False),
        (["a"], tuple[str, ...], False),
        ("ab", tuple[str, ...], False),
        ({"a": 1.0}, Mapping[str, float], True),
        ({"a": "b"}, Mapping[str, float], False),
        ({1: 1.0}, Mapping[str, float], False),
        ({"a": ...}, Mapping[str, Any], True),
        ([("a", 1.0)], Mapping[str, float], False),
        ("x", Literal["x", "y"], True),
        ("z", Literal["x", "y"], False),
        ([], Literal["x", "y"], False),
        (None, int | None, True),
        (1, int | None, True),
        ("1", int | None, False),
        (np.zeros(2), Array, True),
        (np.array(["a"]), Array, False),
        (np.array([None]), Array, False),
        ([0.0], Array, False),
    ],
    ids=repr,
)
def test_fits(value, hint, holds):
    assert fits(value, hint) is holds


def test_a_message_is_frozen_and_knows_its_fields():
    @message
    class Greeting:
        text: str
        times: int = 1

    greeting = Greeting(text="hello")
    assert list(fields(greeting)) == [("text", "hello"), ("times", 1)]
    assert REGISTRY.pop("Greeting") is Greeting
    with pytest.raises(dataclasses.FrozenInstanceError):
        greeting.times = 2
    with pytest.raises(TypeError, match=r"Greeting\.text should be str, not int"):
        Greeting(text=1)
    with pytest.raises(TypeError):
        Greeting("positional")


def test_its_own_checks_come_after_the_types():
    @message
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    REGISTRY.pop("Even")
    assert Even(number=2).number == 2
    with pytest.raises(ValueError, match="odd"):
        Even(number=1)
    with pytest.raises(TypeError):
        Even(number="1")


def test_a_name_is_given_once():
    def first() -> None:
        @message
        class Twice:
            a: int

    def second() -> None:
        @message
        class Twice:
            b: int

    first()
    try:
        first()  # the same class again, as a module that is loaded twice
        with pytest.raises(TypeError, match="two messages are called Twice"):
            second()
    finally:
        REGISTRY.pop("Twice")
