"""Check that a file exists and fits into memory, before it is read."""

from __future__ import annotations

from pathlib import Path

from consilience.core.errors import InvalidInput
from consilience.core.validation.memory import check_memory


def check_is_file(path: Path) -> None:
    """Raise ``InvalidInput`` unless there is a file at the path."""
    if path.is_dir():
        raise InvalidInput("this is a folder, and a file is wanted", where=str(path))
    if not path.is_file():
        raise InvalidInput(f"there is no such file (in {path.parent.resolve()})", where=str(path))


def check_unpacked_size(needed: int, rows: int, path: Path) -> None:
    """Raise ``InvalidInput`` if a file unpacks to more than there is memory for.

    Args:
        needed: bytes.
        rows: that it declares.
        path: the file.
    """
    mend = "Give fewer rows or columns; a file may be much larger unpacked than it is on the disk."
    check_memory(needed, f"its {rows:,} rows", where=str(path), mend=mend)
