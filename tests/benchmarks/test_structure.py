"""The ratchet of the structure: a worse figure fails, and so does a raised one without a reason."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def structure() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import structure

        yield structure
        sys.modules.pop("structure")


KEPT = {"lines": {"value": 10, "goal": 5}, "circles": {"value": 2, "goal": 0}}


@pytest.mark.parametrize(
    ("found", "now", "told"),
    [
        ({"lines": 10, "circles": 2}, {}, []),
        ({"lines": 9, "circles": 0}, {}, []),
        ({"lines": 11, "circles": 2}, {}, ["lines is 11, and structure.toml has 10"]),
        ({"lines": 11, "circles": 2}, {"lines": {"value": 11, "goal": 5, "reason": "x"}}, []),
        (
            {"lines": 11, "circles": 2},
            {"lines": {"value": 11, "goal": 5}},
            ["structure.toml raises lines without a new reason"],
        ),
        (
            {"lines": 10, "circles": 3},
            {"circles": {"value": 3, "goal": 0, "reason": "x"}},
            ["structure.toml raises circles, whose goal is 0"],
        ),
    ],
)
def test_a_worse_figure_is_named(
    structure: Any, found: dict[str, int], now: dict[str, Any], told: list[str]
) -> None:
    assert structure.faults(found, KEPT | now, KEPT) == told


def test_decisions_on_a_task_are_found_in_all_their_forms(structure: Any) -> None:
    """Six of them at a site; none in the folder that defines the task, and none on another type."""
    task = "class Fit(Task, reply_type=Receipt): pass\n"
    decisions = """
isinstance(task, Fit); isinstance(task, Fit | Other); issubclass(kind, (Other, Fit)); type(task) is Fit
type(task).__name__ == "Fit"; isinstance(task, Other)
match task:
    case Fit(): pass
"""
    library = structure.LIBRARY
    trees = {
        library / "methods/x/tasks.py": ast.parse(task + decisions),
        library / "sites/party/limits.py": ast.parse(decisions),
    }
    found = list(structure._decisions(trees))
    assert len(found) == 6 and all(place.startswith("sites/party/limits.py") for place in found)


def test_lines_of_code_leave_out_docstrings_comments_and_blanks(
    structure: Any, tmp_path: Path
) -> None:
    file = tmp_path / "one.py"
    file.write_text('"""Two\nlines."""\n\n# why\ndef f():\n    """Says."""\n    return 1  # here\n')
    assert structure._code_lines(file, ast.parse(file.read_text())) == 2


def test_a_party_is_written_to_outside_its_folder(structure: Any) -> None:
    tree = ast.parse("party.home = 1\nself.party.public, x = 2, 3\nother.home = 4\nparty.x.y = 5\n")
    found = list(structure._written(structure.LIBRARY / "sites/party/site.py", tree))
    assert [place.split()[-1] for place in found] == ["party.home", "self.party.public"]
    assert not list(structure._written(structure.LIBRARY / "core/party/party.py", tree))
