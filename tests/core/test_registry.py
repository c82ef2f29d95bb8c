"""Registries: read once, when they are first used, from what packages register."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from consilience.core import registry
from consilience.core.errors import InvalidInput
from consilience.core.registry import (
    Registry,
    named,
    registered_modules,
    registered_names,
    registered_object,
)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points that a test sets."""
    found: list[EntryPoint] = []
    monkeypatch.setattr(
        registry, "entry_points", lambda *, group: EntryPoints(found).select(group=group)
    )
    cached = (registered_modules, registered_names, registered_object, registry._points)
    for function in cached:
        function.cache_clear()
    yield found
    for function in cached:
        function.cache_clear()


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


def test_two_packages_with_one_name_are_refused(points: list[EntryPoint]) -> None:
    points += [EntryPoint("mine", "json", "ours"), EntryPoint("mine", "math", "ours")]
    with pytest.raises(InvalidInput, match="two packages register mine") as raised:
        registered_names("ours")
    assert "json" in str(raised.value) and "math" in str(raised.value)


def test_a_package_that_cannot_be_imported_is_named(points: list[EntryPoint]) -> None:
    """Others of the group that are asked for by name are there all the same."""
    points += [EntryPoint("bad", "no_such_module", "ours"), EntryPoint("good", "math:pi", "ours")]
    assert registered_names("ours") == ("bad", "good") and registered_object("ours", "good") > 3
    with pytest.raises(InvalidInput, match="no package registers 'none' under ours"):
        registered_object("ours", "none")
    with pytest.raises(InvalidInput, match="no_such_module cannot be imported") as raised:
        registered_object("ours", "bad")
    assert "entry point bad of ours" in str(raised.value)


def test_two_entries_of_one_name_are_refused() -> None:
    rule = object()
    assert named([("a", rule), ("a", rule)], what="rule") == {"a": rule}
    with pytest.raises(InvalidInput, match="two rules are called 'a'"):
        named([("a", rule), ("a", object())], what="rule")


def test_a_broken_package_takes_no_command_away(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[consilience.commands]\nmine = no_such_module:plug_in\n"
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("consilience")), "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("consilience ")
    assert "package broken" in done.stderr and "Traceback" not in done.stderr
