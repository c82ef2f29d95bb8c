"""Files and folders that are written whole or not at all, and through no link.

What lies in a folder may be a stranger's: a run that came by mail, a state out of a backup. A symbolic link
in it, under a name that is about to be written or removed, would have another file of the user's overwritten.
So a file is filled as a new one and renamed, which replaces a link, and a link that leads out of the folder
is refused by name.

All stored files carry one format number (:data:`FORMAT`).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from consilience import __version__
from consilience.core.errors import RunFailed

FORMAT = 1
"""Format number of party states, run folders, ledgers, invitations and column schemas.

Raise it whenever the form of one of them changes. A file with another number is refused, so that no code has
to read older forms.
"""

PART = ".part-"
"""Begins the name of a file that is being written; where one is left, a crash left it."""

LONGEST = 1 << 24
"""Bytes of a file of settings or facts, such as a configuration."""

_forcing: ContextVar[bool] = ContextVar("forcing", default=True)

_sheltering = Lock()
_shelters = 0
"""How many blocks of :func:`privately` are entered, in whatever thread."""
_outside = 0
"""The process's umask before the first of them."""

_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal of SQLite's that names another (``writeSuperJournal`` in its ``pager.c``)."""


def write_whole(
    path: Path,
    content: bytes | str | Callable[[Path], object],
    *,
    sync: bool = False,
    mode: int = 0o666,
) -> None:
    """Put a file in the place of what is there: fill a new one beside it, and rename that.

    Args:
        path: the file; its folder is there.
        content: bytes, text, or a function that fills the file whose path it is given.
        sync: have the disk hold the content before the file has its name, but :func:`without_fsync`; for the
            name, :func:`force` the folder.
        mode: permissions, less the process's umask, from before anything is in the file.

    Raises:
        OSError: it cannot be written; what was there before still is, and nothing half.
    """
    part = path.with_name(PART + path.name)
    try:
        part.unlink(missing_ok=True)  # of a link the link alone
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if not callable(content):
                file.write(content.encode() if isinstance(content, str) else content)
        if callable(content):
            content(part)
        if sync and _forcing.get():
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write_folder(folder: Path, fill: Callable[[Path], object], *, replace: bool = False) -> None:
    """Make a folder whole or not at all: fill a new one beside its place, and rename that.

    Args:
        folder: the folder; those above it are made.
        fill: writes the files of the folder whose path it is given.
        replace: put it in the place of one that is there, which is deleted just before; else that is an
            error.

    Raises:
        OSError: it cannot be written, or is there; nothing half has its name.
    """
    # Two processes that make one folder must not fill the same one beside it.
    part = folder.with_name(f"{PART}{folder.name}{'' if replace else f'-{os.getpid()}'}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        fill(part)
        if replace:
            shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def without_fsync() -> Iterator[None]:
    """Have :func:`write_whole` not wait for the disk: no file of this block need outlive a power cut."""
    token = _forcing.set(False)
    try:
        yield
    finally:
        _forcing.reset(token)


@contextmanager
def privately() -> Iterator[None]:
    """Have all files and folders that are made in this block be their user's alone: modes 0600 and 0700.

    That holds whatever the process's umask is, and for whoever writes them: SQLite, a model's own library,
    Flower, processes that are started. All that a party or a coordinator writes is written in such a block.
    The umask is one for all threads, so files that others make meanwhile are private too.
    """
    global _shelters, _outside
    with _sheltering:
        if not _shelters:
            _outside = os.umask(0o077)
        _shelters += 1
    try:
        yield
    finally:
        with _sheltering:
            _shelters -= 1
            if not _shelters:
                os.umask(_outside)


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it, for this user alone; one that is there and empty becomes so.

    Raises:
        OSError: it cannot be made.
    """
    with privately():
        folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        with suppress(PermissionError):  # another user's, such as a place that a disk is mounted at
            folder.chmod(0o700)


@contextmanager
def temporary_file() -> Iterator[Path]:
    """Give the path of a file that is deleted after the block, and need not outlive a power cut."""
    with TemporaryDirectory() as folder, without_fsync():
        yield Path(folder) / "file"


def force(path: Path) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def inside(path: Path, folder: Path) -> Path:
    """The path, unless a link on its way leads out of a folder.

    Args:
        path: below the folder; it need not exist.
        folder: the user's own word, so that it may be a link itself.

    Raises:
        RunFailed: a link leads out; names it, and what it points at.
    """
    place, real = folder, os.path.realpath(folder)
    for part in path.relative_to(folder).parts:
        place = place / part
        if place.is_symlink() and not Path(os.path.realpath(place)).is_relative_to(real):
            raise RunFailed(
                f"it is a link to {os.readlink(place)}, out of {folder}",
                where=str(place),
                mend="Nothing is written or removed through it: delete the link, or put what it points at "
                "in its place.",
            )
    return path


def without_links(folder: Path) -> Path:
    """The folder, unless something in it is a link out of it; what lies deeper is not looked at.

    Raises:
        RunFailed: as :func:`inside`.
    """
    for path in folder.iterdir():
        inside(path, folder)
    return folder


def read_text(path: Path, most: int = LONGEST) -> str:
    """The text of a file of settings or facts, which a stranger may have written.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, whose reading need not end; longer than ``most``; or not UTF-8,
            with or without a byte order mark.
    """
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise ValueError("it is no regular file")
    if found.st_size > most:
        raise ValueError(f"it has {found.st_size:,} bytes, of at most {most:,}")
    with path.open("rb") as file:
        return file.read(most).decode("utf-8-sig")


def check_format(stored: Mapping[str, object], where: Path, *, anew: str) -> None:
    """Raise an error unless a stored file has the format that this version reads and writes.

    Args:
        stored: contents of the file: its number under ``format``, and the version that wrote it under
            ``consilience``, if the file records that.
        where: the file.
        anew: advice for starting without the file, the end of a sentence.

    Raises:
        RunFailed: it has another number, or none.
    """
    found, writer = stored.get("format"), stored.get("consilience")
    if type(found) is int and found == FORMAT:  # True equals 1 too
        return
    number = f"{found}"[:20] if type(found) is int else "missing"
    # This version's own number tells nothing: it has had other revisions.
    known = isinstance(writer, str) and writer != __version__
    version = str(writer)[:20] if known else "in the revision that wrote it"
    raise RunFailed(
        f"its format number is {number}, and this version of consilience reads format {FORMAT} alone",
        where=str(where),
        mend=f"Go on with it by consilience {version}; or {anew}.",
    )


def database(path: Path) -> Path:
    """The path of an SQLite file, if it can be opened without harm to others.

    A journal beside it may end with the name of another one, which SQLite deletes when the file is opened,
    whatever it is. Ours, of one file each, never do.

    Raises:
        RunFailed: there is such a journal; or the file, or one that SQLite keeps beside it, is a link out of
            its folder.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        inside(path.with_name(path.name + suffix), path.parent)
    journal = path.with_name(f"{path.name}-journal")
    with suppress(FileNotFoundError), journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
        if file.read() == _NAMES_ANOTHER:
            raise RunFailed(
                f"this journal has SQLite delete another file when {path.name} is opened",
                where=str(journal),
                mend=f"No run writes such a one: delete it; {path.name} stays as it is.",
            )
    return path
