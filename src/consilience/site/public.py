"""Public rows that a coordinator sent, in a party's folder: known by their digest, whole or not at all.

    home/public-rows/0123456789abcdef.safetensors

The name is the digest. A file has it once all of it is on the disk, and is never changed afterwards; when it
is read, the rows are held against it again.
"""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from consilience.errors import ConsilienceError, RunFailed
from consilience.knowledge import Public
from consilience.site.state import force
from consilience.tasks import TakePublic
from consilience.wire import decode, encode

FOLDER = "public-rows"

_SUFFIX, _PART = ".safetensors", ".part"


def kept_public(home: Path) -> tuple[str, ...]:
    """Digests of the rows that are kept, sorted."""
    return tuple(sorted(file.stem for file in (home / FOLDER).glob(f"*{_SUFFIX}")))


def read_public(home: Path, digest: str) -> Public:
    """The rows of a digest that :func:`kept_public` names.

    Raises:
        RunFailed: they are damaged.
    """
    path = _path(home, digest)
    try:
        (task,) = decode(path.read_bytes())
        public: Public = task.rows()
        if public.key != digest:
            raise ValueError(f"they are {public.key}")
    except (OSError, ValueError, AttributeError, ConsilienceError) as error:
        raise RunFailed(
            f"the public rows are damaged: {error}",
            where=str(path),
            mend="Delete the file and have the run started anew: they are sent again.",
        ) from error
    return public


def write_public(home: Path, public: Public) -> None:
    """Keep rows under their digest, where they are not kept yet.

    Raises:
        RunFailed: they cannot be written; nothing of them is left.
    """
    path = _path(home, public.key)
    part = path.with_suffix(_PART)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
            force(home)
        part.write_bytes(encode([TakePublic.of(public)]))
        force(part)
        os.replace(part, path)
        force(path.parent)
    except OSError as error:
        for file in (part, path):
            with suppress(OSError):
                file.unlink(missing_ok=True)
        raise RunFailed(
            f"the public rows cannot be written ({error.strerror})",
            where=str(path),
            mend="Free some space or mend the permissions; they are sent again.",
        ) from error


def sweep_public(home: Path, keep: Container[str] | None = None) -> None:
    """Delete what a crash left half written; and the rows that ``keep`` does not name, where it is given."""
    for file in (home / FOLDER).glob("*"):
        stale = keep is not None and file.suffix == _SUFFIX and file.stem not in keep
        if stale or file.suffix == _PART:
            with suppress(OSError):
                file.unlink()


def _path(home: Path, digest: str) -> Path:
    return home / FOLDER / f"{digest}{_SUFFIX}"
