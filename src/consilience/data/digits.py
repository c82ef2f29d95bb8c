"""The 8x8 handwritten digits that come with scikit-learn: no download, and quick to learn."""

from __future__ import annotations

import numpy as np

from consilience.data.dataset import Dataset
from consilience.data.splits import take_public
from consilience.randomness import stream


def load_digits(*, test_fraction: float = 0.3, seed: int = 0) -> Dataset:
    """1,797 images of 8x8 pixels in [0, 1], as rows of 64; ten classes.

    Args:
        test_fraction: the share of rows, of every class, that is for testing.
        seed: which split; the same seed gives the same one.
    """
    from sklearn.datasets import load_digits as sklearn_digits

    raw = sklearn_digits()
    X, y = (raw.data / 16).astype(np.float32), raw.target.astype(np.int64)
    train, test = take_public(y, float(test_fraction), stream(seed, "digits", 0, "test split"))
    return Dataset(
        name="digits",
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        classes=tuple("0123456789"),
        columns=tuple(raw.feature_names),
        notes=f"Seeded stratified split: {len(test):,} of {len(y):,} rows are for testing.",
    )
