"""Lies of a simulation: each by hand, and as they arrive."""

from __future__ import annotations

import numpy as np
import pytest

from consilience import auto, avg, ensemble_distillation
from consilience.core.checks import classifiers
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions
from consilience.core.messages.scores import DensityRatios, Score
from consilience.core.protocols.base import score_questions
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.methods.compression.codec import float16
from consilience.privacy.robust.hostile import ATTACKS, Hostile, HostileNetwork, Scene

HONEST = np.array(
    [[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], [[0.4, 0.5, 0.1], [0.1, 0.7, 0.2]]],
)
OWN = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
SCENE = Scene(
    HONEST,
    OWN,
    share=0.5,
    backdoor=np.array([False, True]),
    rng=np.random.default_rng(0),
    shared=np.random.default_rng(0),
    truth=np.array([0, 2]),
    claims=np.array([[[1.0, 0.2, 0.0], [0.0, 0.1, 0.5]], [[1.0, 0.1, 0.0], [0.2, 0.0, 0.0]]]),
)
"""The honest mean is (0.5, 0.4, 0.1) and (0.15, 0.6, 0.25); the second row is of the turned class."""

BY_HAND = {
    "constant": [[1, 0, 0], [1, 0, 0]],
    "flipped": [[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]],
    "second-class": [[0, 1, 0], [0, 0, 1]],
    "lma": [[0, 0, 1], [1, 0, 0]],
    "hips": [HONEST[0, 0], HONEST[1, 1]],  # harms of 0.7188 > 0.7187 and 0.9429 < 0.9433
    "alie": [[0.35 / 0.7, 0.25 / 0.7, 0.1 / 0.7], [0.075 / 0.7, 0.45 / 0.7, 0.175 / 0.7]],
    "backdoor": [[0.7, 0.2, 0.1], [1, 0, 0]],
    "sybil": HONEST[0],
    "oblivious": [[1, 0, 0], [1, 0, 0]],
    "quiet": [[0.7, 0.2, 0.1], [1, 0, 0]],
    "threader": [[1, 0, 0], [1, 0, 0]],
    "ratios": OWN,
    "framer": [[0.7, 0.2, 0.1], [1, 0, 0]],  # 1.2 x 0.98 of the 1.55 rows that it may claim
    "no-claims": [[0, 1, 0], [0, 0, 1]],
}


@pytest.mark.parametrize("attack", BY_HAND)
def test_lies_by_hand(attack):
    np.testing.assert_allclose(ATTACKS[attack].predicts(SCENE), BY_HAND[attack], atol=1e-9)


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_lie_is_a_distribution_and_arrives(attack):
    values = ATTACKS[attack].predicts(SCENE)
    assert values.min() >= 0
    np.testing.assert_allclose(values.sum(axis=1), 1)
    network = lying(attack, parties=("birch",))
    replies = network.ask(PredictPublic(round=1))
    assert replies.parties == network.parties  # nothing is refused
    assert network.liars == ("birch",)


def lying(attack: str, **options) -> HostileNetwork:
    """A network of parties that are trained, with what ``auto`` asks for asked."""
    parties, public = classifiers()
    network = HostileNetwork(parties, public, hostile=Hostile(attack=attack, **options), seed=0)
    federation_over(network, public, seed=0).form()
    network.claims = network.ask(
        FitPrivate(round=1), *score_questions(auto(), round=1, static=True)
    )
    return network


def test_claims():
    """Of a million rows everywhere; of the usual number where rows are cheap, which it then turns."""
    everywhere = lying("claims-everywhere", parties=("birch",)).claims.of(DensityRatios)
    assert everywhere[1].values.min() == 1e6
    greedy = lying("greedy", parties=("birch",))
    claims = [np.maximum(one.values, 0) for one in greedy.claims.of(DensityRatios)]
    honest = [one.sum() for one in (claims[0], *claims[2:])]
    assert 0 < claims[1].sum() <= np.median(honest) * (1 + 1e-6)
    said = greedy.ask(PredictPublic(round=1)).of(Predictions)[1].values
    bought = claims[1].any(axis=1)
    np.testing.assert_array_equal(said[bought].argmax(axis=1), claims[1][bought].argmax(axis=1))


def test_a_sleeper_is_honest_at_first():
    network = lying("sleeper", parties=("birch",), after=1)
    first, second = (
        network.ask(PredictPublic(round=number)).of(Predictions)[1].values for number in (1, 2)
    )
    assert (first.max(axis=1) < 1).any()
    assert (second.max(axis=1) == 1).all()


def test_logits_are_lied_about_too():
    network = lying("lma", parties=("birch",))
    said = network.ask(PredictPublic(round=1, outputs="logits")).of(Predictions)[1].values
    np.testing.assert_allclose(np.sort(said, axis=1)[:, 0], np.log(1e-6), rtol=1e-5)


def test_liars_are_drawn_by_the_seed_or_named():
    names = ("ash", "birch", "cedar", "damson")
    drawn = Hostile(attack="lma", parties=2)
    assert drawn.liars(names, 0) == drawn.liars(names, 0)
    assert len({drawn.liars(names, seed) for seed in range(20)}) > 1
    for wrong, said in ((("oak",), "no party is called"), (4, "nobody would be honest")):
        with pytest.raises(InvalidInput, match=said):
            Hostile(attack="lma", parties=wrong).liars(names, 0)
    with pytest.raises(ValueError, match="no attack is called 'lna'"):
        Hostile(attack="lna")


def test_compressed_replies_cannot_be_replaced():
    parties, public = classifiers()
    network = HostileNetwork(parties, public, hostile=Hostile(attack="lma"), seed=0)
    protocol = ensemble_distillation(rounds=1, aggregate=avg(), codec=float16())
    with pytest.raises(InvalidInput, match="compressed"):
        list(federation_over(network, public, seed=0).rounds(protocol))


def test_scores_without_classes_are_claimed_at_their_most():
    network = lying("claims-everywhere", parties=("birch",))
    from consilience import certainty_weighted, uwa

    for rule in (certainty_weighted(), uwa()):
        asked = score_questions(rule, round=1, static=rule.name == "certainty")
        given = network.ask(*asked).of(Score)
        assert given[1].values.min() >= max(one.values.max() for one in given)
