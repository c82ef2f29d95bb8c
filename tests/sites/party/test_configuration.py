"""What a party.toml may say, how a mistake in it is told, and what a trial finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.messages.schema import Public
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.sites.operations.certificates import make_key
from consilience.sites.party import (
    EVERYTHING,
    Limits,
    PartySpec,
    read_party,
    try_out,
    write_template,
)
from consilience.sites.party.dry_run import lax_limits
from helpers.command_line import clinics

FILLED = """
name = "north"
public = "public.csv"
[data]
path = "north.csv"
target = "ill"
[model]
name = "decision-tree"
max_depth = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A party's files; the public columns come in another order."""
    rows = [line.split(",") for line in clinics()]
    north = [f"{age},{pressure},{ill}" for age, pressure, _, ill in rows]
    (tmp_path / "north.csv").write_text("\n".join(north) + "\n")
    others = zip(rows[1:31], rows[31:61], strict=True)
    public = ["pressure,age", *(f"{pressure},{age}" for (age, *_), (_, pressure, *_) in others)]
    (tmp_path / "public.csv").write_text("\n".join(public) + "\n")
    return tmp_path


def spec_of(folder: Path, text: str = FILLED) -> PartySpec:
    (folder / "party.toml").write_text(text)
    return read_party(folder / "party.toml")


def test_a_party_is_made_of_it(folder: Path) -> None:
    spec = spec_of(folder)
    party = spec.party()
    assert (party.name, party.rows.classes, spec.state) == (
        "north",
        ("no", "yes"),
        folder / "state",
    )
    assert party.rows.X.shape == (64, 2) and len(party.rows.test[0]) == 16
    columns = ["pressure", "age"]  # those of the public file, in its order
    expected = np.loadtxt(folder / "public.csv", delimiter=",", skiprows=1, dtype=np.float32)
    assert party.public.key == Public(pd.DataFrame(expected, columns=columns)).key
    assert party.public.key != Public(pd.DataFrame(expected, columns=columns[::-1])).key
    assert party.rows.X[:, columns.index("age")].max() < 80 <= party.rows.X[:, 0].max()


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("[data]", "[daat]", r"unknown section 'daat'\n  Did you mean 'data'\?"),
        ("target", "traget", r"unknown key 'data\.traget'\n  Did you mean 'target'\?"),
        ("decision-tree", "decision-treee", "model: unknown learner 'decision-treee'"),
        ("max_depth", "max_deph", "model.*'max_deph'"),
        ('"ill"', '"il"', "there is no target column 'il'\n  Did you mean 'ill'"),
        ("public.csv", "publik.csv", r"publik\.csv: there is no such file"),
        ("north.csv", "nort.csv", r"nort\.csv: there is no such file"),
        ('"decision-tree"\nmax_depth = 3', '"ridge"', "model.name: 'ridge' is for regression, and"),
        ('name = "north"', 'name = ""', "name: string should have at least 1 character"),
        ('target = "ill"', 'target = "ill"\ntest = 1.5', r"test.*1\.5"),
        ('target = "ill"', 'target = "ill"\ncolumns = ["age", "hight"]', "no input column 'hight'"),
        ('target = "ill"', 'target = "ill"\n[data.aliases]\nmaybe = "yes"', "'maybe'"),
        ("[model]", "[limits]\nrounds = 0\n[model]", "limits.rounds: .* not 0"),
        ("[model]", '[limits]\nallow = ["predicions"]\n[model]', "limits.allow: unknown task or group"),
        ("[model]", "[limits.density_ratios]\nrow = 30\n[model]", "density_ratios: .*'row'.*\n.*'rows'"),
        ("[model]", "[limits.density_ratios]\nrows = 3\n[model]", "rows is 3\n.* at least 20"),
        ("[model]", "[limits]\ndensity_ratios = true\n[model]", "should be a table, not True"),
        ("[model]", '[limits]\ndensity_ratios = "exact"\n[model]', "rows can be rebuilt from exact"),
        ("[model]", "[limits]\nquantile = [0.5]\n[model]", "limits.quantile"),
        ("[model]", "[limits]\nquantile = [0.9, 0.1]\n[model]", "limits.quantile: .*no range of shares"),
        ("[model]", "[limits]\nquantile = [nan, nan]\n[model]", "limits.quantile: .*no range of shares"),
        ("[model]", "[limits]\nepsilon = inf\n[model]", "limits.epsilon"),
        ('name = "decision-tree"', "", r"model\.name: field required"),
        ("[data]", "[data", "this is not TOML"),
        ("[model]", "[limits]\nrounds = true\n[model]", "limits.rounds: .*integer, not True"),
        ("[model]", '[limits]\nrounds = "5"\n[model]', "limits.rounds: .*integer, not '5'"),
        ("[model]", "[limits]\nalpha = true\n[model]", "limits.alpha: .*number, not True"),
        ("[model]", '[limits]\noverlap = "no"\n[model]', "limits.overlap: .*boolean, not 'no'"),
        ("[model]", '[limits]\nquantile = ["0", "1"]\n[model]', "limits.quantile.*number, not '0'"),
        ("[data]", "threads = true\n[data]", "threads: .*integer, not True"),
        ("max_depth", "sends_rows = 1\nmax_depth", "model.sends_rows: .*boolean, not 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(folder: Path, was: str, now: str, message: str) -> None:
    assert was in FILLED
    with pytest.raises(ConsilienceError) as caught:
        spec_of(folder, FILLED.replace(was, now, 1)).party()
    assert caught.value.exit_code == 2
    assert caught.match(message)


@pytest.mark.parametrize(
    ("was", "now", "key"),
    [
        ("decision-tree", "decision-treee", "model"),
        ('"decision-tree"\nmax_depth = 3', '"ridge"', "model.name"),
        ('"ill"', '"il"', "data: "),
        ("public.csv", "publik.csv", "public: "),
        ("[model]", "[limits]\nclasses = 2\n[model]", "limits.classes"),
        ("[model]", '[limits]\nprotocols = ["scafold"]\n[model]', "limits.protocols"),
        ("[model]", "[limits]\nrounds = 0\n[model]", "limits.rounds"),
    ],
)
def test_a_mistake_is_told_with_the_file_and_the_key(
    folder: Path, was: str, now: str, key: str
) -> None:
    if key == "limits.classes":
        rows = (folder / "north.csv").read_text()
        (folder / "north.csv").write_text(rows + "50,100,perhaps\n" * 5)
    with pytest.raises(ConsilienceError) as caught:
        spec_of(folder, FILLED.replace(was, now, 1)).party()
    assert str(caught.value).startswith(f"{folder / 'party.toml'}: {key}")


def test_what_may_leave_has_no_metrics_where_none_may_be_said() -> None:
    assert "Evaluate" in Limits().allowed_replies()
    for silent in (Limits(metrics=0), Limits(metrics_in_all=0)):
        assert set(Limits().allowed_replies()) - set(silent.allowed_replies()) == {"Evaluate"}


def test_limits_that_are_laxer_than_usual_are_warned_of(folder: Path) -> None:
    assert try_out(spec_of(folder)).warnings == ()
    text = "[limits]\noverlap = true\nalpha = 0.0\nmetrics_in_all = 1000\n"
    found = try_out(spec_of(folder, FILLED + text)).warnings
    assert [warning.partition(": ")[0] for warning in found] == [
        "limits.overlap is true, and usually false",
        "limits.alpha is 0.0, and usually 0.1",
        "limits.metrics_in_all is 1000, and usually 10",
    ]
    strict = Limits(alpha=0.5, quantile=(0.1, 0.4), metrics=0, metrics_in_all=0, digits=1)
    assert lax_limits(strict) == ()
    assert len(lax_limits(EVERYTHING)) == 9


def test_a_model_of_ones_own_file(folder: Path) -> None:
    (folder / "own_trees.py").write_text(
        "from sklearn.tree import DecisionTreeClassifier\n"
        "def shallow(depth=1):\n    return DecisionTreeClassifier(max_depth=depth)\n"
    )
    text = FILLED.replace("decision-tree", "own_trees.py:shallow").replace("max_depth", "depth")
    spec = spec_of(folder, text)
    found = try_out(spec)
    assert (found.rows, found.model) == (64, f"{folder}/own_trees.py:shallow")
    with pytest.raises(InvalidInput, match=r"model.*there is no file"):
        spec_of(folder, text.replace("own_trees.py", "no_trees.py")).party()
    (folder / "json.py").write_text("")
    with pytest.raises(InvalidInput, match="a module is called 'json' already"):
        spec_of(folder, text.replace("own_trees.py", "json.py")).party()
    (folder / "broken_trees.py").write_text("1 / 0")
    with pytest.raises(InvalidInput, match="cannot be imported: ZeroDivisionError"):
        spec_of(folder, text.replace("own_trees.py", "broken_trees.py")).party()


def test_a_roster_holds_the_keys_of_the_others(folder: Path) -> None:
    lines = {name: make_key(folder / f"{name}.key", name) for name in ("north", "east", "south")}
    table = "\n".join(f'{name} = "{line}"' for name, line in lines.items())
    own = '[coordinator]\naddress = "127.0.0.1:1"\nkey = "north.key"\n'
    party = spec_of(folder, f"{FILLED}{own}[roster]\n{table}").party()
    assert party.rules.keys.roster == {name: lines[name] for name in ("east", "south")}
    assert party.rules.keys.identity == (folder / "north.key").read_bytes()
    for wrong, why in (
        (table, "and there is none"),
        (f'{own}[roster]\neast = "{lines["east"]}"', "names 1 others"),
        (f'{own}[roster]\neast = "east"\nsouth = "{lines["south"]}"', "no public key of a party"),
    ):
        text = wrong if wrong.startswith(own) else f"[roster]\n{wrong}"
        with pytest.raises(InvalidInput, match=why):
            spec_of(folder, FILLED + text).party()


def test_a_trial_says_what_is_there_and_keeps_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    found = try_out(spec_of(folder))
    assert (found.rows, found.test_rows, found.public_rows) == (64, 16, 30)
    assert sum(found.classes.values()) == 64
    assert found.answer_bytes == 30 * 2 * 4
    assert "PredictPublic" in found.leaves and "SendParameters" not in found.leaves
    assert set(found.seconds) == {
        "train",
        "predict",
        "learn from the teacher",
        "read and write the state",
    }
    assert sorted(folder.iterdir()) == sorted([*before, folder / "party.toml"])


def test_a_trial_of_a_regression_without_public_rows(folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)).astype(np.float32)
    np.savez(folder / "values.npz", X=X, y=X.sum(axis=1))
    text = '[data]\npath = "values.npz"\ntest = "values.npz"\n[model]\nname = "ridge"\n'
    found = try_out(spec_of(folder, f'name = "x"\n{text}[limits]\npublic_bytes = 0\n'))
    assert (found.rows, found.test_rows, found.public_rows) == (500, 500, 0)
    assert (found.public_from, found.public) == ("none", "")
    assert set(found.seconds) == {"train", "read and write the state"}


def test_a_trial_where_the_coordinator_sends_the_public_rows(folder: Path) -> None:
    """Own rows take their place, so that a model that cannot answer is found before it joins."""
    text = FILLED.replace('public = "public.csv"', "").replace(
        "[model]", 'columns = ["age", "pressure"]\n[model]'
    )
    found = try_out(spec_of(folder, text))
    assert (found.public_from, found.public_rows, found.public) == ("coordinator", 0, "")
    assert (found.public_bytes, found.kept) == (1 << 30, ())
    assert {"train", "predict", "learn from the teacher"} < set(found.seconds)
    assert not (folder / "state").exists()
    (folder / "wrong_answers.py").write_text(
        "from sklearn.tree import DecisionTreeClassifier\n"
        "class Wrong(DecisionTreeClassifier):\n"
        "    def predict_proba(self, X):\n        raise ValueError('no disk')\n"
    )
    with pytest.raises(InvalidInput, match="the model cannot predict this: no disk"):
        try_out(spec_of(folder, text.replace("decision-tree", "wrong_answers.py:Wrong")))


def test_a_trial_fails_where_the_party_would(folder: Path) -> None:
    (folder / "public.csv").write_text("age,pressure\n" + "5000,9\n" * 3)
    (folder / "wrong_models.py").write_text(
        "import numpy as np\nfrom sklearn.tree import DecisionTreeClassifier\n"
        "class Wrong(DecisionTreeClassifier):\n"
        "    def predict_proba(self, X):\n        raise ValueError('no disk')\n"
    )
    text = FILLED.replace("decision-tree", "wrong_models.py:Wrong")
    with pytest.raises(
        InvalidInput, match="dry run: Wrong: the model cannot predict this: no disk"
    ):
        try_out(spec_of(folder, text))
    with pytest.raises(RunFailed, match="its state cannot be written there"):
        try_out(spec_of(folder, 'state = "north.csv/state"\n' + FILLED))


def test_a_folder_in_the_place_of_a_file(folder: Path) -> None:
    (folder / "other.csv").mkdir()
    for file in ("public.csv", "north.csv"):
        with pytest.raises(InvalidInput, match="this is a folder, and a file is wanted"):
            try_out(spec_of(folder, FILLED.replace(file, "other.csv")))
    with pytest.raises(InvalidInput, match="this is a file, and state is a folder"):
        try_out(spec_of(folder, 'state = "north.csv"\n' + FILLED))
    with pytest.raises(InvalidInput, match=r"this is a folder.*\n.*party\.toml"):
        read_party(folder)


def test_the_template_works_when_it_is_filled_in(folder: Path) -> None:
    path = write_template(folder / "new")
    with pytest.raises(InvalidInput, match="there is something already"):
        write_template(folder / "new")
    with pytest.raises(InvalidInput, match="there is no such file"):
        read_party(path).party()
    text = path.read_text()
    for was, now in (
        ("public.csv", "../public.csv"),
        ("data.csv", "../north.csv"),
        ("label", "ill"),
    ):
        text = text.replace(f'"{was}"', f'"{now}"')
    path.write_text(text)
    found = try_out(read_party(path))
    assert (found.name, found.rows, found.rounds) == ("new", 64, 200)


def test_every_key_of_the_template_is_known(folder: Path) -> None:
    """Also those that are commented out."""
    text = write_template(folder).read_text()
    lines: list[Any] = []
    for line in text.splitlines():
        opened = line.removeprefix("# ")
        section = opened.startswith(("[data.", "[limits.", "[coordinator]", "[roster]"))
        lines.append(opened if "=" in opened or section else line)
    (folder / "party.toml").write_text("\n".join(lines))
    spec = read_party(folder / "party.toml")
    assert spec.limits.federation == "heart" and spec.model.sends_rows
    assert spec.limits.density_ratios == Coarseness()
    assert spec.coordinator.key == folder / "party.key"
    assert spec.data.aliases == {"1": "ill"} and spec.data.columns == ("age", "pressure")


FROZEN = """
name = "vendor"
public = "public.csv"
[model]
name = "frozen"
answer = "vendor_rule.py:answer"
classes = ["yes", "no"]
[limits]
answers = 40
"""

RULE = """
import numpy as np

def answer(X):
    return np.tile([0.3, 0.7], (len(X), 1))
"""


def test_a_frozen_model_needs_no_rows(folder: Path) -> None:
    """Its 30 answers are kept beside the state, so that neither a trial nor a run asks again."""
    (folder / "vendor_rule.py").write_text(RULE)
    spec = spec_of(folder, FROZEN)
    found = try_out(spec)
    assert (found.rows, found.test_rows, found.public_rows) == (0, 0, 30)
    assert "DensityRatios" not in found.leaves.values()
    assert len((folder / "state-answers.jsonl").read_text().splitlines()) == 30
    assert spec.party().rows.classes == ("no", "yes")
    tested = FROZEN.replace("[model]", '[data]\ntarget = "ill"\ntest = "north.csv"\n[model]')
    assert try_out(spec_of(folder, tested.replace("= 40", "= 110"))).test_rows == 80
    with spec.site() as site:
        assert site.limits.density_ratios is not None  # it may say that it has no rows to compare


def test_answers_beyond_the_limit_are_refused_before_any_is_asked(folder: Path) -> None:
    (folder / "other_rule.py").write_text(RULE)
    with pytest.raises(InvalidInput, match="30 rows have no answer yet, and 29 of its 29"):
        try_out(
            spec_of(folder, FROZEN.replace("= 40", "= 29").replace("vendor_rule", "other_rule"))
        )


def test_a_site_without_labels_learns_only(folder: Path) -> None:
    lines = (folder / "north.csv").read_text().splitlines()
    unlabelled = [line.rpartition(",")[0] for line in lines]
    (folder / "unlabelled.csv").write_text("\n".join(unlabelled) + "\n")
    text = FILLED.replace('path = "north.csv"', 'path = "unlabelled.csv"\nlabels = false')
    spec = spec_of(folder, text.replace('target = "ill"\n', ""))
    party = spec.party()
    assert (party.rows.labelled, party.rows.test, party.rows.X.shape) == (False, None, (80, 2))
    assert set(try_out(spec).seconds) == {"learn from the teacher", "read and write the state"}
    tested = text.replace('target = "ill"', 'target = "ill"\ntest = "north.csv"')
    found = try_out(spec_of(folder, tested))
    assert (found.rows, found.test_rows, found.classes) == (80, 80, {})


def test_rows_are_needed_by_all_others(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="a frozen model alone needs none"):
        spec_of(folder, FILLED.replace('path = "north.csv"\n', ""))
