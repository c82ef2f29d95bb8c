"""Objects for several processes, with their large arrays in one file that each process maps into memory."""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from consilience.core.validation.arrays import Array

LARGE = 100_000
"""Bytes from which on an array is mapped."""

_LINE = 64
"""Arrays begin at a multiple of this many bytes, which is what processors read at a time."""


class MappedRows:
    """Read-only arrays in an unnamed file, which disappears when the last process closes it.

    When this object is sent to a starting process, the process receives the file's descriptor;
    :func:`take_up` takes that descriptor and the bytes from :meth:`packed`. Requires a POSIX system.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- open until `close`
        self._known: dict[tuple[Any, ...], tuple[Array, tuple[Any, ...]]] = {}
        """Address in memory to the array and its place in the file. The reference keeps the address from
        being reused."""

    def packed(self, value: object) -> bytes:
        """The bytes of an object, as ``multiprocessing`` sends it; large read-only arrays stay in the file.

        Arrays that one may write to are a process's own, and travel as they are.
        """
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(value)
        self._file.flush()
        return buffer.getvalue()

    def place_of(self, array: Array) -> tuple[Any, ...]:
        """The place of an array in the file, as :func:`_view` takes it; the array is written if it is not
        there."""
        known = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
        if known not in self._known:
            fortran = array.flags.f_contiguous and not array.flags.c_contiguous
            start = -(-self._file.seek(0, os.SEEK_END) // _LINE) * _LINE
            self._file.seek(start)
            self._file.write(np.ascontiguousarray(array.T if fortran else array).data)
            place = (start, array.shape, array.dtype, "F" if fortran else "C")
            self._known[known] = (array, place)
        return self._known[known][1]

    def close(self) -> None:
        """Close the file; processes with an existing mapping keep it."""
        self._known.clear()
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _descriptor, (reduction.DupFd(self._file.fileno()),)


class _Pickler(ForkingPickler):
    def __init__(self, buffer: io.BytesIO, rows: MappedRows) -> None:
        super().__init__(buffer)
        self._rows = rows

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.dtype.kind not in "fiubcU":
            return NotImplemented
        if value.flags.writeable or value.nbytes < LARGE:
            return NotImplemented
        return _view, self._rows.place_of(value)


_here: list[mmap.mmap] = []
"""The file that this process has mapped."""


def take_up(descriptor: int, packed: bytes) -> Any:
    """Load the object packed by :meth:`~MappedRows.packed`, and close the file's descriptor."""
    if os.fstat(descriptor).st_size:
        _here[:] = [mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)]
    os.close(descriptor)
    return ForkingPickler.loads(packed)


def _descriptor(handed: Any) -> int:
    return int(handed.detach())


def _view(start: int, shape: tuple[int, ...], dtype: np.dtype[Any], order: Any) -> Array:
    return np.ndarray(shape, dtype, buffer=_here[0], offset=start, order=order)
