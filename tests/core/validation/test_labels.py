"""One name for one class, whatever type it comes in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.validation.labels import check_aliases, class_order, label_names


@pytest.mark.parametrize(
    "y",
    [
        [3, 10],
        [3.0, 10.0],
        ["3", "10"],
        [b"3", b"10"],
        [np.int64(3), np.int64(10)],
        [np.float32(3), np.float32(10)],
        [3, 10.0],
        np.array([3, 10], dtype=np.uint8),
        np.array([3, 10], dtype=np.float32),
        np.array([b"3", b"10"]),
        np.array(["3", "10"], dtype=object),
        pd.Series([3, 10]),
        pd.Series(["3", "10"], dtype="category"),
    ],
    ids=repr,
)
def test_every_spelling_of_three_and_ten(y):
    names = label_names(y, where="test")
    assert names.tolist() == ["3", "10"]
    assert names.dtype.kind == "U"


def test_booleans_have_names():
    assert label_names(np.array([True, False]), where="test").tolist() == ["True", "False"]


def test_bytes_that_are_no_text_have_a_name_all_the_same():
    assert label_names([b"\xff"], where="test").tolist() == ["\\xff"]


@pytest.mark.parametrize(
    ("y", "why"),
    [
        ([1, "a"], "mixed type: numbers and strings"),
        ([True, 1, 0], "mixed type: booleans and numbers"),
        ([1, None], "missing"),
        (["a", float("nan")], "missing"),
        ([np.float32("nan"), np.float32(1)], "missing"),
        ([0.5, 1.0], "continuous"),
        ([np.nan, 1.0], "missing"),
        (np.array([1.0, np.nan]), "missing"),
        (pd.Series([1, pd.NA], dtype="Int64"), "missing"),
        (pd.Series([True, pd.NA], dtype="boolean"), "missing"),
        (pd.Series(["a", pd.NA], dtype="string"), "missing"),
        (np.array([1.0, np.inf]), "continuous"),
        ([[1, 0], [0, 1]], "shape (2, 2)"),
        ([(1,), [1, 2]], "a label of type"),
        ([1j], "a label of type complex"),
    ],
)
def test_what_cannot_be_named_is_refused(y, why):
    with pytest.raises(InvalidInput) as error:
        label_names(y, where="party 'a'")
    assert why in error.value.what
    assert error.value.where == "party 'a'"


def test_aliases_rename_by_any_spelling():
    assert label_names([0.0, 1.0], where="", aliases={"0": "no", 1: 7}).tolist() == ["no", "7"]


def test_an_alias_for_no_label_is_a_misspelling():
    check_aliases({b"cat": "kitten", 3: "three"}, np.array(["cat", "3"]), where="")
    with pytest.raises(InvalidInput, match=r"'catt'.*\n.*Did you mean 'cat'"):
        check_aliases({"catt": "kitten"}, ["cat", "dog"], where="")


def test_numbers_are_ordered_as_numbers():
    assert class_order(["10", "9", "-1", "9"]) == ("-1", "9", "10")


def test_one_word_makes_all_words():
    assert class_order(["10", "9", "x"]) == ("10", "9", "x")
    assert class_order(["--1", "2"]) == ("--1", "2")


def test_two_spellings_of_one_number_are_two_classes_in_one_order():
    """A set has no order of its own; "03" before "3" on every machine."""
    assert class_order(["3", "03", "2"]) == ("2", "03", "3")


def test_classes_that_differ_by_capitals_alone_are_refused_by_name():
    with pytest.raises(
        InvalidInput, match=r"(?s)'Lebt' and 'lebt' differ.*aliases = \{ 'lebt': 'Lebt' \}"
    ):
        label_names(["Lebt", "tot", "lebt"], where="")
    names = label_names(["Lebt", "tot", "lebt"], where="", aliases={"lebt": "Lebt"})
    assert set(names) == {"Lebt", "tot"}
    assert set(label_names(["a", "A"], where="")) == {
        "a",
        "A",
    }  # letters are told apart by their case


def test_letters_of_one_or_two_characters_are_one_class() -> None:
    assert (
        label_names(["Mu\u0308nchen", "M\u00fcnchen"], where="t").tolist() == ["M\u00fcnchen"] * 2
    )
