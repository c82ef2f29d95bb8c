"""Errors with their cause, place and remedy; and functions that make untrusted texts safe to display.

The errors come first, then :func:`nearest` and :func:`command` for their advice. The last part handles texts:
names of parties and classes, notes and errors may come from another machine and appear on a terminal, on a
page or in a spreadsheet, where invisible characters could have an effect (:func:`visible`, :func:`as_json`,
:func:`as_cell`, :func:`odd_name`).
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
"""Failures of a party that lead to a decision; empty for all others. The coordinator sends the public rows
(``"lacks-public"``) or a new join request (``"not-joined"``). If a party's privacy budget refused a request
before anything ran (``"budget"``), the request does not count at the party."""


class ConsilienceError(Exception):
    """Base of every error that consilience raises on purpose.

    Args:
        what: the problem, in one sentence.
        where: the party, file, key or task with the problem.
        mend: advice for the user.
        code: the kind of failure, for programs; programs must not depend on the text.

    Attributes:
        spoken: whether the message may be sent by a discreet party, because it does not depend on any row.
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
    """A received message is not a valid answer to the request."""


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
"""Maximum numbers of words to compare with and to list, because they may come from a stranger."""


def nearest(word: str, known: Iterable[str], also: Mapping[str, str] | None = None) -> str:
    """Return a sentence with the closest known word, or with a list of the known words.

    Args:
        word: the unknown word.
        known: the known words.
        also: other common names, in small letters, to the known word.

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
"""Maximum number of characters of a class name, a party name, or another text of a party's description."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, formats (marks of direction, spaces without width), halves of surrogate
pairs, and separators of lines and paragraphs."""

_JOINERS = "\u200c\u200d"
"""Persian, Indic scripts and emoji are written with these: a name may hold them."""

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_FORMULA = re.compile(r"(?:^|(?<=[;,|]))(?=\s*[=+\-@＝＋－＠]\s*\S)")
"""Matches before a text that a spreadsheet would compute: at the beginning, and after a possible end of a
cell."""


def visible(
    text: str,
    keep: str = "\n\t",
    spelt: Callable[[str], str] = lambda sign: sign.encode("unicode_escape").decode(),
) -> str:
    r"""Return the text with every invisible control character replaced by its escape sequence.

    Args:
        text: any text.
        keep: invisible characters to leave unchanged.
        spelt: function that writes the escape sequence; by default Python's.

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
    r"""Return JSON of the same content with invisible characters escaped.

    >>> as_json('["\u202e"]')
    '["\\u202e"]'
    """
    return visible(text, spelt=lambda sign: json.dumps(sign)[1:-1])


def as_cell(text: str) -> str:
    r"""Return a text that a spreadsheet shows and does not evaluate: a formula gets an apostrophe in front.

    Numbers and ordinary texts are unchanged; invisible characters are escaped (:func:`visible`).

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
