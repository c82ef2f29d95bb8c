"""Parties whose outcome is survival or quantiles, through the whole exchange."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.survival import Survival

DAYS = Survival([1.0, 2.0, 4.0])


def patients(n, seed):
    """Rows whose event comes the sooner the larger their first column is."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    time = rng.exponential(3 * np.exp(-X[:, 0]))
    seen = rng.exponential(6, n)
    return X, np.column_stack([np.minimum(time, seen), time <= seen])


def parties(outcome=DAYS, models=(LogisticRegression, RandomForestClassifier), **options):
    made = []
    for i, model in enumerate(models):
        X, y = patients(80, i)
        y = y if isinstance(outcome, Survival) else X[:, 0]
        test = patients(60, 10 + i)
        test = test if isinstance(outcome, Survival) else (test[0], test[0][:, 0])
        made.append(Party(f"p{i}", model(), X, y, test=test, outcome=outcome, **options))
    return made


def test_survival_is_learned_exchanged_and_measured():
    history = Federation(parties(), public=patients(50, 5)[0]).run(
        ensemble_distillation(aggregate=avg(), rounds=2)
    )
    found = history.metrics[-1]["p0"]
    assert found["harrell_c"] > 0.65 and found["ibs"] < 0.25 and "accuracy" not in found
    said = history.models["p0"].predict(np.array([[-1.5, 0, 0], [1.5, 0, 0]]))
    assert said.shape == (2, 3) and (np.diff(said, axis=1) <= 0).all()
    assert (said[0] > said[1]).all()
    assert "ibs" in str(history)


def test_quantiles_are_learned_exchanged_and_measured():
    outcome = Quantiles(np.linspace(-3, 3, 13), [0.1, 0.5, 0.9])
    history = Federation(parties(outcome), public=patients(50, 5)[0]).run(
        ensemble_distillation(aggregate=avg(), rounds=1)
    )
    low, middle, high = history.models["p1"].predict(np.array([[1.1, 0, 0]]))[0]
    assert low < middle < high and abs(middle - 1.1) < 0.5
    assert history.metrics[-1]["p1"]["coverage"] > 0.5


def test_empty_bins_are_no_classes_that_a_party_lacks():
    """Values of the one lie on one side, and of the other on both; every bin holds somebody's."""
    outcome, (X, _) = Quantiles([-4, -1, 0, 1, 4]), patients(80, 0)
    low = X[:, 0] < 0
    members = [
        Party(name, LogisticRegression(), X[rows], X[rows, 0], outcome=outcome)
        for name, rows in (("low", low), ("all", slice(None)))
    ]
    history = Federation(members, public=patients(50, 5)[0], strict=False).run(
        ensemble_distillation(aggregate=avg(), rounds=1)
    )
    choice = history.models["low"].choices[-1]
    assert (choice.familiar, choice.rare) == ((), 1)


def test_the_choice_is_by_the_log_loss_of_what_is_known():
    members = parties()
    history = Federation(members, public=patients(50, 5)[0]).run(
        ensemble_distillation(aggregate=avg(), rounds=1)
    )
    model, scores = history.models["p0"], members[0].trainer.rows
    X, targets = scores.held_out
    expected = DAYS.row_losses(model.alone.predict_proba(X), targets, scores.held_out_y).mean()
    assert model.choices[-1].losses[0] == pytest.approx(expected)


def test_what_is_not_known_is_estimated_from_the_rows_that_are_trained_on():
    member = parties()[0]
    Federation([member, parties()[1]], public=patients(50, 5)[0]).form()
    (X, targets), scores = member.trainer.rows.train, member.trainer.rows
    kept = (member.rows.X[:, None] == X).all(axis=2).any(axis=1)
    assert 0 < len(scores.held_out_y) == (~kept).sum()
    assert targets == pytest.approx(DAYS.targets(member.rows.y[kept], own=member.rows.y[kept]))


def test_parties_with_other_edges_are_named():
    odd = parties(Survival([1.0, 2.0, 5.0]))[1:]
    X, y = patients(60, 3)
    third = Party("third", LogisticRegression(), X, y, outcome=DAYS)
    with pytest.raises(InvalidInput, match=r"'p1' is .*5\.0.* of 'p0' .*4\.0"):
        Federation([*parties()[:1], third, *odd], public=X).form()


def test_a_party_of_classes_does_not_fit_one_of_survival():
    X, y = patients(60, 3)
    plain = Party("plain", LogisticRegression(), X, DAYS.targets(y, own=y).argmax(axis=1))
    with pytest.raises(InvalidInput, match="classes or values"):
        Federation([*parties(), plain], public=X).form()


def test_a_party_without_targets_is_taught_survival():
    X, _ = patients(60, 3)
    learner = Party("w", LogisticRegression(), X, test=patients(40, 4), outcome=DAYS)
    history = Federation([*parties(), learner], public=patients(50, 5)[0]).run(
        ensemble_distillation(aggregate=avg(), rounds=1)
    )
    assert history.metrics[-1]["w"]["harrell_c"] > 0.65


def test_own_rows_are_read_before_anything_is_trained():
    X, y = patients(20, 0)
    with pytest.raises(InvalidInput, match="below 0") as found:
        Party("a", LogisticRegression(), X, y * [-1, 1], outcome=DAYS)
    assert "party 'a', private data" in str(found.value.where)
    with pytest.raises(InvalidInput, match="censored"):
        Party("a", LogisticRegression(), X, y * [1, 0], outcome=DAYS)
    with pytest.raises(InvalidInput, match="shape"):
        Party("a", LogisticRegression(), X, y[:, 0], outcome=DAYS)
    with pytest.raises(InvalidInput, match="20 rows"):
        Party("a", LogisticRegression(), X, y[1:], outcome=DAYS)


def test_targets_come_as_scikit_survival_has_them():
    X, y = patients(20, 0)
    structured = np.array([(e > 0, t) for t, e in y], dtype=[("event", bool), ("time", float)])
    assert (Party("a", LogisticRegression(), X, structured, outcome=DAYS).rows.y == y).all()


def test_the_state_of_a_party_with_an_outcome_is_restored(tmp_path):
    X = patients(50, 5)[0]
    first, again = parties(), parties()
    Federation(first, public=X).run(ensemble_distillation(aggregate=avg(), rounds=2))
    first[1].keep_states_in(tmp_path)
    again[1].keep_states_in(tmp_path)
    first[1].save("r", keep="r")
    Federation(again, public=X).form()
    again[1].restore("r")
    assert (again[1].trainer.predict(X) == first[1].trainer.predict(X)).all()
