"""Modes of what is written below a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have this process, and those that it starts, make files under another umask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        assert os.umask(before) == mask  # nobody left another one


def open_to_others(folder: Path, *, but: tuple[str, ...] = ()) -> list[str]:
    """Name the files and folders at and below one that another user may read, write or enter.

    Args:
        folder: the folder.
        but: names of files that the test itself wrote.
    """
    found = []
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077 and path.name not in but:
            found.append(f"{path.relative_to(folder)} {stat.S_IMODE(mode):04o}")
    return found
