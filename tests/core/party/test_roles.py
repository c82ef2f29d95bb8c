"""Parties that answer and are never trained, and parties that learn and send nothing."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from consilience import (
    Federation,
    Frozen,
    Party,
    auto,
    avg,
    count_weighted,
    density_ratio,
    ensemble_distillation,
    local_only,
    mean,
    selective_mean,
    uwa,
    weighted_mean,
)
from consilience.core.aggregation.base import completed
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.federation.forming import negotiate
from consilience.core.learners import Learner, as_learner
from consilience.core.messages.columns import Column, Schema
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import RowCount
from consilience.core.networks import LocalNetwork
from consilience.core.numerics.outcomes import Classes
from consilience.core.party.importance import weights_that_serve
from consilience.core.party.personalizer import Chooser, Lesson
from consilience.core.tasks.lifecycle import Describe
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.models.fixed import row_digests

POINTS = np.linspace(-1, 1, 20)[:, None]
NAMES = np.where(POINTS[:, 0] < 0, "below", "above")
TWO = ensemble_distillation(aggregate=avg(), rounds=2)


class Vendor:
    """Says "above" with probability 0.9 where x > 0; counts the rows that it was asked about."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, X):
        self.rows += len(X)
        return np.where(X > 0, [[0.9, 0.1]], [[0.2, 0.8]])  # above, below


def vendor(**more) -> tuple[Vendor, Frozen]:
    answer = Vendor()
    return answer, Frozen(answer, classes=["above", "below"], **more)


def clinic(name="clinic", model=GaussianNB, **more) -> Party:
    return Party(name, model(), POINTS, NAMES, **more)


# --- frozen --------------------------------------------------------------------------------------


def test_a_frozen_party_answers_each_row_once_and_is_never_taught():
    answer, model = vendor()
    party = Party("vendor", model, test=(POINTS[:4] + 0.01, NAMES[:4]))
    history = Federation([clinic(), party], POINTS).run(TWO)
    assert answer.rows == 20 + 4  # not again in the second round
    said = [round.replies.of(Predictions)[1].values for round in history.rounds[1:]]
    np.testing.assert_allclose(said[0][[0, -1]], [[0.2, 0.8], [0.9, 0.1]], rtol=1e-6)
    np.testing.assert_array_equal(*said)
    assert not any("Distill" in d.tasks for d in history.deliveries[1] if d.party == "vendor")
    Federation([clinic(), party], POINTS).run(TWO)
    assert answer.rows == 24  # nor in another run


def test_its_classes_are_put_in_the_agreed_order_whatever_others_it_knows():
    model = Frozen(lambda X: np.tile([0.5, 0.2, 0.3], (len(X), 1)), classes=[2, 0, 9])
    party = Party("vendor", model, outcome=Classes(aliases={2: "above", 0: "below"}))
    federation = Federation([clinic(), party], POINTS, strict=False)
    assert federation.form().classes == ("9", "above", "below")
    np.testing.assert_allclose(party.trainer.outputs("probabilities")[0], [0.3, 0.5, 0.2])


def test_a_class_that_nobody_else_has_is_refused_by_name():
    party = Party("vendor", Frozen(lambda X: X, classes=["above", "belo"]))
    with pytest.raises(InvalidInput, match="party 'vendor': no other party has class 'belo'"):
        Federation([clinic(), clinic("other"), party], POINTS).form()


def test_answers_come_again_from_their_file(tmp_path):
    file = tmp_path / "answers.jsonl"
    for asked in (20, 0):
        answer, model = vendor(most=20)
        model.answers.keep_in(file)
        Federation([clinic(), Party("vendor", model)], POINTS).run(TWO)
        assert answer.rows == asked
    with file.open("a") as lines:
        lines.write('["half of a li')
    answer, model = vendor()
    model.answers.keep_in(file)
    model.bind(2)
    model.predict(POINTS)
    assert (answer.rows, len(file.read_text().splitlines())) == (0, 20)


def test_a_code_is_another_row_under_another_schema():
    X = np.array([[0.0]])
    schemas = [Schema((Column("x", "category", names),)) for names in (("u", "v"), ("v", "w"))]
    assert len({*row_digests(X), *(row_digests(X, one)[0] for one in schemas)}) == 3


def test_a_budget_that_does_not_last_is_refused_before_anything_is_asked():
    answer, model = vendor(most=23)
    party = Party("vendor", model, test=(POINTS[:4] + 0.01, NAMES[:4]))
    with pytest.raises(InvalidInput) as error:
        Federation([clinic(), party], POINTS).run(TWO)
    assert "24 rows have no answer yet, and 23 of its 23 answers are left" in str(error.value)
    assert answer.rows == 0


@pytest.mark.parametrize(
    "answer, why",
    [
        (lambda X: np.ones((len(X), 2)), "no probabilities"),
        (lambda X: np.ones((len(X), 3)) / 3, r"shape \(20, 3\)"),
        (lambda X: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_answers_that_are_none_are_named(answer, why):
    model = Frozen(answer, classes=["above", "below"])
    model.bind(2)
    with pytest.raises(RunFailed, match=why):
        model.predict(POINTS)


@pytest.mark.parametrize(
    "given", [{"classes": ["one"]}, {"classes": ["a", "a"]}, {"most": 0}, {"answer": 3}]
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(InvalidInput):
        Frozen(**{"answer": len, **given})


@pytest.mark.parametrize(
    "rule",
    [auto, density_ratio, count_weighted, uwa, selective_mean],
    ids=lambda rule: rule.__name__,
)
def test_rules_that_ask_for_scores_take_a_party_without_rows_for_an_average_one(rule):
    parties = [clinic(), clinic("other", LogisticRegression), Party("vendor", vendor()[1])]
    protocol = ensemble_distillation(aggregate=rule(), rounds=1)
    history = Federation(parties, POINTS).run(protocol)
    teacher = history.rounds[1].teacher
    assert teacher is not None and np.isfinite(teacher.values).all() and not history.failures
    if (
        rule is count_weighted
    ):  # 16 rows are trained on at either clinic, so many count at the vendor
        np.testing.assert_allclose(teacher.weights, 1 / 3)


def test_scores_of_a_party_without_rows_are_the_mean_of_the_others():
    counts = [
        RowCount(party=party, round=1, rows=rows, absent=party == "b")
        for party, rows in (("a", 4), ("b", 1), ("c", 8))
    ]
    assert completed(counts).tolist() == [4, 6, 8]
    replies = Replies({one.party: (one,) for one in counts}, {})
    assert replies.sum(RowCount, weights="rows", over=None, field="values").weights.tolist() == [
        4 / 18,
        6 / 18,
        8 / 18,
    ]


def test_values_too():
    model = Frozen(lambda X: 2 * X[:, 0])
    parties = [Party("a", LinearRegression(), POINTS, POINTS[:, 0]), Party("vendor", model)]
    for rule in (mean(), weighted_mean(), auto()):
        history = Federation(parties, POINTS).run(ensemble_distillation(aggregate=rule, rounds=1))
        np.testing.assert_allclose(history.rounds[1].teacher.values, 1.5 * POINTS, atol=1e-9)


def test_with_labelled_rows_it_gives_what_others_give():
    party = Party("vendor", vendor()[1], POINTS, NAMES)
    history = Federation([clinic(), party], POINTS).run(
        ensemble_distillation(aggregate=density_ratio(), rounds=1)
    )
    assert not history.failures and not history.rounds[1].replies.answers["vendor"][1].absent


def test_protocols_in_which_all_train_refuse_it_by_name():
    federation = Federation([clinic(), Party("vendor", vendor()[1])])
    with pytest.raises(InvalidInput, match="party 'vendor' is frozen"):
        federation.run(averaged_distillation(rounds=1))


# --- learners only -------------------------------------------------------------------------------


def test_a_party_without_labels_is_taught_and_sends_nothing():
    learner = Party("learner", LogisticRegression(), POINTS + 0.3, test=(POINTS, NAMES))
    history = Federation([clinic(), clinic("other"), learner], POINTS).run(TWO)
    alone, *_, after = history.metric()[:, 0]
    assert np.isnan(alone) and after > 0.9
    tasks = {d.tasks for row in history.deliveries for d in row if d.party == "learner"}
    assert not any("Predict" in one or "Fit" in one for one in tasks)
    assert history.rounds[1].teacher.parties == ("clinic", "other")
    assert history.models["learner"].alone is None
    assert "learner" in str(history) and "worse" not in str(history).split("learner")[-1]


@pytest.mark.parametrize("model", [GaussianNB, KNeighborsClassifier, LogisticRegression])
def test_models_that_take_no_weights_learn_too_and_no_rows_are_needed(model):
    for rows in (None, POINTS):
        parties = [clinic(), clinic("other"), Party("learner", model(), rows)]
        history = Federation(parties, POINTS).run(TWO)
        assert history.models["learner"].predict([[-0.9], [0.9]]).tolist() == ["below", "above"]


def test_public_rows_count_more_where_own_unlabelled_rows_lie():
    """r → 2 r / (r + 1): a row where own ones are three times as dense counts 1.5 times."""
    right = Party("learner", LogisticRegression(), np.linspace(0.5, 1, 20)[:, None])
    Federation([clinic(), clinic("other"), right], POINTS).form()
    weights = right.trainer.scores.importance()
    assert weights is not None and weights.shape == (20,)
    assert (
        0 <= weights.min() < 0.2 < 1.2 < weights.max() < 2
        and weights[:8].max() < weights[-5:].min()
    )
    everywhere = Party(
        "learner", LogisticRegression(), POINTS
    )  # as dense as the public rows: r = 1
    Federation([clinic(), clinic("other"), everywhere], POINTS).form()
    np.testing.assert_allclose(everywhere.trainer.scores.importance(), 1, atol=0.25)


def test_it_serves_its_own_rows_better_for_them():
    """Where no one line fits all public rows, the line fits where own rows lie."""
    wave = Frozen(lambda X: np.abs(X[:, 0]))
    found = []
    for rows in (POINTS[10:], None):
        learner = Party(
            "learner", LinearRegression(), rows, test=(POINTS[10:], np.abs(POINTS[10:]))
        )
        run = Federation([Party("rule", wave), learner], POINTS).run(
            ensemble_distillation(aggregate=mean(), rounds=1)
        )
        found.append(run.metric("mse")[-1, 0])
    assert found[0] < 0.7 * found[1]


def test_a_federation_of_learners_alone_is_refused():
    with pytest.raises(InvalidInput, match="all of them learn only"):
        Federation([Party("a", LogisticRegression(), POINTS)], POINTS).form()


def test_alone_there_is_nothing_to_train():
    network = [clinic(), clinic("other"), Party("learner", LogisticRegression(), POINTS)]
    history = Federation(network, POINTS).run(local_only(rounds=2))
    assert sorted(history.models) == ["clinic", "other"]


def test_both_cross_a_wire_with_the_same_bits():
    found = []
    for wire in (False, True):
        parties = [clinic(), Party("vendor", vendor()[1]), Party("z", LogisticRegression(), POINTS)]
        network = LocalNetwork(parties, Public(POINTS), wire=wire)
        history = federation_over(network, Public(POINTS), strict=False).run(
            ensemble_distillation(aggregate=auto(), rounds=2)
        )
        found.append(history.models["z"].predict_proba(POINTS))
    np.testing.assert_array_equal(*found)


def test_a_text_model_is_a_party(tmp_path):
    """The example: words become probabilities, "invoice" is known to the text model alone."""
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "text_model.py"))
    answers = example["shares"](lambda prompt, attempt: ("Fault", "?")[attempt % 2], ("a", "fault"))
    np.testing.assert_allclose(answers(["any"]), [[0.25 / 2.5, 2.25 / 2.5]])
    said = example["main"](tmp_path / "answers.jsonl")
    assert said == {desk: ["billing", "fault"] for desk in ("desk-1", "desk-2")}
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 12


def test_weights_that_do_not_serve_are_left_aside():
    """A line fits the line that is taught, whatever counts more."""
    found = []
    for rows in (POINTS[10:], None):
        learner = Party("learner", LinearRegression(), rows)
        rule = Party("rule", Frozen(lambda X: X[:, 0]))
        run = Federation([rule, learner], POINTS).run(
            ensemble_distillation(aggregate=mean(), rounds=1)
        )
        found.append(run.models["learner"].predict(POINTS))
    np.testing.assert_array_equal(*found)


def test_weights_serve_or_not_whatever_the_units_of_several_values() -> None:
    """A line through half a parabola is better with weights; noise beside it says nothing, in any unit."""
    rng, X = np.random.default_rng(0), np.linspace(-1, 1, 60)[:, None]
    weights, targets = (
        np.where(X[:, 0] > 0, 1.9, 0.1),
        np.stack([X[:, 0] ** 2, rng.normal(size=60)], 1),
    )

    def made() -> Learner:
        learner = as_learner(LinearRegression(), kind="regression")
        learner.bind(2)
        return learner

    for unit in (1, 1000):
        lesson = Lesson(1, X, targets * [1, unit])
        found = weights_that_serve(made, lesson, weights, lambda _: np.random.default_rng(7))
        assert found is weights


def test_share_of_own_rows_is_no_weight_of_a_refit() -> None:
    """A fixed alpha of 0.9 weighs rows; in a choice for everyone a party of two counts a half."""
    said = []

    class Noted(Chooser):
        def choose(self, *given, share, **more):
            said.append(share)
            return super().choose(*given, share=share, **more)

    both = [clinic(name, LogisticRegression, purpose="everyone") for name in "ab"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consilience.core.party.party.Chooser", Noted)
        protocol = ensemble_distillation(aggregate=avg(), rounds=1, alpha=0.9)
        Federation(both, POINTS).run(protocol)
    assert said == [0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"frozen": ("clinic",)}, "the agreement has it as frozen"),
        ({"learners": ("clinic",)}, "the agreement has it as without labelled rows"),
        ({"summed": ("clinic", "clinic", "lab")}, "one is named twice"),
        ({"summed": ("lab", "clinic")}, "are not sorted"),
    ],
)
def test_an_agreement_that_contradicts_the_party_is_refused(changes, why) -> None:
    """Lists of names give one party another effect, though all parties join the same."""
    party, public = clinic(), Public(POINTS)
    party.hold_public(public)
    agreed = negotiate([Describe().run(party)], public)
    party.join(agreed)
    with pytest.raises(InvalidInput, match=why):
        party.join(replace(agreed, **changes))


def test_a_frozen_party_refuses_to_be_agreed_on_as_another() -> None:
    party, public = Party("vendor", vendor()[1]), Public(POINTS)
    party.hold_public(public)
    agreed = negotiate([Describe().run(party), Describe().run(clinic())], public)
    with pytest.raises(InvalidInput, match="the agreement has it as not frozen"):
        party.join(replace(agreed, frozen=()))
