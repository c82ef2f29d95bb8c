"""What the caller got wrong is said at once, with the way out, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.command_line import Call, Result

BAD_SETTINGS = {
    "unknown key": ("seed=3", "unknown key 'seed'", "Did you mean 'seeds'?"),
    "unknown key in a section": ("network.timeot=3", "unknown key 'network.timeot'", "'timeout'"),
    "value of a wrong type": ("seeds=many", "seeds:", "integer"),
    "value out of range": ("protocol.rounds=0", "protocol.rounds:", "greater than or equal to 1"),
    "unknown choice": ("network.kind=wired", "network.kind:", "'wire'"),
    "section of a wrong type": ("partition=3", "partition:", "table"),
    "true for a number of seeds": ("seeds=true", "seeds:", "integer"),
    "true for a number of public rows": ("data.public=true", "data.public", "integer"),
    "a key of a section": ("rounds=3", "unknown key 'rounds'", "It belongs under [protocol]"),
    "a text for a number of rounds": ('protocol.rounds="2"', "protocol.rounds", "integer"),
    "the same seed twice": ("seeds=[1,1]", "seeds", "different"),
    "unknown dataset": ("data.name=digit", "unknown dataset 'digit'", "Did you mean 'digits'?"),
    "unknown option of a dataset": ("data.sed=1", "unknown option 'sed'", "Did you mean 'seed'?"),
    "unknown learner": ("models.0.name=knnn", "unknown learner 'knnn'", "Did you mean 'knn'?"),
    "unknown parameter": ("models.1.n_neighbor=3", "unknown parameter", "'n_neighbors'"),
    "bad value of a parameter": ("models.1.n_neighbors=-3", "KNeighborsClassifier", "n_neighbors"),
    "unknown aggregator": ('methods=["uwaa"]', "unknown method 'uwaa'", "Did you mean 'uwa'?"),
    "unknown option of an aggregator": (
        'methods=[{aggregate="suwa",temprature=1}]',
        "unknown option 'temprature'",
        "'temperature'",
    ),
    "bad value of an aggregator's option": (
        'methods=[{aggregate="suwa",temperature="hot"}]',
        "temperature is 'hot'",
        "number",
    ),
    "two methods of one name": ('methods=["avg","avg"]', "two methods are called 'avg'", "label"),
    "unknown protocol": ("protocol.name=ensembel_distillation", "unknown protocol", "Did you mean"),
    "unknown option of a protocol": ("protocol.alfa=0.5", "unknown option 'alfa'", "'alpha'"),
    "bad value of a protocol's option": ("protocol.alpha=7", "alpha is 7", "(0, 1)"),
    "unknown consensus": ("protocol.consensus=dampd", "unknown consensus", "'damped'"),
    "codec without a name": ("protocol.codec.bits=3", "options and no name", "float16, quantized"),
    "codec of no bits": (
        'protocol.codec={name="quantized",bits=0}',
        "bits is 0",
        "no codec for all bits",
    ),
    "label of two lines": (
        'methods=[{aggregate="avg",label="a\\nb"}]',
        "this is no label of a method",
        r"'a\\nb'",
    ),
    "metric for two classes": (
        "metric=auc",
        "auc is for two classes, and there are 10",
        "log_loss",
    ),
    "unknown partition": ("partition.name=class", "unknown partition 'class'", "'classes'"),
    "unknown option of a partition": ("partition.per_part=2", "unknown option", "'per_party'"),
    "bad value of a partition's option": (
        "partition.per_party=two",
        "per_party is 'two'",
        "whole number",
    ),
    "impossible partition": ("partition.per_party=11", "11 classes per party", "10 classes"),
    "bad quorum": ("network.quorum=0", "quorum is 0", "share"),
    "no public data": ("data.public=0", "there is no public data", "data.public"),
    "more public rows than rows": ("data.public=5000", "cannot set aside 5000", "share"),
    "aggregator for values": ('methods=["mean"]', "'mean' is for regression", "classification"),
    "model for values": ("models.0.name=ridge", "model 'ridge'", 'data.kind = "regression"'),
    "one class where two are needed": (
        'partition={name="classes",parties=10,per_party=1}',
        "hold one class only",
        "party",
    ),
    "unknown metric": ("metric=acuracy", "tiny.toml --set metric=acuracy: metric:", "'accuracy'"),
    "not key=value": ("seeds", "'seeds' is not key=value", "--set"),
    "no such entry of a list": ("models.7.name=svc", "'7' in 'models.7.name'", "0 to 1"),
    "not a section": ("name.first=3", "'first' in 'name.first'", "section"),
}


@pytest.mark.parametrize("setting, what, mend", BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_bad_setting(call: Call, folder: Path, setting: str, what: str, mend: str) -> None:
    result = call("run", "tiny.toml", "--set", setting)
    _refused(result, folder, what, mend)


BAD_TABLES = {
    "missing target": ("data.target=il", "there is no target column 'il'", "Did you mean 'ill'?"),
    "target as group": (
        "data.group=ill",
        "'ill' is the target, and the group too",
        "another column",
    ),
    "missing group": ("data.group=clinc", "there is no group column", "'clinic'"),
    "no such file": ("data.path=clinic.csv", "there is no such file", "clinic.csv"),
    "no such public file": ("data.public_file=p.csv", "there is no such file", "p.csv"),
    "classes as values": ("data.kind=regression", "are not all numbers", "clinics.csv"),
    "a party without rows": (
        'partition={name="iid",parties=2,sizes=[1.0,0.0]}',
        "sizes must be 2 positive shares",
        "one a party",
    ),
}


@pytest.mark.parametrize("setting, what, mend", BAD_TABLES.values(), ids=BAD_TABLES)
def test_bad_table(call: Call, folder: Path, setting: str, what: str, mend: str) -> None:
    _refused(call("run", "clinics.toml", "--set", setting), folder, what, mend)


BAD_CELLS = {
    "infinite": ("inf,120,north,yes", "age", "1"),
    "text": ("old,120,north,yes", "'age' holds numbers and 'old'", "Leave it empty"),
    "no label": ("30,120,north,", "have no value in 'ill'", "Drop these rows"),
}


@pytest.mark.parametrize("line, what, mend", BAD_CELLS.values(), ids=BAD_CELLS)
def test_bad_cell(call: Call, folder: Path, line: str, what: str, mend: str) -> None:
    with Path("clinics.csv").open("a") as file:
        file.write(line + "\n")
    _refused(call("run", "clinics.toml"), folder, what, mend)


def test_a_group_with_one_class(call: Call, folder: Path) -> None:
    """A third clinic without ill patients: its party's model needs two classes."""
    with Path("clinics.csv").open("a") as file:
        file.writelines(f"{30 + i},120,west,no\n" for i in range(9))
    _refused(call("run", "clinics.toml"), folder, "party 'west'", "one class only")


def test_public_rows_on_another_scale(call: Call, folder: Path) -> None:
    lines = ["age,pressure", *(f"{i / 80},{i / 160}" for i in range(20, 80))]
    Path("public.csv").write_text("\n".join(lines) + "\n")
    result = call("run", "clinics.toml", "--set", "data.public_file=public.csv")
    _refused(result, folder, "'age' is of another unit", "Bring it to the unit")


@pytest.mark.parametrize("text", ["name = ", "\xff", "methods = 3"])
def test_a_file_that_is_no_configuration(call: Call, folder: Path, text: str) -> None:
    Path("tiny.toml").write_bytes(text.encode("latin-1"))
    _refused(call("run", "tiny.toml"), folder, "tiny.toml", "tiny.toml")


def test_a_place_that_is_taken(call: Call, folder: Path) -> None:
    Path("empty").mkdir()
    Path("file").write_text("mine")
    (folder / "a run").mkdir()
    Path("a run/config.json").write_text("{}")
    for place, what, mend in (
        ("empty", "empty: this folder exists, and it is no run", "a new folder with --out"),
        ("file", "file: this file exists, and it is no run", "a new folder with --out"),
        ("a run", "a run: there is a run in this folder", "consilience resume 'a run'"),
    ):
        _refused(call("run", "tiny.toml", "--out", place), folder, what, mend)
    assert not list(Path("empty").iterdir()) and Path("file").read_text() == "mine"


@pytest.mark.parametrize("words", [["resume"], ["report"], ["compare"]])
def test_what_is_no_run(call: Call, folder: Path, words: list[str]) -> None:
    for place in (".", "tiny.toml", "nowhere"):
        _refused(call(*words, place), folder, place, "run folder")


@pytest.mark.parametrize(
    "words",
    [["run"], ["rnu"], ["run", "tiny.toml", "--sead", "3"], ["run", "tiny.toml", "--seeds", "0"]],
)
def test_usage(call: Call, folder: Path, words: list[str]) -> None:
    _refused(call(*words), folder, "Error", " -h")


def _refused(result: Result, folder: Path, what: str, mend: str) -> None:
    """Exit status 2, a few lines on stderr and no traceback, and no run folder."""
    assert result.exit_code == 2, result.output
    said = result.stderr
    assert what in said and mend in said, said
    assert "Traceback" not in said and len(said.splitlines()) <= 10
    assert not result.stdout
    assert not (folder / "runs").exists()
