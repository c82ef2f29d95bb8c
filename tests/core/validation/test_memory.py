"""Memory that is left within a control group."""

from __future__ import annotations

from pathlib import Path

from consilience.core.validation.memory import _left_in


def test_a_group_allows_its_limit_less_what_it_uses(tmp_path: Path) -> None:
    """But for pages of files, which the system takes back."""
    (tmp_path / "memory.max").write_text("8000\n")
    (tmp_path / "memory.current").write_text("7900\n")
    (tmp_path / "memory.stat").write_text("anon 7400\ninactive_file 500\n")
    assert _left_in(tmp_path) == [600]
    (tmp_path / "memory.max").write_text("max\n")
    assert _left_in(tmp_path) == []
