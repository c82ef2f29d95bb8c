"""Files of tables as they come: separators, encodings, sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from consilience.data import load_table, read_rows
from consilience.data.columns import read_table
from consilience.errors import InvalidInput

TEXT = "name;größe;ort\na;1,5;Köln\nb;;München\nc;2,5;?\n"
EXPECTED = [[1.5, 0], [np.nan, 1], [2.5, np.nan]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_and_encodings_are_found_out(
    tmp_path: Path, encoding: str, separator: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.replace(";", separator).encode(encoding))
    rows = read_rows(path, ["größe", "ort"])
    np.testing.assert_array_equal(rows.X, EXPECTED)
    assert rows.schema is not None and rows.schema.columns[1].categories == ("Köln", "München")


def test_commas_in_quotes_are_no_separators(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"1,5","x, y"\n"2,5","z\nw"\n')
    table = read_table(path)
    assert [*table.columns] == ["a", "b"] and table.columns["b"].tolist() == ["x, y", "z\nw"]


def test_blanks_between_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("mpg weight  name\n18.0   3504   volvo\n15.0   3693   saab\n")
    with pytest.raises(InvalidInput, match=r"between blanks\n.*semicolons, tabs or bars"):
        read_table(path)
    path.write_text("text\nwith blanks in it\nand more of them\n")
    assert [*read_table(path).columns] == ["text"]


def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame(
        {
            "age": [30, None, 50, 60],
            "seen": pd.to_datetime(["1970-01-02", "1970-01-03", None, "1970-01-04"]),
            "ward": ["a", "b", "a", "N/A"],
            "ill": [True, False, True, False],
        }
    )
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    data = load_table(tmp_path / "t.xlsx", "ill", test_fraction=0.5)
    assert data.classes == ("false", "true") and data.columns == ("age", "seen", "ward")
    np.testing.assert_array_equal(read_rows(tmp_path / "t.xlsx", ["seen", "ward"]).X[0], [1, 0])


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,a ,b\n1,2,3\n")
    with pytest.raises(InvalidInput, match="columns that appear twice: a"):
        read_table(tmp_path / "t.csv")


def test_ten_thousand_columns_are_the_most(tmp_path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(10_001))
    (tmp_path / "t.csv").write_text(f"{names}\n{','.join(['1'] * 10_001)}\n")
    with pytest.raises(InvalidInput, match="the table has 10,001 columns"):
        read_rows(tmp_path / "t.csv")


def test_a_table_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 2_500_000)
    monkeypatch.setattr("consilience.validation.memory.spare_memory", lambda: 70_000_000)
    with pytest.raises(InvalidInput, match="what it holds would take"):
        read_rows(tmp_path / "t.csv")


def test_the_example_is_read(tmp_path: Path) -> None:
    data = load_table(Path("examples/own-table.csv"), "ill", group="clinic")
    assert data.schema is not None
    kinds = {column.name: column.kind for column in data.schema.columns}
    assert kinds == {
        "age": "number",
        "sex": "category",
        "smoker": "category",
        "pressure": "number",
        "cholesterol": "number",
        "pain": "category",
        "diabetes": "category",
        "admitted": "date",
    }
