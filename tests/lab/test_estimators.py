"""The federation as a scikit-learn estimator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from consilience import (
    FederatedClassifier,
    FederatedRegressor,
    Federation,
    Party,
    avg,
    ensemble_distillation,
)
from consilience.core.errors import InvalidInput

X = np.repeat(np.linspace(-1, 1, 40), 2)[:, None]
CODES = (X[:, 0] > 0).astype(int) + 3
ROWS = {"south": (X[1::2], CODES[1::2]), "north": (X[0::2], CODES[0::2])}
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "in-python.md"


def federated(**options: object) -> FederatedClassifier:
    return FederatedClassifier(
        ROWS, **{"model": GaussianNB(), "aggregator": "avg", "rounds": 1, **options}
    )


def test_it_is_the_federation_by_another_name() -> None:
    found = federated().fit(X)
    parties = [Party(name, GaussianNB(), *rows) for name, rows in ROWS.items()]
    history = Federation(parties, X).run(ensemble_distillation(aggregate=avg(), rounds=1))
    for name in ROWS:
        np.testing.assert_array_equal(
            found.predict_proba(X, party=name), history.models[name].predict_proba(X)
        )
    both = [found.predict_proba(X, party=name) for name in ROWS]
    np.testing.assert_allclose(found.predict_proba(X), np.mean(both, axis=0))
    assert found.classes_.tolist() == [3, 4] and found.classes_.dtype.kind == "i"
    assert found.predict([[-0.9], [0.9]], party="north").tolist() == [3, 4]
    assert found.score(X, CODES, party="south") == np.mean(found.predict(X, "south") == CODES)
    assert found.n_features_in_ == 1 and len(found.history_.rounds) == 2
    assert is_classifier(found) and not is_regressor(found)


def test_parameters_are_kept_cloned_and_set() -> None:
    first = federated()
    params = first.get_params(deep=False)
    assert all(params["parties"][name] is ROWS[name] for name in ROWS) and params["rounds"] == 1
    second = clone(first.fit(X)).set_params(rounds=2)
    assert not hasattr(second, "classes_") and first.rounds == 1
    assert len(second.fit(X).history_.rounds) == 3
    listed = FederatedClassifier([Party("a", DecisionTreeClassifier(), X, CODES)], rounds=1)
    assert clone(listed).fit(X).predict(X[:1]).tolist() == ["3"]
    found = GridSearchCV(federated(), {"rounds": [1, 2]}, cv=2).fit(X, CODES)
    assert found.best_score_ > 0.9


def test_pandas_in_pandas_out() -> None:
    table = pd.DataFrame({"x": X[:, 0], "sex": ["f", None] * 40}, index=range(100, 180))
    names = np.where(X[:, 0] > 0, "ill", "well")
    parties = {"a": (table[::2], names[::2]), "b": (table[1::2], names[1::2])}
    found = FederatedClassifier(parties, model={"a": "random-forest", "b": GaussianNB()}, rounds=1)
    found.fit(table)
    said = found.predict_proba(table[["sex", "x"]][:3], party="a")
    assert said.columns.tolist() == ["ill", "well"] and said.index.tolist() == [100, 101, 102]
    assert found.predict(table[:2]).to_dict() == {100: "well", 101: "well"}
    assert found.feature_names_in_.tolist() == ["x", "sex"]


def test_values() -> None:
    parties = {name: (rows, 2 * rows[:, 0]) for name, (rows, _) in ROWS.items()}
    found = FederatedRegressor(parties, model=Ridge(0.01), rounds=1).fit(X)
    assert found.predict(X, party="north").shape == (80,) and found.score(X, 2 * X[:, 0]) > 0.99
    table = pd.DataFrame({"x": X[:, 0]}, index=range(5, 85))
    parties = {"a": (table[::2], 2 * X[::2, 0]), "b": (table[1::2], 2 * X[1::2, 0])}
    assert FederatedRegressor(parties, rounds=1).fit(table).predict(table).index[0] == 5
    assert is_regressor(found)


def test_several_targets_are_found_by_name() -> None:
    """Targets in another order than another party's were averaged with them."""
    table, y = pd.DataFrame({"x": X[:, 0]}), pd.DataFrame({"p": X[:, 0], "q": 100 - X[:, 0]})
    parties = {"a": (table[::2], y[::2]), "b": (table[1::2], y[1::2][["q", "p"]])}
    with pytest.raises(InvalidInput, match=r"the targets of '[ab]' have other names, or stand in"):
        FederatedRegressor(parties, model=Ridge(0.01), rounds=1).fit(table)
    parties["b"] = (table[1::2], y[1::2])
    found = FederatedRegressor(parties, model=Ridge(0.01), rounds=1).fit(table)
    assert found.predict(table).columns.tolist() == ["p", "q"]
    assert found.score(table, y[["q", "p"]]) > 0.99
    with pytest.raises(InvalidInput, match="its targets are p, r"):
        found.score(table, y.rename(columns={"q": "r"}))


def test_a_forest_that_has_no_length_yet() -> None:
    assert federated(model=RandomForestClassifier(3, random_state=0)).fit(X).score(X, CODES) == 1


def test_categories_are_predicted_of_tables_alone() -> None:
    table = pd.DataFrame({"age": X[:, 0], "smokes": np.where(X[:, 0] > 0, "yes", "no")})
    rows = {name: (table.iloc[place::2], CODES[place::2]) for name, place in (("a", 0), ("b", 1))}
    fitted = FederatedClassifier(rows, model=GaussianNB(), aggregator="avg", rounds=1).fit(table)
    assert len(fitted.predict(table.iloc[:3])) == 3
    for rows in (table.to_numpy(), table.iloc[0], [{"age": 3}]):
        with pytest.raises(InvalidInput, match=r"is no table.*\n.*age, smokes"):
            fitted.predict(rows)


def test_before_fit_nothing_is_predicted() -> None:
    for call in (FederatedClassifier(ROWS).predict, FederatedRegressor(ROWS).predict):
        with pytest.raises(NotFittedError):
            call(X)


@pytest.mark.parametrize(
    "options, why",
    [
        ({"parties": None}, "there are no parties"),
        ({"parties": {"a": X}}, "no pair"),
        ({"parties": [Ridge()]}, "'Ridge' is no Party for classification"),
        ({"model": {"north": GaussianNB()}}, "party 'south': it has no model"),
        ({"aggregator": "avgg"}, "avg"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_what_cannot_work_is_refused_in_fit(options: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        federated().set_params(**options).fit(X)


def test_what_cannot_be_predicted_is_refused() -> None:
    found = federated().fit(X)
    with pytest.raises(InvalidInput, match="no party is called 'nort'"):
        found.predict(X, party="nort")
    with pytest.raises(InvalidInput, match="X has 2 columns, and the public rows 1"):
        found.predict(X[:, [0, 0]])


def test_the_page_s_example_runs() -> None:
    section = PAGE.read_text().split("## As a scikit-learn estimator")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)
    said = names["federated"].predict_proba(names["patients"][:5], party="north")  # type: ignore[attr-defined]
    assert said.columns.tolist() == [False, True]
