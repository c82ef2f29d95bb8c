from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data import Dataset


def make(**changes: Any) -> Dataset:
    """Four training and two test rows of two columns and two classes, with some fields changed."""
    fields: dict[str, Any] = {
        "name": "small",
        "X": np.arange(8.0).reshape(4, 2),
        "y": np.array([0, 1, 0, 1]),
        "X_test": np.ones((2, 2)),
        "y_test": np.array([1, 0]),
        "classes": ("no", "yes"),
        "columns": ("age", "dose"),
    }
    return Dataset(**fields | changes)


def test_arrays_get_the_promised_types() -> None:
    data = make(y=np.array([0, 1, 0, 1], dtype=np.uint8), group=["a", "a", "b", "b"],
                group_test=["a", "b"])  # fmt: skip
    assert (data.X.dtype, data.y.dtype) == (np.float32, np.int64)
    assert data.group is not None and data.group.dtype.kind == "U"
    regression = make(classes=None)
    assert regression.y.dtype == np.float64


def with_nan() -> np.ndarray[Any, Any]:
    X = np.zeros((4, 2))
    X[:3, 1] = np.nan
    X[0, 0] = np.inf
    return X


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"X": np.empty((0, 2)), "y": np.empty(0, dtype=int)}, "training rows: there are no rows"),
        ({"X_test": np.empty((0, 2)), "y_test": np.empty(0, dtype=int)}, "test rows: there are no"),
        ({"X": with_nan()}, "1 in 'age', 3 in 'dose'"),
        ({"X": with_nan(), "columns": None}, "4 values in 3 rows are NaN or infinite"),
        ({"X": np.full((4, 2), 1e300)}, "4 in 'age', 4 in 'dose'"),
        ({"y": np.array([0, 1, 0])}, "4 rows and 3 labels"),
        ({"y": np.array([0, 1, 0, 2])}, "labels run from 0 to 2, and there are 2 classes"),
        ({"y": np.array([0, -1, 0, 1])}, "labels run from -1 to 1"),
        ({"y": np.array([0.0, 1, 0, 1])}, "integer codes"),
        ({"y": np.array(["no", "yes", "no", "yes"])}, "integer codes"),
        ({"y": np.zeros((4, 1), dtype=int)}, r"shape \(4, 1\)"),
        ({"classes": ("no",)}, "only one class"),
        ({"classes": ("no", "no")}, "same name"),
        ({"classes": None, "y": np.array([0, 1, np.nan, 2])}, "1 targets are NaN"),
        ({"columns": ("age",)}, "1 column names"),
        ({"X_test": np.ones((2, 3)), "columns": None}, "training rows have shape"),
        ({"X": np.ones(4), "columns": None}, r"shape \(n, \.\.\.\)"),
        ({"X": np.ones((4, 2), dtype=complex)}, "real numbers"),
        ({"X": np.array([["a", 1]] * 4, dtype=object)}, "numbers or one text a row"),
        ({"X": np.array(["a", "b", None, "d"], dtype=object)}, "numbers or one text a row"),
        ({"group": ["a", "b"], "group_test": ["a", "b"]}, "4 rows and 2 groups"),
        ({"group": ["a", "b", "a", "b"]}, "only one of training and test"),
    ],
)
def test_bad_input_is_refused_and_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make(**changes)


def test_a_value_that_is_large_but_finite_is_taken() -> None:
    """float32 ends at 3.4e38; the check adds values up and must not overflow on the way."""
    assert make(X=np.full((4, 2), 3e38)).X.max() == np.float32(3e38)


def test_flat_makes_images_lines_and_leaves_the_rest() -> None:
    """A 2x2 image is read row by row."""
    images = make(X=np.arange(16.0).reshape(4, 2, 2), X_test=np.ones((2, 2, 2)), columns=None)
    assert images.flat().X.tolist()[1] == [4, 5, 6, 7]
    assert images.flat().X_test.shape == (2, 4)
    table = make()
    assert table.flat() is table
    texts = make(X=np.array(["a", "b", "c", "d"]), X_test=np.array(["e", "f"]), columns=None)
    assert texts.is_text and texts.flat() is texts


def test_take_keeps_rows_labels_and_groups_together() -> None:
    data = make(group=["a", "b", "c", "d"], group_test=["a", "b"])
    part = data.take(np.array([3, 0]))
    assert part.X.tolist() == [[6, 7], [0, 1]]
    assert part.y.tolist() == [1, 0]
    assert part.group is not None and part.group.tolist() == ["d", "a"]
    assert len(part.X_test) == 2
