"""Files of data sets: their folder, downloads with a checksum, and errors where they are missing."""

from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.validation.memory import check_memory, spare_memory

_LITTLE = 1 << 20
"""Bytes that are read without asking how much memory is left, which takes a millisecond."""


def data_home() -> Path:
    """Return the folder with one subfolder per dataset: ``CONSILIENCE_DATA``, or the platform's cache."""
    if named := os.environ.get("CONSILIENCE_DATA"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("consilience"))


def find(dataset: str, *names: str) -> Path | None:
    """Return the first of some files that a dataset's folder has; names may contain folders."""
    folder = data_home() / dataset
    return next((folder / name for name in names if (folder / name).is_file()), None)


def obtain(dataset: str, file: str, address: str, known_hash: str | None = None) -> Path:
    """Return a file of a dataset: from its folder, or downloaded into it and checked.

    Args:
        dataset: the folder's name under :func:`data_home`.
        file: the file's name.
        address: download address.
        known_hash: its published checksum, such as ``"md5:…"``. Without a checksum the file is not
            downloaded, because it cannot be verified; the user must fetch it.

    Returns:
        Path of the file.

    Raises:
        InvalidInput: the file is not there and could not be downloaded; the error names the folder and the
            download address.
    """
    if found := find(dataset, file):
        return found
    folder = data_home() / dataset
    mend = f"Get it from {address} and put it into that folder; CONSILIENCE_DATA names another."
    if known_hash is None:
        raise InvalidInput(f"{file} is not in {folder}", where=dataset, mend=mend)
    import pooch

    try:
        return Path(pooch.retrieve(address, known_hash, fname=file, path=folder))
    except (OSError, ValueError) as error:  # no network, no right to write, another checksum
        raise InvalidInput(
            f"{file} is not in {folder}, and downloading it failed ({_reason(error)})",
            where=dataset,
            mend=mend,
        ) from error


def read_bytes(path: Path) -> bytes:
    """Read all bytes of a file, unpacked if it is named ``.gz`` or ``.xz``.

    Raises:
        InvalidInput: it is damaged, or unpacks to more than there is memory for.
    """
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opened(path, "rb") as file:
            content: bytes = file.read(_LITTLE)
            if len(content) < _LITTLE:
                return content
            most = spare_memory() // 2
            content += file.read(max(0, most - _LITTLE))
            if file.read(1):
                raise damaged(
                    path, f"it has more than {most:,} bytes, half of the memory that is left"
                )
            return content
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise damaged(path, _first_line(error)) from error


def read_archive(path: Path) -> dict[str, bytes]:
    """Read all files of a tar archive into memory in one pass, without writing to disk.

    Returns:
        Name in the archive to content.

    Raises:
        InvalidInput: it is damaged, or unpacks to more than there is memory for.
    """
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(path) as packed:
            for member in packed:
                total += member.size
                check_memory(total, "what it holds", where=str(path))
                if stream := packed.extractfile(member):
                    found[member.name.removeprefix("./")] = stream.read()
        return found
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise damaged(path, _first_line(error)) from error


def damaged(path: Path | str, why: str) -> InvalidInput:
    """Make the error for an existing but unreadable file.

    Args:
        path: the file.
        why: the reason, in words.

    Returns:
        The error, to be raised by the caller.
    """
    return InvalidInput(
        f"the file is damaged or of another format ({why})",
        where=str(path),
        mend="Delete it and get it anew.",
    )


def _reason(error: Exception) -> str:
    line = _first_line(error)
    # urllib3 nests three errors into one line; all it says is that nobody answered.
    return "no answer: is there a network?" if "Max retries exceeded" in line else line


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
