"""Words of foreign code in errors, which may quote private rows: they stay at the party.

Estimators, readers of files and user functions quote what they fail on: ``could not convert string to float:
'Jane Doe'``. Whoever else reads the error gets the exception's class and our own line that called the code.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import consilience
from consilience.core.errors import ConsilienceError, RunFailed

AT_HOME = "The party's own log has its words."
"""Advice in the place of foreign words."""

_PACKAGE = Path(consilience.__file__).parent
_CALL_MODELS = (
    "core/learners",
    "core/numerics",
    "methods/comparison_rules",
    "methods/functional_boosting",
    "methods/model_exchange",
    "models",
    "privacy/accounting",
    "privacy/class_sums",
    "tables/outcomes",
)
"""Folders of ours that call models and functions of users with rows."""

_ALIKE = 12
"""Characters of a foreign text that are in none of ours by chance."""


def without_foreign_words(error: Exception) -> ConsilienceError:
    """Make the error that others may read of one that a party has.

    Args:
        error: it, as it was caught.

    Returns:
        An error of the same class with our own words, where it is one of ours: in the place of any text of
        foreign code stand its class and our last line, as in ``ValueError at
        consilience/core/learners/sklearn/learner.py:333``. Of any other error these two alone.
    """
    if not _ours(error):
        said = f"{type(error).__name__}{_place(error)}"
        if isinstance(error, ConsilienceError):
            return _made(type(error), said, mend=AT_HOME, code=error.code)
        return RunFailed(said, mend=AT_HOME)
    assert isinstance(error, ConsilienceError)
    texts = [error.what, error.where or "", error.mend or ""]
    for cause in _foreign(error):
        said = f"{type(cause).__name__}{_place(cause)}"
        for words in _words(cause):
            alone = rf"(?<!\w){re.escape(words)}(?!\w)"
            texts = [said.join(re.split(alone, text)) for text in texts]
        for words in _words(cause):
            texts = [said if _quotes(text, words) else text for text in texts]
    what, where, mend = texts
    changed = what != error.what
    return _made(
        type(error), what, where or None, mend or (AT_HOME if changed else None), error.code
    )


def _made(
    kind: type[ConsilienceError],
    what: str,
    where: str | None = None,
    mend: str | None = None,
    code: str = "",
) -> ConsilienceError:
    """An error of a class, whatever arguments the class itself takes."""
    made = kind.__new__(kind)
    ConsilienceError.__init__(made, what, where=where, mend=mend, code=code)  # type: ignore[arg-type]
    return made


def _ours(error: BaseException) -> bool:
    """Tell whether an error is one of ours, and none that a model raised.

    Functions that make a party, and protocols of other packages, raise our errors to be read.
    """
    if not isinstance(error, ConsilienceError):
        return False
    places = [_inside(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    if not places or places[-1] is not None:
        return True
    last = next((one for one in reversed(places) if one is not None), None)
    return last is None or not any(map(last.is_relative_to, _CALL_MODELS))


def _foreign(error: BaseException) -> Iterator[BaseException]:
    """Errors of foreign code that an error was made of, or while they were handled."""
    seen, further = {id(error)}, [error.__cause__, error.__context__]
    while further:
        cause = further.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if not _ours(cause):
            yield cause
        further += [cause.__cause__, cause.__context__]


def _words(error: BaseException) -> tuple[str, ...]:
    """Texts of an error that ours may repeat, the longest first; none that the system has for its number."""
    whole = str(error).strip()
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        return ()
    parts = {whole, whole.partition("\n")[0].strip(), *(a for a in error.args if type(a) is str)}
    return tuple(sorted(filter(None, parts), key=len, reverse=True))


def _place(error: BaseException) -> str:
    """Our own last line on the way to an error: `` at consilience/FILE.py:LINE``; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (path := _inside(frame.filename)) is not None:
            return f" at consilience/{path.as_posix()}:{frame.lineno}"
    return ""


def _inside(file: str) -> Path | None:
    """Return the path of a file in our package; ``None`` for others."""
    path = Path(file)
    return path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else None


def _quotes(ours: str, theirs: str) -> bool:
    """Tell whether one of our texts still holds a piece of theirs."""
    pieces = (theirs[start : start + _ALIKE] for start in range(len(theirs) - _ALIKE + 1))
    return any(piece in ours for piece in pieces)
