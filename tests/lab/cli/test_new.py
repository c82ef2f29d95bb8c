"""``consilience new``: a configuration for a table that ``consilience run`` takes as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from consilience.lab.cli import new
from helpers.command_line import Call, clinics

pytestmark = pytest.mark.usefixtures("sketched")


def written(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(name).read_text())


def test_suggestions_are_taken_and_run(call: Call) -> None:
    result = call("new", "study", "--table", "clinics.csv", "--target", "ill", "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout == "study.toml\n" and "now: consilience run study.toml" in result.stderr
    assert written("study.toml") == {
        "seeds": 2,
        "methods": ["local", "auto", "central"],
        "models": ["gradient-boosting", "logistic-regression", "random-forest"],
        "data": {
            "name": "csv",
            "path": "clinics.csv",
            "target": "ill",
            "kind": "classification",
            "group": "clinic",
            "public": 0.2,
        },
        "protocol": {"rounds": 3},
    }
    result = call("run", "study.toml", "--quick", "--quiet", "--out", "run")
    assert result.exit_code == 0, result.output
    again = call("new", "study.toml", "--table", "clinics.csv", "--target", "ill", "--yes")
    assert again.exit_code == 2 and "there is something already" in again.stderr


def test_a_person_is_asked_and_asked_again(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["il", "ill", "regression", "classification", "none", "1", "3", "clinic", "0.3"])
    asked: list[str] = []

    def prompt(question: str, **options: Any) -> str:
        asked.append(f"{question} [{options['default']}]")
        return next(answers)

    monkeypatch.setattr(new, "on_terminal", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    result = call("new", "study", "--table", "clinics.csv")
    assert result.exit_code == 0, result.output
    assert asked[2] == "Is 'ill' for classification or regression? [classification]"
    assert "Did you mean 'ill'?" in result.stderr and "Give 2 or more" in result.stderr
    document = written("study.toml")
    assert document["data"]["drop"] == ["clinic"] and document["data"]["public"] == 0.3
    assert document["partition"] == {"name": "iid", "parties": 3}


def test_a_group_with_one_class_is_allowed_for_and_said(call: Call) -> None:
    header, *rows = clinics()
    clinic, ill = (header.split(",").index(name) for name in ("clinic", "ill"))
    cells = [row.split(",") for row in rows]
    cells = [one for one in cells if one[clinic] != "north" or one[ill] == "no"]
    Path("one.csv").write_text("\n".join([header, *map(",".join, cells)]) + "\n")
    result = call(
        "new", "study", "--table", "one.csv", "--target", "ill", "--group", "clinic", "--yes"
    )
    assert result.exit_code == 0, result.output
    assert "'north': its private data hold one class only, 'no'" in result.stderr
    document = written("study.toml")
    assert document["strict"] is False
    assert document["models"] == ["random-forest", "extra-trees", "knn"]


def test_values_texts_and_numbers_of_persons(call: Call) -> None:
    rows = [f"p{i},{i % 7 + i / 100},{i % 5},{i * 3}" for i in range(60)]
    Path("values.csv").write_text("\n".join(["person,dose,days,cost", *rows]) + "\n")
    result = call("new", "values", "--table", "values.csv", "--yes")
    assert result.exit_code == 0, result.output
    document = written("values.toml")
    assert document["data"]["target"] == "cost" and document["data"]["kind"] == "regression"
    assert document["data"]["drop"] == ["person"] and "ridge" in document["models"]
    rows = [f"{'<0.5' if i < 3 else i / 7},{i % 5},{i % 2}" for i in range(60)]
    Path("limits.csv").write_text("\n".join(["crp,days,ill", *rows]) + "\n")
    result = call("new", "limits", "--table", "limits.csv", "--target", "ill", "--yes")
    assert result.exit_code == 0, result.output
    assert "warning: left out: column 'crp' holds numbers and '<0.5' in 3 rows" in result.output
    rows = [f"the {i}th letter is {w},{w}" for i in range(40) for w in ("dull", "gay")]
    Path("texts.csv").write_text(
        "\n".join(["no,letter,mood", *(f"{i},{row}" for i, row in enumerate(rows))]) + "\n"
    )
    result = call("new", "texts", "--table", "texts.csv", "--yes")
    assert result.exit_code == 0, result.output
    document = written("texts.toml")
    assert document["models"] == ["tfidf-logistic"] and document["data"]["drop"] == ["no"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--table", "clinics.csv"), "There is no terminal to ask at"),
        (("--yes",), "Say it with --table."),
        (("--table", "clinics.csv", "--target", "il", "--yes"), "Did you mean 'ill'?"),
        (("--table", "clinics.csv", "--target", "ill", "--group", "ill", "--yes"), "another use"),
        (("--table", "clinics.csv", "--target", "ill", "--public", "1.5", "--yes"), "neither"),
        (
            ("--table", "clinics.csv", "--target", "ill", "--public", "p.csv", "--yes"),
            "no such file",
        ),
        (("--table", "clinics.csv", "--target", "ill", "--kind", "regression", "--yes"), "numbers"),
        (("--table", "one.csv", "--target", "same", "--yes"), "there is only one class (x)"),
        (("--table", "gap.csv", "--target", "same", "--yes"), "1 of 30 rows have no value"),
        (("--table", "three.csv", "--target", "same", "--yes"), "the table has 3 rows, too few"),
        (("--table", "header.csv", "--yes"), "the table has 0 rows"),
        (("--table", "empty.csv", "--yes"), "empty.csv: the file is empty"),
        (("--table", "one.csv", "--target", "who", "--yes"), "'who' holds 30 classes in 30 rows"),
        (
            ("--table", "clinics.csv", "--group", "clinic", "--parties", "3", "--yes"),
            "by a column or by number, not by both",
        ),
    ],
)
def test_what_no_run_would_take_is_not_written(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    rows = [f"{i % 9},x,P{i}" for i in range(30)]
    Path("one.csv").write_text("\n".join(["age,same,who", *rows]) + "\n")
    Path("gap.csv").write_text("\n".join(["age,same,who", "3,,P0", *rows[1:]]) + "\n")
    Path("three.csv").write_text("\n".join(["age,same,who", *rows[:3]]) + "\n")
    Path("header.csv").write_text("age,same,who\n")
    Path("empty.csv").write_text("")
    result = call("new", "study", *words)
    assert result.exit_code == 2 and said in result.stderr, result.output
    assert not Path("study.toml").exists()


def test_a_german_table_is_read_as_meant(call: Call) -> None:
    """Decimal commas with gaps are values; k.A. is a gap; a clinic is a clinic."""
    rows = [
        f"{'Nord' if i % 2 else 'Süd'};{i / 7:.1f};{'k.A.' if i % 9 == 4 else i % 5};{i % 2}"
        for i in range(80)
    ]
    text = "\n".join(["Klinik;Alter;CRP;krank", *rows]).replace(".0;", ",0;")
    text = re.sub(r"(\d)\.(\d)", r"\1,\2", text) + "\n"
    Path("klinik.csv").write_text(text, encoding="cp1252")
    result = call("new", "study", "--table", "klinik.csv", "--target", "Alter", "--yes")
    assert result.exit_code == 0, result.output
    data = written("study.toml")["data"]
    assert data["kind"] == "regression" and data["group"] == "Klinik" and "drop" not in data
    Path("gaps.csv").write_text(text.replace(";0,1;", ";;"), encoding="cp1252")
    result = call("new", "gaps", "--table", "gaps.csv", "--target", "Alter", "--yes")
    assert "for classification or regression? regression" in result.stderr, result.output
    assert "1 of 80 rows have no value in 'Alter'" in result.stderr
