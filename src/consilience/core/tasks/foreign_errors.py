"""Removal of third-party text from error messages, because it may quote private rows.

Estimators, file readers and user functions quote the value that caused the error: ``could not convert string
to float: 'Jane Doe'``. Other readers of the error receive the exception's class and our own line that called
the code. The full text stays in the party's log.
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
"""Advice that replaces third-party text."""

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
"""Folders of this package that pass rows to models and functions of users."""

_ALIKE = 12
"""Length of a shared substring from which our text is treated as a quotation of a third-party text."""


def without_foreign_words(error: Exception) -> ConsilienceError:
    """Make a version of an error without third-party text, to send to others.

    Args:
        error: the error, as it was caught.

    Returns:
        For an error of this package, an error of the same class with our own text. Any quoted third-party
        text is replaced by its exception class and our last line, as in ``ValueError at
        consilience/core/learners/sklearn/learner.py:333``. For any other error, only this class and line.
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
    """Make an error of a class without a call of the constructor of that class."""
    made = kind.__new__(kind)
    ConsilienceError.__init__(made, what, where=where, mend=mend, code=code)  # type: ignore[arg-type]
    return made


def _ours(error: BaseException) -> bool:
    """Return true for an error that this package raised, unless a user's model raised it.

    Errors of this package raised in functions that make a party, and in protocols of other packages, count as
    ours, because they are written for readers.
    """
    if not isinstance(error, ConsilienceError):
        return False
    places = [_inside(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    if not places or places[-1] is not None:
        return True
    last = next((one for one in reversed(places) if one is not None), None)
    return last is None or not any(map(last.is_relative_to, _CALL_MODELS))


def _foreign(error: BaseException) -> Iterator[BaseException]:
    """Iterate over third-party errors among the causes and contexts of an error."""
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
    """List the texts of an error that ours may repeat, the longest first; empty for plain system errors."""
    whole = str(error).strip()
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        return ()
    parts = {whole, whole.partition("\n")[0].strip(), *(a for a in error.args if type(a) is str)}
    return tuple(sorted(filter(None, parts), key=len, reverse=True))


def _place(error: BaseException) -> str:
    """Return our last line in a traceback: `` at consilience/FILE.py:LINE``; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (path := _inside(frame.filename)) is not None:
            return f" at consilience/{path.as_posix()}:{frame.lineno}"
    return ""


def _inside(file: str) -> Path | None:
    """Return the path of a file in our package; ``None`` for others."""
    path = Path(file)
    return path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else None


def _quotes(ours: str, theirs: str) -> bool:
    """Return true if one of our texts still contains a piece of theirs."""
    pieces = (theirs[start : start + _ALIKE] for start in range(len(theirs) - _ALIKE + 1))
    return any(piece in ours for piece in pieces)
