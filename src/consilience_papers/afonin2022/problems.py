"""Learning problems and the split of their rows (Afonin & Karimireddy 2022, section 6.1 and appendix A).

The paper gives the optimiser (Adam), the weight decay (3e-4, or 0 without regularisation), 20 rounds and how
rows are divided. It leaves open the networks' sizes, learning rate, batch size and epochs, and whether a
network goes on from where it was; :class:`Size` says what is taken, and every fit starts anew. VGG-16 has
batch normalisation, since without it it hardly learns from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from consilience.core.learners import Learner
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.lab.data import load
from consilience.lab.data.partition import iid, mixing
from consilience.models.presets import make

DIMENSIONS = 100
"""d of the toy problem, which has n = 1.5 d rows."""


def toy(repetition: int, *, ordered: bool) -> tuple[list[tuple[Array, Array]], tuple[Array, Array]]:
    """``b = A x*``, split 0.6 to 0.4, and fresh rows.

    The paper says that A and x* are random. Here A is Gaussian over √d, so that a row has length 1 on
    average, and x* is Gaussian; both come from numpy's generator seeded with the repetition.

    Args:
        repetition: which draw.
        ordered: rows sorted by b before they are split ("different data"), or at random ("same data").

    Returns:
        Two agents' ``(X, y)``, shapes ``(90, d)``, ``(60, d)``; and ``(X, y)`` of 1,000 rows that nobody has.
    """
    rng = np.random.default_rng(repetition)
    n = 3 * DIMENSIONS // 2
    A = rng.normal(size=(n, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    x = rng.normal(size=DIMENSIONS)
    b = A @ x
    order = np.argsort(b) if ordered else rng.permutation(n)
    parts = np.split(order, [6 * n // 10])
    fresh = rng.normal(size=(1000, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    return [(A[rows], b[rows]) for rows in parts], (fresh, fresh @ x)


Model = tuple[str, Mapping[str, Any]]
"""A learner's name and its parameters."""


@dataclass(frozen=True)
class Size:
    """Amount of data and training.

    Attributes:
        title: as notes call it.
        train: training images of all agents together.
        test: test images.
        rounds: T.
        epochs: of every fit; in FedAvg of every round.
        learning_rate: Adam's.
        batch: rows a step.
        first: agent 1's network, and everybody's where models are the same.
        second: agent 2's where they differ.
        forest: agent 2's where agent 1 has ``second`` (figures 13 and 14).
    """

    title: str
    train: int
    test: int
    rounds: int
    epochs: int
    learning_rate: float
    batch: int
    first: Model
    second: Model
    forest: Model = ("random-forest-regressor", {"n_estimators": 30, "max_features": "sqrt"})


_QUICK = Size(
    "quick",
    train=300,
    test=200,
    rounds=2,
    epochs=2,
    learning_rate=5e-3,
    batch=16,
    first=("cnn", {"channels": (4,), "hidden": 16}),
    second=("mlp", {"hidden": (32,)}),
    forest=("random-forest-regressor", {"n_estimators": 5, "max_features": "sqrt"}),
)

_CPU = Size(
    "CPU",
    train=3000,
    test=1000,
    rounds=20,
    epochs=3,
    learning_rate=3e-3,
    batch=32,
    first=("lenet5", {}),
    second=("mlp", {"hidden": (100,)}),
)

SIZES: Mapping[str, Mapping[str, Size]] = {
    "mnist": {
        "full": Size(
            "full",
            train=60000,
            test=10000,
            rounds=20,
            epochs=10,
            learning_rate=1e-3,
            batch=64,
            first=("cnn", {"channels": (32, 64), "hidden": 128}),
            second=("mlp", {"hidden": (200, 200)}),
            forest=("random-forest-regressor", {"n_estimators": 100, "max_features": "sqrt"}),
        ),
        "images": Size(
            "all images, networks for one core",
            train=60000,
            test=10000,
            rounds=20,
            epochs=1,
            learning_rate=3e-3,
            batch=128,
            first=("lenet5", {}),
            second=("mlp", {"hidden": (100,)}),
            forest=("random-forest-regressor", {"n_estimators": 20, "max_features": "sqrt"}),
        ),
        "cpu": _CPU,
        "five": replace(_CPU, title="CPU, five agents with as many images each as two", train=7500),
        "quick": _QUICK,
    },
    "cifar-10": {
        "full": Size(
            "full",
            train=50000,
            test=10000,
            rounds=20,
            epochs=30,
            learning_rate=1e-3,
            batch=64,
            first=("vgg16", {}),
            second=("cnn", {"channels": (32, 64), "hidden": 128}),
        ),
        "cpu": Size(
            "CPU",
            train=2000,
            test=1000,
            rounds=20,
            epochs=3,
            learning_rate=3e-3,
            batch=32,
            first=("cnn", {"channels": (8, 16), "hidden": 64}),
            second=("cnn", {"channels": (8,), "hidden": 32}),
        ),
        "quick": _QUICK,
    },
}
"""Data set to size, by name: the paper's images, what one core trains in seconds, and less than that."""


@dataclass(frozen=True)
class Setting:
    """Split of the rows, and the model of every agent.

    Attributes:
        data: ``"mnist"`` or ``"cifar-10"``.
        models: ``"same"``; ``"different"``: agent 2 has another network; ``"forest"``: agent 1 has that one
            and agent 2 a random forest.
        portion: Alpha, the portion of rows that is mixed between agents who else have labels of their own,
            in equal parts; ``None`` for rows dealt at random, 0.7 to agent 1 and 0.3 to agent 2.
        agents: M.
        loss: ``"squared"`` on one-hot targets, or ``"cross-entropy"``.
        decay: Adam's weight decay.
    """

    data: str = "mnist"
    models: str = "same"
    portion: float | None = None
    agents: int = 2
    loss: str = "squared"
    decay: float = 3e-4


@dataclass(frozen=True)
class Images:
    """Images of one repetition; labels are codes."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


@lru_cache(maxsize=1)
def _loaded(data: str) -> Images:
    whole = load(data)
    return Images(whole.X, whole.y, whole.X_test, whole.y_test)


def images(data: str, size: Size, repetition: int) -> Images:
    """Training and test images of a repetition, the same for whatever is done with them."""
    whole, rng = _loaded(data), stream(repetition, f"afonin2022/{data}", 0, "images")
    rows = rng.choice(len(whole.X), size.train, replace=False)
    test = rng.choice(len(whole.X_test), size.test, replace=False)
    return Images(whole.X[rows], whole.y[rows], whole.X_test[test], whole.y_test[test])


def agents(setting: Setting, size: Size, given: Images, repetition: int) -> list[Party]:
    """The agents, with rows of their own."""
    rng = stream(repetition, f"afonin2022/{setting.data}", 0, "agents")
    if setting.portion is None:
        parts = iid(given.y, setting.agents, rng, sizes=[0.7, 0.3])
    else:
        parts = mixing(given.y, setting.agents, rng, portion=setting.portion)
    return [
        party(f"agent-{i + 1}", learner(setting, size, i), given.X[rows], given.y[rows])
        for i, rows in enumerate(parts)
    ]


def party(name: str, model: Learner, X: Array, codes: Array) -> Party:
    """A party that learns one-hot targets, if its learner does regression, or classes."""
    regression = model.abilities.kind == "regression"
    return Party(name, model, X, np.eye(10)[codes] if regression else codes, calibration=0)


def learner(setting: Setting, size: Size, agent: int) -> Learner:
    """The model of an agent, counted from 0."""
    models = {
        "same": (size.first, size.first),
        "different": (size.first, size.second),
        "forest": (size.second, size.forest),
    }[setting.models]
    name, parameters = models[min(agent, 1)]
    if name.startswith("random-forest"):
        return make(name, **parameters)
    recipe = {
        "first_epochs": size.epochs,
        "epochs": size.epochs,
        "learning_rate": size.learning_rate,
        "batch_size": size.batch,
        "weight_decay": setting.decay,
    }
    kind: Kind = "regression" if setting.loss == "squared" else "classification"
    return make(name, kind=kind, recipe=recipe, **parameters)
