"""Restricted reader of the pickles in which CIFAR is published; it refuses all other pickle features."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput


def read_pickle(content: bytes, where: str) -> Any:
    """The object in a pickle made of numpy arrays, lists, dicts, bytes, str and numbers only.

    A pickle can name any function and have it called. Here the names it may use are three, none of
    which comes from the file's choice of module, and every other is refused before it is called.

    Raises:
        InvalidInput: the pickle names anything else, or is damaged.
    """
    try:
        return _Numbers(io.BytesIO(content), encoding="bytes").load()
    except InvalidInput as error:
        raise InvalidInput(error.what, where=where, mend=error.mend) from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise InvalidInput(
            f"the pickle is damaged ({error})", where=where, mend="Get the file anew."
        ) from error


class _Numbers(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy", "ndarray"): _Ndarray,
            ("numpy", "dtype"): _dtype,
            ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        }
        if (module, name) not in known:
            raise InvalidInput(
                f"the pickle wants to use {module}.{name}, which was not run",
                mend="Get the file from where it is published.",
            )
        return known[module, name]


class _Ndarray:
    """Stands for ``numpy.ndarray``, which pickles only pass to ``_reconstruct``."""


def _dtype(kind: str | bytes, *_flags: object) -> np.dtype[Any]:
    """The type of a numeric array; other types, such as objects, are refused."""
    dtype = np.dtype(kind.decode() if isinstance(kind, bytes) else kind)
    if dtype.kind not in "biuf":
        raise InvalidInput(f"the pickle holds an array of {dtype}, not of numbers")
    return dtype


def _reconstruct(_kind: object, _shape: object, _dtype: object) -> np.ndarray[Any, Any]:
    """An empty array, which the unpickler then fills by ``__setstate__``, as numpy's own does."""
    return np.empty(0, dtype=np.int8)
