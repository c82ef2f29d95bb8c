"""Checks of free memory, so that work that would not fit is refused before it starts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from consilience.core.errors import InvalidInput

_GROUPS = Path("/sys/fs/cgroup")

_LITTLE = 1 << 26
"""Bytes that are taken without asking what is left, which takes a millisecond."""


def spare_memory() -> int:
    """Return the bytes of memory that are free, on the system or in a control group, if that has fewer."""
    left = [sys.maxsize]
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: Windows
        left.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        known = next(line for line in lines if line.startswith("MemAvailable:"))
        left.append(int(known.split()[1]) * 1024)
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, group = line.split(":", 2)
            place = _GROUPS / kinds / group.lstrip("/")
            for folder in (place, *place.parents):
                left += _left_in(folder)
    return min(left)


def _left_in(group: Path) -> list[int]:
    """Bytes that a control group still allows, less what it uses and the system cannot take back."""
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):  # "max": no limit
            most = int((group / limit).read_text())
            taken = int((group / used).read_text())
            facts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            return [max(0, most - taken + int(facts.get(cached, 0)))]
    return []


def check_memory(needed: int, what: str, *, where: str, mend: str | None = None) -> None:
    """Raise ``InvalidInput`` if something needs more memory than is left.

    Args:
        needed: bytes, by what was declared: sizes, shapes, numbers of rows.
        what: the thing that needs them, in words.
        where: the file, field or party.
        mend: a remedy.
    """
    if needed > _LITTLE and needed > (left := spare_memory()):
        raise InvalidInput(
            f"{what} would take {needed / 1e9:,.1f} GB of memory, and {left / 1e9:,.1f} GB are left",
            where=where,
            mend=mend,
        )
