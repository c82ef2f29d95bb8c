"""The reproduction of Shen et al. 2022: who holds what, what counts as reached, and claims by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import RunFailed
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience_papers.exhibit import Exhibit
from consilience_papers.papers import PAPERS
from consilience_papers.shen2022 import (
    convergence,
    problems,
    tables,
    tabular,
    theorems,
    trials,
    warm_start,
)
from consilience_papers.shen2022.problems import SIZES
from consilience_papers.study import Study

QUICK = SIZES["mnist"]["quick"]
EXHIBITS = PAPERS["shen2022"].exhibits


def few(count: int = 80) -> problems.Images:
    """Six by six pixels, of which the one at the label's place is bright."""
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(n) % 10
        X = rng.random((n, 6, 6)).astype(np.float32)
        X.reshape(n, -1)[np.arange(n), y] += 2
        return X, y

    return problems.Images(*drawn(count), held=drawn(30), test=drawn(50), public=drawn(30)[0])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """These in place of digits, clothes and CIFAR's."""
    monkeypatch.setattr(problems, "images", lambda data, size, repetition: few())


def reached(method: str, *, stop: float | None = None, **size: Any) -> Any:
    how = asdict(replace(QUICK, **size))
    found = trials.reached(
        method=method, data="mnist", share=0.3, size=how, stop=stop, repetition=0
    )
    return np.asarray(found["accuracy"]), found


# --- who holds what, and trains what ------------------------------------------------------------------


def test_a_share_is_dealt_evenly_and_the_rest_by_label() -> None:
    """80 images, 4 clients, s = 0.2: 4 each of any label, and 16 of 64 in the order of labels."""
    model = problems.averaged_network(QUICK, 0.1)
    parties = problems.clients(few(), 0.2, QUICK, model, 0)
    assert [len(party.rows.X) for party in parties] == [20, 20, 20, 20]
    assert [party.name for party in parties] == [f"client-00{i}" for i in range(4)]
    own = [party.rows.y.tolist() for party in parties]
    assert sum(label in "0123" for label in own[0]) >= 16
    assert sum(label in "6789" for label in own[3]) >= 16
    sorted_ones = problems.clients(few(), 0.0, QUICK, model, 0)
    assert sorted_ones[0].rows.classes == ("0", "1", "2")
    again = problems.clients(few(), 0.2, QUICK, model, 0)
    other = problems.clients(few(), 0.2, QUICK, model, 1)
    assert np.array_equal(parties[0].rows.X, again[0].rows.X)
    assert not np.array_equal(parties[0].rows.X, other[0].rows.X)


@pytest.mark.needs_data("mnist", "fashion-mnist")
def test_images_of_a_repetition() -> None:
    one, again, other = (problems.images("mnist", QUICK, r) for r in (0, 0, 1))
    assert one.X.shape == (120, 28, 28) and one.public.shape == (40, 28, 28)
    assert one.held[0].shape == (40, 28, 28) and one.test[1].shape == (100,)
    assert np.array_equal(one.X, again.X) and not np.array_equal(one.X, other.X)
    seen = {image.tobytes() for image in one.X}
    assert not seen & {image.tobytes() for rows in (one.held, one.test) for image in rows[0]}


@pytest.mark.parametrize("data", SIZES)
@pytest.mark.parametrize("size", ["full", "cpu", "quick"])
def test_every_size_can_be_built(data: str, size: str) -> None:
    how = SIZES[data][size]
    shape = (3, 32, 32) if data == "cifar-10" else (28, 28)
    rate, *_ = how.boosting_rates
    boosted = problems.boosted_network(how, rate)
    for model in (problems.averaged_network(how, 0.1), problems.fused_network(how, rate), boosted):
        model.bind(10)
        model.check(np.zeros((2, *shape), dtype=np.float32))
        assert model.abilities.kind == "classification"
    assert how.published == (size == "full")
    if size == "full":
        recipe = boosted.weak.recipe  # type: ignore[attr-defined]
        assert (recipe.optimizer, recipe.learning_rate, recipe.gradient_clip) == ("adam", 1e-3, 5)
        assert (recipe.first_epochs, recipe.distill_epochs, recipe.batch_size) == (100, 100, 64)
        assert (how.clients, how.models, how.averaging_epochs) == (100, 100, 10)


def test_table_2_as_printed() -> None:
    """All rows but those of CIFAR-100 as private data, fewest by FFGB-distill in each."""
    assert set(problems.TABLE2) == {(data, s) for data in SIZES for s in problems.SHARES}
    for row in problems.TABLE2.values():
        for ours, *others in row.values():
            assert all(int(ours) < int(other.removeprefix("> ")) for other in others)


# --- models sent --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", trials.METHODS)
def test_a_curve_by_models_sent(method: str) -> None:
    """SCAFFOLD sends two in a round, so that its accuracy changes with every second."""
    curve, found = reached(method, models=4, boosting_epochs=5)
    assert curve.shape == (5,) and ((curve >= 0) & (curve <= 1)).all()
    assert found["images"] == [80, 30]
    assert found["rate"] in (
        QUICK.averaging_rates if method in trials.AVERAGING else QUICK.boosting_rates
    )
    if method == "SCAFFOLD":
        assert curve[0] == curve[1] and curve[2] == curve[3]


@pytest.mark.usefixtures("small")
def test_a_curve_is_that_of_the_protocol() -> None:
    from consilience.core.federation.federation import Federation

    curve, found = reached("FedAvg", models=2)
    parties = problems.clients(
        few(), 0.3, QUICK, problems.averaged_network(QUICK, found["rate"]), 0
    )
    federation = Federation(parties, public=few().public, seed=0, strict=False)
    X, y = few().test
    for round in federation.rounds(federated_averaging(rounds=2)):
        for model in federation.network.models().values():  # all hold the same
            assert (model.learner.predict(X).argmax(axis=1) == y).mean() == curve[round.number]


@pytest.mark.usefixtures("small")
def test_rounds_stop_where_the_last_target_is_reached() -> None:
    curve, _ = reached("FFGB-distill", models=3, stop=0.0)
    assert np.isfinite(curve).tolist() == [True, False, False, False]


@pytest.mark.usefixtures("small")
def test_rates_are_chosen_by_held_out_training_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracies by rate: 0.2, then one that diverges, then 0.1; test rows are not looked at."""
    rates = replace(QUICK, averaging_rates=(0.01, 0.05, 0.1))
    setting = trials._Setting(few(), 0.3, rates, 0)
    asked = []

    def accuracies(self: Any, model: Any, protocol: Any, rows: Any) -> Any:
        asked.append(rows)
        if model.recipe.learning_rate == 0.05:
            raise RunFailed("NaN")
        yield 0.9  # untrained: does not count
        yield {0.01: 0.2, 0.1: 0.1}[model.recipe.learning_rate]

    monkeypatch.setattr(trials._Setting, "accuracies", accuracies)
    assert setting.rate("FedAvg") == 0.01
    assert len(asked) == 3 and all(rows is setting.given.held for rows in asked)


@pytest.mark.usefixtures("small")
def test_the_warm_start_is_one_step_and_the_first_model_sent() -> None:
    how = replace(QUICK, models=3, boosting_epochs=60, boosting_rates=(1e-2,))
    given: dict[str, Any] = {"data": "mnist", "share": 0.3, "size": asdict(how), "repetition": 0}
    found = trials.warm_started(method="FedDyn", **given)
    assert len(found["random"]) == len(found["warm"]) == 4
    assert found["random"][0] == found["warm"][0]
    setting = trials._Setting(few(), 0.3, how, 0)
    step = functional_gradient_boosting(rounds=1, step_size=10.0, distill=True)
    *_, boosted = setting.models(problems.boosted_network(how, 1e-2), step)
    assert found["warm"][1] == trials.accuracy(boosted, few().test)
    assert found["warm"][1] > found["random"][0]


@pytest.mark.usefixtures("small")
def test_central_training_has_all_images() -> None:
    how = replace(QUICK, central_epochs=60, boosting_rates=(1e-2,))
    assert trials.central(data="mnist", size=asdict(how), repetition=0)["accuracy"] > 0.5


# --- claims -------------------------------------------------------------------------------------------

INF = np.inf


def test_what_needs_more_models() -> None:
    """Differences of 3, 4, 5 and of −1, 0, 1; where nobody knows, the least that it can be."""
    ours = np.array([1.0, 1.0, 1.0])
    assert tables.more(np.array([4.0, 5.0, 6.0]), ours)
    assert not tables.more(np.array([0.0, 1.0, 2.0]), ours)
    assert tables.more(np.full(3, INF), ours)
    assert not tables.more(ours, np.full(3, INF))
    assert not tables.more(np.full(3, INF), np.full(3, INF))
    assert not tables.more(np.array([4.0, 5.0, 6.0]), np.array([INF, 1.0, 1.0]))


def test_the_claims_of_table_2() -> None:
    """With one row of two lost to FedAvg the first claim does not hold, and says to whom."""
    one, five = np.array([1.0, 1.0, 2.0]), np.array([5.0, 5.0, 5.0])
    good = {method: five for method in trials.METHODS} | {"FFGB-distill": one}
    bad = {**good, "FedAvg": one}
    fewest, ablation = tables._claims("mnist", {(0.1, 0.5): good})
    assert fewest.holds and ablation.holds and fewest.evidence == "in 1 of 1 rows"
    fewest, ablation = tables._claims("mnist", {(0.1, 0.5): good, (0.1, 0.8): bad})
    assert not fewest.holds and ablation.holds
    assert fewest.evidence == (
        "in 1 of 2 rows; not fewer than FedAvg in 1; in the mean nobody needs fewer in 2 of the 2 that "
        "anybody reached"
    )
    worse = {**good, "FedAvg": one - 1, "FedDyn": np.full(3, np.inf)}
    nobody = dict.fromkeys(trials.METHODS, np.full(3, np.inf))
    fewest, _ = tables._claims("mnist", {(0.1, 0.5): worse, (0.1, 0.8): good, (0.1, 0.9): nobody})
    assert fewest.evidence.endswith("nobody needs fewer in 1 of the 2 that anybody reached")


def test_the_claims_of_figure_1() -> None:
    """Gained 0.2 after the first model and −0.1 after the last, a mean of 0.05, in all repetitions."""
    cold = np.array([[0.1, 0.2, 0.3], [0.1, 0.3, 0.4], [0.1, 0.2, 0.4]])
    warm = cold + np.array([0, 0.2, -0.1])
    over, last = warm_start.claims_of({"x": {"FedAvg-r": cold, "FedAvg-d": warm}}, "FedAvg")
    assert over.holds and not last.holds
    assert over.evidence == "gained: x: +0.050 ± 0.000"
    over, last = warm_start.claims_of({"x": {"FedAvg-r": warm, "FedAvg-d": cold}}, "FedAvg")
    assert not over.holds and last.holds


# --- problems with a known minimiser ------------------------------------------------------------------


def test_plateaus_and_radii_by_hand() -> None:
    """ω_TV is ¾ of the share that is a client's own; the radius is 2 ω / 0.15²."""
    found = convergence.heterogeneous(repetition=0)
    assert found["omega"] == pytest.approx(0.75 * np.array(convergence.APART))
    assert found["radius"] == pytest.approx(2 * np.array(found["omega"]) / 0.15**2)
    assert (np.diff(found["last"]) > 0).all()


def test_the_adversary_leaves_zero() -> None:
    found = convergence.adversarial(repetition=2)
    assert found["largest"] < 1e-12 and found["omega"] == pytest.approx(0.75)


def test_claims_on_rates_hold_and_do_not() -> None:
    """Powers of T and K as the theorems have them, and none at all."""
    T, K = (np.array(values, float) for values in (convergence.ROUNDS, convergence.LOCAL_STEPS))
    noise = np.array([[0.99], [1.0], [1.01]])
    good = {
        "exact": 1e-7 * noise * T**-1.2,
        "by K": noise * K**-1.5,
        "together": noise * T**-0.9,
    }
    assert all(claim.holds for claim in theorems.alike_claims(good))
    bad = {
        "exact": noise * T**-0.5,
        "by K": noise * K**-0.5,
        "together": noise * T**-0.2,
    }
    assert not any(claim.holds for claim in theorems.alike_claims(bad))


def test_claims_on_the_residual_hold_and_do_not() -> None:
    """Errors that stay, fall as 1/T, and are small; then all that stay, and all that fall."""
    stays, falls = np.ones((3, 150)), 1 / np.arange(1.0, 151) * np.ones((3, 1))
    good = {
        "three clients, with": 0.01 * falls,
        "three clients, without": stays,
        "one client, with": 0.01 * falls,
        "one client, without": falls,
    }
    assert all(claim.holds for claim in theorems.ablation_claims(good))
    for values in (stays, falls):
        first, second = theorems.ablation_claims(dict.fromkeys(good, values))
        assert not first.holds and second.holds == (values is falls)


# --- trees --------------------------------------------------------------------------------------------


@pytest.mark.needs_data("heart-disease")
def test_hospitals_hold_their_own_patients() -> None:
    table = tabular.TABLES["heart disease"]
    parties, whole = tabular.parties_of(table, 0, tabular._booster(table, 0.1))
    assert whole.group is not None
    assert [len(p.rows.X) for p in parties] == np.unique(whole.group, return_counts=True)[
        1
    ].tolist()
    assert sum(len(p.rows.test[1]) for p in parties if p.rows.test is not None) == len(whole.y_test)


def test_parties_hold_some_digits() -> None:
    table = tabular.TABLES["digits"]
    parties, whole = tabular.parties_of(table, 0, tabular._booster(table, 0.1))
    assert len(parties) == 10 and sum(len(p.rows.X) for p in parties) == len(whole.X)
    largest = max(np.unique(parties[0].rows.y, return_counts=True)[1])
    assert largest > 0.6 * len(parties[0].rows.y)


def test_one_party_boosts_as_central_training_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """FFGB with K = 1 starts Δ anew in each round: with one party it is boosting without a residual."""
    monkeypatch.setattr(tabular, "chosen_step_size", lambda table, repetition: 0.3)
    table = asdict(replace(tabular.TABLES["digits"], parties=1, rounds=3, share=1.0))
    together, central, local = (
        tabular.boosted(method=method, table=table, repetition=0)
        for method in ("FFGB", "central", "local")
    )
    # Features that split equally well are taken by lot.
    assert together["all"] == pytest.approx(central["all"], abs=0.02)
    assert together["kilobytes"] > 0 and central["kilobytes"] == 0
    assert local["all"] == pytest.approx(central["all"], abs=0.02)


def test_claims_on_trees() -> None:
    """FFGB lacks 0.01 of central training, local boosting 0.1; and the other way round."""
    wiggle = np.array([0.0, 0.01, 0.02])
    scores = {"local": 0.8, "FFGB": 0.89, "FFGB, few rounds": 0.88, "central": 0.9}
    good = {method: {"all": value + wiggle} for method, value in scores.items()}
    assert all(claim.holds for claim in tabular.claims_of("x", good))
    bad = {**good, "FFGB": good["local"], "local": good["FFGB"]}
    assert not any(claim.holds for claim in tabular.claims_of("x", bad))


# --- exhibits -----------------------------------------------------------------------------------------


def complete(exhibit: Exhibit) -> None:
    from matplotlib.figure import Figure

    assert exhibit.rows and exhibit.claims and exhibit.draw is not None
    assert all(tuple(row) == exhibit.columns for row in exhibit.rows)
    assert exhibit.title in exhibit.as_markdown()
    exhibit.draw(Figure())


def test_names() -> None:
    assert set(EXHIBITS) == {"table2", "fig1", "rates", "trees"}


@pytest.mark.usefixtures("small")
def test_table_2_quickly(tmp_path: Path) -> None:
    study = Study(tmp_path, repetitions=2, quick=True, processes=1)
    exhibit = tables.table2(study, data=("mnist", "cifar-10"), shares=(0.3,))
    complete(exhibit)
    assert [row["target"] for row in exhibit.rows[:3]] == [
        f"{share:g} of central" for share in problems.TARGETS
    ]
    assert exhibit.notes[0].startswith(
        "MNIST, size quick: 4 clients, 80 training images in all, 30"
    )


@pytest.mark.usefixtures("small")
def test_figure_1_quickly(tmp_path: Path) -> None:
    study = Study(tmp_path, repetitions=2, quick=True, processes=1)
    exhibit = warm_start.figure1(study, data=("mnist",))
    complete(exhibit)
    assert [row["method"] for row in exhibit.rows] == [
        "FedAvg-r", "FedAvg-d", "FedDyn-r", "FedDyn-d"
    ]  # fmt: skip


def test_rates_quickly(tmp_path: Path) -> None:
    exhibit = EXHIBITS["rates"](Study(tmp_path, repetitions=2, quick=True, processes=1))
    complete(exhibit)
    assert len(exhibit.claims) == 11


@pytest.mark.needs_data("heart-disease")
def test_trees_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals = {"heart disease": tabular.TABLES["heart disease"]}
    monkeypatch.setattr(tabular, "TABLES", hospitals)
    exhibit = EXHIBITS["trees"](Study(tmp_path, repetitions=2, quick=True, processes=1))
    complete(exhibit)
    assert [row["method"] for row in exhibit.rows] == list(tabular.METHODS)
    assert "T = 4, or 2 with K = 2" in exhibit.notes[0]


@pytest.mark.slow
@pytest.mark.needs_data("mnist", "fashion-mnist", "cifar-10", "cifar-100", "heart-disease")
@pytest.mark.parametrize("name", sorted(EXHIBITS))
def test_every_exhibit_quickly(name: str, tmp_path: Path) -> None:
    complete(EXHIBITS[name](Study(tmp_path, repetitions=2, quick=True, processes=1)))
