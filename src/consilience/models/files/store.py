"""Store fitted estimators on disk with skops, without pickle and without reading code from a file."""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import write_whole
from consilience.core.validation.memory import check_memory
from consilience.models.files.vetting import (
    PACKAGES,
    found_at,
    plain,
    refused,
    skops_io,
    unsound,
    vetted,
)

__all__ = ["PACKAGES", "blob_of", "dump", "model_digest", "plain", "read", "write_model"]


def write_model(path: Path, content: bytes | Callable[[Path], object]) -> None:
    """Write a model's file whole or not at all, as :func:`consilience.core.files.write_whole` does.

    Raises:
        RunFailed: the file cannot be written (full disk, no such folder, no permission).
    """
    try:  # a power cut must not leave a name without its bytes
        write_whole(path, content, sync=True)
    except (OSError, SafetensorError) as error:  # the latter is safetensors' name for a full disk
        raise RunFailed(
            f"the model cannot be written: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            mend="Free some space or give another folder; the run can be resumed.",
        ) from error


def dump(state: dict[str, Any], path: Path, *, given: object, where: str) -> None:
    """Write ``state`` (numbers, arrays, estimators) to ``path``.

    Args:
        state: numbers, arrays, estimators.
        path: the file, usually ending in ``.skops``.
        given: the object that the user gave as model; its own types count as trusted.
        where: the learner, for messages.

    Raises:
        InvalidInput: the model holds something that cannot be written safely.
        RunFailed: the file cannot be written.
    """
    write_model(path, blob_of(state, given=given, where=where))


def blob_of(state: dict[str, Any], *, given: object, where: str) -> bytes:
    """Serialise ``state`` to the bytes that :func:`dump` writes.

    Args:
        state: numbers, arrays, estimators.
        given: the object that the user gave as model; its own types count as trusted.
        where: the learner, for messages.

    Raises:
        InvalidInput: the model holds something that cannot be written safely.
    """
    skops = skops_io()
    mend = (
        "Keep the fitted state in plain attributes (numbers, strings, lists, arrays, scikit-learn "
        "objects), and functions at the top level of a module."
    )
    try:
        blob = _without_padding(skops.dumps(state))
        unsafe = refused(blob, known=_names_in(given))
    except Exception as error:  # skops raises many kinds for what it does not know
        raise InvalidInput(
            f"the model cannot be saved: {_first_line(error)}", where=where, mend=mend
        ) from error
    if unsafe:
        raise InvalidInput(
            f"the model cannot be saved safely, it holds {', '.join(unsafe)}",
            where=where,
            mend=mend,
        )
    return bytes(blob)


def read(path: Path, *, given: object, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Read what :func:`dump` wrote.

    Args:
        path: the file.
        given: the object that the caller has already; its own types count as trusted.
        packages: packages whose classes may be built too (:mod:`consilience.models.files.vetting`).

    Raises:
        RunFailed: there is no such file, or it is damaged or foreign.
    """
    skops = skops_io()
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # whose reading need not end
            raise ValueError("it is no regular file")
        check_memory(found.st_size, "the model file", where=str(path))
        blob = path.read_bytes()
        unsafe, names = vetted(blob, known=_names_in(given), packages=packages)
        if not unsafe:
            state = skops.loads(blob, trusted=names)
            fault = unsound(state)
    except FileNotFoundError as error:
        raise RunFailed("there is no such model file", where=str(path)) from error
    except Exception as error:  # a damaged file can fail anywhere in zip, JSON, NumPy or skops
        raise RunFailed(
            f"the model file is damaged: {_first_line(error)}", where=str(path)
        ) from error
    if unsafe:
        raise RunFailed(f"the model file holds {', '.join(unsafe)}", where=str(path))
    if fault:
        raise RunFailed(f"the model file holds {fault}", where=str(path))
    if not isinstance(state, dict):
        raise RunFailed("the model file is not one of ours", where=str(path))
    return state


def _names_in(given: Any) -> set[str]:
    parts: list[Any] = [given]
    if hasattr(given, "get_params") and not isinstance(given, type):
        parts += given.get_params(deep=True).values()
    # Classes and functions that the user gave as parameters count as they are.
    named = [part if hasattr(part, "__qualname__") else type(part) for part in parts]
    names = {f"{part.__module__}.{part.__name__}": part for part in named}
    # Lambdas and classes made inside a function could be written, but never found again.
    return {name for name, part in names.items() if found_at(name) is part}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _without_padding(blob: bytes) -> bytes:
    """Fill the padding between the fields of record arrays, such as a tree's nodes, with zeros.

    The padding holds earlier contents of the process's memory, which may include private rows. It also
    differs between two trainings of the same model.
    """
    with zipfile.ZipFile(io.BytesIO(blob)) as file:
        parts = {one.filename: file.read(one) for one in file.infolist()}
    records = [name for name, part in parts.items() if b"'descr': [" in part[:128]]
    if not records:
        return blob
    for name in records:
        given = np.load(io.BytesIO(parts[name]), allow_pickle=False)
        fields = np.zeros(given.shape, given.dtype)  # zeros_like leaves the rest as it was
        for field in given.dtype.names:
            fields[field] = given[field]
        written = io.BytesIO()
        np.save(written, fields, allow_pickle=False)
        parts[name] = written.getvalue()
    filled = io.BytesIO()
    with zipfile.ZipFile(filled, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return filled.getvalue()


def model_digest(path: Path) -> str:
    """Compute the SHA-256 digest of a model file's content, which is the same each time a model is saved.

    skops names the parts of a file by memory addresses, which differ between runs and carry no
    information. For a file in another format, the digest is of all its bytes.

    Returns:
        64 hexadecimal digits.
    """
    whole = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(whole)) as file:
            stored = all(one.compress_type == zipfile.ZIP_STORED for one in file.infolist())
            parts = {name: file.read(name) for name in file.namelist()} if stored else {}
        schema = parts.pop("schema.json").decode()
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError):
        return sha256(whole).hexdigest()
    digests = {name: sha256(part).hexdigest() for name, part in parts.items()}
    schema = re.sub(r'"__id__": \d+', "", schema)
    schema = re.sub(r'"(\d+\.\w+)"', lambda found: digests.get(found[1], found[0]), schema)
    return sha256(schema.encode()).hexdigest()
