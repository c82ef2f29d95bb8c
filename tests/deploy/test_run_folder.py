"""A deployed federation's run is read by the same commands as a simulated one."""

from __future__ import annotations

import json
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.lab.cli.main import app
from consilience.lab.experiments import read_spec, start
from consilience.lab.report import read_results, write_report
from consilience.lab.runs.folder import read_configuration
from consilience.lab.runs.ledger import Ledger
from helpers.command_line import TABLE, clinics
from helpers.deployed_run import grid, served
from helpers.flower_grid import in_a_run

pytestmark = pytest.mark.usefixtures("sketched")


class _Text(HTMLParser):
    """The words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def text_of(page: Path) -> str:
    return " ".join(_Text(page.read_text()).words)


def call(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_page_says_what_a_coordinator_wants_to_know(finished: Path) -> None:
    assert call("report", finished).split() == [str(finished / "run" / "report.html")]
    text = text_of(finished / "run" / "report.html")
    assert (
        "center: report" in text and "deployed, 2 parties, 20 public rows, 2 rounds, 1 seed" in text
    )
    assert "rounds took part left out, and why 0 to 2 all 2 –" in text
    assert (
        "What left each party" in text
        and "north Predictions(20×2), LogDensities(20) PredictPublic" in text
    )
    assert "No party failed, was late or was refused." in text
    assert "consilience coordinator start FOLDER" in text and "coordinator.toml" in text


def test_metrics_over_rounds_are_those_of_the_ledger(finished: Path) -> None:
    results = read_results(finished)
    (method,) = results.methods
    with closing(Ledger(finished / "run" / "ledger.sqlite", read_only=True)) as ledger:
        found = ledger.read(
            "SELECT party, value FROM metrics WHERE name = 'accuracy' AND round = 2 ORDER BY party"
        )
    assert results.parties == ("north", "south") and results.deployed
    assert dict(found) == dict(zip(results.parties, method.scores["accuracy"][0, -1], strict=True))
    assert method.bytes_up.sum() > 0 and results.attendance[0].present == ("north", "south")


def test_both_kinds_of_run_have_one_form(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "clinics.csv").write_text("\n".join(clinics()) + "\n")
    (tmp_path / "clinics.toml").write_text(TABLE)
    simulated, deployed = tmp_path / "simulated", finished / "run"
    start(read_spec(tmp_path / "clinics.toml"), simulated)
    kinds = [read_configuration(run).kind for run in (simulated, deployed)]
    assert kinds == ["simulated", "deployed"]
    keys = [json.loads((run / "config.json").read_text()).keys() for run in (simulated, deployed)]
    assert keys[0] == keys[1]
    rows = json.loads(call("compare", simulated, finished, "--metric", "accuracy", "--json", "-"))
    assert {row["run"] for row in rows["results"]} == {"simulated", "center"}
    assert "center differs from simulated in its data." in rows["warnings"]


def test_resuming_a_finished_run_shows_it(finished: Path) -> None:
    said = call("resume", finished / "run")
    assert "uwa" in said and "The page: " in said


def test_a_model_that_never_left_its_party_is_asked_for_there(finished: Path) -> None:
    words = ["predict", str(finished), "rows.csv", "--party", "north"]
    result = CliRunner().invoke(app, words)
    said = " ".join(result.output.split())
    assert result.exit_code == 2
    assert "no model of party 'north'" in said and "consilience party predict party.toml" in said
    words[-1] = "nroth"
    assert "Did you mean 'north'" in CliRunner().invoke(app, words).output


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


@pytest.mark.usefixtures("quickly")
def test_a_model_that_was_exchanged_predicts_at_the_coordinator(run: Path) -> None:
    path = run / "coordinator.toml"
    text = path.read_text().replace('aggregate = "uwa"', 'protocol = "averaged_distillation"')
    text = text.replace('name = "ensemble_distillation"\n', "")
    path.write_text(text.replace('public = "../public.csv"', ""))
    for name in ("north", "south"):
        toml = run.parent / name / "party.toml"
        limits = '[limits]\nallow = ["predictions", "models"]'
        toml.write_text(
            toml.read_text().replace('public = "../public.csv"', "").replace("[limits]", limits)
        )
    assert served(run, grid(run))
    rows = run / "rows.csv"
    rows.write_text("age,pressure\n40,120\n70,160\n")
    call("predict", run, rows, "--party", "north", "--out", run / "answers.csv")
    assert (run / "answers.csv").read_text().splitlines()[0] == "prediction,no,yes"


@pytest.mark.usefixtures("quickly")
def test_who_was_left_out_and_why_is_on_the_page(run: Path) -> None:
    toml = run.parent / "south" / "party.toml"
    toml.write_text(toml.read_text().replace('"center"', '"another"'))
    assert served(run, grid(run))
    text = text_of(write_report(run))
    assert "0 1: north south: refused at Describe: limits.federation" in text
    assert "south is not a member: it has not joined: limits.federation" in text
    assert "Parties were left out of" in text and "xcluded: south" in text


@pytest.mark.usefixtures("quickly")
def test_where_metrics_come_once_nothing_is_said_of_a_gain(run: Path) -> None:
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("metrics = 2", "metrics = 1"))
    assert served(run, grid(run))
    text = text_of(write_report(run))
    assert "The parties were not measured before the exchange" in text
    assert "party alone uwa north –" in text
