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
        ({}, {"circles": {"value": 3, "goal": 0, "counts": "types too"}}, []),
        ({}, {"circles": {"value": 2, "goal": 1}}, ["structure.toml raises the goal of circles"]),
    ],
)
def test_a_worse_figure_is_named(
    structure: Any, found: dict[str, int], now: dict[str, Any], told: list[str]
) -> None:
    assert structure.faults(found, KEPT | now, KEPT) == told


def test_decisions_on_a_task_are_found_in_all_their_forms(structure: Any) -> None:
    """Eight of them at a site; none in the folder that defines the task, and none on another type."""
    task = "class Fit(Task, reply_type=Receipt): pass\n"
    decisions = """
isinstance(task, Fit); isinstance(task, Fit | Other); issubclass(kind, (Other, Fit)); type(task) is Fit
type(task).__name__ == "Fit"; isinstance(task, Other); isinstance(task, GROUP); kinds == [Fit]
GROUP = (Other, Fit)
match task:
    case Fit(): pass
"""
    library = structure.LIBRARY
    trees = {
        library / "methods/x/tasks.py": ast.parse(task + decisions),
        library / "sites/party/limits.py": ast.parse(decisions),
    }
    found = list(structure._decisions(trees))
    assert len(found) == 8 and all(place.startswith("sites/party/limits.py") for place in found)


def test_lines_of_code_leave_out_docstrings_comments_and_blanks(
    structure: Any, tmp_path: Path
) -> None:
    file = tmp_path / "one.py"
    file.write_text('"""Two\nlines."""\n\n# why\ndef f():\n    """Says."""\n    return 1  # here\n')
    assert structure._code_lines(file, ast.parse(file.read_text())) == 2


def test_a_party_is_written_to_outside_its_folder(structure: Any) -> None:
    """Whatever it is called; also an item of an attribute, and what a base of it in another folder sets."""
    library = structure.LIBRARY
    trees = {
        library / "core/party/party.py": ast.parse(
            "class Party(Guarded):\n def __init__(self): self.home, self.memory = None, {}"
        ),
        library / "privacy/party.py": ast.parse("class Guarded:\n def f(self): self.noise = 1"),
        library / "sites/party/site.py": ast.parse(
            "party.home, x = 1, 2\nself.member.memory['a'] = 3\nother.noise = 4\nself.home = 5\nparty.odd = 6"
        ),
    }
    found = [place.split()[-1] for place in structure._written_elsewhere(trees)]
    assert found == ["noise", "home", "memory", "noise"]


def test_imports_by_name_count(structure: Any) -> None:
    lines = (
        "from consilience import Party, __version__",
        "import_module('consilience.sites.party')",
        "importlib.import_module('consilience.core.files')",
    )
    tree = ast.parse("\n".join(lines))
    found = list(structure._imported_by_name({structure.LIBRARY / "core/files.py": tree}))
    assert [place.split()[-1] for place in found] == ["Party", "consilience.sites.party"]


def test_the_whole_history_is_read(structure: Any) -> None:
    history = structure.committed()
    assert all("lines_of_code" in one for one in history)
