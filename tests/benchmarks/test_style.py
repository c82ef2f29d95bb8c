"""Marks of an unclear style: found in words, and not in code, examples and links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def style() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import style

        yield style
        sys.modules.pop("style")


@pytest.mark.parametrize(
    "text",
    [
        "Tell what it holds.",
        "It is empty, where a party fails.",
        "rows that are public",
        "a model of its own",
        "The rule asks for rows.",
        "Nobody looks.",
        "Fitted anew.",
    ],
)
def test_a_mark_is_found(style: Any, text: str) -> None:
    assert len(style.marks(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Return the rows, if a party has some.",
        "The place where rows lie.",
        "`what it says` and ``nobody``",
        "Sum.\n\n>>> says(nobody)",
        "```\nwhat it says\n```",
    ],
)
def test_plain_words_and_code_have_none(style: Any, text: str) -> None:
    assert style.marks(text) == []


def test_readme_and_titles_have_none(style: Any) -> None:
    assert style.marked_pages() == []
