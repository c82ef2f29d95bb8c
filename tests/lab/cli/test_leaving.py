"""``consilience resume RUN --without NAME``: all rounds as if a party had never been there."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience import Federation
from consilience.lab.cli.predict import kept
from consilience.lab.experiments import Ledger, gather, read_spec, spec_without, start, stored_spec
from consilience.lab.experiments.method_run import Progress
from consilience.lab.experiments.run import resume
from consilience.lab.runs.leaving import CERTIFICATE, READABLE, REMAINS, record_of
from helpers.command_line import Call

pytestmark = pytest.mark.usefixtures("sketched")

RUN = """
name = "clinics"
methods = ["local", "avg"]
checkpoint_seconds = 0
strict = false
[data]
name = "csv"
path = "clinics.csv"
test = "tests.csv"
target = "ill"
group = "clinic"
public_file = "public.csv"
[[models]]
name = "naive-bayes"
[protocol]
rounds = 2
"""
LIAR = """
[hostile]
attack = "flipped"
parties = ["north"]
"""
CLINICS = ("east", "north", "south")


def write(path: Path, rows: int, seed: int, clinics: tuple[str, ...], odd: str = "") -> None:
    """Rows of clinics in turn; who is older than 50 or heavier than 80 is ill.

    Half of the rows of the clinic ``odd`` lack the weight, and have a ward and a word that no others have.
    """
    patients = np.random.default_rng(seed).normal([50, 70], [10, 8], (rows, 2)).round(1)
    lines = ["age,weight,ward,beds,clinic,ill"]
    for i, (age, weight) in enumerate(patients):
        ill = "yes" if age > 50 or weight > 80 else "no"
        own = f"{weight},{'AB'[i // 2 % 2]},{i // 3 % 4}"
        if (clinic := CLINICS[i % 3]) == odd and i % 2:
            own = ",Z,unknown"
        if clinic in clinics:
            lines.append(f"{age},{own},{clinic},{ill}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, a finished run ``first``, and in ``never`` one of files without north."""
    folder = tmp_path_factory.mktemp("leaving")
    for name, clinics in ((".", CLINICS), ("never", ("east", "south"))):
        home = folder / name
        home.mkdir(exist_ok=True)
        write(home / "clinics.csv", 90, 0, clinics, odd="north")
        write(home / "tests.csv", 30, 1, clinics, odd="north")
        write(home / "public.csv", 40, 2, CLINICS)
        (home / "clinics.toml").write_text(RUN + (LIAR if "north" in clinics else ""))
        start(read_spec(home / "clinics.toml"), home / "first")
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def metrics(run: Path) -> list[tuple[object, ...]]:
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        return ledger.read("SELECT * FROM metrics ORDER BY 1, 2, 3, 4, 5")


def predictions(run: Path) -> dict[str, np.ndarray]:
    setup = gather(stored_spec(run), 0)
    return {
        name: kept(run, name, "avg", None, trust=False).model.predict(setup.dataset.X_test)
        for name in setup.names
    }


def test_the_bits_are_those_of_a_run_that_never_had_the_party(call: Call) -> None:
    left = call("resume", "first", "--without", "north", "--out", "second")
    assert left.exit_code == 0, left.output
    assert metrics(Path("second")) == metrics(Path("never/first")) != metrics(Path("first"))
    certificate = json.loads(Path("second", CERTIFICATE).read_text())
    assert certificate["left"] == ["north"] and certificate["parties"] == ["east", "south"]
    done = [(one["method"], one["round"]) for one in certificate["rounds"]]
    assert done[:3] == [("avg", 0), ("avg", 1), ("avg", 2)] and done[3][0] == "local"
    assert all(one["before"] != one["after"] for one in certificate["rounds"])
    models = {one["file"]: one for one in certificate["models"]}
    gone = [file for file in models if "/north/" in file]
    assert gone and all(models[file]["after"] is None for file in gone)
    with closing(Ledger(Path("never/first/ledger.sqlite"))) as ledger:
        never = record_of(Path("never/first"), ledger, [])
    stayed = [[one["file"], one["after"]] for one in certificate["models"] if one["after"]]
    assert stayed == never["models"]
    rounds = [
        [one["method"], one["seed"], one["round"], one["after"]] for one in certificate["rounds"]
    ]
    assert rounds == never["rounds"]
    assert certificate["remains"] == [REMAINS["read"], REMAINS["public"]]
    said = Path("second", READABLE).read_text()
    assert 'as if "north" had never been there' in said and "second" not in said


def test_and_those_of_a_federation_of_the_others(folder: Path) -> None:
    """Python, which knows nothing of leaving: the others' parties alone."""
    spec, _ = spec_without(Path("first"), ["north"])
    setup = gather(spec, 0)
    never = gather(stored_spec(Path("never/first")), 0)
    assert len(setup.dataset.X_test) == len(never.dataset.X_test) == 20
    method = spec.methods[1]
    history = Federation(never.parties(), never.public, strict=False).run(spec.protocol_for(method))
    start(spec, Path("second"))
    again = predictions(Path("second"))
    for name, model in history.models.items():
        np.testing.assert_array_equal(model.predict(setup.dataset.X_test), again[name])


def test_what_was_dealt_of_all_rows_is_said(folder: Path) -> None:
    """Rows of one table that are dealt: who holds which is not done again, nor how columns are read."""
    config = Path("first/config.json")
    config.write_text(config.read_text().replace('"name": "group"', '"name": "iid", "parties": 3'))
    _, before = spec_without(Path("first"), ["north"])
    assert before["remains"] == list(REMAINS.values())


def test_stopped_it_goes_on_to_its_certificate(folder: Path) -> None:
    """The run before may be deleted at once: nothing of it is needed any more."""
    spec, before = spec_without(Path("first"), ["north"])

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(spec, Path("second"), report=stop, before=before)
    shutil.rmtree("first")
    assert not Path("second", CERTIFICATE).exists()
    resume(Path("second"))
    assert json.loads(Path("second", CERTIFICATE).read_text())["left"] == ["north"]


def test_the_record_of_a_run_that_was_stopped_is_that_of_one_that_was_not(folder: Path) -> None:
    """What is asked once, as density ratios, is asked again by a run that goes on."""
    text = RUN.replace('"local", "avg"', '"density-ratio"')
    Path("ratios.toml").write_text(text)
    spec = read_spec(Path("ratios.toml"))

    def stop(progress: Progress) -> None:
        if progress.round == 1:
            raise KeyboardInterrupt

    start(spec, Path("whole"))
    with pytest.raises(KeyboardInterrupt):
        start(spec, Path("stopped"), report=stop)
    resume(Path("stopped"))
    found = []
    for run in (Path("whole"), Path("stopped")):
        with closing(Ledger(run / "ledger.sqlite")) as ledger:
            found.append(record_of(run, ledger, []))
            asked = ledger.read("SELECT count(*) FROM deliveries WHERE tasks = 'ComparePublic'")
        assert asked == [(3 * len(found) - 3,)]
    assert found[0]["rounds"] == found[1]["rounds"] and found[0]["models"] == found[1]["models"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nroth"], "'nroth' took no part in this run"),
        (["../north"], "took no part"),
        (["north", "south", "east"], "no party would be left"),
        (["north", "--with=west.toml"], "one run each"),
        (["north", "--rounds=3"], "--rounds is for parties that join"),
    ],
)
def test_refused_before_any_work(call: Call, words: list[str], said: str) -> None:
    options = [word if word.startswith("--") else f"--without={word}" for word in words]
    refused = call("resume", "first", *options, "--out", "second")
    assert refused.exit_code == 2 and said in refused.stderr, refused.output
    assert not Path("second").exists()
