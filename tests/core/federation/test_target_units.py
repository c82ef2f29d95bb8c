"""Regression with the target of one party in another unit: it is named, and neither teaches nor is taught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from consilience import Federation, Party, auto, ensemble_distillation, mean
from consilience.core.aggregation import median
from consilience.core.aggregation.base import replace
from consilience.core.aggregation.guard import Guard
from consilience.core.errors import QuorumLost, RunFailed
from consilience.core.numerics.target_units import other_unit, usual_values

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
FAR_FROM_0 = 3 * X[:, 0] + 100
AROUND_0 = 3 * X[:, 0] + RNG.normal(size=500) / 2
PUBLIC = X[420:]
MIXED = [DecisionTreeRegressor(max_depth=4), LinearRegression(), Ridge()]


def run(y: Any, units: Any, models: Any = None, aggregate: Any = None) -> Any:
    models = models or [LinearRegression()] * len(units)
    parties = []
    for i, (unit, model) in enumerate(zip(units, models, strict=True)):
        rows = slice(100 * i, 100 * (i + 1))
        parties.append(Party("abcd"[i], model, X[rows], unit(y[rows]), purpose="taught"))
    protocol = ensemble_distillation(aggregate=aggregate or mean(), rounds=1)
    return Federation(parties, PUBLIC).run(protocol, progress=False)


def times(factor: float) -> Any:
    return lambda y: factor * y


@pytest.mark.parametrize("y", [FAR_FROM_0, AROUND_0], ids=["far from 0", "around 0"])
@pytest.mark.parametrize("factor", [1000, 1 / 1000, 100, 18.016])
@pytest.mark.parametrize("rule", [mean, median, auto])
def test_values_in_another_unit_do_not_teach(y: Any, factor: float, rule: Any) -> None:
    expected = run(y, [times(1)] * 3, MIXED, rule())
    history = run(y, [times(1), times(factor), times(1)], MIXED, rule())
    assert expected.failures == [] and not any(
        "excluded" in n for n in expected.rounds[-1].teacher.notes
    )
    (note,) = [one for one in history.rounds[-1].teacher.notes if "excluded" in one]
    assert note.startswith("b is excluded since round 1: its values are about")
    assert "another unit" in note and note in str(history)
    said = history.models["a"].predict(PUBLIC)[:, 0]
    assert np.abs(said - y[420:]).mean() < y.std() / 2
    refused = "the teacher's values seem to be in another unit than its own"
    assert [(d.party, d.detail) for d in history.failures] == [("b", f"party 'b': {refused}")]
    own = history.models["b"].predict(PUBLIC)[:, 0]
    assert np.abs(own / factor - y[420:]).mean() < y.std() / 2


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (times(2.20462), "about 2.2 times as large (pounds and kilograms)"),
        (times(1 / 2.54), "about 2.5 times as small (inches and centimetres)"),
        (times(60), "about 60 times as large (minutes and hours)"),
        (lambda y: 1.8 * y + 32, "(degrees Fahrenheit, and not Celsius)"),
    ],
    ids=["pounds", "inches", "minutes", "Fahrenheit"],
)
def test_the_likely_unit_is_named(unit: Any, words: str) -> None:
    history = run(0.1 * (FAR_FROM_0 - 100) + 37, [times(1), unit, times(1)])
    assert words in str(history)
    assert np.abs(history.models["a"].predict(PUBLIC) - 37).max() < 2


@pytest.mark.parametrize("units", [(1, 1000), (1, 1000, 1000, 1)])
def test_nobody_can_say_which_of_two_halves_is_right(units: Any) -> None:
    with pytest.raises(RunFailed, match=r"values of b.* 1,000 times.*different units"):
        run(FAR_FROM_0, [times(unit) for unit in units])
    sure = replace(mean(), screen=Guard(let_in=("a", "b", "c", "d")))
    assert not any(
        "excluded" in n for n in run(FAR_FROM_0, [times(1)] * 2, None, sure).rounds[-1].notes
    )


def test_a_teacher_of_several_units_is_refused_where_single_values_are_not_seen() -> None:
    """Nothing is watched, as in a secure sum: a third of the teacher is in another unit."""
    blind = replace(mean(), screen=Guard(watch=False))
    refused = r"a \(invalid.*another unit than its own\); c \(invalid.*another unit than its own\)"
    with pytest.raises(QuorumLost, match=refused):
        run(FAR_FROM_0, [times(1), times(1000), times(1)], None, blind)


HONEST = {
    "one shrinks": [Ridge(alpha=1e4), LinearRegression(), DecisionTreeRegressor()],
    "one is flat": [SVR(C=1e-3), LinearRegression(), Ridge()],
    "two are flat": [SVR(C=1e-3), SVR(C=1e-3), LinearRegression()],
    "kernels": ["kernel-ridge", LinearRegression(), "knn-regressor"],
}


@pytest.mark.parametrize("models", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("y", [FAR_FROM_0, AROUND_0, 500 * AROUND_0])
def test_models_that_learn_little_are_in_no_other_unit(models: Any, y: Any) -> None:
    history = run(y, [times(1)] * 3, models)
    assert history.failures == [] and "excluded" not in str(history)


def test_values_that_lie_elsewhere_are_in_no_other_unit() -> None:
    low = np.linspace(60, 90, 40)[:, None]
    assert not any(
        other_unit(values, low) for values in (low + 60, 2 * low, low[::-1], 0 * low + 5)
    )
    assert not any(other_unit(1000 * rows, rows) for rows in (low[:5], 0 * low))


def test_the_usual_values_are_of_one_party() -> None:
    values = np.array([1.0, 1000.0, -1.0, 2.0])[:, None, None] * np.ones((4, 12, 1))
    assert usual_values(values).tolist() == np.full((12, 1), -1.0).tolist()


@pytest.mark.parametrize("since", ["nothing", "1970"])
def test_durations_and_dates_are_days_whatever_their_unit(since: str) -> None:
    """They were counted in the unit of each party's array, and answers in nanoseconds."""
    hours = (24 * FAR_FROM_0).astype("timedelta64[h]")
    times = hours if since == "nothing" else np.datetime64("1970-01-01") + hours
    kind = "timedelta64" if since == "nothing" else "datetime64"
    units = {"a": "s", "b": "ns"}
    parties = [
        Party(
            name, LinearRegression(), X[place:420:2], times[place:420:2].astype(f"{kind}[{unit}]")
        )
        for place, (name, unit) in enumerate(units.items())
    ]
    models = (
        Federation(parties, PUBLIC).run(ensemble_distillation(aggregate=mean(), rounds=1)).models
    )
    for name in units:
        np.testing.assert_allclose(models[name].predict(PUBLIC)[:, 0], FAR_FROM_0[420:], atol=0.1)
