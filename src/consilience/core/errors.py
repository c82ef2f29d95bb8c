"""Errors that say what was wrong, where, and how to mend it; and texts of strangers made safe to show.

First the errors, then :func:`nearest` and :func:`command` for their advice. Last the texts: names of
parties and classes, notes and errors may come from another machine and end on a terminal, on a page or in a
spreadsheet, where characters that are not seen could act (:func:`visible`, :func:`as_json`, :func:`as_cell`,
:func:`odd_name`).
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal, Self

Code = Literal["", "lacks-public", "not-joined", "budget"]
"""Failures of a party that something is decided by; empty for all others.

A coordinator sends the public rows (``"lacks-public"``) or has the party join anew (``"not-joined"``). Where
a party's privacy budget refused before anything ran (``"budget"``), the request does not count at the party.
"""


class ConsilienceError(Exception):
    """Base of every error that consilience raises on purpose.

    Args:
        what: what is wrong, in one sentence.
        where: the party, file, key or task it was found at.
        mend: what the user can do about it.
        code: the kind of failure, for programs; nothing is decided by the text.

    Attributes:
        spoken: whether its words may leave a discreet party, since no row has part in them.
    """

    exit_code = 1
    spoken: ClassVar[bool] = False

    def __init__(
        self, what: str, *, where: str | None = None, mend: str | None = None, code: Code = ""
    ) -> None:
        self.what, self.where, self.mend, self.code = what, where, mend, code
        super().__init__(what, where, mend)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return visible(f"{place}{self.what}" + (f"\n  {self.mend}" if self.mend else ""))

    def located(self, place: str) -> Self:
        """Return the same error of the same class, found inside of a place, such as a file or a run."""
        found = type(self).__new__(type(self))
        found.__dict__.update(self.__dict__)
        found.where = f"{place}: {self.where}" if self.where else place
        found.args = (self.what, found.where, self.mend)
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.mend, self.code)


def _rebuild(
    kind: type[ConsilienceError], what: str, where: str | None, mend: str | None, code: Code
) -> ConsilienceError:
    """An error from its parts, in another process."""
    return kind(what, where=where, mend=mend, code=code)


class InvalidInput(ConsilienceError, ValueError):
    """The caller's configuration, data or model cannot be used; raised before any work."""

    exit_code = 2


class ForeignValue(Exception):
    """The cause of an error that quotes what foreign code returned, so that the quotation stays at the party.

    A model may return private rows. Outside the party this class's name is in the quotation's place.
    """


class KnowledgeRefused(ConsilienceError):
    """A message that crossed the boundary is not what was asked for."""


class QuorumLost(ConsilienceError):
    """Too few parties answered for the round to go on."""


class RunFailed(ConsilienceError):
    """A run could not go on: disk full, damaged ledger, every party failed."""


class MissingExtra(ConsilienceError, ImportError):
    """An optional dependency is needed and not installed.

    Args:
        package: its name.
        extra: the extra of consilience that installs it.
        where: the part of consilience that needs it.
    """

    exit_code = 2

    def __init__(self, package: str, *, extra: str, where: str | None = None) -> None:
        super().__init__(
            f"{package} is not installed",
            where=where,
            mend=f"Install it with: pip install 'consilience[{extra}]'",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return RunFailed, (str(self),)


# --- advice ---------------------------------------------------------------------------------------

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
    >>> nearest("logistic", ["tfidf-logistic", "logistic-regression"])
    "Did you mean 'logistic-regression'?"
    >>> nearest("Metric", ["metrics", "metrics_in_all"])
    "Did you mean 'metrics'?"
    >>> nearest("zzz", ["uwa", "avg"])
    'Known: avg, uwa.'
    """
    if also and word.lower() in also:
        return f"It is called {also[word.lower()]!r} here."
    known = sorted(known)
    small = {one.lower(): one for one in reversed(known[:_COMPARED])}
    close = [one for one in small if len(word) > 2 and one.startswith(word.lower())]
    close = sorted(close, key=len) or difflib.get_close_matches(word.lower(), small, n=1)
    if close:
        return f"Did you mean {small[close[0]]!r}?"
    return f"Known: {', '.join(known[:_LISTED])}{', …' if len(known) > _LISTED else ''}."


def counted(number: int, one: str, more: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "round", "rounds"), counted(2_000, "round", "rounds")
    ('1 round', '2,000 rounds')
    """
    return f"{number:,} {one if number == 1 else more}"


def command(*words: object) -> str:
    """Write a call of the command line as a shell reads it, for advice.

    >>> command("resume", "my runs/digits-001")
    "consilience resume 'my runs/digits-001'"
    """
    return shlex.join(["consilience", *map(str, words)])


# --- texts of strangers ---------------------------------------------------------------------------

LONGEST_NAME = 1_000
"""Characters of a class, of a party, or of what a party says of itself."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, formats (marks of direction, spaces without width), halves of surrogate
pairs, and separators of lines and paragraphs."""

_JOINERS = "\u200c\u200d"
"""Persian, Indic scripts and emoji are written with these: a name may hold them."""

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_FORMULA = re.compile(r"(?:^|(?<=[;,|]))(?=\s*[=+\-@＝＋－＠]\s*\S)")
"""Before what a spreadsheet computes, at the beginning and after what it may take for the end of a cell."""


def visible(
    text: str,
    keep: str = "\n\t",
    spelt: Callable[[str], str] = lambda sign: sign.encode("unicode_escape").decode(),
) -> str:
    r"""The text with every character that is not seen, and might act, spelt out.

    Args:
        text: any.
        keep: such characters that stay.
        spelt: how one is written; by default as Python does.

    >>> visible("\x1b[2Jnorth\u202e"), visible("Müller\n医院")
    ('\\x1b[2Jnorth\\u202e', 'Müller\n医院')
    """
    if text.isprintable():
        return text
    return "".join(
        spelt(sign) if unicodedata.category(sign) in _HIDDEN and sign not in keep else sign
        for sign in text
    )


def as_json(text: str) -> str:
    r"""JSON whose texts are seen as they are; it says the same.

    >>> as_json('["\u202e"]')
    '["\\u202e"]'
    """
    return visible(text, spelt=lambda sign: json.dumps(sign)[1:-1])


def as_cell(text: str) -> str:
    r"""A text as a spreadsheet shows it and does not compute it: an apostrophe stands before a formula.

    Numbers stay as they are, and all other texts that are :func:`visible`.

    Source:
        OWASP, "CSV Injection".

    >>> as_cell("=1+1"), as_cell("-1"), as_cell("ill"), as_cell("\tx")
    ("'=1+1", '-1', 'ill', '\\tx')
    """
    seen = visible(text, keep="")
    return seen if _NUMBER.fullmatch(seen) else _FORMULA.sub("'", seen)


def odd_name(name: str) -> str | None:
    """The reason why a text is no name of a party or a class; ``None`` where it is one."""
    if len(name) > LONGEST_NAME:
        return f"it has {len(name):,} characters, of at most {LONGEST_NAME:,}"
    if not name.isprintable() and visible(name, keep=_JOINERS) != name:
        return f"it holds characters that are not seen: {visible(name, keep='')[:100]!r}"
    return None
