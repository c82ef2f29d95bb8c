"""Weighted sums of models: by hand, pruned, kept, distilled, and what is no such sum."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.learners import Learner
from consilience.methods.functional_boosting import weighted_ensemble as module
from consilience.methods.functional_boosting.ensemble_weights import descent_weights, negligible
from consilience.methods.functional_boosting.weighted_ensemble import WeightedEnsemble
from consilience.models import make
from consilience.models.files.transfer import pack

X = np.arange(8.0)[:, None]


def trained(targets: Any, **parameters: Any) -> Learner:
    learner = make("tree-regressor", **parameters)
    learner.fit(X, np.asarray(targets).reshape(len(X), -1), rng=np.random.default_rng(0))
    return learner


def packed(learner: Learner) -> Any:
    about, data = pack(learner)
    return SimpleNamespace(about=about, data=data)


LINE, SQUARE, STEP = trained(X), trained(X**2), trained(X > 3)


def test_by_hand() -> None:
    """Trees without a limit say what they were taught: x, x² and [x > 3]."""
    f = WeightedEnsemble([LINE, packed(SQUARE), STEP], [2.0, -0.5, 0.25])
    expected = 2 * X - 0.5 * X**2 + 0.25 * (X > 3)
    assert np.array_equal(f.predict(X), expected) and len(f) == 3
    assert np.array_equal(f.predict(X, batch=3), expected)
    assert [list(p[4:6, 0]) for p in f.partial_sums(X)] == [[8, 10], [0, -2.5], [0.25, -2.25]]
    assert np.array_equal(f.scaled(-2).predict(X), -2 * expected)
    twice = f.scaled(0.5).plus(WeightedEnsemble([LINE], [1.0]))
    assert np.array_equal(twice.predict(X), expected / 2 + X)
    assert twice.weights.tolist() == [1, -0.25, 0.125, 1]
    assert np.array_equal(f.taken([0, 2]).predict(X), 2 * X + 0.25 * (X > 3))


def test_negligible_terms_are_pruned_and_the_sum_moves_no_further_than_said() -> None:
    """Weights 4, -0.5, 0, 0.25, 5.25: 0 and 0.25 are 2.5 % of 10, with 0.5 it is 7.5 %."""
    weights = np.array([4.0, -0.5, 0.0, 0.25, 5.25])
    assert np.flatnonzero(negligible(weights, 0)).tolist() == [2]
    assert np.flatnonzero(negligible(weights, 0.025)).tolist() == [2, 3]
    assert np.flatnonzero(negligible(weights, 0.0749)).tolist() == [2, 3]
    assert np.flatnonzero(negligible(weights, 0.075)).tolist() == [1, 2, 3]
    f = WeightedEnsemble([LINE, SQUARE, LINE, STEP, LINE], weights)
    for tolerance in (0.0, 0.025, 0.075, 0.9):
        less = f.taken(np.flatnonzero(~negligible(weights, tolerance)))
        moved = np.abs(less.predict(X) - f.predict(X)).max()
        assert moved <= tolerance * 49 * 10
    with pytest.raises(InvalidInput, match="at least 0 and below 1"):
        negligible(weights, 1.0)


def test_what_the_steps_of_a_descent_weigh_by_hand() -> None:
    """η = 1/2, 1/4, 1/8 and μ = 2: −(1/2)(1/2)(3/4), −(1/4)(3/4), −1/8."""
    assert descent_weights([0.5, 0.25, 0.125], 2.0).tolist() == [-3 / 16, -3 / 16, -1 / 8]


@pytest.mark.parametrize("name", ["tree-regressor", "ridge", "mlp", "lightgbm-regressor"])
def test_kept_as_a_file(name: str, tmp_path: Path) -> None:
    rng, learners = np.random.default_rng(0), []
    small = {"lightgbm-regressor": {"n_estimators": 3, "min_child_samples": 1}}.get(name, {})
    for scale in (1.0, 2.0):
        learner = make(name, kind="regression", **small)
        learner.bind(2)
        learner.fit(X, scale * np.hstack([X, X**2]), rng=rng, phase="first")
        learners.append(learner)
    f = WeightedEnsemble(learners, [0.1, -0.7])
    f.save(tmp_path / "f")
    again = WeightedEnsemble.load(tmp_path / "f")
    assert np.array_equal(again.predict(X), f.predict(X))
    assert np.array_equal(again.weights, f.weights)
    again.save(tmp_path / "g")  # still packed
    assert np.array_equal(WeightedEnsemble.load(tmp_path / "g").predict(X), f.predict(X))


def test_distilled() -> None:
    f = WeightedEnsemble([LINE, SQUARE], [1.0, -0.1])
    student = f.distilled("tree-regressor", X, rng=np.random.default_rng(0))
    assert student.predict(X) == pytest.approx(f.predict(X))
    classes = WeightedEnsemble([trained(np.hstack([X > 3, X < 4, X < -1]))], [2.0])
    answer = classes.distilled("decision-tree", X, rng=np.random.default_rng(0)).predict(X)
    assert answer.argmax(axis=1).tolist() == [1] * 4 + [0] * 4 and answer.sum() == 8


def test_a_student_does_not_learn_how_many_models_were_added() -> None:
    """Columns that are lifted alike say the same: sums of 0, 1 and 2 a row."""
    first, second, third = X < 2, (X >= 2) & (X < 5), X >= 5
    sharp = trained(np.hstack([first, second, third]))
    even = trained(np.full((8, 3), 1 / 3))
    taught = [
        WeightedEnsemble([sharp, even], [1.0, lift]).distilled(
            "decision-tree", X, rng=np.random.default_rng(0)
        )
        for lift in (-1.0, 0.0, 1.0)
    ]
    for student in taught:
        assert student.predict(X) == pytest.approx(sharp.predict(X))


def test_bytes_that_have_changed_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    WeightedEnsemble([LINE], [0.5]).save(path)
    blob = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(blob), size=40):
        changed = bytearray(blob)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        with pytest.raises(RunFailed, match="does not hold an ensemble"):
            WeightedEnsemble.load(path)


def test_the_same_bytes_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, built = packed(SQUARE), []

    def counted(*args: Any, **options: Any) -> Learner:
        built.append(args)
        return original(*args, **options)

    original = module.unpack
    monkeypatch.setattr(module, "unpack", counted)
    f, g = (WeightedEnsemble([one, one], [w, 1.0]) for w in (1.0, 2.0))
    assert np.array_equal(f.predict(X) + X**2, g.predict(X)) and len(built) == 1
    with pytest.raises(KnowledgeRefused, match="not trusted"):
        WeightedEnsemble([one], [1.0], trusted=()).predict(X)  # whatever others have built


def test_what_is_no_sum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are no models"):
        WeightedEnsemble([], [])
    with pytest.raises(InvalidInput, match="1 models with weights"):
        WeightedEnsemble([LINE], [1.0, 2.0])
    with pytest.raises(InvalidInput, match="1 models with weights"):
        WeightedEnsemble([LINE], [np.nan])
    with pytest.raises(KnowledgeRefused, match=r"answers \(8, 2\), expected \(8, 1\)"):
        WeightedEnsemble([LINE, trained(np.hstack([X, X]))], [1, 1]).predict(X)
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(RunFailed, match="does not hold an ensemble"):
        WeightedEnsemble.load(tmp_path / "other")
    f = WeightedEnsemble([LINE], [1.0])
    f.save(tmp_path / "f")
    (tmp_path / "f").write_bytes((tmp_path / "f").read_bytes()[:-100])
    with pytest.raises(RunFailed, match="does not hold an ensemble"):
        WeightedEnsemble.load(tmp_path / "f")
