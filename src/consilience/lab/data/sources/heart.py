"""Heart disease at four hospitals (UCI), prepared as in FLamby."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.numerics.randomness import stream
from consilience.lab.config.sections import known
from consilience.lab.data.downloads import damaged, obtain, read_bytes
from consilience.tables.dataset import Dataset
from consilience.tables.rows import rows_and_schema
from consilience.tables.splits import take_public
from consilience.tables.table import Table
from consilience.tables.texts import is_number

ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
HASHES = {
    "cleveland": "md5:2d91a8ff69cfd9616aa47b59d6f843db",
    "hungarian": "md5:22e96bee155b5973568101c93b3705f6",
    "switzerland": "md5:9a87f7577310b3917730d06ba9349e20",
    "va": "md5:4249d03ca7711e84f4444768c9426170",
}
MEASURED = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
# The first value of each is what the others are compared with, so it has no column.
CATEGORIES = {"cp": (2, 3, 4), "restecg": (1, 2)}
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
DROPPED = ("slope", "ca", "thal")
WORDS = {
    "sex": {"0": "female", "1": "male"},
    "cp": {"1": "typical", "2": "atypical", "3": "other pain", "4": "none"},
    "restecg": {"0": "normal", "1": "ST-T wave", "2": "hypertrophy"},
    "slope": {"1": "up", "2": "flat", "3": "down"},
    "thal": {"3": "normal", "6": "fixed defect", "7": "reversible defect"},
}
"""Categories of columns, by their codes in the files (``heart-disease.names``)."""


def load_heart_disease(
    *,
    test_fraction: float = 0.34,
    seed: int = 0,
    gaps: bool = False,
    groups: Collection[str] | None = None,
) -> Dataset:
    """740 patients of four hospitals, 13 columns; is the heart diseased? ``group`` = hospital.

    As FLamby: ``slope``, ``ca`` and ``thal`` are dropped, then patients with a missing value; chest
    pain and resting ECG are one-hot without their first value; disease is ``num > 0``. Columns keep
    their units: put a scaler before models that need one.

    Args:
        test_fraction: the share of each hospital's rows, of both classes, that is for testing.
        seed: which split; the same seed gives the same one.
        gaps: every patient (920) and every column (13) as they are: gaps as gaps, categories as categories.
            A cholesterol or blood pressure of 0 was not measured, and is a gap.
        groups: names of the hospitals that take part; by default all.
    """
    for name in groups or ():
        known(name, HASHES, "hospital")
    hospitals = [one for one in HASHES if groups is None or one in groups]
    if gaps:
        return _with_gaps(hospitals, float(test_fraction), seed)
    tables = {hospital: _read(hospital) for hospital in hospitals}
    rows = np.concatenate(list(tables.values()))
    group = np.repeat(list(tables), [len(table) for table in tables.values()])
    value = {name: rows[:, i] for i, name in enumerate(c for c in COLUMNS if c not in DROPPED)}
    columns = {name: value[name] for name in MEASURED}
    for name, kinds in CATEGORIES.items():
        columns |= {f"{name}={kind}": value[name] == kind for kind in kinds}
    X = np.column_stack(list(columns.values())).astype(np.float32)
    y = (value["num"] > 0).astype(np.int64)

    rng = stream(seed, "heart-disease", 0, "test split")
    train, test = take_public(y, float(test_fraction), rng, group=group)
    return Dataset(
        name="heart-disease",
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        classes=("healthy", "diseased"),
        columns=tuple(columns),
        group=group[train],
        group_test=group[test],
        notes="Rows with a missing value are left out: "
        + ", ".join(f"{hospital} keeps {len(table)}" for hospital, table in tables.items())
        + ". A cholesterol of 0 (all of switzerland, part of va) means not measured.",
    )


def _with_gaps(hospitals: Sequence[str], test_fraction: float, seed: int) -> Dataset:
    """All rows and columns, read in the same way as a user's table."""
    lines = {hospital: _lines(*_file(hospital)) for hospital in hospitals}
    group = np.repeat(list(lines), list(map(len, lines.values())))
    cells = np.array([line for found in lines.values() for line in found], dtype=object)
    columns: dict[str, Any] = {}
    for name, texts in zip(COLUMNS, cells.T, strict=True):
        values = [None if text == "?" else f"{float(text):g}" for text in texts]
        if name in WORDS:
            values = [WORDS[name].get(str(value)) for value in values]
        elif name in ("chol", "trestbps"):
            values = [None if value == "0" else value for value in values]
        columns[name] = values
    y = np.array([float(value) > 0 for value in columns.pop("num")]).astype(np.int64)
    rows = rows_and_schema(Table.of(columns, where="heart-disease"), where="heart-disease")
    rng = stream(seed, "heart-disease", 0, "test split")
    train, test = take_public(y, test_fraction, rng, group=group)
    return Dataset(
        name="heart-disease",
        X=rows.X[train],
        y=y[train],
        X_test=rows.X[test],
        y_test=y[test],
        classes=("healthy", "diseased"),
        columns=tuple(columns),
        group=group[train],
        group_test=group[test],
        schema=rows.schema,
    )


def _file(hospital: str) -> tuple[Path, bytes]:
    file = f"processed.{hospital}.data"
    path = obtain("heart-disease", file, ADDRESS + file, HASHES[hospital])
    return path, read_bytes(path)


def _read(hospital: str) -> NDArray[Any]:
    """One hospital's complete rows, without the dropped columns."""
    return _parsed(*_file(hospital))


def _lines(path: Path, content: bytes) -> list[list[str]]:
    """The rows of a file, their values as texts."""
    lines = [line for line in csv.reader(io.StringIO(content.decode("latin-1"))) if line]
    for line in lines:
        if len(line) != len(COLUMNS):
            raise damaged(path, f"a row of {len(line)} values")
        if words := [text for text in line if text != "?" and not is_number(text)]:
            raise damaged(path, f"a value {words[0]!r}")
    return lines


@lru_cache(maxsize=len(HASHES))  # every seed splits the same rows
def _parsed(path: Path, content: bytes) -> NDArray[Any]:
    keep = [i for i, name in enumerate(COLUMNS) if name not in DROPPED]
    table = []
    for line in _lines(path, content):
        kept = [line[i] for i in keep]
        if "?" in kept:
            continue
        table.append([float(text) for text in kept])
    return np.array(table).reshape(-1, len(keep))
