"""Numbers as they are written: decimal marks, thousands, codes."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Column, Schema
from consilience.core.validation.labels import label_names
from consilience.core.validation.tables import Rows
from consilience.tables.rows import rows_and_schema, rows_of
from consilience.tables.table import Table
from consilience.tables.texts import number_text


def table(**columns: object) -> Table:
    return Table.of(columns, where="here")


def rows(**columns: object) -> Rows:
    return rows_and_schema(table(**columns), where="here")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1.234.567", "12"], [1234567, 12]),
        (["1,5E+03", "2,5"], [1500, 2.5]),
        (["1 234,567", "5"], [1234.567, 5]),
        (["\u22125", "3", "4"], [-5, 3, 4]),
        (["1.5", "1E3"], [1.5, 1000]),
        (["1e+05", "-2"], [1e5, -2]),
        (["2e3", "7"], [2000, 7]),
        (["0", "10"], [0, 10]),
        (["-0.5", "1.234"], [-0.5, 1.234]),
        (["-1,5 %", "1,234 %"], [-1.5, 1.234]),
    ],
)
def test_numbers_whose_mark_is_certain(texts: list, expected: list) -> None:
    assert rows(x=texts).X[:, 0].tolist() == expected


@pytest.mark.parametrize("other", ["1,234", "1.234", "12,345", "-1,234", "$1.234"])
def test_a_mark_that_nothing_tells_is_refused(other: str) -> None:
    """Whole numbers beside it tell nothing."""
    unit = "$" if "$" in other else ""
    for few in ([other, f"{unit}7"], [other] * 20, [other, None, f"{unit}1500"]):
        with pytest.raises(InvalidInput, match="may be"):
            rows(x=few)


@pytest.mark.parametrize(
    ("shown", "value", "expected"),
    [
        ("2,5", "1,234", 1.234),
        ("2,5", "1.234", 1234),
        ("2.5", "1,234", 1234),
        ("2.5", "1.234", 1.234),
        ("1,234,567", "1,234", 1234),
        ("1.234.567", "1.234", 1234),
    ],
)
def test_another_column_of_the_table_tells_the_mark(shown, value, expected) -> None:
    given = table(other=[shown, "3"], x=[value, "7"])
    assert rows_and_schema(given, where="here").X[:, 1].tolist() == [expected, 7]
    alone = given.only(["x"]).take(np.array([0, 1]))
    assert rows_and_schema(alone, where="here").X[:, 0].tolist() == [expected, 7]
    agreed = Schema((Column("x", low=0, high=9),))
    assert rows_of(given, agreed, where="here").X[:, 0].tolist() == [expected, 7]


def test_columns_that_contradict_one_another_tell_nothing_of_a_third() -> None:
    with pytest.raises(InvalidInput, match=r"'x': '1,234' may be 1234 or 1\.234"):
        rows(a=["2,5", "3"], b=["2.5", "3"], x=["1,234", "7"])


@pytest.mark.parametrize("texts", [["1,5", "2.5"], ["5 %", "5"], ["1,5", "1,234.5"]])
def test_few_numbers_in_several_ways_are_no_categories(texts: list) -> None:
    with pytest.raises(InvalidInput, match="written in several ways"):
        rows(x=texts * 10)


@pytest.mark.parametrize(
    "codes",
    [
        ["01", "1", "02", "2"],
        ["007", "700"],
        ["1E5", "2E3", "1E3"],
        ["2E3", "7", "2000"],
        ["1e5", "2e3", "1e3"],
        ["01.10", "1.1"],
        ["0x10", "16"],
    ],
)
def test_codes_stay_apart(codes: list) -> None:
    found = rows(x=codes * 5)
    assert found.schema is not None
    (column,) = found.schema.columns
    assert (column.kind, column.categories) == ("category", tuple(sorted(codes)))
    assert len(set(found.X[:, 0].tolist())) == len(codes)


def test_codes_are_named_in_a_remark() -> None:
    assert rows(x=["1E5", "7"] * 5).notes == ("'x' holds codes, and no numbers: '1E5'",)


def test_a_code_is_no_number_of_the_public_rows() -> None:
    agreed = Schema((Column("x", low=0, high=9, median=5),))
    with pytest.raises(
        InvalidInput, match="'x' is a number in the public rows, and not here: '007'"
    ):
        rows_of(table(x=["007", "12"]), agreed, where="here")


@pytest.mark.parametrize("own", ["1", "1.0", "2000", "aa", "AA", "12345678901234567891"])
def test_a_code_is_not_read_as_another_one(own: str) -> None:
    known = ("01", "02", "2E3", "Aa", "12345678901234567890")
    agreed = Schema((Column("x", "category", known),))
    with pytest.raises(InvalidInput, match=f"do not know: '{own}'"):
        rows_of(table(x=[own, "02"]), agreed, where="here")


def test_long_whole_numbers_are_not_read_as_another_one() -> None:
    agreed = Schema((Column("x", "category", ("9007199254740993", "5")),))
    exact = rows_of(table(x=[9007199254740993, 5]), agreed, where="here")
    assert exact.X[:, 0].tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="do not know: '9007199254740992'"):
        rows_of(table(x=[9007199254740992, 5]), agreed, where="here")


def test_capital_letters_of_codes_tell_them_apart() -> None:
    genes = ["AA", "Aa", "aa", "Kit", "KIT", "recA", "RecA", "m", "M"]
    found = rows(x=genes * 3)
    assert found.schema is not None and found.schema.columns[0].categories == tuple(sorted(genes))
    assert "'AA' (3 rows) and 'Aa' (3 rows) and 'aa' (3 rows) differ by a capital" in found.notes[0]
    assert set(label_names(["AA", "Aa", "aa"], where="here")) == {"AA", "Aa", "aa"}
    with pytest.raises(InvalidInput, match="'Male' and 'male' differ by capital letters"):
        label_names(["Male", "male"], where="here")


def test_capital_letters_of_words_do_not() -> None:
    found = rows(x=["Ward 1a", "ward 1a", "Ward 1A", "YES", "yes", "Yes"])
    assert found.schema is not None
    assert found.schema.columns[0].categories == ("Ward 1A", "Ward 1a", "YES")


def test_single_letters_are_read_alike_where_capitals_tell_nothing() -> None:
    agreed = Schema((Column("x", "category", ("F", "M")),))
    assert rows_of(table(x=["f", "m"]), agreed, where="here").X[:, 0].tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="do not know: 'm'"):
        rows_of(table(x=["F", "m", "M"]), agreed, where="here")


def test_numbers_have_texts_of_their_own() -> None:
    values = [1234567.0, 1234568.0, 1e22, 0.1, float(np.nextafter(0.1, 1)), 2.0**53]
    assert number_text(1234567.0) == "1234567" and number_text(np.float32(0.1)) == "0.1"
    assert [float(number_text(one)) for one in values] == values


def test_whole_numbers_of_python_are_whole() -> None:
    column = Table.of({"y": np.array([1, 0, 1], dtype=object)}, where="here").columns["y"]
    assert (column.dtype, column.tolist()) == (np.int64, [1, 0, 1])
