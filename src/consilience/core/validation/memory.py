"""Checks of free memory, so that work that would not fit is refused before it starts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from consilience.core.errors import InvalidInput

_GROUPS = Path("/sys/fs/cgroup")

_LITTLE = 1 << 26
"""Number of bytes below which the free memory is not checked, as the check takes a millisecond."""


def spare_memory() -> int:
    """Return the bytes of free memory: the minimum over the system and the process's control groups."""
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
    """Return the bytes left under a control group's limit, reclaimable cache included; empty if unlimited."""
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
        needed: required bytes, computed from declared sizes, shapes and numbers of rows.
        what: description of the object that needs the memory.
        where: the file, field or party.
        mend: advice for the user.
    """
    if needed > _LITTLE and needed > (left := spare_memory()):
        raise InvalidInput(
            f"{what} would take {needed / 1e9:,.1f} GB of memory, and {left / 1e9:,.1f} GB are left",
            where=where,
            mend=mend,
        )
