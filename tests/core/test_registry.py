"""Registries: read once, when they are first used, from what packages register."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from consilience.core import registry
from consilience.core.errors import InvalidInput
from consilience.core.registry import Registry, registered_modules


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points that a test sets."""
    found: list[EntryPoint] = []
    monkeypatch.setattr(
        registry, "entry_points", lambda *, group: EntryPoints(found).select(group=group)
    )
    registered_modules.cache_clear()
    yield found
    registered_modules.cache_clear()


def test_modules_come_in_the_order_of_their_names_and_a_name_once(points: list[EntryPoint]) -> None:
    points += [
        EntryPoint("b", "json", "ours"),
        EntryPoint("a", "math", "ours"),
        EntryPoint("b", "json", "ours"),
        EntryPoint("c", "string", "of another"),
    ]
    assert [one.__name__ for one in registered_modules("ours")] == ["math", "json"]


def test_a_library_that_is_not_installed_is_told_so(points: list[EntryPoint]) -> None:
    with pytest.raises(InvalidInput, match="registers anything under ours") as raised:
        registered_modules("ours")
    assert "pip install" in str(raised.value)


def test_a_registry_is_made_when_it_is_first_read_and_once() -> None:
    made = []
    numbers = Registry(lambda: made.append("read") or {"one": 1, "two": 2})
    assert not made
    assert (numbers["two"], list(numbers), len(numbers), "three" in numbers) == (
        2,
        ["one", "two"],
        2,
        False,
    )
    assert made == ["read"] and repr(numbers) == "Registry(one, two)"
