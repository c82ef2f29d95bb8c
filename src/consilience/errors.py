"""Errors that say what was wrong, where, and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from consilience.visible import visible

Code = Literal["", "lacks-public", "not-joined"]
"""Failures of a party that a coordinator can do something about; empty for all others."""


class ConsilienceError(Exception):
    """Base of every error that consilience raises on purpose.

    Args:
        what: what is wrong, in one sentence.
        where: the party, file, key or task it was found at.
        mend: what the user can do about it.
        code: the kind of failure, for programs; nothing is decided by the text.
    """

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, mend: str | None = None, code: Code = ""
    ) -> None:
        self.what, self.where, self.mend, self.code = what, where, mend, code
        super().__init__(what, where, mend)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return visible(f"{place}{self.what}" + (f"\n  {self.mend}" if self.mend else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.mend, self.code)


def _rebuild(
    kind: type[ConsilienceError], what: str, where: str | None, mend: str | None, code: Code
) -> ConsilienceError:
    return kind(what, where=where, mend=mend, code=code)


class InvalidInput(ConsilienceError, ValueError):
    """What the caller gave (configuration, data, model) cannot be used; raised before any work."""

    exit_code = 2


class KnowledgeRefused(ConsilienceError):
    """A message that crossed the boundary is not what was asked for."""


class QuorumLost(ConsilienceError):
    """Too few parties answered for the round to go on."""


class RunFailed(ConsilienceError):
    """A run could not go on: disk full, damaged ledger, every party failed."""


class MissingExtra(ConsilienceError, ImportError):
    """An optional dependency is needed and not installed."""

    exit_code = 2

    def __init__(self, package: str, *, extra: str, where: str | None = None) -> None:
        super().__init__(
            f"{package} is not installed",
            where=where,
            mend=f"Install it with: pip install 'consilience[{extra}]'",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return RunFailed, (str(self),)


_COMPARED, _LISTED = 1_000, 100
"""Words that one is compared with, and that are listed, at most: they may be a stranger's."""


def nearest(word: str, known: Iterable[str], also: Mapping[str, str] | None = None) -> str:
    """A sentence that names the closest known word, or all of them.

    Args:
        word: what was given.
        known: what it could have been.
        also: what others call a known word, in small letters, to that word.

    >>> nearest("Gaussian", ["linear", "rbf"], {"gaussian": "rbf"})
    "It is called 'rbf' here."
    >>> nearest("uwaa", ["uwa", "avg"])
    "Did you mean 'uwa'?"
    >>> nearest("zzz", ["uwa", "avg"])
    'Known: avg, uwa.'
    """
    if also and word.lower() in also:
        return f"It is called {also[word.lower()]!r} here."
    known = sorted(known)
    close = difflib.get_close_matches(word.lower(), known[:_COMPARED], n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(known[:_LISTED])}{', …' if len(known) > _LISTED else ''}."
