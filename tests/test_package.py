"""The package as a whole: what importing it costs, and what it says about itself."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, requires, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

EXTRAS = {
    "excel": "openpyxl",
    "torch": "torch",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "flower": "flwr",
    "secure": "phe",
    "secure-sum": "cryptography",
    "survival": "sksurv",
}
"""Optional extra -> the module that it brings."""

LARGE = {"text", "embeddings", "images", "ray", "catboost"}
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
