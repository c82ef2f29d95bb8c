"""Rules of other papers on parties whose densities are known.

Public rows follow N(0, 1) in one dimension, party a N(-1, 1) and b N(1, 1), so that log p_a / p_public is
-x - 1/2 and log p_b / p_public is x - 1/2: linear, as a logistic regression has them.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, Party, density_ratio, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import Public
from consilience.core.tasks.lifecycle import Describe
from consilience.core.tasks.scores import ComparePublic, CountRows
from consilience.methods.comparison_rules.rivals import dafkd, fedd3a, fedgo, ratios_alone
from consilience.methods.comparison_rules.scores import SubspaceLikeness
from consilience.methods.comparison_rules.tasks import MeasureAngles, TellApart
from consilience.models import make
from helpers.replies import replies

RNG = np.random.default_rng(0)
PUBLIC = Public(RNG.normal(size=(3000, 1)))
MEANS, ROWS = {"a": -1.0, "b": 1.0}, {"a": 4000, "b": 1000}
INNER = np.abs(PUBLIC.X[:, 0]) < 2
"""Public rows that are not cut in the shared space, which ends at three standard deviations."""


def joined(name: str, X: np.ndarray, y: np.ndarray, public: Public = PUBLIC) -> Party:
    party = Party(name, make("tfidf-logistic") if X.dtype.kind == "U" else GaussianNB(), X, y)
    party.hold_public(public)
    party.join(negotiate([Describe().run(party)], public))
    return party


@pytest.fixture(scope="module")
def parties() -> list[Party]:
    """Labels are the sign of x, and noise in every tenth row so that both have both."""
    made = []
    for name, mean in MEANS.items():
        X = RNG.normal(mean, 1, size=(ROWS[name], 1))
        made.append(joined(name, X, (X[:, 0] > 0) ^ (RNG.random(len(X)) < 0.1)))
    return made


def weights_of(rule, parties, task) -> np.ndarray:
    """Weights of a rule on inner public rows, where parties send the scores and anything else besides."""
    answers = {}
    for party in parties:
        values = np.full((len(PUBLIC.X), 2), 0.5, dtype=np.float32)
        kind = rule.outputs
        said = Predictions(
            party=party.name, round=1, kind=kind, classes=("0", "1"), public="", values=values
        )
        answers[party.name] = (said, task.run(party), CountRows(round=1).run(party))
    return rule(Replies(answers, {})).weights[:, INNER]


@pytest.mark.parametrize(("reference", "within"), [("public", 0.02), ("generated", 0.01)])
def test_weights_of_fedgo_are_shares_of_the_pooled_density(parties, reference, within) -> None:
    """n_a p_a / (n_a p_a + n_b p_b), with counts 4 : 1."""
    found = weights_of(fedgo(reference), parties, TellApart(round=1, reference=reference))
    x = PUBLIC.X[INNER, 0]
    densities = np.stack([ROWS[name] * norm.pdf(x, mean) for name, mean in MEANS.items()])
    np.testing.assert_allclose(found, densities / densities.sum(axis=0), atol=within)


def test_weights_of_dafkd_are_probabilities_without_counts(parties) -> None:
    """D_c = p_c / (p_c + p_public) is the logistic function of -x - 1/2 and x - 1/2."""
    found = weights_of(dafkd(), parties, TellApart(round=1, reference="public"))
    x = PUBLIC.X[INNER, 0]
    sure = np.stack([expit(-x - 0.5), expit(x - 0.5)])
    np.testing.assert_allclose(found, sure / sure.sum(axis=0), atol=0.03)


def test_logistic_ratios_count_rows_of_a_class_for_each_public_row() -> None:
    """Class "l" is N(-1, 1), 3,000 rows, "r" N(1, 1), 1,500: ratios e^(-x - 1/2) and e^(x - 1/2) / 2."""
    X = np.concatenate([RNG.normal(-1, 1, (3000, 1)), RNG.normal(1, 1, (1500, 1))])
    party = joined("a", X, np.repeat(["l", "r"], [3000, 1500]))
    found = ComparePublic(round=1, ridge=0.3, estimator="logistic").run(party).values[INNER]
    x = PUBLIC.X[INNER, 0]
    exact = np.stack([np.exp(-x - 0.5), np.exp(x - 0.5) / 2], axis=1)
    np.testing.assert_allclose(found, exact, rtol=0.2, atol=0.02)
    few = ComparePublic(round=1, ridge=0.3, estimator="logistic", calibration=True).run(party)
    np.testing.assert_allclose(few.values[INNER].sum(), found.sum() / 5, rtol=0.15)


def test_texts_are_told_by_their_words() -> None:
    """Words that no public text has, cheese and balls, count for nothing."""
    public = Public(
        np.array(["wine and bread", "wine and oil", "goals and fouls", "goals and cups"] * 3)
    )
    texts = np.array(["wine and cheese"] * 10 + ["goals and balls"] * 10)
    party = joined("a", texts, np.repeat(["food", "sport"], 10), public)
    found = ComparePublic(round=1, ridge=0.3, estimator="logistic").run(party).values
    food, sport = found[[0, 1, 4, 5]], found[[2, 3, 6, 7]]
    assert (food[:, 0] > 4 * food[:, 1]).all() and (sport[:, 1] > 4 * sport[:, 0]).all()


def test_ratios_alone_ask_no_model() -> None:
    """Ratios 2 + 1 of class 0 and 1 of class 1, whatever models say: three quarters, of which a gave half."""
    ratios = [[[2, 0]], [[1, 1]]]
    for said in (0.9, 0.1):
        told = replies([[said, 1 - said]], [[0.5, 0.5]], ratios=ratios)
        teacher = ratios_alone()(told)
        np.testing.assert_allclose(teacher.values, [[0.75, 0.25]], atol=2e-3)
        np.testing.assert_allclose(teacher.weights, [[0.5], [0.5]], atol=2e-3)
    nobody = replies([[0.9, 0.1]], [[0.9, 0.1]], ratios=np.zeros((2, 1, 2)))
    np.testing.assert_array_equal(ratios_alone()(nobody).values, [[0.5, 0.5]])


def test_likeness_is_the_squared_cosine_to_a_subspace() -> None:
    """Own rows lie on the first axis: the public row (3, 4), scaled alike, has 9 / 25 of its length there."""
    public = Public(
        np.array([[3.0, 4], [-3, 4], [3, -4], [-3, -4], [5, 0], [-5, 0], [0, 5], [0, -5]])
    )
    spread = public.X.std(axis=0)
    party = joined("a", np.outer([1.0, 2, -1, 3], [1, 0]), np.array(["x", "x", "y", "y"]), public)
    found = MeasureAngles(round=1, energy=0.9).run(party).values
    exact = (3 / spread[0]) ** 2 / ((3 / spread[0]) ** 2 + (4 / spread[1]) ** 2)
    np.testing.assert_allclose(found, [exact] * 4 + [1, 1, 0, 0], atol=1e-6)


def test_fedd3a_follows_the_likest() -> None:
    """exp(1 / 0.1) against exp(0)."""
    share = 1 / (1 + np.exp(-10))
    teacher = fedd3a()(with_scores(SubspaceLikeness, [[1.0]], [[0.0]]))
    np.testing.assert_allclose(teacher.weights, [[share], [1 - share]], rtol=1e-6)
    np.testing.assert_allclose(teacher.values, [[share, 1 - share]], rtol=1e-6)


def with_scores(kind, *scores) -> Replies:
    """Party a says class 0, b class 1, with these scores beside."""
    told = replies([[1.0, 0.0]], [[0.0, 1.0]])
    added = {
        name: (*told.answers[name], kind(party=name, round=1, public="", values=np.float32(one)[0]))
        for name, one in zip("ab", scores, strict=True)
    }
    return Replies(added, {})


@pytest.mark.parametrize(
    "rule",
    [
        fedgo(),
        fedgo("generated"),
        dafkd(),
        fedd3a(),
        ratios_alone(),
        density_ratio(estimator="logistic"),
    ],
    ids=lambda rule: rule.name,
)
def test_parties_with_two_classes_of_three_teach_the_third(rule) -> None:
    """Three groups of rows, far apart; whoever lacks one of them says another with certainty."""
    centres = np.array([[0.0, 0], [4, 0], [0, 4]])
    y = np.arange(180) % 3
    X = centres[y] + RNG.normal(size=(180, 2))
    made = [
        Party(f"p{k}", GaussianNB(), X[:60][y[:60] != k], y[:60][y[:60] != k]) for k in range(3)
    ]
    federation = Federation(made, X[60:])
    history = federation.run(ensemble_distillation(aggregate=rule, rounds=1), progress=False)
    assert (history.rounds[-1].teacher.values.argmax(axis=1) == y[60:]).mean() > 0.75


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (lambda: fedgo("private"), "reference is 'private'"),
        (lambda: dafkd(temperature=0), "temperature is 0"),
        (lambda: fedd3a(energy=1.5), "energy is 1.5"),
        (lambda: density_ratio(estimator="forest"), "estimator is 'forest'"),
    ],
)
def test_options_are_checked(factory, why) -> None:
    with pytest.raises(InvalidInput, match=why):
        factory()
