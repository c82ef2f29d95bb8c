"""The two kinds of labels, and class names: one canonical spelling for labels of any type."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, nearest, odd_name
from consilience.core.validation.arrays import as_array
from consilience.core.validation.memory import check_memory

Kind = Literal["classification", "regression"]
"""Kind of prediction: named classes, or numbers."""


_LETTERS = 4
_SHORT_WORDS = frozenset(["yes", "no", "ja", "oui", "non", "sí", "si"])


def label_names(
    y: Iterable[Any], *, where: str, aliases: Mapping[Any, str] | None = None
) -> NDArray[np.str_]:
    """Return the canonical name of every label: ``3``, ``3.0``, ``np.int64(3)`` and ``"3"`` are all ``"3"``.

    Args:
        y: n labels: strings, bytes, integers, booleans, or floats with whole values.
        where: the party, for errors.
        aliases: a party's label to the federation's name for it.

    Returns:
        Names, shape ``(n,)``.

    Raises:
        InvalidInput: labels of mixed type, missing labels, continuous numbers, two labels that differ only in
            capital letters or blanks, or an invalid name (:func:`consilience.core.errors.odd_name`).
    """
    y = as_array(y, where=where, dtype=None if isinstance(y, np.ndarray) else object)
    if y.ndim != 1:
        raise InvalidInput(f"labels have shape {y.shape}, expected one per row", where=where)
    labels = y.tolist()
    # By type, and before any mapping, which would take True for 1.
    families = {_family(label, where) for label in {type(one): one for one in labels}.values()}
    distinct = list(dict.fromkeys(labels))
    if families == {"numbers"} and not all(float(label).is_integer() for label in distinct):
        raise InvalidInput(
            "labels are continuous or missing numbers, and the model is a classifier",
            where=where,
            mend="Use a regressor, or round and complete the labels.",
        )
    if len(families) > 1:
        raise InvalidInput(
            f"labels are of mixed type: {' and '.join(sorted(families))}",
            where=where,
            mend=f"Convert them to one type; the first labels are {distinct[:4]!r}.",
        )
    renamed = {_canonical(own): _canonical(name) for own, name in (aliases or {}).items()}
    names = {label: renamed.get(_canonical(label), _canonical(label)) for label in distinct}
    for name in names.values():
        if why := odd_name(name):
            raise InvalidInput(
                f"a label is no name of a class: {why}",
                where=where,
                mend="Call it otherwise, in the file or by an alias.",
            )
    spelt: dict[str, str] = {}
    for name in names.values():
        other = spelt.setdefault(same_words(name), name)
        if other != name:
            raise InvalidInput(
                f"classes {other!r} and {name!r} differ by capital letters or blanks alone",
                where=where,
                mend=f"Write them alike, or give an alias: aliases = {{ {name!r}: {other!r} }}.",
            )
    longest = max(map(len, names.values()), default=0)
    check_memory(4 * longest * len(labels), f"{len(labels):,} labels", where=where)
    return np.array([names[label] for label in labels], dtype=np.str_)


def composed(text: str) -> str:
    """Normalize text to composed characters (NFC).

    A system may write ``ü`` as one character or as two, with the same appearance.

    >>> composed("Mu" + chr(0x308) + "nchen") == "München"
    True
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def same_words(text: str) -> str:
    """Write the words of a text in small letters, with one blank between them.

    Words have four letters or more, or mean yes or no, and are written as words are: ``male``, ``Male`` or
    ``MALE``. All else may be a code, such as the genotypes AA, Aa and aa, and keeps its capital letters.

    >>> same_words("Ward  1a"), same_words("NO"), same_words("Aa"), same_words("recA")
    ('ward 1a', 'no', 'Aa', 'recA')
    """
    return " ".join(_small(word) for word in text.split())


def _small(word: str) -> str:
    small = word.lower()
    letters = small.replace("-", "").replace("'", "")
    usual = word in (small, word.upper(), word.capitalize(), word.title())
    if usual and (small in _SHORT_WORDS or (letters.isalpha() and len(letters) >= _LETTERS)):
        return word.casefold()
    return word


def one_hot(codes: Sequence[int] | NDArray[np.integer[Any]], classes: int) -> NDArray[np.float64]:
    """Make rows with a 1 in the column of each code, shape ``(n, classes)``.

    >>> one_hot([1, 0], 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    rows = np.zeros((len(codes), classes))
    rows[np.arange(len(codes)), codes] = 1
    return rows


def check_aliases(aliases: Mapping[Any, str], y: Iterable[Any], *, where: str) -> None:
    """Raise ``InvalidInput`` if an alias is for a label that does not occur, mostly a misspelling.

    Args:
        aliases: a party's own label to the name the federation uses for it.
        y: its labels.
        where: the party, for the error.
    """
    occurring = set(label_names(y, where=where).tolist()) if aliases else set()
    for own in map(_canonical, aliases):
        if own not in occurring:
            raise InvalidInput(
                f"an alias is for {own!r}, which is none of its labels",
                where=where,
                mend=nearest(own, occurring),
            )


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort distinct names in their agreed order: by number if all are numbers, else by letters.

    >>> class_order(["10", "9", "9"])
    ('9', '10')
    """
    distinct = set(names)
    if all(re.fullmatch(r"-?\d+", name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))  # "03" is not "3"
    return tuple(sorted(distinct))


def is_gap(label: Any) -> bool:
    """Tell whether a label stands for a missing one: ``None``, NaN, or pandas' ``NA`` or ``NaT``."""
    if isinstance(label, float | np.floating | Decimal):
        return bool(label != label)
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def check_same_order(X: Any, y: Any, *, where: str) -> None:
    """Refuse inputs and labels whose pandas indices contain the same row names in different orders.

    Rows are paired by position. Indices with different names, or with the same names in the same order, are
    accepted.

    Raises:
        InvalidInput: one index is a permutation of the other.
    """
    ours, theirs = getattr(X, "index", None), getattr(y, "index", None)
    if not all(hasattr(one, "sort_values") for one in (ours, theirs)):
        return  # a list has a method called index
    assert ours is not None and theirs is not None
    if len(ours) != len(theirs) or ours.equals(theirs):
        return
    if set(ours) == set(theirs):
        raise InvalidInput(
            "inputs and labels have the same rows in another order, as their index says",
            where=where,
            mend="Give y.loc[X.index]; or y.to_numpy(), if they are paired by place.",
        )


def _canonical(label: Any) -> str:
    if isinstance(label, bytes):
        return composed(label.decode(errors="backslashreplace"))
    if isinstance(label, float | np.floating) and label.is_integer():
        return str(int(label))
    return composed(str(label))


def _family(label: Any, where: str) -> str:
    if is_gap(label):
        raise InvalidInput("some labels are missing", where=where, mend="Drop those rows.")
    if isinstance(label, bool | np.bool_):
        return "booleans"
    if isinstance(label, int | float | np.integer | np.floating):
        return "numbers"
    if isinstance(label, str | bytes):
        return "strings"
    raise InvalidInput(f"a label of type {type(label).__name__}", where=where)
