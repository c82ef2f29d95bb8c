"""The package as a whole: what importing it costs, and what it says about itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution, metadata, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.compile(r"^([\w.-]+)==(\S+)(.*(?:\n    --hash=sha256:[0-9a-f]{64}.*)*)", re.MULTILINE)
"""Name, version and hashes in a file of requirements."""

EXTRAS = {
    "excel": "openpyxl",
    "torch": "torch",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "flower": "flwr",
    "page": "prometheus_client",
    "secure": "phe",
    "secure-sum": "cryptography",
    "survival": "sksurv",
}
"""Optional extra -> the module that it brings."""

LARGE = {"text", "embeddings", "images", "ray", "catboost", "mlflow"}
"""Extras that `make test` does not install."""

GPL = {"secure", "survival"}
"""Extras whose libraries are under the GPL, and are installed by name alone."""

LINES = [line.replace('"', "'") for line in requires("consilience") or []]

HEAVY = [
    "torch",
    "transformers",
    "matplotlib",
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "xgboost",
    "lightgbm",
    "flwr",
]


def import_in_fresh_process() -> tuple[float, list[str]]:
    """Seconds that ``import consilience`` takes, and the heavy modules that it loaded."""
    code = (
        "import json, sys, time; start = time.perf_counter(); import consilience;"
        "seconds = time.perf_counter() - start;"
        f"print(json.dumps([seconds, [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, loaded = json.loads(done.stdout)
    return seconds, loaded


def test_import_is_light() -> None:
    runs = [import_in_fresh_process() for _ in range(3)]
    assert [loaded for _, loaded in runs] == [[], [], []]
    assert statistics.median(seconds for seconds, _ in runs) < 0.5


def test_version_is_one_everywhere() -> None:
    import consilience

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert consilience.__version__ == version("consilience") == project["version"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_extras_are_the_documented_ones() -> None:
    """`all` brings what the extras bring but what is under the GPL or large; nothing for developers."""
    named = {
        extra: {line.partition(";")[0].strip() for line in LINES if f"extra == '{extra}'" in line}
        for extra in metadata("consilience").get_all("Provides-Extra") or []
    }
    assert set(named) == {*EXTRAS, *LARGE, "all", "dev", "docs"}
    assert named["all"] == set().union(*(named[extra] for extra in EXTRAS if extra not in GPL))


@pytest.mark.parametrize("module", EXTRAS.values())
def test_the_tests_run_with_every_extra(module: str) -> None:
    """No test of an extra is skipped: `make test` installs them all, but for the large ones."""
    assert importlib.util.find_spec(module) is not None


def _tree(*folders: str) -> set[str]:
    """Files of the checkout below these folders, but what Python compiled."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()]
    return {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts}


def test_the_wheel_and_the_source_archive_hold_all_that_the_tree_does(tmp_path: Path) -> None:
    """Types, templates and styles too; and nothing beside the two packages and their description."""
    pytest.importorskip("hatchling")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        held = {f"src/{name}" for name in archive.namelist() if ".dist-info/" not in name}
    assert held == _tree("src")
    assert {"src/consilience/py.typed", "src/consilience/__init__.pyi"} <= held

    (source,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert _tree("src", "tests", "examples") | {"requirements.txt", "constraints.txt"} <= held


def _pins(name: str) -> dict[str, tuple[str, str]]:
    """Version and hashes of each package in a file, by its name in one spelling."""
    found = PINNED.findall((ROOT / name).read_text())
    return {name.lower().replace("_", "-"): (version, rest) for name, version, rest in found}


def test_what_a_party_needs_has_hashes_and_the_versions_that_were_tested() -> None:
    """All that the package asks for, and what that asks for in turn, as far as it is installed here."""
    hashed, tested = _pins("requirements.txt"), _pins("constraints.txt")
    for name, (version_, hashes) in hashed.items():
        assert version_ == tested[name][0], name
        assert "--hash=sha256:" in hashes, name
    wanted = [("consilience", extra) for extra in ("", "excel", "flower", "page", "secure-sum")]
    met = set(wanted)
    while wanted:
        name, extra = wanted.pop()
        for one in _requirements(name):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                below = one.name.lower().replace("_", "-")
                assert below in hashed, f"{below}, which {name} needs"
                more = {(below, part) for part in ("", *one.extras)} - met
                met |= more
                wanted += more
                assert here_is_another(name, tested) or one.specifier.contains(tested[below][0]), (
                    f"{one}, which {name} needs"
                )
    assert len(met) > 40


def _requirements(name: str) -> list[Requirement]:
    """What a package asks for, as far as it is installed here; the project's own are those of its file."""
    if name != "consilience":
        there = next(Distribution.discover(name=name), None)
        return [Requirement(line) for line in (there and there.requires) or []]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].items()
    more = [f'{line}; extra == "{extra}"' for extra, lines in extras for line in lines]
    return [Requirement(line) for line in (*project["dependencies"], *more)]


def here_is_another(name: str, tested: dict[str, tuple[str, str]]) -> bool:
    """Return true if a package is installed here at another version than the one that was tested."""
    return name != "consilience" and version(name) != tested[name][0]


def test_flowers_versions_stand_in_one_place_and_its_canary_is_resolved() -> None:
    wanted = _requirements("consilience")
    (flower,) = [one for one in wanted if one.name == "flwr" and one.specifier]
    assert "1.41.0" in flower.specifier and _pins("constraints.txt")["flwr"][0] in flower.specifier
    recipe = (ROOT / "Makefile").read_text().partition("\ncanary:")[2].partition("\n\n")[0]
    install = [line for line in recipe.splitlines() if "pip install" in line][-1]
    assert "-c " in install and "--no-deps" not in install and "flwr==$$newest" in install


NAMED = re.compile(r"from (consilience[\w.]*) import ([\w, ]+?)(?=\s*(?:#|;|\\n|\n|\"|'|`|$))")
"""An import of ours in one line, in code, in a text or in a document."""


def test_imports_that_texts_and_documents_name_are_there() -> None:
    """In strings that are written as programs too, which type checkers do not read."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    files += [*(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.ipynb")]
    lacking = []
    for file in files:
        for module, names in NAMED.findall(file.read_text(encoding="utf-8")):
            found = importlib.import_module(module)
            for name in (one.split(" as ")[0].strip() for one in names.split(",")):
                whole = f"{module}.{name}"
                if not hasattr(found, name) and importlib.util.find_spec(whole) is None:
                    lacking.append(f"{file.relative_to(ROOT)}: {whole}")
    assert not lacking and len(files) > 500
