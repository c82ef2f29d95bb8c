"""Measure the structure of the library, and hold it to the figures of ``structure.toml``.

    python benchmarks/structure.py           # the figures; ends with 1 if one is worse than in structure.toml
    python benchmarks/structure.py --list    # and every place that counts
    python benchmarks/structure.py --write   # write better figures into structure.toml

A figure may be raised in ``structure.toml`` by hand, with a ``reason`` beside it, unless its goal is 0; or
with what it ``counts``, if that has changed. A goal is never raised. Every commit is held to this.
The reproductions of papers are left aside.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import grimp
import numpy as np
import style
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
LIBRARY = SOURCE / "consilience"
KEPT = Path(__file__).with_suffix(".toml")

FEDERATION = """
import sys
import numpy as np
from sklearn.linear_model import LogisticRegression
from consilience import Federation, Party, ensemble_distillation
X = np.random.default_rng(0).normal(size=(240, 3))
y = (X[:, 0] > 0).astype(int)
parties = [Party(n, LogisticRegression(), X[i::4], y[i::4]) for i, n in enumerate("abc")]
Federation(parties, X[3::4]).run(ensemble_distillation(rounds=2))
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "consilience"))
"""


def figures() -> dict[str, tuple[int, list[str]]]:
    """Measure the library of this checkout: figures, of which less is better, and the places they count."""
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted(LIBRARY.rglob("*.py"))}
    graph = grimp.build_graph("consilience", include_external_packages=False, cache_dir=None)
    counted = {
        "folders": sorted({_name(file).split("/")[0] for file in trees if file.parent != LIBRARY}),
        "imports_from_core": [*_forbidden(graph, ["core"]), *_imported_by_name(trees)],
        "forbidden_imports_elsewhere": list(_forbidden(graph, [*ALLOWED])),
        "modules_outside_core_in_two_rounds": _loaded_outside_core(),
        "attributes_of_a_party_written_elsewhere": _written_elsewhere(trees),
        "decisions_on_a_task_outside_its_feature": list(_decisions(trees)),
        "modules_in_circles": _in_circles(graph),
        "parameters_of_party": _parameters_of_party(trees),
        "members_of_party_view": _members_of_party_view(trees),
        "files_that_import_party": _importers_of_party(trees),
        "docstrings_with_a_mark_of_style": style.marked_docstrings(trees),
        "marks_of_style_in_readme_and_titles": style.marked_pages(),
    }
    lines = sum(_code_lines(file, tree) for file, tree in trees.items())
    figures = {name: (len(places), places) for name, places in counted.items()}
    return {"lines_of_code": (lines, [])} | figures


def _name(file: Path) -> str:
    return str(file.relative_to(LIBRARY))


def _code_lines(file: Path, tree: ast.Module) -> int:
    """Count lines that are no docstring, no comment and not blank."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            prose.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    return sum(i not in prose and line.strip()[:1] not in ("", "#") for i, line in lines)


_FEATURES = ("core", "models", "methods", "privacy", "tables")
ALLOWED = {
    "models": ("core",),
    "methods": ("core", "models"),
    "tables": ("core", "models"),
    "privacy": ("core", "methods", "models"),  # training with noise changes the steps of a model
    "lab": _FEATURES,
    "sites": (*_FEATURES, "lab.config", "lab.runs", "lab.report.html", "lab.cli.output"),
}
"""Folders to the parts of the library that they may import, beside themselves."""


def _forbidden(graph: grimp.ImportGraph, folders: Sequence[str]) -> Iterator[str]:
    """Imports of folders from parts that they may not import, those inside functions included.

    A feature's command may import what commands print with.
    """
    for folder in folders:
        allowed = [f"consilience.{one}." for one in (folder, *ALLOWED.get(folder, ()))]
        for module in sorted(graph.find_descendants(f"consilience.{folder}")):
            prints = module.endswith((".command", ".commands"))
            for other in sorted(graph.find_modules_directly_imported_by(module)):
                if prints and other == "consilience.lab.cli.output":
                    continue
                if other != "consilience" and not f"{other}.".startswith(tuple(allowed)):
                    yield f"{module} -> {other}"


def _imported_by_name(trees: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Public names of the package that core imports, and calls in core that import a module by its name."""
    for file, tree in trees.items():
        for node in ast.walk(tree) if _feature(file) == "core" else ():
            if isinstance(node, ast.ImportFrom) and node.module == "consilience":
                named = [one.name for one in node.names if one.name != "__version__"]
                yield from (f"{_name(file)}:{node.lineno} {one}" for one in named)
        calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
        for call in calls if _feature(file) == "core" else ():
            if ast.unparse(call.func).rpartition(".")[2] not in ("import_module", "__import__"):
                continue
            for one in call.args:
                if isinstance(one, ast.Constant) and not f"{one.value}.".startswith(
                    "consilience.core."
                ):
                    yield f"{_name(file)}:{call.lineno} {one.value}"


def _loaded_outside_core() -> list[str]:
    """Modules outside core that a federation of two rounds loads."""
    places = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FEDERATION],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": places},
        check=True,
    )
    loaded = done.stdout.split()
    return [one for one in loaded if "." in one and not f"{one}.".startswith("consilience.core.")]


def _parameters_of_party(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Parameters of the constructor of ``Party``."""
    for node in ast.walk(trees[LIBRARY / "core/party/party.py"]):
        if isinstance(node, ast.ClassDef) and node.name == "Party":
            for made in node.body:
                if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                    given = made.args
                    named = [*given.posonlyargs, *given.args, *given.kwonlyargs][1:]
                    return [one.arg for one in (*named, given.vararg, given.kwarg) if one]
    raise LookupError("core/party/party.py has no class Party with a constructor")


def _members_of_party_view(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Members of a party that tasks may use."""
    return [
        one.name
        for node in ast.walk(trees[LIBRARY / "core/party/view.py"])
        if isinstance(node, ast.ClassDef) and node.name == "PartyView"
        for one in node.body
        if isinstance(one, ast.FunctionDef)
    ]


def _importers_of_party(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Files that import the class ``Party``, for types too."""
    return [
        _name(file)
        for file, tree in trees.items()
        if any(
            isinstance(node, ast.ImportFrom) and any(one.name == "Party" for one in node.names)
            for node in ast.walk(tree)
        )
    ]


NO_PARTIES = (
    "core/federation/federation.py",
    "core/messages/schema.py",
    "models/fixed.py",
    "methods/kernel_federations/agents.py",
    "methods/kernel_federations/federation.py",
    "methods/model_exchange/party.py",
    "sites/coordinator/rounds.py",
)
"""Files that assign attributes of other objects, which have the names of a party's."""


def _written_elsewhere(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Assignments to an attribute of a party or its parts outside ``core/party``, or to an item of one.

    Assigned are attributes that a class of ``core/party`` has, of anything but ``self``; and by a base of
    ``Party`` in another folder, whatever it assigns to itself.
    """
    inside = LIBRARY / "core/party"
    parts = [
        node
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and file.parent == inside
    ]
    names = {node.name for node in parts}
    for node in parts:
        if node.name == "Party":
            names |= {one.id for one in node.bases if isinstance(one, ast.Name)}
    classes = [
        (file, node)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in names
    ]
    own = {name for _, node in classes for name, _ in _assigned(node, "self")}
    elsewhere = {
        file
        for file in trees
        if file.parent != LIBRARY / "core/party" and _name(file) not in NO_PARTIES
    }
    return sorted(
        f"{_name(file)}:{line} {name}"
        for file in elsewhere
        for name, line in [
            *((name, line) for name, line in _assigned(trees[file], "") if name in own),
            *(found for at, node in classes if at == file for found in _assigned(node, "self")),
        ]
    )


def _assigned(tree: ast.AST, owner: str) -> Iterator[tuple[str, int]]:
    """Names and lines of the attributes that are assigned, of ``self`` or, for an empty owner, of others."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                held = one.value if isinstance(one, ast.Subscript) else one
                if isinstance(held, ast.Attribute):
                    of_self = isinstance(held.value, ast.Name) and held.value.id == "self"
                    if of_self == (owner == "self"):
                        yield held.attr, node.lineno


def _decisions(trees: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Decisions on the type of a task, or on its name, outside the folder that defines the task."""
    home: dict[str, str] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                one.arg == "reply_type" for one in node.keywords
            ):
                home[node.name] = _feature(file)
    for file, tree in trees.items():
        groups = _groups(tree)
        for node in ast.walk(tree):
            for name in _decided(node):
                for task in groups.get(name, (name,)):
                    if task in home and home[task] != _feature(file):
                        yield f"{_name(file)}:{getattr(node, 'lineno', 0)} {task}"
                        break


def _groups(tree: ast.Module) -> dict[str, list[str]]:
    """Names that a module assigns at its top, to the names in the value, such as a tuple of tasks."""
    return {
        target.id: [one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)]
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _feature(file: Path) -> str:
    """Folder of a feature; core is one."""
    parts = file.relative_to(LIBRARY).parts
    return "/".join(parts[:1] if parts[0] == "core" else parts[:-1][:2])


def _decided(node: ast.AST) -> list[str]:
    """Names that a node decides by: of types, or texts that may be names of types."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        return [one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)]
    if isinstance(node, ast.MatchClass):
        return [one.id for one in ast.walk(node.cls) if isinstance(one, ast.Name)]
    if isinstance(node, ast.Compare):
        sides = [one for side in (node.left, *node.comparators) for one in ast.walk(side)]
        return [one.id for one in sides if isinstance(one, ast.Name)] + [
            one.value
            for one in sides
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
    return []


def _in_circles(graph: grimp.ImportGraph) -> list[str]:
    """Modules that import themselves through others; imports for types count."""
    modules = sorted(graph.modules)
    place = {module: i for i, module in enumerate(modules)}
    arrows = np.zeros((len(modules), len(modules)), dtype=bool)
    for module in modules:
        for other in graph.find_modules_directly_imported_by(module):
            arrows[place[module], place[other]] = True
    _, group = connected_components(arrows, directed=True, connection="strong")
    sizes = np.bincount(group)
    return [module for module, one in zip(modules, group, strict=True) if sizes[one] > 1]


def faults(
    found: Mapping[str, int], kept: Mapping[str, Any], before: Mapping[str, Any]
) -> list[str]:
    """List the figures that are worse than they may be.

    Args:
        found: figures as measured.
        kept: figure to its table of ``structure.toml``: ``value``, ``goal`` and maybe ``reason``.
        before: the same of the last commit; empty if there is none.
    """
    told = [
        f"{name} is {value}, and structure.toml has {kept[name]['value']}"
        for name, value in found.items()
        if value > kept[name]["value"]
    ]
    for name, now in kept.items():
        last = before.get(name, now)
        if now["goal"] > last["goal"]:
            told.append(f"structure.toml raises the goal of {name}")
        if now["value"] <= last["value"] or now.get("counts", "") != last.get("counts", ""):
            continue
        if now["goal"] == 0:
            told.append(f"structure.toml raises {name}, whose goal is 0")
        elif now.get("reason", "") == last.get("reason", ""):
            told.append(f"structure.toml raises {name} without a new reason")
    return told


def committed() -> list[Mapping[str, Any]]:
    """Read ``structure.toml`` as every commit left it, the last first; none where there is no history."""
    name = str(KEPT.relative_to(ROOT))
    told = _git("log", "--format=%H", "--", name).split()
    return [tomllib.loads(_git("show", f"{one}:{name}")) for one in told]


def _git(*words: str) -> str:
    """What git says; nothing where it fails, as it does outside of a checkout."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout


def write(found: Mapping[str, int], kept: Mapping[str, Any]) -> None:
    """Write figures that are better than the kept ones; goals and reasons stay."""
    lines = []
    for name, table in kept.items():
        table = {**table, "value": min(found[name], table["value"])}
        lines += [
            f"[{name}]",
            *(f"{key} = {json.dumps(value)}" for key, value in table.items()),
            "",
        ]
    KEPT.write_text("\n".join(lines), "utf-8")


def main() -> None:
    """Print the figures, and end with 1 where one is worse than it may be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print every place that counts")
    parser.add_argument("--write", action="store_true", help="write better figures")
    given = parser.parse_args()
    measured, kept = figures(), tomllib.loads(KEPT.read_text("utf-8"))
    found = {name: value for name, (value, _) in measured.items()}
    for name, (value, places) in measured.items():
        print(f"{name:42}{value:>7,}  (goal {kept[name]['goal']:,})")
        for place in places if given.list else ():
            print(f"    {place}")
    history = committed() or [kept]
    told = faults(found, kept, history[0])
    told += [one for now, before in pairwise(history) for one in faults({}, now, before)]
    if given.write:
        write(found, kept)
    sys.exit("\n".join(told) or None)


if __name__ == "__main__":
    main()
