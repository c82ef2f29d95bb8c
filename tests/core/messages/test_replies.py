"""Public data and what is made of replies."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.replies import Failure, Predictions, Receipt, Replies
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import LogDensities, RowCount
from consilience.methods.parameters.tasks import Parameters


@pytest.mark.parametrize(
    ("X", "why"),
    [
        (np.zeros((0, 3)), "no public data"),
        (np.array(1.0), "no public data"),
        (np.array([[1.0, np.nan], [np.inf, 1.0], [0, 0]]), "1 of 3 rows hold NaN.*column 0"),
        (np.array([{"a": 1}]), "Python objects"),
        (np.array(["2020-01-01"], dtype="datetime64"), "datetime64"),
        (np.ones((2, 2)) * 1j, "complex128"),
        (np.array([b"text"]), "S4"),
    ],
)
def test_public_data_that_cannot_be_used(X, why):
    with pytest.raises(InvalidInput, match=why):
        Public(X)


@pytest.mark.parametrize(
    "X",
    [np.ones((2, 3)), np.ones((2, 3, 3), np.uint8), np.array(["a", "b"]), np.array(["a"], object)],
)
def test_public_data_that_can(X):
    assert len(Public(X)) == len(X)


def test_nobody_can_write_into_public_data():
    """All parties hold the same rows: one that scaled them in place would scale them for all."""
    X = np.ones((2, 2))
    public = Public(X)
    with pytest.raises(ValueError, match="read-only"):
        public.X[0] = 2
    X[0] = 2  # the user's own array stays the user's


def test_the_key_tells_public_sets_apart():
    X = np.arange(6.0).reshape(3, 2)
    key = Public(X).key
    assert key == Public(X.copy()).key == Public(np.asfortranarray(X)).key
    others = [X[::-1], X[:2], X.reshape(2, 3), X.astype(np.float32), X + 1e-9, X.astype(int)]
    keys = {Public(other).key for other in others}
    assert len(keys) == len(others) and key not in keys


def test_the_key_of_texts():
    assert Public(np.array(["a", "b"])).key == Public(np.array(["a", "b"], dtype="U9")).key
    assert Public(np.array(["ab", ""])).key != Public(np.array(["a", "b"])).key


def test_replies_by_kind():
    a = (Receipt(party="a", round=1), RowCount(party="a", round=1, rows=2))
    b = (Receipt(party="b", round=1),)
    failure = Failure(party="c", reason="gone")
    replies = Replies({"a": a, "b": b}, {"c": failure})
    assert replies.of(Receipt) == [a[0], b[0]]
    assert replies.of(RowCount) == [a[1]]
    assert (replies.parties, len(replies), list(replies)) == (("a", "b"), 2, ["a", "b"])


def test_replies_are_added_up():
    """1·[1, 2] + 3·[5, 6] = [16, 20]; by the four rows it is [4, 5]; less [1, 1] each, [12, 16]."""
    given = {
        name: (Parameters(party=name, round=1, values=np.array(values), rows=rows),)
        for name, values, rows in (("a", [1.0, 2.0], 1), ("b", [5.0, 6.0], 3))
    }
    replies = Replies(given, {})
    assert replies.sum(Parameters).values.tolist() == [6, 8]
    by_rows = replies.sum(Parameters, weights="rows")
    assert (by_rows.values.tolist(), by_rows.weights.tolist()) == ([16, 20], [1, 3])
    assert by_rows.parties == ("a", "b")
    assert replies.sum(Parameters, weights="rows", over=None).values.tolist() == [4, 5]
    less = replies.sum(Parameters, weights="rows", minus=np.ones(2))
    assert less.values.tolist() == [12, 16]


def test_row_counts_may_be_replies_of_their_own():
    given = {
        name: (
            LogDensities(party=name, round=1, public="", values=np.ones(2, np.float32)),
            RowCount(party=name, round=1, rows=rows),
        )
        for name, rows in (("a", 1), ("b", 2))
    }
    assert Replies(given, {}).sum(LogDensities, weights="rows").values.tolist() == [3, 3]
    with pytest.raises(KnowledgeRefused, match="needs Predictions of every party"):
        Replies(given, {}).sum(Predictions)
