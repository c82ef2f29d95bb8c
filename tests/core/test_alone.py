"""Core alone: what a federation imports that takes nothing of the other folders."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOTS = ("numpy", "scipy", "scikit-learn", "safetensors")
"""Packages that core runs with, beside what these require."""


def allowed() -> set[str]:
    """Names that the packages of :data:`ROOTS`, and all that they require, are imported by."""
    found: set[str] = set()
    todo = [*ROOTS]
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found.add(name)
            needed = map(Requirement, requires(name) or ())
            todo += [
                one.name
                for one in needed
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    known = packages_distributions().items()
    return {top for top, names in known if found & {*map(canonicalize_name, names)}}


HOOK = """
import sys
import importlib.abc

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        ours = name.startswith("consilience.") and not (name + ".").startswith("consilience.core.")
        if ours or (top in FOREIGN and top not in ALLOWED):
            raise ImportError(f"core imports {name}")

import importlib.metadata
FOREIGN = {*importlib.metadata.packages_distributions()} - {"consilience", "__editable___consilience_finder"}
sys.meta_path.insert(0, Refuse())
"""

FEDERATION = Path(__file__).with_name("federation_alone.py").read_text(encoding="utf-8")


def test_a_federation_imports_nothing_but_core_and_what_it_requires() -> None:
    code = f"ALLOWED = {allowed()}\n{HOOK}\n{FEDERATION}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_the_hook_refuses_the_other_folders() -> None:
    code = f"ALLOWED = {allowed()}\n{HOOK}\nfrom consilience.models import make\nmake('knn')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "core imports consilience.models" in done.stderr
