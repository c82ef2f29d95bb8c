"""The reproduction of Afonin & Karimireddy 2022: known draws, who holds what, and claims by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.federation.federation import Federation
from consilience.methods.kernel_federations.agents import KernelAgents
from consilience.methods.model_exchange.protocols import alternating_distillation
from consilience.methods.model_exchange.signed_ensemble import SignedEnsemble
from consilience_papers.afonin2022 import any_models, curves, problems, trials
from consilience_papers.afonin2022.curves import Curve
from consilience_papers.afonin2022.problems import SIZES, Setting
from consilience_papers.comparisons import differs
from consilience_papers.exhibit import Exhibit
from consilience_papers.papers import PAPERS
from consilience_papers.study import Study

QUICK = SIZES["mnist"]["quick"]


# --- kernel agents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ordered", "alone", "averaged"), [(False, 0.09997, 0.17451), (True, 0.12793, 0.20316)]
)
def test_the_first_draw_of_figure_3(ordered: bool, alone: float, averaged: float) -> None:
    """c = 1e-3. Errors of agent 1's model over the rows of both; of EKD after 10, 50 and 250 models."""
    found = trials.toy(regularization=1e-3, ordered=ordered, models=250, repetition=0)
    assert found["central"] == pytest.approx(0.01428, abs=5e-6)
    assert found["zero"] == pytest.approx(0.870, abs=5e-4)
    assert found["alone"][0] == pytest.approx(alone, abs=5e-6)
    assert found["AvgKD"][-1][0] == pytest.approx(averaged, abs=5e-6)
    assert found["AvgKD"][-1] == pytest.approx(found["limit"], rel=1e-8)
    assert found["from the limit"] < 1e-8
    assert found["EKD"][249] == pytest.approx(found["central"], rel=1e-6)
    assert found["EKD"][59] == pytest.approx(found["central"], rel=1e-2)
    assert found["AKD"][0] == found["alone"][0]
    assert found["AKD"][249] == pytest.approx(found["zero"], rel=1e-6)
    if not ordered:
        assert found["EKD"][9] == pytest.approx(0.0546, abs=5e-5)
        assert found["EKD"][49] == pytest.approx(0.01436, abs=5e-6)


def test_the_limit_by_hand() -> None:
    """Agents of one row each at x = 1, y = 2 and 4, c = 1/2, N = 2: all L are 1/2, so that g = ŷ/2.

    ŷ_1 = (2 + ŷ_2/2)/2 and ŷ_2 = (4 + ŷ_1/2)/2: ŷ_1 = 8/5 and ŷ_2 = 12/5, models 4/5 and 6/5.
    """
    one = np.ones((1, 1))
    first, second = trials._averaged_limit(
        one.repeat(2, axis=0), [(one, np.array([2.0])), (one, np.array([4.0]))], 0.5
    )
    assert first == pytest.approx([0.8, 0.8])
    assert second == pytest.approx([1.2, 1.2])


@pytest.mark.parametrize(("c", "series", "most"), [(1e-2, 9, 5), (1e-3, 55, 12), (1e-4, 485, 26)])
def test_rounds_to_a_share_of_central_training(c: float, series: int, most: int) -> None:
    found = trials.rounds_needed(
        regularization=c, ordered=True, tolerance=1e-3, most=600, repetition=0
    )
    assert found["EKD, predictions"] == series
    assert found["conjugate, predictions"] <= most


def test_rounds_that_are_not_enough() -> None:
    found = trials.rounds_needed(
        regularization=1e-4, ordered=True, tolerance=1e-9, most=5, repetition=1
    )
    assert np.isnan(list(found.values())).all()


def test_different_kernels_meet_between_the_central_models() -> None:
    found = trials.different_kernels(regularization=1e-3, rounds=200, repetition=3)
    assert found["from its limit"] < 1e-9
    fresh = {name: values[1] for name, values in found.items() if name != "from its limit"}
    assert fresh["central, kernel of agent 1"] < fresh["EKD"] < fresh["central, kernel of agent 2"]
    assert fresh["EKD"] < fresh["alone"]


# --- who holds what -----------------------------------------------------------------------------------


def few(count: int = 200) -> problems.Images:
    rng = np.random.default_rng(0)
    X, y = rng.random((count, 6, 6)).astype(np.float32), np.arange(count) % 10
    return problems.Images(X, y, X[:20], y[:20])


def test_same_data_is_dealt_unequally() -> None:
    first, second = problems.agents(Setting(), QUICK, few(), 0)
    assert (len(first.rows.X), len(second.rows.X)) == (140, 60)
    assert first.rows.y.shape == (140, 10) and (first.rows.y.sum(axis=1) == 1).all()
    assert set(second.rows.y.argmax(axis=1)) == set(range(10))


def test_alpha_says_how_much_is_mixed() -> None:
    setting = Setting(portion=0.0, loss="cross-entropy")
    apart = problems.agents(setting, QUICK, few(), 0)
    assert [party.rows.classes for party in apart] == [tuple("01234"), tuple("56789")]
    five = problems.agents(replace(setting, agents=5), QUICK, few(), 0)
    assert [party.rows.classes for party in five] == [
        tuple(p) for p in ("01", "23", "45", "67", "89")
    ]
    mixed = problems.agents(replace(setting, portion=0.1), QUICK, few(), 0)
    assert [len(party.rows.X) for party in mixed] == [100, 100]
    foreign = sum(label in "56789" for label in mixed[0].rows.y)
    assert 0 < foreign <= 10


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ("same", ("cnn", "cnn")),
        ("different", ("cnn", "mlp")),
        ("forest", ("mlp", "RandomForestRegressor")),
    ],
)
def test_who_has_which_model(models: str, names: tuple[str, str]) -> None:
    setting = Setting(models=models)
    assert tuple(problems.learner(setting, QUICK, i).name for i in (0, 1)) == names
    assert problems.learner(setting, QUICK, 4).name == names[1]


@pytest.mark.parametrize("data", SIZES)
@pytest.mark.parametrize("size", ["full", "cpu", "quick"])
def test_every_size_can_be_built(data: str, size: str) -> None:
    shape = {"mnist": (28, 28), "cifar-10": (3, 32, 32)}[data]
    for models in ("same", "different"):
        for i in (0, 1):
            setting = Setting(data=data, models=models, loss="cross-entropy")
            model = problems.learner(setting, SIZES[data][size], i)
            model.bind(10)
            model.check(np.zeros((2, *shape), dtype=np.float32))
            assert model.abilities.kind == "classification"
            assert model.recipe.weight_decay == 3e-4  # type: ignore[attr-defined]


# --- conjugate gradients where they are not meant -------------------------------------------------------


def test_with_one_kernel_what_a_fit_leaves_is_as_good_as_coefficients() -> None:
    """The same functions as the exact ones, round for round, for two columns at once."""
    data, (fresh, _) = problems.toy(0, ordered=True)
    data = [(X[:20], np.stack([y[:20], np.sin(9 * y[:20])], axis=1)) for X, y in data]
    agents = KernelAgents("rbf", data, regularization=1e-2)
    found = any_models.conjugate(
        agents.X, agents.y, lambda targets: [f.predict for f in agents.fit(tuple(targets))]
    )
    for ours, exact in islice(zip(found, agents.conjugate(), strict=False), 6):
        assert ours(fresh) == pytest.approx(exact.predict(fresh), rel=1e-9, abs=1e-12)


def test_two_kernels_come_to_what_the_series_comes_to() -> None:
    found = any_models.two_kernels(regularization=1e-2, rounds=60, repetition=0)
    assert found["conjugate"][0] == pytest.approx(found["EKD"][0])
    assert found["conjugate"][60] == pytest.approx(found["EKD"][60], rel=1e-3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("models", ["same", "forest"])
def test_networks_begin_with_the_sum_of_models_alone(models: str) -> None:
    setting = asdict(Setting(models=models, portion=0.0))
    sizes = asdict(QUICK)
    found = any_models.learners(setting=setting, size=sizes, rounds=2, repetition=0)["accuracy"]
    again = any_models.learners(setting=setting, size=sizes, rounds=1, repetition=0)["accuracy"]
    assert len(found) == 3 and found[:2] == again
    assert all(0 <= value <= 1 for value in found)


# --- networks -----------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six by six pixels of noise in place of digits: nothing is learned, and everything is compared."""
    monkeypatch.setattr(problems, "images", lambda data, size, repetition: few())


def exchanged(scheme: str, **setting: Any) -> Any:
    where = asdict(Setting(**setting))
    found = trials.exchanged(scheme=scheme, setting=where, size=asdict(QUICK), repetition=0)
    return {name: np.asarray(values) for name, values in found.items()}


@pytest.mark.usefixtures("small")
def test_schemes_begin_alike() -> None:
    alone = [exchanged(s)["accuracy"] for s in ("averaged", "parallel", "alternating")]
    assert all(found.shape == (3, 2) for found in alone)
    assert (alone[0][0] == alone[1][0]).all() and (alone[0][0] == alone[2][0]).all()
    together = exchanged("FedAvg")["accuracy"]
    assert (together[:, 0] == together[:, 1]).all()


@pytest.mark.usefixtures("small")
def test_a_column_of_akd_is_a_chain() -> None:
    """It is what one model that goes round alone does, at the agent that it comes to."""
    found = exchanged("alternating", models="different")["accuracy"]
    given = few()
    parties = problems.agents(Setting(models="different"), QUICK, given, 0)
    federation = Federation(parties, seed=0, strict=False)
    protocol = alternating_distillation(rounds=QUICK.rounds, start="agent-2")
    for round in federation.rounds(protocol):
        models = list(federation.network.models().values())
        at = models[(1 + round.number) % 2].learner.predict(given.X_test)
        assert found[round.number, 1] == (at.argmax(axis=1) == given.y_test).mean()


@pytest.mark.usefixtures("small")
def test_ekd_is_the_signed_ensemble() -> None:
    found = exchanged("alternating", agents=2)["ensemble"]
    given = few()
    parties = problems.agents(Setting(), QUICK, given, 0)
    history = Federation(parties, seed=0).run(alternating_distillation(rounds=QUICK.rounds))
    ensemble = SignedEnsemble.of(round.replies for round in history.rounds)
    sums = list(ensemble.predictions(given.X_test))
    assert found.tolist() == [float((f.argmax(axis=1) == given.y_test).mean()) for f in sums]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("setting", [{"loss": "cross-entropy"}, {"models": "forest"}])
def test_other_losses_and_models(setting: dict[str, Any]) -> None:
    found = exchanged("averaged", portion=0.0, **setting)
    assert found["accuracy"].shape == (3, 2)
    assert found["megabytes"] > 0.001
    where, size = asdict(Setting(**setting)), asdict(QUICK)
    assert 0 <= trials.central(setting=where, size=size, repetition=0)["accuracy"] <= 1


@pytest.mark.needs_data("mnist")
def test_images_of_a_repetition() -> None:
    one, again, other = (problems.images("mnist", QUICK, r) for r in (0, 0, 1))
    assert one.X.shape == (300, 28, 28) and one.y_test.shape == (200,)
    assert np.array_equal(one.X, again.X) and not np.array_equal(one.X, other.X)


# --- claims -------------------------------------------------------------------------------------------


def falling() -> Curve:
    """Two repetitions, rounds 0 to 4, two agents that are alike: 0.9, 0.5, 0.5, 0.3, 0.1, and 0.1 below."""
    line = np.array([0.9, 0.5, 0.5, 0.3, 0.1])
    return Curve(np.stack([line, line - 0.1])[:, :, None].repeat(2, axis=2), 0.5)


def level() -> Curve:
    line = np.array([0.5, 0.7, 0.6, 0.6, 0.6])
    return Curve(np.stack([line, line + 0.02])[:, :, None].repeat(2, axis=2))


def test_curves_by_hand() -> None:
    """Above chance 0.8, 0.4, 0.4, 0.2, 0: a mean of 0.25 later, 1 − 0.25/0.8; 0.7, 0.3, 0.3, 0.1, −0.1."""
    curve = falling()
    assert curve.drop == pytest.approx([0.8, 0.8])
    assert curve.last == pytest.approx([0.1, 0.0])
    assert curve.late == pytest.approx([0.1 - 0.5, 0.1 - 0.5])
    assert curve.lost == pytest.approx([1 - 0.25 / 0.8, 1 - 0.15 / 0.7])
    assert np.isnan(Curve(np.full((2, 3, 1), 0.1)).lost).all()
    columns = curve.columns()
    assert columns["best"] == pytest.approx(0.85) and columns["round 1"] == pytest.approx(0.45)
    assert columns["standard error"] == pytest.approx(0.05)
    whole = Curve(np.array([[[0.9]], [[0.8]]])).columns()
    assert (whole["round 0"], whole["best"], whole["last"]) == (None, None, pytest.approx(0.85))


def test_claims_hold_and_do_not() -> None:
    cells = {"x": {"AKD": falling(), "AvgKD": level(), "EKD": level()}}
    turned = {"x": {"AKD": level(), "AvgKD": falling(), "EKD": falling()}}
    pair = (("x", falling()), ("y", level()))
    for claim, opposite in [
        (curves.degrades(cells, "AKD"), curves.degrades(turned, "AKD")),
        (curves.settles(cells, "AvgKD"), curves.settles(turned, "AvgKD")),
        (curves.beats_alone(cells, ["x"], round=1), curves.beats_alone(turned, ["x"], round=1)),
        (curves.beats_alone(cells, ["x"], round=-1), curves.beats_alone(turned, ["x"], round=-1)),
        (curves.beats(cells, ["x"], "AvgKD", "AKD"), curves.beats(turned, ["x"], "AvgKD", "AKD")),
        (curves.ensemble(cells, improves=True), curves.ensemble(cells, improves=False)),
        (curves.falls_faster("so", *pair), curves.falls_faster("so", *pair[::-1])),
    ]:
        assert claim.holds and not opposite.holds, claim
        assert "x: " in claim.evidence or "x, agent 1: " in claim.evidence, claim


def test_a_difference_counts_by_a_test() -> None:
    """Means of 0.2 at standard errors of 0.1/√3 and 0.15/√3: 3.46 and 2.31, where 2.92 are needed."""
    assert differs(np.array([0.1, 0.2, 0.3]))
    assert not differs(np.array([0.05, 0.2, 0.35]))


def test_what_has_lost_everything_has_not_settled() -> None:
    """From 0.9 to chance in one round, and flat from there on; one agent of two is enough."""
    fallen = np.array([0.9] + 8 * [0.1])
    kept = np.full(9, 0.9)
    curve = Curve(np.stack([np.stack([kept, fallen], axis=1)] * 3))
    assert curve.late == pytest.approx([0, 0, 0]) and curve.kept == pytest.approx(0)
    assert not curves.settles({"x": {"AKD": curve}}, "AKD").holds
    level = Curve(np.stack([np.stack([kept, kept], axis=1)] * 3))
    assert curves.settles({"x": {"AKD": level}}, "AKD").holds


# --- exhibits -----------------------------------------------------------------------------------------

EXHIBITS = PAPERS["afonin2022"].exhibits


def test_names() -> None:
    figures = {f"fig{n}" for n in (3, 4, 5, 6, *range(8, 16))}
    assert set(EXHIBITS) == figures | {"averaged-apart", "conjugate", "conjugate-networks", "relay"}


def complete(exhibit: Exhibit) -> None:
    assert exhibit.rows and exhibit.claims
    assert all(tuple(row) == exhibit.columns for row in exhibit.rows)
    assert exhibit.title in exhibit.as_markdown()


@pytest.mark.slow
@pytest.mark.needs_data("mnist", "cifar-10")
@pytest.mark.parametrize("name", sorted(EXHIBITS))
def test_every_exhibit_quickly(name: str, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    exhibit = EXHIBITS[name](Study(tmp_path, repetitions=2, quick=True, processes=1))
    complete(exhibit)
    if exhibit.draw is not None:
        exhibit.draw(Figure())


def test_the_toy_problem_in_three_panels(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    exhibit = EXHIBITS["fig3"](Study(tmp_path, repetitions=2, processes=1))
    complete(exhibit)
    assert all(claim.holds for claim in exhibit.claims), exhibit.as_markdown()
    figure = Figure()
    assert exhibit.draw is not None
    exhibit.draw(figure)
    assert len(figure.axes) == 3


@pytest.mark.needs_data("mnist")
def test_a_figure_of_networks(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    exhibit = EXHIBITS["fig5"](Study(tmp_path, repetitions=2, quick=True, processes=1))
    complete(exhibit)
    assert exhibit.notes[0].startswith("Size: quick. 300 training and 200 test images, 2 rounds")
    assert {row["setting"] for row in exhibit.rows} == {
        "same model and data", "different models", "different data"
    }  # fmt: skip
    figure = Figure()
    assert exhibit.draw is not None
    exhibit.draw(figure)
    assert len(figure.axes) == 3
