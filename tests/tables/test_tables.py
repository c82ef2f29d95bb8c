"""Tables as they come, the schema that they suggest, and other tables held against it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Column, Schema
from consilience.tables.files.columns import read_table
from consilience.tables.rows import rows_and_schema, rows_of
from consilience.tables.table import Table

NAN = np.nan
PUBLIC = {
    "age": [30, 40, 50, None],
    "sex": ["female", "male", None, "male"],
    "insured": [True, False, True, True],
    "seen": ["2026-01-02", "1970-01-11", None, "1970-01-02"],
}


def table(**columns: object) -> Table:
    return Table.of(columns, where="here")


def schema() -> Schema:
    found = rows_and_schema(table(**PUBLIC), where="here").schema
    assert found is not None
    return found


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, dict], ids=["pandas", "pyarrow", "dict"])
def test_a_table_becomes_rows_of_numbers_and_a_schema(make) -> None:
    found = rows_and_schema(Table.of(make(PUBLIC), where="here"), where="here")
    expected = [[30, 0, 1, 20455], [40, 1, 0, 10], [50, NAN, 1, NAN], [NAN, 1, 1, 1]]
    np.testing.assert_array_equal(found.X, expected)
    age, sex, insured, seen = found.schema.columns
    assert (age.kind, sex.kind, insured.kind, seen.kind) == (
        "number", "category", "boolean", "date"
    )  # fmt: skip
    assert (age.low, age.high, age.median, age.mean, age.gaps) == (30, 50, 40, 40, True)
    assert age.spread == 8.16497  # sqrt(200 / 3), six digits
    assert sex.categories == ("female", "male") and not insured.gaps
    assert Schema.from_json(found.schema.to_json()) == found.schema
    assert not found.schema.plain


def test_rows_are_encoded_without_gaps() -> None:
    """Scaled number, mark of a gap; a column a category, mark; truth value; scaled date, mark."""
    columns = (
        Column("age", gaps=True, median=40, mean=35, spread=10),
        Column("sex", "category", ("female", "male"), gaps=True),
        Column("insured", "boolean", mean=0.5, spread=0.5),
    )
    X = np.array([[45, 1, 1], [NAN, NAN, 0]])
    encoded = Schema(columns).encode(X)
    assert encoded.tolist() == [[1, 0, 0, 1, 0, 1], [0.5, 1, 0, 0, 1, -1]]
    kept = Schema(columns).encode(X, fill=False)
    assert np.isnan(kept[1, 0]) and kept[1, 1:].tolist() == encoded[1, 1:].tolist()
    frame = Schema(columns).frame(X)
    assert frame["sex"].tolist() == ["male", NAN] and frame["insured"].tolist() == [True, False]


def test_a_table_of_numbers_stays_as_it_is() -> None:
    found = rows_and_schema(table(a=[1, 2], b=[3, 4]), where="here")
    assert found.X.dtype == np.int64 and found.schema.plain
    np.testing.assert_array_equal(found.schema.encode([[NAN, 3]]), [[1.5, 3]])


def test_numbers_in_several_ways_are_refused_by_name() -> None:
    mixed = [f"{i},5" for i in range(20)] + [f"{i},500.5" for i in range(1, 20)]
    with pytest.raises(InvalidInput, match="column 'x' holds numbers that are written in several"):
        rows_and_schema(table(x=mixed), where="here")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1,234", "12", "1,234,567.5"], [1234, 12, 1234567.5]),
        (["3,14", "-2,5", "1.234,5"], [3.14, -2.5, 1234.5]),
        ([" 7", "?", "N/A", "1e3"], [7, NAN, NAN, 1000]),
        (["24.12.2026", "01.02.1970"], [20811, 31]),
        (["2/13/1970", "1/2/1970"], [43, 1]),
        (["1970-01-02T12:00:00", ""], [1.5, NAN]),
        (["45 %", "7%", None], [45, 7, NAN]),
        (["$1,200", "$ 5.5"], [1200, 5.5]),
        (["12:30", "6:15"], [12.5, 6.25]),
        (["1970-01-02T12:00:00+02:00", "1970-01-02T05:00-0500"], [1 + 10 / 24, 1 + 10 / 24]),
        (["1970-01-02 12:00Z", "1970-01-02T13:30:00.5+01:30", None], [1.5, 1.5, NAN]),
        (["0,125", "1", "2,375"], [0.125, 1, 2.375]),
        (["1 100", "12", "1\u202f234\u202f567,5"], [1100, 12, 1234567.5]),
        (["1'100", None, "12.5"], [1100, NAN, 12.5]),
    ],
)
def test_texts_that_say_numbers_or_dates(texts: list, expected: list) -> None:
    found = rows_and_schema(table(x=texts), where="here")
    np.testing.assert_array_equal(found.X[:, 0], expected)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["2026-12-24", "24.12.2026", "12/24/2026"], "several forms"),
        (["2 Jan 2026", "3 Mai 2026", "5 Mar 2026"], "dates and '3 Mai 2026', which is no day"),
        (["31.01.2026", "31.02.2026"], "dates and '31.02.2026', which is no day"),
        (["1/2/2026", "3/4/2026"], "a day and a month or a month and a day"),
        (["1-2-2026", "3-4-2026"], "a day and a month or a month and a day"),
        (["1,234", "5,678"], "may be 1234 or 1.234"),
        (["1", "2", "3", "many"], "holds numbers and 'many'"),
        ([f"he said {i}" for i in range(20)], "texts of which most differ"),
        ([f"letter {i // 2}" for i in range(600)], "texts of which most differ"),
    ],
)
def test_texts_that_could_mean_anything_are_refused(texts: list, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        rows_and_schema(table(x=texts), where="here")


MOMENT = datetime(1970, 1, 2, 12, tzinfo=timezone(timedelta(hours=2)))
TYPES = {
    "times": ([time(12, 30), None, time(6, 15, 36)], [12.5, NAN, 6.26]),
    "durations": ([timedelta(hours=6), None, timedelta(days=2)], [0.25, NAN, 2]),
    "dates": ([date(1970, 1, 2), None, date(1970, 1, 3)], [1, NAN, 2]),
    "zone": ([MOMENT, None, MOMENT], [1 + 10 / 24, NAN, 1 + 10 / 24]),
    "numbers": ([Decimal("1.5"), None, Decimal(2)], [1.5, NAN, 2]),
    "truth": ([True, None, False], [1, NAN, 0]),
    "large": ([2**63, None, 2**62], [2.0**63, NAN, 2.0**62]),
}


@pytest.mark.parametrize("make", ["objects", "pandas", "pyarrow", "dictionary", "parquet"])
@pytest.mark.parametrize(("values", "expected"), TYPES.values(), ids=TYPES)
def test_values_of_any_type_are_the_same_numbers_from_any_library(
    make: str, values: list, expected: list, tmp_path: Path
) -> None:
    column = pa.array(values, pa.uint64() if values[0] == 2**63 else None)
    if make == "objects":
        read = table(x=np.array(values, dtype=object))
    elif make == "pandas":
        read = Table.of(pd.DataFrame({"x": pd.Series(values)}), where="here")
    elif make == "parquet":
        parquet.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
        read = read_table(tmp_path / "t.parquet")
    else:
        if make == "dictionary" and not pa.types.is_boolean(column.type):
            column = column.dictionary_encode()
        read = Table.of(pa.table({"x": column}), where="here")
    found = rows_and_schema(read, where="here").X[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[1], [2]]), "of type list"),
        (pa.array([{"a": 1}, {"a": 2}]), "of type struct"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "of type month_day_nano_interval"),
        (np.array([[1], [2, 3]], dtype=object), "of type list"),
        (np.array([time(1), MOMENT], dtype=object), "times of the day and dates"),
        (np.array([time(1), timedelta(1)], dtype=object), "times of the day and durations"),
        (np.array([timedelta(1), date(1970, 1, 2)], dtype=object), "durations and dates"),
        (np.array([time(1, tzinfo=UTC)], dtype=object), "times of the day with a time zone"),
        (np.array([MOMENT, datetime(1970, 1, 2)], dtype=object), "with and without a time zone"),
        (["1970-01-02 12:00Z", "1970-01-02 12:00"], "with and without a time zone"),
    ],
)
def test_values_that_no_column_has_are_refused_by_name(column: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"column 'x'.*{said}"):
        rows_and_schema(
            Table.of(pa.table({"x": column}), where="here")
            if isinstance(column, pa.Array)
            else table(x=column),
            where="here",
        )


def test_an_export_that_is_no_table_is_refused() -> None:
    class Column:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.chunked_array([[1, 2]]).__arrow_c_stream__(requested_schema)

    with pytest.raises(InvalidInput, match="Column gives no table"):
        Table.of(Column(), where="here")


def test_all_columns_of_long_texts_are_named_at_once_with_the_line_that_leaves_them_out() -> None:
    letters = [f"he said {i}" for i in range(20)]
    with pytest.raises(InvalidInput, match=r"'a', 'b': texts.*\n.*drop = \[.a., .b.\]"):
        rows_and_schema(table(a=letters, x=[1, 2] * 10, b=letters), where="here")
    found = rows_and_schema(table(a=letters, x=[1, 2] * 10), where="here", texts="left out")
    assert found.schema.names == ("x",)


def test_codes_of_digits_and_letters_are_categories() -> None:
    found = rows_and_schema(table(code=["1", "1", "2", "A", "A", "1"]), where="here")
    assert found.schema.columns[0].categories == ("1", "2", "A")


def test_columns_that_identify_are_named() -> None:
    found = rows_and_schema(
        table(name=[f"p{i}" for i in range(20)], row=range(100, 120), x=[1, 2] * 10), where="here"
    )
    assert found.schema.names == ("row", "x")
    assert "'name' holds 20 different words" in found.notes[0]
    assert "'row' counts the rows" in found.notes[1] and "drop = ['row']" in found.notes[1]


def test_other_spellings_are_mended() -> None:
    own = table(
        note=["a", "b"],
        seen=["11.1.1970", "3.1.1970"],
        insured=["Yes", "no"],
        sex=[" FEMALE ", None],
        years=["31", "?"],
    )
    found = rows_of(own, schema(), where="here", rename={"years": "age"})
    np.testing.assert_array_equal(found.X, [[31, 0, 1, 10], [NAN, NAN, 0, 2]])


def test_codes_of_categories_are_mended_as_numbers_and_as_truth() -> None:
    columns = Schema(
        (Column("grade", "category", ("1", "2")), Column("ill", "category", ("no", "yes")))
    )
    for grade, ill in (([1.0, 2.0], [False, True]), (["1.0", "2"], [0, 1]), ([1, 2], ["N", "Y"])):
        found = rows_of(table(grade=grade, ill=ill), columns, where="here")
        assert found.X.tolist() == [[0, 0], [1, 1]]


def test_letters_are_truth_values_only_where_both_categories_are() -> None:
    """Of two sexes F is no "false", and of grades A, N and T 0 and 1 are none."""
    for names, given in ((("F", "M"), ["0", "1"]), (("A", "N", "T"), ["0", "1"])):
        with pytest.raises(InvalidInput, match="'0'"):
            rows_of(table(x=given), Schema((Column("x", "category", names),)), where="here")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sex": ["f", "male", "male", "male"]}, "do not know: 'f'"),
        (
            {"age": ["old", "x", "y", "z"]},
            "'age' is a number in the public rows, and not here: 'old'",
        ),
        ({"seen": [1, 2, 3, 4]}, "'seen' is a date"),
        ({"insured": [2, 0, 1, 1]}, "'insured' is true or false"),
        ({"age": [300.0, NAN, np.inf, 1.0]}, "infinite values: 1 in 'age'"),
    ],
)
def test_what_cannot_be_mended_is_refused_by_name(change: dict, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        rows_of(table(**{**PUBLIC, **change}), schema(), where="here")


def test_missing_columns() -> None:
    own = table(ages=[3, 4], Sex=["male", "male"])
    with pytest.raises(
        InvalidInput, match=r"column 'age', 'insured', 'seen'.*\n.*Did you mean 'ages'"
    ):
        rows_of(own, schema(), where="here")
    found = rows_of(own, schema(), where="here", missing="allowed")
    assert found.absent == (0, 2, 3) and found.X[:, 1].tolist() == [1, 1]
    assert found.notes == ("it lacks 'age', 'insured', 'seen', and takes part without",)


def test_a_category_of_new_rows_may_be_read_as_missing() -> None:
    own = table(**{**PUBLIC, "sex": ["diverse", "male", "male", "male"]})
    found = rows_of(own, schema(), where="here", unknown="missing")
    assert np.isnan(found.X[0, 1]) and "'diverse': read as missing" in found.notes[0]


def test_another_unit_is_named_with_its_factor() -> None:
    public = rows_and_schema(table(weight=np.linspace(40.0, 120.0, 50)), where="here").schema
    with pytest.raises(
        InvalidInput, match=r"'weight' is of another unit.*factor of about 5.1e\+04"
    ):
        rows_of(table(weight=np.linspace(2e6, 6e6, 20)), public, where="here")
    with pytest.raises(InvalidInput) as refused:
        rows_of(table(weight=np.linspace(45e3, 110e3, 20)), public, where="here", discreet=True)
    assert not {"factor", "1000", "0.001"} & set(str(refused.value).split())
    assert not rows_of(table(weight=np.linspace(60.0, 90.0, 20)), public, where="here").notes


def test_a_column_may_be_missing_in_every_row() -> None:
    found = rows_of(table(**{**PUBLIC, "sex": [None] * 4}), schema(), where="here")
    assert np.isnan(found.X[:, 1]).all() and found.notes == ("'sex' is missing in every row",)


@pytest.mark.parametrize("text", ["[]", "{", "[1]", '["a"]', "[[]]", "[{}]", "1"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Schema.from_json(text)


@pytest.mark.parametrize("change", [{"name": 1}, {"spread": 0}, {"kind": "category"}])
def test_a_column_with_an_odd_part_is_refused(change: dict[str, Any]) -> None:
    column = json.loads(Schema((Column("a"),)).to_json())[0]
    assert Schema.from_json(json.dumps([column])).names == ("a",)
    with pytest.raises(InvalidInput, match="no schema of a table: column"):
        Schema.from_json(json.dumps([column | change]))


@pytest.mark.parametrize("name", [field.name for field in fields(Column)])
def test_a_column_without_one_of_its_parts_is_refused(name: str) -> None:
    column = json.loads(Schema((Column("a"),)).to_json())[0]
    del column[name]
    with pytest.raises(InvalidInput, match="no schema of a table"):
        Schema.from_json(json.dumps([column]))


def test_durations_of_any_length_are_days() -> None:
    values = [timedelta.max, None, pd.Timedelta("30h"), pd.NaT, np.timedelta64(36, "h")]
    found = table(x=np.array([*values, np.timedelta64("NaT")], dtype=object)).columns["x"]
    np.testing.assert_array_equal(found, [1e9, NAN, 1.25, NAN, 1.5, NAN])


def test_times_of_the_day_are_hours() -> None:
    half = [time(0, 30), time(13, 30, 36), None]
    found = rows_and_schema(table(at=pd.Series(half, dtype=object)), where="here")
    np.testing.assert_array_equal(found.X[:, 0], [0.5, 13.51, NAN])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([b"\xff", b"a"]),
        np.array([10**400, 1], dtype=object),
        np.array([1 + 2j, 2]),
        pd.Series(pd.period_range("2026-01", periods=2, freq="M")),
        pd.Series(pd.interval_range(0, 2)),
    ],
    ids=["lists", "structs", "bytes", "huge", "complex", "periods", "intervals"],
)
def test_values_of_every_type_are_read_or_refused(values: object) -> None:
    """No error of another library comes through."""
    with suppress(InvalidInput):
        rows_and_schema(table(x=values, z=[1, 2]), where="here")


def test_bytes_of_another_encoding_stay_apart() -> None:
    found = rows_and_schema(table(x=[b"M\xfc", b"M\xf6"]), where="here").schema
    assert found is not None and len(found.columns[0].categories) == 2
