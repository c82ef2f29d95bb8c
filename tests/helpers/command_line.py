"""A small federation for tests of the command line, and how to call it in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from click.testing import Result

CONFIG = """
name = "tiny"
methods = ["local", "avg", "uwa", "central"]
[data]
name = "digits"
public = 200
[partition]
name = "classes"
parties = 4
per_party = 5
[protocol]
rounds = 2
[[models]]
name = "naive-bayes"
[[models]]
name = "knn"
"""

TABLE = """
name = "clinics"
methods = ["local", "uwa"]
[data]
name = "csv"
path = "clinics.csv"
target = "ill"
group = "clinic"
public = 0.3
[partition]
name = "group"
[protocol]
rounds = 1
[[models]]
name = "naive-bayes"
"""

Call = Callable[..., Result]


def clinics() -> list[str]:
    """Lines of a table: two clinics, 40 patients each, of whom those older than 50 are ill."""
    rng = np.random.default_rng(0)
    lines = ["age,pressure,clinic,ill"]
    for clinic in ("north", "south"):
        for age, pressure in zip(rng.integers(20, 80, 40), rng.integers(90, 160, 40), strict=True):
            lines.append(f"{age},{pressure},{clinic},{'yes' if age > 50 else 'no'}")
    return lines


PROGRAM = [sys.executable, "-P", "-c", "from consilience.lab.cli.main import main; main()"]
"""The current folder is not in its ``sys.path``, as it is not in that of the shell's ``consilience``."""


def shell(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own."""
    given = {"timeout": 120, **options}
    return subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True, **given)
