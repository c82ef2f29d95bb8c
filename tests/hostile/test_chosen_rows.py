"""A coordinator that chooses public rows, teacher and weights to find out who is in a party's data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from consilience import Party
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join, TakePublic
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.sites.party import EVERYTHING, Limits, PartySite

RNG = np.random.default_rng(3)
PEOPLE = RNG.normal(size=(140, 5))
ILL = np.where(RNG.random(140) < 0.5, "yes", "no")
ASKED = 20
"""The first so many people are asked about; half of them are there."""
THERE = np.arange(ASKED) < ASKED // 2
OWN = np.r_[: ASKED // 2, ASKED:100]
OTHERS = PEOPLE[100:]
LISTED = np.concatenate([PEOPLE[:ASKED], OTHERS])
CLOSE = np.concatenate(
    [PEOPLE[:ASKED] + 0.01 * step for step in (*np.zeros((5, 5)), *np.eye(5), *-np.eye(5))]
)
"""Five copies of each, and what lies around them."""


Asks = Callable[..., Any]


@pytest.fixture
def begun(tmp_path: Path) -> Any:
    """A party at its site, asked as a coordinator asks; it is sent the public rows, or has a file of them."""
    sites = []

    def begin(model: Any, limits: Limits, public: np.ndarray, *, tests: bool = False) -> Asks:
        chosen = Public(public)
        rows = np.setdiff1d(OWN, np.arange(ASKED)) if tests else OWN
        tested = (PEOPLE[OWN], ILL[OWN]) if tests else None
        party = Party(
            "north", model, PEOPLE[rows], ILL[rows], calibration=0, test=tested, purpose="taught"
        )
        agreed = negotiate([Describe().run(party)], chosen)
        party.hold_public(chosen if limits.overlap else None)
        site = PartySite(lambda: party, tmp_path / str(len(sites)), limits=limits)
        sites.append(site)

        def ask(*tasks: Any) -> Any:
            return decode(site.answer(encode(tasks)))[-1]

        sent = ask(TakePublic.of(chosen)) if party.public is None else None
        if isinstance(sent, Failure):
            return lambda *tasks: sent
        ask(Join(agreement=agreed))
        ask(FitPrivate(round=1))
        return ask

    yield begin
    for site in sites:
        site.close()


def taught(ask: Asks, t: int, labels: np.ndarray, alpha: float, task: Any) -> Any:
    ask(Distill(round=t, targets=np.eye(2, dtype=np.float32)[labels], alpha=alpha))
    return ask(task)


def named(ask: Asks, rows: int, alpha: float) -> np.ndarray | str:
    """Of whom the model does not say what it was taught everywhere."""
    found = np.zeros(ASKED, dtype=bool)
    for label in (0, 1):
        said = taught(ask, 1 + label, np.full(rows, label), alpha, PredictPublic(round=1 + label))
        if isinstance(said, Failure):
            return said.reason
        found |= said.values[:ASKED, 1 - label] > 1e-4
    return found


MODELS = {
    "tree": DecisionTreeClassifier(),
    "forest": RandomForestClassifier(20, bootstrap=False, random_state=0),
    "5-NN": KNeighborsClassifier(5),
}


@pytest.mark.parametrize(
    ("name", "public"), [("tree", LISTED), ("forest", LISTED), ("5-NN", CLOSE)]
)
@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_who_is_among_the_public_rows_does_not_show(
    begun: Any, name: str, public: np.ndarray, alpha: float
) -> None:
    """Without limits everybody is found, and nobody wrongly named, whatever the weight."""
    model = MODELS[name]
    assert (named(begun(model, EVERYTHING, public), len(public), alpha) == THERE).all()
    found = named(begun(model, Limits(), public), len(public), alpha)
    if public is CLOSE:
        assert found.endswith("copies of one another, or lie around one point")
    else:
        assert found[THERE].sum() <= 1


def test_a_least_weight_alone_hides_nobody(begun: Any) -> None:
    """So that it is known what it is not for."""
    limits = EVERYTHING.model_copy(update={"alpha": 0.1})
    assert (named(begun(MODELS["tree"], limits, LISTED), len(LISTED), 0.0) == THERE).all()


def told(ask: Asks, rows: int) -> list[Any]:
    """Metrics after the model was taught one class, and then another one at one person at a time."""
    answers = []
    for t, person in enumerate([-1, *range(ASKED)], 1):
        labels = (np.arange(rows) % ASKED == person) & (np.arange(rows) < 5 * ASKED)
        said = taught(ask, t, labels.astype(int), 0.0, Evaluate(round=t))
        answers.append(said if isinstance(said, Failure) else dict(said.values))
    return answers


def test_metrics_do_not_tell_who_is_measured_on(begun: Any) -> None:
    """Without limits they name all of them, and nobody else."""
    first, *others = told(begun(MODELS["tree"], EVERYTHING, CLOSE, tests=True), len(CLOSE))
    assert ([one != first for one in others] == THERE).all()
    first, *others = told(begun(MODELS["tree"], Limits(), LISTED, tests=True), len(LISTED))
    assert set(first) >= {"accuracy", "log_loss"}
    assert {one.reason for one in others} == {
        "limits.metrics: it has said 1 times how good its model is, and that is all it does"
    }
