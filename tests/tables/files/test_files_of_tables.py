"""Files of tables as they come: separators, encodings, sheets."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data import load_table, read_rows
from consilience.tables.files.columns import read_table

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
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 70_000_000)
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


# --- numbers as written ---------------------------------------------------------------------------


def lines_of(*columns: tuple, separator: str = ",") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


def test_thousands_and_decimals_of_a_file_with_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for lab in ("1,100", "1.100"):
        path.write_text(f"lab;x;y\n{lab};2;a\n7;3;b\n8;3;b\n{lab};2;a\n")
        with pytest.raises(InvalidInput, match=rf"'lab': '{lab}' may be 1100 or 1\.100"):
            load_table(path, "y")
        data = load_table(path, "y", drop=["lab"], test_fraction=0.5)  # refused only if it is used
        assert data.columns == ("x",)
    for x, comma, point in (("2,5", 1.1, 1100), ("2.5", 1100, 1.1)):
        for lab, expected in (("1,100", comma), ("1.100", point)):
            path.write_text(f"lab;x\n{lab};{x}\n7;3\n")
            np.testing.assert_allclose(read_rows(path).X[:, 0], [expected, 7])


def test_three_decimals_between_commas_are_decimals(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,z\n1.234,2\n5.678,3\n")
    np.testing.assert_allclose(read_rows(path).X[:, 0], [1.234, 5.678])
    path.write_text('x,z\n"1,234",0.5\n"7",3\n')
    assert read_rows(path).X[:, 0].tolist() == [1234, 7]
    path.write_text('x,z\n1.234,"0,5"\n7,"3"\n')
    assert read_rows(path).X[:, 0].tolist() == [1234, 7]


@pytest.mark.parametrize(
    "names",
    [
        ("01", "1", "02", "2"),
        ("1E5", "2E3", "1E0", "100000"),
        ("1.1", "1.10", "2.1", "2.10"),
        ("12345678901234567891", "12345678901234567892", "1", "2"),
        ("0x10", "16", "0x1F", "31"),
        ("aB", "AB", "ab", "Ab"),
        ("007", "7", "0007", "70"),
    ],
)
def test_groups_and_classes_are_as_many_as_they_are_written(tmp_path: Path, names: tuple) -> None:
    path, name = tmp_path / "t.csv", [names[i % 4] for i in range(80)]
    x, other = [i * 7 % 31 for i in range(80)], ["ab"[i // 4 % 2] for i in range(80)]
    path.write_text("x,site,y\n" + lines_of(x, name, other))
    found = load_table(path, "y", group="site")
    assert set(found.group) == set(names)
    if "01" in names:
        assert "'01' (20 rows) and '1' (20 rows) are one number, and stay apart" in found.remarks
    path.write_text("x,site,y\n" + lines_of(x, other, name))
    data = load_table(path, "y", group="site", kind="classification")
    assert set(data.classes) == set(names)


def test_codes_with_an_E_are_classes_and_categories(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    wards = [f"{1 + i % 3}E{i % 4}" for i in range(60)]
    path.write_text("ward,y\n" + lines_of(wards, ["1E5", "2E3"] * 30))
    data = load_table(path, "y")
    assert data.classes == ("1E5", "2E3") and data.schema is not None
    assert data.schema.columns[0].categories == tuple(sorted(set(wards)))
    path.write_text("x,y\n" + lines_of([1.5, 2.5] * 10, ["1E5", "2.5e3"] * 10))
    assert set(load_table(path, "y").y) == {1e5, 2500}


def test_values_with_decimal_commas_are_a_regression(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x;y\n" + lines_of(range(20), ["64,1", "1,234"] * 10, separator=";"))
    data = load_table(path, "y")
    assert data.classes is None and set(data.y) == {64.1, 1.234}
    path.write_text("x;y\n" + lines_of(range(20), ["64", "1,234"] * 10, separator=";"))
    with pytest.raises(InvalidInput, match=r"'1,234' may be 1234 or 1\.234"):
        load_table(path, "y")


def test_times_with_decimal_commas_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x;t;e\n" + lines_of(range(20), ["1,5", "2"] * 10, [0, 1] * 10, separator=";"))
    assert set(load_table(path, time="t", event="e").y[:, 0]) == {1.5, 2}
    path.write_text(
        "x;t;e\n" + lines_of(range(20), ["1,500", "2"] * 10, [0, 1] * 10, separator=";")
    )
    with pytest.raises(InvalidInput, match=r"'t': '1,500' may be 1500 or 1\.500"):
        load_table(path, time="t", event="e")


def test_large_numbers_are_classes_by_all_their_digits(tmp_path: Path) -> None:
    path, large = tmp_path / "t.parquet", [1234567.0, 1234568.0]
    pd.DataFrame({"x": range(20), "y": large * 10, "site": large * 10}).to_parquet(path)
    data = load_table(path, "y", group="site", kind="classification", test_fraction=0.5)
    assert data.classes == ("1234567", "1234568") == tuple(sorted(set(data.group)))


def test_a_test_file_may_lack_the_codes_with_a_zero(tmp_path: Path) -> None:
    train, test = tmp_path / "a.csv", tmp_path / "b.csv"
    train.write_text("x,y\n" + lines_of(range(4), ["01", "10"] * 2))
    test.write_text("x,y\n" + lines_of(range(2), ["10", "10"]))
    data = load_table(train, "y", test=test)
    assert data.classes == ("01", "10") and data.y_test.tolist() == [1, 1]


# --- encodings and lines --------------------------------------------------------------------------


def test_lines_that_end_in_carriage_returns(tmp_path: Path) -> None:
    for end in (b"\r", b"\r\n"):
        (tmp_path / "t.csv").write_bytes(end.join([b"a,b", b"1,2", b"3,4", b""]))
        assert read_rows(tmp_path / "t.csv").X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("first", ["sep=;\r\n", '"SEP=;"\n', "sep=;;\n"])
def test_a_line_that_tells_excel_the_separator_is_left_out(tmp_path: Path, first: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{first}age;dose\n61;1,5\n72;2,5\n", newline="")
    found = read_table(path)
    assert list(found.columns) == ["age", "dose"] and found.columns["age"].tolist() == [61, 72]


def test_one_byte_of_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("ort,x\nKöln,1\n".encode() + "Müller,2\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match="line 3 holds the byte 0xFC, which is not UTF-8"):
        read_table(path)
    path.write_bytes("ort,x\nKöln,1\nMünchen,2\n".encode()[:-12] + b"\xc3")  # cut off
    with pytest.raises(InvalidInput, match="which is not UTF-8"):
        read_table(path)
    path.write_bytes("ort,x\nMüller,2\n".encode("cp850"))  # of DOS
    with pytest.raises(InvalidInput, match="line 2 holds the byte 0x81"):
        read_table(path)
    path.write_bytes("ort,x\nMüller,2\n".encode("utf-16-le"))
    with pytest.raises(InvalidInput, match="zero byte"):
        read_table(path)


@pytest.mark.parametrize(
    "content", [b'"a,b\n1,2\n', b'"' + b"a" * 200_000 + b'",b\n1,2\n', b"a\0b,c\n1,2\n"]
)
def test_a_first_line_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidInput):
        read_table(tmp_path / "t.csv")


def test_header_lines_of_every_form(tmp_path: Path) -> None:
    for text in ('\n\n"a\nb", c\n1,2\n', '"a\nb",c\n1,2', '"a\nb"," c "\r\n1,2\r\n\r\n'):
        (tmp_path / "t.csv").write_bytes(text.encode())
        found = read_table(tmp_path / "t.csv").columns
        assert {name: values.tolist() for name, values in found.items()} == {"a\nb": [1], "c": [2]}
    (tmp_path / "t.csv").write_text(",,x\n1,2,3\n")
    assert [*read_table(tmp_path / "t.csv").columns] == ["column 1", "column 2", "x"]


# --- files that are not what they seem ------------------------------------------------------------


def test_a_cell_far_from_the_table_is_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    book = openpyxl.Workbook()
    book.active["XFD1048576"] = 1
    book.save(path)
    with pytest.raises(InvalidInput, match="there are no rows"):
        read_rows(path)
    book.active.append(["a", "b"])
    for row in range(70):
        book.active.cell(row + 1, 1, row)
        book.active.cell(row + 1, 16_384, 1)
    book.save(path)
    with pytest.raises(InvalidInput, match=r"cells with a value lie in 62 rows and 16,384 col"):
        read_rows(path)


def test_cells_of_every_kind_are_read(tmp_path: Path) -> None:
    """Rows that are formatted alone are none; an error is a gap; a text stays as it is written."""
    openpyxl = pytest.importorskip("openpyxl")
    sheet = (book := openpyxl.Workbook()).active
    times = datetime.time(6, 30), datetime.timedelta(hours=30)
    sheet.append([])
    for row in (
        ["code", "at", "stay", "x", "n", "alcohol"],
        ["01", times[0], times[1], 1.5, 2.0, "None"],
        ["1", times[0], times[1], "#DIV/0!", 3, "much"],
    ):
        sheet.append(row)
    sheet.cell(900, 40).font = openpyxl.styles.Font(bold=True)
    book.save(tmp_path / "t.xlsx")
    found = read_table(tmp_path / "t.xlsx").columns
    assert found["code"].tolist() == ["01", "1"] and found["alcohol"].tolist() == ["None", "much"]
    assert found["at"].tolist() == [6.5] * 2 and found["stay"].tolist() == [1.25] * 2
    assert found["n"].dtype == np.int64
    np.testing.assert_array_equal(found["x"], [1.5, np.nan])


@pytest.mark.parametrize("line", [",".join(f"c{i}" for i in range(300_000)), ";" * 300_000])
def test_more_columns_than_any_table_has(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n{line}\n")
    with pytest.raises(InvalidInput, match=r"the table has 300,00[01] columns, of at most"):
        read_rows(tmp_path / "t.csv")


def test_lines_of_separators_alone(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",,,\n" * 1_000)
    with pytest.raises(InvalidInput, match="no column is left"):
        read_rows(tmp_path / "t.csv")
