"""A party with a budget of privacy, at its own machine: what leaves, once, and what does not."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.checks import classifiers
from consilience.core.checks.example_parties import regressors
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.numerics.outcomes import Classes
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join, TakePublic
from consilience.core.tasks.outgoing import UNSAID
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.tasks.scores import CountRows
from consilience.lab.cli.main import app
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.privacy.accounting.ledger import FOLDER, entries
from consilience.privacy.accounting.party import protect
from consilience.privacy.accounting.privacy_of import arrived_by, declare_units, privacy_of
from consilience.privacy.class_sums.party import sums_of
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.class_sums.tasks import SumClasses, public_basis
from consilience.sites.party import AUDIT, Limits, PartySite, read_log, read_party
from consilience.sites.party.privacy_limits import spending
from consilience.sites.transport.flower.client_app import site_app
from consilience.sites.transport.flower.network import FlowerNetwork
from helpers.flower_grid import QUICK, Context, Grid, Message, RecordDict, in_a_run
from helpers.party_sites import agreement, ask, one_party, without_rows
from helpers.stub_models import Share


def cli(*words: object, status: int = 0) -> str:
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == status, found.output
    return found.output


LIMITS = Limits(epsilon=3.0, delta=1e-3)


def declared() -> Party:
    party = one_party()
    party.rows.declared = party.rows.classes
    return party


def asked(round: int = 1, kernel: str = "directions") -> SumClasses:
    basis = public_basis(declared().public, kernel, 2)
    return SumClasses.of(basis, round=round)


def opened(home: Path) -> PartySite:
    return PartySite(declared, home, limits=LIMITS)


def test_one_release_whatever_is_started_anew(tmp_path: Path) -> None:
    """The same bytes in another round, after joining again with another seed, and in another federation."""
    said = []
    for seed, federation in ((0, "heart"), (0, "heart"), (7, "heart"), (0, "lung")):
        with opened(tmp_path) as site:
            assert isinstance(
                ask(site, Join(agreement=agreement(seed=seed)), federation=federation), Receipt
            )
        with opened(tmp_path) as site:
            said.append(ask(site, asked(), federation=federation))
            said.append(ask(site, asked(2), federation=federation))
    assert {one.values.tobytes() for one in said} == {said[0].values.tobytes()}
    assert len(entries(tmp_path / FOLDER)) == 1
    with opened(tmp_path) as site:
        failure = ask(site, asked(3, "kernel"), federation="lung")
    assert failure.code == "budget" and "would have spent" in failure.reason


def test_rows_that_come_later_are_charged_alone(tmp_path: Path) -> None:
    """The first rows' release stays as it is, and theirs is added; where a patient is the unit both count."""

    def site(arrivals: int, arrived, home: str = "rows", **more) -> PartySite:
        limits = Limits(epsilon=3.0, delta=1e-3, arrivals=arrivals, **more)
        make = lambda: grown(arrived, "unit" in more)  # noqa: E731
        return PartySite(
            make, tmp_path / home, limits=limits, noise=lambda: np.random.default_rng(7)
        )

    def grown(arrived, units: bool) -> Party:
        party = declared()
        rows = np.arange(len(party.rows.X))
        declare_units(party, rows // 2 if units else None, rows % 3 // 2 if arrived else None)
        return party

    def sums(site: PartySite):
        with site:
            ask(site, Join(agreement=agreement()))
            return ask(site, asked())

    first, again, both = (sums(site(n, True)) for n in (1, 1, 2))
    lines = entries(tmp_path / "rows" / FOLDER)
    assert [line["arrival"] for line in lines] == [0, 1]
    np.testing.assert_array_equal(first.values, again.values)
    party = grown(True, False)
    party.join(agreement())
    old, new = (sums_of(party, asked().basis, arrival=arrival) for arrival in (0, 1))
    np.testing.assert_array_equal(
        both.values - 2 * first.values, new - old
    )  # the noise is the same
    assert both.sigma == pytest.approx(first.sigma * 2**0.5) and both.epsilon == 3.0
    there = Limits(epsilon=3.0, delta=1e-3, arrivals=2)
    shown = spending(tmp_path / "rows", there)
    assert shown["spent"].startswith("epsilon 3,")
    assert [one["kind"] for one in shown["releases"]] == ["class sums", "class sums, arrival 1"]
    patients = {"unit": "patient", "epsilon_each": 2.0}
    assert not isinstance(sums(site(1, True, "patients", **patients)), Failure)
    failure = sums(site(2, True, "patients", **patients))
    assert failure.code == "budget" and "would have spent" in failure.reason
    with pytest.raises(InvalidInput, match="not where one is replaced"):
        Limits(arrivals=2, epsilon=3.0, adjacency="replace").budget  # noqa: B018
    assert isinstance(sums(site(2, False, "none")), Failure)


def test_what_has_no_cost_does_not_leave(tmp_path: Path) -> None:
    with opened(tmp_path) as site:
        described = ask(site, Describe())
        assert described.classes == declared().rows.classes and described.metrics == 0
        ask(site, Join(agreement=agreement()))
        for task in (PredictPublic(round=1), CountRows(round=1), Evaluate(round=1)):
            assert "states no privacy cost" in ask(site, task).reason
    with PartySite(one_party, tmp_path / "free", limits=Limits()) as site:
        ask(site, Join(agreement=agreement()))
        assert "it has no privacy budget" in ask(site, asked()).reason


def test_why_it_fails_is_said_in_its_own_log_alone(tmp_path: Path) -> None:
    def broken() -> Party:
        raise InvalidInput("row 17 has no label")

    with PartySite(broken, tmp_path, limits=LIMITS) as site:
        failure = ask(site, Describe())
    assert isinstance(failure, Failure) and (failure.reason, failure.kind) == (UNSAID, "failed")
    assert "row 17" in read_log(tmp_path / AUDIT).entries[-1]["detail"]


def test_that_delta_is_too_large_for_its_rows_is_said_in_its_own_log_alone(tmp_path: Path) -> None:
    """Else a coordinator that sees δ would hear that there are more rows than 1 / (10 δ)."""
    limits = Limits(epsilon=3.0, delta=0.02)
    with PartySite(declared, tmp_path, limits=limits) as site:
        assert (failure := ask(site, Describe())).reason == UNSAID and not failure.mend
    assert "permits publishing one of them" in read_log(tmp_path / AUDIT).entries[-1]["detail"]


def test_a_ledger_that_is_set_back_is_found_out(tmp_path: Path) -> None:
    with opened(tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, asked())
    shutil.copytree(tmp_path / FOLDER, tmp_path / "copy")
    (tmp_path / FOLDER / "ledger.jsonl").unlink()
    with pytest.raises(RunFailed, match="cut or set back"):
        opened(tmp_path)
    with pytest.raises(RunFailed, match="cut or set back"):
        spending(tmp_path, LIMITS)
    lines = (tmp_path / "copy" / "ledger.jsonl").read_text()
    (tmp_path / FOLDER / "ledger.jsonl").write_text(lines.replace('"mu": 0.', '"mu": 0.0'))
    with pytest.raises(RunFailed, match="the values of a release are gone"):
        spending(tmp_path, LIMITS)
    shutil.rmtree(tmp_path / FOLDER)
    with pytest.raises(RunFailed, match="state knows a release"):
        spending(tmp_path, LIMITS)
    with opened(tmp_path) as site:  # its state remembers
        assert isinstance(ask(site, asked(2)), Failure)
        assert "cut or set back" in read_log(tmp_path / AUDIT).entries[-1]["detail"]
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / "copy").rename(tmp_path / FOLDER)
    with opened(tmp_path) as site:
        assert not isinstance(ask(site, asked(2)), Failure)


def networks() -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with small networks."""
    nn = pytest.importorskip("torch").nn
    given, public = classifiers()
    recipe = {"distill_epochs": 1}
    return [
        Party(one.name, as_learner(nn.Linear(2, 3), recipe=recipe), one.rows.X, one.rows.y)
        for one in given
    ], public


@pytest.mark.parametrize(
    ("made", "protocol", "training"),
    [
        (classifiers, private_sums(rounds=2), None),
        (regressors, private_sums(rounds=2, bounds=(-9.0, 9.0)), None),
        (networks, ensemble_distillation(aggregate=avg(), rounds=2), {"rows": 40, "epochs": 1}),
    ],
    ids=["classes", "values", "training"],
)
def test_over_flower_the_same_bits_given_the_same_noise(
    made, protocol, training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sums two exchanges after joining, and one more for another round."""
    in_a_run(monkeypatch)
    more = {"overlap": True, "secret": False, "alpha": 0.0, "training": training}
    limits = Limits(**LIMITS.model_dump() | more)
    seven = lambda: np.random.default_rng(7)  # noqa: E731

    def members() -> list[Party]:
        parties, public = made()
        for party in parties:
            party.rows.declared = party.rows.classes
            party.hold_public(public)
        return parties

    def node(number: int):
        def run(message: Message) -> list[Message]:
            make = lambda: members()[number]  # noqa: E731
            home = tmp_path / str(number)
            app = site_app(lambda context: PartySite(make, home, limits=limits, noise=seven))
            return [app(message, Context(1, 7, {}, RecordDict(), {}))]

        return run

    here = members()
    for party in here:
        protect(party, limits.budget, noise=seven)
    public = here[0].public
    local = Federation(here, public=public, strict=False).rounds(protocol)
    grid = Grid(**{party.name: node(i) for i, party in enumerate(members())})
    network = FlowerNetwork(grid, nodes=len(here), waits=QUICK)
    over = federation_over(network, public, strict=False).rounds(protocol)
    for mine, theirs in zip(list(local)[1:], list(over)[1:], strict=True):
        assert mine.teacher.values.tobytes() == theirs.teacher.values.tobytes()
        assert training or "epsilon = 3" in theirs.teacher.notes[0]
    joining = 2
    if "sums" in protocol.name:
        assert len(grid.sent) / len(here) == joining + 4


PARTY = """\
name = "north"
public = "public.csv"
[data]
path = "rows.csv"
rows_are_independent = true
target = "ill"
classes = ["no", "yes"]
[model]
name = "logistic-regression"
[limits]
epsilon = 1.0
delta = 1e-3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'},{i // 3}"
        for i, (a, b) in enumerate(rng.normal(size=(60, 2)))
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,ill,patient", *rows]))
    public = [f"{a:.3f},{b:.3f}" for a, b in rng.normal(size=(40, 2))]
    (tmp_path / "public.csv").write_text("\n".join(["a,b", *public]))
    (tmp_path / "party.toml").write_text(PARTY)
    return tmp_path


def test_a_file_with_units_of_privacy(folder: Path) -> None:
    """All rows are its own: a share of them that is set aside would change whole with one row more."""
    file = folder / "party.toml"
    assert len(read_party(file).party().rows.X) == 60
    file.write_text(PARTY + 'unit = "patient"\n')
    party = read_party(file).party()
    assert np.bincount(privacy_of(party).rows.unit).tolist() == [3] * 20
    file.write_text(PARTY + 'arrival = "patient"\narrivals = 2\n')
    spec = read_party(file)
    spec.limits.bind(party := spec.party())
    assert (privacy_of(party).rows.arrived[:7].tolist(), arrived_by(party, None).sum()) == (
        [0, 0, 0, 1, 1, 1, 2],
        6,
    )
    file.write_text(PARTY + "arrivals = 2\n")
    spec = read_party(file)
    with pytest.raises(InvalidInput, match="counts 2 arrivals, and its rows say none"):
        spec.limits.bind(spec.party())
    file.write_text(PARTY + 'unit = "patients"\n')
    with pytest.raises(InvalidInput, match="no column 'patients'"):
        read_party(file).party()
    file.write_text(PARTY.replace("delta = 1e-3", "delta = 0.01"))
    spec = read_party(file)
    with pytest.raises(InvalidInput, match=r"delta is 0\.01 and there are 60 units"):
        spec.limits.bind(spec.party())


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ("epsilon = 0.0", "limits.epsilon: input should be greater than 0, not 0"),
        ("epsilon = -1", "limits.epsilon: input should be greater than 0"),
        ("epsilon = 1.0\ndelta = 1.0", "limits.delta: input should be less than 1"),
        (
            "epsilon = 1.0\ndelta = 0.02",
            "party.toml: party 'north', delta: delta is 0.02 and",
        ),
        ("epsilon = 1.0\nepsilon_each = 2.0", "limits: epsilon_each is 2, and epsilon 1"),
        (
            'unit = "patient"',
            "limits: epsilon_each, adjacency, unit and noise bound nothing without epsilon",
        ),
        ('noise = "shared"', "unit and noise bound nothing without epsilon"),
        (
            'epsilon = 1.0\nnoise = "shared"',
            "give the others' keys in [roster]: a coordinator could",
        ),
        ('epsilon = 1.0\nunit = "patients"', "Did you mean 'patient'"),
        ('epsilon = 1.0\nunit = "site"', "all its rows are of one unit of privacy"),
    ],
)
def test_bad_limits_are_named_by_a_check(folder: Path, limits: str, why: str) -> None:
    rows = (folder / "rows.csv").read_text().splitlines()
    lines = [f"{row},{'north' if i else 'site'}" for i, row in enumerate(rows)]
    (folder / "rows.csv").write_text("\n".join(lines))
    named = PARTY.replace('target = "ill"', 'target = "ill"\ncolumns = ["a", "b"]')
    (folder / "party.toml").write_text(named.replace("epsilon = 1.0\ndelta = 1e-3", limits))
    said = cli("party", "check", folder / "party.toml", status=2)
    assert why in " ".join(said.split()) and "party.toml: " in said


def test_the_budget_is_shown(folder: Path) -> None:
    file = folder / "party.toml"
    assert "epsilon 1, delta 0.001, add-remove of one row" in cli("party", "budget", file)
    public = read_party(file).party().public
    with read_party(file).site() as site:
        agreed = replace(agreement(), classes=("no", "yes"), outputs=2, public=public.key, rows=40)
        assert isinstance(ask(site, Join(agreement=agreed)), Receipt)
        task = SumClasses.of(public_basis(public, "directions", 2), round=1)
        assert ask(site, task).epsilon == 1.0
    shown = _shown(file, folder / "budget.json")
    assert shown["spent"].startswith("epsilon 1,") and shown["releases"][0]["kind"] == "class sums"
    cli("party", "budget", file, "--after", shown["last_line"])
    shutil.rmtree(folder / "state" / FOLDER)
    for words in (
        ["budget", file, "--after", shown["last_line"]],
        ["budget", file],
        ["check", file],
    ):
        assert "cut or set back" in cli("party", *words, status=1)


def _shown(file: Path, to: Path) -> dict:
    cli("party", "budget", file, "--json", to)
    return json.loads(to.read_text())


def test_a_plan_says_what_noise_drowns(folder: Path) -> None:
    """Forty rows of two columns, one party of ten: little is left of them at ε = 0.1, most at ε = 8."""

    def planned(epsilon: float) -> dict:
        to = folder / "plan.json"
        words = ("--parties", 2, "--rows", 30, "--classes", 2, "--json", to, "--delta", 1e-3)
        cli("privacy", "plan", folder / "public.csv", "--epsilon", epsilon, *words)
        return json.loads(to.read_text())

    little, much = planned(0.1), planned(8.0)
    assert little["sigma"] > 10 * much["sigma"] and little["noise_to_signal"] > 1
    assert little["right_with_noise"] < much["right_with_noise"] <= much["right_without_noise"]
    for words, why in (
        (("--classes", 30), "public rows for 30 classes"),
        (("--classes", 2, "--delta", 0.5), "Give 1 / 90 or less"),
    ):
        asked = (folder / "public.csv", "--epsilon", 1, "--parties", 2, "--rows", 9, *words)
        assert why in cli("privacy", "plan", *asked, status=2)


def test_no_public_rows_are_taken_from_a_coordinator(tmp_path: Path, folder: Path) -> None:
    """Whether its rows can be read by columns that were sent would be an answer about them."""
    with PartySite(without_rows, tmp_path / "site", limits=LIMITS) as site:
        failure = ask(site, TakePublic.of(declared().public))
    assert (failure.kind, "takes no public rows" in failure.reason) == ("refused", True)
    free = LIMITS.model_copy(update={"public_bytes": None})
    assert free.max_public_bytes == 0 and Limits().max_public_bytes > 0
    (folder / "party.toml").write_text(PARTY.replace('public = "public.csv"\n', ""))
    with pytest.raises(InvalidInput, match=r"limits\.epsilon name a file of public rows"):
        read_party(folder / "party.toml")


def test_what_one_row_holds_changes_no_byte_of_its_description() -> None:
    """A column that is empty but for one row is a column of the rows, and without that row it is none."""

    def described(first: float, budget: Budget | None) -> bytes:
        rows = {"a": np.arange(9.0), "b": np.arange(9.0) ** 2, "rare": [first] + 8 * [np.nan]}
        y = np.array(["no", "yes", "no"] * 3)
        party = Party("p", "decision-tree", pd.DataFrame(rows), y, outcome=Classes(("no", "yes")))
        protect(party, budget)
        return encode([Describe().run(party)])

    assert described(7.0, None) != described(np.nan, None)
    assert described(7.0, LIMITS.budget) == described(np.nan, LIMITS.budget)


def test_how_many_rows_there_are_decides_nothing_when_it_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory for own rows that is not there, and no rows to hold out: both are said to nobody."""
    model = Share()
    model.abilities = replace(model.abilities, validation=True)
    rows, names = np.array([[0.0], [1.0]]), np.array(["no", "yes"])
    party = Party("p", model, rows, names, calibration=0.2, outcome=Classes(("no", "yes")))
    party.hold_public(Public(np.arange(9.0)[:, None]))
    agreed = replace(agreement(), classes=("no", "yes"), outputs=2, public=party.public.key, rows=9)
    with pytest.raises(InvalidInput, match="chooses by calibration rows"):
        party.join(agreed)
    protect(party, LIMITS.budget)
    enough = 8 * 3 * 9 * 2
    monkeypatch.setattr("consilience.core.validation.memory._LITTLE", 0)
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: enough)
    party.rows.X, party.rows.y = np.zeros((99, 1)), np.array(["no"] * 99)
    party.join(agreed)
    assert "of memory" in party.outbox.withheld and not len(party.trainer.rows.train[0])
    monkeypatch.setattr("consilience.core.validation.memory.spare_memory", lambda: enough - 1)
    with pytest.raises(InvalidInput, match="of memory"):
        party.join(agreed)


def test_what_left_before_there_was_a_budget_is_counted(tmp_path: Path) -> None:
    with PartySite(declared, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=1), CountRows(round=1))
    with opened(tmp_path) as site:
        ask(site, asked(2))
        assert isinstance(ask(site, CountRows(round=3)), Failure)
    assert spending(tmp_path, LIMITS)["answers_without_budget"] == {"CountRows": 1}


@pytest.mark.parametrize("each", [1.0, None])
def test_a_kept_reply_says_what_holds_today(tmp_path: Path, each: float | None) -> None:
    """A larger budget buys no other noise for what left already; a smaller one is spent already."""
    said = []
    for round, epsilon in enumerate((1.0, 4.0), 1):
        limits = Limits(epsilon=epsilon, delta=1e-3, epsilon_each=each)
        with PartySite(declared, tmp_path, limits=limits) as site:
            if not said:
                ask(site, Join(agreement=agreement()))
            said += [ask(site, asked()), ask(site, asked(round))]
    assert [one.epsilon for one in said] == [1.0, 1.0, 4.0, 4.0]
    assert len({one.values.tobytes() for one in said}) == 1
    assert spending(tmp_path, limits)["spent"].startswith("epsilon 1,")
    with PartySite(declared, tmp_path, limits=Limits(epsilon=0.5, delta=1e-3)) as site:
        assert "would have spent" in ask(site, asked()).reason
    statuses = [one["status"] for one in read_log(tmp_path / AUDIT).entries[-3:]]
    assert statuses == ["repeated", "ok", "refused"]


def test_another_set_of_public_rows_is_another_release(tmp_path: Path) -> None:
    """And the coordinator of another federation, who brings it, gets none where all is spent."""
    with opened(tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, asked())

    def elsewhere() -> Party:
        party = declared()
        party.hold_public(Public(party.public.X[::-1]))
        return party

    public = elsewhere().public
    with PartySite(elsewhere, tmp_path, limits=LIMITS) as site:
        agreed = replace(agreement(), public=public.key)
        assert isinstance(ask(site, Join(agreement=agreed), federation="lung"), Receipt)
        task = SumClasses.of(public_basis(public, "directions", 2), round=1)
        assert ask(site, task, federation="lung").code == "budget"
    assert len(entries(tmp_path / FOLDER)) == 1


def test_a_coordinator_that_asks_for_another_epsilon_is_refused(tmp_path: Path) -> None:
    """Class sums have no such number to ask by; certainties do, and it is held against the budget."""
    assert not {"epsilon", "delta", "sigma"} & {one.name for one in fields(SumClasses)}
    limits = Limits(epsilon=0.5, delta=1e-3, adjacency="replace")
    with PartySite(declared, tmp_path, limits=limits) as site:
        ask(site, Join(agreement=agreement()))
        task = ScoreCertainty(round=1, regularization=0.1, epsilon=0.9, delta=1e-5)
        failure = ask(site, task)
    assert (failure.kind, failure.code) == ("refused", "budget")
    assert "limits.epsilon" in failure.reason and not entries(tmp_path / FOLDER)
