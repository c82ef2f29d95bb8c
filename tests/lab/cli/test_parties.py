"""``consilience parties``: what it prints and writes, and what it refuses; nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.lab.data import DATASETS, Dataset
from consilience.lab.data.registry import DatasetEntry
from consilience.lab.diagnostics.heterogeneity import compare_labels, how_different
from consilience.lab.experiments import gather, read_spec
from consilience.tables.dataset import as_texts
from helpers.command_line import TABLE, Call

FAST = ("--directions", 5)


def data_of(call: Call, *words: object) -> Any:
    result = call("parties", *words, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_table_and_sentences(call: Call, folder: Path) -> None:
    """Two clinics of alike patients: the table has a line each, and all is as chance has it."""
    result = call("parties", "clinics.toml", *FAST)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    for word in ("north", "south", "labels (TV)", "inputs (W1)", "by chance", "p-value"):
        assert word in said
    assert "Labels (TV): as far as chance." in said and "exact, 40 distinct rows" in said
    assert "nothing is trained" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "clinics.csv",
        "clinics.toml",
        "tiny.toml",
    ]


def test_the_figures_are_those_of_the_cohort(call: Call) -> None:
    """The same parties as a run has, by hand: public rows and test rows are left out."""
    found = data_of(call, "tiny.toml", *FAST, "--seed", 3, "--scale", "overall")
    cohort = gather(read_spec(Path("tiny.toml")), 3)
    parties = {
        name: (cohort.dataset.X[rows], cohort.labels(cohort.dataset.y[rows]))
        for name, rows in zip(cohort.names, cohort.rows, strict=True)
    }
    expected = how_different(parties, classes=cohort.dataset.classes, directions=5, seed=3)
    assert found["distances"] == json.loads(json.dumps(expected.as_data()["distances"]))
    assert found["seed"] == 3 and found["configuration"] == "tiny" and found["versions"]
    counts = {n: np.array(list(p["classes"].values())) for n, p in found["parties"].items()}
    assert {n: int(c.sum()) for n, c in counts.items()} == dict(
        zip(cohort.names, map(len, cohort.rows), strict=True)
    )
    assert compare_labels(counts, seed=3).omega == found["distances"][0]["omega"]
    assert found["finding"].startswith("labels: far apart")


def test_options(call: Call) -> None:
    plain = data_of(call, "clinics.toml", *FAST)
    assert plain["columns_equalized"] and plain["weights"] == "equal"  # a table with named columns
    whole = data_of(call, "clinics.toml", *FAST, "--scale", "overall", "--by-rows")
    assert not whole["columns_equalized"] and whole["weights"] == "by rows"
    assert whole["distances"][1]["unit"] != plain["distances"][1]["unit"]
    labels = data_of(call, "clinics.toml", "--labels-only", "--permutations", 50)
    assert [d["of"] for d in labels["distances"]] == ["labels"]
    assert labels["distances"][0]["chance"]["permutations"] == 50
    three = ("--set", 'partition={name="iid",parties=3}')
    assert len(data_of(call, "clinics.toml", *FAST, *three)["parties"]) == 3


def test_the_same_twice(call: Call) -> None:
    assert data_of(call, "tiny.toml", *FAST) == data_of(call, "tiny.toml", *FAST)


def test_a_folder_with_page_plot_and_data(call: Call) -> None:
    for _ in range(2):  # what is there is replaced
        result = call("parties", "tiny.toml", *FAST, "--out", "runs/how")
        assert result.exit_code == 0, result.output
    files = sorted(path.name for path in Path("runs/how").iterdir())
    assert files == ["parties.html", "parties.json", "parties.png", "parties.svg"]
    assert str(Path("runs/how/parties.html")) in result.stdout
    page = Path("runs/how/parties.html").read_text()
    assert "Labels: far apart" in page and "data:image/svg+xml" in page and "<script" not in page
    stored = json.loads(Path("runs/how/parties.json").read_text())
    again = data_of(call, "tiny.toml", *FAST)
    assert stored == again
    svg = Path("runs/how/parties.svg").read_text()
    assert all(word in svg for word in ("party-1", "range by chance", "inputs (W1)"))


@pytest.mark.usefixtures("sketched")
def test_names_on_the_page_are_escaped(call: Call) -> None:
    table = Path("clinics.csv")
    table.write_text(table.read_text().replace("north", "<b>&"))
    assert call("parties", "clinics.toml", *FAST, "--out", "how").exit_code == 0
    page = Path("how/parties.html").read_text()
    assert "&lt;b&gt;&amp;" in page and "<b>&" not in page


def test_values(call: Call) -> None:
    """A regression: quarters of a sorted column are apart, and have no classes."""
    Path("values.toml").write_text(
        'name = "values"\nmethods = ["local"]\n[data]\nname = "diabetes"\n'
        '[partition]\nname = "shards"\nshare = 0.0\nparties = 4\n[[models]]\nname = "ridge"\n'
    )
    found = data_of(call, "values.toml", *FAST)
    values = found["distances"][0]
    assert (values["of"], values["measure"], values["words"]) == ("values", "W1", "far apart")
    assert (
        values["method"] == "exact, in one dimension"
        and "classes" not in found["parties"]["party-1"]
    )
    assert call("parties", "values.toml", *FAST, "--out", "how").exit_code == 0


def test_texts(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, y = as_texts([f"row {i}" for i in range(40)]), np.arange(40) % 2

    def words() -> Dataset:
        return Dataset("words", texts, y, texts, y, ("a", "b"))

    monkeypatch.setitem(DATASETS._entries, "words", DatasetEntry(words, "words", "nobody"))
    setting = ("--set", 'data={name="words",public=10}')
    found = data_of(call, "tiny.toml", *setting, "--set", "partition.per_party=1")
    assert found["finding"].startswith("labels: far apart; inputs: ")
    found = data_of(call, "tiny.toml", *setting, "--set", "partition.per_party=1", "--labels-only")
    assert found["finding"] == "labels: far apart"


@pytest.mark.parametrize("cell", ["old", "inf"])
def test_a_damaged_cell(call: Call, cell: str) -> None:
    with Path("clinics.csv").open("a") as file:
        file.write(f"{cell},120,north,yes\n")
    result = call("parties", "clinics.toml")
    assert result.exit_code == 2 and "'age'" in result.stderr and not result.stdout


def test_a_gap_is_no_damage(call: Call) -> None:
    with Path("clinics.csv").open("a") as file:
        file.write("nan,120,north,yes\n")
    assert call("parties", "clinics.toml", *FAST).exit_code == 0


BAD = {
    "no such file": (["nothing.toml"], "there is no such file"),
    "unknown key": (["tiny.toml", "--set", "seed=1"], "Did you mean 'seeds'?"),
    "one party": (["clinics.toml", "--set", 'partition={name="iid",parties=1}'], "one party"),
    "unknown scale": (["tiny.toml", "--scale", "column"], "Did you mean 'columns'?"),
    "few permutations": (["tiny.toml", "--permutations", 5], "20"),
    "few directions": (["tiny.toml", "--directions", 1], "2"),
    "negative seed": (["tiny.toml", "--seed", -1], "seed"),
    "a file for a folder": (["tiny.toml", "--out", "clinics.csv"], "this is a file, not a folder"),
    "no such folder": (["tiny.toml", "--json", "no/where.json"], "there is no such folder"),
    "impossible partition": (["tiny.toml", "--set", "partition.per_party=11"], "10 classes"),
}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD)
def test_bad_calls(call: Call, words: list[object], said: str) -> None:
    result = call("parties", *words)
    assert result.exit_code == 2 and said in result.stderr, result.output
    assert not result.stdout and "Traceback" not in result.stderr


def test_a_folder_that_cannot_be_made(call: Call) -> None:
    Path("file").write_text("")
    result = call("parties", "tiny.toml", "--labels-only", "--out", "file/inside")
    assert result.exit_code == 1 and "cannot be written" in result.stderr


def test_help_has_an_example(call: Call) -> None:
    assert "Example: consilience parties" in " ".join(call("parties", "--help").stdout.split())


# --- what they know of the public rows --------------------------------------------------------------

FOREIGN = TABLE.replace("public = 0.3", 'public_file = "public.csv"')


@pytest.fixture
def foreign(folder: Path) -> Path:
    """The clinics with public patients whom no clinic has: some 60 years older, of pressure 160 to 230."""
    rng = np.random.default_rng(1)
    rows = zip(rng.integers(80, 140, 60), rng.integers(160, 230, 60), strict=True)
    Path("public.csv").write_text("age,pressure\n" + "".join(f"{a},{p}\n" for a, p in rows))
    Path("foreign.toml").write_text(FOREIGN)
    return folder


@pytest.mark.usefixtures("sketched")
def test_public_rows_that_are_known(call: Call) -> None:
    """Public digits are digits: a share a party, and one of all, in the table, the data and the page."""
    result = call("parties", "tiny.toml", *FAST, "--out", "how")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "public known" in said and "of the 200 public rows: well known." in said
    public = json.loads(Path("how/parties.json").read_text())["public"]
    assert public["known"] > 0.8 and public["rows"] == 200 and public["warnings"] == []
    page = Path("how/parties.html").read_text()
    assert "public known" in page and public["finding"] in page
    for name, share in public["parties"].items():
        assert any(name in line and f"{share:.0%}" in line for line in result.stdout.splitlines())


def test_public_rows_that_nobody_knows(call: Call, foreign: Path) -> None:
    public = data_of(call, "foreign.toml", *FAST)["public"]
    assert public["known"] < 0.1 and public["words"] == "little known"
    assert set(public["parties"]) == {"north", "south"} and "little" in public["warnings"][0]
    again = data_of(call, "foreign.toml", *FAST, "--set", "calibration=0.0")["public"]
    assert (
        again["known"] < 0.1 and again["notes"] == {}
    )  # rows are held out to judge by all the same


def test_many_public_rows_are_judged_by_a_part(call: Call, foreign: Path) -> None:
    header, *rows = Path("public.csv").read_text().splitlines()
    Path("public.csv").write_text("\n".join([header, *rows * 35]))
    public = data_of(call, "foreign.toml", *FAST)["public"]
    assert (public["rows"], public["rows_looked_at"]) == (2_100, 2_000)
    assert "of the 2,100 public rows (2,000 of them were looked at)" in public["finding"]


def test_without_public_rows_nothing_is_said_of_them(call: Call) -> None:
    words = ("--set", 'methods=["local"]', "--set", 'data={name="digits"}')
    result = call("parties", "tiny.toml", *FAST, *words)
    assert result.exit_code == 0 and "public" not in result.stdout + result.stderr
    assert "public" not in data_of(call, "tiny.toml", *FAST, *words)


def test_models_that_cannot_take_the_rows(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts and naive Bayes: what is known cannot be said, how different they are can."""
    texts, y = as_texts([f"row {i}" for i in range(40)]), np.arange(40) % 2

    def words() -> Dataset:
        return Dataset("words", texts, y, texts, y, ("a", "b"))

    monkeypatch.setitem(DATASETS._entries, "words", DatasetEntry(words, "words", "nobody"))
    setting = ("--set", 'data={name="words",public=10}', "--set", "partition.per_party=2")
    result = call("parties", "tiny.toml", *setting, "--labels-only")
    assert result.exit_code == 0 and "public known" not in result.stdout
    assert "warning: what the parties know of the public rows cannot be said" in result.stderr
    text = ("--set", 'models=[{name="tfidf-logistic"}]')
    assert data_of(call, "tiny.toml", *setting, *text, "--labels-only")["public"]["rows"] == 10


@pytest.mark.usefixtures("sketched")
def test_a_run_warns_once_before_anything_is_trained(call: Call, foreign: Path) -> None:
    result = call("run", "foreign.toml", "--out", "run", "--json", "run.json")
    assert result.exit_code == 0, result.output
    first = result.stderr.splitlines()[0]
    assert first.startswith("warning: Your parties know ") and "60 public rows" in first
    assert result.stderr.count("warning: ") == 1
    assert json.loads(Path("run.json").read_text())["warnings"] == [first.removeprefix("warning: ")]
    assert "little known" in Path("run/report.html").read_text()
    quiet = call("run", "foreign.toml", "--out", "quiet", "--quiet")
    assert quiet.stderr.splitlines() == [first] and quiet.stdout.strip() == "quiet"


@pytest.mark.usefixtures("sketched")
def test_a_run_whose_public_rows_are_known_or_not_needed_does_not_warn(
    call: Call, foreign: Path
) -> None:
    assert call("run", "clinics.toml", "--quiet").stderr == ""
    alone = call("run", "foreign.toml", "--set", 'methods=["local"]', "--quiet")
    assert alone.exit_code == 0 and alone.stderr == ""


@pytest.mark.usefixtures("sketched")
def test_a_run_goes_on_where_nobody_can_say(
    call: Call, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("consilience.methods.comparison_rules.tasks.SelectPublic.run", broken)
    result = call("run", "foreign.toml", "--quiet")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: What the parties know of the public rows cannot be")
