"""Diabetes patients and their disease a year later: regression that comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from consilience.core.numerics.randomness import stream
from consilience.tables.dataset import Dataset
from consilience.tables.splits import take_public


def load_diabetes(*, test_fraction: float = 0.3, seed: int = 0) -> Dataset:
    """442 patients, 10 columns (age, sex, body-mass index, blood pressure, six blood values); values.

    The target is a measure of how far the disease has gone on after one year, from 25 to 346. Columns keep
    their units: ``standardize = true`` in a configuration brings them to one scale.

    Args:
        test_fraction: the share of rows, over the whole range of targets, that is for testing.
        seed: which split; the same seed gives the same one.
    """
    from sklearn.datasets import load_diabetes as sklearn_diabetes

    raw = sklearn_diabetes(scaled=False)
    X, y = raw.data.astype(np.float32), raw.target
    train, test = take_public(y, float(test_fraction), stream(seed, "diabetes", 0, "test split"))
    return Dataset(
        name="diabetes",
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        classes=None,
        columns=tuple(raw.feature_names),
        notes=f"Seeded split, even over the targets: {len(test):,} of {len(y):,} rows are for testing.",
    )
