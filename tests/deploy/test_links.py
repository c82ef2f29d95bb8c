"""Folders of a coordinator or a party with links in them: no other file of the user's is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from consilience.core.errors import RunFailed
from consilience.sites.coordinator.checks import check_start
from consilience.sites.coordinator.configuration import (
    read_coordinator,
    store_coordinator,
    stored_coordinator,
)
from consilience.sites.operations.certificates import make_key
from consilience.sites.operations.processes import Processes
from consilience.sites.party.process import write_programs


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    (tmp_path / "precious").write_text("years of work")
    return tmp_path / "precious"


def test_a_run_elsewhere_is_not_started(center: Path, precious: Path) -> None:
    (center / "run").symlink_to(precious.parent)
    with pytest.raises(RunFailed, match="center/run: it is a link to"):
        check_start(center)
    (center / "run").unlink()
    (center / "run").mkdir()
    (center / "run" / "log").symlink_to(precious)
    with pytest.raises(RunFailed, match="run/log: it is a link to"):
        check_start(center)


def test_what_is_kept_is_written_through_no_link(center: Path, precious: Path) -> None:
    spec, run = read_coordinator(center), center / "run"
    run.mkdir()
    for name in ("config.json", "config.part", ".part-config.json"):
        (run / name).symlink_to(precious)
    store_coordinator(spec, center)
    assert precious.read_text() == "years of work" and stored_coordinator(center) == spec


def test_keys_and_programs_are_written_through_no_link(tmp_path: Path, precious: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    for name in ("party.key.pub", "party.key.part", "flower-superexec"):
        (written / name).symlink_to(precious)
    make_key(written / "party.key", "north")
    write_programs(written)
    assert precious.read_text() == "years of work" and not precious.stat().st_mode & 0o100
    assert (written / "flower-superexec").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["lock", "superlink.log", "home"])
def test_processes_do_not_work_through_links(tmp_path: Path, precious: Path, name: str) -> None:
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / name).symlink_to(precious)
    with pytest.raises(RunFailed, match=f"flower/{name}: it is a link to"):
        Processes(tmp_path / "flower", "the test")
