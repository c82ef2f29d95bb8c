"""Gaps that only one party has: its model and its place among the public rows know them as public medians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from consilience import FederatedClassifier, Federation, Party, auto, avg, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.core.protocols import local_only
from consilience.methods.parameters.federated_averaging import federated_averaging

RNG = np.random.default_rng(0)
X = RNG.normal(size=(260, 3))
Y = np.where(X[:, 0] > 0, "ill", "well")
WITH_GAPS = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
A, B, PUBLIC, TEST = slice(0, 80), slice(80, 140), slice(140, 200), slice(200, 260)


def table(rows: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list("uvw"))


FORMS: dict[str, Callable[[np.ndarray], Any]] = {"array": np.asarray, "table": table}


def run(own: np.ndarray, tests: np.ndarray, form: Any, model: Any, rule: Any = avg) -> Any:
    parties = [
        Party("a", model, form(own[A]), Y[A], test=(form(tests[TEST]), Y[TEST])),
        Party("b", LogisticRegression(), form(X[B]), Y[B]),
    ]
    protocol = ensemble_distillation(aggregate=rule(), rounds=1)
    return Federation(parties, form(X[PUBLIC])).run(protocol, progress=False)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("rule", [avg, auto])
@pytest.mark.parametrize(
    "model", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=10), "knn", "mlp"]
)
def test_a_party_with_gaps_is_taught(form: Any, rule: Any, model: Any) -> None:
    history = run(WITH_GAPS, WITH_GAPS, form, model, rule)
    assert history.failures == []
    assert history.models["a"].alone is not None
    if model != "mlp":  # of one round it has learnt little
        assert history.metrics[-1]["a"]["accuracy"] > 0.8


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("rule", [avg, auto])
def test_a_gap_is_the_public_median(form: Any, rule: Any) -> None:
    medians = np.median(X[PUBLIC], axis=0)
    filled = np.where(np.isnan(WITH_GAPS), medians, WITH_GAPS)
    answers = [
        run(rows, rows, form, LogisticRegression(), rule).models["a"].predict_proba(form(rows))
        for rows in (WITH_GAPS, filled)
    ]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_test_rows_alone_may_have_gaps(form: Any) -> None:
    history = run(X, WITH_GAPS, form, LogisticRegression())
    assert history.failures == []
    assert history.metrics[-1]["a"]["accuracy"] > 0.8


def test_gaps_that_a_model_has_never_seen_are_refused_and_not_the_first_class() -> None:
    for name in ("knn", "mlp"):
        model = run(X, X, np.asarray, name).models["a"]
        with pytest.raises(InvalidInput, match=r"predict: .*hold NaN"):
            model.predict(WITH_GAPS)
    with pytest.raises(InvalidInput, match="hold NaN"):
        model.predict(np.where(np.arange(3) == 1, np.inf, X))
    trees = run(X, X, np.asarray, HistGradientBoostingClassifier(max_iter=10)).models["a"]
    assert (trees.predict(WITH_GAPS) == Y).mean() > 0.8


@pytest.mark.parametrize(
    ("protocol", "model"),
    [(local_only, "mlp"), (federated_averaging, "mlp"), (local_only, "knn")],
)
def test_without_public_rows_nothing_fills_the_gaps_of_an_array(protocol: Any, model: str) -> None:
    parties = [Party(name, model, WITH_GAPS[rows], Y[rows]) for name, rows in (("a", A), ("b", B))]
    with pytest.raises(InvalidInput, match=r"party 'a': its rows have gaps.*no public rows"):
        Federation(parties).run(protocol(rounds=1), progress=False)


def test_without_public_rows_trees_take_the_gaps_of_an_array() -> None:
    trees = HistGradientBoostingClassifier(max_iter=10)
    parties = [Party(name, trees, WITH_GAPS[rows], Y[rows]) for name, rows in (("a", A), ("b", B))]
    history = Federation(parties).run(local_only(rounds=1), progress=False)
    assert history.failures == []
    assert (history.models["a"].predict(WITH_GAPS) == Y).mean() > 0.8


def test_another_scale_shows_between_gaps_of_an_array() -> None:
    """Half of its numbers are missing: filled with public medians they would look alike."""
    holed = np.where(RNG.random(X.shape) < 0.5, np.nan, X + 8)
    other = Party("b", LogisticRegression(), X[B], Y[B])
    with pytest.raises(InvalidInput, match="another scale"):
        Federation([Party("a", LogisticRegression(), holed[A], Y[A]), other], X[PUBLIC]).form()


def test_an_estimator_takes_arrays_whose_public_rows_have_gaps() -> None:
    parties = {"a": (X[A], Y[A]), "b": (X[B], Y[B])}
    made = FederatedClassifier(parties, model=LogisticRegression(), rounds=1)
    assert (made.fit(WITH_GAPS[PUBLIC]).predict(WITH_GAPS) == Y).mean() > 0.8
    with pytest.raises(InvalidInput, match="no table"):
        made.fit(table(WITH_GAPS[PUBLIC])).predict(X)
