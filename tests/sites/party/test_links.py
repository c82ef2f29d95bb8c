"""A state folder with links in it, as out of somebody else's backup: nothing outside is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from consilience.core.errors import RunFailed
from consilience.sites.party import PartySite
from helpers.party_sites import one_party, requests


@pytest.mark.parametrize("name", ["lock", "public-rows", "audit.jsonl", "current"])
def test_a_link_out_of_the_state_is_refused(tmp_path: Path, name: str) -> None:
    home, others = tmp_path / "state", tmp_path / "others"
    others.mkdir()
    for file in (others / "thesis.part", others / ".part-thesis"):
        file.write_text("years of work")
    home.mkdir()
    (home / name).symlink_to(others if name == "public-rows" else others / "thesis.part")
    with pytest.raises(RunFailed, match=f"state/{name}: it is a link to"):
        PartySite(one_party, home)
    assert [file.read_text() for file in others.iterdir()] == ["years of work"] * 2


def test_a_link_under_the_name_of_what_is_being_written_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "state"
    home.mkdir()
    (home / "own").write_text("its own notes")
    for name in ("current.part", ".part-current", "audit.part", ".part-audit.next"):
        (home / name).symlink_to("own")
    with PartySite(one_party, home) as site:
        for request in requests(1)[:2]:
            site.answer(request)
    assert (home / "own").read_text() == "its own notes"
