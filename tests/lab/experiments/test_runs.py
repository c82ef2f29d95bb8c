"""A configuration gives the same numbers wherever its parties live, and says what it will do first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import __version__
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import FORMAT
from consilience.core.party.party import Party
from consilience.lab.experiments import (
    Ledger,
    SimulatedParties,
    Spec,
    gather,
    read_spec,
    resume,
    run,
    start,
    stored_spec,
)
from consilience.lab.report.reading import read_results
from helpers.command_line import CONFIG
from helpers.configurations import spec_with

MIXED = """
name = "mixed"
methods = ["local", "avg", "uwa", "class-holders", "true-labels", "central",
  { aggregate = "suwa", temperature = 0.3 }]
[data]
name = "digits"
public = 150
test_rows = 100
[partition]
name = "classes"
parties = 4
per_party = 4
[protocol]
rounds = 3
participation = 3
consensus = { name = "damped", exponent = 0.5 }
[[models]]
name = "logistic-regression"
[[models]]
name = "mlp"
hidden = [8]
recipe = { first_epochs = 2, epochs = 1, distill_epochs = 1 }
[[models]]
name = "random-forest"
n_estimators = 5
"""
NUMBERS = {
    "metrics": "method, seed, round, party, name, value",
    "trust": "method, seed, round, party, class, weight",
    "teachers": "*",
    "rounds": "method, seed, round, teacher_accuracy",
    "deliveries": "method, seed, round, party, tasks, status, left, bytes_down, bytes_up, detail",
    "holdings": "*",
}


def numbers(folder: Path, methods: Collection[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """All that a run computed, as its ledger has it; of some methods only, if they are named."""
    ledger = Ledger(folder / "ledger.sqlite")
    try:
        found = {t: ledger.read(f"SELECT {c} FROM {t}") for t, c in NUMBERS.items()}
    finally:
        ledger.close()
    return {
        table: sorted(
            (row for row in rows if not methods or table == "holdings" or row[0] in methods),
            key=repr,
        )
        for table, rows in found.items()
    }


def models(folder: Path, methods: Collection[str]) -> dict[str, bytes]:
    """Every kept torch model, byte for byte (skops files carry the time they were written at)."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for method in methods
        for file in folder.glob(f"models/{method}/**/*.safetensors")
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "local"
    start(spec_with(MIXED), folder)
    return folder


@pytest.mark.parametrize(
    ("network", "methods"),
    [
        ({"kind": "wire"}, ["local", "avg", "uwa", "class-holders", "central"]),
        ({"kind": "processes", "processes": 1}, ["uwa"]),
    ],
    ids=["wire", "processes"],
)
def test_the_same_bits_wherever_parties_live(
    network: dict[str, Any], methods: list[str], local: Path, tmp_path: Path
) -> None:
    start(spec_with(MIXED, network=network, methods=methods), tmp_path / "run")
    assert numbers(tmp_path / "run") == numbers(local, methods)
    assert models(tmp_path / "run", methods) == models(local, methods) != {}


def test_every_arm_did_what_it_says(local: Path) -> None:
    """Local and central exchange nothing, central knows most, three of four parties take part a round."""
    found = numbers(local)
    final = {
        method: np.mean(
            [
                v
                for m, _, r, _, name, v in found["metrics"]
                if (m, r, name) == (method, 3, "accuracy")
            ]
        )
        for method in ("local", "class-holders", "true-labels", "central")
    }
    assert final["local"] < final["class-holders"] < final["central"]
    assert final["local"] < final["true-labels"]
    predicted = [row for row in found["deliveries"] if "PredictPublic" in row[4]]
    assert not {row[0] for row in predicted} & {"local", "central"}
    assert len([row for row in predicted if row[0] == "avg" and row[2] == 2]) == 3


def test_what_teachers_err_by_is_recorded(local: Path) -> None:
    """Of every round with a weighted mean: the parts add up, and AVG of three has Σ w² = 1/3."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for method, seed, round, part, value in numbers(local)["teachers"]:
        found.setdefault((method, seed, round), {})[part] = value
    assert {method for method, _, _ in found} >= {"avg", "uwa", "class-holders"}
    for (method, _, round), parts in found.items():
        total = sum(parts[name] for name in ("bias", "variance", "correlation", "cross"))
        assert parts["mse"] == pytest.approx(total) and round > 0
        if method == "avg":
            assert parts["concentration"] == pytest.approx(1 / 3)
    mean = {
        m: np.mean([p["bias"] for k, p in found.items() if k[0] == m])
        for m in ("avg", "class-holders")
    }
    assert mean["class-holders"] < mean["avg"]


def test_a_run_of_another_format_is_refused_with_both_numbers(local: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(local, tmp_path / "old"))
    stored = json.loads((old / "config.json").read_text())
    assert (stored.pop("format"), stored["consilience"]) == (FORMAT, __version__)
    for number, said in (({}, "missing"), ({"format": FORMAT + 1}, FORMAT + 1)):
        (old / "config.json").write_text(json.dumps({**stored, **number}))
        what = f"its format number is {said}, and this version of consilience reads format {FORMAT}"
        for use in (resume, read_results):
            with pytest.raises(RunFailed, match=what) as refused:
                use(old)
            assert "in the revision that wrote it; or run its conf" in str(refused.value.mend)


def test_the_folder_repeats_the_run(local: Path) -> None:
    assert stored_spec(local) == spec_with(MIXED)


def test_seeds_change_the_split_and_nothing_else_does() -> None:
    spec = spec_with(CONFIG)
    one, again, other = gather(spec, 0), gather(spec, 0), gather(spec, 1)
    assert one.public.key == again.public.key != other.public.key
    assert all(np.array_equal(a, b) for a, b in zip(one.rows, again.rows, strict=True))
    private = np.concatenate(one.rows)
    assert len(np.unique(private)) == len(private)
    public = {row.tobytes() for row in one.public.X}
    distinct = {row.tobytes() for row in one.dataset.X[private]}
    assert not public & distinct


def test_the_first_seed_is_gathered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearsed last, it is what the run begins with; the others are gathered again when they are run."""
    gathered = []

    def counted(spec: Spec, seed: int, **options: Any) -> SimulatedParties:
        gathered.append(seed)
        return gather(spec, seed, **options)

    monkeypatch.setattr(run, "gather", counted)
    start(spec_with(CONFIG, methods=["avg"], seeds=[4, 2]), tmp_path / "run")
    assert gathered == [2, 4, 2]


def test_the_first_parties_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearsed, asked what they know of the public rows, trained by the first method: the same ones."""
    made, maker = [], SimulatedParties.maker

    def counted(setup: SimulatedParties, **options: Any) -> Callable[[str], Party]:
        of_name = maker(setup, **options)

        def one(name: str) -> Party:
            made.append((name, options.get("pooled", False)))
            return of_name(name)

        return one

    monkeypatch.setattr(SimulatedParties, "maker", counted)
    spec = spec_with(CONFIG, methods=["avg", "uwa", "central"])
    start(spec, tmp_path / "run")
    names = gather(spec, spec.seed_list[0]).names
    assert sorted(made) == sorted(
        [(name, pooled) for name in names for pooled in (False, False, True)]
    )


def test_hospitals_have_own_rows_among_everyones_tests(tmp_path: Path) -> None:
    table = "a,place,y\n" + "\n".join(f"{i},{'ns'[i % 2]},{i % 4 // 2}" for i in range(80))
    path = tmp_path / "places.csv"
    path.write_text(table)
    spec = spec_with(
        CONFIG.replace('methods = ["local", "avg", "uwa", "central"]', ""),
        data={"name": "csv", "path": str(path), "target": "y", "group": "place", "public": 0.1},
        partition={"name": "group"},
    )
    cohort = gather(spec, 0)
    assert cohort.names == ("n", "s")
    even, odd = cohort.parties()
    assert even.rows.test is not None and odd.rows.test is not None
    assert np.array_equal(even.rows.own == 1, even.rows.test[0][:, 0] % 2 == 0)
    assert np.array_equal(odd.rows.own, 1 - even.rows.own)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": -1}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"methods": []}, "no methods"),
        ({"methods": ["avg", "avg"]}, "two methods"),
        ({"methods": ["uwaa"]}, "Did you mean 'uwa'"),
        ({"methods": ["oracle"]}, "It is called 'class-holders' here"),
        ({"methods": [{"aggregate": "suwa", "temprature": 1}]}, "Did you mean 'temperature'"),
        ({"methods": [{"aggregate": "local", "temperature": 1}]}, "unknown option"),
        ({"models": [{"name": "random-forrest"}]}, "Did you mean 'random-forest'"),
        ({"models": [{"name": "knn", "neighbors": 3}]}, "Did you mean 'n_neighbors'"),
        ({"protocol__round": 3}, "round"),
        ({"protocol__name": "ensemble_destillation"}, "Did you mean 'ensemble_distillation'"),
        ({"protocol__consensus": "damp"}, "Did you mean 'damped'"),
        ({"partition__name": "clases"}, "Did you mean 'classes'"),
        ({"network__kind": "flwr"}, "network.kind"),
        ({"calibration": 1.0}, "calibration"),
    ],
)
def test_a_configuration_is_checked_first(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        spec_with(CONFIG, **change).check_models()


def test_a_short_configuration_says_as_much(tmp_path: Path) -> None:
    data = '[data]\nname = "csv"\npath = "t.csv"\ntarget = "y"\ngroup = "site"\npublic = 0.2\n'
    (tmp_path / "own rows.toml").write_text('models = ["knn", {name = "svc", C = 2}]\n' + data)
    spec = read_spec(tmp_path / "own rows.toml")
    assert (spec.name, spec.partition.name) == ("own-rows", "group")
    assert [(model.name, model.options) for model in spec.models] == [
        ("knn", {}),
        ("svc", {"C": 2}),
    ]
    by_party = read_spec(tmp_path / "own rows.toml", ['models={north="knn", "*"="svc"}'])
    assert [(model.name, model.party) for model in by_party.models] == [
        ("knn", "north"),
        ("svc", None),
    ]
    text = 'protocol = "ensemble_distillation"\n' + (tmp_path / "own rows.toml").read_text()
    (tmp_path / "own rows.toml").write_text(text)
    more = read_spec(
        tmp_path / "own rows.toml", ["protocol.rounds=2", "models.0.n_neighbors=3"]
    )  # as --quick says
    assert (more.protocol.rounds, more.models[0].options) == (2, {"n_neighbors": 3})


def test_a_party_that_cannot_write_its_state_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is whole without it, none is noted, and the books say why; the run goes on."""
    save = Party.save

    def lose(party: Party, label: str, *, keep: str) -> None:
        if party.name == "party-2":
            raise RunFailed("its disk is gone")
        save(party, label, keep=keep)

    monkeypatch.setattr(Party, "save", lose)
    start(spec_with(CONFIG, methods=["avg"], checkpoint_seconds=0), tmp_path / "run")
    ledger = Ledger(tmp_path / "run" / "ledger.sqlite")
    assert ledger.read("SELECT status FROM method_runs") == [("done",)]
    assert ledger.read("SELECT max(checkpoint) FROM rounds") == [(0,)]
    assert ("party-2", "its disk is gone") in ledger.read(
        "SELECT party, detail FROM deliveries WHERE tasks = 'Checkpoint'"
    )
    ledger.close()
