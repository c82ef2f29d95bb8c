"""Files are written whole or not at all, and nothing of the user's is reached through a link."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from consilience.core.errors import RunFailed
from consilience.core.files import (
    LONGEST,
    PART,
    database,
    inside,
    read_text,
    temporary_file,
    without_fsync,
    without_links,
    write_folder,
    write_whole,
)

PRECIOUS = "what the user wrote"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user's, outside of the folder ``run``."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "precious.txt"
    path.write_text(PRECIOUS)
    return path


def filled(part: Path) -> None:
    part.write_text("new")


@pytest.mark.parametrize("content", ["new", b"new", filled])
@pytest.mark.parametrize("name", ["page.html", f"{PART}page.html"])
def test_nothing_is_written_through_a_link(
    precious: Path, content: str | bytes | Callable[[Path], None], name: str
) -> None:
    run = precious.parent / "run"
    (run / name).symlink_to(precious)
    write_whole(run / "page.html", content)
    assert precious.read_text() == PRECIOUS
    assert (run / "page.html").read_text() == "new" and not (run / "page.html").is_symlink()
    assert [path.name for path in run.iterdir()] == ["page.html"]


def test_of_a_failure_nothing_is_left(tmp_path: Path) -> None:
    def fails(part: Path) -> None:
        part.write_text("half")
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "page.html", "old")
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "page.html", fails)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_secret_is_nobody_elses_from_the_first_byte(tmp_path: Path) -> None:
    modes = []
    write_whole(
        tmp_path / "key", lambda part: modes.append(part.stat().st_mode & 0o777), mode=0o600
    )
    assert [*modes, (tmp_path / "key").stat().st_mode & 0o777] == [0o600, 0o600]


def test_what_is_forced_to_the_disk_is_so_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: said.append("forced"))
    monkeypatch.setattr(os, "replace", lambda *names: (said.append("named"), replace(*names)))
    write_whole(tmp_path / "a", "a", sync=True)
    write_whole(tmp_path / "b", "b")
    assert said == ["forced", "named", "named"]


def test_a_link_out_of_a_folder_is_named(precious: Path) -> None:
    run = precious.parent / "run"
    (run / "plots").symlink_to(precious.parent)
    with pytest.raises(
        RunFailed, match=r"run/plots: it is a link to .*, out of .*\n.*delete"
    ) as failed:
        inside(run / "plots" / "rounds.svg", run)
    assert failed.value.where == str(run / "plots")
    with pytest.raises(RunFailed, match="it is a link to"):
        without_links(run)


def test_a_folder_may_be_a_link_itself_and_hold_links_to_its_own(precious: Path) -> None:
    run, link = precious.parent / "run", precious.parent / "link"
    link.symlink_to(run)
    (run / "figures").mkdir()
    (run / "plots").symlink_to("figures")
    assert inside(link / "plots" / "rounds.svg", link) == link / "plots" / "rounds.svg"
    assert without_links(link) == link


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plots").symlink_to("plots")
    with pytest.raises((RunFailed, OSError)):
        write_whole(inside(tmp_path / "run" / "plots", tmp_path / "run") / "a", "a")


def test_reading_comes_to_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(LONGEST + 1)
    for name in ("pipe", "zeros"):
        with pytest.raises(ValueError, match="no regular file"):
            read_text(tmp_path / name)
    with pytest.raises(ValueError, match="16,777,217 bytes, of at most 16,777,216"):
        read_text(tmp_path / "long")


def journal(path: Path, victim: Path) -> None:
    """A journal of SQLite's that has it delete a file when it next opens ``path``."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim.absolute())

    def words(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "big") for number in numbers)

    header = (magic + words(0, 7, path.stat().st_size // 4096, 512, 4096)).ljust(512, b"\0")
    end = words(0x40000000 // 4096 + 1) + name + words(len(name), sum(name)) + magic
    path.with_name(f"{path.name}-journal").write_bytes(header + end)


def test_a_journal_can_delete_a_file_and_is_not_played_back(precious: Path) -> None:
    path = precious.parent / "run" / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (x)")
    journal(path, precious)
    with pytest.raises(RunFailed, match=r"ledger.sqlite-journal: .*has SQLite delete another"):
        database(path)
    with closing(sqlite3.connect(path)) as opened:  # so that it is one
        opened.execute("SELECT * FROM t")
    assert not precious.exists()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_database_is_not_reached_through_links(precious: Path, suffix: str) -> None:
    run = precious.parent / "run"
    (run / f"ledger.sqlite{suffix}").symlink_to(precious)
    with pytest.raises(RunFailed, match="it is a link to"):
        database(run / "ledger.sqlite")


def test_a_folder_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    def half(part: Path) -> None:
        (part / "first").write_text("new")
        raise OSError(28, "No space left on device")

    def whole(part: Path) -> None:
        (part / "second").write_text("new")

    with pytest.raises(OSError, match="No space"):
        write_folder(tmp_path / "above" / "run", half)
    assert list((tmp_path / "above").iterdir()) == []
    write_folder(tmp_path / "run", whole)
    with pytest.raises(OSError, match="not empty"):
        write_folder(tmp_path / "run", whole)
    with pytest.raises(OSError, match="No space"):
        write_folder(tmp_path / "run", half, replace=True)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["second"]
    write_folder(tmp_path / "run", lambda part: None, replace=True)
    assert list((tmp_path / "run").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["above", "run"]


@pytest.mark.parametrize("replace", [False, True])
def test_no_folder_is_made_through_a_link(precious: Path, replace: bool) -> None:
    target, link = precious.parent / "run", precious.parent / "link"
    (target / "mine").write_text(PRECIOUS)
    link.symlink_to(target)
    with pytest.raises(OSError, match="directory"):
        write_folder(link, lambda part: None, replace=replace)
    assert (target / "mine").read_text() == PRECIOUS


def test_the_disk_is_waited_for_but_in_a_block_that_says_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = []
    monkeypatch.setattr(os, "fsync", forced.append)
    with temporary_file() as path:
        write_whole(path, "new", sync=True)
    with without_fsync():
        write_whole(tmp_path / "page.html", "new", sync=True)
    assert not path.exists() and forced == []
    write_whole(tmp_path / "page.html", "new", sync=True)
    assert len(forced) == 1
