"""Rendering of self-contained pages from templates: every value on a page is escaped."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from consilience.core.errors import visible
from consilience.lab.report.drawing import Plot
from consilience.lab.report.results import words

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, package: str = "", /, **values: Any) -> str:
    """Fill a page's template.

    Markup in values is shown as text. Invisible characters and those that change the direction of writing are
    shown as escapes everywhere.

    Args:
        template: a file name in ``report/templates``; or ``live/`` and one in the templates of the package.
        package: a package with additional templates; empty for none.
        **values: the variables of the template.

    Returns:
        The page.

    Raises:
        jinja2.UndefinedError: the template uses a variable missing from ``values``.
    """
    page = _templates(package).get_template(template).render(values)
    return "\n".join(map(visible, page.split("\n")))


@cache
def _templates(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

    more = {"live": PackageLoader(package)} if package else {}
    templates = Environment(
        loader=ChoiceLoader([PrefixLoader(more), PackageLoader("consilience.lab.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "amount": amount,
        "counted": counted,
        "data_uri": _data_uri,
        "listed": _listed,
        "shell": shlex.quote,
        "words": words,
    }
    return templates


def _data_uri(plot: Plot) -> str:
    """The figure as a self-contained ``data:`` address of an SVG image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(plot.svg.encode()).decode()}"


def _listed(value: Any) -> str:
    """A value of JSON in words: entries of a list and of a mapping with commas between them."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def amount(count: float) -> str:
    """Bytes in words.

    >>> amount(0), amount(20328), amount(3.2e6)
    ('0 B', '20.3 kB', '3.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number and its noun, singular or plural.

    Args:
        count: the number.
        one: the noun for one.
        many: the noun for any other number; by default with an s.

    >>> counted(1, "seed"), counted(2000, "party", "parties")
    ('1 seed', '2,000 parties')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
