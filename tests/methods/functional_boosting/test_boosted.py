"""Boosting by itself: by hand, by the contract of every learner, kept and made by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from consilience import Federation, Party
from consilience.core.checks import check_learner
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import as_learner
from consilience.core.protocols import local_only
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.methods.functional_boosting.losses import ConvexLoss, softmax
from consilience.models import KernelRidge, make

X, RNG = np.array([[0.0], [1.0]]), np.random.default_rng(0)
STUMP = {"name": "tree-regressor", "max_depth": 1}


def half() -> Any:
    """A weak learner that answers half of what it was taught: γ = 1/2."""
    return GradientBoostingRegressor(n_estimators=1, learning_rate=0.5, init="zero", max_depth=None)


def squared(weak: Any, **options: Any) -> Boosted:
    return Boosted(weak, loss="squared", **options)


def fitted(learner: Boosted, X: Any, y: Any, **options: Any) -> Boosted:
    learner.bind(np.shape(y)[1])
    learner.fit(np.asarray(X), np.asarray(y), rng=np.random.default_rng(0), **options)
    return learner


def test_two_steps_by_hand_with_and_without_the_residual() -> None:
    """y = 4, η = 1/2: h = −2, g = 1, Δ = −2; target −2 − 3 = −5, h = −5/2, g = 9/4.

    Without the residual the second target is −3, h = −3/2 and g = 7/4.
    """
    y = np.full((2, 1), 4.0)
    for residual, expected in ((True, 9 / 4), (False, 7 / 4)):
        learner = squared(half(), steps=2, step_size=0.5, residual=residual)
        assert fitted(learner, X, y).predict(X).ravel() == pytest.approx([expected] * 2)


def test_the_ridge_by_hand() -> None:
    """g ← g − (1/4)(g − y + g): y/4, then 3y/8; the weights are −(1/4)(3/4) and −1/4."""
    learner = fitted(
        squared("tree-regressor", steps=2, step_size=0.25, ridge=1.0), X, [[8.0], [16.0]]
    )
    assert learner.predict(X).ravel() == pytest.approx([3, 6])
    assert learner.ensemble is not None
    assert learner.ensemble.weights.tolist() == [-0.1875, -0.25]


def test_cross_entropy_by_hand() -> None:
    """From f = 0 the gradient is (−1/2, 1/2); with η = 2 f = (1, −1) at the first row."""
    learner = fitted(Boosted("tree-regressor", steps=1, step_size=2.0), X, np.eye(2))
    assert learner.logits(X) == pytest.approx(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert learner.predict(X) == pytest.approx(softmax(learner.logits(X)))


@pytest.mark.parametrize(
    "make_one",
    [
        lambda: Boosted(DecisionTreeRegressor(max_depth=2), steps=3, step_size=4.0),
        lambda: Boosted(STUMP, loss="logistic", steps=4, step_size=4.0),
        lambda: Boosted(STUMP, loss="squared", kind="classification", steps=3, step_size=0.5),
        lambda: squared(KernelRidge(1e-2), steps=4, step_size=0.5),
        lambda: squared("lightgbm-regressor", steps=3, step_size=0.5),
        lambda: Boosted({"name": "mlp", "hidden": (8,), "recipe": {"first_epochs": 10}}, steps=2),
    ],
    ids=["cross-entropy", "logistic", "brier", "kernel", "lightgbm", "network"],
)
def test_contract(make_one: Any) -> None:
    check_learner(make_one)


@pytest.mark.parametrize("loss", ["cross-entropy", "logistic"])
def test_boosting_stumps_drives_the_loss_down(loss: str) -> None:
    """Both losses on XOR-like rows, which no sum of few stumps on the raw columns fits by chance."""
    rows = RNG.normal(size=(150, 3))
    targets = np.eye(2)[(rows[:, 0] + rows[:, 1] ** 2 > 0.5).astype(int)]
    objectives = []
    for steps in (5, 20, 80):
        learner = fitted(Boosted(STUMP, loss=loss, steps=steps, step_size=1.0), rows, targets)
        objectives.append(learner.objective(learner.values(rows), targets, 0.0))
    assert objectives[0] > objectives[1] > objectives[2] and objectives[2] < objectives[0] / 2
    assert (learner.predict(rows).argmax(axis=1) == targets.argmax(axis=1)).mean() > 0.95


def test_a_convex_loss_of_ones_own_with_outliers() -> None:
    """Huber's loss sees less of an outlier than squares do."""
    huber = ConvexLoss(
        "huber",
        "regression",
        lambda f, y: np.where(np.abs(f - y) < 1, (f - y) ** 2 / 2, np.abs(f - y) - 0.5).sum(axis=1),
        lambda f, y: np.clip(f - y, -1, 1),
        1.0,
    )
    rows, y = np.zeros((5, 1)), np.array([[0.0], [0.1], [-0.1], [0.0], [100.0]])
    long = {"steps": 60, "step_size": 1.0}
    huber_sum = Boosted("tree-regressor", loss=huber, **long)
    robust = fitted(huber_sum, rows, y).predict(rows)[0, 0]
    mean = fitted(squared("tree-regressor", **long), rows, y).predict(rows)[0, 0]
    assert mean == pytest.approx(20) and robust == pytest.approx(0.25, abs=1e-6)
    concave = ConvexLoss(
        "bad", "regression", lambda f, y: -((f - y) ** 2).sum(axis=1), lambda f, y: f
    )
    with pytest.raises(InvalidInput, match="not convex in its first argument"):
        Boosted("tree-regressor", loss=concave).bind(1)
    broken = ConvexLoss("broken", "regression", lambda f, y: 1 / 0, lambda f, y: f)  # type: ignore[arg-type, return-value]
    with pytest.raises(
        InvalidInput, match=r"loss 'broken': it cannot be computed .*division by zero"
    ):
        Boosted("tree-regressor", loss=broken).bind(1)


def test_its_defaults_are_of_use() -> None:
    """Boosted alone, as in the baselines of a run: it fits its rows, and others nearly as well."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-2, 2, size=(300, 2))
    y = np.sin(rows[:, :1]) + 0.1 * rng.normal(size=(300, 1))
    learner = fitted(squared({"name": "tree-regressor", "max_depth": 3}), rows[:150], y[:150])
    train, test = (
        np.square(learner.predict(rows[i : i + 150]) - y[i : i + 150]).mean() for i in (0, 150)
    )
    assert train < 0.02 and test < 0.04 < y.var() / 10


def test_any_oracle() -> None:
    """One that answers the sign of its target: subgradient descent on |f − y|, as it were."""

    def signs(learner: Any, rows: Any, targets: Any, rng: Any) -> None:
        learner.fit(rows, np.sign(targets), rng=rng, phase="first")

    learner = squared("tree-regressor", oracle=signs, steps=3, step_size=1.0, residual=False)
    assert fitted(learner, X, [[2.0], [-5.0]]).predict(X).ravel().tolist() == [2, -3]
    assert not learner.abilities.sample_weight
    with pytest.raises(InvalidInput, match="no oracle 'l3'"):
        Boosted("tree-regressor", oracle="l3")


def test_oracles_by_name() -> None:
    """One step of η = 1 towards 0, 0 and 6 at one input: by squares 2, by the maximum 3."""
    rows, y = np.array([[0.0]] * 3), np.array([[0.0], [0.0], [6.0]])
    found = {
        name: fitted(
            squared("tree-regressor", oracle=name, steps=1, step_size=1.0), rows, y
        ).predict(rows)[0, 0]
        for name in ("l2", "l_infinity")
    }
    assert found["l2"] == pytest.approx(2) and found["l_infinity"] == pytest.approx(3, abs=0.3)


def test_kept(tmp_path: Path) -> None:
    rows = RNG.normal(size=(30, 2))
    learner = fitted(Boosted(STUMP, steps=5), rows, np.eye(3)[np.arange(30) % 3])
    path = tmp_path / f"model{learner.suffix}"
    learner.save(path)
    again = Boosted(STUMP)
    again.load(path)
    assert np.array_equal(again.predict(rows), learner.predict(rows)) and again.n_outputs == 3
    other = Boosted(STUMP)
    other.bind(2)
    for wrong, said in ((other, "3 outputs, expected 2"), (squared(STUMP), "with loss 'cross-ent")):
        with pytest.raises(RunFailed, match=said):
            wrong.load(path)
    zero = Boosted(STUMP)
    zero.bind(2)
    zero.start()
    zero.save(path)
    other.load(path)
    assert other.fitted and other.predict(rows[:1]).tolist() == [[0.5, 0.5]]


def test_the_student_is_the_one_weak_learner() -> None:
    learner = fitted(squared("tree-regressor", steps=3, step_size=0.5), X, [[1.0], [3.0]])
    with pytest.raises(InvalidInput, match="weighted sum of 3 weak learners"):
        _ = learner.student
    values = learner.values(X)
    student = learner.approximated(X, values, rng=RNG)
    assert student.predict(X) == pytest.approx(values)
    own = make("tree-regressor")
    one, other = squared(own), squared(own)
    one.bind(3), other.bind(1)
    assert (one.weak.n_outputs, other.weak.n_outputs, own.n_outputs) == (3, 1, 0)
    network = {"name": "mlp", "hidden": (4,), "recipe": {"first_epochs": 1, "distill_epochs": 0}}
    warm = squared(network, steps=1, step_size=1.0)
    fitted(warm, X, [[1.0], [3.0]])
    assert warm.ensemble is not None
    warm.ensemble = warm.ensemble.scaled(-1.0)
    again = warm.approximated(X, np.zeros((2, 1)), rng=RNG, warm_start=True)
    assert np.array_equal(again.predict(X), warm.student.predict(X))  # no epochs: where it was
    before = warm.predict(X)
    warm.student.fit(X, np.full((2, 1), 9.0), rng=RNG, phase="first")  # a copy
    assert np.array_equal(warm.predict(X), before)


def test_by_name() -> None:
    assert make("boosted").abilities.kind == "classification"
    regressor = make("boosted", kind="regression", weak="ridge", steps=3)
    assert isinstance(regressor, Boosted)
    assert (regressor.abilities.kind, regressor.loss.name) == ("regression", "squared")
    network = make("boosted", weak={"name": "mlp", "recipe": {"first_epochs": 1}})
    assert isinstance(network, Boosted) and network.weak.recipe.first_epochs == 1  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="only torch models take a recipe"):
        make("boosted", recipe={"epochs": 3})


def test_alone_it_is_a_baseline() -> None:
    rows = RNG.normal(size=(60, 2))
    y = (rows[:, 0] > rows[:, 1]).astype(int)
    parties = [
        Party(name, Boosted(STUMP, steps=30), rows[i::2], y[i::2], test=(rows, y))
        for i, name in enumerate("ab")
    ]
    assert Federation(parties).run(local_only(rounds=1)).metric()[-1].min() > 0.8


def test_a_step_size_that_diverges_is_named() -> None:
    """η = 3: the error is multiplied by −2 in every step; 2^{2k} > 10³ when k > 4.98."""
    learner = squared("tree-regressor", steps=50, step_size=3.0)
    said = r"the step size 3 diverges: after 5 steps .* below 2 / \(smoothness \+ ridge\) = 2:"
    with pytest.raises(RunFailed, match=said.replace(" .* ", r"(.|\n)*")):
        fitted(learner, X, [[1.0], [2.0]])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Boosted(DecisionTreeClassifier()),
            "the model is a classifier, not for regression",
        ),
        (lambda: Boosted(KNeighborsClassifier()), "the weak learner cannot be used"),
        (lambda: Boosted("decision-tree"), "the weak learner cannot be used"),
        (lambda: Boosted(as_learner("knn")), "the learner is for classification"),
        (lambda: Boosted({"max_depth": 3}), "has no name"),
        (lambda: Boosted({"name": "mlp", "kind": "classification"}), "kind is 'classification'"),
        (lambda: Boosted({"name": "tree-regressor", "depth": 3}), "unknown parameter 'depth'"),
        (lambda: Boosted(KernelRidge("calibration")), "it chooses by held-out rows"),
        (lambda: Boosted(STUMP, oracle="sobolev"), "the oracle 'sobolev'"),
        (lambda: Boosted(STUMP, loss="hinge"), "unknown loss 'hinge'"),
        (lambda: Boosted(STUMP, loss="logistic", kind="regression"), "is for classification"),
        (lambda: Boosted(STUMP, kind="ranking"), "kind is 'ranking'"),  # type: ignore[arg-type]
        (lambda: Boosted(STUMP, steps=0), "steps is 0"),
        (lambda: Boosted(STUMP, step_size=0), "step_size is 0"),
        (lambda: Boosted(STUMP, step_size=float("inf")), "step_size is inf"),
        (lambda: Boosted(STUMP, ridge=-1), "ridge is -1"),
    ],
)
def test_bad_input(call: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        call()
