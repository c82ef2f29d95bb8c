"""``consilience check-table``: every difference of a table from the columns agreed on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command_line import Call

PUBLIC = [(30 + i, "never" if i % 2 else "often", 1.5 + i / 10, "no") for i in range(20)]
HEAD = "age,smokes,height,diabetic"


def write(name: str, head: str, rows: list[tuple[object, ...]]) -> str:
    lines = [head, *(",".join("" if one is None else str(one) for one in row) for row in rows)]
    Path(name).write_text("\n".join(lines) + "\n")
    return name


@pytest.fixture
def schema(call: Call) -> str:
    rows = [(a, s, h, "yes" if a > 45 else d) for a, s, h, d in PUBLIC]
    result = call("check-table", write("public.csv", HEAD, rows), "--write", "schema.json")
    assert result.exit_code == 0, result.output
    assert "consilience check-table its-table.csv --like schema.json" in result.stderr
    return "schema.json"


def found(call: Call, *words: str) -> tuple[int, dict[str, dict[str, object]], str]:
    """Exit status, findings by column, and what was said on stderr."""
    result = call("check-table", *words, "--json", "found.json")
    data = json.loads(Path("found.json").read_text())
    columns = {one["name"]: one for one in data["columns"]}
    return result.exit_code, {**columns, "": data}, result.stderr + result.stdout


def test_a_table_that_fits_is_described(call: Call, schema: str) -> None:
    rows = [(d, a, s.upper(), h) for a, s, h, d in PUBLIC]
    rows[0] = ("Yes", None, "never", 1.5)
    own = write("own.csv", "diabetic,Age,smokes,height", rows)
    status, columns, _ = found(call, own, "--like", schema)
    assert status == 0 and columns[""]["refused"] == 0 and columns[""]["left_out"] == []
    assert columns["smokes"]["holds"] == {"never": 11, "often": 9}
    assert columns["diabetic"]["holds"] == {"no": 19, "yes": 1}
    assert columns["age"]["own"] == "Age" and columns["age"]["missing"] == 0.05
    assert columns["age"]["holds"] == [31.0, 40.0, 49.0]
    assert columns["age"]["notes"] == ["it is called 'Age' in the table"]


def test_every_difference_is_named_with_what_mends_it(call: Call, schema: str) -> None:
    rows = [(a, "pipe" if a == 30 else s, 100 * h, "x") for a, s, h, _ in PUBLIC]
    own = write("own.csv", "years,smokes,height,ward", rows)
    status, columns, said = found(call, own, "--like", schema)
    assert status == 1 and "a run would refuse 4 columns" in said
    assert "no input column 'age'" in str(columns["age"]["refused"])
    assert "rename" in str(columns["age"]["mend"])
    assert "do not know: 'pipe'" in str(columns["smokes"]["refused"])
    assert 'unknown = "missing"' in str(columns["smokes"]["mend"])
    assert "another unit" in str(columns["height"]["refused"])
    assert columns["diabetic"]["own"] is None
    assert columns[""]["left_out"] == ["years", "ward"]

    rows = [(a, s, h / 100, d) for a, s, h, d in rows]
    write("own.csv", "years,smokes,height,ward", rows)
    mended = ["--rename", "years=age", "--unknown", "missing", "--missing", "allowed"]
    status, columns, _ = found(call, own, "--like", schema, *mended)
    assert status == 0 and columns["smokes"]["missing"] == 0.05
    assert columns["diabetic"]["missing"] == 1.0


def test_a_target_is_checked_too(call: Call, schema: str) -> None:
    rows = [(*row, "ill" if row[0] > 40 else "well") for row in PUBLIC]
    own = write("own.csv", f"{HEAD},state", rows)
    result = call("check-table", own, "--like", schema, "--target", "state")
    assert result.exit_code == 0 and "well (11), ill (9)" in result.stdout
    write("own.csv", f"{HEAD},state", [(*row, "ill") for row in PUBLIC])
    result = call("check-table", own, "--like", schema, "--target", "state")
    assert result.exit_code == 1 and "there is only one class (ill)" in result.stdout


def test_the_schema_of_a_configuration(call: Call) -> None:
    result = call("check-table", "clinics.toml", "--write", "schema.json")
    assert result.exit_code == 0, result.output
    names = [one["name"] for one in json.loads(Path("schema.json").read_text())["columns"]]
    assert call("check-table", "clinics.csv", "--like", "schema.json").exit_code == 0 and names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.csv",), "there is no such file"),
        (("header.csv",), "header.csv: there are no rows below the header"),
        ((".",), "this is a folder, and a file is wanted"),
        (("clinics.toml",), "this is a configuration, and a table is wanted"),
        (("clinics.csv", "--like", "clinics.csv"), "this is no schema of a table"),
        (("clinics.csv", "--like", "nothing.json"), "there is no such file"),
        (("clinics.csv", "--target", "il"), "Did you mean 'ill'?"),
        (("clinics.csv", "--rename", "age"), "'age' is not OWN=AGREED"),
        (("clinics.csv", "--missing", "maybe"), "allowed"),
    ],
)
def test_wrong_calls(call: Call, words: tuple[str, ...], said: str) -> None:
    Path("header.csv").write_text("age,ill\n")
    result = call("check-table", *words)
    assert result.exit_code == 2 and said in result.stderr, result.output


def test_a_column_without_variation_is_named(call: Call) -> None:
    rows = [(30 + i, "yes", 1) for i in range(20)]
    result = call("check-table", write("same.csv", "age,consent,visit", rows))
    assert result.exit_code == 0, result.output
    for name in ("consent", "visit"):
        assert f"'{name}' is the same in every row: it tells nothing" in result.stdout
    assert "'age' is the same" not in result.stdout
