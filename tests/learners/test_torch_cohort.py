"""Networks that train together: what they would have got alone, but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from consilience.errors import RunFailed
from consilience.learners import Learner, Pull, as_learner, make
from consilience.meeting import Meeting

torch = pytest.importorskip("torch")
nn = torch.nn

from consilience.learners import torch_cohort  # noqa: E402
from consilience.learners.torch_cohort import architecture  # noqa: E402

CLASSES = 3
RECIPE = {"first_epochs": 3, "epochs": 2, "batch_size": 8, "learning_rate": 0.01}
SIZES = (20, 33, 8, 1, 17)
"""One divides by the batch, one is smaller, one has a last batch of one row."""


@pytest.fixture
def sizes_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trained together, each time."""
    found: list[int] = []
    whole = torch_cohort._Cohort.trained

    def counted(cohort: Any) -> Any:
        found.append(len(cohort.works))
        return whole(cohort)

    monkeypatch.setattr(torch_cohort._Cohort, "trained", counted)
    return found


def trained(
    made: Callable[[], Learner],
    *,
    together: bool,
    shape: tuple[int, ...] = (5,),
    sizes: tuple[int, ...] = SIZES,
    use: Callable[[Learner, Any, Any, np.random.Generator], Any] | None = None,
) -> list[Any]:
    """The parameters of a learner for each size after ``use``: two fits, which continue, by default."""
    rng = np.random.default_rng(0)

    def twice(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, phase="first")
        learner.fit(X, y, rng=own)

    def one(i: int, X: Any, y: Any) -> Callable[[], Any]:
        def function() -> Any:
            learner = made()
            learner.bind(CLASSES)
            (use or twice)(learner, X, y, np.random.default_rng(i))
            assert not learner.module.training
            return learner.parameters()

        return function

    functions = [
        one(i, rng.normal(size=(n, *shape)), rng.dirichlet(np.ones(CLASSES), n))
        for i, n in enumerate(sizes)
    ]
    return Meeting(functions).results() if together else [f() for f in functions]


def furthest(ones: list[Any], others: list[Any]) -> float:
    return max(
        float(np.abs(one[name] - other[name]).max())
        for one, other in zip(ones, others, strict=True)
        for name in one
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"gradient_clip": 0.05},
        {"loss": "mse"},
        {"batch_size": 1},
    ],
    ids=str,
)
def test_as_alone(changes: dict[str, Any], sizes_together: list[int]) -> None:
    def made() -> Learner:
        return make("mlp", hidden=(6,), recipe={**RECIPE, **changes})

    alone, together = (trained(made, together=t) for t in (False, True))
    assert sizes_together == [5, 5]
    assert furthest(alone, together) < 2e-6
    # It says something: all have moved, each to a place of its own.
    assert furthest(alone[:1] * 4, alone[1:]) > 0.01


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("cnn", {"channels": (2, 3), "hidden": 5}, (8, 8)),
        ("cnn", {"channels": (2,), "hidden": 5}, (8, 8, 3)),
        ("lenet5", {}, (12, 12)),
        ("mlp", {"hidden": (4, 4)}, (2, 3)),
    ],
)
def test_every_preset(
    name: str, options: dict[str, Any], shape: tuple[int, ...], sizes_together: list[int]
) -> None:
    def made() -> Learner:
        return make(name, recipe={**RECIPE, "first_epochs": 2, "epochs": 1}, **options)

    alone, together = (trained(made, together=t, shape=shape, sizes=(9, 16)) for t in (False, True))
    assert sizes_together == [2, 2]
    assert furthest(alone, together) < 1e-4


def test_regression_in_double_precision(sizes_together: list[int]) -> None:
    def made() -> Learner:
        net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()
        return as_learner(net, kind="regression", recipe=RECIPE)

    alone, together = (trained(made, together=t) for t in (False, True))
    assert sizes_together == [5, 5] and furthest(alone, together) < 1e-13


def test_a_pull_and_row_weights(sizes_together: list[int]) -> None:
    """FedProx's pull and SCAFFOLD's correction, each party with its own."""

    def pulled(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.start(X, rng=own)  # type: ignore[attr-defined]
        first = learner.parameters()  # type: ignore[attr-defined]
        correction = {name: own.normal(size=part.shape) for name, part in first.items()}
        pull = Pull(strength=0.3, correction=correction)
        learner.fit_pulled(X, y, rng=own, pull=pull)  # type: ignore[attr-defined]

    def weighted(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, weights=own.uniform(0.5, 2, len(X)))

    def made() -> Learner:
        return make("mlp", hidden=(6,), recipe={**RECIPE, "optimizer": "sgd"})

    for use in (pulled, weighted):
        alone, together = (trained(made, together=t, use=use) for t in (False, True))
        assert furthest(alone, together) < 2e-6
    assert sizes_together == [5, 4]  # one row has no weights to speak of


def test_steps_are_counted() -> None:
    """In batches of 8, a last one of a single row joining the one before: 3, 4, 1, 1 and 2 steps an epoch."""
    counts = []

    def use(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.start(X, rng=own)  # type: ignore[attr-defined]
        counts.append(learner.fit_pulled(X, y, rng=own, pull=Pull()).count)  # type: ignore[attr-defined]

    trained(lambda: make("mlp", recipe=RECIPE), together=True, use=use)
    assert sorted(counts) == [2, 2, 4, 6, 8]


def test_shared_rows_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public rows: those in one place in memory; rows of the same numbers elsewhere are others."""
    X, y = np.random.default_rng(0).normal(size=(12, 5)), np.eye(3)[np.arange(12) % 3]
    pooled = torch_cohort._pooled
    lengths = []

    def counted(works: Any) -> Any:
        found = pooled(works)
        lengths.append(len(found[0]))
        return found

    monkeypatch.setattr(torch_cohort, "_pooled", counted)

    def one(i: int, rows: Any) -> Callable[[], Any]:
        def function() -> Any:
            learner = make("mlp", hidden=(4,), recipe=RECIPE)
            learner.bind(CLASSES)
            learner.fit(rows, y, rng=np.random.default_rng(i))
            return learner.parameters()  # type: ignore[attr-defined]

        return function

    functions = [one(0, X), one(1, X.view()), one(2, X.copy())]
    together = Meeting(functions).results()
    assert lengths == [24]
    assert furthest([f() for f in functions], together) < 2e-6


def test_who_cannot_train_with_others(sizes_together: list[int]) -> None:
    """Another width or recipe, dropout, batch norm, early stopping: one by one, the same bits as ever."""
    recipes = [RECIPE, {**RECIPE, "learning_rate": 0.02}]
    layers = [
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
    ]
    made: list[Callable[[], Learner]] = [
        lambda: make("mlp", hidden=(4,), recipe=recipes[0]),
        lambda: make("mlp", hidden=(5,), recipe=recipes[0]),
        lambda: make("mlp", hidden=(4,), recipe=recipes[1]),
        *(lambda layer=layer: as_learner(layer(), recipe=RECIPE) for layer in layers for _ in "ab"),  # type: ignore[misc]
    ]
    X, y = np.random.default_rng(0).normal(size=(12, 5)), np.eye(3)[np.arange(12) % 3]

    def one(make_one: Callable[[], Learner], early: bool) -> Callable[[], Any]:
        def function() -> Any:
            learner = make_one()
            learner.bind(CLASSES)
            given = {"validation": (X[:4], y[:4])} if early else {}
            learner.fit(X, y, rng=np.random.default_rng(1), **given)
            return learner.parameters()  # type: ignore[attr-defined]

        return function

    functions = [one(m, early=False) for m in made]
    stopping = {**RECIPE, "early_stop": 1}
    functions += [one(lambda: make("mlp", hidden=(4,), recipe=stopping), early=True)] * 2
    together = Meeting(functions).results()
    assert sizes_together == []
    assert furthest([f() for f in functions], together) == 0


def test_what_diverges_is_named_and_the_others_go_on() -> None:
    rng = np.random.default_rng(0)

    def one(scale: float) -> Callable[[], Any]:
        def function() -> Any:
            recipe = {**RECIPE, "optimizer": "sgd", "learning_rate": 0.5}
            learner = make("mlp", hidden=(4,), kind="regression", recipe=recipe)
            learner.bind(1)
            X = rng.normal(size=(20, 5))
            try:
                learner.fit(X, scale * X[:, :1], rng=np.random.default_rng(0), phase="first")
            except RunFailed as error:
                return error.what
            return bool(np.isfinite(learner.predict(X)).all())

        return function

    found = Meeting([one(0.1), one(1e30), one(0.1)]).results()
    assert found[0] is True and found[2] is True and "diverged" in found[1]


def test_architecture_tells_apart_what_differs() -> None:
    def net(width: int = 4, *, slope: Any = nn.ReLU) -> Any:
        return nn.Sequential(nn.Linear(3, width), slope(), nn.Linear(width, 2))

    assert architecture(net()) == architecture(net()) != None  # noqa: E711
    assert len({architecture(net()), architecture(net(5)), architecture(net(slope=nn.Tanh))}) == 3
    frozen = net()
    frozen[0].weight.requires_grad_(False)
    assert architecture(frozen) != architecture(net())
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    hooked = net()
    hooked[0].register_forward_hook(lambda *_: None)
    patched = net()
    patched.forward = lambda X: X
    own = type("Own", (nn.Module,), {"forward": lambda self, X: X})()
    for module in (tied, hooked, patched, own, nn.Sequential(nn.ReLU())):
        assert architecture(module) is None
