"""Split of the images over clients, and their networks (Shen et al. 2022, section 6).

A share s of the training images is dealt evenly, the rest sorted by label and dealt in sequence. EMNIST's
digits and letters are stood in for by MNIST, with Fashion-MNIST as public images, and the reverse.

The paper gives the networks, the optimisers and their steps (:data:`SIZES`, ``"full"``). It leaves open
whether convolutions are padded (here they are not), FedDyn's α (here Acar et al.'s 0.01), and what was held
out for the search of rates. It flips and crops CIFAR's images at random, which is left out here; and its
FedAvg-distill takes what Lin et al. 2020 suggest, here the Adam of FFGB-distill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from consilience.core.learners import Learner
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.validation.arrays import Array
from consilience.lab.data import load, partition
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.models.presets import make

PUBLIC = {"mnist": "fashion-mnist", "fashion-mnist": "mnist", "cifar-10": "cifar-100"}
"""Data set to the one whose images are public."""

SHARES = (0.1, 0.2, 0.3)
"""s."""

STEP_SIZE = 10.0
"""η of FFGB-distill, with K = 1."""

CLIP = 5.0
"""The largest norm of a gradient."""

Published = Mapping[float, tuple[str, str, str, str]]
"""Target accuracy to models sent by FFGB-distill, FedAvg-distill, FedDyn and FedAvg."""

TABLE2: Mapping[tuple[str, float], Published] = {
    ("cifar-10", 0.1): {0.50: ("1", "4", "20", "25"), 0.55: ("3", "19", "30", "39")},
    ("cifar-10", 0.2): {0.54: ("1", "3", "16", "18"), 0.60: ("3", "25", "24", "32")},
    ("cifar-10", 0.3): {0.55: ("1", "3", "15", "16"), 0.60: ("3", "11", "20", "24")},
    ("fashion-mnist", 0.1): {0.89: ("8", "> 100", "93", "> 100")},
    ("fashion-mnist", 0.2): {0.89: ("5", "> 100", "68", "> 100")},
    ("fashion-mnist", 0.3): {0.89: ("3", "> 100", "43", "> 100")},
    ("mnist", 0.1): {0.99: ("4", "> 100", "> 100", "> 100")},
    ("mnist", 0.2): {0.99: ("4", "> 100", "> 100", "> 100")},
    ("mnist", 0.3): {0.99: ("4", "> 100", "> 100", "> 100")},
}
"""Table 2, EMNIST-L under Fashion-MNIST and EMNIST-D under MNIST."""

TARGETS = (0.5, 0.8, 0.9)
"""Shares of central training's accuracy, to be reached where less is trained than in the paper."""


@dataclass(frozen=True)
class Size:
    """Amount of data and training.

    Attributes:
        title: as notes call it.
        clients: N.
        train: training images of all clients together; fewer where the folder has fewer.
        held: training images that nobody trains on, by which rates are chosen.
        public: unlabelled images; fewer where the folder has fewer.
        test: test images.
        models: that a client sends in all, which are the rounds but for SCAFFOLD.
        search: rounds of the search for a rate.
        boosting_epochs: of a weak learner, of a distillation, and of FedAvg-distill's clients.
        boosting_rates: Adam's in these, of which one is chosen.
        averaging_epochs: of the clients of FedAvg, FedDyn and SCAFFOLD.
        averaging_rates: of gradient descent in these, of which one is chosen.
        central_epochs: of central training, with Adam.
        batch: rows a step.
        network: a learner's name.
        layers: its parameters.
        published: whether the targets are the paper's.
    """

    title: str
    clients: int
    train: int
    held: int
    public: int
    test: int
    models: int
    search: int
    boosting_epochs: int
    boosting_rates: tuple[float, ...]
    averaging_epochs: int
    averaging_rates: tuple[float, ...]
    central_epochs: int
    batch: int
    network: str
    layers: Mapping[str, Any]
    published: bool = False


def _full(train: int, widths: tuple[int, int]) -> Size:
    return Size(
        "full",
        clients=100,
        train=train,
        held=5000,
        public=60000,
        test=10000,
        models=100,
        search=20,
        boosting_epochs=100,
        boosting_rates=(1e-3,),
        averaging_epochs=10,
        averaging_rates=(0.01, 0.05, 0.1),
        central_epochs=100,
        batch=64,
        network="cnn",
        layers={"channels": (64, 64), "kernel": 5, "padded": False, "hidden": widths},
        published=True,
    )


_QUICK = Size(
    "quick",
    clients=4,
    train=120,
    held=40,
    public=40,
    test=100,
    models=2,
    search=1,
    boosting_epochs=2,
    boosting_rates=(1e-3, 5e-3),
    averaging_epochs=1,
    averaging_rates=(0.1, 0.3),
    central_epochs=2,
    batch=16,
    network="mlp",
    layers={"hidden": (16,)},
)

_DIGITS = {
    "full": _full(55000, (120, 84)),
    "cpu": Size(
        "CPU",
        clients=100,
        train=6000,
        held=1000,
        public=1000,
        test=2000,
        models=12,
        search=2,
        boosting_epochs=20,
        boosting_rates=(1e-3, 5e-3),
        averaging_epochs=10,
        averaging_rates=(0.1, 0.3, 1.0),
        central_epochs=20,
        batch=64,
        network="mlp",
        layers={"hidden": (64,)},
    ),
    "quick": _QUICK,
}

SIZES: Mapping[str, Mapping[str, Size]] = {
    "mnist": _DIGITS,
    "fashion-mnist": _DIGITS,
    "cifar-10": {
        "full": _full(45000, (394, 192)),
        "cpu": Size(
            "CPU",
            clients=100,
            train=2000,
            held=500,
            public=1000,
            test=1000,
            models=8,
            search=2,
            boosting_epochs=15,
            boosting_rates=(1e-3, 5e-3),
            averaging_epochs=10,
            averaging_rates=(0.1, 0.3, 1.0),
            central_epochs=20,
            batch=32,
            network="cnn",
            layers={"channels": (4, 8), "hidden": 32},
        ),
        "quick": _QUICK,
    },
}
"""Data set to size, by name: the paper's, what one core trains in minutes, and less than that."""


@dataclass(frozen=True)
class Images:
    """Images of one repetition; labels are codes.

    Attributes:
        X: of all clients, shape ``(n, …)``.
        y: shape ``(n,)``.
        held: images and labels that nobody trains on, to choose rates by.
        test: images and labels.
        public: images.
    """

    X: Array
    y: Array
    held: tuple[Array, Array]
    test: tuple[Array, Array]
    public: Array


@lru_cache(maxsize=2)
def _loaded(data: str) -> tuple[Array, Array, Array, Array]:
    whole = load(data)
    return whole.X, whole.y, whole.X_test, whole.y_test


def images(data: str, size: Size, repetition: int) -> Images:
    """The images of a repetition, the same for whatever is done with them.

    Args:
        data: a key of :data:`PUBLIC`.
        size: how many.
        repetition: which draw.
    """
    X, y, X_test, y_test = _loaded(data)
    shown = _loaded(PUBLIC[data])[0]
    rng = stream(repetition, f"shen2022/{data}", 0, "images")
    held, rows = np.split(rng.permutation(len(X))[: size.held + size.train], [size.held])
    test = rng.permutation(len(X_test))[: size.test]
    public = rng.permutation(len(shown))[: size.public]
    return Images(X[rows], y[rows], (X[held], y[held]), (X_test[test], y_test[test]), shown[public])


def clients(
    given: Images, share: float, size: Size, model: Learner, repetition: int
) -> list[Party]:
    """N clients with the same model; s is ``share``."""
    rng = stream(repetition, "shen2022", 0, "clients")
    parts = partition("shards", given.y, size.clients, rng, share=share)
    return [
        Party(f"client-{i:03}", model, given.X[rows], given.y[rows], calibration=0)
        for i, rows in enumerate(parts)
    ]


def averaged_network(size: Size, rate: float) -> Learner:
    """Make the network of FedAvg, FedDyn and SCAFFOLD, trained by plain gradient steps."""
    recipe = {
        "optimizer": "sgd",
        "learning_rate": rate,
        "epochs": size.averaging_epochs,
        "batch_size": size.batch,
        "gradient_clip": CLIP,
    }
    return make(size.network, kind="classification", recipe=recipe, **size.layers)


def fused_network(size: Size, rate: float) -> Learner:
    """Make the network of FedAvg-distill, trained by Adam, as long as FFGB-distill's."""
    return make(size.network, kind="classification", recipe=_adam(size, rate), **size.layers)


def boosted_network(size: Size, rate: float) -> Boosted:
    """Make the boosted model of FFGB-distill, trained by cross-entropy."""
    weak = {"name": size.network, "recipe": _adam(size, rate), **size.layers}
    return Boosted(weak, loss="cross-entropy")


def central_network(size: Size, rate: float) -> Learner:
    """Make the same network for training on all images."""
    recipe = {**_adam(size, rate), "first_epochs": size.central_epochs}
    return make(size.network, kind="classification", recipe=recipe, **size.layers)


def _adam(size: Size, rate: float) -> dict[str, Any]:
    return {
        "learning_rate": rate,
        "first_epochs": size.boosting_epochs,
        "epochs": size.boosting_epochs,
        "distill_epochs": size.boosting_epochs,
        "batch_size": size.batch,
        "gradient_clip": CLIP,
    }
