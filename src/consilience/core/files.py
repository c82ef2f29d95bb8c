"""Write files and folders atomically, and never through a link.

A folder's content may come from a stranger: a run received by mail, a state from a backup. If it contains a
symbolic link under the name of a file to write or remove, another file of the user could be overwritten. A
file is therefore written under a new name and renamed, which replaces a link. A link that leads out of the
folder raises an error with the link's name.

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
"""Prefix of the name of an unfinished file; if one is found later, it is left over from a crash."""

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
    """Replace a file atomically: write a new one in the same folder, and rename it.

    Args:
        path: the file; its folder must exist.
        content: bytes, text, or a function that takes a path and writes the file there.
        sync: flush the content to disk before the rename, except within :func:`without_fsync`; for the name,
            call :func:`force` on the folder.
        mode: permissions, less the process's umask; they apply before any content is written.

    Raises:
        OSError: the file cannot be written; an earlier file is unchanged, and no partial file remains.
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
    """Create a folder atomically: fill a new one next to its place, and rename it.

    Args:
        folder: the folder; missing parents are created.
        fill: function that takes a folder's path and writes the files there.
        replace: replace an existing folder, which is deleted just before the rename; otherwise an existing
            folder is an error.

    Raises:
        OSError: the folder cannot be written, or exists; no partial folder has its name.
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
    """Create all files and folders in this block for the current user only: modes 0600 and 0700.

    This holds for any umask of the process, and for every writer: SQLite, a model's library, Flower, child
    processes. A party or a coordinator writes all its files in such a block. All threads share one umask, so
    that files created by other threads during the block are private too.
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
    """Create a folder and its parents for the current user only; an existing empty folder becomes private.

    Raises:
        OSError: the folder cannot be created.
    """
    with privately():
        folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        with suppress(PermissionError):  # another user's, such as a place that a disk is mounted at
            folder.chmod(0o700)


@contextmanager
def temporary_file() -> Iterator[Path]:
    """Provide a path for a file, which is deleted after the block and need not survive a power failure."""
    with TemporaryDirectory() as folder, without_fsync():
        yield Path(folder) / "file"


def force(path: Path) -> None:
    """Flush a file's content, or a folder's names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def inside(path: Path, folder: Path) -> Path:
    """Return the path, unless a link in it leads out of a folder.

    Args:
        path: path below the folder; it need not exist.
        folder: the folder, as the user chose it; it may be a link itself.

    Raises:
        RunFailed: a link leads out; the error names the link and its target.
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
    """Return the text of a settings or data file from a possibly untrusted source.

    Args:
        path: the file.
        most: maximum size in bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a regular file (a read might never end), is longer than ``most``, or is
            not UTF-8, with or without a byte order mark.
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
        stored: contents of the file: the format number under ``format`` and, if recorded, the version of its
            writer under ``consilience``.
        where: the file.
        anew: advice for a start without the file, as the end of a sentence.

    Raises:
        RunFailed: the file has another format number, or none.
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
    """Return the path of an SQLite file, if opening it cannot harm other files.

    A journal next to the file may end with the name of another journal. SQLite then deletes the file of that
    name when the database is opened. Our databases consist of one file each and never have such a journal.

    Raises:
        RunFailed: such a journal exists; or the file, or one of SQLite's companion files, is a link out of
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
