"""Arrays of .npz files, checked against the file's size and the memory before they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.tables.files.sizes import check_is_file, check_unpacked_size


def array_names(path: Path) -> list[str]:
    """List the arrays of an .npz file.

    Raises:
        InvalidInput: no such file, or it cannot be read.
    """
    with _archive(path) as packed:
        return [name.removesuffix(".npy") for name in packed.namelist()]


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Read arrays of an .npz file, after a check that their declared sizes fit the file and the memory.

    Args:
        path: the file.
        names: names of the arrays.

    Returns:
        Each name's array.

    Raises:
        InvalidInput: the file cannot be read, holds objects, or is too large.
    """
    arrays: dict[str, Array] = {}
    with _archive(path) as packed:
        for name in names:
            size = packed.getinfo(f"{name}.npy").file_size
            with packed.open(f"{name}.npy") as file:
                shape, kind = _header(file)
            count = math.prod(shape)
            if count * max(kind.itemsize, 1) > size:
                raise ValueError(f"{name} is {shape} of {kind}, it says, and has {size:,} bytes")
            each = kind.itemsize + (8 if kind.kind in "biuf" else 80)  # as a number, or as a text
            rows = shape[0] if shape else 0
            check_unpacked_size(count * each + 8 * rows, rows, path)
            with packed.open(f"{name}.npy") as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the shape and type of an array from the beginning of its file."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"arrays of format {version} are not read here")
    shape, _, kind = read[version](file)
    return shape, kind


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an .npz file; errors within become ``InvalidInput``."""
    check_is_file(path)
    try:
        with zipfile.ZipFile(path) as packed:
            yield packed
    except InvalidInput:
        raise
    except Exception as error:  # whatever zipfile, zlib and NumPy make of a damaged file
        raise InvalidInput(
            f"cannot be read as an .npz file: {error}",
            where=str(path),
            mend="Save plain arrays of numbers or strings (no objects) with numpy.savez.",
        ) from error
