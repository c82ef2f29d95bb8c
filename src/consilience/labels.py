"""Class names: one canonical spelling for labels of any type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInput


def label_names(
    y: Iterable[Any], *, where: str, aliases: Mapping[Any, str] | None = None
) -> NDArray[np.str_]:
    """The canonical name of every label: ``3``, ``3.0``, ``np.int64(3)`` and ``"3"`` are all ``"3"``.

    Args:
        y: n labels: strings, bytes, integers, booleans, or floats that are whole numbers.
        where: whose labels they are, for errors.
        aliases: a party's own label to the name the federation uses for it.

    Returns:
        Names, shape ``(n,)``.

    Raises:
        InvalidInput: labels of mixed type, missing labels, or continuous numbers.
    """
    y = np.asarray(y, dtype=None if isinstance(y, np.ndarray) else object)
    if y.ndim != 1:
        raise InvalidInput(f"labels have shape {y.shape}, expected one per row", where=where)
    if y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.round(y)).all()):
        raise InvalidInput(
            "labels are continuous or missing numbers, and the model is a classifier",
            where=where,
            mend="Use a regressor, or round and complete the labels.",
        )
    distinct = list(dict.fromkeys(y.tolist()))
    families = {_family(label, where) for label in distinct}
    if len(families) > 1:
        raise InvalidInput(
            f"labels are of mixed type: {' and '.join(sorted(families))}",
            where=where,
            mend=f"Convert them to one type; the first labels are {distinct[:4]!r}.",
        )
    renamed = {_name(own): name for own, name in (aliases or {}).items()}
    unknown = set(renamed) - {_name(label) for label in distinct}
    if unknown:
        raise InvalidInput(f"aliases name labels that do not occur: {sorted(unknown)}", where=where)
    names = {label: renamed.get(_name(label), _name(label)) for label in distinct}
    return np.array([names[label] for label in y.tolist()], dtype=np.str_)


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in their agreed order: by number if all are numbers, else by letters.

    >>> class_order(["10", "9", "9"])
    ('9', '10')
    """
    distinct = set(names)
    if all(name.lstrip("-").isdecimal() for name in distinct):
        return tuple(sorted(distinct, key=int))
    return tuple(sorted(distinct))


def _name(label: Any) -> str:
    if isinstance(label, bytes):
        return label.decode()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _family(label: Any, where: str) -> str:
    if label is None or (isinstance(label, float) and np.isnan(label)):
        raise InvalidInput("some labels are missing", where=where, mend="Drop those rows.")
    if isinstance(label, bool | np.bool_):
        return "booleans"
    if isinstance(label, int | float | np.integer | np.floating):
        return "numbers"
    if isinstance(label, str | bytes):
        return "strings"
    raise InvalidInput(f"a label of type {type(label).__name__}", where=where)
