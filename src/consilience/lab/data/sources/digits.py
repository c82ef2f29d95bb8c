"""The 8x8 handwritten digits that come with scikit-learn: no download, and quick to learn."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.numerics.randomness import stream
from consilience.tables.dataset import Dataset
from consilience.tables.splits import take_public


def load_digits(*, test_fraction: float = 0.3, seed: int = 0) -> Dataset:
    """1,797 images of 8x8 pixels in [0, 1], as rows of 64; ten classes.

    Args:
        test_fraction: the share of rows, of every class, that is for testing.
        seed: which split; the same seed gives the same one.
    """
    table = _pixels_and_labels()
    X, y = (table[:, :-1] / 16).astype(np.float32), table[:, -1].astype(np.int64)
    train, test = take_public(y, float(test_fraction), stream(seed, "digits", 0, "test split"))
    return Dataset(
        name="digits",
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        classes=tuple("0123456789"),
        columns=tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        notes=f"Seeded stratified split: {len(test):,} of {len(y):,} rows are for testing.",
    )


@cache
def _pixels_and_labels() -> NDArray[Any]:
    """Pixels 0 … 16 and the digit, from the file in scikit-learn's folder, without importing its code."""
    spec = find_spec("sklearn")
    assert spec is not None and spec.origin is not None
    return np.loadtxt(
        Path(spec.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=","
    )
