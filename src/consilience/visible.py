"""Texts from elsewhere as they may be shown: nothing in them acts on a terminal or a spreadsheet, or hides.

A party's name, a class or an error may come from a stranger. On a terminal escape sequences clear the screen
or rename the window, and marks of direction turn words round; a spreadsheet computes what begins like a
formula.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

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
