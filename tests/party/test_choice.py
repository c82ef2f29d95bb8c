"""A party's choice between the model trained alone and the taught one."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from consilience import Federation, Party, ensemble_distillation, mean
from consilience.errors import InvalidInput
from consilience.federation.history import History
from consilience.messages.schema import Public
from consilience.networks import LocalNetwork, ProcessNetwork
from consilience.party.choice import (
    Choice,
    MixedModel,
    class_odds,
    row_losses,
    safest,
    surely_lower,
)
from consilience.party.state import read_choices
from consilience.tasks.predictions import Distill

RNG = np.random.default_rng(0)
PUBLIC = np.linspace(-1, 1, 60)[:, None]


def rows(low: float, high: float, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Rows of y = 3 |x| in a stretch."""
    X = np.linspace(low, high, count)[:, None]
    return X, 3 * np.abs(X[:, 0])


def parties(purpose: str = "own", calibration: float = 0.2) -> list[Party]:
    """Two parties on two sides of 0, whose straight lines are right at home and wrong elsewhere."""
    test = rows(-1, 1, 50)
    return [
        Party(
            name,
            LinearRegression(),
            *rows(*side),
            test=test,
            own=(np.sign(test[0][:, 0]) == np.sign(sum(side))).astype(float),
            purpose=purpose,
            calibration=calibration,
        )
        for name, side in (("left", (-1, -0.02)), ("right", (0.02, 1)))
    ]


def ran(members: list[Party], rounds: int = 2, alpha: float | None = None) -> History:
    federation = Federation(members, PUBLIC)
    return federation.run(
        ensemble_distillation(aggregate=mean(), rounds=rounds, alpha=alpha), progress=False
    )


# --- the numbers, by hand -----------------------------------------------------------------------


def test_weights_fall_beyond_the_reach():
    """g = 1/2 min(1, r / 2)^8: at r = 0, 1, 2, 4 it is 0, 1/512, 1/2, 1/2."""
    choice, taught = Choice(own=0.5, reach=2.0), np.zeros((4, 1))
    found = choice.weights(np.array([0.0, 1.0, 2.0, 4.0]), taught)
    assert found.tolist() == [0, 1 / 512, 0.5, 0.5]
    mixed = choice.mixed(np.array([[4.0], [4.0]]), np.array([[0.0], [0.0]]), np.array([1.0, 3.0]))
    assert mixed.tolist() == [[4 / 512], [2.0]]
    everywhere = Choice(own=0.25, reach=0.0)
    assert everywhere.weights(np.array([0.0, 9.0]), taught[:2]).tolist() == [0.25, 0.25]


def test_weights_fall_where_the_taught_model_names_a_class_that_the_party_lacks():
    """Odds of the first class: 0.8 / 0.2 = 4 and 0.2 / 0.4 = 1/2; a sum of 0 counts as 0.001.

    With ratios of 1 and a reach of 1 the weight is min(1, odds)^8: 1 and 1/256.
    """
    taught = np.array([[0.8, 0.2], [0.2, 0.4], [1.0, 0.0]])
    assert class_odds(taught, (1.0, 0.0)) == pytest.approx([4, 0.5, 1000])
    choice = Choice(own=1.0, reach=1.0, familiar=(1.0, 0.0))
    assert choice.weights(np.ones(3), taught) == pytest.approx([1, 1 / 256, 1])
    assert class_odds(taught, ()).tolist() == [1, 1, 1]


def test_losses_of_rows():
    """−log 1/4 = log 4; a likelihood of 0 counts as 10⁻⁶; (1 − 3)² + (2 − 2)² = 4."""
    shares = np.array([[0.25, 0.75], [1.0, 0.0]])
    found = row_losses(shares, np.array([[1.0, 0.0], [0.0, 1.0]]), "classification")
    assert found == pytest.approx([np.log(4), np.log(1e6)])
    assert row_losses(np.array([[1.0, 2.0]]), np.array([[3.0, 2.0]]), "regression").tolist() == [4]


CANDIDATES = (Choice(1, 0), Choice(1, 1), Choice(1, 2), Choice(0.5, 0), Choice(0, 0))
VOICES = np.array([1.0, 0.6, 0.4, 0.5, 0.0])


@pytest.mark.parametrize(
    ("gains", "picked"),
    [
        # The taught model gains 3, with a standard error of √(2/3) / 2 = 0.41.
        ([[0, 0, 0, 1, 3], [0, 0, 0, 1, 2], [0, 0, 0, 1, 4], [0, 0, 0, 1, 3]], 4),
        # It gains 1 on average, by one row of four alone (error 3): it is not safe.
        ([[0, 0, -1, -1, 10], [0, 0, 0, -1, -2], [0, 0, 0, -1, -2], [0, 0, 0, -1, -2]], 1),
        # Nothing is lost by handing over more rows: the smaller voice of the two.
        ([[0, 0, 0, -1, -1]] * 4, 2),
        # Everything costs something, even as far as own rows reach: that is safe by itself.
        ([[0, -0.1, -1, -1, -1]] * 4, 1),
        # The mixture is best by far more than chance, though the taught model has the smaller voice.
        ([[0, 0, 0, 3, 1]] * 4, 3),
        # One calibration row proves nothing.
        ([[0, 0, -1, 5, 5]], 1),
    ],
)
def test_the_choice_that_is_safe(gains: list[list[float]], picked: int):
    losses = 10 - np.array(gains, dtype=float)
    assert safest(losses, VOICES, CANDIDATES) == picked


@pytest.mark.parametrize(("lost", "picked"), [(0.28, 2), (0.3, 1)])
def test_own_rows_may_lose_half_a_standard_error(lost: float, picked: int):
    """Losses alone are 0, 2, 0, 2: standard error (2 / √3) / 2 = 0.577, of which half is 0.289."""
    alone = np.array([0.0, 2.0, 0.0, 2.0])[:, None]
    assert safest(alone + np.array([0, 0, lost, 1, 1]), VOICES, CANDIDATES) == picked


def test_one_standard_error_is_asked_for():
    """Differences −1, −1, −4: mean −2, error √3 / √3 = 1; differences 1, −1, −3: mean −1, error 2/√3."""
    assert surely_lower(np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 4.0]))
    assert not surely_lower(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 3.0]))


# --- in a federation -----------------------------------------------------------------------------


def test_own_rows_are_kept_and_others_are_taught():
    history = ran(parties())
    own, everyone = history.metric("mse_own"), history.metric("mse")
    assert (own[-1] < 0.02).all()  # where the two stretches meet
    assert (ran(parties("taught")).metric("mse_own")[-1] > 5 * own[-1]).all()
    assert (everyone[-1] < 0.7 * everyone[0]).all()
    model = history.models["left"]
    assert isinstance(model, MixedModel) and [one.round for one in model.choices] == [1, 2]
    X = np.array([[-0.5], [0.5]])
    assert model.alone.predict(X)[:, 0] == pytest.approx([1.5, -1.5])
    assert model.predict(X)[0, 0] == pytest.approx(1.5, abs=0.05)
    assert model.predict(X)[1, 0] == pytest.approx(model.taught.predict(X)[1, 0])


def test_purposes():
    assert ran(parties("taught")).models["left"].alone is None
    everyone = ran(parties("everyone")).models["left"]
    assert isinstance(everyone, MixedModel)
    with pytest.raises(InvalidInput, match="purpose is 'mine'"):
        parties("mine")


def test_without_calibration_rows_own_rows_keep_their_model():
    history = ran(parties(calibration=0.0))
    model = history.models["right"]
    assert isinstance(model, MixedModel) and model.choices[-1].own == 1
    assert "no calibration rows" in str(model.choices[-1])
    assert (history.metric("mse_own")[-1] < 0.02).all()


def test_alpha_is_chosen_once_where_none_is_given_and_own_rows_lose():
    free = ran(parties(), rounds=2).models["left"]
    asked = ran(parties(), rounds=2, alpha=0.5).models["left"]
    assert isinstance(free, MixedModel) and isinstance(asked, MixedModel)
    assert {one.alpha for one in asked.choices} == {0.5}
    (alpha,) = {one.alpha for one in free.choices}
    assert alpha in (0.5, 0.8)


def test_what_a_mixed_model_cannot_predict_is_refused_and_a_gap_is_the_others():
    members = [
        Party(
            name,
            HistGradientBoostingRegressor(min_samples_leaf=2),
            *rows(*side),
            test=rows(-1, 1, 9),
        )
        for name, side in (("left", (-1, -0.02)), ("right", (0.02, 1)))
    ]
    model = ran(members, rounds=1).models["left"]
    assert isinstance(model, MixedModel) and model.choices[-1].reach > 0
    gap = np.array([[np.nan]])
    assert model.predict(gap).tolist() == model.taught.predict(gap).tolist()
    with pytest.raises(InvalidInput, match="features"):
        model.predict(np.zeros((2, 3)))


def test_a_pickled_model_says_the_same():
    model = ran(parties(), rounds=1).models["left"]
    X = np.linspace(-1, 1, 9)[:, None]
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert again.alone.predict(X).tolist() == model.alone.predict(X).tolist()


def test_the_state_keeps_the_model_trained_alone_and_the_choice(tmp_path: Path):
    party, other = parties()[0], parties()[0]
    network = LocalNetwork([party], Public(PUBLIC))
    agreement = Federation.over(network, Public(PUBLIC)).form()
    party.fit_private(1)
    party.distill(1, 3 * np.abs(PUBLIC), 0.5)
    party.home = other.home = tmp_path
    party.save("kept")
    party.save("again")  # shares the file of the model trained alone
    other.public = Public(PUBLIC)
    other.join(agreement)
    assert other.chooser is not None and other.chooser.alone is None
    other.restore("again")
    X = np.linspace(-1, 1, 9)[:, None]
    assert other.predict(X).tolist() == party.predict(X).tolist()
    assert party.chooser is not None and other.chooser.choices == party.chooser.choices
    assert read_choices(tmp_path / "again") == party.chooser.choices
    other.distill(2, 3 * np.abs(PUBLIC), 0.5)
    assert [one.round for one in other.chooser.choices] == [1, 2]


def test_a_party_that_is_taught_before_it_trained_alone_trains_alone_first():
    party = parties()[0]
    network = LocalNetwork([party], Public(PUBLIC))
    Federation.over(network, Public(PUBLIC)).form()
    network.ask(Distill(round=1, targets=3 * np.abs(PUBLIC), alpha=0.5))
    alone = party.model().alone
    assert alone is not None
    assert alone.predict(np.array([[-0.5]]))[0, 0] == pytest.approx(1.5)


@pytest.mark.parametrize("kind", ["wire", "processes"])
def test_every_network_gives_the_same_bits(kind: str):
    members = [
        Party("a", DecisionTreeRegressor(max_depth=3), *rows(-1, 0.2), test=rows(-1, 1, 20)),
        Party("b", KNeighborsRegressor(3), *rows(-0.2, 1), test=rows(-1, 1, 20)),
    ]
    protocol = ensemble_distillation(aggregate=mean(), rounds=2)
    plain = Federation(members, PUBLIC).run(protocol, progress=False)
    public = Public(PUBLIC)
    network = (
        LocalNetwork(members, public, wire=True)
        if kind == "wire"
        else ProcessNetwork(members, public, processes=2)
    )
    try:
        other = Federation.over(network, public).run(protocol, progress=False)
        assert other.metric("mse").tolist() == plain.metric("mse").tolist()
        X = np.linspace(-1, 1, 9)[:, None]
        for name, model in plain.models.items():
            assert other.models[name].predict(X).tolist() == model.predict(X).tolist()
    finally:
        network.close()
