from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet

from consilience.core.errors import InvalidInput
from consilience.lab.data import load, load_table, read_rows
from consilience.lab.data.downloads import read_archive, read_bytes


def write(path: Path, **columns: list) -> Path:
    table = pa.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return path


AGES = [30.0, 41.5, 52.0, 63.0, 28.0, 77.0, 45.0, 50.0, 61.0, 39.0]
ILL = ["yes", "no"] * 5
WARD = ["b"] * 6 + ["a"] * 4


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_with_groups(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"clinic{suffix}", age=AGES, dose=list(range(10)), ill=ILL, ward=WARD)
    data = load(suffix[1:], path=path, target="ill", group="ward")
    assert data.name == "clinic"
    assert data.columns == ("age", "dose")
    assert data.classes == ("no", "yes")
    # 30 % of 6 and of 4 rows, rounded: 2 and 1.
    assert sorted(data.group_test.tolist()) == ["a", "b", "b"]
    for X, y, group in ((data.X, data.y, data.group), (data.X_test, data.y_test, data.group_test)):
        for row, label, ward in zip(X, y, group, strict=True):
            i = int(row[1])  # "dose" is the row's number
            assert (row[0], data.classes[label], ward) == (AGES[i], ILL[i], WARD[i])


@pytest.mark.parametrize(
    ("target", "kind", "classes"),
    [
        (["b", "a"] * 5, None, ("a", "b")),
        ([10, 9] * 5, None, ("9", "10")),  # by number, not by letter
        ([True, False] * 5, None, ("false", "true")),
        ([0.5, 1.0] * 5, None, None),
        ([0.5, 1.0] * 5, "classification", ("0.5", "1")),
        ([10, 9] * 5, "regression", None),
    ],
)
def test_what_is_to_be_predicted(tmp_path: Path, target: list, kind, classes) -> None:
    path = write(tmp_path / "t.csv", x=AGES, y=target)
    data = load_table(path, "y", kind=kind)
    assert data.classes == classes
    if classes is None:
        assert set(data.y) == set(map(float, target))


def test_a_test_file_of_its_own(tmp_path: Path) -> None:
    """A class that only the test file has is known; columns are found by name."""
    train = write(tmp_path / "a.csv", x=[1, 2, 3], z=[0, 0, 1], y=["p", "q", "p"])
    test = write(tmp_path / "b.csv", y=["r", "p"], z=[5, 6], x=[7, 8])
    data = load_table(train, "y", test=test)
    assert data.classes == ("p", "q", "r")
    assert data.y_test.tolist() == [2, 0]
    assert data.X_test.tolist() == [[7, 5], [8, 6]]


def test_classes_and_groups_that_differ_by_capitals_are_one_and_it_is_said(tmp_path: Path) -> None:
    ill = ["Lebt", "lebt", "tot", "Lebt ", "tot"] * 2
    ward = ["North", "north"] * 5
    path = write(tmp_path / "t.csv", age=AGES, ill=ill, ward=ward)
    data = load_table(path, "ill", group="ward")
    assert data.classes == ("Lebt", "tot") and set(data.group) == {"North"}
    assert "'Lebt' (4 rows) and 'lebt' (2 rows) are read as one: 'Lebt'" in data.remarks
    letters = write(tmp_path / "u.csv", age=AGES, ill=["a", "A"] * 5)
    data = load_table(letters, "ill")
    assert data.classes == ("A", "a")
    assert data.remarks == ("'A' (5 rows) and 'a' (5 rows) differ by a capital letter alone",)


def test_columns_are_dropped_and_groups_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", id=list(range(10)), age=AGES, ill=ILL, ward=WARD)
    data = load_table(path, "ill", group="ward", drop=["id"], groups=["b"])
    assert data.columns == ("age",) and set(data.group) == {"b"} and not data.remarks
    numbers = write(tmp_path / "u.csv", age=AGES, ill=ILL, ward=[1.0, 2.0] * 5)
    assert set(load_table(numbers, "ill", group="ward").group) == {"1", "2"}
    with pytest.raises(InvalidInput, match=r"no group 'c'\n.*Known: a, b"):
        load_table(path, "ill", group="ward", groups=["c"])
    with pytest.raises(InvalidInput, match=r"no input column 'ids'\n.*'id'"):
        load_table(path, "ill", drop=["ids"])


def test_what_is_odd_in_one_group_or_in_the_test_rows_is_said(tmp_path: Path) -> None:
    rows = {"age": AGES * 3, "ill": ILL * 3, "ward": WARD * 3, "sex": ["f", "m"] * 15}
    rows["bmi"] = [25.0 if ward == "a" else None for ward in rows["ward"]]
    path = write(tmp_path / "t.csv", **rows)
    test = write(tmp_path / "u.csv", **{**rows, "sex": ["f", "x"] * 15, "bmi": AGES * 3})
    found = load_table(path, "ill", group="ward", test=test).remarks
    assert "'bmi' is missing in every row of 'b'" in found
    assert (
        "in the test rows, column 'sex' holds a category that the public rows do not know: 'x': read "
        "as missing"
    ) in found


def test_parquet_categories_and_decimals_are_read(tmp_path: Path) -> None:
    from decimal import Decimal

    path = tmp_path / "t.parquet"
    kind = pa.array(["x", "y"] * 5).dictionary_encode()
    price = pa.array([Decimal("1.50")] * 10)
    parquet.write_table(pa.table({"price": price, "on": [True, False] * 5, "kind": kind}), path)
    data = load_table(path, "kind")
    assert data.classes == ("x", "y")
    assert data.columns == ("price", "on")
    assert data.X[:, 0].tolist() == [1.5] * 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": None}, "Set target to one of: age, name, ill, day, remark"),
        ({"target": "il"}, "no target column 'il'\n.*Did you mean 'ill'.*name, ill, day, remark"),
        ({"target": "ill", "group": "wart"}, "no group column 'wart'"),
        ({"target": "ill", "columns": ["agee"]}, "no input column 'agee'\n.*Did you mean 'age'"),
        (
            {"target": "ill", "columns": ["age", "remark"]},
            "'remark': texts of which.*\n.*Leave them out",
        ),
        ({"target": "ill", "columns": ["age", "ill"]}, "neither target nor group"),
        ({"target": "ill", "columns": ["age"], "kind": "regression"}, "are not all numbers"),
        ({"target": "ill", "columns": ["age"], "kind": "clasification"}, "Known: classif"),
        ({"target": "ill", "columns": ["age"], "test_fraction": 1.0}, "cannot set aside"),
        ({"target": "ill", "columns": ["age"], "test": "nothere.csv"}, "no such file"),
    ],
)
def test_bad_requests_are_named(tmp_path: Path, options: dict, said: str) -> None:
    remarks = [f"said {i}" for i in range(6)] * 2
    path = write(
        tmp_path / "t.csv", age=[*AGES, 1.0, 2.0], name=["x"] * 12, ill=[*ILL, "no", "yes"],
        day=["2020-01-01"] * 12, remark=[f"{text} {i}" for i, text in enumerate(remarks)],
    )  # fmt: skip
    with pytest.raises(InvalidInput, match=said):
        load_table(path, **options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv: the file is empty"),
        ("x,y\n", "there are no rows"),
        ("x,y\n1,a\n2,b,c\n", "cannot be read: CSV parse error"),
        ("x,x,y\n1,2,a\n", "appear twice: x"),
        ("x,y\n1,a\n2,b\n3,a\n4,b\nold,a\n", "'x' holds numbers and 'old'"),
        ("x,y\n1,a\n2,\n3,\n", "2 of 3 rows have no value in 'y'"),
        ("x,y\n1,a\n2,a\n3,a\n4,a\n", "only one class"),
        ("x,y\n1,3\n2,\n3,4\n", "1 of 3 rows have no value in 'y'"),
        ("a;b,c\n1;2,3\n", "between commas or semicolons"),
        ("y\n1\n2\n", "one or more columns"),
        ("x,y\ninf,a\n2,b\n", "1 in 'x'"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        load_table(path, "y")


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        load_table(tmp_path / "nothing.csv", "y")
    with pytest.raises(InvalidInput, match=r"cannot read \.data\n.*\.csv, \.tsv"):
        load_table(tmp_path / "t.data", "y")
    for name in ("t.parquet", "t.npz", "t.xlsx"):
        (tmp_path / name).write_bytes(b"not what it says")
        with pytest.raises(InvalidInput, match="cannot be read"):
            load_table(tmp_path / name, "y")


def test_a_single_array_or_nothing_is_not_an_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.ones(3))
    (tmp_path / "t.npy").rename(tmp_path / "t.npz")
    (tmp_path / "empty.npz").touch()
    for name in ("t.npz", "empty.npz"):
        with pytest.raises(InvalidInput, match="cannot be read as an"):
            load_table(tmp_path / name)


def test_npz_with_and_without_test_arrays(tmp_path: Path) -> None:
    X, y = np.arange(40.0).reshape(10, 2, 2), np.array(["b", "a"] * 5)
    np.savez(tmp_path / "one.npz", X=X, y=y)
    data = load("npz", path=tmp_path / "one.npz")
    assert (data.X.shape, data.X_test.shape, data.classes) == ((7, 2, 2), (3, 2, 2), ("a", "b"))
    np.savez(tmp_path / "two.npz", X=X, y=y, X_test=X[:2], y_test=y[:2])
    data = load("npz", path=tmp_path / "two.npz")
    assert len(data.X) == 10
    assert data.y_test.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": np.ones((4, 2))}, "no array 'y'"),
        ({"X": np.ones((4, 2)), "y": np.ones(3)}, r"X has 4 rows, y has shape \(3,\)"),
        ({"X": np.ones((4, 2)), "y": np.ones((4, 1))}, r"y has shape \(4, 1\)"),
        ({"X": np.array([[1.0, np.nan]]), "y": np.ones(1)}, "1 values in 1 rows are NaN"),
        ({"X": np.empty((0, 2)), "y": np.empty(0)}, "no rows"),
        ({"X": np.ones((4, 2)), "y": np.array(["a", 1, "b", 2], dtype=object)}, "no objects"),
    ],
)
def test_bad_npz_files_are_named(tmp_path: Path, arrays: dict, said: str) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    with pytest.raises(InvalidInput, match=said):
        load_table(path)


def test_labels_of_mixed_type(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", x=[1, 2], y=["p", "q"])
    test = write(tmp_path / "b.csv", x=[1, 2], y=[0, 1])
    with pytest.raises(InvalidInput, match="mixed type"):
        load_table(train, "y", test=test)


@pytest.mark.parametrize(
    "values",
    [
        [20200101 + day for day in range(20)],  # dates as whole numbers
        [1_600_000_000 + 7 * i for i in range(20)],  # seconds since 1970
        [18_500 + i / 1440 for i in range(20)],  # days since 1970, with a time of the day
    ],
)
def test_numbers_that_single_precision_would_make_equal_stay_different(
    tmp_path: Path, values: list[float]
) -> None:
    path = write(tmp_path / "t.csv", at=values, y=["a", "b"] * 10)
    data = load_table(path, "y")
    assert data.X.dtype == data.X_test.dtype == np.float64
    assert sorted([*data.X[:, 0].tolist(), *data.X_test[:, 0].tolist()]) == values
    assert read_rows(path, ["at"]).X[:, 0].tolist() == values
    # A file of one row is read as the schema needs, and not as its only value does.
    one = write(tmp_path / "one.csv", at=values[3:4])
    assert read_rows(one, like=data.schema).X.tolist() == [values[3:4]]
    np.savez(tmp_path / "t.npz", X=np.array(values)[:, None], y=["a", "b"] * 10)
    arrays = load_table(tmp_path / "t.npz")
    assert len(set(arrays.X[:, 0].tolist())) == len(arrays.X)


def test_letters_of_one_or_two_characters_are_one(tmp_path: Path) -> None:
    two = "Mu\u0308nchen"  # as some systems write ü
    one = "M\u00fcnchen"
    names = [one, "Bonn", two, "Bonn"] * 10
    path = write(tmp_path / "t.csv", x=list(range(40)), **{two: names}, town=names, y=names)
    data = load_table(path, "y", group="town")
    assert data.classes == ("Bonn", one)
    assert sorted(set(data.group.tolist())) == ["Bonn", one]
    assert data.schema is not None and data.schema.names == ("x", one)
    assert data.schema.columns[1].categories == ("Bonn", one)


def test_read_rows_in_the_order_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "new.csv", b=[1, 2], a=[3, 4], note=["x", "y"])
    found = read_rows(path, ["a", "b"])
    assert (found.X.tolist(), found.X.dtype) == ([[3, 1], [4, 2]], np.float32)
    assert found.schema.names == ("a", "b") and found.schema.plain
    with pytest.raises(InvalidInput, match="no input column 'c'"):
        read_rows(path, ["a", "c"])
    np.savez(tmp_path / "new.npz", X=np.ones((2, 3)))
    assert read_rows(tmp_path / "new.npz").X.shape == (2, 3)


@given(
    values=st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 2)),
        min_size=8,
        max_size=30,
    ).filter(lambda rows: len({label for _, label in rows}) > 1)
)
def test_what_is_written_is_read(tmp_path_factory, values) -> None:
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    write(path, x=[x for x, _ in values], y=[label for _, label in values])
    data = load_table(path, "y", test_fraction=0.25)
    X, codes = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    got = [(float(x), int(data.classes[code])) for x, code in zip(X[:, 0], codes, strict=True)]
    assert sorted(got) == sorted((float(x), label) for x, label in values)


# --- files that unpack to much more than they are ----------------------------------------------------


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 70 MB of memory left."""
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 70_000_000)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("dtype", "rows"), [("u1", 10_000_000), ("f8", 4_000_000), ("U50", 300_000)]
)
def test_an_npz_that_would_not_fit_is_not_unpacked(tmp_path: Path, dtype: str, rows: int) -> None:
    path = tmp_path / "packed.npz"
    np.savez_compressed(path, X=np.zeros((rows, 1), dtype))
    assert path.stat().st_size < 200_000
    with pytest.raises(
        InvalidInput, match=r"packed.npz: its .* rows would take 0\.\d GB of memory"
    ):
        read_rows(path)


@pytest.mark.parametrize(
    "shape, kind", [((10**12,), "<f8"), ((10**12, 0), "<f8"), ((10**12,), "<U0")]
)
def test_an_array_that_says_it_is_larger_than_its_bytes(
    tmp_path: Path, shape: tuple[int, ...], kind: str
) -> None:
    path = tmp_path / "lying.npz"
    with zipfile.ZipFile(path, "w") as packed, packed.open("X.npy", "w") as file:
        about = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        file.write(bytes(800))
    with pytest.raises(InvalidInput, match=r"X is \(1000000000000,|its 1,000,000,000,000 rows"):
        read_rows(path)


@pytest.mark.usefixtures("little")
def test_a_parquet_that_would_not_fit_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "packed.parquet"
    parquet.write_table(
        pa.table({"x": np.zeros(3_000_000), "y": np.zeros(3_000_000, np.int8)}), path
    )
    assert path.stat().st_size < 100_000
    with pytest.raises(InvalidInput, match=r"packed.parquet: its 3,000,000 rows would take"):
        read_rows(path)
    with pytest.raises(InvalidInput, match="3,000,000 rows"):
        load_table(path, "y")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_that_would_not_fit_is_not_unpacked(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.lab.data.downloads.spare_memory", lambda: 70_000_000)
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    (tmp_path / f"images{suffix}").write_bytes(pack(bytes(36_000_000)))
    (tmp_path / f"few{suffix}").write_bytes(pack(bytes(1_000)))
    with pytest.raises(InvalidInput, match="more than 35,000,000 bytes, half of the memory"):
        read_bytes(tmp_path / f"images{suffix}")
    assert read_bytes(tmp_path / f"few{suffix}") == bytes(1_000)


@pytest.mark.usefixtures("little")
def test_an_archive_that_would_not_fit_is_not_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        member = tarfile.TarInfo("large")
        member.size = 80_000_000
        packed.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(InvalidInput, match=r"a\.tar\.gz: what it holds would take 0\.1 GB"):
        read_archive(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_one_long_label_does_not_make_all_of_them_long(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 labels as wide as the longest of them, as numpy keeps texts, are 100 GB."""
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**8)
    path, labels = tmp_path / f"t{suffix}", ["a", "b"] * 24_999 + ["c" * 500_000, "a"]
    if suffix == ".npz":
        np.savez(path, X=np.zeros((4, 1)), y=["a", "b"] * 2, X_test=np.zeros((2, 1)),
                 y_test=["c" * 500_000, "a"])  # fmt: skip
    else:
        write(path, x=list(range(50_000)), y=labels)
    tracemalloc.start()
    data = load_table(path, "y")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.classes == ("a", "b", "c" * 500_000) and most < 60_000_000


def test_groups_that_would_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of groups are kept as wide as the longest."""
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: 10**8)
    wards = ["a", "b"] * 500 + ["c" * 500_000] * 2
    path = write(tmp_path / "t.csv", x=list(range(1002)), y=[0, 1] * 501, ward=wards)
    with pytest.raises(InvalidInput, match="texts of 500,000 characters would take"):
        load_table(path, "y", group="ward")


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_of_every_kind_are_read_with_their_gaps(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": AGES, "ill": pa.array(ILL, kind)}), path)
    assert load_table(path, "ill").classes == ("no", "yes")
    parquet.write_table(pa.table({"x": AGES, "ill": pa.array([None, *ILL[1:]], kind)}), path)
    with pytest.raises(InvalidInput, match="1 of 10 rows have no value in 'ill'"):
        load_table(path, "ill")
