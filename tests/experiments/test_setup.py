"""One scale at every party, taken from the public rows alone."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.data import DATASETS, Dataset
from consilience.data.dataset import as_texts
from consilience.data.registry import DatasetEntry
from consilience.errors import InvalidInput
from consilience.experiments import gather, parse_spec
from consilience.experiments.setup import Scaling, SimulatedParties

CONFIG = """
name = "scaled"
methods = ["local", "mean"]
[data]
name = "diabetes"
public = 150
[partition]
parties = 3
[[models]]
name = "ridge"
"""


def cohort(**data: Any) -> SimulatedParties:
    document = tomllib.loads(CONFIG)
    document["data"] |= data
    return gather(parse_spec(document, where="test"), seed=0)


def test_a_scaling_by_hand() -> None:
    """Column 1 holds 1 and 3: mean 2, deviation 1. Column 2 is 7 throughout: centred, never divided."""
    scaling = Scaling.of(np.array([[1, 7], [3, 7]], dtype=np.float32))
    assert scaling.centre.tolist() == [2, 7] and scaling.spread.tolist() == [1, 1]
    scaled = scaling(np.array([[4, 8]], dtype=np.float32))
    assert scaled.tolist() == [[2, 1]] and scaled.dtype == np.float32


def test_a_constant_that_no_binary_number_is() -> None:
    """The deviation of rows that are all 0.1 comes out as rounding; they are constant all the same."""
    rows = np.full((11, 1), 0.1, dtype=np.float32)
    assert Scaling.of(rows).spread.tolist() == [1]
    assert np.abs(Scaling.of(rows)(rows)).max() < 1e-7


def test_public_rows_have_mean_0_and_deviation_1() -> None:
    plain, scaled = cohort(), cohort(standardize=True)
    X = scaled.public.X.astype(np.float64)
    assert X.shape == (150, 10)
    assert np.abs(X.mean(axis=0)).max() < 1e-6
    assert np.abs(X.std(axis=0) - 1).max() < 1e-6
    centre, spread = (getattr(plain.public.X, f)(axis=0, dtype=float) for f in ("mean", "std"))
    for part in ("X", "X_test"):
        expected = (getattr(plain.dataset, part) - centre) / spread
        assert np.allclose(getattr(scaled.dataset, part), expected, atol=1e-5)
    for mine, theirs in zip(scaled.rows, plain.rows, strict=True):
        assert np.array_equal(mine, theirs)


def test_without_the_key_rows_are_as_they_came() -> None:
    plain = cohort()
    assert plain.scaling is None
    ages = plain.dataset.X[:, 0]
    assert ages.min() >= 19 and (ages == ages.round()).all()


def test_images_are_scaled_pixel_by_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, 2, size=(60, 4, 5))

    def images() -> Dataset:
        return Dataset("images", X[:40], np.arange(40.0), X[40:], np.arange(20.0), None)

    monkeypatch.setitem(DATASETS, "images", DatasetEntry(images, "images", "nobody"))
    scaled = cohort(name="images", public=20, standardize=True)
    assert scaled.scaling is not None and scaled.scaling.centre.shape == (4, 5)
    assert np.abs(scaled.public.X.mean(axis=0)).max() < 1e-6


def table(path: Path, seed: int, n: int, *, scale: float = 1) -> Path:
    rows = np.random.default_rng(seed).normal([50, 120], [10, 15], size=(n, 2)) / scale
    path.write_text("age,pressure,dose\n" + "".join(f"{a},{p},{a + p}\n" for a, p in rows))
    return path


def test_public_rows_of_a_file_of_their_own(tmp_path: Path) -> None:
    given = {
        "name": "csv",
        "path": str(table(tmp_path / "doses.csv", 0, 60)),
        "target": "dose",
        "public": None,
        "public_file": str(table(tmp_path / "public.csv", 1, 30)),
        "standardize": True,
    }
    scaled = cohort(**given)
    assert len(scaled.public) == 30
    assert np.abs(scaled.public.X.mean(axis=0)).max() < 1e-6
    assert scaled.scaling is not None and scaled.scaling.centre[0] == pytest.approx(50, abs=5)
    table(tmp_path / "public.csv", 1, 30, scale=1000)
    with pytest.raises(InvalidInput, match="on another scale"):
        cohort(**given)


def test_texts_have_no_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = as_texts([f"row {i}" for i in range(40)])

    def words() -> Dataset:
        return Dataset("words", texts, np.arange(40.0), texts, np.arange(40.0), None)

    monkeypatch.setitem(DATASETS, "words", DatasetEntry(words, "words", "nobody"))
    with pytest.raises(InvalidInput, match="are texts, which have no scale"):
        cohort(name="words", public=10, standardize=True)
