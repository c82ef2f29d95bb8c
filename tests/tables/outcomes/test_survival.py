"""scikit-survival's models, taught by probabilities of bins of time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner, as_learner
from consilience.models import make
from consilience.models.files.transfer import pack, unpack
from consilience.tables.outcomes.survival import Survival

DAYS = Survival([1.0, 2.0, 4.0])
MODELS: dict[str, dict[str, Any]] = {"survival-forest": {"n_estimators": 20}, "cox": {}}


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    time, seen = rng.exponential(3 * np.exp(-X[:, 0])), rng.exponential(6, n)
    return X, np.column_stack([np.minimum(time, seen), time <= seen])


def trained(name: str, targets: np.ndarray, weights: np.ndarray | None = None) -> Learner:
    pytest.importorskip("sksurv")
    learner = make(name, **MODELS[name])
    learner.bind(4)
    learner.fit(rows(200, 0)[0], targets, rng=np.random.default_rng(1), weights=weights)
    return learner


@pytest.fixture
def targets() -> np.ndarray:
    y = rows(200, 0)[1]
    return DAYS.targets(y, own=y)


@pytest.mark.parametrize("name", MODELS)
def test_bins_are_learned_and_answered(name: str, targets: np.ndarray, tmp_path: Path) -> None:
    learner = trained(name, targets)
    X, y = rows(200, 1)
    said = learner.predict(X)
    assert said.shape == (200, 4) and (said >= 0).all()
    np.testing.assert_allclose(said.sum(axis=1), 1, rtol=1e-12)
    assert DAYS.further(said, y, np.ones(200))["harrell_c"] > 0.65
    # As sure as what was seen: the mean share that survives each edge is the Kaplan-Meier estimate.
    known = learner.predict(rows(200, 0)[0])
    np.testing.assert_allclose(known.mean(axis=0), targets.mean(axis=0), atol=0.03)
    learner.save(tmp_path / "model.skops")
    again = make(name, **MODELS[name])
    again.bind(4)
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), said)
    np.testing.assert_array_equal(unpack(*pack(learner)).predict(X), said)


@pytest.mark.parametrize("name", MODELS)
def test_row_weights_count(name: str, targets: np.ndarray) -> None:
    """Rows that died at once, at a weight of next to nothing, do not change what is learned."""
    dead = np.where(np.arange(200)[:, None] % 2, targets, [1.0, 0, 0, 0])
    weights = np.where(np.arange(200) % 2, 1.0, 1e-6)
    assert trained(name, dead, weights).predict(rows(50, 1)[0])[:, 0].mean() < 0.4
    assert trained(name, dead).predict(rows(50, 1)[0])[:, 0].mean() > 0.4


def test_a_bin_without_rows_gets_no_probability(targets: np.ndarray) -> None:
    none = targets * [1, 0, 1, 1]
    said = trained(
        "cox",
        none / none.sum(axis=1, keepdims=True).clip(1e-9)
        + (none.sum(axis=1, keepdims=True) == 0) * [0, 0, 0, 1.0],
    ).predict(rows(20, 1)[0])
    assert (said[:, 1] == 0).all()


def test_a_model_that_predicts_risks_alone_is_refused() -> None:
    svm = pytest.importorskip("sksurv.svm")
    with pytest.raises(InvalidInput, match="risks alone") as found:
        as_learner(svm.FastSurvivalSVM())
    assert found.value.mend is not None and "survival-forest" in found.value.mend


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sksurv"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sksurv", None)
    with pytest.raises(ImportError, match=r"consilience\[survival\]"):
        make("cox")
