"""Parties whose rows have several labels, through the whole exchange."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from consilience import Federation, Frozen, Party, avg, ensemble_distillation, majority_vote, uwa
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import as_learner, suited_to
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.protocols import PROTOCOLS
from consilience.tables.outcomes.per_label import PerLabel
from consilience.tables.outcomes.several_labels import MultiLabel

THREE = MultiLabel(["a", "b", "rare"])
PUBLIC = np.random.default_rng(9).normal(size=(120, 3))


def rows(n, seed):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.column_stack([X[:, 0] > 0, X[:, 1] > 0.5, X[:, 0] + X[:, 2] > 2]).astype(float)


def party(name, model, seed=0, lacks=None, **options):
    X, y = rows(90, seed)
    y = pd.DataFrame(y, columns=THREE.columns)
    y = y if lacks is None else y.drop(columns=lacks)
    return Party(name, model, X, y, test=rows(80, 50), outcome=THREE, **options)


def run(parties, **options):
    options = {"aggregate": avg(), "rounds": 2, **options}
    return Federation(parties, PUBLIC).run(ensemble_distillation(**options))


def test_a_party_that_lacks_a_label_learns_it_from_the_others():
    history = run([party("x", LogisticRegression()), party("y", GaussianNB(), 1, lacks="b")])
    alone, after = history.metrics[0]["y"], history.metrics[-1]["y"]
    assert after["macro_auc"] > alone["macro_auc"] + 0.1 and after["hamming_loss"] < 0.25
    said = history.models["y"].predict(np.array([[1.5, 1.5, 1.5], [-1.5, -1.5, 0]]))
    assert said.shape == (2, 3) and (said[0, :2] > 0.5).all() and (said[1] < 0.5).all()
    assert history.models["y"].alone.predict(PUBLIC)[:, 1].tolist() == [0.5] * len(PUBLIC)
    teacher = history.rounds[1].teacher
    np.testing.assert_allclose(teacher.values.sum(axis=1), 1, rtol=1e-5)
    x = history.rounds[1].replies.answers["x"][0].values
    np.testing.assert_allclose(
        THREE.answers(teacher.values)[:, 1], THREE.answers(x)[:, 1], rtol=1e-5
    )


def test_a_party_that_lacks_a_label_takes_the_better_taught_model():
    """Fifteen rows that it trains on against 320: on its known labels the taught model is better."""
    X, y = rows(30, 1)
    y[:, 1] = np.nan
    small = Party("s", LogisticRegression(), X, y, outcome=THREE, calibration=0.5)
    large = Party("l", LogisticRegression(), *rows(400, 0), outcome=THREE)
    choice = run([small, large]).models["s"].choices[-1]
    assert choice.losses[1] < choice.losses[0]
    assert choice.own < 0.9 and (choice.familiar, choice.rare) == ((), 1)


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(20), KNeighborsClassifier(), "gradient-boosting", "mlp"]
)
def test_models_of_all_kinds_learn_labels(model):
    if model == "mlp":
        pytest.importorskip("torch")
    history = run([party("x", model), party("y", GaussianNB(), 1)], rounds=1)
    assert history.metrics[0]["x"]["macro_auc"] > 0.7 and not history.failures


def test_one_label_is_the_two_classes():
    """A label alone is the classifier of two classes, to the last bits."""
    X, y = rows(60, 3)
    found = PerLabel(SklearnLearner(LogisticRegression()))
    one = MultiLabel(["b"])
    found.bind(3)
    found.fit(X, one.targets(y[:, 1:2], own=y), rng=np.random.default_rng(0))
    two = as_learner(LogisticRegression())
    two.bind(2)
    two.fit(X, np.column_stack([1 - y[:, 1], y[:, 1]]), rng=np.random.default_rng(0))
    np.testing.assert_allclose(
        one.answers(found.predict(X))[:, 0], two.predict(X)[:, 1], rtol=1e-12
    )


def test_class_weights_of_a_label_are_of_its_two_sides():
    """1 is "has it", as in scikit-learn, and ``scale_pos_weight`` is its weight."""
    X, y = rows(80, 3)
    one = MultiLabel(["b"])
    lgbm = pytest.importorskip("lightgbm").LGBMClassifier
    for model in (
        LogisticRegression(class_weight={0: 1, 1: 20}),
        lgbm(n_estimators=5, min_child_samples=5, scale_pos_weight=20, verbose=-1, n_jobs=1),
    ):
        found = PerLabel(SklearnLearner(model))
        found.bind(3)
        found.fit(X, one.targets(y[:, 1:2], own=y), rng=np.random.default_rng(0))
        expected = clone(model).fit(X, y[:, 1].astype(int)).predict_proba(X)[:, 1]
        np.testing.assert_allclose(one.answers(found.predict(X))[:, 0], expected, rtol=1e-6)


def test_labels_that_all_rows_have_or_none_are_shares():
    """Of four rows none has a, by (0 + 0.5) / 5; nothing is known of the rare one."""
    X = np.arange(12.0).reshape(4, 3)
    y = np.array([[0, 1, np.nan], [0, 0, np.nan], [0, 1, np.nan], [0, np.nan, np.nan]])
    found = PerLabel(SklearnLearner(LogisticRegression()))
    found.bind(7)
    found.fit(X, THREE.targets(y, own=y), rng=np.random.default_rng(0))
    said = found.predict(X)
    np.testing.assert_allclose(said.sum(axis=1), 1)
    np.testing.assert_allclose(THREE.answers(said)[:, [0, 2]], [[0.1, 0.5]] * 4)


def test_models_of_labels_are_saved_and_read(tmp_path):
    history = run([party("x", LogisticRegression()), party("y", GaussianNB(), 1, lacks="b")])
    for name, base in (("x", LogisticRegression()), ("y", GaussianNB())):
        learner = history.models[name].alone.learner
        learner.save(tmp_path / f"{name}.skops")
        again = PerLabel(SklearnLearner(base))
        again.bind(7)
        again.load(tmp_path / f"{name}.skops")
        np.testing.assert_array_equal(again.predict(PUBLIC), learner.predict(PUBLIC))
        again.bind(5)
        with pytest.raises(RunFailed, match="not one of several labels"):
            again.load(tmp_path / f"{name}.skops")


def test_a_frozen_model_says_a_probability_a_label():
    """Of the rare label it knows nothing, and so has no say in it."""
    answers = THREE.coded([[0.9, 0.2, np.nan]])[0]
    vendor = Frozen(lambda X: np.tile(answers, (len(X), 1)), classes=THREE.classes)
    x = party("x", LogisticRegression())
    history = run([x, Party("v", vendor, outcome=THREE)], rounds=1)
    own = THREE.answers(history.rounds[1].replies.answers["x"][0].values)
    said = THREE.answers(history.rounds[1].teacher.values)
    np.testing.assert_allclose(said[:, 0], (own[:, 0] + 0.9) / 2, rtol=1e-5)
    np.testing.assert_allclose(said[:, 2], own[:, 2], rtol=1e-5)
    with pytest.raises(InvalidInput, match=r"the outcome is coded as(.|\n)*outcome\.coded"):
        Party("v", Frozen(lambda X: X, classes=["a", "b"]), outcome=THREE)


def test_models_of_labels_are_not_sent():
    parties = [party("x", LogisticRegression()), party("y", GaussianNB(), 1)]
    with pytest.raises(InvalidInput, match="models of several labels are not sent"):
        Federation(parties, PUBLIC).run(PROTOCOLS["averaged_distillation"](rounds=1))


@pytest.mark.parametrize("rule", [majority_vote, uwa])
def test_rules_that_read_one_class_of_a_row_are_refused(rule):
    parties = [party("x", LogisticRegression()), party("y", GaussianNB(), 1)]
    with pytest.raises(InvalidInput, match="reads one class of each row"):
        run(parties, aggregate=rule())


def test_bad_rows_are_refused_when_a_party_is_made():
    X, y = rows(20, 0)
    with pytest.raises(InvalidInput, match=r"party 'x', private data.*label 'b' is 7"):
        Party("x", GaussianNB(), X, np.where(y == 1, [1, 7, 1], y), outcome=THREE)
    with pytest.raises(InvalidInput, match="outcome of 'z'"):
        other = Party("z", GaussianNB(), X, y[:, :2], outcome=MultiLabel(["a", "b"]))
        run([party("x", GaussianNB()), party("y", GaussianNB(), 1), other])


def test_the_page_s_example_runs():
    page = Path(__file__).parents[3] / "docs" / "howto" / "several-labels.md"
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1], names)
    said = names["history"].models["south"].predict(names["X"])
    assert said.shape == (240, 2) and np.corrcoef(said[:, 1], names["X"]["b"])[0, 1] > 0.5


def test_a_model_that_is_read_from_a_file_is_held_against_its_outcome_too() -> None:
    """As a party's is, by the same function."""
    answers = Frozen(lambda X: np.full((len(X), 2), 0.5), classes=["a", "b"])
    with pytest.raises(InvalidInput, match="the outcome is coded as"):
        suited_to(answers, MultiLabel(["cough", "fever"]))
    assert suited_to(answers, None) is answers
