"""Measure the structure of the library: its size, its explanations, and the direction of its imports.

    python benchmarks/house.py              # seconds
    python benchmarks/house.py --list       # and every place that counts

The reproductions of papers are left aside. Lines are those of the files, blank lines and comments included.
Docstrings are those of modules, classes and functions, private ones too. Rooms that import one another,
through any number of modules, are one circle. An arrow up is an import that the layers in ``pyproject.toml``
forbid.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "src" / "consilience"
LONG_FILE = 400
PRONOUN = re.compile(r"(What|Who|Whose|Whether|Where|Which|Those|How|When|Why)\b")

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Measure:
    """One line of the table: a figure, its goal, and the places that it counts."""

    name: str
    figure: str
    goal: str
    places: list[str] = field(default_factory=list)


def measures() -> list[Measure]:
    """Measure the package of this checkout."""
    files = sorted(LIBRARY.rglob("*.py"))
    lines = {file: len(file.read_text().splitlines()) for file in files}
    entries = sorted(
        path.name for path in LIBRARY.iterdir() if path.suffix == ".py" or _is_room(path)
    )
    long = [f"{_name(file)} {count}" for file, count in lines.items() if count > LONG_FILE]
    documented = [found for file in files for found in _docstrings(file)]
    odd = [place for place, text in documented if PRONOUN.match(text)]
    unexplained = [place for file in files for place in _unexplained(file)]
    graph = grimp.build_graph("consilience", include_external_packages=False, cache_dir=None)
    circles, up = _circles(graph), _arrows_up(graph)
    share = len(odd) / len(documented)
    return [
        Measure("entries at the top of the package", f"{len(entries)}", "≤ 24", entries),
        Measure(f"files over {LONG_FILE} lines", f"{len(long)}", "≤ 1", long),
        Measure("lines", f"{sum(lines.values()):,}", "≤ 30,000"),
        Measure("docstrings that open with a pronoun", f"{share:.1%}", "≤ 3 %", odd),
        Measure("public signatures not explained", f"{len(unexplained)}", "0", unexplained),
        Measure("circles between rooms", f"{len(circles)}", "0", circles),
        Measure("arrows up", f"{len(up)}", "0", up),
    ]


def _is_room(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()


def _name(file: Path) -> str:
    return str(file.relative_to(LIBRARY))


def _docstrings(file: Path) -> Iterator[tuple[str, str]]:
    """Places and texts of all docstrings of a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | Definition) and (text := ast.get_docstring(node)):
            yield f"{_name(file)}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}", text


def _unexplained(file: Path) -> Iterator[str]:
    """Public functions and classes of more than two arguments, one of which their docstring does not name."""
    for owner in ast.walk(ast.parse(file.read_text())):
        if not isinstance(owner, ast.Module | ast.ClassDef):
            continue
        for node in owner.body:
            if not isinstance(node, Definition) or node.name.startswith("_"):
                continue
            if any(re.search(r"\.command\(", ast.unparse(one)) for one in node.decorator_list):
                continue  # --help explains every option of a command
            names, text = _arguments(node), ast.get_docstring(node)
            if text is None and isinstance(owner, ast.ClassDef):
                continue  # a method may inherit its docstring
            missing = [name for name in names if not re.search(rf"\b{name}\b", text or "")]
            if len(names) > 2 and missing:
                yield f"{_name(file)}:{node.lineno} {node.name}: {', '.join(missing)}"


def _arguments(node: Definition) -> list[str]:
    """Public names of the arguments of a function, or of a class's constructor."""
    if isinstance(node, ast.ClassDef):
        made = [one for one in node.body if isinstance(one, Definition) and one.name == "__init__"]
        if made:
            return _arguments(made[0])
        if not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            return []
        return [
            one.target.id
            for one in node.body
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and not one.target.id.startswith("_")
            and not re.search(r"ClassVar|init=False", ast.unparse(one))
        ]
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if any(ast.unparse(one).startswith("protocol(") for one in node.decorator_list):
        given = node.args.kwonlyargs  # it is called with its options; @protocol fills in the rest
    return [one.arg for one in given if one.arg not in ("self", "cls") and one.arg[0] != "_"]


def _circles(graph: grimp.ImportGraph) -> list[str]:
    """Groups of rooms that reach one another."""
    rooms = sorted(graph.find_children("consilience"))
    room_of = {module: room for room in rooms for module in [room, *graph.find_descendants(room)]}
    arrows = np.zeros((len(rooms), len(rooms)), dtype=bool)
    for module, room in room_of.items():
        for other in graph.find_modules_directly_imported_by(module):
            if other in room_of:
                arrows[rooms.index(room), rooms.index(room_of[other])] = True
    _, group = connected_components(arrows, directed=True, connection="strong")
    together = ([rooms[i] for i in np.flatnonzero(group == one)] for one in np.unique(group))
    return [", ".join(names) for names in together if len(names) > 1]


def _arrows_up(graph: grimp.ImportGraph) -> list[str]:
    """Imports that the layers of the package forbid."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["type"] == "layers")
    there = {room.rpartition(".")[2] for room in graph.find_children("consilience")}
    floors = [set(re.findall(r"\w+", floor)) & there for floor in layers]
    broken = graph.find_illegal_dependencies_for_layers(
        layers=[floor for floor in floors if floor], containers={"consilience"}
    )
    return [f"{one.importer} -> {one.imported}" for one in sorted(broken, key=str)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print every place that counts")
    every_place = parser.parse_args().list
    for one in measures():
        print(f"{one.name:45}{one.figure:>10}   {one.goal}")
        for place in one.places if every_place else ():
            print(f"    {place}")


if __name__ == "__main__":
    main()
