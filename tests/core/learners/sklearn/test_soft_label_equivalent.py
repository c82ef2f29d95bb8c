"""On hard labels the equivalent regressor is the classifier; on soft labels it is what it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from consilience.core.learners import as_learner

DIGITS, LABELS = load_digits(return_X_y=True)
KNOWN = np.array([1, 4, 7, 8])
ROWS = np.flatnonzero(np.isin(LABELS, KNOWN))[:300]
X, y = DIGITS[ROWS], LABELS[ROWS]
WEIGHTS = 1.0 + np.arange(len(X)) % 3

MODELS = [
    DecisionTreeClassifier(random_state=1),
    DecisionTreeClassifier(random_state=1, max_depth=3, min_impurity_decrease=0.02),
    DecisionTreeClassifier(random_state=1, ccp_alpha=0.02),
    DecisionTreeClassifier(random_state=1, max_leaf_nodes=12, splitter="random"),
    DecisionTreeClassifier(random_state=1, min_weight_fraction_leaf=0.05, max_features="log2"),
    ExtraTreeClassifier(random_state=2),
    RandomForestClassifier(10, random_state=3),
    RandomForestClassifier(10, random_state=3, max_depth=4, min_samples_leaf=3),
    RandomForestClassifier(10, random_state=3, max_samples=0.5, ccp_alpha=0.01),
    ExtraTreesClassifier(10, random_state=4),
    ExtraTreesClassifier(10, random_state=4, bootstrap=True, max_features=0.5),
    KNeighborsClassifier(),
    KNeighborsClassifier(3, weights="distance"),
    make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=5)),
    make_pipeline(StandardScaler(), KNeighborsClassifier()),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_equivalent_regressor_is_the_classifier_on_hard_labels(model: Any, weighted: bool) -> None:
    learner = as_learner(model)
    assert learner.abilities.soft_targets == "native"
    if weighted and not learner.abilities.sample_weight:
        pytest.skip("a nearest-neighbour vote takes no weights")
    weights = WEIGHTS / WEIGHTS.mean() if weighted else None
    last = model.steps[-1][0] + "__" if hasattr(model, "steps") else ""
    expected = clone(model).fit(X, y, **({f"{last}sample_weight": weights} if weighted else {}))
    learner.fit(X, np.eye(10)[y], rng=np.random.default_rng(0), weights=weights)
    given = learner.predict(DIGITS)
    np.testing.assert_allclose(given[:, KNOWN], expected.predict_proba(DIGITS), atol=1e-12)
    assert not given[:, [0, 2, 3, 5, 6, 9]].any()


def test_soft_tree_by_hand() -> None:
    """Depth 1 on x = 0, 1, 2, 3 splits in the middle; each leaf holds the mean of its rows:
    ((0.9, 0.1) + (0.7, 0.3)) / 2 = (0.8, 0.2) and ((0.2, 0.8) + (0, 1)) / 2 = (0.1, 0.9)."""
    learner = as_learner(DecisionTreeClassifier(max_depth=1))
    soft = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0, 1]])
    learner.fit(np.arange(4.0)[:, None], soft, rng=np.random.default_rng(0))
    np.testing.assert_allclose(
        learner.predict(np.array([[0.0], [3.0]])), [[0.8, 0.2], [0.1, 0.9]], rtol=1e-14
    )


def test_soft_neighbours_by_hand() -> None:
    """The two nearest rows of x = 0.4 are 0 and 1: the mean of (1, 0) and (0.5, 0.5)."""
    learner = as_learner(KNeighborsClassifier(2))
    soft = np.array([[1, 0], [0.5, 0.5], [0, 1]])
    learner.fit(np.array([[0.0], [1.0], [5.0]]), soft, rng=np.random.default_rng(0))
    assert learner.predict(np.array([[0.4]])).tolist() == [[0.75, 0.25]]


class VotesInItsOwnWay(RandomForestClassifier):
    pass


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(criterion="entropy"),
        RandomForestClassifier(class_weight="balanced"),
        RandomForestClassifier(oob_score=True),
        DecisionTreeClassifier(monotonic_cst=[1]),
        VotesInItsOwnWay(),
    ],
)
def test_no_equivalent_where_the_identity_breaks(model: Any) -> None:
    assert as_learner(model).abilities.soft_targets == "weighted"
