"""A party's choice between the model trained alone and the taught one."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from consilience import Federation, Party, ensemble_distillation, mean
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.federation.history import History
from consilience.core.messages.schema import Public
from consilience.core.networks import LocalNetwork, ProcessNetwork
from consilience.core.numerics.losses import row_losses
from consilience.core.numerics.outcomes import Classes
from consilience.core.party.mixed_model import Choice, MixedModel, OwnRegion, class_odds
from consilience.core.party.personalizer import Purpose, stands_still, surely_best, surely_lower
from consilience.core.party.shared_space import SharedSpace
from consilience.core.party.state import read_choices
from consilience.core.party.trainer import Teaching, Trainer
from consilience.core.tasks.predictions import Distill

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
            test=(*test, (np.sign(test[0][:, 0]) == np.sign(sum(side))).astype(float)),
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
    """g = min(1, r / 2): at r = 0, 1, 2, 4 it is 0, 1/2, 1, 1; half of it is the model trained alone's."""
    choice, taught = Choice(own=0.5, reach=2.0), np.zeros((4, 1))
    found = choice.near(np.array([0.0, 1.0, 2.0, 4.0]), taught)
    assert found.tolist() == [0, 0.5, 1, 1]
    mixed = choice.mixed(np.array([[4.0], [4.0]]), np.array([[0.0], [0.0]]), np.array([1.0, 3.0]))
    assert mixed.tolist() == [[1.0], [2.0]]
    everywhere = Choice(own=0.25, reach=0.0)
    assert everywhere.near(np.array([0.0, 9.0]), taught[:2]).tolist() == [1, 1]


def test_weights_fall_where_the_taught_model_names_a_class_that_the_party_lacks():
    """Odds of the first class: 0.8 / 0.2 = 4 and 0.2 / 0.4 = 1/2; a sum of 0 counts as 0.001.

    With ratios of 1 and a reach of 1 the weight is min(1, odds): 1 and 1/2.
    """
    taught = np.array([[0.8, 0.2], [0.2, 0.4], [1.0, 0.0]])
    assert class_odds(taught, (1.0, 0.0)) == pytest.approx([4, 0.5, 1000])
    choice = Choice(own=1.0, reach=1.0, familiar=(1.0, 0.0))
    assert choice.near(np.ones(3), taught) == pytest.approx([1, 0.5, 1])
    assert class_odds(taught, ()).tolist() == [1, 1, 1]


def test_where_own_rows_lie_the_taught_model_is_corrected_for_a_class_without_any():
    """0.2 and 0.8 become 0.2 and 0.25 · 0.8 = 0.2, so 1/2 and 1/2; with half of 1 and 0: 3/4 and 1/4.

    Odds of 0.2 / 0.8 times a ratio of 2 are 1/2, within a reach of 1/2; a ratio of 1 is half as near, and
    half taught: (3/4 + 0.2) / 2. One below the least counts as that, and a gap, 0, is the taught model's.
    """
    choice = Choice(own=0.5, reach=0.5, familiar=(1.0, 0.0), rare=0.25, least=1.0)
    alone, taught = np.tile([1.0, 0.0], (4, 1)), np.tile([0.2, 0.8], (4, 1))
    found = choice.mixed(alone, taught, np.array([2.0, 1.0, 0.1, 0.0]))
    assert found[:, 0] == pytest.approx([0.75, 0.475, 0.475, 0.2])
    assert found.sum(axis=1) == pytest.approx([1, 1, 1, 1])


def test_a_party_that_lacks_a_class_begins_with_three_quarters_of_its_own_voice():
    """None of its 18 rows is of the other class, so that at most 1 in 20 to come is."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    X[:, 0] += 3 * y
    held = {"two": np.flatnonzero(y < 2)[:18], "three": np.arange(60)}

    def chosen(purpose: Purpose) -> Choice:
        parties = [
            Party(name, GaussianNB(), X[rows], y[rows], calibration=0.0, purpose=purpose)
            for name, rows in held.items()
        ]
        federation = Federation(parties, X, strict=False)
        found = federation.run(ensemble_distillation(rounds=1), progress=False).models["two"]
        assert isinstance(found, MixedModel)
        return found.choices[-1]

    one = chosen("own")
    assert (one.own, one.rare, one.least) == (0.75, 0.05, pytest.approx(1 / 20))
    assert 0 < one.reach <= one.least
    assert chosen("everyone").rare == 1


def test_nobody_lacks_a_class_that_nobody_has():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    members = [
        Party(name, GaussianNB(), X[rows], y[rows], outcome=Classes(["0", "1", "2"]))
        for name, rows in (("a", slice(0, 30)), ("b", slice(30, 60)))
    ]
    found = Federation(members, X, strict=False).run(
        ensemble_distillation(rounds=1), progress=False
    )
    choice = found.models["a"].choices[-1]
    assert (choice.familiar, choice.rare) == ((), 1)


@pytest.mark.parametrize("losses", [(1.0,), (1.0, 2.0, np.nan)])
def test_a_choice_has_three_losses_or_none(losses: tuple[float, ...]):
    with pytest.raises(InvalidInput, match="losses"):
        Choice(own=1.0, reach=0.0, losses=losses)


def test_a_ratio_of_own_rows_is_computed_from_the_others():
    """Without its own part, tenths of the rows in turn; scaled to as many rows as there are."""
    space, X = SharedSpace(Public(PUBLIC), 0), rows(-1, 0.5, 25)[0]
    found = OwnRegion.of(space, X).among_themselves(X)
    for row in (0, 7, 24):
        others = X[np.arange(25) % 10 != row % 10]
        alone = OwnRegion.of(space, others)(X[[row]]) * 25 / len(others)
        assert found[row] == pytest.approx(alone[0])
    assert OwnRegion.of(space, X[:1]).among_themselves(X[:1]).tolist() == [0.001]


def test_losses_of_rows():
    """−log 1/4 = log 4; a likelihood of 0 counts as 10⁻¹²; (1 − 3)² + (2 − 2)² = 4; half and half log 2."""
    shares = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    targets = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.7]])
    found = row_losses(shares, targets, "classification")
    assert found == pytest.approx([np.log(4), np.log(1e12), np.log(2)])
    assert row_losses(np.array([[1.0, 2.0]]), np.array([[3.0, 2.0]]), "regression").tolist() == [4]


@pytest.mark.parametrize(
    ("gains", "picked"),
    [
        # The even mixture gains 3, with a standard error of √(2/3) / 2 = 0.41.
        ([[0, 3, 1], [0, 2, 1], [0, 4, 1], [0, 3, 1]], 1),
        # It gains 1 on average, by one row of four alone (error 3): chance. The other one surely gains 0.5.
        ([[0, 10, 0.5], [0, -2, 0.5], [0, -2, 0.5], [0, -2, 0.5]], 2),
        ([[0, 10, -1], [0, -2, -1], [0, -2, -1], [0, -2, -1]], 0),
        # The first one, which is safe by itself, gains most.
        ([[2, 1, 1]] * 4, 0),
        # One calibration row proves nothing.
        ([[0, 5, 5]], 0),
    ],
)
def test_own_rows_are_left_to_the_model_trained_alone_until_calibration_rows_show_a_gain(
    gains: list[list[float]], picked: int
):
    alone = np.full((len(gains), 3), 10.0)
    assert surely_best(alone - np.array(gains), alone) == picked


def test_a_teacher_stands_still_up_to_a_twentieth():
    """A row of two moves by 0.08 of probability, the other not: 0.04 in the mean, and 0.06 of 0.12.

    Values of −1 and 1, whose standard deviation is 1, move by 0.04, and by 0.06.
    """
    shares = np.array([[0.5, 0.5], [1.0, 0.0]])
    for by, still in ((0.08, True), (0.12, False)):
        assert (
            stands_still(shares, shares + np.array([[by, -by], [0, 0]]), "classification") is still
        )
    values = np.array([[-1.0], [1.0]])
    assert stands_still(values, values + 0.04, "regression")
    assert not stands_still(values, values + 0.06, "regression")
    assert not stands_still(values[:1], values, "regression")


def test_a_model_that_starts_anew_is_not_fitted_again_while_the_teacher_stands_still():
    party = parties()[0]
    Federation([party], PUBLIC).form()
    party.trainer.fit_private(1)
    teacher = 3 * np.abs(PUBLIC)
    for round, (by, alpha) in enumerate([(0.0, True), (0.01, True), (0.02, False)], start=1):
        before = party.trainer.outputs("values")
        assert not party.trainer.distill(Teaching(round, teacher + by, 0.5, free_alpha=alpha))
        assert np.array_equal(party.trainer.outputs("values"), before) is (round == 2)
    assert [one.round for one in party.trainer.chooser.choices] == [1, 2, 3]


def test_half_a_standard_error_is_asked_for():
    """Of three differences 0, 0, 3 the mean is 1 and its error 1, where half of one is 0.556 by Student's t.

    Of −1, −1, 3 they are 0.33 and 1.33: half of that is more. Of 100 differences the quantile is 0.501: with
    an error of 0.1 a mean of 0.05 falls short, and 0.051 suffices.
    """
    assert surely_lower(np.zeros(3), np.array([0.0, 0.0, 3.0]))
    assert not surely_lower(np.zeros(3), np.array([-1.0, -1.0, 3.0]))
    spread = np.repeat([-1.0, 1.0], 50) * np.sqrt(0.99)
    assert surely_lower(np.zeros(100), spread + 0.051)
    assert not surely_lower(np.zeros(100), spread + 0.05)


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
    assert model.predict(X)[1, 0] == pytest.approx(model.taught.predict(X)[1, 0], abs=0.02)


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


@pytest.mark.parametrize(("served", "expected"), [(False, [0.1, 0.5]), (True, [0.1, 0.5, 0.8])])
def test_a_larger_alpha_is_tried_where_the_one_before_served(served, expected, monkeypatch):
    party, refit, tried = parties()[0], Trainer._refit, []
    Federation([party], PUBLIC).form()
    monkeypatch.setattr(Trainer, "_refit", lambda *given: (tried.append(given[-1]), refit(*given)))
    monkeypatch.setattr(
        "consilience.core.party.trainer.surely_lower", lambda losses, others: served
    )
    party.trainer.distill(
        Teaching(1, 3 * np.abs(PUBLIC) + 5, 0.1, free_alpha=True)
    )  # a teacher that is wrong
    assert tried == expected


def test_what_a_mixed_model_cannot_predict_is_refused_and_a_gap_lies_at_the_public_median():
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
    gap, middle = np.array([[np.nan]]), np.array([[np.median(PUBLIC)]])
    both = model.alone.outputs(gap), model.taught.outputs(gap)
    expected = model.choices[-1].mixed(*both, model.region(middle))
    assert model.predict(gap).tolist() == expected.tolist()
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
    agreement = federation_over(network, Public(PUBLIC)).form()
    party.trainer.fit_private(1)
    party.trainer.distill(Teaching(1, 3 * np.abs(PUBLIC), 0.5))
    party.keep_states_in(tmp_path)
    other.keep_states_in(tmp_path)
    party.save("kept", keep="kept")
    party.save("again", keep="again")  # shares the file of the model trained alone
    other.hold_public(Public(PUBLIC))
    other.join(agreement)
    assert other.trainer.chooser is not None and other.trainer.chooser.alone is None
    other.restore("again")
    X = np.linspace(-1, 1, 9)[:, None]
    assert other.trainer.predict(X).tolist() == party.trainer.predict(X).tolist()
    assert (
        party.trainer.chooser is not None
        and other.trainer.chooser.choices == party.trainer.chooser.choices
    )
    assert read_choices(tmp_path / "again") == party.trainer.chooser.choices
    other.trainer.distill(Teaching(2, 3 * np.abs(PUBLIC), 0.5))
    assert [one.round for one in other.trainer.chooser.choices] == [1, 2]


def test_the_unit_of_a_target_decides_nothing() -> None:
    """Of two targets, in metres both or one in millimetres: the choice is the same."""

    def chosen(unit: float) -> list[tuple[float, float]]:
        scale, rng = np.array([1.0, unit]), np.random.default_rng(1)
        members = []
        for name, side in (("left", (-1, -0.02)), ("right", (0.02, 1))):
            X, y = rows(*side)
            both = np.stack([y, rng.normal(size=len(X))], axis=1) * scale
            members.append(Party(name, LinearRegression(), X, both, test=(X, both)))
        federation = Federation(members, PUBLIC)
        federation.run(ensemble_distillation(aggregate=mean(), rounds=1), progress=False)
        last = [
            one.trainer.chooser.choices[-1] for one in members if one.trainer.chooser is not None
        ]
        return [(one.own, round(one.counted, 6)) for one in last]

    assert chosen(1.0) == chosen(1000.0)


def test_a_state_shares_the_file_of_the_model_trained_alone(tmp_path: Path) -> None:
    """It never changes: the second state links to the first one's file."""
    first, _ = members = parties()
    ran(members, rounds=1)
    first.keep_states_in(tmp_path)
    for label in ("one", "two"):
        first.save(label, keep="one")
    (file,) = (tmp_path / "two").glob("alone*")
    assert file.samefile(tmp_path / "one" / file.name)


def test_a_party_that_is_taught_before_it_trained_alone_trains_alone_first():
    party = parties()[0]
    network = LocalNetwork([party], Public(PUBLIC))
    federation_over(network, Public(PUBLIC)).form()
    network.ask(Distill(round=1, targets=3 * np.abs(PUBLIC), alpha=0.5))
    alone = party.trainer.model().alone
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
        else ProcessNetwork(members, public, processes=1)
    )
    try:
        other = federation_over(network, public).run(protocol, progress=False)
        assert other.metric("mse").tolist() == plain.metric("mse").tolist()
        X = np.linspace(-1, 1, 9)[:, None]
        for name, model in plain.models.items():
            assert other.models[name].predict(X).tolist() == model.predict(X).tolist()
    finally:
        network.close()


def test_a_fit_that_failed_is_made_again_by_the_same_teacher(monkeypatch: pytest.MonkeyPatch):
    """Else the model would stay as it was before, and the round count as taught."""
    party = parties()[0]
    Federation([party], PUBLIC).form()
    party.trainer.fit_private(1)
    teacher = 3 * np.abs(PUBLIC)
    party.trainer.distill(Teaching(1, teacher, 0.5, free_alpha=True))
    before = party.trainer.outputs("values")

    def fails(*args: object, **options: object) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(type(party.trainer.learner), "fit", fails)
        with pytest.raises(RuntimeError):
            party.trainer.distill(Teaching(2, teacher + 9, 0.5, free_alpha=True))
    party.trainer.distill(Teaching(3, teacher + 9, 0.5, free_alpha=True))
    assert not np.array_equal(party.trainer.outputs("values"), before)


def test_an_untrained_state_is_restored_untrained(tmp_path: Path):
    party = parties()[0]
    Federation([party], PUBLIC).form()
    party.keep_states_in(tmp_path)
    party.save("untrained", keep="untrained")
    party.trainer.fit_private(1)
    party.restore("untrained")
    assert not party.trainer.learner.fitted
