"""Additions to mkdocs: pages of the API that list modules themselves, a check of docstrings, two notations.

Each folder of core, and each other folder of the library, has one page in ``docs/api``, with prose by hand.
The reference below it is written here: the folder's own docstring and names, then each of its public modules.

The build fails if a public module, class, function or method has no docstring (a method that overrides a
documented one inherits it), if a folder has no page, or if a page has no folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

PACKAGES = ("consilience", "consilience_papers")
SOURCE = Path(__file__).parents[1] / "src"
NO_API_PAGE = {"consilience.lab.cli", "consilience.sites.cli", "consilience_papers.command"}
"""The command line documents itself, with ``--help``."""

FOLDERS = ("models", "methods", "privacy", "tables", "lab", "sites")
"""Folders beside core."""

PAPERS = {"papers": "consilience_papers", "theory": "consilience_papers.theory"}
"""Pages beside those of the folders: page -> package."""

_loaded: dict[str, griffe.Module] = {}


def on_config(config: Any) -> None:
    """Fill the menus *Results* and *API*, when mkdocs has read its configuration."""
    pages = sorted(Path(config["docs_dir"], "results").glob("*.md"))
    results = [f"results/{page.name}" for page in pages if page.name != "index.md"]
    menus = {"Results": results, "API": [f"api/{name}.md" for name in api_pages()]}
    for entry in config["nav"]:
        for title in menus.keys() & entry.keys():
            entry[title] = [*entry[title], *menus[title]]


def on_pre_build(config: Any) -> None:
    """Read the packages and check what is documented, before mkdocs reads a page."""
    root = Path(config["config_file_path"]).parent
    for name in PACKAGES:
        package = griffe.load(name, search_paths=[root / "src"], resolve_aliases=True)
        assert isinstance(package, griffe.Module)
        _loaded[name] = package
    symbols = [symbol for package in _loaded.values() for symbol in public_symbols(package)]
    faults = [f"{symbol.path} has no docstring" for symbol in symbols if not documented(symbol)]
    there = {page.stem for page in (root / "docs" / "api").glob("*.md")} - {"index"}
    wanted = set(api_pages())
    faults += [f"the folder {name} has no page docs/api/{name}.md" for name in wanted - there]
    faults += [f"docs/api/{name}.md is of no folder" for name in there - wanted]
    if faults:
        raise PluginError("\n  ".join(["the API is not documented:", *sorted(faults)]))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Append the reference to a page of the API."""
    folder, _slash, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder != "api":
        return markdown
    if name == "index":
        return markdown + overview()
    return markdown + "\n\n" + "\n".join(reference(find(api_pages()[name])))


# ---- the reference -------------------------------------------------------------------------------


def api_pages() -> dict[str, str]:
    """Pages of the API, and the packages and modules that they show."""
    core = sorted(one.stem for one in (SOURCE / "consilience/core").iterdir() if one.stem[0] != "_")
    return {
        **{name: f"consilience.core.{name}" for name in core},
        **{name: f"consilience.{name}" for name in FOLDERS},
        **PAPERS,
    }


def find(path: str) -> griffe.Module:
    """The module of that dotted path."""
    package, *names = path.split(".")
    found = _loaded[package][".".join(names)] if names else _loaded[package]
    assert isinstance(found, griffe.Module)
    return found


def reference(room: griffe.Module) -> Iterator[str]:
    """Directives of mkdocstrings for a room and all its public modules, each name once."""
    exported = [
        name
        for name in room.exports or ()
        if (member := room.members.get(str(name))) is not None
        and member.is_alias
        and member.target_path.startswith(f"{room.path}.")  # not what another room has
        and shows(member.target)
    ]
    own = [one.name for one in members(room) if not one.is_alias and shows(one)]
    yield directive(room.path, [*map(str, exported), *own], level=2)
    shown = {room.members[str(name)].target_path for name in exported}
    for module in modules_below(room):
        names = [
            one.name
            for one in members(module)
            if not one.is_alias and shows(one) and one.path not in shown
        ]
        yield directive(module.path, names, level=3)


def shows(member: griffe.Object | griffe.Alias) -> bool:
    """Decide if a module's page shows a member: no module, and no constant without a docstring."""
    return not member.is_module and (member.has_docstring or not member.is_attribute)


def modules_below(room: griffe.Module) -> Iterator[griffe.Module]:
    """Public modules of a room at any depth, but those with a page of their own."""
    inside = [one for one in members(room) if isinstance(one, griffe.Module)]  # no imported ones
    for module in sorted(inside, key=lambda module: module.path):
        if module.path not in {*PAPERS.values(), *NO_API_PAGE}:
            yield module
            yield from modules_below(module)


def directive(path: str, names: list[str], *, level: int) -> str:
    """A directive of mkdocstrings that shows a module's docstring and these of its names."""
    listed = json.dumps(list(dict.fromkeys(names)))
    return f"::: {path}\n    options:\n      heading_level: {level}\n      members: {listed}\n"


def overview() -> str:
    """Tables of the folders, and of the names that ``from consilience import …`` has."""
    lines = ["\n\n## Folders\n", "| folder | |", "|---|---|"]
    for page, path in api_pages().items():
        lines.append(f"| [`{path}`]({page}.md) | {first_line(find(path))} |")
    lines += ["\n## `from consilience import …`\n", "| name | |", "|---|---|"]
    for name, target in sorted(public_names().items()):
        lines.append(f"| [`{name}`]({page_of(target.path)}.md) | {first_line(target)} |")
    return "\n".join(lines)


def public_names() -> dict[str, griffe.Object]:
    """Names that the package itself has from its rooms."""
    aliases = [one for one in members(find("consilience")) if one.is_alias]
    ours = {one.name: one.target for one in aliases if one.target_path.startswith("consilience.")}
    if not ours:
        raise PluginError("the package has no public names that the documentation could list")
    return ours


def page_of(path: str) -> str:
    """Page of the API that shows a symbol."""
    return next(page for page, shown in api_pages().items() if path.startswith(f"{shown}."))


def first_line(symbol: griffe.Object) -> str:
    """The first line of a docstring, in Markdown."""
    assert symbol.docstring is not None, symbol.path
    return in_markdown(symbol.docstring.value).splitlines()[0].replace("|", "\\|")


# ---- the check -----------------------------------------------------------------------------------


def members(symbol: griffe.Object | griffe.Alias) -> list[griffe.Object | griffe.Alias]:
    """Public members, in source order."""
    return [member for name, member in symbol.members.items() if not name.startswith("_")]


def public_symbols(symbol: griffe.Object) -> Iterator[griffe.Object]:
    """``symbol`` and everything public that is defined in it, in source order."""
    yield symbol
    for member in members(symbol):
        if not member.is_alias and not member.is_attribute:
            assert isinstance(member, griffe.Object)
            yield from public_symbols(member)


def documented(symbol: griffe.Object) -> bool:
    """Decide if a symbol has a docstring, of its own or inherited."""
    if symbol.has_docstring or "overload" in symbol.labels:
        return True
    owner = symbol.parent
    if not isinstance(owner, griffe.Class):
        return False
    bases = (base.members.get(symbol.name) for base in owner.mro())
    return any(inherited is not None and inherited.has_docstring for inherited in bases)


# ---- notations -----------------------------------------------------------------------------------

ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc|obj):`~?([^`]+)`")
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> ).+\n?)*)+", flags=re.MULTILINE)


def in_markdown(text: str) -> str:
    """A docstring with Sphinx's roles and double backticks as Markdown's code."""
    return ROLE.sub(r"`\1`", text).replace("``", "`")


class Roles(griffe.Extension):
    """Shows Sphinx's roles as code and doctests outside of a section as code blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every object that it reads."""
        if obj.docstring is None:
            return
        text = in_markdown(obj.docstring.value)
        text = re.sub(r"^Deviations$", "Deviations:", text, flags=re.MULTILINE)  # shown as a box
        obj.docstring.value = EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text)
