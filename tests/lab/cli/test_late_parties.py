"""``consilience resume RUN --with PARTY.toml``: a party joins a finished run."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience.core.files import FORMAT
from consilience.lab.data import load
from consilience.lab.experiments import (
    Ledger,
    gather,
    read_spec,
    spec_joined_by,
    start,
    stored_spec,
)
from consilience.lab.experiments.late import read_late
from consilience.lab.experiments.run import resume
from consilience.lab.report.reading import read_results
from consilience.sites.deployment import joining_party
from helpers.command_line import Call

pytestmark = pytest.mark.usefixtures("sketched")

RUN = """
name = "clinics"
methods = ["local", "avg", "central"]
checkpoint_seconds = 0
[data]
name = "csv"
path = "clinics.csv"
target = "ill"
group = "clinic"
public = 0.2
standardize = true
[partition]
name = "group"
[[models]]
name = "naive-bayes"
[protocol]
rounds = 2
"""

PARTY = """
name = "midwest"
[data]
path = "west.csv"
target = "ill"
test = 0.4
rename = { years = "age" }
aliases = { Y = "yes", N = "no" }
[model]
name = "logistic-regression"
"""


def write(path: Path, head: list[str], rows: int, says: str, *more: str) -> None:
    rng = np.random.default_rng(rows)
    sick, well = says.split()
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*head, "ill"])
        for i in range(rows):
            age, weight = rng.normal([50, 70], [10, 8]).round(1)
            of = more[i % len(more) :][:1] if more else ()
            lines.writerow([age, weight, *of, sick if age + weight > 120 else well])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, and a finished run ``first``."""
    folder = tmp_path_factory.mktemp("late")
    write(folder / "clinics.csv", ["age", "weight", "clinic"], 160, "yes no", "north", "south")
    write(folder / "west.csv", ["years", "weight"], 60, "Y N")
    (folder / "clinics.toml").write_text(RUN)
    (folder / "west.toml").write_text(PARTY)
    start(read_spec(folder / "clinics.toml"), folder / "first")
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def metrics(run: Path, method: str, upto: int) -> list[tuple[object, ...]]:
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        return ledger.read(
            "SELECT seed, round, party, name, value FROM metrics WHERE method = ? AND round <= ? "
            "AND name LIKE '%own' AND party <> 'midwest' ORDER BY 1, 2, 3, 4",
            method,
            upto,
        )


def test_a_party_joins_a_finished_run(call: Call) -> None:
    """Rounds that are done come out as they were; the newcomer has its model alone under ``local``."""
    done = call("resume", "first", "--with", "west.toml", "--rounds", "5", "--out", "second")
    assert done.exit_code == 0, done.output
    assert "midwest joins after round 2" in done.stderr
    results = read_results(Path("second"))
    assert results.parties == ("midwest", "north", "south") and not results.failures
    avg, local = results.method("avg"), results.method("local")
    assert avg is not None and local is not None
    newcomer = avg.scores["accuracy_own"][:, :, 0]
    assert np.isnan(newcomer[:, :3]).all() and (newcomer[:, 3:] > 0.7).all()
    assert not np.isnan(local.scores["accuracy_own"]).any()
    before = metrics(Path("first"), "avg", 2)
    again = metrics(Path("second"), "avg", 2)
    assert before and [one[:4] for one in before] == [one[:4] for one in again]
    np.testing.assert_allclose([b[4] for b in before], [a[4] for a in again], rtol=1e-12)
    setup = gather(stored_spec(Path("second")), 0)
    own = setup.own[0]
    assert own.sum() == 24 and setup.dataset.group_test is not None
    assert set(setup.dataset.group_test[own > 0]) == {"midwest"}
    said = call("predict", "second", "--party", "midwest", "clinics.csv")
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("after", [2, 3])
def test_stopped_it_goes_on_before_and_after_the_newcomer(folder: Path, after: int) -> None:
    spec = spec_joined_by(Path("first"), [joining_party(Path("west.toml"))])
    start(spec, Path("whole"))

    def stop(progress: object) -> None:
        if (progress.method, progress.seed, progress.round) == ("avg", 0, after):  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(spec, Path("stopped"), report=stop)
    resume(Path("stopped"))
    assert metrics(Path("whole"), "avg", 4) == metrics(Path("stopped"), "avg", 4)


def test_own_units_are_converted(folder: Path) -> None:
    head = Path("west.csv").read_text().splitlines()
    pounds = [[a, str(float(b) * 2.2), c] for a, b, c in (row.split(",") for row in head[1:])]
    Path("west.csv").write_text("\n".join([head[0], *(",".join(row) for row in pounds)]) + "\n")
    Path("west.toml").write_text(PARTY.replace("[model]", "units = { weight = 0.4545 }\n[model]"))
    joined = spec_joined_by(Path("first"), [joining_party(Path("west.toml"))])
    dataset = load("csv", path="clinics.csv", target="ill", group="clinic")
    assert 65 < read_late(joined.late[0], dataset).X[:, 1].mean() < 75


@pytest.mark.parametrize(
    "old, new, why",
    [
        ('name = "midwest"', 'name = "north"', "two parties are called 'north'"),
        ('years = "age"', 'weight = "age"', "weight"),
        ('Y = "yes", ', 'Y = "maybe", ', "class 'maybe' is none of those"),
        ('"logistic-regression"', '"ridge"', "it is for regression"),
        ('"west.csv"', '"east.csv"', "east.csv"),
        ("test = 0.4", "units = { length = 2.54 }", "units is about 'length'"),
        ("test = 0.4", 'missing = "allowed"', "data.missing does not count"),
    ],
)
def test_one_that_does_not_fit_is_refused_before_any_work(
    call: Call, old: str, new: str, why: str
) -> None:
    assert old in PARTY
    Path("west.toml").write_text(PARTY.replace(old, new))
    refused = call("resume", "first", "--with", "west.toml", "--out", "second")
    assert refused.exit_code == 2 and why in refused.stderr, refused.output
    assert not Path("second").exists()


def test_methods_and_runs_that_take_in_nobody_say_so(call: Call) -> None:
    words = ("--with", "west.toml", "--out", "second")
    setting = 'methods=["local", "averaged_distillation"]'
    start(read_spec(Path("clinics.toml"), ["protocol.rounds=1", setting]), Path("models"))
    refused = call("resume", "models", *words)
    assert refused.exit_code == 2 and "nobody can join it later" in refused.stderr, refused.output
    assert "there are 2 rounds" in call("resume", "first", *words, "--rounds", "2").stderr
    assert "for parties that join" in call("resume", "first", "--rounds", "3").stderr
    with closing(Ledger(Path("first/ledger.sqlite"))) as ledger:
        ledger.mark("avg", 0, "running")
    refused = call("resume", "first", *words)
    assert refused.exit_code == 2 and "not finished" in refused.stderr


def test_of_a_deployed_federation_the_coordinator_says_who_joins(call: Call) -> None:
    Path("run").mkdir()
    Path("run/config.json").write_text(
        json.dumps({"format": FORMAT, "kind": "deployed", "configuration": {}})
    )
    refused = call("resume", "run", "--with", "west.toml")
    assert refused.exit_code == 2 and "coordinator.toml" in refused.stderr


def test_a_configuration_may_name_late_parties(folder: Path) -> None:
    late = PARTY.replace('name = "midwest"', '[[late]]\nname = "midwest"\nafter = 1')
    late = late.replace("[data]", "[late.data]").replace("[model]", "[late.model]")
    Path("late.toml").write_text(RUN + late)
    start(read_spec(Path("late.toml"), ['methods=["avg"]']), Path("late"))
    attended = read_results(Path("late")).attendance
    # Joining is set-up, which is round 0 whenever it happens.
    assert [(one.first, len(one.present)) for one in attended] == [(0, 3), (1, 2), (2, 3)]
