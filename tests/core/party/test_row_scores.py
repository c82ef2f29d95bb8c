"""What a party says of public rows beside predictions: by what, how often, and what is shared."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB

from consilience import Party
from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.messages.schema import Public
from consilience.core.numerics.calibration import Calibration
from consilience.core.party import row_scores
from consilience.core.party import shared_space as spaces
from consilience.core.party.rules import PartyRules
from consilience.core.tasks.lifecycle import Describe
from consilience.core.tasks.predictions import PredictPublic
from consilience.core.tasks.scores import (
    CompareCoarsely,
    CompareInputs,
    ComparePublic,
    ScorePublic,
    SumCalibration,
)
from consilience.methods.comparison_rules import membership
from consilience.methods.comparison_rules.tasks import SelectPublic
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.privacy.accounting.privacy_of import privacy_of
from helpers.party_rules import set_public_rules
from helpers.stub_models import Share

X = np.random.default_rng(0).normal(size=(20, 2))
Y = np.arange(20) % 2
TYPICAL = ScorePublic(round=1)
SURE = ScoreCertainty(round=1, regularization=0.1, epsilon=None, delta=1e-5)
NOISY = ScoreCertainty(round=1, regularization=0.1, epsilon=0.5, delta=1e-5)
CHOICE = SelectPublic(round=1, quantile=0.25, reference="uniform")
RATIOS = ComparePublic(round=1, ridge=0.3)
COARSE = CompareCoarsely(round=1)


def joined(model=None, y=Y, public=None, **more) -> Party:
    party = Party("a", Share() if model is None else model, X, y, **more)
    party.hold_public(Public(X) if public is None else public)
    party.join(negotiate([Describe().run(party)], party.public))
    return party


def spent(party: Party) -> float:
    """ε of all that certainties have cost, for a replaced row."""
    loss = privacy_of(party).accountant.spent
    assert loss.adjacency == "replace"
    return loss.epsilon(1e-5)


def fitted(party: Party) -> Party:
    party.trainer.fit_private(1)
    return party


def test_densities_fall_back_to_training_rows():
    assert TYPICAL.run(fitted(joined(calibration=0.0))).notes == (
        "fewer than two calibration rows for 2 of 2 classes: "
        "the density is fitted to the training rows",
    )
    assert TYPICAL.run(fitted(joined(calibration=0.2))).notes == ()


def test_a_party_that_gives_no_exact_ratios_gives_no_density_of_training_rows():
    """Else the density and the logits give the features of a row that is the only one of its class."""
    party = fitted(joined(calibration=0.0, rules=PartyRules(density_ratios="none")))
    with pytest.raises(InvalidInput, match="fewer than two calibration rows"):
        TYPICAL.run(party)


def test_a_class_with_one_calibration_row_has_no_width():
    """Of 10 rows of each class a fifth is two; of 4, one: too few to fit its component to."""
    rows = np.arange(14.0)[:, None]
    party = Party("a", GaussianNB(), rows, list("x" * 10 + "y" * 4))
    party.hold_public(Public(rows))
    party.join(negotiate([Describe().run(party)], party.public))
    said = TYPICAL.run(fitted(party))
    assert said.notes == (
        "fewer than two calibration rows for 1 of 2 classes: "
        "the density is fitted to the training rows",
    )
    assert np.isfinite(said.values).all()


@pytest.mark.parametrize("task", [SURE, NOISY, CHOICE, RATIOS, COARSE])
def test_what_inputs_say_is_said_once(task, tmp_path):
    """The same in every round, also after a restart, and without a model."""
    party = joined()
    party.keep_states_in(tmp_path)
    first = task.run(party).values
    task.run(party).validate(party="a", task=task, agreement=party.agreement)
    np.testing.assert_array_equal(task.run(party).values, first)
    party.trainer.fit_private(1)
    party.save("x", keep="x")
    again = joined()
    again.keep_states_in(tmp_path)
    again.restore("x")
    np.testing.assert_array_equal(task.run(again).values, first)


def test_noise_does_not_come_from_the_seed():
    """The coordinator knows the seed, and could take such noise away again."""
    one, two = (NOISY.run(joined()).values for _ in range(2))
    assert not np.array_equal(one, two)
    exact = [SURE.run(joined()).values for _ in range(2)]
    np.testing.assert_array_equal(*exact)
    assert not np.array_equal(one, exact[0])


def test_noise_is_on_all_rows_whichever_are_left_out(monkeypatch):
    """Which rows are copies of public ones hangs on other rows, so that one row could move many."""
    seen, used, certainties = [], [], membership.certainties
    spy = lambda own, *rest, **more: (seen.append(len(own)), certainties(own, *rest, **more))[1]  # noqa: E731
    monkeypatch.setattr(membership, "certainties", spy)
    for share in (0, 4):
        near = np.concatenate([X[:share], 1 - X[share:] / 2])
        party = Party("a", Share(), X, Y, calibration=0)
        set_public_rules(party, overlap=False)
        party.hold_public(Public(near))
        party.join(negotiate([Describe().run(party)], party.public))
        NOISY.run(party)
        used.append(len(party.trainer.rows.used[0]))
    assert used[1] < used[0] and seen == [len(X), len(X)]


def test_other_options_are_another_question():
    party = joined()
    strict = SelectPublic(round=1, quantile=0.9, reference="uniform")
    assert CHOICE.run(party).values.sum() > strict.run(party).values.sum()


def test_without_calibration_rows_training_rows_set_what_is_selected():
    assert CHOICE.run(joined()).notes == ()
    (note,) = CHOICE.run(joined(calibration=0)).notes
    assert note == "no calibration rows: the training rows set what is selected"


def test_a_party_remembers_noise_alone():
    """All else is computed anew after a restart."""
    party = joined()
    for task in (SURE, CHOICE, RATIOS):
        task.run(party)
    assert party.trainer.memory.arrays == privacy_of(party).accountant.arrays() == {}
    said = NOISY.run(party).values
    (kept,) = privacy_of(party).accountant.arrays().values()
    np.testing.assert_array_equal(kept.astype(np.float32), said)


def test_noise_is_drawn_once_for_good():
    """Neither joining again, nor restoring, nor a protocol that begins anew, has it drawn anew."""
    party = joined()
    said = NOISY.run(party).values
    party.trainer.memory.replace({})
    party.join(party.agreement)
    np.testing.assert_array_equal(NOISY.run(party).values, said)
    assert spent(party) == pytest.approx(0.5)
    other = ScoreCertainty(round=1, regularization=0.1, epsilon=0.25, delta=1e-5)
    assert not np.array_equal(other.run(party).values, said)
    assert spent(party) == pytest.approx(0.5721, rel=1e-3), "another question spends anew"


def test_a_checkpoint_brings_noise_back_and_takes_none_away(tmp_path):
    party = joined()
    party.keep_states_in(tmp_path)
    party.trainer.fit_private(1)
    party.save("before", keep="before")
    said = NOISY.run(party).values
    party.save("after", keep="before")
    party.restore("before")
    np.testing.assert_array_equal(NOISY.run(party).values, said)
    privacy_of(party).accountant.clear()
    party.restore("after")
    np.testing.assert_array_equal(NOISY.run(party).values, said)


def test_answers_to_ever_other_questions_do_not_pile_up():
    party = joined()
    for i in range(40):
        ComparePublic(round=1, ridge=0.3 + i).run(party)
    assert (
        len(party.trainer.scores._computed)
        == len(party.trainer.scores._common._ratios)
        == spaces._MOST_KEPT
    )


def test_parties_share_one_space_as_long_as_there_are_public_rows(monkeypatch):
    """Made once for both parties and all that they say by inputs; another seed draws other patches."""
    gc.collect()
    made = []

    def counted(*given):
        made.append(given)
        return public_feature_space(*given)

    public_feature_space = spaces.public_feature_space
    monkeypatch.setattr(spaces, "public_feature_space", counted)
    public, before = Public(X[:9]), len(spaces._COMMON)
    parties = [joined(public=public) for _ in range(2)]
    for party in parties:
        for task in (SURE, CHOICE, RATIOS):
            task.run(party)
    assert len(made) == 1 and len(spaces._COMMON) == before + 1
    parties[0].join(negotiate([Describe().run(parties[0])], public, seed=1))
    SURE.run(parties[0])
    assert len(made) == 2
    del public, party, parties
    gc.collect()
    assert len(spaces._COMMON) == before


@pytest.mark.parametrize("task", [RATIOS, COARSE])
def test_values_have_no_density_ratios(task):
    with pytest.raises(InvalidInput, match="density ratios are of classes, it has none"):
        task.run(joined(LinearRegression(), y=X[:, 0]))


def test_for_which_public_rows_coarse_ratios_were_said_is_kept():
    """Noise that was drawn is counted apart from it."""
    party = joined()
    privacy_of(party)  # a party whose owner counts nothing has none
    for public in (Public(X), Public(X[:9]), Public(X)):
        party.hold_public(public)
        party.join(negotiate([Describe().run(party)], public))
        COARSE.run(party)
    assert privacy_of(party).accountant.count(row_scores.COMPARED_SETS) == 2
    NOISY.run(party)
    assert spent(party) == pytest.approx(0.5)


def test_a_coarseness_is_one():
    with pytest.raises(InvalidInput, match=r"rules: density_ratios is \{'unit': 1\}"):
        PartyRules(density_ratios={"unit": 1})


# --- what the rule that chooses itself asks for ----------------------------------------------------------


def test_ratios_are_of_the_rows_trained_on_which_stand_for_all():
    """Ratios are linear in the rows: of those trained on alone, and of the held-out ones for themselves."""
    party = joined()
    whole, held_out = (
        ComparePublic(round=1, ridge=0.3, calibration=part).run(party).values
        for part in (False, True)
    )
    scores = party.trainer.scores
    (train, targets), (X, y) = scores.rows.train, scores.rows.held_out
    ratio = scores.space.ratio(0.3)
    each = ratio(scores.space.features(train), targets)
    share = (len(train) + len(X)) / len(train)
    np.testing.assert_allclose(whole, share * each, atol=1e-5)
    np.testing.assert_allclose(held_out, ratio(scores.space.features(X), y), atol=1e-5)
    inputs = CompareInputs(round=1, ridge=0.3).run(party).values
    np.testing.assert_allclose(inputs, whole.sum(axis=1), atol=1e-5)


def test_calibration_rows_are_counted_at_the_nearest_public_row():
    """Public rows 0 and 10; calibration rows of both classes lie next to 0, and next to 10 those of y."""
    rows = np.array([0.0, 0.1, 0.2, 1.0, 9.0, 9.1, 9.2, 9.9, 10.1, 9.8])[:, None]
    party = Party("a", Share(), rows, list("xyxyyyyyyy"), calibration=0.5)
    party.hold_public(Public(np.array([[0.0], [10.0]])))
    party.join(negotiate([Describe().run(party)], party.public))
    X, targets = party.trainer.rows.held_out
    said = SumCalibration(round=1).run(party)
    near = X[:, 0] < 5
    np.testing.assert_array_equal(
        said.values, [targets[near].sum(axis=0), targets[~near].sum(axis=0)]
    )
    assert said.values.sum() == 5 and said.notes == ()


def test_values_are_summed_and_counted():
    party = Party("a", LinearRegression(), np.zeros((10, 1)), np.arange(10.0), calibration=0.3)
    party.hold_public(Public(np.array([[0.0], [9.0]])))
    party.join(negotiate([Describe().run(party)], party.public))
    said = SumCalibration(round=1).run(party).values
    assert said.tolist() == [[3.0, party.trainer.rows.held_out[1].sum()], [0.0, 0.0]]


def test_without_calibration_rows_it_has_no_say():
    said = SumCalibration(round=1).run(joined(calibration=0))
    assert not said.values.any() and "no calibration rows" in said.notes[0]


def test_texts_are_nearest_by_the_words_that_they_share():
    """A public text without known words is at a distance of 1 from all, and nobody's neighbour."""
    texts = np.array(["red apple pie", "blue sea wave"] * 5, dtype=object)
    party = Party("a", Share(), texts, ["x", "y"] * 5, calibration=0.4)
    party.hold_public(Public(np.array(["a", "an apple a day", "wave on wave"], dtype=object)))
    party.join(negotiate([Describe().run(party)], party.public))
    assert SumCalibration(round=1).run(party).values.tolist() == [[0, 0], [2, 0], [0, 2]]


def test_predictions_calibrated_by_the_party():
    """By what its calibration rows say, for probabilities and for logits."""
    party = fitted(joined(y=np.array(["x"] * 16 + ["y"] * 4)))
    raw = PredictPublic(round=1).run(party).values
    calibrated = PredictPublic(round=1, calibrated=True).run(party).values
    known = Calibration.fit(
        party.trainer.learner.logits(party.trainer.rows.held_out[0]),
        party.trainer.rows.held_out[1],
    )
    np.testing.assert_allclose(
        calibrated,
        softmax(known.of(party.trainer.learner.logits(party.public.X)), axis=1),
        atol=1e-6,
    )
    assert not np.array_equal(raw, calibrated)
    logits = PredictPublic(round=1, outputs="logits", calibrated=True).run(party).values
    np.testing.assert_allclose(softmax(logits, axis=1), calibrated, atol=1e-6)


def test_a_balanced_model_says_the_partys_class_shares_again():
    """Inputs say nothing; 90 % of rows are x. Balanced it says ½, calibrated 0.9, a little held back."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(500, 1)), np.where(np.arange(500) % 10 == 0, "y", "x")
    party = Party("a", LogisticRegression(class_weight="balanced"), rows, labels)
    party.hold_public(Public(rows[:50]))
    party.join(negotiate([Describe().run(party)], party.public))
    party.trainer.fit_private(1)
    raw, calibrated = (
        PredictPublic(round=1, calibrated=calibrated).run(party).values[:, 0].mean()
        for calibrated in (False, True)
    )
    assert raw == pytest.approx(0.5, abs=0.05)
    assert calibrated == pytest.approx(0.9, abs=0.03)


def test_values_are_not_calibrated():
    with pytest.raises(InvalidInput, match="values are not calibrated"):
        PredictPublic(round=1, outputs="values", calibrated=True)
