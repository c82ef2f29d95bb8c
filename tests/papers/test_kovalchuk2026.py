"""The reproduction of Kovalchuk et al. 2026: who holds what, what is measured, and claims by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.models import make
from consilience_papers.kovalchuk2026 import densities, problems, tables, teachers, traffic, trials
from consilience_papers.kovalchuk2026.grid import METHODS, Grid
from consilience_papers.kovalchuk2026.problems import HOLDERS, OURS, SIZES
from consilience_papers.papers import PAPERS
from consilience_papers.study import Study

QUICK = SIZES["cifar-10"]["quick"]
DIGITS = replace(
    QUICK,
    samples=40,
    public=30,
    test=60,
    model={**QUICK.model, "recipe": {**QUICK.model["recipe"], "first_epochs": 8}},
)


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of CIFAR-10, where a test does not ask for that."""
    monkeypatch.setitem(problems._CLASSES, ("digits", False), 10)


def taught(rule: str, share: float = 0.3, *, coded: bool = False, **size: Any) -> dict[str, Any]:
    found = trials.taught(
        data="digits",
        share=share,
        rule=rule,
        size=asdict(replace(DIGITS, **size)),
        coded=coded,
        repetition=0,
    )
    return {name: np.asarray(value) for name, value in found.items()}


# --- who holds what -----------------------------------------------------------------------------------


def test_clients_hold_their_share_of_the_classes() -> None:
    given = problems.cohort("digits", 0.3, DIGITS, 0)
    assert len(given.names) == 10
    assert all(len(labels) == 3 for labels in given.holders.values())
    assert all(len(rows) == 40 for rows in given.rows)
    other = problems.cohort("digits", 0.3, DIGITS, 1)
    assert not np.array_equal(given.rows[0], other.rows[0])


@pytest.mark.parametrize(
    ("data", "name"), [(data, name) for data, sizes in SIZES.items() for name in sizes]
)
def test_every_size_names_a_network_that_can_be_built(data: str, name: str) -> None:
    size = SIZES[data][name]
    assert size.rounds >= 1 and all(rate > 0 for rate in size.rates)
    if size.model["name"] == "transformer":  # its weights are not here
        assert size.model["recipe"]["optimizer"] == "adamw"
        return
    model = make(**size.model)
    averaged = make(**{**size.model, "recipe": {**size.model["recipe"], **size.averaging}})
    assert model.abilities.kind in (None, "classification")
    assert averaged.recipe.optimizer == "sgd"  # type: ignore[attr-defined]


def test_the_papers_numbers_where_it_gives_them() -> None:
    for data, first, later, batch in (("cifar-10", 20, 2, 128), ("cifar-100", 1, 1, 128)):
        full = SIZES[data]["full"]
        recipe = full.model["recipe"]
        assert (full.public, full.rounds, full.model["name"]) == (5000, 50, "resnet18")
        assert (recipe["first_epochs"], recipe["epochs"]) == (first, later)
        assert recipe["batch_size"] == batch
    yahoo = SIZES["yahoo-answers"]["full"]
    assert (yahoo.samples, yahoo.public, yahoo.model["recipe"]["batch_size"]) == (1500, 2000, 32)


def test_rates_are_chosen_by_public_rows() -> None:
    """The right labels are those of the public rows, in the code of the data set's classes."""
    size = replace(DIGITS, averaging=QUICK.averaging)
    held = problems.averaged("digits", 0.3, size, 0, 0.1, held=True)
    plain = problems.averaged("digits", 0.3, size, 0, 0.1, held=False)
    assert held.public_labels is not None
    assert np.array_equal(held.dataset.X_test, held.public.X)
    assert held.labels(held.dataset.y_test).tolist() == held.public_labels.tolist()
    assert not np.array_equal(held.dataset.X_test, plain.dataset.X_test)
    assert [a.tolist() for a in held.rows] == [b.tolist() for b in plain.rows]


# --- what is measured ---------------------------------------------------------------------------------


def test_a_run_gives_every_round_and_the_parts_add_up() -> None:
    found = taught("sUWA")
    assert found["accuracy"].shape == found["local"].shape == (3,)
    for name in ("after training", "local after training", "teacher", "mse", "up", "down"):
        assert found[name].shape == (2,), name
    # Before the first exchange is after the first training.
    assert found["after training"][0] == found["accuracy"][0]
    assert found["local after training"][0] == found["local"][0]
    assert (found["mse"] <= found["bound"] + 0.1).all()
    assert (found["concentration"] > 0.1).all() and (found["concentration"] <= 1).all()


def test_looking_in_between_changes_nothing() -> None:
    """The same accuracies as a run that nobody looks into."""
    from consilience import Federation, ensemble_distillation, suwa

    given = problems.cohort("digits", 0.3, DIGITS, 0)
    federation = Federation(given.parties(), given.public, seed=0, strict=False)
    plain = federation.run(
        ensemble_distillation(aggregate=suwa(problems.TEMPERATURE), rounds=2), progress=False
    )
    assert taught("sUWA")["accuracy"].tolist() == plain.metric().mean(axis=1).tolist()


def test_a_rule_that_weighs_classes_has_an_error_and_no_parts() -> None:
    found = taught(OURS)
    assert np.isfinite(found["mse"]).all()
    assert all(np.isnan(found[part]).all() for part in trials.PARTS)


def test_holders_of_a_class_know_best_and_codes_save_bytes() -> None:
    assert taught(HOLDERS, 0.2)["mse"][0] < taught("AVG", 0.2)["mse"][0]
    plain, coded = taught("AVG"), taught("AVG", coded=True)
    assert coded["up"].mean() < plain["up"].mean()
    assert coded["down"].mean() < plain["down"].mean()


def test_scaffold_sends_models_and_chooses_a_rate_that_does_not_diverge() -> None:
    size = asdict(replace(DIGITS, rates=(1e6, 0.1), averaging={**QUICK.averaging, "epochs": 3}))
    found = trials.averaged(data="digits", share=1.0, size=size, repetition=0)
    assert found["rate"] == 0.1
    assert len(found["accuracy"]) == 3
    parameters = 64 * 8 + 8 + 8 * 10 + 10
    assert (
        min(found["up"]) > 2 * 4 * parameters
    )  # the model and its control variate, four bytes each


# --- claims -------------------------------------------------------------------------------------------


def made(values: dict[tuple[float, str], float], repetitions: int = 3) -> Grid:
    """A grid of one data set whose last accuracies are these, give or take a thousandth."""
    shares = tuple(dict.fromkeys(share for share, _ in values))
    jitter = 0.001 * np.arange(repetitions)
    cells = {
        ("cifar-10", share, rule): {
            "accuracy": (np.zeros((repetitions, 2)) + value) + jitter[:, None]
        }
        for (share, rule), value in values.items()
    }
    return Grid({"cifar-10": QUICK}, {"cifar-10": shares}, cells)


def test_claims_of_table_1() -> None:
    few = dict(zip(METHODS, (0.2, 0.4, 0.38, 0.6, 0.7), strict=True))
    many = dict(zip(METHODS, (0.7, 0.7, 0.71, 0.7, 0.7), strict=True))
    right = made(
        {(s, r): v for s, row in ((0.2, few), (0.5, many), (1.0, many)) for r, v in row.items()}
    )
    assert [claim.holds for claim in tables.claims_of(right, "cifar-10")] == [True] * 5
    assert tables.closed(right, "cifar-10", 0.2, OURS) == "80%"
    assert tables.closed(right, "cifar-10", 1.0, OURS) == "–"
    swapped = {"AVG": 0.7, "UWA": 0.5, "sUWA": 0.4, OURS: 0.5, HOLDERS: 0.8}
    wrong = made({(s, r): v for s in (0.2, 0.5, 1.0) for r, v in swapped.items()})
    assert [claim.holds for claim in tables.claims_of(wrong, "cifar-10")] == [False] * 5


def test_bytes_until_an_accuracy() -> None:
    """Needed: 0.5, what the second ends with; the first has it after two rounds of 10 bytes, the second after
    three of 100."""
    one = {
        "accuracy": np.array([[0, 0.2, 0.5, 0.8]]),
        "up": np.full((1, 3), 9),
        "down": np.ones((1, 3)),
    }
    two = {
        "accuracy": np.array([[0, 0.1, 0.2, 0.5]]),
        "up": np.full((1, 3), 90),
        "down": np.full((1, 3), 10),
    }
    assert traffic.fewer(one, two) == 300 / 20
    assert traffic.fewer(two, one) is None  # it never gets to 0.8


def test_corollary_4_4_on_one_draw() -> None:
    found = teachers.descended(repetition=0)
    assert found["end"].shape == (len(teachers.CLIENTS), len(teachers.APART))
    assert (found["end"] <= found["floor"]).all() and (found["excess"] <= 1 + 1e-9).all()
    assert (np.diff(found["error"][:, 0]) < 0).all()
    assert (found["floor"] <= found["crude floor"]).all()


def test_what_densities_know() -> None:
    """Of digits a client's density tells its classes, and UWA's teacher is ahead of AVG's."""
    size = asdict(replace(DIGITS, rounds=2, public=60))
    found = densities.known(data="digits", rule="UWA", size=size, repetition=0)
    assert {name: len(values) for name, values in found.items()} == {
        **dict.fromkeys(("auc", "largest", "AVG", "UWA"), 2),
        "accuracy": 3,
    }
    assert found["auc"][0] > 0.6 and 0.1 <= found["largest"][0] < 1


# --- the exhibits -------------------------------------------------------------------------------------


def test_exhibits_are_those_of_the_paper() -> None:
    names = "table1 fig2 fig3 curves heatmap order communication homogeneous teacher convergence"
    assert list(PAPERS["kovalchuk2026"].exhibits) == names.split()


@pytest.mark.slow
@pytest.mark.needs_data("cifar-10", "20news")
def test_every_exhibit_runs_and_draws(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    study = Study(tmp_path, quick=True, processes=1)
    for name, exhibit in PAPERS["kovalchuk2026"].exhibits.items():
        shown = exhibit(study)
        assert shown.rows and shown.as_markdown(), name
        if shown.draw is not None:
            figure = Figure(layout="constrained")
            shown.draw(figure)
            assert figure.axes


@pytest.mark.parametrize("size", ["quick", "cpu", pytest.param("full", marks=pytest.mark.slow)])
def test_exhibits_of_made_up_results(
    size: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All that train, without a training, at every size: shapes, claims and plots."""
    from matplotlib.figure import Figure

    def found(*, size: Any, repetition: int, rule: str = "AVG", **_: Any) -> dict[str, Any]:
        rng, rounds = np.random.default_rng(repetition), size["rounds"]
        curve = np.linspace(0.1, 0.5 + 0.05 * METHODS.index(rule), rounds + 1)
        whole = {name: curve + 0.01 * rng.random() for name in ("accuracy", "local")}
        late = (
            "after training",
            "local after training",
            "teacher",
            "mse",
            *trials.PARTS,
            "up",
            "down",
        )
        return whole | {name: np.linspace(0.2, 0.4, rounds) + 0.01 * rng.random() for name in late}

    for name in ("taught", "averaged", "alone"):
        monkeypatch.setattr(trials, name, found)
    study = Study(tmp_path, quick=size == "quick", processes=1)
    made: Any = PAPERS["kovalchuk2026"].exhibits
    for name in set(made) - {"convergence", "order"}:
        shown = made[name](study) if size == "quick" else made[name](study, size=size)
        assert shown.rows, name
        assert len({tuple(row) for row in shown.rows}) == 1, name
        if shown.draw is not None:
            figure = Figure(layout="constrained")
            shown.draw(figure)
            assert figure.axes, name
