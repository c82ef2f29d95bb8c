"""Checks of input arrays: finite numbers or texts, and public rows that look like private ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput

Array = NDArray[Any]
"""An array of any type; shape and meaning are explained where it is used."""


def read_only(values: Array) -> Array:
    """Return a view that cannot be written to, so that a model that scales its inputs in place fails."""
    view = values.view()
    view.flags.writeable = False
    return view


def same_view(one: Array, other: Array) -> bool:
    """Return whether two arrays are read-only views of the same numbers.

    Args:
        one: an array.
        other: another array.

    >>> rows = read_only(np.arange(3.0))
    >>> same_view(rows, rows[:]), same_view(rows, rows[:2]), same_view(np.arange(3.0), rows)
    (True, False, False)
    """
    if one.flags.writeable or other.flags.writeable:
        return False
    first, second = (
        (array.ctypes.data, array.strides, array.shape, array.dtype) for array in (one, other)
    )
    return first == second


def unmasked(values: Any) -> Any:
    """Return a masked array with gaps (NaN, NaT or ``None``) at its masked places; other values as they are.

    Args:
        values: anything; an array of records is left as it is.

    >>> unmasked(np.ma.array([1, 2], mask=[False, True])).tolist()
    [1.0, nan]
    """
    if not np.ma.isMaskedArray(values) or values.dtype.names is not None:
        return values
    if not np.ma.getmaskarray(values).any():
        return values.data
    if values.dtype.kind in "Mm":
        nowhere: Any = np.array("NaT", dtype=values.dtype)[()]
        return np.ma.filled(values, nowhere)
    if values.dtype.kind == "f":
        return np.ma.filled(values, np.nan)
    if values.dtype.kind in "iub":
        return np.ma.filled(values.astype(np.float64), np.nan)
    found = np.ma.getdata(values).astype(object)
    found[np.ma.getmaskarray(values)] = None
    return found


_EXACT, _SHARE = float(1 << 24), 1e-4
"""Size up to which single precision holds every whole number, and share of a column's standard deviation
that its steps may have."""


def precision_for(centre: Any, spread: Any) -> type[np.float32] | type[np.float64]:
    """Choose single precision, unless it would merge distinct values of a column.

    Args:
        centre: mean of each column, shape ``(d,)``.
        spread: standard deviation of each column, shape ``(d,)``; 0 for a constant one.

    >>> precision_for([0.5, 1e4], [0.3, 100.0]).__name__, precision_for([20201231.0], [1e4]).__name__
    ('float32', 'float64')
    """
    spread = np.asarray(spread, dtype=np.float64)
    size = np.abs(np.asarray(centre, dtype=np.float64)) + spread
    step = size * np.finfo(np.float32).eps
    lost = (size >= _EXACT) | (step > _SHARE * spread)
    return np.float64 if (lost & (spread > 0)).any() else np.float32


def as_array(values: Any, *, where: str, dtype: Any = None) -> Array:
    """Convert values to an array; masked entries of a masked array become gaps (:func:`unmasked`).

    Args:
        values: anything that NumPy can convert to an array.
        where: source of the values, for the error.
        dtype: type of the array; by default that of the values.

    Raises:
        InvalidInput: a torch tensor on a GPU, or a torch tensor with a recorded gradient.
        TypeError, ValueError: other values that cannot be converted.
    """
    try:
        return np.asarray(unmasked(values), dtype=dtype)
    except (RuntimeError, TypeError) as error:
        if isinstance(error, TypeError) and not hasattr(values, "detach"):
            raise
        raise InvalidInput(
            f"no array can be made of this {type(values).__name__}: {error}",
            where=where,
            mend="Give a NumPy array; of a torch tensor tensor.detach().cpu().numpy().",
        ) from error


def as_rows(X: Any, *, where: str) -> Array:
    """Return inputs as an array; masked places of a masked array are gaps.

    Args:
        X: anything that numpy makes an array of.
        where: the party, for the error.

    Raises:
        InvalidInput: it is a sparse matrix or a table that cannot be read, or its rows are not of one shape.
    """
    if hasattr(X, "columns") or hasattr(X, "__dataframe__"):
        raise InvalidInput(
            f"this is a {type(X).__name__}: it has columns, and their names would be lost",
            where=where,
            mend="Give a table of pandas, pyarrow or polars in memory, such as X.collect() or X.to_pandas().",
        )
    if hasattr(X, "toarray"):
        raise InvalidInput(
            "this is a sparse matrix", where=where, mend="Give X.toarray(), if it fits into memory."
        )
    try:
        return as_array(X, where=where)
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(
            f"these are no rows of one shape: {error}",
            where=where,
            mend="Give the inputs alone, as one array or table; labels are not among them.",
        ) from error


def check_inputs(X: Array, *, where: str, gaps: bool = False) -> None:
    """Raise ``InvalidInput`` unless ``X`` is an array of finite numbers or of strings.

    Args:
        X: inputs, shape ``(n, ...)``.
        where: the party, for the error.
        gaps: whether numbers of a table, shape ``(n, d)``, may be missing (NaN).
    """
    finite = X.dtype.kind not in "fc" or np.isfinite(X)
    if gaps and X.ndim == 2 and X.dtype.kind == "f" and not np.isnan(X).all():
        finite = finite | np.isnan(X)
    if not np.all(finite):
        bad = ~np.reshape(finite, (len(X), -1))
        columns = ", ".join(map(str, np.flatnonzero(bad.any(axis=0))[:5]))
        raise InvalidInput(
            f"{int(bad.any(axis=1).sum())} of {len(X)} rows hold NaN or infinite values "
            f"(column {columns})",
            where=where,
            mend="Impute or drop them first.",
        )
    if X.dtype.kind == "O" and not all(isinstance(value, str) for value in X.ravel()):
        raise InvalidInput(
            "inputs are Python objects, not numbers or strings",
            where=where,
            mend="Convert them to a float array, or to an array of str for text.",
        )
    if X.dtype.kind in "UO" and X.ndim > 1:
        raise InvalidInput(
            f"an array of strings has shape {X.shape}, and texts have one a row",
            where=where,
            mend="Give columns of strings as a pandas DataFrame, whose names say what they are.",
        )
    if X.dtype.kind not in "fiubUO":
        raise InvalidInput(f"inputs have type {X.dtype}, not numbers or strings", where=where)


_COMPARED = 2_000
"""Maximum number of rows of either side used to compare scales."""


def check_alike(
    private: Array,
    public: Array,
    *,
    where: str,
    discreet: bool = False,
    names: Sequence[str] = (),
) -> None:
    """Raise ``InvalidInput`` unless public and private rows have the same type, shape and scale.

    A feature is on another scale if its means differ by more than four times the larger standard deviation,
    or if its standard deviations differ more than twentyfold. The error is raised if more than a fifth of the
    features that vary on both sides are on another scale, such as pixels in [0, 255] and in [0, 1]. Gaps
    (NaN) are ignored.

    Args:
        private: rows of a party, shape ``(n, ...)``.
        public: public rows, shape ``(m, ...)``.
        where: the party, for the error.
        discreet: omit the range of private values from the error, because the sender of the public rows reads
            it.
        names: names of the columns, if they have names.
    """
    if (private.dtype.kind in "UO") != (public.dtype.kind in "UO"):
        raise InvalidInput("private and public data: one is text, the other numbers", where=where)
    if private.shape[1:] != public.shape[1:]:
        raise InvalidInput(
            f"a private row has shape {private.shape[1:]}, a public row {public.shape[1:]}",
            where=where,
            mend="Private and public data need the same columns in the same order.",
        )
    if private.dtype.kind in "UO":
        return
    # Evenly spaced rows: the first ones of a sorted table are not like the others.
    some = (rows[:: -(-len(rows) // _COMPARED) or 1] for rows in (private, public))
    ours, theirs = (rows.reshape(len(rows), -1) for rows in some)
    known = ~(np.isnan(ours).all(axis=0) | np.isnan(theirs).all(axis=0))
    ours, theirs, place = ours[:, known], theirs[:, known], np.flatnonzero(known)
    with np.errstate(over="ignore"):  # an infinite spread is one that is off
        spread = np.stack([np.nanstd(rows, axis=0) for rows in (ours, theirs)]).astype(np.float64)
    # A constant column has a spread of rounding size, not always 0.
    level = np.stack([np.nanmax(np.abs(rows), axis=0) for rows in (ours, theirs)])
    varying = (spread > 1e-9 * level).all(axis=0)
    spread = spread[:, varying]
    apart = np.abs(np.nanmean(ours, axis=0) - np.nanmean(theirs, axis=0))[varying]
    off = (apart > 4 * spread.max(axis=0)) | (spread.max(axis=0) > 20 * spread.min(axis=0))
    if varying.any() and off.mean() > 0.2:
        if discreet:
            raise InvalidInput("more than a fifth of the columns are on another scale", where=where)
        named = [repr(names[i]) for i in place[varying][off][:5]] if names else []
        by_name = f": {', '.join(named)}" if named else ""
        raise InvalidInput(
            f"private data lie in [{np.nanmin(ours):.4g}, {np.nanmax(ours):.4g}], public data in "
            f"[{np.nanmin(theirs):.4g}, {np.nanmax(theirs):.4g}]: {int(off.sum())} of {off.size} columns are "
            f"on another scale{by_name}",
            where=where,
            mend="Scale both the same way.",
        )


def same_rows(X: Array, others: Array) -> NDArray[np.bool_]:
    """Mark the rows that stand among others, to the last digit; shape ``(n,)``.

    Args:
        X: rows, shape ``(n, ...)`` of numbers or ``(n,)`` of texts.
        others: rows of the same form.

    >>> same_rows(np.array([[1.0], [2.0]]), np.array([[2.0], [3.0]]))
    array([False,  True])
    >>> same_rows(np.array([[1], [2]]), np.array([[1.5], [2.0]]))
    array([False,  True])
    """

    # Fractions of the others are not cut to the whole numbers of X.
    dtype = X.dtype if X.dtype.kind in "fUO" else np.result_type(X, others)

    def contents(rows: Array) -> list[Any]:
        texts = rows.dtype.kind in "UO"
        return rows.tolist() if texts else [row.tobytes() for row in rows.astype(dtype)]

    there = set(contents(others))
    return np.array([row in there for row in contents(X)], dtype=bool)
