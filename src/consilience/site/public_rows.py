"""Public rows that a coordinator sent, in a party's folder: known by their digest, whole or not at all.

    home/public-rows/0123456789abcdef0123456789abcdef.safetensors
    home/public-sets.json       every set that was ever sent, and what was said of it

The name is the digest. A file has it once all of it is on the disk, and is never changed afterwards; when it
is read, the rows are held against it again, and those that are damaged are deleted: they are sent anew.

Whether rows are refused says a little of where the party's own lie. So each set is put down before it is held
against them, and what comes of it after: whoever sends it again is told the same, whatever happened between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError, RunFailed
from consilience.files import PART, force, inside, write_whole
from consilience.messages.replies import Public
from consilience.messages.wire import decode, encode
from consilience.tasks.base import TakePublic

FOLDER, SETS = "public-rows", "public-sets.json"

_SUFFIX = ".safetensors"


def kept_public(home: Path) -> tuple[str, ...]:
    """Digests of the rows that are kept, sorted."""
    return tuple(sorted(file.stem for file in (home / FOLDER).glob(f"[!.]*{_SUFFIX}")))


def read_public(home: Path, digest: str) -> Public | None:
    """The rows of a digest; ``None`` where they are not kept, or were damaged: then they are deleted."""
    path = _path(home, digest)
    if digest not in kept_public(home):  # a digest that was sent may be any text
        return None
    try:
        (task,) = decode(path.read_bytes())
        public: Public = task.rows()
        if public.key != digest:
            raise ValueError(f"they are {public.key}")
    except (OSError, ValueError, AttributeError, ConsilienceError):
        with suppress(OSError):
            path.unlink()
        return None
    return public


def write_public(home: Path, public: Public) -> None:
    """Keep rows under their digest, in the place of those that are kept under it.

    Raises:
        RunFailed: they cannot be written; nothing of them is left.
    """
    path = _path(home, public.key)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
            force(home)
        write_whole(path, encode([TakePublic.of(public)]), sync=True)
        force(path.parent)
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise _unwritten("the public rows", path, error) from error


def sweep_public(home: Path, keep: Container[str] | None = None) -> None:
    """Delete what a crash left half written; and the rows that ``keep`` does not name, where it is given."""
    for file in inside(home / FOLDER, home).glob("*"):
        stale = keep is not None and file.suffix == _SUFFIX and file.stem not in keep
        if stale or file.name.startswith(PART):
            with suppress(OSError):
                file.unlink()


def sent_sets(home: Path) -> dict[str, dict[str, Any]]:
    """Every set that was sent, by :func:`name_of_set`, and what was said of it; empty where nothing was yet.

    Raises:
        RunFailed: the record cannot be read. Nothing more is looked at then.
    """
    path = home / SETS
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        if not all(isinstance(said, dict) for said in found.values()):
            raise ValueError("it holds something else")
    except (OSError, ValueError, AttributeError) as error:
        raise RunFailed(
            f"the record of the public rows that were sent is damaged: {error}",
            where=str(path),
            mend="Restore it from a copy; without it their number is counted from 0.",
        ) from error
    return found


def write_sets(home: Path, sets: dict[str, dict[str, Any]]) -> None:
    """Put down which sets were sent, whole or not at all.

    Raises:
        RunFailed: it cannot be written; what was put down before still holds.
    """
    path = home / SETS
    try:
        write_whole(path, json.dumps(sets), sync=True)
        force(home)
    except OSError as error:
        raise _unwritten("the record of the public rows that were sent", path, error) from error


def name_of_set(public: Public) -> str:
    """What a set is counted by: a digest of the rows and of the names of their columns."""
    names = json.dumps([public.key, *public.columns])
    return hashlib.sha256(names.encode()).hexdigest()[:32]


def _path(home: Path, digest: str) -> Path:
    return home / FOLDER / f"{digest}{_SUFFIX}"


def _unwritten(what: str, path: Path, error: OSError) -> RunFailed:
    return RunFailed(
        f"{what} cannot be written ({error.strerror})",
        where=str(path),
        mend="Free some space or mend the permissions; they are sent again.",
    )
