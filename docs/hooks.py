"""What the documentation build adds to mkdocs: a check of every docstring, two notations, a menu.

The check fails the build when a public module, class, function or method has no docstring (a method
that overrides a documented one inherits it), or when a room of the house is on no API page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

PACKAGES = ("consilience", "consilience_papers")
NO_API_PAGE = {"consilience.cli", "consilience_papers.command"}
"""The command line documents itself, with ``--help``."""


def on_config(config: Any) -> None:
    """Called by mkdocs first of all: pages that benchmarks wrote come into the menu by themselves."""
    pages = sorted(Path(config["docs_dir"], "results").glob("*.md"))
    for entry in config["nav"]:
        if "Results" in entry:
            found = [f"results/{page.name}" for page in pages if page.name != "index.md"]
            entry["Results"] = ["results/index.md", *found]


def on_pre_build(config: Any) -> None:
    """Called by mkdocs before it reads a page."""
    root = Path(config["config_file_path"]).parent
    packages = [griffe.load(name, search_paths=[root / "src"]) for name in PACKAGES]
    symbols = [symbol for package in packages for symbol in public_symbols(package)]
    faults = [f"{symbol.path} has no docstring" for symbol in symbols if not documented(symbol)]

    pages = "".join(page.read_text() for page in sorted((root / "docs" / "api").glob("*.md")))
    listed = set(re.findall(r"^::: (\S+)", pages, flags=re.MULTILINE)) | NO_API_PAGE
    inside = [member for package in packages for member in members(package)]
    rooms = [member for member in inside if not member.is_alias and member.is_module]
    faults += [
        f"{room.path} is on no page under docs/api" for room in rooms if room.path not in listed
    ]
    if faults:
        raise PluginError("\n  ".join(["undocumented public symbols:", *faults]))


def members(symbol: griffe.Object | griffe.Alias) -> list[griffe.Object | griffe.Alias]:
    return [member for name, member in symbol.members.items() if not name.startswith("_")]


def public_symbols(symbol: griffe.Object) -> Iterator[griffe.Object]:
    """``symbol`` and everything public that is defined in it, in source order."""
    yield symbol
    for member in members(symbol):
        if not member.is_alias and not member.is_attribute:
            assert isinstance(member, griffe.Object)
            yield from public_symbols(member)


def documented(symbol: griffe.Object) -> bool:
    if symbol.has_docstring or "overload" in symbol.labels:
        return True
    owner = symbol.parent
    if not isinstance(owner, griffe.Class):
        return False
    bases = (base.members.get(symbol.name) for base in owner.mro())
    return any(inherited is not None and inherited.has_docstring for inherited in bases)


ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc|obj):`~?([^`]+)`")
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> ).+\n?)*)+", flags=re.MULTILINE)


class Roles(griffe.Extension):
    """Shows Sphinx's roles as code and doctests outside of a section as code blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every object that it reads."""
        if obj.docstring is None:
            return
        text = ROLE.sub(r"`\1`", obj.docstring.value).replace("``", "`")
        text = re.sub(r"^Deviations$", "Deviations:", text, flags=re.MULTILINE)  # shown as a box
        obj.docstring.value = EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text)
